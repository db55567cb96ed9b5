"""Certificates reach the weights: changed ones are noticed, and those out of reach are counted."""

from __future__ import annotations

import copy

import pytest
import torch

import innerloop
from innerloop.certification.certificate import certify
from innerloop.certification.coverage import Coverage
from innerloop.certification.law import measure_deviations
from innerloop.certification.measuring import find_in_range, measure_instances
from innerloop.constructions.lloyd import LloydConstruction
from innerloop.constructions.ucb_vi import UCBVIConstruction
from innerloop.errors import InputError, OutOfRangeError
from innerloop.transformer import Transformer


def change(transformer: Transformer, name: str, index: int, value: float) -> Transformer:
    """Copy a transformer with one weight changed."""
    changed = copy.deepcopy(transformer)
    dict(changed.named_parameters())[name].data.view(-1)[index] = value
    return changed


def test_a_wrong_knot_that_few_games_reach_is_noticed() -> None:
    """The bonus after six visits, which almost no random game has."""
    construction = UCBVIConstruction(d=2, steps=1)
    name = "prologue.1.mlp.everywhere.0.weight"
    changed = change(construction.transformer, name, 6, 2.0)
    honest = certify(construction, instances=16)
    assert honest.holds
    assert honest.further_instances > 0
    assert (honest.unreached or {}).get(name, 0) <= 1, "nothing is above the last knot"
    certificate = certify(construction, changed, instances=16)
    assert not certificate.holds


def test_weights_without_effect_are_counted() -> None:
    """The query of a head reads what the first step always finds to be 0."""
    certificate = innerloop.build(
        "relu-gradient-descent", d=2, n=4, steps=2, instances=4
    ).certificate
    assert certificate.unreached is not None
    assert certificate.unreached["body.0.0.attention.query"] > 0
    assert "body.1.0.attention.query" not in certificate.unreached
    assert certificate.holds


def test_every_weight_of_a_dense_step_is_reached() -> None:
    certificate = innerloop.build("gd-plus-plus", d=2, n=4, steps=2, instances=4).certificate
    assert (certificate.unreached, certificate.unreached_zeros) == ({}, 0)
    assert certificate.further_instances == 0


def test_a_unit_that_is_never_active_is_not_reached() -> None:
    built = innerloop.build("newton", d=2, n=4, steps=1, instances=2)
    asleep = change(built.transformer, "body.0.0.mlp.bias", 0, -1e6)
    coverage = Coverage(built.construction, asleep)
    generator = torch.Generator().manual_seed(0)
    problem = built.construction.distributions()[0].sample(4, generator=generator)
    coverage.observe(problem, generator)
    assert coverage.list_unreached()["body.0.0.mlp.bias"] == 1
    assert coverage.list_unreached()["body.0.0.mlp.outer"] == 1


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
        ({"d": 512, "steps": 10_000}, "weights with these parameters"),
        ({"d": 512, "n": 10_000, "instances": 10_000, "steps": 1}, "do not fit"),
    ],
)
def test_absurd_parameters_are_refused_before_memory_is_taken(
    parameters: dict, message: str
) -> None:
    with pytest.raises((InputError, OutOfRangeError), match=message) as caught:
        innerloop.build("newton", **{"d": 2, "n": 4, **parameters})
    assert "\n" not in str(caught.value)
