"""`look_inside`: answers, state and intervention of a model side by side, layer by layer.

answers        does the model say what the algorithm says?      1 − E‖m − c‖² / E‖m‖²
state          can the algorithm's state be read from the layer's stream by a linear map, on prompts
               that the map was not fitted to, better than the controls allow? (probing: Akyürek et
               al. 2022)
intervention   do the answers follow where that state is moved? (intervening.py)

Read-outs, and which view of the state is read where, are chosen on one set of prompts; others
score them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.errors import InputError, OutOfRangeError
from innerloop.identification.inside.hooks import as_stream_model
from innerloop.identification.inside.intervening import Found, intervene
from innerloop.identification.inside.probing import FitterStore, Layer, probe_layer
from innerloop.identification.inside.report import Inside, LayerInside
from innerloop.identification.inside.states import compute_states, list_forms
from innerloop.identification.inside.streams import StreamModel
from innerloop.identification.instances import copy_problem, draw_sample, select_queries
from innerloop.limits import check_count, check_memory, check_seed, find_memory_limit
from innerloop.problems.base import Distribution

PROMPTS_PER_PLACE, MAX_FITTED = 4, 2048
"""Prompts to fit read-outs on: this many per place of the stream, between `prompts` and the cap."""
COPIES = 3
"""Streams in memory for each that is read: the model's, the random network's, and their rows."""
MOVED_ABOVE = 0.5
"""A state that is read at a gain below this is not moved: there is nothing to move."""


@dataclass(frozen=True, eq=False)
class Run:
    """What an algorithm does on a set of prompts, and the model's streams on them."""

    problem: Any
    view: Any
    streams: list[Tensor]
    states: list[Any]
    """The state that matches each layer."""


def look_inside(
    model: Any,
    algorithm: Algorithm[Any, Any] | Sequence[Algorithm[Any, Any]],
    distribution: Distribution | None = None,
    *,
    steps: Sequence[int] | None = None,
    view: Callable[[Any], Any] | None = None,
    prompts: int = 256,
    seed: int = 0,
) -> Inside:
    """Search the layers of a model for an algorithm's state, and test it by interventions.

    `algorithm` has its hyper-parameters set: one object for all layers or one for each. `steps`
    contains the number of steps that each layer has taken, by default the layer's number. `view`
    returns the problem in the form that the algorithm takes.
    """
    prompts, seed = check_count("prompts", prompts, 8), check_seed(seed)
    seen = as_stream_model(model)
    distribution = seen.distribution() if distribution is None else distribution
    if distribution is None:
        raise InputError("pass a distribution: this model does not declare one")
    count = len(seen.layers)
    algorithms = [algorithm] * count if isinstance(algorithm, Algorithm) else list(algorithm)
    if steps is None:
        steps = range(1, count + 1) if algorithms[-1].has_steps else [0] * count
    if not len(algorithms) == len(steps) == count:
        raise InputError(
            f"the model has {count} layers: expected as many algorithms and steps, got "
            f"{len(algorithms)} and {len(steps)}"
        )
    generator = torch.Generator().manual_seed(seed)
    single = draw_sample(_ask_once(distribution), prompts)
    seen.check(copy_problem(single))
    fitted = _count_fitted(seen, single, prompts)
    with torch.no_grad():
        runs = [
            _run_both(seen, algorithms, list(steps), each, view or (lambda problem: problem))
            for each in (
                _draw_prompts(seen, distribution, size, generator) for size in (fitted, prompts)
            )
        ]
        random = seen.randomise(generator)
        noise = [_read_random(random, run.problem) for run in runs]
        first_fitters = FitterStore(runs[0].streams[0])
        layers = [
            _look_at_layer(
                seen, algorithms[k], list(steps), k, runs, noise, first_fitters, generator
            )
            for k in range(count)
        ]
    return Inside(algorithms[-1].name, layers)


