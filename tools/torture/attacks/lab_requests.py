"""Requests to the scenes of the lab: degenerate data, values at the ends of ranges, wrong values.

An answer is either finite numbers or one line that describes the mistake; a status of 500 is a
defect.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from innerloop.lab.controls import Choice
from innerloop.lab.scene import Scene, load_scenes
from innerloop.lab.server import Turns, Work, answer
from tools.torture.attack import Attack, Defect, Verdict, check_message
from tools.torture.corruption import HOSTILE_NUMBERS, HOSTILE_TEXT
from tools.torture.drawing import draw

HOSTILE = st.sampled_from([*HOSTILE_NUMBERS, *HOSTILE_TEXT, [], {}, [[]], None])
COORDINATES = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 2.5, 1e-9, 1e-300]), st.floats(-3.0, 3.0, width=16)
)
POINTS = st.tuples(COORDINATES, COORDINATES).map(list)
ONE_PLACE = POINTS.flatmap(lambda point: st.lists(st.just(point), min_size=2, max_size=30))
ONE_LINE = COORDINATES.flatmap(
    lambda x: st.lists(COORDINATES.map(lambda y: [x, y]), min_size=2, max_size=30)
)


def draw_points(least: int, most: int) -> SearchStrategy[Any]:
    """Return a strategy for lists of points: random, all equal, or all with the same x."""
    lists = st.lists(POINTS, min_size=least, max_size=most)
    return st.one_of(lists, ONE_PLACE, ONE_LINE)


CELLS = st.one_of(st.integers(-9, 9).map(str), st.sampled_from(["", "x", "nan", "1e308", "1e-320"]))
TABLES = st.integers(2, 4).flatmap(
    lambda width: st.lists(
        st.lists(CELLS, min_size=width, max_size=width).map(",".join), min_size=1, max_size=9
    ).map("\n".join)
)
DATA: dict[str, dict[str, SearchStrategy[Any]]] = {
    "line-fit": {"points": draw_points(2, 30)},
    "clusters": {"points": draw_points(2, 30), "starts": draw_points(2, 4)},
    "pca": {"points": draw_points(20, 20), "starts": draw_points(2, 2)},
    "sparse-recovery": {"truth": st.lists(COORDINATES, min_size=20, max_size=20)},
    "bandits": {"weights": st.lists(COORDINATES, min_size=2, max_size=2)},
    "trained-network": {"labels": st.lists(COORDINATES, min_size=1, max_size=20)},
    "break-it": {"weight": st.integers(-1, 400)},
    "your-data": {"text": TABLES, "target": st.sampled_from(["a", "column 1", None])},
}
"""The values that the page sends to each scene in addition to its controls."""


def make_values(scene: Scene) -> SearchStrategy[dict[str, Any]]:
    """Return a strategy for the values of a request: data, controls, and sometimes a wrong
    value.
    """
    parts = dict(DATA[scene.name])
    for control in scene.controls:
        if isinstance(control, Choice):
            parts[control.name] = st.sampled_from(list(control.options))
        else:
            ends = [control.least, control.most, control.default]
            parts[control.name] = st.sampled_from(ends)
    sound = st.fixed_dictionaries({}, optional=parts)
    wrong = st.dictionaries(st.sampled_from(sorted(parts)), HOSTILE, max_size=1)
    return st.tuples(sound, st.one_of(st.just({}), st.just({}), wrong)).map(
        lambda pair: {**pair[0], **pair[1]}
    )


def prepare(folder: Path) -> dict[str, SearchStrategy[dict[str, Any]]]:
    """Make the strategy of every scene."""
    return {name: make_values(scene) for name, scene in load_scenes().items()}


def attempt(
    strategies: dict[str, SearchStrategy[dict[str, Any]]], chance: random.Random, folder: Path
) -> Verdict:
    """Send one request to one scene."""
    name = chance.choice(sorted(strategies))
    values = draw(strategies[name], chance)
    status, content = answer(load_scenes()[name], values, Work(Turns(), "", 0))
    parsed = json.loads(content, parse_constant=refuse_constant)
    if status == 422:
        check_message(parsed["mistake"])
        return "refused"
    if status != 200:
        raise Defect(f"{name} answers {status}: {parsed}")
    return "survived"


def refuse_constant(name: str) -> None:
    """Raise an error for NaN and Infinity, which are not JSON."""
    raise Defect(f"an answer contains {name}")


ATTACKS = (Attack("lab-requests", 5_000, prepare, attempt, sample=24, cost=0.3),)
