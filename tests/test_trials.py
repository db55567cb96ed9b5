"""Trials keep the precision of what they compare."""

from __future__ import annotations

from innerloop.claims.cases import Case
from innerloop.claims.trials import Equality


def test_equality_of_numbers_is_held_to_its_tolerance() -> None:
    """Numbers of Python are float64; float32 could not tell these two apart."""
    trial = Equality("a = b", tolerance=1e-9)
    trial.add(1.0, 1.0 + 1e-8, Case(d=1))
    assert not trial.check().passed
