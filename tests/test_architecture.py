"""The folders point one way, and a new construction is one new file."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import innerloop

ROOT = Path(innerloop.__file__).parent

# a → b: a may be imported by b, and so by whatever b may be imported by.
ARROWS = [
    ("problems", "algorithms"),
    ("algorithms", "constructions"),
    ("problems", "policies"),
    ("policies", "constructions"),
    ("constructions", "certification"),
    ("certification", "recipes"),
    ("certification", "playing"),
    ("playing", "claims"),
    ("recipes", "identification"),
    ("identification", "claims"),
    ("claims", "ledger"),
    ("claims", "catalogue"),
    ("claims", "testing"),
    ("catalogue", "commands"),
    ("ledger", "surveys"),
    ("surveys", "report"),
    ("report", "commands"),
    ("output", "commands"),
    ("printing", "commands"),
    ("terminal", "commands"),
    ("commands", "cli"),
    ("transformer", "constructions"),
    ("transformer", "models"),
    ("models", "recipes"),
    ("training", "recipes"),
    ("theory", "training"),
    ("theory", "claims"),
    ("problems", "training"),
    ("transformer", "training"),
]
FOUNDATION = {
    *(
        "arrays",
        "deprecation",
        "errors",
        "files",
        "jsonfiles",
        "limits",
        "locations",
        "parameters",
        "progress",
        "provenance",
        "registry",
    ),
    *("results", "sealed"),
}
"""Small modules under everything; they import none of the folders."""
ENTRIES = {"__init__", "__main__", "cli", "guard", "identify", "output", "printing", "terminal"}


def list_allowed(folder: str) -> set[str]:
    """List what a folder may import."""
    direct = {source for source, target in ARROWS if target == folder}
    return direct.union(*(list_allowed(source) for source in direct), FOUNDATION, {folder})


def list_imports(path: Path) -> set[str]:
    """List the parts of innerloop that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            found.add("a relative path")
        for name in list_imported_names(node):
            first, *rest = name.split(".")
            if first == "innerloop" and rest and not rest[0].startswith("__"):
                home = innerloop.find_home(rest[0]) if node_is_lazy(node) else name
                found.add(home.split(".")[1])
    return found


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
        owner = path.relative_to(root).parts[0].removesuffix(".py")
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
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return {name.split(".")[0] for node in nodes for name in list_imported_names(node)}


def test_nothing_is_unpickled_or_evaluated() -> None:
    for path in ROOT.rglob("*.py"):
        assert not list_packages(path) & {"pickle", "marshal", "shelve", "dill", "cloudpickle"}, (
            path
        )
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in {"eval", "exec", "torch.load", "compile"}, path


# Several commands in one process: importing torch takes longer than each of them.
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
print(json.dumps(done))
"""


def run_in_copy(folder: Path, code: str, stdin: str = "") -> str:
    """Run code with the copy of the package that lies in a folder."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
        cwd=folder,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_commands(folder: Path, *commands: str) -> list[tuple[int, str, list[str]]]:
    """Run commands with the copy of the package: exit code, output, and lines of errors."""
    words = json.dumps([command.split() for command in commands])
    return [tuple(each) for each in json.loads(run_in_copy(folder, DRIVER, words))]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with a copy of the package."""
    shutil.copytree(ROOT, tmp_path / "innerloop", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.slow
def test_a_new_construction_is_one_new_file(copy: Path) -> None:
    """It is listed, built, and found by the tests of every construction, with nothing edited."""
    folder = copy / "innerloop" / "constructions"
    text = (folder / "newton.py").read_text("utf-8")
    text = text.replace('"""Newton\'s iteration', '"""Another iteration', 1)
    text = text.replace("class NewtonConstruction", "class BrandNewConstruction")
    (folder / "brand_new.py").write_text(text)
    listed, built = run_commands(copy, "list constructions --json", "build brand-new -s d=2")
    rows = json.loads(listed[1])["constructions"]
    new = next(member for member in rows if member["name"] == "brand-new")
    assert new["description"].startswith("Another iteration")
    assert built[0] == 0
    code = """
from innerloop.constructions.base import Construction
from innerloop.registry import load_members
from innerloop.testing.constructions import check_every_weight, check_law
found = load_members("constructions", Construction)["brand-new"]
check_law(found)
check_every_weight(found)
print(found.__name__)
"""
    assert run_in_copy(copy, code) == "BrandNewConstruction\n"
    own = Path(__file__).parent
    for name in ("law", "certificate"):
        assert (
            'load_members("constructions", Construction)' in (own / f"test_{name}.py").read_text()
        )


@pytest.mark.slow
def test_one_broken_file_breaks_nothing_else(copy: Path) -> None:
    """It is skipped with one line that says which and why; its own name is an error."""
    folder = copy / "innerloop" / "constructions"
    text = (folder / "preconditioned_gradient_descent.py").read_text("utf-8")
    text = text.replace("def body(", "def bodyy(").replace("cost: ClassVar", "costs: ClassVar")
    (folder / "half_done.py").write_text(text)
    (folder / "mistyped.py").write_text('"""A method."""\n\ndef body(:\n')
    (copy / "innerloop" / "claims" / "ahn2023" / "lemma_99.py").write_text("import nowhere\n")
    built, refused, listed = run_commands(
        copy, "build newton -s d=2 -s steps=2", "build mistyped", "list"
    )
    half = "innerloop.constructions.half_done: PreconditionedGradientDescentConstruction"
    assert built[0] == 0
    assert built[2] == [
        f"innerloop: skipped: {half} lacks body, cost",
        "innerloop: skipped: innerloop/constructions/mistyped.py, line 3: SyntaxError: "
        "invalid syntax",
    ]
    assert refused[0] == 2
    (message,) = refused[2]
    assert message.startswith("innerloop: the construction 'mistyped' cannot be loaded: innerloop/")
    assert listed[0] == 0
    (skipped,) = listed[2]
    assert "innerloop/claims/ahn2023/lemma_99.py, line 1: ModuleNotFoundError" in skipped
