"""Limits: seeds, sizes and memory that may be asked for."""

from __future__ import annotations

import resource
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from innerloop.constructions.preconditioned_gradient_descent import (
    PreconditionedGradientDescentConstruction,
)
from innerloop.errors import InputError
from innerloop.identification.identification import identify
from innerloop.identification.models import ConstructionModel
from innerloop.limits import check_count, check_seed
from innerloop.problems.linear_regression import LinearRegression
from innerloop.problems.network_regression import NetworkRegression


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, np.int64(7), np.uint64(2**32 - 1)])
def test_a_seed_is_a_whole_number_below_two_to_the_32(seed: Any) -> None:
    assert check_seed(seed) == int(seed)
    assert type(check_seed(seed)) is int


@pytest.mark.parametrize(
    ("seed", "message"),
    [
        (-1, "at least 0 and below 2^32, got -1"),
        (2**32, "at least 0 and below 2^32, got 4294967296"),
        (np.uint64(2**64 - 1), "below 2^32, got 18446744073709551615"),
        pytest.param(10**5000, "got about 2^16609", id="5000 digits"),
        (-(2**100), "got about −2^100"),
        (True, "a whole number, got True"),
        (1.0, "a whole number, got 1.0"),
        ("3", "a whole number, got '3'"),
        (None, "a whole number, got None"),
    ],
)
def test_another_seed_is_refused_in_one_line(seed: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        check_seed(seed)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def sum_query(x: Tensor, y: Tensor, query: Tensor) -> Tensor:
    return query.sum(dim=-1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompts": 10**17}, "prompts must be at most 10000000, got 100000000000000000"),
        ({"prompts": True}, "prompts must be a whole number, got True"),
        ({"prompts": 0}, "prompts must be at least 2, got 0"),
        ({"steps": 10**400}, "steps must be at most 10000000, got about 2^1328"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"seed": 2**64}, "seed must be at least 0 and below 2^32"),
        ({"seed": 2**200}, "seed must be at least 0 and below 2^32"),
        ({"prompts": 10**7, "d": 30}, "drawing 10000000 prompts would take about "),
    ],
)
def test_absurd_options_of_identify_are_refused(options: dict[str, Any], message: str) -> None:
    problems = LinearRegression(d=options.pop("d", 2), n=5)
    with pytest.raises(InputError) as refused:
        identify(sum_query, problems, **options)
    assert str(refused.value).startswith(message)


def test_a_count_is_a_whole_number() -> None:
    assert check_count("n", np.int32(3), 1) == 3
    for wrong in (2.5, "3", None):
        with pytest.raises(InputError, match="n must be a whole number, got"):
            check_count("n", wrong, 1)


def test_torch_reads_32_bits_of_a_seed() -> None:
    """Larger seeds are refused, since each would silently draw what a smaller one draws."""
    first, second = (torch.rand(3, generator=torch.Generator().manual_seed(s)) for s in (0, 2**32))
    assert torch.equal(first, second)


def test_the_largest_seed_works() -> None:
    found = identify(
        sum_query, LinearRegression(d=2, n=5), seed=2**32 - 1, prompts=8, algorithms=["averaging"]
    )
    assert found.verdict == "none fits"


def test_absurd_options_on_the_command_line(run: Any, tmp_path: Any) -> None:
    (tmp_path / "own.py").write_text("def f(X, y, q):\n    return q.sum(-1)\n")
    words = [f"{tmp_path}/own.py:f", "--problem", "linear-regression", "-s", "n=5"]
    for option in (
        ["--prompts", str(10**17)],
        ["--steps", str(10**17)],
        ["--seed", str(2**64)],
        ["--seed", str(2**32)],
        ["-s", "d=200"],
        ["-s", "d=4096", "--prompts", "2"],
    ):
        found = run("identify", *words, *option)
        assert found.code == 2
        assert found.err.count("\n") == 1, found.err


def test_a_model_for_other_problems_is_refused_before_they_are_drawn() -> None:
    construction = PreconditionedGradientDescentConstruction(d=3, n=5, steps=1)
    model = ConstructionModel(construction, construction.transformer)
    with pytest.raises(InputError, match="was built for d=3, got d=200"):
        identify(model, LinearRegression(d=200))


@pytest.mark.parametrize(
    "problems",
    [
        LinearRegression(d=200),
        LinearRegression(d=5, n=10_000_000),
        LinearRegression(d=4096, n=10_000_000),
        NetworkRegression(d=2, n=5, width=4096),
    ],
)
def test_memory_is_counted_before_it_is_taken(problems: Any) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match=r"take about .* GB of memory, and the limit is 4 GB"):
        identify(sum_query, problems, prompts=256)
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert taken < 2_000_000, f"{taken} KiB were taken"


def test_a_fit_of_too_many_numbers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INNERLOOP_MEMORY", "0.001")
    problems, names = LinearRegression(d=10, n=3), ["preconditioned-gradient-descent"]
    with pytest.raises(InputError, match="fitting preconditioned-gradient-descent would take"):
        identify(sum_query, problems, algorithms=names)
    monkeypatch.setenv("INNERLOOP_MEMORY", "many")
    with pytest.raises(InputError, match="INNERLOOP_MEMORY must be a number of gigabytes above 0"):
        identify(sum_query, problems, algorithms=names)


def test_a_batch_of_more_than_any_memory_is_refused() -> None:
    for batch in ((10**17,), (10**6, 10**6)):
        with pytest.raises(InputError, match="at most 1000000000 instances in a batch, got"):
            LinearRegression(d=2, n=3).sample(*batch)