def _look_at_layer(
    model: StreamModel,
    algorithm: Algorithm[Any, Any],
    steps: list[int],
    k: int,
    runs: list[Run],
    noise: list[list[Tensor] | None],
    first_fitters: FitterStore,
    generator: torch.Generator,
) -> LayerInside:
    fitting, scoring = (
        Layer(
            run.view,
            list_forms(algorithm, run.view, run.states[k], len(run.streams[0])),
            run.streams[k + 1],
            run.streams[0],
            None if random is None else random[k + 1],
        )
        for run, random in zip(runs, noise, strict=True)
    )
    probes = probe_layer(fitting, scoring, first_fitters)
    found = {
        reading.field: Found(view, read_out)
        for reading, view, read_out in probes
        if reading.gain >= MOVED_ABOVE and read_out is not None
    }
    run = runs[1]
    answers = model.resume(run.problem, k + 1, run.streams[k + 1])[0].double()
    own = _predict(algorithm, run, run.states[k])
    moved = None
    if found:
        arguments = (k + 1, run.streams[k + 1], run.states[k], steps[k:], found, generator)
        moved = intervene(model, algorithm, run.problem, run.view, *arguments)
    return LayerInside(
        layer=k + 1,
        name=model.layers[k],
        step=steps[k],
        answers=1
        - float((answers - own).square().sum() / answers.square().sum().clamp_min(1e-300)),
        readings=tuple(reading for reading, _, _ in probes),
        intervention=moved,
    )


def _predict(algorithm: Algorithm[Any, Any], run: Run, state: Any) -> Tensor:
    answer = algorithm.predict(copy_problem(run.view), state)
    return select_queries(run.view, answer).flatten(1).double()


def _run_both(
    model: StreamModel,
    algorithms: list[Algorithm[Any, Any]],
    steps: list[int],
    problem: Any,
    view: Callable[[Any], Any],
) -> Run:
    viewed = view(problem)
    known: dict[int, dict[int, Any]] = {}
    for algorithm in algorithms:
        if id(algorithm) not in known:
            own_steps = [s for a, s in zip(algorithms, steps, strict=True) if a is algorithm]
            known[id(algorithm)] = compute_states(algorithm, viewed, own_steps)
    states = [known[id(a)][s] for a, s in zip(algorithms, steps, strict=True)]
    return Run(problem, viewed, model.read_streams(copy_problem(problem)), states)


def _read_random(model: StreamModel | None, problem: Any) -> list[Tensor] | None:
    """Return the streams of a network with random weights, or None if there is none or it fails
    to run.
    """
    try:
        return None if model is None else model.read_streams(copy_problem(problem))
    except InputError:
        return None


def _count_fitted(model: StreamModel, single: Any, prompts: int) -> int:
    """Return the number of prompts that read-outs are fitted to.

    Raise an error if the streams do not fit into memory.
    """
    streams = model.read_streams(copy_problem(single))
    size = COPIES * sum(stream.numel() * stream.element_size() for stream in streams)
    check_memory(2 * size * prompts, "reading the streams")
    enough = min(PROMPTS_PER_PLACE * streams[0].shape[-1], MAX_FITTED)
    return max(prompts, min(enough, find_memory_limit() // size - prompts))


def _ask_once(distribution: Distribution) -> Distribution:
    if getattr(distribution, "queries", 1) == 1:
        return distribution
    return replace(distribution, queries=1)  # pyright: ignore[reportCallIssue]


def _draw_prompts(
    model: StreamModel, distribution: Distribution, prompts: int, generator: torch.Generator
) -> Any:
    """Draw prompts that a model accepts; those beyond its declared range are left out."""
    problem = copy_problem(_ask_once(distribution).sample(prompts, generator=generator))
    try:
        model.check(problem)
    except OutOfRangeError as error:
        accepted = [k for k in range(prompts) if _is_accepted(model, problem[k : k + 1])]
        if len(accepted) < max(8, prompts // 4):
            raise InputError(
                f"the model accepts {len(accepted)} of {prompts} prompts of this distribution: "
                f"{error}"
            ) from None
        problem = problem[torch.tensor(accepted)]
    return problem


def _is_accepted(model: StreamModel, problem: Any) -> bool:
    try:
        model.check(problem)
    except OutOfRangeError:
        return False
    return True
