"""The training loop: it can be stopped at any moment and resumes bit for bit.

Batches   number k comes from a generator seeded by (seed, k), so that only the step decides it
Stops     at the last step, at a target, without progress, at SIGINT (after saving)
Diverged  a loss or gradient that is not finite stops the run before it reaches the weights
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from innerloop.errors import FileError, InputError
from innerloop.progress import Progress
from innerloop.training import checkpoint
from innerloop.training.objective import Objective
from innerloop.training.settings import Settings

Row = dict[str, float]
SECONDS_BETWEEN_CHECKPOINTS = 20.0


class DivergedError(InputError):
    """The loss or the gradient is not finite; the message says at which step and what to try."""


@dataclass
class Training:
    """A training run, in progress or finished; `capture_state` is what a checkpoint stores."""

    model: nn.Module
    objective: Objective
    settings: Settings
    seed: int = 0
    step: int = 0
    seconds: float = 0.0
    history: list[Row] = field(default_factory=list)
    """One row per evaluation: step, learning rate, seconds, the batch's loss, the measures."""
    stop_reason: str = ""
    """Why the run stopped: `steps`, `target` or `patience`; empty while it runs."""

    def __post_init__(self) -> None:
        self.optimizer = self.settings.make_optimizer(self.model)
        self._batch: tuple[int, Any] | None = None
        self._last_loss = math.nan

    def capture_state(self) -> dict[str, Any]:
        return {
            "model": dict(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "random": checkpoint.get_random_states(),
            "step": self.step,
            "seconds": self.seconds,
            "history": self.history,
            "ended": self.stop_reason,
            "last": self._last_loss,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Return to a state that `capture_state` returned."""
        try:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError, KeyError) as error:
            raise FileError(f"the checkpoint belongs to another model: {error}") from None
        checkpoint.set_random_states(state["random"])
        self.step, self.seconds = state["step"], state["seconds"]
        self.history, self.stop_reason = state["history"], state["ended"]
        self._last_loss = state["last"]

    def advance(self) -> None:
        """Take one step of the optimiser, with the evaluations that are due before and after it."""
        start = time.perf_counter()
        self.settings.prepare_model(self.model, self.step)
        if self.step == 0:
            self._evaluate()
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate_at(self.step)
        batch = self.settings.simplify_batch(self._current_batch(), self.step)
        losses: list[float] = []

        def closure() -> Tensor:
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.objective.loss(self.model, batch)
            if loss.requires_grad:
                loss.backward()
            self.settings.adjust_gradients(self.model, self.step)
            losses.append(float(loss.detach()))
            self._check_finite(losses[-1], self.settings.clip_gradients(self.model))
            return loss.detach()

        self.optimizer.step(closure)  # pyright: ignore[reportCallIssue, reportArgumentType]
        self._last_loss = losses[0]
        self.step += 1
        self.seconds += time.perf_counter() - start
        if self.step % self.settings.evaluate_every == 0 or self.step == self.settings.steps:
            self._evaluate()
            self._decide_stop()

    def _current_batch(self) -> Any:
        every = self.settings.redraw
        number = self.step // every if every else 0
        if self._batch is None or self._batch[0] != number:
            generator = torch.Generator().manual_seed(_mix_seed(self.seed, number))
            self._batch = number, self.objective.draw(generator)
        return self._batch[1]

    def _check_finite(self, loss: float, gradient: float) -> None:
        if math.isfinite(loss) and math.isfinite(gradient):
            return
        before = (
            f", it was {self._last_loss:.4g} a step before"
            if math.isfinite(self._last_loss)
            else ""
        )
        cause = f"the loss is {loss}" if not math.isfinite(loss) else f"the gradient is {gradient}"
        smaller = self.settings.learning_rate / 10
        raise DivergedError(
            f"training diverged at step {self.step}: {cause}{before}; try a smaller learning rate "
            f"(learning_rate={smaller:.3g}), clipping (clip=1) or a warmup"
        )

    def _evaluate(self) -> None:
        start = time.perf_counter()
        with torch.no_grad():
            measures = self.objective.evaluate(self.model)
        self.seconds += time.perf_counter() - start
        row = {"step": self.step, "learning_rate": self.settings.learning_rate_at(self.step)}
        row |= {"seconds": round(self.seconds, 3), **measures}
        if self.step:
            row["batch_loss"] = self._last_loss
        self.history.append(row)
        if not math.isfinite(measures["loss"]):
            self._check_finite(measures["loss"], 0.0)

    def _decide_stop(self) -> None:
        losses = [row["loss"] for row in self.history]
        patience, target = self.settings.patience, self.settings.target
        if target is not None and losses[-1] <= target:
            self.stop_reason = "target"
        elif patience is not None and losses.index(min(losses)) < len(losses) - patience:
            self.stop_reason = "patience"
        elif self.step >= self.settings.steps:
            self.stop_reason = "steps"


def fit(
    training: Training,
    *,
    path: Path | None = None,
    about: dict[str, Any] | None = None,
    every: float = SECONDS_BETWEEN_CHECKPOINTS,
    progress: Progress | None = None,
    notice: Callable[[str], None] | None = None,
) -> Training:
    """Train to the end, resuming from the checkpoint at `path` if there is one.

    A checkpoint is written every `every` seconds, at SIGINT (then KeyboardInterrupt is raised) and
    at the end. If one cannot be written, `notice` is called and the next is tried later; at the end
    that is an error, and the last checkpoint that could be written remains.
    """
    description = about or {}
    with checkpoint.isolate_random_states(training.seed), _watch_interrupts() as interrupted:
        if path is not None and path.exists():
            saved_description, state = checkpoint.read(path)
            check_same_training(path, saved_description, description)
            training.restore(state)
        last_save = time.monotonic()
        while not training.stop_reason:
            training.advance()
            if progress is not None:
                status = f"step {training.step}, loss {training.history[-1]['loss']:.4g}"
                progress(training.step / training.settings.steps, status)
            if path is None:
                if interrupted():
                    raise KeyboardInterrupt
                continue
            if interrupted() or training.stop_reason:
                checkpoint.write(path, description, training.capture_state())
                if not training.stop_reason:
                    raise KeyboardInterrupt
            elif time.monotonic() - last_save >= every:
                try:
                    checkpoint.write(path, description, training.capture_state())
                except FileError as error:
                    if notice is not None:
                        notice(f"{error}; training continues, resumable from the last checkpoint")
                last_save = time.monotonic()
    return training


def check_same_training(path: Path, saved: dict[str, Any], requested: dict[str, Any]) -> None:
    """Raise an error if a checkpoint belongs to a training run with other settings."""
    there, here = _flatten(saved), _flatten(requested)
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    if names:
        differences = (
            f"{name} is {there.get(name)!r} there, {here.get(name)!r} here" for name in names
        )
        raise InputError(
            f"{path} belongs to another training: {', '.join(differences)}; resume with the same "
            "settings, or train into another folder"
        )


def _flatten(about: dict[str, Any]) -> dict[str, Any]:
    """Merge a run's description and its settings into one table."""
    settings = about.get("settings", {})
    return {**{name: value for name, value in about.items() if name != "settings"}, **settings}


def _mix_seed(seed: int, number: int) -> int:
    """Derive one seed from two numbers, so that neighbouring runs and batches are independent."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0])


@contextmanager
def _watch_interrupts() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether SIGINT arrived.

    The first SIGINT waits for the end of the step, a second one interrupts at once.
    """
    signals: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def handle(number: int, frame: Any) -> None:
        if signals:
            raise KeyboardInterrupt
        signals.append(number)

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: bool(signals)
    finally:
        signal.signal(signal.SIGINT, previous)
