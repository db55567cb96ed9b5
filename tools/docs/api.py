"""Generate the API pages: every public name, grouped by the module that defines it."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import innerloop
from innerloop.parameters import Parameters

GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "problems": ("Problems and environments", ("innerloop.problems",)),
    "policies": ("Policies and games", ("innerloop.policies", "innerloop.playing")),
    "models": ("Models to identify", ("innerloop.identification",)),
    "claims": ("Claims and evidence", ("innerloop.claims",)),
    "members": ("Bases of members", ("",)),
}
"""Pages of classes: file, title, and the modules of the classes; the last page has all others."""
FIRST = ("build", "train", "identify", "check", "compile", "exact", "verify", "certify", "solve")
"""The functions that readers need most often; they come first on their page."""
MODULES = {
    "estimators": ("Estimators", "innerloop.estimators"),
    "language": ("The language", "innerloop.language"),
    "transformer": ("The machine", "innerloop.transformer"),
    "testing": ("Tests for members of your own", "innerloop.testing"),
}


def list_public_names() -> dict[str, str]:
    """List the public names of the package with the module that defines each."""
    return dict(vars(innerloop)["_load_homes"]())


def list_exports(module: str) -> list[str]:
    """List the exports of a module: `__all__`, or what its `__init__` imports from the package."""
    loaded = import_module(module)
    known = getattr(loaded, "__all__", None) or [
        name
        for name, value in vars(loaded).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__.startswith(module)
    ]
    return list(known)


def make_pages() -> dict[str, str]:
    """Write every page of the API, by file name."""
    homes = list_public_names()
    functions = [name for name in homes if inspect.isfunction(getattr(innerloop, name))]
    functions.sort(key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    classes = {name: home for name, home in homes.items() if name not in functions}
    pages = {
        "index.md": (
            "# API\n\nThis page lists the functions of `innerloop`. The other pages list the "
            "classes "
            "of their arguments and results.\n\n" + _write_references(functions)
        )
    }
    estimators = set(list_exports("innerloop.estimators"))
    left = {name: home for name, home in classes.items() if name not in estimators}
    for number, (file, (title, prefixes)) in enumerate(GROUPS.items(), 1):
        chosen = [name for name, home in left.items() if home.startswith(prefixes)]
        left = {name: home for name, home in left.items() if name not in chosen}
        header = f"---\norder: {number}\n---\n# {title}\n\n"
        pages[f"{file}.md"] = header + _write_references(chosen)
    for file, (title, module) in MODULES.items():
        about = (inspect.getdoc(import_module(module)) or "").split("\n\n")[0]
        names = list_exports(module)
        pages[f"{file}.md"] = (
            f"---\norder: 9\n---\n# {title}\n\n{about}\n\n{_refer_to_exports(module, names)}"
        )
    return pages


def _write_references(names: Iterable[str]) -> str:
    """Write the lines from which mkdocstrings generates the entries of public names.

    A line contains the full name with the defining module, because a module and a function may have
    the same name.
    """
    homes = list_public_names()
    parts = []
    for name in names:
        parts.append(f"::: {homes[name]}.{name}\n")
        value = getattr(innerloop, name)
        if inspect.isclass(value) and issubclass(value, Parameters):
            parts.append(_write_settings(value))
    return "\n".join(parts)


def _refer_to_exports(module: str, names: Iterable[str]) -> str:
    return "\n".join(f"::: {module}.{name}\n" for name in names)


def _write_settings(kind: type[Parameters]) -> str:
    """Write the table of the parameters that a class declares with `parameter`."""
    fields = {n: f for n, f in kind.__dataclass_fields__.items() if "help" in f.metadata}
    if not fields:
        return ""
    lines = ["| setting | default | meaning |", "|---|---|---|"]
    for name, each in fields.items():
        meaning = each.metadata["help"].replace("|", "\\|")
        lines.append(f"| `{name}` | `{each.default}` | {meaning} |")
    return "\n".join(lines) + "\n"


def get_public_callables() -> dict[str, Any]:
    """Return every public function, and every class that users instantiate, by full name."""
    names = {f"innerloop.{name}": getattr(innerloop, name) for name in list_public_names()}
    for _, module in MODULES.values():
        if module != "innerloop.transformer":
            loaded = import_module(module)
            names |= {f"{module}.{name}": getattr(loaded, name) for name in list_exports(module)}
    return names
