"""An installed wheel and another author's package work as in a checkout."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import innerloop
from innerloop.claims.loading import load_claims

ROOT = Path(innerloop.__file__).parents[1]
EXAMPLE = ROOT / "examples" / "heavy_ball"
# Many commands in one process: importing torch takes longer than most of them. The report is of few
# claims and constructions, without games: what it is like in full is tested elsewhere.
DRIVER = """
import contextlib, io, json, sys
from innerloop.cli import main
from innerloop.ledger import checking
from innerloop.surveys import survey
everything = survey.load_members
survey.load_members = lambda kind, base: {
    name: member for name, member in everything(kind, base).items()
    if name in ("newton", "heavy-ball")
}
survey.make_acting_constructions = dict
survey.measure_convergence = lambda seed: iter(())
done = []
for words in json.load(sys.stdin):
    if words[0] == "report":
        checking.select_claims = lambda words: ["polyak1964.rate", "liu2025.eq-4.3"]
    sys.argv, code, out, err = ["innerloop", *words], 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    done.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(done))
"""


class CommandResult(NamedTuple):
    """Exit code, output and errors of a command."""

    code: int
    out: str
    err: str


class FreshEnvironment:
    """A fresh environment: the wheel, a stranger's package, and nothing of the checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.packages = folder / "packages"
        self.recorded = self.packages / "innerloop" / "recorded"
        self.home = folder / "home"
        self.home.mkdir()
        # An environment of its own: the one that runs the tests knows the checkout.
        venv.create(folder / "environment", symlinks=True)

    def python(self, *words: str, code: int = 0, stdin: str = "") -> str:
        libraries = next(path for path in sys.path if path.endswith("site-packages"))
        outside = ("INNERLOOP", "PYTEST")
        variables = {k: v for k, v in os.environ.items() if not k.startswith(outside)}
        variables |= {
            "PYTHONPATH": f"{self.packages}{os.pathsep}{libraries}",
            "HOME": str(self.home),
            "XDG_DATA_HOME": "",
        }
        interpreter = self.folder / "environment" / "bin" / "python"
        done = subprocess.run(
            [str(interpreter), *words],
            env=variables,
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
            input=stdin,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def run(self, *commands: str) -> list[CommandResult]:
        """Run commands one after another, all in one process."""
        words = json.dumps([command.split() for command in commands])
        return [CommandResult(*each) for each in json.loads(self.python("-c", DRIVER, stdin=words))]


@pytest.fixture(scope="module")
def fresh_environment(tmp_path_factory: pytest.TempPathFactory) -> FreshEnvironment:
    folder = tmp_path_factory.mktemp("fresh")
    wheels = folder / "wheels"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--no-index"]
    copies = [folder / "innerloop-sources", folder / "heavy-ball-sources"]
    copies[0].mkdir()  # of what a wheel is made from: building must leave nothing in the checkout
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copies[0] / name)
    for name in ("innerloop", "results"):
        shutil.copytree(ROOT / name, copies[0] / name)
    shutil.copytree(EXAMPLE, copies[1])
    for copy in copies:
        subprocess.run([*pip, "wheel", *options, "-w", str(wheels), str(copy)], check=True)
    built = [str(path) for path in wheels.glob("*.whl")]
    target = ["--target", str(folder / "packages")]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", *target, *built], check=True)
    return FreshEnvironment(folder)


def list_files(folder: Path) -> dict[str, int]:
    """Name the files below a folder, each with its size in bytes."""
    return {
        str(path.relative_to(folder)): path.stat().st_size
        for path in folder.rglob("*.*")
        if path.is_file()
    }


def list_machines(settings: Any) -> Iterator[str]:
    """The words among settings, however deep."""
    if isinstance(settings, str):
        yield settings
    elif isinstance(settings, dict | list | tuple):
        parts = settings.values() if isinstance(settings, dict) else settings
        yield from (word for part in parts for word in list_machines(part))


def test_the_wheel_contains_recorded_results_without_large_weights(
    fresh_environment: FreshEnvironment,
) -> None:
    recorded = fresh_environment.recorded
    folders = {"sparse": ("liu2025",), "regression": ("yang2025",), "decisions": ("yang2025",)}
    folders |= {"unlabelled": ("qliu2025", "yang2025"), "cells/full": ()}
    for folder, sources in folders.items():
        used = {
            word
            for claim in load_claims().values()
            for settings in claim.presets["quick"]
            for word in list_machines(settings)
            if claim.id.startswith(sources)
        }
        here, there = (list_files(place / folder) for place in (ROOT / "results", recorded))
        weights = {name for name in here if name.endswith(".safetensors")}
        runs = {name for name in here if folder != "cells/full" and "/" in name}
        needed = {name for name in weights if Path(name).stem in used}
        stems = {Path(name).stem for name in needed}
        histories = {name for name in here if Path(name).suffix == ".csv"}
        other = {name for name in histories if Path(name).stem not in stems}
        assert there.keys() == here.keys() - runs - (weights - needed) - other
    assert sum(list_files(recorded).values()) < 10e6
    assert sum(list_files(ROOT / "results").values()) < 40e6


