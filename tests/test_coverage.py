"""Certificates reach the weights: changed ones are noticed, and those out of reach are counted."""

from __future__ import annotations

import copy
import random
from pathlib import Path

import pytest
import torch

import innerloop
from innerloop.certification.certificate import certify
from innerloop.certification.coverage import find_unreached, format_ranges
from innerloop.certification.extremes import find_in_range, scale_to_ends
from innerloop.certification.law import measure_deviations
from innerloop.certification.measuring import measure_instances
from innerloop.constructions.base import Construction
from innerloop.constructions.lloyd import LloydConstruction
from innerloop.constructions.ucb_vi import UCBVIConstruction
from innerloop.errors import InputError, OutOfRangeError
from innerloop.registry import make_member
from innerloop.transformer import Transformer
from tools.torture.attacks import changed_weights


def change(transformer: Transformer, name: str, index: int, value: float) -> Transformer:
    """Copy a transformer with one weight changed."""
    changed = copy.deepcopy(transformer)
    dict(changed.named_parameters())[name].data.view(-1)[index] = value
    return changed


def places(ranges: str) -> set[int]:
    """Read index ranges back."""
    bounds = [part.partition("-") for part in ranges.split(",") if part]
    return {k for first, _, last in bounds for k in range(int(first), int(last or first) + 1)}


def test_a_wrong_knot_that_few_games_reach_is_noticed() -> None:
    """The bonus after six visits, which almost no random game has."""
    construction = UCBVIConstruction(d=2, steps=1)
    name = "prologue.1.mlp.everywhere.0.weight"
    changed = change(construction.transformer, name, 6, 2.0)
    honest = certify(construction, instances=16)
    assert honest.holds
    assert honest.further_instances > 0
    assert len(places((honest.unreached or {}).get(name, ""))) <= 1, "none is above the last knot"
    certificate = certify(construction, changed, instances=16)
    assert not certificate.holds


@pytest.mark.parametrize(
    ("name", "parameters", "tensor", "place", "factor"),
    [
        ("relu-gradient-descent", {"steps": 1, "n": 4}, "epilogue.0.attention.query", None, 0.5),
        ("soft-lin-ucb", {"steps": 2}, "epilogue.0.mlp.everywhere.0.weight", 480, -1.0),
        ("lloyd", {"steps": 1}, "body.0.0.attention.value", None, 1.001),
        ("em", {"steps": 1}, "body.0.2.mlp.everywhere.0.slope", 1137, 1.001),
    ],
)
def test_a_change_is_noticed_or_its_place_is_listed(
    name: str, parameters: dict, tensor: str, place: int | None, factor: float
) -> None:
    """Gates, knots that bounds allow for, hard choices: what small errors do not move."""
    construction = make_member("constructions", Construction, name, parameters)
    weight = dict(construction.transformer.named_parameters())[tensor].view(-1)
    place = int(weight.abs().argmax()) if place is None else place
    changed = change(construction.transformer, tensor, place, factor * float(weight[place]))
    certificate = certify(construction, changed, instances=8)
    if certificate.holds:
        assert certificate.unreached is not None
        assert place in places(certificate.unreached[tensor])


