"""The causal test: does the answer follow where the state that was found is moved?

The stream after a layer is changed by the least norm that makes the read-outs give another prompt's
state, the rest of the network runs, and its answers are compared with the algorithm's, continued
from the other prompt's state on the original prompt:

    effect = 1 − Σ E‖answer − counterfactual‖² / Σ E‖answer before − counterfactual‖²

summed over the later layers (for the last layer, its own answer). 1: the answers follow exactly as
the algorithm's would; 0: they are as far from the counterfactual as if nothing had been moved. The
control moves the stream as far, on the same tokens, in random directions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.identification.inside.reading import ReadOut
from innerloop.identification.inside.states import (
    continue_run,
    list_fields,
    list_forms,
    replace_fields,
)
from innerloop.identification.inside.streams import StreamModel
from innerloop.identification.inside.views import View
from innerloop.identification.instances import select_queries

PARTNERS = 8
"""Other prompts that are tried for a state from which the algorithm's answers stay in reach."""
REACH = 10.0
"""Answers are in reach up to this many times the root mean square of the model's."""
MIN_SHARE = 1e-8
"""Counterfactuals nearer to the answers before, as a share of their power, show nothing."""
ROUNDS, SETTLED = 200, 1e-12
"""Moves of one tensor after the other until all are where they should be: at most this many rounds,
or until one moves the stream by less than this share of it."""


@dataclass(frozen=True)
class Intervention:
    """The effect of moving a state, that of the control, and on how many prompts."""

    effect: float
    random: float
    moved: tuple[str, ...]
    prompts: int


@dataclass(frozen=True, eq=False)
class Found:
    """A tensor of the state where it was found: its view and read-out."""

    view: View
    read_out: ReadOut


def intervene(
    model: StreamModel,
    algorithm: Algorithm[Any, Any],
    problem: Any,
    view: Any,
    layer: int,
    stream: Tensor,
    state: Any,
    steps: Sequence[int],
    found: Mapping[str, Found],
    generator: torch.Generator,
) -> Intervention | None:
    """Move what was found after a layer; None where the algorithm expects no difference.

    `view` is the problem as the algorithm takes it; `steps` are those that match this layer and
    each later one, in their order.
    """
    ahead = [k for k, step in enumerate(steps) if step >= steps[0]]
    ahead = ahead[1:] or ahead
    before = model.resume(problem, layer, stream)[ahead].double()
    size = float(before.square().mean().sqrt())
    swapped, reachable = _swap_states(
        algorithm, view, state, [steps[k] for k in ahead], steps[0], list(found), REACH * size
    )
    chosen = reachable.nonzero().flatten()
    if not len(chosen):
        return None
    moved_state, expected = swapped
    forms = list_forms(algorithm, view, moved_state, len(stream))
    values = {name: forms[name][each.view.form][chosen] for name, each in found.items()}
    there = stream[chosen].double()
    moved = _move_stream(there, view[chosen], values, found)
    inside = model.find_in_range(problem[chosen], layer, moved)
    if not bool(inside.any()):
        return None
    chosen, there, moved = chosen[inside], there[inside], moved[inside]
    target, few = expected[:, chosen], problem[chosen]
    apart = float((before[:, chosen] - target).square().sum())
    if not apart > MIN_SHARE * float(before[:, chosen].square().sum()):
        return None

    def measure(changed: Tensor) -> float:
        after = model.resume(few, layer, changed)[ahead].double()
        missed = float((after - target).square().sum().nan_to_num(torch.inf))
        return 1 - missed / apart

    control = _turn_change(moved - there, generator)
    return Intervention(measure(moved), measure(there + control), tuple(found), len(chosen))


def _swap_states(
    algorithm: Algorithm[Any, Any],
    problem: Any,
    state: Any,
    steps: list[int],
    first: int,
    names: list[str],
    limit: float,
) -> tuple[tuple[Any, Float[Tensor, "layers batch outputs"]], Tensor]:
    """Give each prompt another's state, and continue the algorithm from there.

    Taken is the first of the next prompts' whose answers stay in reach: a Newton iteration from a
    stranger's matrix may diverge, and no comparison means anything there.
    """
    fields = list_fields(state, len(problem))
    own = {name: fields[name] for name in names}
    batch = len(problem)
    partner = torch.arange(batch).roll(-1)
    reachable = torch.zeros(batch, dtype=torch.bool)
    for shift in range(1, min(PARTNERS + 1, batch)):
        other = torch.where(reachable, partner, torch.arange(batch).roll(-shift))
        answers = _continue(algorithm, problem, state, own, other, first, steps)
        in_reach = (answers.abs() <= limit).all(dim=-1).all(dim=0).cpu()
        partner, reachable = torch.where(reachable | in_reach, other, partner), reachable | in_reach
        if bool(reachable.all()):
            break
    answers = _continue(algorithm, problem, state, own, partner, first, steps)
    moved = replace_fields(state, {name: value[partner] for name, value in own.items()})
    return (moved, answers), reachable


def _continue(
    algorithm: Algorithm[Any, Any],
    problem: Any,
    state: Any,
    own: Mapping[str, Tensor],
    partner: Int[Tensor, " batch"],
    first: int,
    steps: list[int],
) -> Float[Tensor, "layers batch outputs"]:
    moved = replace_fields(state, {name: value[partner] for name, value in own.items()})
    states = continue_run(algorithm, problem, moved, first, steps)
    return torch.stack([select_queries(problem, states[k]).flatten(1).double() for k in steps])


def _move_stream(
    stream: Tensor, problem: Any, values: Mapping[str, Tensor], found: Mapping[str, Found]
) -> Tensor:
    """Move a stream until every read-out gives its tensor's new values."""
    tokens = stream.shape[1]
    expected = {
        name: each.view.compute(problem, values[name], tokens).double()
        for name, each in found.items()
    }
    inverses = {name: each.read_out.invert() for name, each in found.items()}
    for _ in range(ROUNDS if len(found) > 1 else 1):
        before = stream
        for name, each in found.items():
            place = each.view.place
            missing = expected[name] - each.read_out.read(place.read(stream))
            stream = place.add(stream, missing @ inverses[name])
        if float((stream - before).norm()) <= SETTLED * float(stream.norm()):
            break
    return stream


def _turn_change(change: Tensor, generator: torch.Generator) -> Tensor:
    """Return changes of the same norm on every token, in random directions."""
    direction = torch.randn(change.shape, generator=generator, dtype=change.dtype)
    direction = direction.to(change.device)
    length = change.norm(dim=-1, keepdim=True)
    return direction * length / direction.norm(dim=-1, keepdim=True)
