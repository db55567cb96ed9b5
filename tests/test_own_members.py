"""Members of the user's own work wherever a name does; no file can cause code to be loaded."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, cast

import pytest
import torch

import innerloop
from innerloop import registry
from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.claims.cases import Case
from innerloop.claims.loading import load_claims
from innerloop.claims.trials import Inequality
from innerloop.constructions.base import Construction
from innerloop.constructions.newton import NewtonConstruction
from innerloop.errors import FileError, InputError
from innerloop.recipes.base import Recipe, load, train
from innerloop.recipes.linear_regression import LinearRegressionRecipe
from innerloop.recipes.runs import load_finished_runs
from innerloop.registry import find_member, get_name, load_members, make_member
from innerloop.results import find_results

SMALL: dict[str, Any] = {"d": 2, "n": 4, "blocks": 2, "batch": 8, "steps": 2}
OWN = '''
"""A method of somebody's own."""

from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.constructions.newton import NewtonConstruction
from innerloop.problems.linear_regression import LinearRegression
from innerloop.recipes.linear_regression import LinearRegressionRecipe


class Mine(NewtonConstruction):
    """Newton's iteration, by another name."""


class Descent(GradientDescent):
    """Gradient descent, by another name."""


class Easy(LinearRegression):
    """Regression of my own."""


class Short(LinearRegressionRecipe):
    """A training of my own."""


made = Mine(d=2, steps=3)
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of a user's own, in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


class Mine(NewtonConstruction):
    """Newton's iteration, by another name."""


def test_functions_accept_classes_and_objects(tmp_path: Path) -> None:
    name = f"{__name__}:Mine"
    assert get_name(Mine) == name
    by_class = innerloop.build(Mine, d=2, steps=3)
    by_object = innerloop.build(Mine(d=2, steps=3))
    assert by_class.certificate == by_object.certificate
    assert by_class.certificate.name == name
    assert innerloop.certify(Mine(d=2, steps=3)).deviation == by_class.certificate.deviation
    assert innerloop.certify("newton").holds
    assert innerloop.show(Mine, d=3)["settings"]["d"]["value"] == 3
    assert innerloop.show(Mine(d=4))["settings"]["d"]["value"] == 4
    by_class.save(tmp_path / "mine.safetensors")
    with pytest.raises(FileError, match="a user-defined construction: pass it"):
        innerloop.verify(tmp_path / "mine.safetensors")
    again = innerloop.verify(tmp_path / "mine.safetensors", construction=Mine)
    assert again.certificate == by_class.certificate
    changed = innerloop.build(Mine(d=2, steps=3), steps=4)
    assert changed.construction.values() == Mine(d=2, steps=4).values()
    for wrong in (3, GradientDescent, LinearRegressionRecipe(), None):
        with pytest.raises(InputError, match="expected a construction: a name, a subclass of"):
            make_member("constructions", Construction, wrong, {})


def test_identify_accepts_own_algorithms() -> None:
    class Descent(GradientDescent):
        """Gradient descent, by another name."""

        special_case_of = ()

    built = innerloop.build("looped-gradient-descent", d=2, steps=3, preconditioners="identity")
    algorithm: Any = built.construction.algorithm
    guess = Descent(torch.tensor([0.05], dtype=torch.float64))
    for given in (Descent, guess):
        found = innerloop.identify(built, algorithms=[given, "newton"], prompts=32)
        assert found.algorithm == get_name(Descent)
        (size,) = found.hyperparameters["step_sizes"][:1]
        assert size == pytest.approx(algorithm.preconditioners[0, 0, 0])
    with pytest.raises(InputError, match="no candidate among symmetric-gradient-em solves"):
        innerloop.identify(built, algorithms=["symmetric-gradient-em"])


def test_train_and_check_accept_objects_and_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    by_class = train(LinearRegressionRecipe, seed=3, **SMALL)
    by_object = train(LinearRegressionRecipe(**SMALL), seed=3)
    by_name = train("linear-regression", seed=3, **SMALL)
    for trained in (by_class, by_object):
        assert trained.history[-1]["loss"] == by_name.history[-1]["loss"]
    claim = load_claims()["liu2025.eq-4.3"]
    monkeypatch.setitem(cast(dict[str, Any], claim.presets), "quick", claim.tiny)
    assert innerloop.check(claim) == innerloop.check("liu2025.eq-4.3")


