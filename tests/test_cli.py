"""The command line: what it prints, what it refuses, and how."""

from __future__ import annotations

import json
import math
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import innerloop
from innerloop.terminal import print_table

FIELDS = {
    *("name", "exact", "layers", "heads", "width", "parameters", "operator_norm"),
    *("step_deviation", "deviation", "max_deviation", "tolerance", "free_tolerance"),
    *("instances", "seed", "versions"),
}


def test_list_for_machines_and_for_people(run) -> None:
    found = json.loads(run("list", "--json").out)
    assert set(found) == {
        "problems",
        "algorithms",
        "policies",
        "constructions",
        "programs",
        "recipes",
        "claims",
    }
    for members in found.values():
        assert members
        for member in members:
            assert member["name"]
            assert member["description"]
            assert member["source"]
            assert "\n" not in member["description"]
    assert found == innerloop.list_members()
    for kind, members in found.items():
        people = run("list", kind).out
        assert all(member["name"] in people for member in members)
        assert run("list", "claim" if kind == "claims" else kind).out == people
        assert json.loads(run("list", kind, "--json").out) == {kind: members}
    assert "100" in run("list").out or "statements" in run("list").out


def test_build_prints_one_object(run) -> None:
    found = run("build", "newton", "-s", "d=3", "-s", "steps=4", "--seed", "2", "--json")
    assert found.code == 0
    certificate = json.loads(found.out)
    assert set(certificate) >= FIELDS
    assert certificate["settings"]["d"] == 3
    assert len(certificate["deviation"]) == len(certificate["step_deviation"]) == 4
    assert certificate["max_deviation"] <= certificate["tolerance"] == 1e-10
    assert certificate["seed"] == 2
    python = innerloop.build("newton", d=3, steps=4, seed=2).certificate
    assert certificate["deviation"] == list(python.deviation)


@pytest.mark.parametrize(
    "more", [[], ["--dtype", "float32", "--seed", "5", "--instances", "9", "-s", "steps=3"]]
)
def test_the_printed_command_makes_the_certificate_again(run, more: list[str]) -> None:
    words = ["-s", "d=2", "-s", "preconditioners=[[0.1,0.02],[0,0.1]]", *more]
    first = json.loads(run("build", "looped-gradient-descent", *words, "--json").out)
    words = shlex.split(first["command"])
    again = json.loads(run(*words[1:], "--json").out)
    first.pop("seconds")
    again.pop("seconds")
    assert again == first


