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
    ("constructions", "recipes"),
    ("recipes", "identify"),
    ("identify", "claims"),
    ("claims", "ledger"),
    ("ledger", "report"),
    ("report", "cli"),
    ("transformer", "constructions"),
    ("transformer", "models"),
    ("models", "recipes"),
    ("training", "recipes"),
    ("theory", "training"),
    ("theory", "claims"),
    ("problems", "training"),
    ("transformer", "training"),
]
FOUNDATION = {"errors", "files", "parameters", "registry", "sealed"}
"""Small modules under everything; they import none of the folders."""
ENTRIES = {"__init__", "__main__", "cli", "terminal"}


def below(folder: str) -> set[str]:
    """What a folder may import."""
    direct = {source for source, target in ARROWS if target == folder}
    return direct.union(*(below(source) for source in direct), FOUNDATION, {folder})


def imports(path: Path) -> set[str]:
    """The parts of innerloop that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            found.add("a relative path")
        for name in imported(node):
            first, *rest = name.split(".")
            if first == "innerloop" and rest:
                lazy = innerloop._HOMES.get(rest[0], rest[0])
                found.add(lazy.split(".")[0])
    return found


def imported(node: ast.AST) -> list[str]:
    """The full names that an import statement loads; nothing for other nodes."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        whole = node.module != "innerloop"
        return [node.module if whole else f"innerloop.{alias.name}" for alias in node.names]
    return []


def violations(root: Path) -> list[str]:
    found = []
    for path in sorted(root.rglob("*.py")):
        owner = path.relative_to(root).parts[0].removesuffix(".py")
        if owner in ENTRIES:
            continue
        allowed = FOUNDATION if owner in FOUNDATION else below(owner)
        found += [f"{path.relative_to(root)} imports {n}" for n in imports(path) - allowed]
    return found


def test_imports_point_one_way() -> None:
    assert not violations(ROOT)


def test_an_import_that_points_backwards_is_found(tmp_path: Path) -> None:
    copy = tmp_path / "innerloop"
    shutil.copytree(ROOT, copy)
    (copy / "problems" / "backwards.py").write_text("from innerloop.algorithms import newton\n")
    (copy / "transformer" / "knows.py").write_text("def f():\n    import innerloop.problems.base\n")
    (copy / "registry.py").write_text("from innerloop import cli\n")
    (copy / "problems" / "lazy.py").write_text("def f():\n    from innerloop import build\n")
    (copy / "problems" / "relative.py").write_text("from .. import algorithms\n")
    assert violations(copy) == [
        "problems/backwards.py imports algorithms",
        "problems/lazy.py imports constructions",
        "problems/relative.py imports a relative path",
        "registry.py imports cli",
        "transformer/knows.py imports problems",
    ]


def test_the_report_computes_nothing() -> None:
    for path in (ROOT / "report").glob("*.py"):
        assert not loaded(path) & {"torch", "numpy", "scipy", "sklearn"}, path


def loaded(path: Path) -> set[str]:
    """The top-level packages that a file imports."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return {name.split(".")[0] for node in nodes for name in imported(node)}


def test_nothing_is_unpickled_or_evaluated() -> None:
    for path in ROOT.rglob("*.py"):
        assert not loaded(path) & {"pickle", "marshal", "shelve", "dill", "cloudpickle"}, path
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in {"eval", "exec", "torch.load", "compile"}, path


@pytest.fixture
def with_new_construction(tmp_path: Path) -> dict[str, str]:
    """The package with one more construction, made by copying a file."""
    shutil.copytree(ROOT, tmp_path / "innerloop", ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path / "innerloop" / "constructions"
    text = (folder / "newton.py").read_text("utf-8")
    text = text.replace('"""Newton\'s iteration', '"""Another iteration', 1)
    (folder / "brand_new.py").write_text(text)
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


def test_a_new_construction_is_one_new_file(
    with_new_construction: dict[str, str], tmp_path: Path
) -> None:
    def ran(*words: str) -> str:
        found = subprocess.run(
            [sys.executable, *words],
            env=with_new_construction,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.returncode == 0, found.stdout + found.stderr
        return found.stdout

    listed = json.loads(ran("-m", "innerloop", "list", "--json"))["constructions"]
    new = next(member for member in listed if member["name"] == "brand-new")
    assert new["description"].startswith("Another iteration")
    tests = [str(Path(__file__).with_name(f"test_{name}.py")) for name in ("law", "certificate")]
    wanted = "brand-new and (float64 or every_weight)"
    told = ran("-m", "pytest", *tests, "-k", wanted, "-p", "no:cacheprovider", "-vv")
    assert "test_law_in_float64[brand-new] PASSED" in told
    assert "test_every_weight_matters[brand-new] PASSED" in told


def test_a_construction_that_forgot_something_is_named(tmp_path: Path) -> None:
    shutil.copytree(ROOT, tmp_path / "innerloop", ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path / "innerloop" / "constructions"
    text = (folder / "preconditioned_gradient_descent.py").read_text("utf-8")
    text = text.replace("def body(", "def bodyy(").replace("cost: ClassVar", "costs: ClassVar")
    (folder / "half_done.py").write_text(text)
    found = subprocess.run(
        [sys.executable, "-m", "innerloop", "list"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 2
    said = "innerloop: innerloop.constructions.half_done: LinearGradientDescent lacks body, cost\n"
    assert found.stderr == said
