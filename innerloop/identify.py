"""The old home of `innerloop.identification`; it works with a warning until the next release.

`innerloop.identify` is the function now. Importing this module puts it in the function's place,
so it can be called as the function is.
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
    """A module that is called as the function of its name."""

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