def test_commands_accept_files_and_modules(run: Callable[..., Any], own: Path) -> None:
    del own
    assert run("build", "own.py:Mine", "-s", "d=2", "-o", "mine.safetensors").code == 0
    certificate = json.loads(run("build", "own.py:made", "--json").out)
    assert certificate["settings"]["steps"] == 3
    assert certificate["command"].startswith("innerloop build own.py:Mine -s steps=3 -s d=2")
    refused = run("verify", "mine.safetensors")
    assert refused.code == 2
    assert "--definition own.py:Mine" in refused.err
    assert run("verify", "mine.safetensors", "--definition", "own.py:Mine").code == 0
    assert "Newton's iteration, by another name" in run("show", "own:Mine").out
    words = ["--definition", "own.py:Mine", "--problem", "own.py:Easy", "-s", "d=2", "-s", "n=9"]
    words += ["--candidate", "newton", "--candidate", "own.py:Descent", "--prompts", "32"]
    found = json.loads(run("identify", "mine.safetensors", *words, "--json").out)
    assert found["algorithm"] == "newton"
    settings = [word for key, value in SMALL.items() for word in ("-s", f"{key}={value}")]
    assert run("train", "own.py:Short", *settings, "-o", "trained").code == 0
    refused = run("identify", "trained")
    assert refused.code == 2
    assert "a user-defined recipe: pass it, as --definition own.py:Short" in refused.err
    words = ["--definition", "own.py:Short", "--candidate", "own.py:Descent", "--prompts", "32"]
    assert run("identify", "trained", *words).code == 0


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("missing.py:Mine", "cannot import missing.py: there is no such file"),
        ("own.py:Mien", "no attribute called 'Mien'; did you mean 'Mine'?"),
        ("own.py:", "expected module:attribute or file.py:attribute, got 'own.py:'"),
        ("own:Descent", "expected a construction, got the class Descent"),
        ("nowhere:Mine", "cannot import 'nowhere': ModuleNotFoundError"),
        ("bad.py:Mine", "cannot import 'bad.py': bad.py, line 2: SyntaxError: invalid syntax"),
        ("stop.py:Mine", "cannot import 'stop.py': stop.py, line 1: SystemExit: 3"),
    ],
)
def test_a_failed_import_is_reported_in_one_line(
    run: Callable[..., Any], own: Path, word: str, message: str
) -> None:
    (own.parent / "bad.py").write_text("x = 1\ndef f(:\n")
    (own.parent / "stop.py").write_text("raise SystemExit(3)\n")
    found = run("build", word)
    assert found.code == 2
    assert message in found.err
    assert len(found.err.splitlines()) == 1


