"""The exact part of certificates: what it says, when it is silent, and that it catches a lie."""

from __future__ import annotations

import copy
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch

import innerloop
from innerloop.certification.certificate import certify
from innerloop.constructions.base import Construction
from innerloop.language import Data, State, dot, mean, program, relu
from innerloop.language.compiler import Compiled
from innerloop.language.construction import ProgramConstruction
from innerloop.language.emission import emit_blocks
from innerloop.language.plan import PlannedHead
from innerloop.language.points import PointChecker, list_parts
from innerloop.language.rational import run_blocks, to_fractions
from innerloop.language.scouting import Scout
from innerloop.problems.linear_regression import LinearRegression
from innerloop.programs.heavy_ball import heavy_ball
from innerloop.registry import find_class, make_member
from innerloop.report.certificates import render_certificates
from innerloop.transformer import Block

FEW: dict[str, Any] = {"instances": 2, "steps": 2}


def find_exactness(name: str, **parameters: Any) -> dict[str, Any]:
    found = innerloop.build(name, **FEW, **parameters).certificate.exactness
    assert found is not None
    return found


def test_linear_attention_is_a_proof_for_small_sizes() -> None:
    found = find_exactness("newton", d=6, n=9)
    assert (found["status"], found["sizes"], found["points"]) == ("proof", {"d": 3, "n": 4}, 4)
    assert found["log10_probability"] < -30


def test_relu_is_never_called_a_proof() -> None:
    found = find_exactness("lista-vm", d=4, n=5)
    assert found["status"] == "points"
    assert "no proof" in found["text"]


def test_straight_lines_are_told_apart_from_their_function() -> None:
    found = find_exactness("logistic-descent", d=2, n=5, knots=31)
    assert found["status"] == "points"
    assert found["lines"] == 1
    assert "straight lines" in found["brief"]
    assert "bounded apart" in found["text"]


@pytest.mark.parametrize(
    ("name", "reason"), [("lloyd", "softmax"), ("format-conversion", "written by hand")]
)
def test_what_is_not_compared_says_why(name: str, reason: str) -> None:
    found = innerloop.build(name, instances=2).certificate.exactness
    assert found is not None
    assert found["status"] == "none"
    assert reason in found["text"]


def test_numbers_for_one_size_are_compared_at_that_size() -> None:
    matrix = 0.1 * torch.eye(5, dtype=torch.float64)
    found = find_exactness("preconditioned-gradient-descent", d=5, n=9, preconditioners=matrix)
    assert found["status"] == "proof"
    assert found["sizes"] == {"d": 5, "n": 4}
    rates = torch.linspace(0.1, 0.3, 3, dtype=torch.float64)
    built = innerloop.compile(heavy_ball, d=4, n=6, steps=3, eta=rates, instances=2)
    assert (built.certificate.exactness or {})["parts"][:-1] == ["step 1", "step 2", "step 3"]


def test_too_large_a_comparison_is_left_to_the_command() -> None:
    matrix = 0.01 * torch.ones(60, 60, dtype=torch.float64)
    found = find_exactness("preconditioned-gradient-descent", d=60, n=3, preconditioners=matrix)
    assert found["status"] == "none"
    assert "innerloop exact" in found["text"]


def test_other_weights_are_not_spoken_of() -> None:
    built = innerloop.build("newton", d=2, n=4, **FEW)
    changed = copy.deepcopy(built.transformer)
    with torch.no_grad():
        next(changed.parameters()).mul_(1 + 1e-14)
    certificate = certify(built.construction, changed, instances=2)
    assert certificate.holds
    assert certificate.exactness is not None
    assert certificate.exactness["brief"] == "other weights"


def test_a_weight_that_is_off_by_less_than_rounding_breaks_the_certificate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The law in floating point cannot see it; rational arithmetic does."""
    compile_for = heavy_ball.compile_for

    def lie(self: Any, *arguments: Any, **options: Any) -> Compiled:
        compiled = compile_for(self, *arguments, **options)
        block = compiled.steps[0].blocks[0]
        score, value = block.heads[0]
        off = {pair: c * (1 + Fraction(1, 10**18)) for pair, c in value.items()}
        block.heads[0] = PlannedHead(score, off)
        return compiled

    monkeypatch.setattr(heavy_ball, "compile_for", lie)
    certificate = innerloop.compile(heavy_ball, d=2, n=4, **FEW).certificate
    assert max(certificate.step_deviation) < certificate.tolerance
    assert not certificate.holds
    assert "not equal" in certificate.explain()


@pytest.mark.parametrize(
    ("name", "part"),
    [
        *(("heavy-ball", part) for part in ("query", "key", "value", "inner", "outer")),
        *(("ista", part) for part in ("value", "bias", "weight")),
        *(("approximate-message-passing", part) for part in ("query", "outer")),
    ],
)
def test_emitted_weights_beyond_rounding_are_not_equal(
    name: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is emitted is judged too, not only what was planned."""

    def lie(*arguments: Any) -> list[Block]:
        blocks = emit_blocks(*arguments)
        named = [weight for block in blocks for weight in block.named_parameters()]
        chosen = [weight for name, weight in named if name.rpartition(".")[2] == part]
        with torch.no_grad():
            for weight in chosen:
                weight.mul_(1 + 1e-12)
        return blocks

    sizes = {"d": 2, "n": 3, "steps": 1}
    sizes |= {"knots": 8} if name == "approximate-message-passing" else {}
    honest = innerloop.exact(name, points=4, **sizes)
    assert honest.equal
    assert honest.rounding < 1e-12
    monkeypatch.setattr("innerloop.language.points.emit_blocks", lie)
    found = innerloop.exact(name, points=4, **sizes)
    assert (found.equal, found.status) == (False, "differs")
    assert "the float64 weights are not the exact ones, rounded" in found.text


