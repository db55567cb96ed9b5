"""Bad command lines, drawn and picked: each is one line and exit code 2, never a traceback."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from innerloop.errors import MAX_LENGTH, InputError, unknown_name_error
from innerloop.identification.loading import load_model
from innerloop.locations import load_object
from innerloop.parameters import parse_settings
from innerloop.problems.bernoulli_bandits import BernoulliBandits
from innerloop.problems.linear_regression import LinearRegression

sys.path.insert(0, str(Path(__file__).parent.parent))

from tools.torture import commands as torture_commands

PROBLEM = ("--problem", "linear-regression", "-s", "d=2", "-s", "n=4", "--prompts", "8")


@pytest.fixture
def traps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of traps, which is the current one."""
    torture_commands.write_traps(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_bad_commands_by_chance(run, traps: Path) -> None:
    chance = random.Random(20)
    for _ in range(40):
        words = torture_commands.make_bad_command(chance)
        defect = torture_commands.judge(*run(*words))
        assert not defect, f"{words}: {defect}"


def test_the_judge_sees_defects() -> None:
    judge = torture_commands.judge
    assert judge(2, "", "innerloop: d must be at least 1, got 0\n") == ""
    assert judge(0, "[1]", "") == ""
    assert "ZeroDivisionError" in judge(
        1, "", "Traceback (most recent call last):\nZeroDivisionError"
    )
    assert "exit code 120" in judge(120, "", "")
    assert "without a word" in judge(2, "", "")
    assert "lines of errors" in judge(2, "", "a\n" * 9)
    assert "control characters" in judge(0, "\x1b[31m", "")
    assert "not JSON" in judge(0, "[1", "")
    assert "more than" in judge(2, "", "a" * 9999)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("show", "raises.py:x"), r"raises.py, line 1: ValueError: a\x1b[31mred"),
        (("show", "exits.py:x"), "exits.py, line 2: SystemExit: 3"),
        (("show", "recursive.py:x"), "RecursionError: maximum recursion depth"),
        (("show", "mistyped.py:x"), "mistyped.py, line 1: SyntaxError"),
        (("show", "base.py:x"), "base.py, line 2: Stop: now"),
        (("show", "mute.py:x"), "mute.py, line 3: Mute: (no message: OSError)"),
        (("show", "binary.py:x"), "null bytes"),
        (("show", "lazy.py:x"), "cannot read lazy.py:x: lazy.py, line 2: KeyError"),
        (("show", "fifo.py:x"), "cannot import fifo.py: it is not a file"),
        (("show", "missing.py:x"), "there is no such file"),
        (("show", f"{'a' * 300}.py:x"), "File name too long"),
        (("show", "a\0.py:x"), "NUL"),
        (("show", "\udcff.py:x"), r"\udcff.py: there is no such file"),
        (("show", "..:x"), "without a leading dot"),
        (("show", "models.py:nothing"), "expected one of problem, algorithm"),
        (("check", "models.py:number"), "is not a claim"),
        (("build", "models.py:number"), "expected a construction, got a int"),
        (("identify", "models.py:number"), "expected a Model, what build or train returned"),
        (("identify", "models.py:fails", *PROBLEM), "models.py, line 3: ZeroDivisionError"),
        (("identify", "models.py:leaves", *PROBLEM), "models.py, line 5: SystemExit: 0"),
        (("identify", "models.py:needy"), "models.py, line 9: ZeroDivisionError"),
        (("identify", "models.py:alloc", *PROBLEM), "RuntimeError: cannot alloc a buffer of mine"),
        (("identify", "models.py:one", *PROBLEM), "models.py:one does not take these three"),
        (("identify", "innerloop.cli:main"), "cannot be run from within itself"),
        (("list", "--json", ""), "an argument is empty"),
        (("check", "--seed", "1", "--seed", "2"), "--seed is repeated"),
        (("list", "--jsn"), "No such option: --jsn"),
        (("bild",), "No such command 'bild'"),
        (("check", "--seed", str(2**32)), "seed must be at least 0 and below 2^32"),
        (("check", "--results", "~nobody_at_all/x"), "has no home folder"),
    ],
)
def test_picked_mistakes(run, traps: Path, words: tuple[str, ...], message: str) -> None:
    found = run(*words)
    assert found.code == 2
    assert found.err.startswith("innerloop: ")
    assert message in found.err
    assert len(found.err.splitlines()) == 1
    assert found.out == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--problem", "linear-regresion"), "did you mean 'linear-regression'?"),
        (("--problem", "linear-regression", "-s", "d=0"), "d must be at least 1"),
        (("--candidate", "rigde"), "did you mean 'ridge'?"),
        (("--prompts", "1"), "--prompts"),
        (("--steps", "0"), "--steps"),
        (("--seed", "-1"), "seed must be"),
        (("--figure", "x.pdf"), "must end in .html"),
    ],
)
def test_identify_refuses_before_it_loads(
    run, traps: Path, words: tuple[str, ...], message: str
) -> None:
    found = run("identify", "raises.py:model", *words)
    assert found.code == 2
    assert message in found.err


