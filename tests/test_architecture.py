"""The folders point one way, and a new construction is one new file."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import innerloop

ROOT = Path(innerloop.__file__).parent

# a → b: a may be imported by b, and so by whatever b may be imported by.
ARROWS = [
    ("problems", "algorithms"),
    ("algorithms", "bases"),
    ("problems", "policies"),
    ("policies", "constructions"),
    ("bases", "language"),
    ("language", "constructions"),
    ("constructions", "certification"),
    ("certification", "recipes"),
    ("recipes", "playing"),
    ("playing", "claims"),
    ("recipes", "identification"),
    ("identification", "claims"),
    ("claims", "ledger"),
    ("claims", "catalogue"),
    ("certification", "programs"),
    ("programs", "catalogue"),
    ("claims", "testing"),
    ("catalogue", "commands"),
    ("ledger", "surveys"),
    ("surveys", "report"),
    ("report", "commands"),
    ("output", "commands"),
    ("printing", "commands"),
    ("terminal", "commands"),
    ("commands", "cli"),
    ("transformer", "bases"),
    ("transformer", "models"),
    ("models", "recipes"),
    ("training", "recipes"),
    ("theory", "training"),
    ("theory", "claims"),
    ("problems", "training"),
    ("recipes", "solving"),
    ("terminal", "solving"),
    ("output", "terminal"),
    ("solving", "estimators"),
    ("estimators", "commands"),
    ("claims", "lab"),
    ("estimators", "lab"),
    ("lab", "commands"),
    ("transformer", "training"),
]
FOUNDATION = {
    *(
        "arrays",
        "deprecation",
        "devices",
        "errors",
        "files",
        "jsonfiles",
        "limits",
        "links",
        "locations",
        "mathtext",
        "parameters",
        "progress",
        "provenance",
        "registry",
    ),
    *("results", "sealed"),
}
"""Small modules under everything; they import none of the folders."""
BASES = {"constructions.base", "constructions.regression"}
"""Files that the language is built on, and constructions on the language."""
ENTRIES = {"__init__", "__main__", "cli", "guard", "identify", "output", "printing", "terminal"}


def list_allowed(folder: str) -> set[str]:
    """List what a folder may import."""
    direct = {source for source, target in ARROWS if target == folder}
    return direct.union(*(list_allowed(source) for source in direct), FOUNDATION, {folder})


def list_imports(path: Path) -> set[str]:
    """List the parts of innerloop that a file imports, wherever in the file."""
    found = set()
    for node in list_import_statements(path.read_text("utf-8")):
        if isinstance(node, ast.ImportFrom) and node.level:
            found.add("a relative path")
        for name in list_imported_names(node):
            first, *rest = name.split(".")
            if first == "innerloop" and rest and not rest[0].startswith("__"):
                home = innerloop.find_home(rest[0]) if node_is_lazy(node) else name
                found.add(name_part(home.split(".")[1:]))
    return found


def name_part(path: list[str]) -> str:
    """Name the part of innerloop that a module belongs to: its folder, or `bases`."""
    return "bases" if ".".join(path) in BASES else path[0]


@functools.cache
def list_import_statements(text: str) -> list[ast.Import | ast.ImportFrom]:
    """List the import statements of a file's text, once for all tests: parsing takes long."""
    nodes = ast.walk(ast.parse(text))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def node_is_lazy(node: ast.AST) -> bool:
    """Whether an import takes public names from the package itself."""
    return isinstance(node, ast.ImportFrom) and node.module == "innerloop"


def list_imported_names(node: ast.AST) -> list[str]:
    """List the full names that an import statement loads; none for other nodes."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        whole = node.module != "innerloop"
        return [node.module if whole else f"innerloop.{alias.name}" for alias in node.names]
    return []


def find_violations(root: Path) -> list[str]:
    found = []
    for path in sorted(root.rglob("*.py")):
        owner = name_part(list(path.relative_to(root).with_suffix("").parts))
        if owner in ENTRIES:
            continue
        allowed = FOUNDATION if owner in FOUNDATION else list_allowed(owner)
        found += [f"{path.relative_to(root)} imports {n}" for n in list_imports(path) - allowed]
    return found


def test_imports_point_one_way() -> None:
    assert not find_violations(ROOT)


def test_an_import_that_points_backwards_is_found(tmp_path: Path) -> None:
    copy = tmp_path / "innerloop"
    shutil.copytree(ROOT, copy)
    (copy / "problems" / "backwards.py").write_text("from innerloop.algorithms import newton\n")
    (copy / "transformer" / "knows.py").write_text("def f():\n    import innerloop.problems.base\n")
    (copy / "registry.py").write_text("from innerloop import cli\n")
    (copy / "problems" / "lazy.py").write_text("def f():\n    from innerloop import build\n")
    (copy / "problems" / "relative.py").write_text("from .. import algorithms\n")
    assert find_violations(copy) == [
        "problems/backwards.py imports algorithms",
        "problems/lazy.py imports certification",
        "problems/relative.py imports a relative path",
        "registry.py imports cli",
        "transformer/knows.py imports problems",
    ]


def test_the_report_computes_nothing() -> None:
    for path in (ROOT / "report").glob("*.py"):
        assert not list_packages(path) & {"torch", "numpy", "scipy", "sklearn"}, path


def list_packages(path: Path) -> set[str]:
    """List the top-level packages that a file imports."""
    nodes = list_import_statements(path.read_text("utf-8"))
    return {name.split(".")[0] for node in nodes for name in list_imported_names(node)}


def test_nothing_is_unpickled_or_evaluated() -> None:
    for path in ROOT.rglob("*.py"):
        packages = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
        assert not list_packages(path) & packages, path
        text = path.read_text("utf-8")
        assert not re.search(r"\b(read_pickle|allow_pickle)\b", text), path
        if not re.search(r"\b(eval|exec|load|compile)\b", text):
            continue  # few are parsed again
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in {"eval", "exec", "torch.load", "torch.jit.load", "compile"}, (
                    path
                )


# Several commands in one process, and at last the tests of every construction on the new one:
# importing torch takes longer than each of them.
DRIVER = """
import contextlib, io, json, sys
from innerloop.cli import main
done = []
for words in json.load(sys.stdin):
    sys.argv, code, out, err = ["innerloop", *words], 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    done.append([code, out.getvalue(), err.getvalue().splitlines()])