def test_a_wrong_emission_breaks_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def lie(*arguments: Any) -> list[Block]:
        blocks = emit_blocks(*arguments)
        for block in blocks:
            if block.attention is not None:
                with torch.no_grad():
                    block.attention.value.mul_(1.5)
        return blocks

    monkeypatch.setattr("innerloop.language.points.emit_blocks", lie)
    assert innerloop.exact(heavy_ball).status == "differs"


def test_units_with_one_sign_are_told_from_those_not_seen() -> None:
    """A mean square is at least 0: what clears it below 0 never runs; all else is seen."""

    @program(x=Data("d"), y=Data(), w=State("d", shared=True), q=State())
    def square(me: Any) -> None:
        me.norm = relu(dot(me.w, me.w)) + relu(mean(lambda j: j.q * j.q) - 2)
        me.w = me.w + mean(lambda j: j.y * j.x)
        me.q = me.q - relu(me.norm - 1000)

    found = innerloop.exact(square, d=2, n=3, points=4)
    assert found.equal
    assert found.one_sided == []
    assert found.signed > 0
    assert "which is proved" in found.text
    one = program(x=Data("d"), q=State())(
        lambda me: setattr(me, "q", relu(me.q + 10**9) + relu(me.q - 10**9))
    )
    one.answer(lambda me: me.q)
    never = innerloop.exact(one, points=4)
    assert len(never.one_sided) == 2
    assert "2 were seen on one side only: " in never.text


@pytest.mark.parametrize(
    "name", ["approximate-message-passing", "network-gradient-descent", "spectral-clustering"]
)
def test_signs_that_are_proved_are_never_contradicted(name: str) -> None:
    """By points of varied sizes, run in floating point."""
    kind = find_class("constructions", Construction, name)
    assert issubclass(kind, ProgramConstruction)
    known = kind.declared_types()
    made = kind.from_values({k: v for k, v in kind.exact_sizes.items() if k in known})
    checker = PointChecker(made, made.compiled, random.Random(0))
    proved = 0
    for part in list_parts(made.compiled):
        signed = {key for _, key in checker.prove_signs(part)}
        active, silent = set[Any](), set[Any]()
        for stream, context in checker.draw_in_range(part, 40):
            sides = Scout(part.plan, made.layout).look(stream, context)
            active |= {key for key, on in sides.active.items() if on}
            silent |= {key for key, off in sides.silent.items() if off}
        assert not signed & active & silent
        proved += len(signed & (active | silent))
    assert proved > 5


def test_files_and_reports_without_it_are_read(tmp_path: Path) -> None:
    built = innerloop.build("newton", d=2, n=4, **FEW)
    certificate = built.certificate.as_dict()
    older = {name: value for name, value in certificate.items() if name != "exactness"}
    assert "a proof for d = 2, n = 4" in render_certificates([certificate])
    assert "not compared" in render_certificates([older])
    path = tmp_path / "newton.safetensors"
    about = {"construction": "newton", "settings": certificate["settings"], "certificate": older}
    built.transformer.save(path, {**about, "instances": 2, "seed": 0})
    read = innerloop.verify(path, instances=2).certificate
    assert read.holds
    assert (read.exactness or {})["status"] == "proof"


@pytest.mark.parametrize("name", ["format-conversion", "decoder-gradient-descent"])
def test_pairing_by_hand_is_exact_but_for_its_rounded_thirds(name: str) -> None:
    """Weights of no program, read as rational numbers: 4/3 and 10/3 are not floats."""
    made = make_member("constructions", Construction, name, {"d": 2, "n": 3, "steps": 1})
    problem = LinearRegression(d=2, n=3).sample(1, generator=torch.Generator().manual_seed(0))[0]
    problem = problem.map_tensors(lambda tensor: (8 * tensor).round() / 8)
    blocks = made.body(0) if name == "format-conversion" else made.prologue()
    start = to_fractions(made.prompt(problem))
    found = run_blocks(blocks, start, len(start) - 1)
    expected = start.copy()
    places = list(made.layout["x"].places)
    expected[1::2, places] = to_fractions(problem.x)
    assert (expected != start).any()
    assert max(abs(found - expected).ravel()) < Fraction(1, 10**14)
