"""innerloop finds the algorithm inside a transformer.

    import innerloop
    built = innerloop.build("newton", d=5, n=20, steps=12)
    print(built.certificate.max_deviation)

This module exports every public name: the functions (`build`, `identify`, `train`, `check`, …),
the base classes of members, every problem, distribution and policy, and the errors. The names are
listed once, in `__init__.pyi`. Each is imported when it is first used, so that `import innerloop`
is fast.
"""

import ast
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.2.0"

_FOLDERS_OF_PUBLIC_CLASSES = ("problems", "policies")
_RENAMED = {
    "BanditGame": "BanditGameProblem",
    "Built": "BuiltTransformer",
    "MissingLibrary": "MissingLibraryError",
    "OutOfRange": "OutOfRangeError",
    "listing": "list_members",
}
"""Old public names, which work with a warning until the next release."""


@cache
def _load_homes() -> dict[str, str]:
    """Read the module of each public name from the imports in `__init__.pyi`."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def find_home(name: str) -> str:
    """Return the module that defines a public name; for a submodule, return the submodule."""
    if name in _load_homes():
        return _load_homes()[name]
    for folder in _FOLDERS_OF_PUBLIC_CLASSES:
        for path in sorted((Path(__file__).parent / folder).glob("*.py")):
            if f"\nclass {name}(" in path.read_text("utf-8"):
                return f"innerloop.{folder}.{path.stem}"
    return f"innerloop.{name}"


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        from warnings import warn

        new = _RENAMED[name]
        warn(f"innerloop.{name} is now innerloop.{new}", DeprecationWarning, stacklevel=2)
        return __getattr__(new)
    home = find_home(name)
    if name.startswith("__") or home == f"innerloop.{name}":
        raise AttributeError(f"module 'innerloop' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return [*globals(), *_load_homes()]
