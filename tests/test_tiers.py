"""Fast and slow tests: the fast ones touch every folder, and recorded times are kept up to date."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeGuard

import durations
import pytest
from test_architecture import list_imported_names

import innerloop

TESTS = Path(__file__).parent
PACKAGE = Path(innerloop.__file__).parent


def has_fast_test(path: Path, known: Mapping[str, float]) -> bool:
    """Whether some test function of a file is fast with all its parameters."""
    slow = {
        test.partition("::")[2].partition("[")[0]
        for test, seconds in known.items()
        if Path(durations.find_file(test)).name == path.name and seconds >= durations.SLOW
    }
    functions = [node for node in ast.parse(path.read_bytes()).body if is_test(node)]
    return any(function.name not in slow for function in functions)


def is_test(node: ast.AST) -> TypeGuard[ast.FunctionDef]:
    """Whether this is a test function that is not marked as slow by hand."""
    if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
        return False
    return not any("mark.slow" in ast.unparse(decorator) for decorator in node.decorator_list)


def list_touched(path: Path) -> set[str]:
    """List the folders that a file of tests imports from, or uses by public names or commands."""
    touched = set[str]()
    for node in ast.walk(ast.parse(path.read_bytes())):
        names = [name.split(".") for name in list_imported_names(node)]
        for name in names:
            if name[0] == "innerloop" and len(name) > 1:
                home = name[1] if (PACKAGE / name[1]).exists() else find_folder(name[1])
                touched.add(home)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "innerloop":
            touched.add(find_folder(node.attr))
        if is_test(node) and "run" in [argument.arg for argument in node.args.args]:
            touched.add("commands")
    return touched


def find_folder(name: str) -> str:
    """Find the folder, or the file, that a public name comes from."""
    return innerloop.find_home(name).split(".")[1]


def list_untouched(tests: Path, package: Path, known: Mapping[str, float]) -> set[str]:
    """List the folders of a package that no file with fast tests touches."""
    fast = [path for path in sorted(tests.glob("test_*.py")) if has_fast_test(path, known)]
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    return folders.difference(*map(list_touched, fast))


def test_fast_tests_touch_every_folder() -> None:
    known = json.loads(durations.FILE.read_bytes())
    assert len(list(PACKAGE.glob("*/__init__.py"))) > 10
    assert not list_untouched(TESTS, PACKAGE, known)


def test_a_folder_that_only_slow_tests_touch_is_found(tmp_path: Path) -> None:
    folders = ("one", "two", "three", "four", "certification", "commands", "report")
    for folder in folders:
        (tmp_path / "innerloop" / folder).mkdir(parents=True)
        (tmp_path / "innerloop" / folder / "__init__.py").touch()
    fast = "from innerloop.one import a\n\ndef test_a(): ...\ndef test_b(): ...\n"
    slow = "import innerloop.two.b\n\ndef test_c(): ...\n"
    marked = "from innerloop import three\n\n@pytest.mark.slow\ndef test_d(): ...\n"
    public = "import innerloop\n\ndef test_e(run): innerloop.build('newton')\n"
    for name, text in (("fast", fast), ("slow", slow), ("marked", marked), ("public", public)):
        (tmp_path / f"test_{name}.py").write_text(text)
    known = {"tests/test_fast.py::test_a": 9.0, "tests/test_slow.py::test_c[1]": durations.SLOW}
    found = list_untouched(tmp_path, tmp_path / "innerloop", known)
    assert found == {"two", "three", "four", "report"}


def test_new_times_replace_the_old_and_tests_that_are_gone_are_forgotten() -> None:
    known = {"a.py::kept": 2.0, "a.py::gone": 3.0, "a.py::fast": 4.0, "b.py::other[1]": 5.0}
    found = {"a.py::kept": 2.25, "a.py::fast": 0.01, "a.py::new": 0.2}
    new = {"a.py::kept": 2.25, "a.py::new": 0.2, "b.py::other[1]": 5.0}
    assert durations.merge_durations(known, found, whole=True) == new
    part = durations.merge_durations(known, found, whole=False)
    assert part == {**new, "a.py::gone": 3.0}
    assert list(part) == sorted(part)


def test_files_that_take_longest_run_first(request: pytest.FixtureRequest) -> None:
    totals = durations.sum_by_file({"a.py::x": 1.0, "b.py::y[c::d]": 2.0, "a.py::z": 2.0})
    assert totals == {"a.py": 3.0, "b.py": 2.0}
    known = durations.sum_by_file(json.loads(durations.FILE.read_bytes()))
    order = [known[durations.find_file(item.nodeid)] for item in request.session.items]
    assert order == sorted(order, reverse=True)
