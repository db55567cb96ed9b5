"""What was found inside a model: one row per layer, and a verdict in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from innerloop.identification.inside.intervening import Intervention

AGREEMENT = 0.99
"""Answers, gain of the read-out and effect of the intervention that count as agreement, of ours."""


@dataclass(frozen=True)
class Reading:
    """How well a tensor of the state is read from a layer, and from three controls (R²)."""

    field: str
    view: str
    r2: float
    gain: float
    prompt: float
    random: float
    shuffled: float

    @property
    def is_found(self) -> bool:
        return self.gain >= AGREEMENT


@dataclass(frozen=True)
class LayerInside:
    """Answers, state and intervention of one layer; no readings where nothing is computed."""

    layer: int
    name: str
    step: int
    answers: float
    readings: tuple[Reading, ...]
    intervention: Intervention | None

    @property
    def answers_agree(self) -> bool:
        return self.answers >= AGREEMENT

    @property
    def state_agrees(self) -> bool:
        return bool(self.readings) and all(reading.is_found for reading in self.readings)

    @property
    def intervention_agrees(self) -> bool:
        moved = self.intervention
        everything = moved is not None and set(moved.moved) == {r.field for r in self.readings}
        return everything and moved is not None and moved.effect >= AGREEMENT

    @property
    def agrees(self) -> bool:
        """Whether all three agree."""
        return self.answers_agree and self.state_agrees and self.intervention_agrees

    @property
    def text(self) -> str:
        """One line: the three numbers with their controls."""
        parts = [f"answers {_format(self.answers)}"]
        for reading in self.readings:
            control = max(reading.prompt, reading.random, reading.shuffled)
            parts.append(f"{reading.view}: R² {_format(reading.r2)} (controls {_format(control)})")
        if not self.readings:
            parts.append("the state is a constant, or the prompt's")
        if self.intervention is not None:
            effect, random = self.intervention.effect, self.intervention.random
            parts.append(f"moved: effect {_format(effect)} (random directions {_format(random)})")
        elif self.readings:
            parts.append("not moved")
        return f"{self.name}: {'; '.join(parts)}"

    def as_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "agrees": {
                "answers": self.answers_agree,
                "state": self.state_agrees,
                "intervention": self.intervention_agrees,
            },
        }


@dataclass(frozen=True)
class Inside:
    """What was found of an algorithm inside a model."""

    algorithm: str
    layers: list[LayerInside]

    @property
    def agrees(self) -> bool:
        """Whether answers, state and intervention agree at every layer."""
        return all(layer.agrees for layer in self.layers)

    @property
    def verdict(self) -> str:
        """One line: at which layers answers, state and intervention agree."""
        if self.agrees:
            return f"{self.algorithm}: answers, state and intervention agree at every layer"
        parts = [
            f"answers agree {_name_layers(self.layers, 'answers_agree')}",
            f"state {_name_layers(self.layers, 'state_agrees')}",
            f"intervention {_name_layers(self.layers, 'intervention_agrees')}",
        ]
        return f"{self.algorithm}: {', '.join(parts)}"

    @property
    def text(self) -> str:
        """The verdict, and a line for each layer."""
        return "\n".join([self.verdict, *(f"  {layer.text}" for layer in self.layers)])

    def __str__(self) -> str:
        return self.text

    def as_dict(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm,
            "verdict": self.verdict,
            "agrees": self.agrees,
            "layers": [layer.as_dict() for layer in self.layers],
        }


def _name_layers(layers: Sequence[LayerInside], what: str) -> str:
    """Name the layers at which something agrees."""
    numbers = [layer.layer for layer in layers if getattr(layer, what)]
    if len(numbers) == len(layers):
        return "at every layer"
    return f"at {len(numbers)} of {len(layers)} layers" if numbers else "at no layer"


def _format(value: float) -> str:
    """Three digits, but never 1.000 for less than one."""
    rounded = f"{value:.3f}"
    if rounded == "1.000" and value < 1 - 1e-6:
        return "0.999+"
    return rounded if value > -10 else "below −10"
