"""The law holds for every registered construction, on every case within its limits."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from innerloop.certification.law import measure_deviations
from innerloop.constructions.base import Construction
from innerloop.errors import OutOfRangeError
from innerloop.registry import load_members
from innerloop.testing.constructions import (
    MadeCase,
    check_declared_cost,
    check_law,
    make_cases,
)

CONSTRUCTIONS = load_members("constructions", Construction)


@pytest.fixture(scope="module", params=CONSTRUCTIONS)
def name(request: pytest.FixtureRequest) -> str:
    """Name each construction in turn."""
    return request.param


@pytest.fixture(scope="module")
def cases(name: str) -> list[MadeCase]:
    """Make the cases of a construction, whose weights its tests share."""
    return make_cases(CONSTRUCTIONS[name])


def test_law_in_float64(name: str, cases: list[MadeCase]) -> None:
    check_law(CONSTRUCTIONS[name], cases=cases)


@pytest.mark.parametrize(
    "name",
    [name for name, kind in CONSTRUCTIONS.items() if torch.float32 in kind.tolerances],
    indirect=True,
)
def test_law_in_float32(name: str, cases: list[MadeCase]) -> None:
    check_law(CONSTRUCTIONS[name], torch.float32, cases)


def test_the_declared_cost_is_what_is_built(name: str, cases: list[MadeCase]) -> None:
    check_declared_cost(CONSTRUCTIONS[name], cases)


@settings(max_examples=15)
@given(d=st.integers(1, 6), n=st.integers(1, 12), steps=st.integers(1, 6), seed=st.integers(0, 99))
def test_law_at_random_sizes(name: str, d: int, n: int, steps: int, seed: int) -> None:
    """Sizes that nobody chose; those that a construction refuses are passed over."""
    kind = CONSTRUCTIONS[name]
    generator = torch.Generator().manual_seed(seed)
    try:
        construction = kind.from_values({"d": d, "n": n, "steps": kind.cap_value("steps", steps)})
        problem = construction.distributions()[0].sample(4, generator=generator)
        found = measure_deviations(construction, construction.transformer, problem, generator)
    except OutOfRangeError:
        reject()
    # Beyond its declared range a construction may do anything: the certificate says that it is.
    assert found.usage > 1 or not found.broken


@pytest.mark.parametrize("name", CONSTRUCTIONS)
@pytest.mark.parametrize("n", [2, 3])
def test_as_many_instances_as_tokens_are_told_apart(name: str, n: int) -> None:
    """At d = 1 the shapes (instances, tokens) and (tokens, d) may be the same."""
    kind = CONSTRUCTIONS[name]
    one = {"d", "clusters", "components", "width"} & kind.declared_types().keys()
    generator = torch.Generator().manual_seed(n)
    try:
        construction = kind.from_values({"n": n, **dict.fromkeys(one, 1)})
        distribution = construction.distributions()[0]
        tokens = construction.prompt(distribution.sample(1, generator=generator)).shape[-2]
        problem = distribution.sample(tokens, generator=generator)
        encoded = construction.encode(problem, construction.algorithm.init(problem))
    except OutOfRangeError:
        return  # a construction of one game, or for two clusters
    for k in range(tokens):
        alone = problem[k : k + 1]
        expected = construction.encode(alone, construction.algorithm.init(alone))
        torch.testing.assert_close(encoded[k : k + 1], expected, rtol=0, atol=1e-12)


def test_there_are_constructions() -> None:
    assert {
        "gd-plus-plus",
        "looped-gradient-descent",
        "newton",
        "preconditioned-gradient-descent",
        "relu-gradient-descent",
        "relu-newton",
    } <= set(CONSTRUCTIONS)
