"""The data of a report, which are measured before the page is drawn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Rows = list[dict[str, Any]]
"""A tidy table: one dictionary per row, its keys the columns."""


@dataclass(frozen=True)
class ReportData:
    """All contents of a report, as plain data that can be written as JSON."""

    outcomes: list[dict[str, Any]]
    """The claims with their evidence, as `Outcome.as_dict` gives them."""
    certificates: list[dict[str, Any]]
    """One certificate per construction and program, as `Certificate.as_dict` gives them."""
    convergence: Rows
    """Prediction error against layers."""
    convergence_setting: str
    """What was run for `convergence`, in words."""
    regret: Rows
    """Cumulative regret against time, per construction and player."""
    regret_setting: str
    """What was played for `regret`, in words."""
    runs: list[dict[str, Any]]
    """The finished trainings, as `load_finished_runs` gives them."""
    command: str
    """The command that makes the report again."""
    made: str
    """When the measurements ended."""
    seconds: float
    """How long the checks and measurements took."""
    damaged: list[dict[str, str]] = field(default_factory=list)
    """Runs that cannot be shown: the folder of each, and the reason."""
    diagrams: dict[str, str] = field(default_factory=dict)
    """Programs as pictures of their registers and blocks: SVG by the program's name."""

    def as_dict(self) -> dict[str, Any]:
        """Return the four measured tables and the damaged runs as plain data for JSON."""
        return {
            "claims": self.outcomes,
            "certificates": self.certificates,
            "convergence": self.convergence,
            "regret": self.regret,
            "damaged": self.damaged,
        }
