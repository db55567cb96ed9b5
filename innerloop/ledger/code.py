"""Find the modules that the result of a cell depends on, and compute a digest of each.

A cell depends on the module of its claim, on all modules that this module imports (also inside
functions), on registered members that the cell looked up by name while it ran, and on recorded
weights that its settings name. Comments, docstrings and the dollar signs around mathematics do not
change a result, so digests ignore them. If a digest has changed, the stored result is stale, and
the changed modules are reported by name.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import innerloop
from innerloop.claims.recorded import digest_recorded
from innerloop.registry import list_modules

ROOT = Path(innerloop.__file__).parent
WEIGHTS = "recorded weights"
"""The entry for the weights that a cell's settings name."""
DIGITS = 16


def collect_dependencies(
    module: str, lookups: Iterable[str], settings: Mapping[str, Any]
) -> dict[str, str]:
    """Return the digest of each dependency of a cell: modules, kinds of members, recorded weights.

    Args:
        module: The claim's module, as for `load_module`.
        lookups: The names that `record_lookups` recorded while the cell ran.
        settings: The settings of the cell, which may name recorded weights.
    """
    digests = {}
    waiting = [module]
    for lookup in lookups:
        kind, star, _ = lookup.partition(" *")
        waiting += list_modules(kind) if star else [lookup]
        if star:
            digests[lookup] = _digest("\n".join(list_modules(kind)).encode())
    home = Home(module)
    while waiting:
        name = waiting.pop()
        path = home.find_path(name)
        if name not in digests and path is not None:
            digests[name], imported = _parse_module(path)
            waiting += imported
    if weights := digest_weights(settings):
        digests[WEIGHTS] = weights
    return dict(sorted(digests.items()))


def find_changes(
    recorded: Mapping[str, str], module: str, settings: Mapping[str, Any]
) -> list[str]:
    """List the dependencies of a stored result whose digests have changed since it was made."""
    home = Home(module)

    def digest_now(name: str) -> str:
        if name == WEIGHTS:
            return digest_weights(settings)
        kind, star, _ = name.partition(" *")
        if star:
            return _digest("\n".join(list_modules(kind)).encode())
        path = home.find_path(name)
        return "" if path is None else _parse_module(path)[0]

    return [name for name, digest in recorded.items() if digest_now(name) != digest]


class Home:
    """Finds files of modules: those of innerloop, and those of a claim's own package or folder."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.folder = Path(module).parent if module.endswith(".py") else None
        self.package = module.partition(".")[0]

    def find_path(self, name: str) -> Path | None:
        """Find the file of a module of innerloop or of the claim; None for any other name."""
        if name.endswith(".py"):
            # The claim's own file may have been named from another folder.
            path = Path(self.module if Path(name).name == Path(self.module).name else name)
            return path.resolve() if path.is_file() else None
        first = name.partition(".")[0]
        if first == "innerloop":
            return _find_file(ROOT, name.split(".")[1:])
        if self.folder is not None:
            return _find_file(self.folder, name.split("."))
        return _find_installed(name) if first == self.package else None


def digest_weights(settings: Mapping[str, Any]) -> str:
    """Compute the digest of the recorded weights that settings name; empty if they name none."""
    digests = {
        f"{folder}/{name}": digest
        for name in _iterate_texts(settings)
        for folder, digest in digest_recorded(name).items()
    }
    return _digest(json.dumps(digests, sort_keys=True).encode()) if digests else ""


@cache
def _parse_module(path: Path) -> tuple[str, list[str]]:
    """Return the digest of a file's code, and the modules it imports with their parent packages."""
    tree = ast.parse(path.read_text("utf-8"))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [part for part in node.body if not _is_text(part)]
        else:
            names.update(_list_imports(node))
    parents = {parent for name in names for parent in _list_imported_packages(name)}
    return _digest("".join(_write_tree(tree)).encode()), sorted(parents)


def _list_imports(node: ast.AST) -> Iterator[str]:
    """Yield the modules that an import, or an attribute of `innerloop`, refers to."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module == "innerloop":
        yield from (innerloop.find_home(alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "innerloop":
        yield innerloop.find_home(node.attr)


def _list_imported_packages(name: str) -> Iterator[str]:
    """Yield a module and its parent packages except `innerloop`; an import runs all of them."""
    parts = name.split(".")
    shortest = 2 if parts[0] == "innerloop" else 1
    yield from (".".join(parts[:k]) for k in range(shortest, len(parts) + 1))


def _find_file(root: Path, parts: list[str]) -> Path | None:
    place = root.joinpath(*parts)
    candidates = (place.with_name(f"{place.name}.py"), place / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)


@cache
def _find_installed(name: str) -> Path | None:
    """Find the Python file of an installed module; None if it has none."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


def _iterate_texts(settings: Any) -> Iterator[str]:
    """Yield all texts in nested settings."""
    if isinstance(settings, str):
        yield settings
    elif isinstance(settings, Mapping):
        yield from (text for value in settings.values() for text in _iterate_texts(value))
    elif isinstance(settings, list | tuple):
        yield from (text for value in settings for text in _iterate_texts(value))


def _write_tree(node: Any) -> Iterator[str]:
    """Write a syntax tree as text, without empty fields, in which versions of Python differ."""
    if isinstance(node, ast.AST):
        yield f"({type(node).__name__}"
        for name, value in _list_fields(node):
            if value not in (None, []):
                yield f" {name}="
                yield from _write_tree(value)
        yield ")"
    elif isinstance(node, list):
        for part in node:
            yield from _write_tree(part)
    else:
        yield repr(node.replace("$", "") if isinstance(node, str) else node)


def _list_fields(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a syntax node; leave out dollar signs around mathematics in f-strings."""
    for name, value in ast.iter_fields(node):
        text = isinstance(node, ast.JoinedStr)
        yield name, [part for part in value if not _is_dollar(part)] if text else value


def _is_dollar(part: ast.expr) -> bool:
    """Whether a part of an f-string is a single dollar sign, which marks mathematics."""
    return isinstance(part, ast.Constant) and part.value == "$"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGITS]


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