def test_build_for_people_and_to_a_file(run, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    found = run("build", "relu-newton", "-o", str(path))
    assert found.code == 0
    assert "holds" in found.out
    assert str(path) in found.out
    assert run("verify", str(path)).code == 0


def test_a_title_longer_than_its_table_is_not_broken(capsys: pytest.CaptureFixture[str]) -> None:
    title = "certificate of my_construction.py:MyConstruction" * 5
    print_table(title, ["a", "b"], [["1", "2"]])
    assert capsys.readouterr().out.splitlines()[0] == title


def test_float32(run) -> None:
    found = run("build", "gd-plus-plus", "--dtype", "float32", "--json")
    certificate = json.loads(found.out)
    assert found.code == 0
    assert certificate["dtype"] == "float32"
    assert 1e-10 < certificate["max_deviation"] <= certificate["tolerance"] <= 1e-3


def test_show_names_registers_and_what_every_head_and_piece_does(run) -> None:
    people = run("show", "relu-gradient-descent", "-s", "bound=50").out
    for word in ("Invariant", "step_size", "prompt", "x → w", "1 → y", "50", "blocks (9 layers)"):
        assert word in people
    newton = json.loads(run("show", "construction/newton", "-s", "d=2", "--json").out)
    assert [r["name"] for r in newton["registers"]] == ["x", "m", "y", "yhat"]
    sections = [(part["section"], part["does"]) for part in newton["blocks"]]
    assert [section for section, _ in sections] == ["prologue", "step 1 … 8", "epilogue"]
    head, mlp = sections[1][1]
    assert head.startswith("head 1 (linear, mask context, 1): score ⟨m, x⟩; adds -0.5 m → m  (line")
    assert mlp == "mlp: 4 units: assigns m"
    looped = run("show", "looped-gradient-descent").out
    assert "looped 8 times" in looped


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("build", "newtn"), "did you mean 'newton'?"),
        (("show", "newtn"), "did you mean 'newton'?"),
        (("build", "newton", "-s", "stpes=3"), "did you mean 'steps'?"),
        (("build", "newton", "-s", "d"), "expected key=value"),
        (("build", "newton", "-s", "d=0"), "d must be at least 1, got 0"),
        (("build", "soft-lin-ucb", "-s", "ridge=0"), "ridge must be at least 1e-06, got 0.0"),
        (("build", "thompson-sampling", "-s", "ridge=-1"), "ridge must be at least"),
        (("build", "soft-lin-ucb", "-s", "bound=0"), "bound must be at least 1e-06, got 0.0"),
        (("build", "soft-lin-ucb", "-s", "n=5000"), "n must be at most 2000, got 5000"),
        (("build", "ucb-vi", "-s", "n=201"), "n must be at most 200, got 201"),
        (("build", "ucb-vi", "-s", "delta=0"), "delta must be at least 1e-12, got 0.0"),
        (("build", "ucb-vi", "-s", "d=20", "-s", "arms=9"), "a width of at most 1000"),
        (("build", "newton", "-s", "d=-2"), "d must be at least 1"),
        (("build", "newton", "-s", "d=2.5"), "d must be a whole number, got 2.5"),
        (("build", "newton", "-s", "d=two"), "d must be a whole number, got 'two'"),
        (("build", "newton", "-s", "d="), "d must be a whole number"),
        (("build", "newton", "-s", "d=true"), "d must be a whole number, got True"),
        (("build", "newton", "-s", "d=null"), "d must be a whole number, got None"),
        (("build", "newton", "-s", "d=2", "-s", "d=3"), "d is set twice"),
        (("build", "newton", "-s", "d=99999999999999999999"), "d must be at most"),
        (("build", "newton", "-s", "steps=-1"), "steps must be at least 1, got -1"),
        (("build", "newton", "-s", "alpha=NaN"), "alpha must be finite"),
        (("build", "newton", "-s", "alpha=Infinity"), "alpha must be finite"),
        (("build", "newton", "-s", "alpha=[1]"), "alpha must be a number or none"),
        (("build", "newton", "-s", "alpha={}"), "alpha must be a number or none"),
        (("build", "gd-plus-plus", "-s", "transforms=randm"), "transforms must be"),
        (("build", "gd-plus-plus", "-s", "transforms=[[1,2],[3]]"), "rows of one length"),
        (("build", "gd-plus-plus", "-s", "transforms=[[1,NaN],[3,1]]"), "must be finite"),
        (("build", "gd-plus-plus", "-s", "transforms=[[1,2],[3,4]]"), "got 2×2"),
        (("build", "gd-plus-plus", "-s", "step_size=1e9"), "reference itself diverges"),
        (("build", "gd-plus-plus", "-s", "step_size=0"), "use larger steps"),
        (("build", "newton", "-s", "d=2", "-s", "covariance=[[1,2],[2,1]]"), "positive definite"),
        (("build", "newton", "-s", "d=2", "-s", "covariance=[[1,NaN],[0,1]]"), "must be finite"),
        (("build", "newton", "-s", "d=2", "-s", "covariance=[[1]]"), "covariance must be 2×2"),
        (("build", "newton", "-s", f"d=1{'0' * 400}"), "d must be at most"),
        (("build", "gd-plus-plus", "-s", f"transforms=[[1{'0' * 400}]]"), "transforms must"),
        (("build", "newton", "-o", "x" * 300), "cannot write"),
        (
            (
                "build",
                "gd-plus-plus",
                "-s",
                "d=1",
                "-s",
                "step_size=2",
                "-s",
                "preconditioners=[[1]]",
            ),
            "would be ignored",
        ),
        (("build", "newton", "--dtype", "float16"), "float64 or float32"),
        (("build", "newton", "--dtype", "float32"), "supports float64, got float32"),
        (("build", "newton", "--instances", "0"), "instances must be a whole number"),
        (("build", "newton", "--seed", "-1"), "seed must be"),
        (("build", "newton", "-s", "n=3", "-s", "steps=30"), "exact for up to 20 steps"),
        (("report", "-o", "/proc/nowhere/report.html"), "cannot write"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(run, words: tuple[str, ...], message: str) -> None:
    found = run(*words)
    assert found.code == 2
    assert message in found.err
    assert found.err.startswith("innerloop: ")
    assert len(found.err.splitlines()) == 1


@pytest.mark.parametrize(
    "words", [("bild",), ("build",), ("list", "--jsn"), ("build", "--seed", "x")]
)
def test_usage_mistakes_exit_with_2(run, words: tuple[str, ...]) -> None:
    found = run(*words)
    assert found.code == 2
    assert "Traceback" not in found.err


def test_a_broken_law_is_told_and_exits_with_1(run) -> None:
    found = run("build", "relu-gradient-descent", "-s", "bound=0.1")
    assert found.code == 1
    assert "times the declared range" in found.err
    assert "BROKEN" in found.out
    assert "holds" not in found.out


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (MemoryError(), 2, "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 2, "out of memory"),
    ],
)
def test_running_out_of_memory_is_one_line(
    run, monkeypatch, error, code: int, message: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("innerloop.certification.building.build", fail)
    found = run("build", "newton")
    assert found.code == code
    assert message in found.err
    assert len(found.err.splitlines()) == 1


def test_a_bug_is_not_hidden(run, monkeypatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("an honest bug")

    monkeypatch.setattr("innerloop.certification.building.build", fail)
    with pytest.raises(RuntimeError, match="an honest bug"):
        run("build", "newton")


def test_version_and_help_in_a_real_process() -> None:
    for words, expected in (
        (["--version"], f"innerloop {innerloop.__version__}"),
        (["--help"], "verify"),
        (["build", "--help"], "KEY=VALUE"),
    ):
        found = subprocess.run(
            [sys.executable, "-m", "innerloop", *words], capture_output=True, text=True, check=True
        )
        assert expected in found.stdout


def test_a_mistake_in_a_real_process_has_no_traceback() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "innerloop", "build", "newton", "-s", "d=0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 2
    assert found.stderr == "innerloop: d must be at least 1, got 0\n"
    assert found.stdout == ""


def test_help_loads_nothing_heavy() -> None:
    """What makes --help fast; how fast it is, the benchmark says."""
    code = (
        "import sys, innerloop, innerloop.cli\n"
        "heavy = {'torch', 'numpy', 'altair', 'scipy', 'sklearn'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_show_says_ranges_and_the_error_of_knots(run) -> None:
    people = run("show", "program/heavy-ball").out
    rows = {line.split()[0]: line for line in people.splitlines() if line.strip()}
    assert "≥ 0" in rows["eta"]
    assert "0 … 1" in rows["beta"]
    assert "1 … 10,000" in rows["steps"]
    assert "error of a step: exact" in people
    lines = run("show", "program/subspace-iteration", "-s", "knots=100").out
    (error,) = [line for line in lines.splitlines() if line.startswith("error of a step")]
    assert "straight lines between knots: line 46 is within" in error
    shown = json.loads(run("show", "program/subspace-iteration", "-s", "knots=100", "--json").out)
    assert shown["settings"]["least"]["least"] == 1e-12
    (knots,) = shown["parts"][0]["knots"]
    ratio = math.log(1e6) / 99  # of neighbouring knots; the inverse root is convex
    assert knots["relative"] == pytest.approx(3 / 32 * ratio**2, rel=0.2)
    assert "exact" not in json.loads(run("show", "program/soft-k-means", "--json").out)["error"]
