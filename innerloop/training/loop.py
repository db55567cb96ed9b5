"""The loop: a model, an objective, settings; stopped at any moment it goes on bit for bit.

Batches   number k comes from a generator seeded by (seed, k): nothing but the step decides it
Stops     at the last step, at a target, without progress, at SIGINT (which saves first)
Diverged  a loss or gradient that is not a number stops the run before it reaches the weights
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
from innerloop.training import checkpoint
from innerloop.training.objective import Objective
from innerloop.training.settings import Settings

Row = dict[str, float]
SECONDS_BETWEEN_CHECKPOINTS = 20.0


class Diverged(InputError):
    """The loss left the numbers. Says where, and what to try."""


@dataclass
class Training:
    """A training under way, or done: what `state` holds is what a checkpoint keeps."""

    model: nn.Module
    objective: Objective
    settings: Settings
    seed: int = 0
    step: int = 0
    seconds: float = 0.0
    history: list[Row] = field(default_factory=list)
    """A row for each evaluation: step, learning rate, seconds, the batch's loss, the measures."""
    ended: str = ""
    """Why it stopped, once it has: `steps`, `target` or `patience`."""

    def __post_init__(self) -> None:
        self.optimizer = self.settings.optimizer_for(self.model)
        self._batch: tuple[int, Any] | None = None
        self._last = math.nan

    def state(self) -> dict[str, Any]:
        return {
            "model": dict(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "random": checkpoint.random_states(),
            "step": self.step,
            "seconds": self.seconds,
            "history": self.history,
            "ended": self.ended,
            "last": self._last,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Be where `state` was taken."""
        try:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError, KeyError) as error:
            raise FileError(f"the checkpoint is of another model: {error}") from None
        checkpoint.set_random_states(state["random"])
        self.step, self.seconds = state["step"], state["seconds"]
        self.history, self.ended = state["history"], state["ended"]
        self._last = state["last"]

    def advance(self) -> None:
        """One step of the optimiser, preceded and followed by an evaluation where one is due."""
        began = time.perf_counter()
        self.settings.prepare(self.model, self.step)
        if self.step == 0:
            self._evaluate()
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.rate(self.step)
        batch = self.settings.simplify(self._current_batch(), self.step)
        losses: list[float] = []

        def closure() -> Tensor:
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.objective.loss(self.model, batch)
            if loss.requires_grad:
                loss.backward()
            self.settings.revise(self.model, self.step)
            losses.append(float(loss.detach()))
            self._check(losses[-1], self.settings.clipped(self.model))
            return loss.detach()

        self.optimizer.step(closure)  # pyright: ignore[reportCallIssue, reportArgumentType]
        self._last = losses[0]
        self.step += 1
        self.seconds += time.perf_counter() - began
        if self.step % self.settings.evaluate_every == 0 or self.step == self.settings.steps:
            self._evaluate()
            self._decide()

    def _current_batch(self) -> Any:
        every = self.settings.redraw
        number = self.step // every if every else 0
        if self._batch is None or self._batch[0] != number:
            generator = torch.Generator().manual_seed(_mixed(self.seed, number))
            self._batch = number, self.objective.draw(generator)
        return self._batch[1]

    def _check(self, loss: float, gradient: float) -> None:
        if math.isfinite(loss) and math.isfinite(gradient):
            return
        before = f", it was {self._last:.4g} a step before" if math.isfinite(self._last) else ""
        what = f"the loss is {loss}" if not math.isfinite(loss) else f"the gradient is {gradient}"
        smaller = self.settings.learning_rate / 10
        raise Diverged(
            f"training diverged at step {self.step}: {what}{before}; try a smaller learning rate "
            f"(learning_rate={smaller:.3g}), clipping (clip=1) or a warmup"
        )

    def _evaluate(self) -> None:
        began = time.perf_counter()
        with torch.no_grad():
            found = self.objective.evaluate(self.model)
        self.seconds += time.perf_counter() - began
        row = {"step": self.step, "learning_rate": self.settings.rate(self.step)}
        row |= {"seconds": round(self.seconds, 3), **found}
        if self.step:
            row["batch_loss"] = self._last
        self.history.append(row)
        if not math.isfinite(found["loss"]):
            self._check(found["loss"], 0.0)

    def _decide(self) -> None:
        losses = [row["loss"] for row in self.history]
        patience, target = self.settings.patience, self.settings.target
        if target is not None and losses[-1] <= target:
            self.ended = "target"
        elif patience is not None and losses.index(min(losses)) < len(losses) - patience:
            self.ended = "patience"
        elif self.step >= self.settings.steps:
            self.ended = "steps"


def fit(
    training: Training,
    *,
    path: Path | None = None,
    about: dict[str, Any] | None = None,
    every: float = SECONDS_BETWEEN_CHECKPOINTS,
    progress: Callable[[float, str], None] | None = None,
    notice: Callable[[str], None] | None = None,
) -> Training:
    """Train to the end, from where `path` left off if that is there.

    A checkpoint is written every so many seconds, at SIGINT (then KeyboardInterrupt is raised) and
    at the end. A checkpoint that cannot be written is told and tried again; at the end it is an
    error, and the last one that could be written is still there.
    """
    told = about or {}
    with checkpoint.own_random_states(training.seed), _interrupts() as interrupted:
        if path is not None and path.exists():
            found, state = checkpoint.read(path)
            check_same(path, found, told)
            training.restore(state)
        saved = time.monotonic()
        while not training.ended:
            training.advance()
            if progress is not None:
                doing = f"step {training.step}, loss {training.history[-1]['loss']:.4g}"
                progress(training.step / training.settings.steps, doing)
            if path is None:
                if interrupted():
                    raise KeyboardInterrupt
                continue
            if interrupted() or training.ended:
                checkpoint.write(path, told, training.state())
                if not training.ended:
                    raise KeyboardInterrupt
            elif time.monotonic() - saved >= every:
                try:
                    checkpoint.write(path, told, training.state())
                except FileError as error:
                    if notice is not None:
                        notice(f"{error}; training goes on, from the last checkpoint if it stops")
                saved = time.monotonic()
    return training


def check_same(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuse to go on with another training than the one that a file holds."""
    held, asked = _flat(found), _flat(wanted)
    other = [name for name in {**held, **asked} if held.get(name) != asked.get(name)]
    if other:
        told = (f"{name} is {held.get(name)!r} there, {asked.get(name)!r} here" for name in other)
        raise InputError(
            f"{path} is of another training: {', '.join(told)}; resume with the same, or train "
            "into another folder"
        )


def _flat(about: dict[str, Any]) -> dict[str, Any]:
    """What a training is, setting by setting."""
    settings = about.get("settings", {})
    return {**{name: value for name, value in about.items() if name != "settings"}, **settings}


def _mixed(seed: int, number: int) -> int:
    """One seed from two numbers: neighbouring runs and batches have nothing in common."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0])


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Whether SIGINT came. The first one waits for the end of the step, a second one does not."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def note(number: int, frame: Any) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(came)
    finally:
        signal.signal(signal.SIGINT, before)