from innerloop.constructions.base import Construction
from innerloop.registry import load_members
from innerloop.testing.constructions import check_every_weight, check_law
found = load_members("constructions", Construction)["brand-new"]
check_law(found)
check_every_weight(found)
print(json.dumps([*done, [0, found.__name__, []]]))
"""


class CommandResult(NamedTuple):
    """Exit code, output and lines of errors of a command."""

    code: int
    out: str
    errors: list[str]


def run_commands(folder: Path, *commands: str) -> list[CommandResult]:
    """Run commands with the copy of the package that lies in a folder, then its own checks."""
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        env={**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
        cwd=folder,
        input=json.dumps([command.split() for command in commands]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [CommandResult(*each) for each in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def command_results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CommandResult]:
    """What commands give with a copy of the package that has a new file and three broken ones.

    All in one process, and with the byte code of the original: loading takes longer than the rest.
    """
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT, copy / "innerloop")
    folder = copy / "innerloop" / "constructions"
    text = (folder / "newton.py").read_text("utf-8")
    text = text.replace('"""Newton\'s iteration', '"""Another iteration', 1)
    text = text.replace("class NewtonConstruction", "class BrandNewConstruction")
    (folder / "brand_new.py").write_text(text)
    text = (folder / "format_conversion.py").read_text("utf-8")
    text = text.replace("def body(", "def bodyy(").replace("    cost = ", "    costs = ")
    (folder / "half_done.py").write_text(text)
    (folder / "mistyped.py").write_text('"""A method."""\n\ndef body(:\n')
    (copy / "innerloop" / "claims" / "ahn2023" / "lemma_99.py").write_text("import nowhere\n")
    commands = [
        "build newton -s d=2 -s steps=2",
        "build mistyped",
        "build brand-new -s d=2",
        "list",
        "list constructions --json",
    ]
    return dict(zip([*commands, "checks"], run_commands(copy, *commands), strict=True))


def test_a_new_construction_is_one_new_file(command_results: dict[str, CommandResult]) -> None:
    """It is listed, built, and found by the tests of every construction, with nothing edited."""
    rows = json.loads(command_results["list constructions --json"].out)["constructions"]
    new = next(member for member in rows if member["name"] == "brand-new")
    assert new["description"].startswith("Another iteration")
    assert command_results["build brand-new -s d=2"].code == 0
    assert command_results["checks"].out == "BrandNewConstruction"
    own = Path(__file__).parent
    for name in ("construction_law", "certificate"):
        assert (
            'load_members("constructions", Construction)' in (own / f"test_{name}.py").read_text()
        )


def test_one_broken_file_breaks_nothing_else(command_results: dict[str, CommandResult]) -> None:
    """It is skipped with one line that says which and why; its own name is an error."""
    built = command_results["build newton -s d=2 -s steps=2"]
    refused, listed = command_results["build mistyped"], command_results["list"]
    half = "innerloop.constructions.half_done: FormatConversionConstruction"
    assert built.code == 0
    assert built.errors == [
        f"innerloop: skipped: {half} lacks body, cost",
        "innerloop: skipped: innerloop/constructions/mistyped.py, line 3: SyntaxError: "
        "invalid syntax",
    ]
    assert refused.code == 2
    (message,) = refused.errors
    assert message.startswith("innerloop: the construction 'mistyped' cannot be loaded: innerloop/")
    assert listed.code == 0
    (skipped,) = listed.errors
    assert "innerloop/claims/ahn2023/lemma_99.py, line 1: ModuleNotFoundError" in skipped
