"""The causal test: change the state that was read from the stream, and see whether answers follow.

The stream after a layer is changed as little as possible such that the read-outs return another
prompt's state. Then the remaining layers run, and the answers are compared with those of the
algorithm, continued from the other prompt's state on the original prompt:

    effect = 1 − Σ E‖answer − counterfactual‖² / Σ E‖answer before − counterfactual‖²

The sums are over the later layers (for the last layer, its own answer). An effect of 1 means that
the answers follow exactly as the algorithm's would; 0 means that they are as far from the
counterfactual as without a change. The control changes the stream by the same norm, on the same
tokens, in random directions.
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
"""The number of other prompts that are tried for a state from which the algorithm's answers
stay bounded.
"""
REACH = 10.0
"""The largest accepted answers, as a multiple of the root mean square of the model's."""
MIN_SHARE = 1e-8
"""If the counterfactuals are nearer to the answers before than this share of their power, the
test shows nothing.
"""
ROUNDS, SETTLED = 200, 1e-12
"""Tensors are changed one after another until all have their new values, for at most this many
rounds, or until a round changes the stream by less than this share.
"""


@dataclass(frozen=True)
class Intervention:
    """The effects of changing a state and of the control, and the number of prompts."""

    effect: float
    random: float
    moved: tuple[str, ...]
    prompts: int


@dataclass(frozen=True, eq=False)
class Found:
    """A tensor of the state that can be read from the stream: its view and its read-out."""

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
    """Change the state that was read after a layer, and measure whether the answers follow.

    The quantities in `found` are replaced by those of another prompt's state, and the remaining
    layers run. The result is the share of the change in prediction expected from the algorithm that
    occurs, and the same for a rotated change of the same size, the control. Return None if the
    algorithm expects no difference. `view` is the problem as the algorithm takes it; `steps` are
    the steps that match this layer and each later one, in their order.
    """
    # The layers whose answers are compared: those after this one, or this one if it is the last.
    # A layer that matches an earlier step than this one cannot continue its state.
    compared = [k for k, step in enumerate(steps) if step >= steps[0]]
    compared = compared[1:] or compared
    before = model.resume(problem, layer, stream)[compared].double()
    size = float(before.square().mean().sqrt())
    swapped, reachable = _swap_states(
        algorithm, view, state, [steps[k] for k in compared], steps[0], list(found), REACH * size
    )
    chosen = reachable.nonzero().flatten()
    if not len(chosen):
        return None
    moved_state, expected = swapped
    forms = list_forms(algorithm, view, moved_state, len(stream))
    values = {name: forms[name][each.view.form][chosen] for name, each in found.items()}
    original = stream[chosen].double()
    moved = _move_stream(original, view[chosen], values, found)
    inside = model.find_in_range(problem[chosen], layer, moved)
    if not bool(inside.any()):
        return None
    chosen, original, moved = chosen[inside], original[inside], moved[inside]
    counterfactual, chosen_problem = expected[:, chosen], problem[chosen]
    distance_before = float((before[:, chosen] - counterfactual).square().sum())
    if not distance_before > MIN_SHARE * float(before[:, chosen].square().sum()):
        return None

    def measure(changed: Tensor) -> float:
        after = model.resume(chosen_problem, layer, changed)[compared].double()
        distance = float((after - counterfactual).square().sum().nan_to_num(torch.inf))
        return 1 - distance / distance_before

    control = _turn_change(moved - original, generator)
    return Intervention(measure(moved), measure(original + control), tuple(found), len(chosen))


def _swap_states(
    algorithm: Algorithm[Any, Any],
    problem: Any,
    state: Any,
    steps: list[int],
    first: int,
    names: list[str],
    limit: float,
) -> tuple[tuple[Any, Float[Tensor, "layers batch outputs"]], Tensor]:
    """Give each prompt the state of another prompt, and continue the algorithm from there.

    The states of the next prompts are tried in turn, until one leads to bounded answers: a Newton
    iteration from the matrix of another prompt may diverge, and a comparison is then meaningless.
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
    """Change a stream until every read-out returns the new values of its tensor."""
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
