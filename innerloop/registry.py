"""Finds the problems, algorithms, policies and constructions: one file each, no list to keep.

The name of a member is the name of its file, with dashes.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from abc import ABC
from typing import TypeVar

from innerloop.errors import InputError, unknown

T = TypeVar("T")


def name_of(member: type) -> str:
    """`innerloop.algorithms.gradient_descent` → `gradient-descent`."""
    return member.__module__.rpartition(".")[2].replace("_", "-")


def summary_of(member: type) -> str:
    """The first line of the docstring of the member's file (or of the member)."""
    doc = inspect.getdoc(inspect.getmodule(member)) or inspect.getdoc(member) or ""
    return doc.strip().partition("\n")[0]


def members(package: str, base: type[T]) -> dict[str, type[T]]:
    """Every subclass of `base` that a file of `innerloop.<package>` defines, by name.

    A class that names ABC among its own bases is meant to be abstract and is passed over.
    """
    root = importlib.import_module(f"innerloop.{package}")
    found: dict[str, type[T]] = {}
    for info in sorted(pkgutil.iter_modules(root.__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{root.__name__}.{info.name}")
        for _, value in inspect.getmembers(module, inspect.isclass):
            own = value.__module__ == module.__name__ and ABC not in value.__bases__
            if own and issubclass(value, base):
                _check_whole(value)
                if name_of(value) in found:
                    raise InputError(f"{module.__name__} defines two members: one file each")
                found[name_of(value)] = value
    return found


def _check_whole(member: type) -> None:
    """Refuse a class that forgot something, rather than leave it out without a word."""
    missing = sorted(getattr(member, "__abstractmethods__", ()))
    required = getattr(member, "required", ("source",))
    missing += [name for name in required if not hasattr(member, name)]
    if missing:
        raise InputError(f"{member.__module__}: {member.__name__} lacks {', '.join(missing)}")


def find(package: str, base: type[T], name: str) -> type[T]:
    """The member called `name`, or an error that names the nearest one."""
    known = members(package, base)
    if name not in known:
        raise unknown(package.removesuffix("s"), name, known)
    return known[name]
