"""The training loop, which can be stopped at any time and resumes bit for bit.

Batches   batch k is drawn by a generator seeded with (seed, k), so only the step determines it
Stops     at the last step, at a target loss, without progress, or at SIGINT (after saving)
Diverged  a loss or gradient that is not finite stops the run before weights are updated. So does a
          loss above MAX_GROWTH times the larger of the loss at step 0 and the loss of predicting
          nothing, if both the last batch and the evaluation have it
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from innerloop.devices import CPU, default_to_cpu, move, require_precision
from innerloop.errors import InputError
from innerloop.progress import Progress
from innerloop.training import checkpoint
from innerloop.training.environment import Environment
from innerloop.training.extending import EXTENSIONS, PLANNED, Extension, planned_at
from innerloop.training.interrupts import watch_interrupts
from innerloop.training.objective import Objective
from innerloop.training.opening import OPENING, Opening, digest_batch, read_opening
from innerloop.training.opening import STEPS as OPENING_STEPS
from innerloop.training.optimizer_state import check_optimizer
from innerloop.training.parallel import Group
from innerloop.training.restoring import (
    check_counters,
    check_weights,
    find_stop_reason,
    require,
    shorten,
)
from innerloop.training.saving import Checkpoints
from innerloop.training.settings import Settings

Row = dict[str, float]
SECONDS_BETWEEN_CHECKPOINTS = 20.0
MAX_GROWTH = 1e3
"""Factor by which an evaluated loss that counts as diverged exceeds the initial loss.

