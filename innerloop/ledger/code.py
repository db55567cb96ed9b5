"""Which code decides an outcome, as one digest: it changes when that code does, and only then.

What a module imports from innerloop counts, wherever in the file it stands, and so does what that
imports. A module that looks names up in the registry may reach any member, so it counts with all of
them. Comments and docstrings decide nothing and are left out. Weights that a cell's settings name
decide as code does.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import innerloop
from innerloop.claims.recorded import files

ROOT = Path(innerloop.__file__).parent
REGISTERED = ("problems", "algorithms", "policies", "constructions", "recipes")


def decided(module: str, settings: Mapping[str, Any]) -> str:
    """The digest of what decides a cell: a claim's code, and recorded weights that it names."""
    named = weights(settings)
    if not named:
        return fingerprint(module)
    return hashlib.sha256(f"{fingerprint(module)} {named}".encode()).hexdigest()


def weights(settings: Mapping[str, Any]) -> str:
    """The digest of recorded weights that settings name; nothing where they name none."""
    named = sorted({path for name in _texts(settings) for path in files(name)})
    digest = hashlib.sha256()
    for path in named:
        digest.update(f"{path.parent.name}/{path.name}\n".encode() + path.read_bytes())
    return digest.hexdigest() if named else ""


def _texts(settings: Any) -> Iterator[str]:
    """The words among settings, however deep."""
    if isinstance(settings, str):
        yield settings
    elif isinstance(settings, Mapping):
        yield from (text for value in settings.values() for text in _texts(value))
    elif isinstance(settings, list | tuple):
        yield from (text for value in settings for text in _texts(value))


@cache
def fingerprint(module: str) -> str:
    """The digest of a module and of all that it depends on in innerloop."""
    found: dict[str, str] = {}
    reached = [module]
    while reached:
        name = reached.pop()
        if name not in found:
            found[name], imported = _parsed(name)
            reached += imported
    told = "\n".join(f"{name} {digest}" for name, digest in sorted(found.items()))
    return hashlib.sha256(told.encode()).hexdigest()


@cache
def package() -> str:
    """The digest of all files of innerloop as they are: whether two machines have the same."""
    digest = hashlib.sha256()
    for path in sorted(ROOT.rglob("*.py")):
        digest.update(f"{path.relative_to(ROOT).as_posix()}\n".encode() + path.read_bytes())
    return digest.hexdigest()


@cache
def _parsed(module: str) -> tuple[str, list[str]]:
    """The digest of what a module's file does, and the modules of innerloop that it names."""
    path = _path(module)
    if path is None:
        return "", []
    tree = ast.parse(path.read_text("utf-8"))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [part for part in node.body if not _is_text(part)]
        else:
            names.update(_named(node))
    if any(name.startswith("innerloop.registry") for name in names):
        for package in REGISTERED:
            files = (ROOT / package).glob("*.py")
            names.update(f"innerloop.{package}.{path.stem}" for path in files)
    whole = {parent for name in names for parent in _parents(name) if _path(parent)}
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest(), sorted(whole)


def _named(node: ast.AST) -> Iterator[str]:
    """The full names that an import statement names; nothing for other nodes."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module == "innerloop":
        for alias in node.names:
            yield f"innerloop.{innerloop._HOMES.get(alias.name, alias.name)}"
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _parents(name: str) -> Iterator[str]:
    """A name of innerloop and the packages that it is in: importing it runs them all."""
    parts = name.split(".")
    if parts[0] == "innerloop":
        yield from (".".join(parts[:k]) for k in range(2, len(parts) + 1))


@cache
def _path(module: str) -> Path | None:
    """The file of a module; none where the name is something inside one."""
    first, *rest = module.split(".")
    if first != "innerloop":
        spec = find_spec(module)
        return Path(spec.origin) if spec and spec.origin else None
    place = ROOT.joinpath(*rest)
    candidates = (place.with_name(f"{place.name}.py"), place / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
