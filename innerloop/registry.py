"""Find members: problems, algorithms, policies, constructions, programs, recipes and claims.

A member has one of three origins, and no list of members has to be maintained:

    a file of this package            innerloop/constructions/newton.py is `newton`
    an entry point of another one     group `innerloop.constructions`, by the entry point's name
    an argument of the caller         an object, a class, `module:attribute`, `file.py:attribute`

A file that cannot be loaded is skipped, and a message states the file and the reason. A request
for its member by name is an error. Lookups can be recorded, so that the dependencies of a result
are known.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import warnings
from abc import ABC
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar, cast

from innerloop.errors import InputError, unknown_name_error
from innerloop.locations import describe_failure, get_location, load_object

T = TypeVar("T")

KINDS = {
    "problems": "problem",
    "algorithms": "algorithm",
    "policies": "policy",
    "constructions": "construction",
    "programs": "program",
    "recipes": "recipe",
    "claims": "claim",
}
"""The folder and entry-point group of each kind, and the singular of its name."""
PACKAGE = "innerloop"
FURTHER_KINDS = {"constructions": ("programs",)}
"""Kinds whose members also belong to another kind: a program is a construction."""


class SkippedMember(UserWarning):
    """A warning that a file or entry point could not be loaded and is skipped."""


class Entry(NamedTuple):
    """A registered member: its name, its owner, and the class (or claim)."""

    name: str
    owner: str
    value: Any


class _Skipped(NamedTuple):
    name: str
    reason: str


class _Scan(NamedTuple):
    entries: tuple[Entry, ...]
    skipped: tuple[_Skipped, ...]


def load_members(kind: str, base: type[T]) -> dict[str, type[T]]:
    """Return all registered classes of a kind that derive from `base`, as a mapping from names."""
    _record(kind, None)
    return {name: entry.value for name, entry in load_entries(kind, base).items()}


def load_entries(kind: str, base: type) -> dict[str, Entry]:
    """Load every registered member of a kind with its owner; of equal names, use the first."""
    entries: dict[str, Entry] = {}
    for entry in _scan_checked(kind, base).entries:
        if entry.name in entries:
            _warn_once(_describe_clash(kind, [entries[entry.name], entry]))
        else:
            entries[entry.name] = entry
    return entries


def find_member(kind: str, base: type[T], name: str) -> type[T]:
    """Find the class with a name, or the class at `module:attribute` or `file.py:attribute`."""
    if ":" in name:
        value = load_object(name)
        if inspect.isclass(value) and issubclass(value, base):
            _check_complete(value)
            return value
        raise InputError(f"{name} is not a {KINDS[kind]}: expected a subclass of {base.__name__}")
    scan = _scan_checked(kind, base)
    matching = [entry for entry in scan.entries if entry.name == name]
    for further in FURTHER_KINDS.get(kind, ()) if not matching else ():
        if name in load_entries(further, base):
            return find_member(further, base, name)
    if len(matching) > 1:
        raise InputError(_describe_clash(kind, matching))
    if matching:
        _record(kind, matching[0].value)
        return matching[0].value
    for skipped in scan.skipped:
        if skipped.name == name:
            raise InputError(f"the {KINDS[kind]} {name!r} cannot be loaded: {skipped.reason}")
    others = [
        each for further in FURTHER_KINDS.get(kind, ()) for each in load_entries(further, base)
    ]
    raise unknown_name_error(KINDS[kind], name, [*(entry.name for entry in scan.entries), *others])


def make_member(kind: str, base: type[T], member: Any, settings: Mapping[str, Any]) -> T:
    """Make a member from a name, a location, a class, or an object, with settings by name."""
    if isinstance(member, str) and ":" in member:
        member = load_object(member)
    if isinstance(member, str):
        member = find_member(kind, base, member)
    if inspect.isclass(member) and issubclass(member, base):
        _check_complete(member)
        return cast(Any, member).from_values(dict(settings))
    if isinstance(member, base):
        if not settings:
            return member
        made = cast(Any, member)
        return type(made).from_values({**made.values(), **settings})
    raise InputError(
        f"expected a {KINDS[kind]}: a name, a subclass of {base.__name__} or an object of one, "
        f"or module:attribute; got {_describe(member)}"
    )


def find_class(kind: str, base: type[T], member: Any) -> type[T]:
    """Return the class of a member from its name, its location, its class or an object of it."""
    if isinstance(member, str) and ":" in member:
        member = load_object(member)
    if isinstance(member, str):
        return find_member(kind, base, member)
    kind_of_member = member if inspect.isclass(member) else type(member)
    if not issubclass(kind_of_member, base):
        raise InputError(f"expected a {KINDS[kind]}, got {_describe(member)}")
    return kind_of_member


def get_name(member: type) -> str:
    """Name a member: its file in this package, its entry point, or where it is defined.

    A class in `innerloop.algorithms.gradient_descent` is `gradient-descent`. A user's own class is
    `module:Class`, or `file.py:Class` if it was loaded from a file. The algorithm of a program
    has the name of the program.
    """
    member = getattr(member, "named_after", member)
    module = member.__module__
    if module.partition(".")[0] == PACKAGE:
        return _name_file(module)
    value = f"{module}:{member.__qualname__}"
    for kind in KINDS:
        for point in _entry_points(kind):
            if point.value == value:
                return point.name
    return f"{get_location(module)}:{member.__qualname__}"


def get_summary(member: type) -> str:
    """Return the first line of the docstring of the member's file, or of the member."""
    inside = member.__module__.partition(".")[0] == PACKAGE
    documented = [inspect.getmodule(member), member] if inside else [member]
    doc = next((text for text in map(inspect.getdoc, documented) if text), "")
    return doc.strip().partition("\n")[0]


