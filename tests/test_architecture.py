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
    ("constructions", "recipes"),
    ("recipes", "identify"),
    ("identify", "claims"),
    ("claims", "report"),
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
FOUNDATION = {"errors", "parameters", "registry"}
"""Small modules under everything; they import none of the folders."""
ENTRIES = {"__init__", "__main__", "cli"}


def below(folder: str) -> set[str]:
    """What a folder may import."""
    direct = {source for source, target in ARROWS if target == folder}
    return direct.union(*(below(source) for source in direct), FOUNDATION, {folder})


def imports(path: Path) -> set[str]:
    """The parts of innerloop that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        parts = [name.split(".") for name in names if name.split(".")[0] == "innerloop"]
        found |= {part[1] for part in parts if len(part) > 1}
    return {name for name in found if (ROOT / name).is_dir() or (ROOT / f"{name}.py").exists()}


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
    assert violations(copy) == [
        "problems/backwards.py imports algorithms",
        "registry.py imports cli",
        "transformer/knows.py imports problems",
    ]


def test_the_report_computes_nothing() -> None:
    for path in (ROOT / "report").glob("*.py"):
        text = path.read_text("utf-8")
        assert not any(f"import {name}" in text for name in ("torch", "numpy", "scipy")), path


def test_nothing_is_unpickled_or_evaluated() -> None:
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in {"eval", "exec", "torch.load", "pickle.load", "pickle.loads"}


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
    assert json.loads(ran("-m", "innerloop", "build", "brand-new", "--json"))["holds"]
    ran("-m", "innerloop", "report", "-o", "page.html")
    assert "brand-new" in (tmp_path / "page.html").read_text("utf-8")
    law = str(Path(__file__).with_name("test_law.py"))
    told = ran("-m", "pytest", law, "-k", "brand-new", "-p", "no:cacheprovider", "-vv")
    assert "test_law_in_float64[brand-new] PASSED" in told
