"""Define the controls of a scene, and check the values that a page sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from innerloop.errors import InputError, unknown_name_error

Values = Mapping[str, Any]
"""The values that a page sends: JSON values by name."""
MAX_NUMBER = 1e6
"""The largest absolute value of a number in a request."""


@dataclass(frozen=True)
class Choice:
    """A control with several options; `options` maps each value to its label on the page."""

    name: str
    label: str
    options: dict[str, str]

    @property
    def default(self) -> str:
        return next(iter(self.options))

    def read(self, values: Values) -> str:
        """Return the value of this control, or its default if the page does not send it."""
        value = values.get(self.name, self.default)
        if not isinstance(value, str):
            raise InputError(f"{self.name} must be a word, got {describe(value)}")
        if value not in self.options:
            raise unknown_name_error(self.name, value, self.options)
        return value

    def describe(self) -> dict[str, Any]:
        """Return the description of the control for the page."""
        return {"kind": "choice", "default": self.default, **asdict(self)}


@dataclass(frozen=True)
class Slider:
    """A control for a number in a range."""

    name: str
    label: str
    least: float
    most: float
    step: float
    default: float

    def read(self, values: Values) -> float:
        """Return the value of this control, or its default if the page does not send it."""
        value = read_number(values.get(self.name, self.default), self.name)
        if not self.least <= value <= self.most:
            raise InputError(
                f"{self.name} must be between {self.least:g} and {self.most:g}, got {value:g}"
            )
        return value

    def read_whole(self, values: Values) -> int:
        """Return the value of this control; raise an error if it is not a whole number."""
        value = self.read(values)
        if value != int(value):
            raise InputError(f"{self.name} must be a whole number, got {value:g}")
        return int(value)

    def describe(self) -> dict[str, Any]:
        """Return the description of the control for the page."""
        return {"kind": "slider", **asdict(self)}


Control = Choice | Slider
SEED = Slider("seed", "seed", 0, 10_000, 1, 0)
"""The seed of a scene's random numbers."""


def describe(value: Any) -> str:
    """Describe a value of a request briefly, for an error message."""
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def read_number(value: Any, name: str) -> float:
    """Return a value as a float; raise an error if it is not a number or too large."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{name} must be a number, got {describe(value)}")
    if not -MAX_NUMBER <= value <= MAX_NUMBER:  # also true if the value is NaN
        raise InputError(f"{name} must be between ±{MAX_NUMBER:,.0f}, got {describe(value)}")
    return float(value)


def read_list(value: Any, name: str, least: int, most: int) -> list[Any]:
    """Return a value as a list; raise an error unless it has `least` to `most` entries."""
    if not isinstance(value, list):
        raise InputError(f"{name} must be a list, got {describe(value)}")
    if not least <= len(value) <= most:
        raise InputError(f"{name} must have {least} to {most} entries, got {len(value)}")
    return value


def read_points(values: Values, name: str, least: int, most: int, reach: float) -> Any:
    """Return `least` to `most` points (x, y); each coordinate must be within ± `reach`."""
    points = []
    for number, point in enumerate(read_list(values.get(name), name, least, most), 1):
        pair = read_list(point, f"{name}, entry {number}", 2, 2)
        x, y = (read_number(part, f"{name}, entry {number}") for part in pair)
        if max(abs(x), abs(y)) > reach:
            raise InputError(
                f"{name}, entry {number}: coordinates must be within ±{reach:g}, got {x:g}, {y:g}"
            )
        points.append([x, y])
    return points
