"""Old names that work with a warning for one release."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from warnings import warn


class RenamedMethod:
    """An old name of a method, which warns when it is used: `of = RenamedMethod("from_heads")`."""

    def __init__(self, new: str) -> None:
        self.new = new
        self.old = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.old = name

    def __get__(self, instance: object, owner: type) -> Any:
        name = owner.__name__
        method = getattr(owner if instance is None else instance, self.new)
        warn(f"{name}.{self.old} is now {name}.{self.new}", DeprecationWarning, stacklevel=2)
        return method


def make_renaming_getattr(
    module: str, names: Mapping[str, str], namespace: Mapping[str, Any]
) -> Callable[[str], Any]:
    """Make a module's `__getattr__` that resolves old names and warns; `names` maps old to new
    names."""

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn(f"{module}.{name} is now {module}.{names[name]}", DeprecationWarning, stacklevel=2)
        return namespace[names[name]]

    return find
