"""The old home of `innerloop.identification`; it works with a warning until the next release.

`innerloop.identify` is a function now. Importing this module replaces the function by the module,
so the module can be called like the function.
"""

import sys
from types import ModuleType
from typing import Any
from warnings import warn

import innerloop

_RENAMED = {"Identified": "Identification", "gpt2": "wrap_gpt2"}

warn(
    "innerloop.identify is a function now: import HookedModel, FunctionModel, … from innerloop",
    DeprecationWarning,
    stacklevel=2,
)


class _CallableModule(ModuleType):
    """A module that can be called like the function with the same name."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return identify(*arguments, **options)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(innerloop, _RENAMED.get(name, name))


def identify(*arguments: Any, **options: Any) -> Any:
    """Identify a model: see `innerloop.identification.identification.identify`."""
    from innerloop.identification.identification import identify as function

    return function(*arguments, **options)


sys.modules[__name__].__class__ = _CallableModule