def test_a_name_in_a_file_never_loads_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a weights file nor a model file imports what it names, however it is spelled."""
    (tmp_path / "trap.py").write_text("raise AssertionError('it was run')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    built = innerloop.build("newton", d=2, steps=2, instances=2)
    trained = train("linear-regression", folder=tmp_path / "run", **SMALL)
    for name in ("trap:Mine", "trap.py:Mine", "trap"):
        about = {"construction": name, "settings": built.certificate.settings}
        built.transformer.save("weights.safetensors", {**about, "instances": 2, "seed": 0})
        with pytest.raises(InputError):
            innerloop.verify("weights.safetensors")
        from innerloop import sealed
        from innerloop.recipes.base import FORMAT, VERSION

        about = {"recipe": name, "settings": trained.recipe.values(), "seed": 0}
        path = tmp_path / "model.safetensors"
        weights = dict(trained.model.state_dict())
        metadata = {"about": json.dumps(about)}
        sealed.write(path, weights, metadata, format=FORMAT, version=VERSION)
        with pytest.raises(FileError):
            load(path)
    assert "trap" not in sys.modules


def register(monkeypatch: pytest.MonkeyPatch, kind: str, *points: EntryPoint) -> None:
    """Pretend that a package with these entry points is installed."""
    monkeypatch.setattr(registry, "_entry_points", lambda k: points if k == kind else ())
    registry._scan_classes.cache_clear()
    monkeypatch.setattr(registry, "_warned", set())


@pytest.fixture(autouse=True)
def fresh_registry() -> Any:
    yield
    registry._scan_classes.cache_clear()


def test_two_members_with_one_name_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = EntryPoint("newton", f"{__name__}:Mine", "innerloop.constructions")
    register(monkeypatch, "constructions", point)
    both = (
        r"two constructions are called 'newton': innerloop.constructions.newton:NewtonConstruction "
        rf"\(innerloop\) and {__name__}:Mine"
    )
    with pytest.raises(InputError, match=both):
        find_member("constructions", Construction, "newton")
    assert find_member("constructions", Construction, "relu-newton")
    with pytest.warns(registry.SkippedMember, match=both):
        assert load_members("constructions", Construction)["newton"] is NewtonConstruction


def test_a_broken_entry_point_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = EntryPoint("gone", "nowhere.at:All", "innerloop.recipes")
    wrong = EntryPoint("wrong", "math:pi", "innerloop.recipes")
    register(monkeypatch, "recipes", gone, wrong)
    with pytest.warns(registry.SkippedMember) as caught:
        assert "linear-regression" in load_members("recipes", Recipe)
    texts = [str(warning.message) for warning in caught]
    assert any(text.startswith("skipped: gone of nowhere.at: ") for text in texts)
    assert any("ModuleNotFoundError: No module named 'nowhere'" in text for text in texts)
    assert any("wrong of math is not a class" in text for text in texts)
    with pytest.raises(InputError, match="the recipe 'gone' cannot be loaded: gone of nowhere"):
        find_member("recipes", Recipe, "gone")


def test_results_do_not_depend_on_the_current_folder(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second check in another folder finds what the first one stored; so does a report."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "one")
    first = json.loads(run("check", "liu2025.eq-4.3", "--workers", "1", "--json").out)
    settings = [word for key, value in SMALL.items() for word in ("-s", f"{key}={value}")]
    assert run("train", "linear-regression", *settings, "-o", "here").code == 0
    monkeypatch.chdir(tmp_path / "two")
    second = json.loads(run("check", "liu2025.eq-4.3", "--workers", "1", "--json").out)
    assert second[0]["made"] == first[0]["made"]
    assert second[0]["seconds"] == first[0]["seconds"], "it was not run again"
    runs = find_results() / "runs"
    (known,) = load_finished_runs(runs)
    assert known["folder"] == str(tmp_path / "one" / "here" / "seed-0")
    assert known["command"].startswith("innerloop train linear-regression -s")
    (tmp_path / "one" / "here").rename(tmp_path / "away")
    assert not list(load_finished_runs(runs)), "a note whose run is gone is passed over"


def test_folder_of_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert find_results(tmp_path) == tmp_path
    assert find_results().name == "results"
    monkeypatch.delenv("INNERLOOP_RESULTS")
    checkout = Path(innerloop.__file__).parents[1] / "results"
    assert find_results() == checkout
    monkeypatch.setattr("innerloop.results.PACKAGE", tmp_path / "site-packages" / "innerloop")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert find_results() == tmp_path / "data" / "innerloop"


def test_identify_accepts_the_folder_that_train_prints(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = [word for key, value in SMALL.items() for word in ("-s", f"{key}={value}")]
    assert run("train", "linear-regression", *settings, "--seeds", "2", "-o", "run").code == 0
    words = ["--candidate", "gradient-descent", "--prompts", "16"]
    several = run("identify", "run", *words)
    assert several.code == 2
    assert "run contains 2 runs: name one, such as run/seed-0" in several.err
    assert run("identify", "run/seed-1", *words).code == 0
    (tmp_path / "empty").mkdir()
    assert "contains no finished run" in run("identify", "empty", *words).err


def test_an_inequality_holds_up_to_rounding_at_zero() -> None:
    for left, right in ((2.2e-16, 0.0), (0.0, -2.2e-16), (0.0, 0.0)):
        trial = Inequality("x ≤ y")
        assert trial.add(left, right, Case(n=1)) == 0.0
        assert trial.check().passed
    for left, right in ((1e-11, 0.0), (0.0, -1e-11), (2e-16, 1e-16)):
        trial = Inequality("x ≤ y")
        assert trial.add(left, right, Case(n=1)) < 0
        assert trial.check().passed is False
    assert math.isclose(Inequality("x ≤ y").add(0.0, 5e-3, Case(n=1)), 1.0)
