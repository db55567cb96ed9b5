"""The data of a report, which are measured before the page is drawn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Rows = list[dict[str, Any]]
"""A table: one dictionary per row, whose keys are the columns."""


@dataclass(frozen=True)
class ReportData:
    """All contents of a report, as plain data that can be written as JSON."""

    outcomes: list[dict[str, Any]]
    """The claims with their evidence, as `Outcome.as_dict` returns them."""
    certificates: list[dict[str, Any]]
    """One certificate per construction and program, as `Certificate.as_dict` returns them."""
    convergence: Rows
    """Prediction error against layers."""
    convergence_setting: str
    """A description of the setting of `convergence`."""
    regret: Rows
    """Cumulative regret against time, per construction and player."""
    regret_setting: str
    """A description of the games of `regret`."""
    runs: list[dict[str, Any]]
    """The finished trainings, as `load_finished_runs` returns them."""
    command: str
    """The command that makes the report again."""
    made: str
    """When the measurements ended."""
    seconds: float
    """How long the checks and measurements took."""
    damaged: list[dict[str, str]] = field(default_factory=list)
    """The runs that could not be read: the folder of each, and the reason."""
    diagrams: dict[str, str] = field(default_factory=dict)
    """The diagrams of registers and blocks as SVG, by the name of the program."""

    def as_dict(self) -> dict[str, Any]:
        """Return the four measured tables and the damaged runs as plain data for JSON."""
        return {
            "claims": self.outcomes,
            "certificates": self.certificates,
            "convergence": self.convergence,
            "regret": self.regret,
            "damaged": self.damaged,
        }