@pytest.mark.parametrize("name", ["lloyd", "relu-gradient-descent"])
def test_no_certificate_vouches_for_a_changed_weight(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A sample of the attack: what is changed is noticed, listed, or matters nowhere."""
    monkeypatch.setattr(changed_weights, "OTHERS", 250)
    monkeypatch.setattr(changed_weights, "LARGE_SHARE", 0.0)
    verdicts = [changed_weights.attempt([name], random.Random(seed), tmp_path) for seed in range(5)]
    assert "refused" in verdicts


def test_gates_are_opened_at_the_ends_of_the_range() -> None:
    """Half of a gate is enough for random data, not for data near the bound."""
    construction = make_member(
        "constructions", Construction, "relu-gradient-descent", {"steps": 2, "n": 4}
    )
    name, halved = "body.1.0.attention.key", construction.transformer
    weight = dict(halved.named_parameters())[name].view(-1)
    gates = (weight.abs() == 100.0).nonzero().flatten().tolist()
    assert len(gates) == 4, "a constant and a flag for each of two heads"
    for gate in gates:
        halved = change(halved, name, gate, float(weight[gate]) / 2)
    found, problems, _ = measure_instances(construction, halved, 8, 0)
    assert not found.broken, "random data open it: the test tests nothing"
    assert scale_to_ends(construction, problems[0][:2])
    assert not certify(construction, halved, instances=8).holds


def test_no_end_is_invented_where_none_is_declared() -> None:
    construction = make_member("constructions", Construction, "newton", {"d": 2, "n": 6})
    problem = construction.distributions()[0].sample(2, generator=torch.Generator().manual_seed(0))
    assert scale_to_ends(construction, problem.to(torch.float64)) == []


def test_weights_without_effect_are_listed() -> None:
    """The query of a head reads what the first step always finds to be 0."""
    certificate = innerloop.build(
        "relu-gradient-descent", d=2, n=4, steps=2, instances=4
    ).certificate
    assert certificate.unreached is not None
    first, second = (
        places(certificate.unreached.get(f"body.{k}.0.attention.query", "")) for k in (0, 1)
    )
    assert first > second
    assert certificate.holds
    count = sum(len(places(ranges)) for ranges in certificate.unreached.values())
    assert count == (certificate.unreached_weights or 0) + (certificate.unreached_zeros or 0)


def test_every_weight_of_a_dense_step_is_reached() -> None:
    certificate = innerloop.build("gd-plus-plus", d=2, n=4, steps=2, instances=4).certificate
    assert certificate.unreached == {}
    assert (certificate.unreached_weights, certificate.unreached_zeros) == (0, 0)
    assert certificate.further_instances == 0


def test_a_unit_that_is_never_active_is_not_reached() -> None:
    built = innerloop.build("newton", d=2, n=4, steps=1, instances=2)
    asleep = change(built.transformer, "body.0.0.mlp.bias", 0, -1e6)
    generator = torch.Generator().manual_seed(0)
    problem = built.construction.distributions()[0].sample(4, generator=generator)
    found = find_unreached(built.construction, asleep, problem, generator)
    assert found is not None
    for masks in found:
        assert masks["body.0.0.mlp.bias"].tolist()[0]
        outer = dict(asleep.named_parameters())["body.0.0.mlp.outer"]
        assert int((masks["body.0.0.mlp.outer"] & (outer != 0)).sum()) == 1


def test_places_are_written_as_ranges() -> None:
    mask = torch.tensor([[True, False, True], [True, True, False]])
    assert format_ranges(mask) == "0,2-4"
    assert format_ranges(~mask) == "1,5"
    assert format_ranges(mask & ~mask) == ""


def test_broken_weights_are_not_searched_further() -> None:
    built = innerloop.build("newton", d=2, n=4, steps=1, instances=2)
    wrong = change(built.transformer, "body.0.0.attention.value", 2, 9.0)
    certificate = certify(built.construction, wrong, instances=2)
    assert not certificate.holds
    assert certificate.unreached is None


def test_lloyds_law_is_tested_where_it_is_stated() -> None:
    """Among these instances are ties of empty clusters, on which right weights would break."""
    construction, redrawn = LloydConstruction(d=2, n=6, steps=3), 0
    for seed in range(6):
        found, _, count = measure_instances(construction, construction.transformer, 16, seed)
        assert not found.broken
        assert found.usage <= 1
        redrawn += count
    assert redrawn > 0, "none of these seeds has a tie: the test tests nothing"


def test_instances_are_redrawn_until_there_are_as_many_as_asked_for() -> None:
    """Most of these instances have a point between two means: more are drawn again than kept."""
    construction = LloydConstruction(d=1, n=6, steps=1, margin=0.5)
    found, problems, redrawn = measure_instances(construction, construction.transformer, 6, 0)
    assert sum(len(problem) for problem in problems) == 6
    assert redrawn > 6
    assert found.usage <= 1
    hopeless = LloydConstruction(d=1, n=40, steps=1, margin=2.0)
    assert measure_instances(hopeless, hopeless.transformer, 6, 0)[0].usage > 1


def test_instances_out_of_range_are_found_one_by_one() -> None:
    construction = LloydConstruction(d=1, n=4, clusters=2, steps=1)
    problem = construction.distributions()[0].sample(5, generator=torch.Generator().manual_seed(0))
    start = problem.start.clone()
    start[3] = 0.5  # both means in one place
    tied = problem.__class__(problem.x, start, problem.labels)
    assert find_in_range(construction, tied) == [True, True, True, False, True]


def test_finite_divergence_is_infinite_not_a_number() -> None:
    built = innerloop.build("newton", d=2, n=4, steps=1, instances=2)
    name = "body.0.0.attention.value"
    certificate = certify(built.construction, change(built.transformer, name, 2, 1e30), instances=2)
    assert certificate.max_deviation == float("inf")
    assert "diverges" in certificate.explain()
    problem = built.construction.distributions()[0].sample(2)
    far = change(built.transformer, "epilogue.0.attention.value", 4, 1e30)
    assert measure_deviations(built.construction, far, problem).largest == float("inf")


def test_a_prediction_beyond_all_reason_is_divergence() -> None:
    built = innerloop.build("newton", d=2, n=9, steps=10)
    problem = built.construction.distributions()[0].sample(1)
    large = problem.__class__(problem.x * 5, problem.y, problem.x_query)
    with pytest.raises(InputError, match="newton diverged: its prediction"):
        built.predict(large)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"covariance": [[1.0, 0.0]]}, "covariance must be 2×2"),
        ({"covariance": [[1.0, 0.5], [0.0, 1.0]]}, "must be symmetric"),
        ({"covariance": [[1.0, 0.0], [0.0, -1.0]]}, "positive definite"),
        ({"covariance": [[1e-300, 0.0], [0.0, 1e-300]]}, "scale the data"),
        ({"d": 10**9}, "d must be at most"),
        ({"n": 10**17}, "n must be at most"),
        ({"instances": 10**17}, "instances must be a whole number"),
        ({"seed": 2**64}, "seed must be at least 0 and below"),
        ({"d": 512, "steps": 10_000}, "expected parameters that give at most"),
        ({"d": 512, "n": 10_000, "instances": 10_000, "steps": 1}, "do not fit"),
    ],
)
def test_absurd_parameters_are_refused_before_memory_is_taken(
    parameters: dict, message: str
) -> None:
    with pytest.raises((InputError, OutOfRangeError), match=message) as caught:
        innerloop.build("newton", **{"d": 2, "n": 4, **parameters})
    assert "\n" not in str(caught.value)
