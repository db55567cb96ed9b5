"""One law for every construction that can be found, on every case it does not refuse."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from innerloop.constructions.base import Construction
from innerloop.constructions.law import cases, deviations
from innerloop.errors import OutOfRange
from innerloop.registry import members

CONSTRUCTIONS = members("constructions", Construction)
BATCHES = [(2, 3), ()]


def accepted(kind: type[Construction], dtype: torch.dtype) -> Iterator[tuple[str, str, float]]:
    """For each accepted case: what it is, where it breaks the law if it does, and the tolerance."""
    known = list(cases(kind))
    made = functools.cache(lambda index: known[index].make())
    for index, batch in itertools.product(range(len(known)), BATCHES):
        generator = torch.Generator().manual_seed(3)
        try:
            construction, distribution = made(index)
            problem = distribution.sample(*batch, generator=generator, dtype=dtype)
            transformer = construction.transformer.to(dtype)
            found = deviations(construction, transformer, problem.to(torch.float64), generator)
        except OutOfRange:
            continue
        # A case on which nothing happens, a label below the threshold say, tests nothing.
        if found.usage <= 1 and found.moved > 1e-4:
            assert len(found.step) == len(found.free) == construction.steps
            label = f"{construction.values()} on {distribution.values()}, batch {batch}"
            off = f"{max(found.step):.2e} a step, {max(found.free):.2e} running free"
            broken = f"{off}, {found.broken}" if found.broken else ""
            yield label, broken, construction.tolerance(dtype)


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_law_in_float64(name: str) -> None:
    kind = CONSTRUCTIONS[name]
    ran = list(accepted(kind, torch.float64))
    broken = [f"{broken} > {limit:.0e}: {label}" for label, broken, limit in ran if broken]
    assert not broken, "\n".join(broken)
    if kind.exact:
        assert all(limit <= 1e-10 for _, _, limit in ran)
    assert kind.exact == (kind.error == "exact")
    assert len(ran) >= 5 * len(BATCHES), f"only {len(ran)} cases ran"


@pytest.mark.parametrize(
    "name", [name for name, kind in CONSTRUCTIONS.items() if torch.float32 in kind.tolerances]
)
def test_law_in_float32(name: str) -> None:
    ran = list(accepted(CONSTRUCTIONS[name], torch.float32))
    broken = [f"{broken} > {limit:.0e}: {label}" for label, broken, limit in ran if broken]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("name", CONSTRUCTIONS)
@settings(max_examples=15)
@given(d=st.integers(1, 6), n=st.integers(1, 12), steps=st.integers(1, 6), seed=st.integers(0, 99))
def test_law_at_random_sizes(name: str, d: int, n: int, steps: int, seed: int) -> None:
    """Sizes that nobody chose; those that a construction refuses are passed over."""
    kind = CONSTRUCTIONS[name]
    generator = torch.Generator().manual_seed(seed)
    try:
        construction = kind.made({"d": d, "n": n, "steps": kind.capped("steps", steps)})
        problem = construction.distributions()[0].sample(4, generator=generator)
        found = deviations(construction, construction.transformer, problem, generator)
    except OutOfRange:
        reject()
    # Beyond its declared range a construction may do anything: the certificate says that it is.
    assert found.usage > 1 or not found.broken


def test_there_are_constructions() -> None:
    assert {
        "gd-plus-plus",
        "looped-gradient-descent",
        "newton",
        "preconditioned-gradient-descent",
        "relu-gradient-descent",
        "relu-newton",
    } <= set(CONSTRUCTIONS)
