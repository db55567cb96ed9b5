"""Which algorithm does a transformer run? Its layers × candidate algorithms → a verdict.

    from innerloop.identify import identify
    found = identify(model, distribution)    # a Model, what `build` gives, or a function
    print(found.verdict, found.layers[0].algorithm, found.layers[0].score)

Names load on first use, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from innerloop.identify.hooked import HookedModel as HookedModel
    from innerloop.identify.hugging_face import gpt2 as gpt2
    from innerloop.identify.identification import Identified as Identified
    from innerloop.identify.identification import identify as identify
    from innerloop.identify.models import FunctionModel as FunctionModel
    from innerloop.identify.models import Model as Model

_HOMES = {
    "FunctionModel": "models",
    "HookedModel": "hooked",
    "Identified": "identification",
    "Model": "models",
    "gpt2": "hugging_face",
    "identify": "identification",
}

__all__ = ["FunctionModel", "HookedModel", "Identified", "Model", "gpt2", "identify"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