_lookups: ContextVar[set[str] | None] = ContextVar("lookups", default=None)


@contextmanager
def record_lookups() -> Iterator[set[str]]:
    """Record the modules of members that are looked up, and `kind *` for lookups of a whole
    kind."""
    names: set[str] = set()
    token = _lookups.set(names)
    try:
        yield names
    finally:
        _lookups.reset(token)


def list_modules(kind: str) -> list[str]:
    """List the modules that members of a kind come from, without loading any."""
    root = Path(__file__).parent / kind
    own = [f"{PACKAGE}.{kind}.{path.stem}" for path in sorted(root.glob("[!_]*.py"))]
    return own + [point.value.partition(":")[0] for point in _entry_points(kind)]


def _record(kind: str, member: type | None) -> None:
    """Add a member, or a whole kind if the member is None, to the recorded lookups."""
    names = _lookups.get()
    if names is not None:
        names.add(f"{kind} *" if member is None else member.__module__)


def _scan_checked(kind: str, base: type) -> _Scan:
    """Scan a kind for subclasses of `base`, and warn once about each skipped file."""
    scan = _scan_classes(kind, base)
    for skipped in scan.skipped:
        _warn_once(f"skipped: {skipped.reason}")
    return scan


@cache
def _scan_classes(kind: str, base: type) -> _Scan:
    """Collect the registered classes of a kind, and the reasons why others are skipped."""
    entries, skipped = [], []
    for name, module, reason in scan_modules(f"{PACKAGE}.{kind}"):
        if module is None:
            skipped.append(_Skipped(_name_file(name), reason))
            continue
        classes = [value for value in vars(module).values() if _defines(module, value, base)]
        reasons = [_describe_missing(value) for value in classes]
        if len(classes) > 1:
            reasons.append(f"{name} defines {len(classes)} members: one file each")
        if broken := [reason for reason in reasons if reason]:
            skipped.append(_Skipped(_name_file(name), broken[0]))
        else:
            entries += [Entry(_name_file(name), PACKAGE, value) for value in classes]
    for point, owner, value, reason in scan_entry_points(kind):
        own = inspect.isclass(value)
        if not reason and not own:
            reason = f"{point} of {owner} is not a class"  # noqa: PLW2901
        if not reason and issubclass(value, base):
            reason = _describe_missing(value)  # noqa: PLW2901
            entries += [] if reason else [Entry(point, owner, value)]
        if reason:
            skipped.append(_Skipped(point, reason))
    return _Scan(tuple(entries), tuple(skipped))


def scan_modules(package: str, deep: bool = False) -> Iterator[tuple[str, ModuleType | None, str]]:
    """Import the modules of a package; yield names with modules, or with reasons of failures."""
    root = importlib.import_module(package)
    if deep:
        infos = pkgutil.walk_packages(root.__path__, f"{package}.", onerror=lambda name: None)
    else:
        infos = pkgutil.iter_modules(root.__path__, f"{package}.")
    for name in sorted(info.name for info in infos):
        try:
            yield name, importlib.import_module(name), ""
        except (Exception, SystemExit) as error:
            yield name, None, describe_failure(error)


def scan_entry_points(kind: str) -> Iterator[tuple[str, str, Any, str]]:
    """Load the entry points of a kind; yield name, owner and value, or the reason of a failure."""
    for point in _entry_points(kind):
        owner = point.dist.name if point.dist is not None else point.module
        try:
            yield point.name, owner, point.load(), ""
        except (Exception, SystemExit) as error:
            yield point.name, owner, None, f"{point.name} of {owner}: {describe_failure(error)}"


@cache
def _entry_points(kind: str) -> tuple[EntryPoint, ...]:
    return tuple(sorted(entry_points(group=f"{PACKAGE}.{kind}"), key=lambda point: point.name))


def _defines(module: ModuleType, value: Any, base: type) -> bool:
    """Return whether a module defines a class that is a member, not an abstract base."""
    own = inspect.isclass(value) and value.__module__ == module.__name__
    return own and issubclass(value, base) and ABC not in value.__bases__


def _name_file(module: str) -> str:
    return module.rpartition(".")[2].replace("_", "-")


def _check_complete(member: type) -> None:
    if reason := _describe_missing(member):
        raise InputError(reason)


def _describe_missing(member: type) -> str:
    """Describe the missing declarations of a class; return an empty text if it is complete."""
    missing = sorted(getattr(member, "__abstractmethods__", ()))
    required: Iterable[str] = getattr(member, "required", ("source",))
    missing += [name for name in required if not hasattr(member, name)]
    if not missing:
        return ""
    return f"{get_location(member.__module__)}: {member.__name__} lacks {', '.join(missing)}"


def _describe_clash(kind: str, entries: Iterable[Entry]) -> str:
    """Describe members of one kind that have the same name."""
    places = [f"{e.value.__module__}:{e.value.__qualname__} ({e.owner})" for e in entries]
    name = next(iter(entries)).name
    return f"two {kind} are called {name!r}: {' and '.join(places)}; rename one"


def _describe(value: Any) -> str:
    return f"the class {value.__name__}" if inspect.isclass(value) else f"a {type(value).__name__}"


_warned: set[str] = set()


def _warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, SkippedMember, stacklevel=2)
