"""The fast tests use every folder, and the recorded durations are up to date."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
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
    most = dict[str, float]()
    for test, seconds in known.items():
        place = test.partition("[")[0]
        most[place] = max(most.get(place, 0.0), seconds)
    functions = [node for node in ast.parse(path.read_bytes()).body if is_test(node)]
    totals = [
        durations.sum_with_fixtures(
            most, f"tests/{path.name}::{each.name}", [argument.arg for argument in each.args.args]
        )
        for each in functions
    ]
    return any(total < durations.SLOW for total in totals)


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


def test_fast_tests_use_every_folder() -> None:
    known = json.loads(durations.FILE.read_bytes())
    assert len(list(PACKAGE.glob("*/__init__.py"))) > 10
    assert not list_untouched(TESTS, PACKAGE, known)


def test_a_folder_that_only_slow_tests_use_is_reported(tmp_path: Path) -> None:
    folders = ("one", "two", "three", "four", "five", "certification", "commands", "report")
    for folder in folders:
        (tmp_path / "innerloop" / folder).mkdir(parents=True)
        (tmp_path / "innerloop" / folder / "__init__.py").touch()
    fast = "from innerloop.one import a\n\ndef test_a(): ...\ndef test_b(): ...\n"
    slow = "import innerloop.two.b\n\ndef test_c(): ...\n"
    marked = "from innerloop import three\n\n@pytest.mark.slow\ndef test_d(): ...\n"
    public = "import innerloop\n\ndef test_e(run): innerloop.build('newton')\n"
    shared = "import innerloop.five.b\n\ndef test_f(site, x): ...\n"
    texts = {"fast": fast, "slow": slow, "marked": marked, "public": public, "shared": shared}
    for name, text in texts.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    known = {
        "tests/test_fast.py::test_a": 9.0,
        "tests/test_slow.py::test_c[1]": durations.SLOW,
        "tests::site (fixture)": 9.0,
    }
    found = list_untouched(tmp_path, tmp_path / "innerloop", known)
    assert found == {"two", "three", "four", "five", "report"}


MEASURED = """
import subprocess, sys, time
import pytest

BURN = "import time\\nwhile time.process_time() < {}: pass\\nprint(1, flush=True)\\ntime.sleep(9)"


def burn(seconds):
    start = time.process_time()
    while time.process_time() - start < seconds:
        pass


@pytest.fixture(scope="module")
def shared():
    burn(0.3)


@pytest.fixture(scope="module")
def started():
    with subprocess.Popen(
        [sys.executable, "-I", "-c", BURN.format(0.3)], stdout=subprocess.PIPE
    ) as child:
        yield child
        child.kill()


def test_first(shared): ...
def test_second(shared): ...
def test_busy(): burn(0.15)
def test_waiting(): time.sleep(0.5)
def test_process_that_lives_on(started): started.stdout.readline()
def test_after_it(started): ...
"""


def test_recorded_durations_are_cpu_times_with_separate_fixtures(tmp_path: Path) -> None:
    shutil.copy(durations.__file__, tmp_path)
    (tmp_path / "durations.json").write_text("{}")
    (tmp_path / "test_measured.py").write_text(MEASURED)
    words = ["-q", "-p", "durations", "-p", "no:cacheprovider", "--record-durations", "."]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", os.devnull, f"--rootdir={tmp_path}", *words],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "durations.json").read_bytes())
    place = "test_measured.py::"
    assert found.keys() - {f"{place}started (fixture)"} == {
        f"{place}shared (fixture)",
        f"{place}test_busy",
        f"{place}test_process_that_lives_on",
    }
    assert durations.sum_with_fixtures(found, f"{place}test_second", ["shared"]) >= durations.SLOW
    assert durations.sum_with_fixtures(found, f"{place}test_waiting", []) == 0.0


def test_new_durations_replace_old_ones_and_those_of_removed_tests() -> None:
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