@pytest.mark.parametrize("words", [("--preset", "quik"), ("--engine", "x"), ("--workers", "0")])
def test_report_refuses_before_it_writes(run, traps: Path, words: tuple[str, ...]) -> None:
    assert run("report", "--figures", "new", *words).code == 2
    assert not (traps / "new").exists()


def test_a_traceback_of_ones_own_code_on_demand(run, traps: Path, monkeypatch) -> None:
    monkeypatch.setenv("INNERLOOP_TRACEBACK", "1")
    with pytest.raises(InputError) as found:
        run("identify", "models.py:fails", *PROBLEM)
    assert isinstance(found.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("text", torture_commands.BAD_VALUES)
def test_bad_values_are_refused_briefly(text: str) -> None:
    for kind, name in ((LinearRegression, "covariance"), (BernoulliBandits, "chances")):
        if text.lower() in ("none", "null"):
            continue  # which both parameters may be
        with pytest.raises(InputError) as found:
            kind.from_values(parse_settings(kind, [f"{name}={text}"]))
        assert len(str(found.value)) < 300


@pytest.mark.parametrize("text", [".3", "+0.3", "3e-1", "0.3_0", "00.3"])
def test_settings_take_the_spellings_of_numbers_that_python_takes(text: str) -> None:
    values = parse_settings(LinearRegression, [f"noise={text}", "kappa=2."])
    assert values == {"noise": 0.3, "kappa": 2.0}
    for word, message in (("n=.3", "n must be a whole number"), ("noise=.3.", "noise must be a")):
        with pytest.raises(InputError, match=message):
            parse_settings(LinearRegression, [word])


def test_numbers_beyond_what_python_writes() -> None:
    with pytest.raises(InputError, match=r"d must be at most .* too long to print"):
        LinearRegression.from_values({"d": 10**5000})


def test_a_long_name_is_not_repeated() -> None:
    assert len(str(unknown_name_error("member", "x" * 10**6, ["newton"]))) < MAX_LENGTH + 100


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate "
                "memory: you tried to allocate 8000000000000 bytes. Error code 12"
            ),
            "out of memory (8e+03 GB were requested at once): reduce the sizes that -s sets "
            "(d, n, steps, …) or --instances",
        ),
        (MemoryError(), "out of memory: reduce the sizes that -s sets"),
    ],
)
def test_out_of_memory_says_what_to_reduce(run, monkeypatch, error, message: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("innerloop.certification.building.build", fail)
    assert message in run("build", "newton").err


def test_the_word_alloc_is_not_out_of_memory(run, monkeypatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("cannot alloc a slot")

    monkeypatch.setattr("innerloop.certification.building.build", fail)
    with pytest.raises(RuntimeError, match="alloc a slot"):
        run("build", "newton")


def test_loading_says_what_it_expected(traps: Path) -> None:
    with pytest.raises(InputError, match=r"a function of X, y and x_query.*; got int"):
        load_model("models.py:number")
    with pytest.raises(InputError, match="no attribute called 'numbr'; did you mean 'number'"):
        load_object("models.py:numbr")


@pytest.mark.parametrize("command", [(), ("show",), ("verify",), ("identify",), ("check",)])
def test_help_says_that_naming_code_runs_it(run, command: tuple[str, ...]) -> None:
    text = " ".join(run(*command, "--help").out.replace("│", " ").split())
    assert "runs its code" in text