def test_a_source_distribution_contains_the_files_of_a_wheel() -> None:
    folders = re.search(r"^RECORDED = (\(.+?\))", (ROOT / "setup.py").read_text("utf-8"), re.M)
    assert folders is not None
    grafted = (ROOT / "MANIFEST.in").read_text("utf-8").splitlines()
    assert grafted == [f"graft results/{each}" for each in ast.literal_eval(folders[1])]


def test_the_wheel_contains_the_page_of_the_lab(fresh_environment: FreshEnvironment) -> None:
    place = Path("lab", "static")
    here = list_files(ROOT / "innerloop" / place)
    assert len(here) > 10
    assert list_files(fresh_environment.recorded.parent / place) == here


CANDIDATES = "--candidate polyak --candidate gradient-descent --prompts 64 --steps 8"
COMMANDS_OF_THE_WHEEL = (
    "build newton -s d=2 -s steps=3",
    "check yang2025.fu.convergence --workers 1 --fresh",
    "check liu2025.figure-1a --preset full --workers 1 --fresh",
)
COMMANDS_OF_A_STRANGER = (
    "list --json",
    "list constructions",
    "show construction/polyak",
    "show polyak",
    "show heavy-ball-start",
    "build polyak -s d=2 -s steps=3 -o weights.safetensors",
    "verify weights.safetensors",
    f"identify weights.safetensors {CANDIDATES} --json",
    "train heavy-ball-start -s steps=2 -s batch=8 -o run",
    f"identify run {CANDIDATES}",
    "check polyak1964.rate --json --workers 1",
    "report -o report.html --workers 1",
)


@pytest.fixture(scope="module")
def command_results(fresh_environment: FreshEnvironment) -> dict[str, CommandResult]:
    """What all commands give, run in one process while recorded weights are missing."""
    weights = fresh_environment.recorded / "regression" / "gpt2.safetensors"
    weights.rename(weights.with_suffix(".away"))
    commands = (*COMMANDS_OF_THE_WHEEL, *COMMANDS_OF_A_STRANGER)
    found = fresh_environment.run(*commands)
    weights.with_suffix(".away").rename(weights)
    return dict(zip(commands, found, strict=True))


def test_weights_missing_from_the_wheel_are_an_error(
    command_results: dict[str, CommandResult],
) -> None:
    built, checked, full = (command_results[command] for command in COMMANDS_OF_THE_WHEEL)
    assert built.code == 0
    assert checked.code == 2
    refused = "yang2025.fu.convergence cannot be checked here: the recorded weights regression/gpt2"
    assert refused in checked.err
    assert full.code == 2
    assert "sparse/small-transformer.safetensors are not here" in full.err
    assert "make them with innerloop train small-transformer -s steps=5500" in full.err


def test_another_package_works_in_all_commands(
    fresh_environment: FreshEnvironment, command_results: dict[str, CommandResult]
) -> None:
    done = [command_results[command] for command in COMMANDS_OF_A_STRANGER]
    assert [each.code for each in done] == [0, 0, 0, 2, *[0] * 8], [each.err for each in done]
    listed, table, shown, ambiguous, recipe, _, verified, identified, _, _, checked, _ = done
    owners = {
        kind: {row["name"]: row["from"] for row in rows if row["from"] != "innerloop"}
        for kind, rows in json.loads(listed.out).items()
    }
    assert owners == {
        "problems": {},
        "algorithms": {"polyak": "heavy-ball"},
        "policies": {},
        "constructions": {"polyak": "heavy-ball"},
        "programs": {},
        "recipes": {"heavy-ball-start": "heavy-ball"},
        "claims": {"polyak1964.rate": "heavy-ball"},
    }
    assert "from" in table.out
    assert "y += p" in shown.out
    assert "names 2 things: ask for algorithm/polyak or construction/polyak" in ambiguous.err
    assert "weights are trained" in recipe.out
    assert "holds" in verified.out
    found = json.loads(identified.out)
    assert found["algorithm"] == "polyak"
    assert found["hyperparameters"]["momentum"] == pytest.approx(0.5, abs=1e-6)
    (outcome,) = json.loads(checked.out)
    assert outcome["verdict"] == "holds"
    assert outcome["source"].startswith("B. Polyak (1964)")
    data = fresh_environment.home / ".local" / "share" / "innerloop"
    assert list(data.glob("cells/quick/polyak1964.rate/*.json")), "a user's results are the user's"
    page = (fresh_environment.home / "report.html").read_text("utf-8")
    for word in ("polyak1964.rate", "polyak", "heavy-ball-start", "B. Polyak"):
        assert word in page


WHERE = """
def test_the_wheel_finds_its_recorded_results(capsys):
    import innerloop
    from innerloop.claims.recorded import load_recorded
    from innerloop.results import find_recorded
    load_recorded("regression", "gpt2")
    with capsys.disabled():
        print("found", innerloop.__file__, find_recorded())
"""


def test_tests_of_another_package_pass_and_the_wheel_finds_its_results(
    fresh_environment: FreshEnvironment,
) -> None:
    where = fresh_environment.folder / "test_where.py"
    where.write_text(WHERE, "utf-8")
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests"), str(where)]
    out = fresh_environment.python(*words)
    assert "...." in out
    home = fresh_environment.packages / "innerloop" / "__init__.py"
    assert f"found {home} {fresh_environment.recorded}\n" in out