The initial loss is the larger of the loss at step 0 and the loss of predicting nothing (1 if it is
unknown), because a run that starts at a solution may grow by any factor from its tiny loss. The
loss of a batch alone does not count, because one rare prompt may have a huge loss, which clipping
handles.
"""
PLATEAU = 0.98
"""Share of the loss of predicting nothing; a run with a larger final loss has learned nothing."""


class DivergedError(InputError):
    """The loss, the gradient or a weight is not finite, or the loss is far too large."""


class TrainingWarning(UserWarning):
    """A message about a training run, if the caller passes no function `notice`."""


def warn_caller(text: str) -> None:
    """Issue a message of a run as a `TrainingWarning`; this is the default of `notice`."""
    warnings.warn(text, TrainingWarning, stacklevel=2)


@dataclass
class Training:
    """A training run, in progress or finished.

    A checkpoint stores the result of `capture_state`.
    """

    model: nn.Module
    objective: Objective
    settings: Settings
    seed: int = 0
    step: int = 0
    seconds: float = 0.0
    history: list[Row] = field(default_factory=list)
    """One row per evaluation: step, learning rate, seconds, the batch's loss, the measures."""
    stop_reason: str = ""
    """The reason why the run stopped: `steps`, `target` or `patience`; empty before its end."""
    environments: list[Environment] = field(default_factory=list)
    """The conditions of the run, each with its first `step`; several if they changed."""
    opening: Opening | None = Opening((), "")
    """The losses of the first steps; None if the run was resumed from a checkpoint without them."""
    watch: Callable[[int, nn.Module], None] | None = None
    """Function that is called with step and model, before the first step and after every step."""
    extensions: list[Extension] = field(default_factory=list)
    """The extensions of the run to more steps."""
    group: Group = Group()
    """The processes that train together; usually this one alone."""
    interrupted: Callable[[], bool] = lambda: False
    """Function that returns whether this process should stop; the whole group then stops."""

    def __post_init__(self) -> None:
        self.device = next((w.device for w in self.model.parameters()), CPU)
        self.optimizer = self.settings.make_optimizer(self.model)
        if self.settings.compiled:
            self.model.compile()
        self._batch: tuple[int, Any] | None = None
        self._last_loss = math.nan
        self.stopped = False

    def capture_state(self) -> dict[str, Any]:
        """Return everything that a checkpoint stores; raise an error if weights are not finite."""
        self._check_weights()
        return {
            "model": dict(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "random": checkpoint.get_random_states(),
            "step": self.step,
            "seconds": self.seconds,
            "history": self.history,
            "ended": self.stop_reason,
            "last": self._last_loss if math.isfinite(self._last_loss) else None,
            **({OPENING: self.opening.as_dict()} if self.opening else {}),
            **({EXTENSIONS: list(map(list, self.extensions))} if self.extensions else {}),
        }

    def extend(self, steps: int) -> None:
        """Increase the total number of steps; a run that ended at the old number continues."""
        if steps <= self.settings.steps:
            raise InputError(f"steps must be more than {self.settings.steps}, got {steps}")
        self.extensions.append(Extension(self.step, self.settings.steps))
        self.settings = replace(self.settings, steps=steps)
        if self.stop_reason == "steps":
            self.stop_reason = find_stop_reason(self.history, self.step, self.settings)

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a state from `capture_state`, after checking all of it."""
        optional = {OPENING, EXTENSIONS}  # missing in files of older versions, and in most runs
        names = self.capture_state().keys() | optional
        for name in names - optional:
            require(name in state, f"it has no {name}")
        for name in state:
            require(name in names, f"it has a {shorten(name)}")
        check_weights(self.model, state["model"])
        check_counters(state, self.settings)
        optimizer = check_optimizer(self.optimizer, state["optimizer"], state["step"])
        checkpoint.check_random_states(state["random"])
        opening = read_opening(state)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(optimizer)
        checkpoint.set_random_states(state["random"])
        self.step, self.seconds = state["step"], state["seconds"]
        self.history, self.stop_reason = state["history"], state["ended"]
        self._last_loss = math.nan if state["last"] is None else state["last"]
        self.opening = opening
        self.extensions = [Extension(*each) for each in state.get(EXTENSIONS, [])]

    def advance(self, *, evaluate: bool = True) -> None:
        """Take one step of the optimiser, and the evaluations that are due before and after it.

        Evaluations have no effect on the steps.
        """
        start = time.perf_counter()
        self.settings.prepare_model(self.model, self.step)
        if self.step == 0:
            self._show()
            if evaluate:
                self._evaluate()
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate_at(self.step)
        whole = self.settings.simplify_batch(self._current_batch(), self.step)
        batch, share = self.group.take_share(self.objective, whole)
        losses: list[float] = []

        def closure() -> Tensor:
            self.optimizer.zero_grad(set_to_none=True)
            with self.settings.use_precision(self.device):
                loss = self.objective.loss(self.model, batch)
            if loss.requires_grad:
                loss.backward()
            value, self.stopped = self.group.reduce(self.model, loss, share, self.interrupted())
            self.settings.adjust_gradients(self.model, self.step)
            losses.append(value)
            self._check_finite(value, self.settings.clip_gradients(self.model))
            return loss.detach().new_tensor(value) if self.group.size > 1 else loss.detach()

        self.optimizer.step(closure)  # pyright: ignore[reportCallIssue, reportArgumentType]
        self._last_loss = losses[0]
        self._extend_opening()
        self.step += 1
        self.seconds += time.perf_counter() - start
        self._show()
        if not evaluate:
            return
        if self.step % self.settings.evaluate_every == 0 or self.step == self.settings.steps:
            self._evaluate()
            self.stop_reason = find_stop_reason(self.history, self.step, self.settings)

    @cached_property
    def blank_loss(self) -> float | None:
        """The evaluated loss of predicting nothing; None if the objective does not define it."""
        compute = getattr(self.objective, "compute_blank_loss", None)
        with torch.no_grad():
            return None if compute is None else float(compute(self.model))

    def describe_plateau(self) -> str:
        """Return a message if the loss never fell below that of predicting nothing, else ""."""
        best = min((row["loss"] for row in self.history if row["step"]), default=math.inf)
        blank = self.blank_loss
        if not self.stop_reason or blank is None or best < PLATEAU * blank:
            return ""
        return (
            f"it learned nothing: its loss is {self.history[-1]['loss']:.4g}, that of predicting "
            f"nothing is {blank:.4g}; try more steps, another learning rate or another seed"
        )

    def _current_batch(self) -> Any:
        every = self.settings.redraw
        number = self.step // every if every else 0
        if self._batch is None or self._batch[0] != number:
            generator = torch.Generator().manual_seed(_mix_seed(self.seed, number))
            with default_to_cpu():
                batch = self.objective.draw(generator)
            require_precision(self.device, batch)
            self._batch = number, move(batch, self.device)
        return self._batch[1]

    def _show(self) -> None:
        if self.watch is not None:
            self.watch(self.step, self.model)

    def _extend_opening(self) -> None:
        if self.step < OPENING_STEPS and self.opening is not None:
            batch = self.opening.batch or digest_batch(self._current_batch())
            self.opening = Opening((*self.opening.losses, self._last_loss), batch)

    def _check_finite(self, loss: float, gradient: float) -> None:
        if not math.isfinite(loss):
            raise self._make_diverged(f"the loss is {loss}")
        if not math.isfinite(gradient):
            raise self._make_diverged(f"the gradient is {gradient}")

    def _check_weights(self) -> None:
        for name, weight in self.model.named_parameters():
            if not bool(torch.isfinite(weight).all()):
                raise self._make_diverged(f"the weight {name} is not finite")

    def _make_diverged(self, cause: str) -> DivergedError:
        last = self._last_loss
        before = f", the loss was {last:.4g} a step before" if math.isfinite(last) else ""
        smaller = self.settings.learning_rate / 10
        return DivergedError(
            f"training diverged at step {self.step}: {cause}{before}; try a smaller learning rate "
            f"(learning_rate={smaller:.3g}), clipping (clip=1) or a warmup"
        )

    def _evaluate(self) -> None:
        start = time.perf_counter()
        with torch.no_grad():
            measures = self.group.share_result(lambda: self.objective.evaluate(self.model))
        self.seconds += time.perf_counter() - start
        row = {"step": self.step, "learning_rate": self.settings.learning_rate_at(self.step)}
        row |= {"seconds": round(self.seconds, 3), **measures}
        if self.step:
            row["batch_loss"] = self._last_loss
        planned = planned_at(self.settings, self.extensions, self.step)
        if planned is not None:
            row[PLANNED] = planned
        self.history.append(row)
        loss, first = measures["loss"], self.history[0]["loss"]
        self._check_finite(loss, 0.0)
        floor = 1.0 if self.blank_loss is None else self.blank_loss
        # Both losses must be large: rare prompts alone can make an expected loss huge.
        if self.step and min(loss, self._last_loss) > MAX_GROWTH * max(floor, first):
            raise self._make_diverged(f"the loss is {loss:.4g}, at step 0 it was {first:.4g}")
        self._check_weights()


def fit(
    training: Training,
    *,
    path: Path | None = None,
    about: dict[str, Any] | None = None,
    environment: Environment | None = None,
    every: float = SECONDS_BETWEEN_CHECKPOINTS,
    progress: Progress | None = None,
    notice: Callable[[str], None] | None = None,
    record: Callable[[list[Row]], None] | None = None,
    steps: int | None = None,
) -> Training:
    """Train to the end, resuming from the checkpoint at `path` if there is one.

    A checkpoint is written before the first step, every `every` seconds, at SIGINT (then
    KeyboardInterrupt is raised) and at the end. If one cannot be written during the run, `notice`
    is called, and writing is tried again later. At the start and the end, this raises an error, and
    the last checkpoint that was written remains.

    Args:
        training: The run, which is changed in place and returned.
        path: The checkpoint file; None writes no checkpoints.
        about: Recipe, settings and seed; a checkpoint with others raises an error.
        environment: The conditions of the run, which are recorded. `notice` is called if the run is
            resumed under other conditions.
        every: Seconds between checkpoints.
        progress: Function that is called with the completed share of the work, from 0 to 1, and a
            status line.
        notice: Function that is called with messages. By default, messages are Python warnings.
        record: Function that is called with the history, before the first step and after every new
            row.
        steps: Extend a resumed run to this number of steps.
    """
    notify = notice or warn_caller
    saved = Checkpoints(training, path, about or {}, every, notify, writes=training.group.leads)
    with checkpoint.isolate_random_states(training.seed), watch_interrupts() as interrupted:
        saved.begin(environment, steps, training.group.wait)
        training.interrupted = interrupted
        if record is not None:
            record(training.history)
        while not training.stop_reason:
            rows = len(training.history)
            training.advance()
            if record is not None and len(training.history) > rows:
                record(training.history)
            if progress is not None:
                status = f"step {training.step}, loss {training.history[-1]['loss']:.4g}"
                progress(training.step / training.settings.steps, status)
            if training.stop_reason:
                saved.save()
            elif training.stopped if training.group.size > 1 else interrupted():
                saved.save()
                raise KeyboardInterrupt
            else:
                saved.save_if_due()
    return training


def replay_opening(training: Training) -> Opening:
    """Take the first steps of a training that has not started, without evaluations."""
    with checkpoint.isolate_random_states(training.seed):
        for _ in range(min(OPENING_STEPS, training.settings.steps)):
            training.advance(evaluate=False)
    assert training.opening is not None
    return training.opening


def _mix_seed(seed: int, number: int) -> int:
    """Derive one seed from two numbers, so that neighbouring runs and batches are independent."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0])
