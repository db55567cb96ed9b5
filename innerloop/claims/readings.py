"""The outcome of a statement whose words allow several readings or settings."""

from __future__ import annotations

from collections.abc import Mapping

from innerloop.claims.evidence import Check


def decide_together(statement: str, readings: Mapping[str, Check]) -> Check:
    """Decide a statement only if it has the same outcome under every reading."""
    outcomes = {check.passed for check in readings.values()}
    passed = outcomes.pop() if len(outcomes) == 1 else None
    count = "1 reading" if len(readings) == 1 else f"{len(readings)} readings"
    return Check(
        statement=statement,
        passed=passed,
        summary=f"{count} that the words allow: "
        + "; ".join(f"{name}: {check.outcome}" for name, check in readings.items()),
        counterexample=next(iter(readings.values())).counterexample if passed is False else "",
    )
