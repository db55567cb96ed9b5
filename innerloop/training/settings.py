"""How a model is trained: optimiser, schedule, clipping, when to evaluate and when to stop.

An option that the chosen optimiser or schedule would not look at is refused, never ignored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, SGD, Adam, AdamW, Optimizer

from innerloop.errors import InputError
from innerloop.parameters import Parameters, parameter


@dataclass(frozen=True, kw_only=True)
class Settings(Parameters):
    """What the loop needs to know beside the model and the objective."""

    steps: int = parameter(1000, "steps of the optimiser (of L-BFGS: 20 iterations each)", least=1)
    optimizer: Literal["adam", "adamw", "sgd", "lbfgs"] = parameter("adam", "from torch.optim")
    learning_rate: float = parameter(1e-3, "the largest on the schedule", least=0)
    beta1: float | None = parameter(None, "Adam: decay of the mean; none is 0.9", least=0, most=1)
    beta2: float | None = parameter(
        None, "Adam: decay of the mean square; none is 0.999", least=0, most=1
    )
    momentum: float | None = parameter(None, "SGD: none is 0", least=0, most=1)
    weight_decay: float | None = parameter(None, "Adam, AdamW, SGD: none is 0", least=0)
    schedule: Literal["constant", "cosine", "linear", "halving"] = parameter(
        "constant", "of the learning rate: constant, to 0 by the last step, or halved"
    )
    period: int | None = parameter(None, "halving: steps between halvings", least=1)
    warmup: int = parameter(0, "steps in which the learning rate rises from 0", least=0)
    clip: float | None = parameter(None, "largest norm of the whole gradient", least=0)
    clip_each: float | None = parameter(None, "largest norm of each matrix of it", least=0)
    redraw: int = parameter(1, "steps between fresh batches; 0 keeps the first", least=0)
    evaluate_every: int = parameter(100, "steps between evaluations", least=1)
    patience: int | None = parameter(
        None, "stop after so many evaluations without a lower loss", least=1
    )
    target: float | None = parameter(None, "stop once the evaluated loss is at most this")

    def __post_init__(self) -> None:
        super().__post_init__()
        adam = self.optimizer in ("adam", "adamw")
        heeded = {
            "beta1": adam,
            "beta2": adam,
            "momentum": self.optimizer == "sgd",
            "weight_decay": self.optimizer != "lbfgs",
            "clip": self.optimizer != "lbfgs",
            "clip_each": self.optimizer != "lbfgs",
        }
        for name, used in heeded.items():
            if getattr(self, name) is not None and not used:
                raise InputError(f"optimizer {self.optimizer} does not use {name}: leave it out")
        if (self.period is None) == (self.schedule == "halving"):
            raise InputError("the schedule halving needs a period, and no other takes one")
        if self.warmup >= self.steps:
            raise InputError(f"warmup must be shorter than steps={self.steps}, got {self.warmup}")
        if self.optimizer == "lbfgs" and self.redraw:
            raise InputError("L-BFGS needs one batch throughout: set redraw=0")

    def optimizer_for(self, model: nn.Module) -> Optimizer:
        """The optimiser of a model's trainable weights."""
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        if not weights:
            raise InputError("the model has no weights to train")
        rate, decay = self.learning_rate, self.weight_decay or 0.0
        if self.optimizer == "sgd":
            return SGD(weights, lr=rate, momentum=self.momentum or 0.0, weight_decay=decay)
        if self.optimizer == "lbfgs":
            return LBFGS(weights, lr=rate, history_size=100, line_search_fn="strong_wolfe")
        betas = (
            0.9 if self.beta1 is None else self.beta1,
            0.999 if self.beta2 is None else self.beta2,
        )
        kind = Adam if self.optimizer == "adam" else AdamW
        return kind(weights, lr=rate, betas=betas, weight_decay=decay, fused=True)

    def simplify(self, batch: Any, step: int) -> Any:
        """The batch of a step as it is used: a curriculum begins with something easier. What is
        done must follow from the batch and the step alone, so that a run can be resumed."""
        return batch

    def prepare(self, model: nn.Module, step: int) -> None:
        """Change the model before a step. What is done must follow from the model and the step
        alone, so that a run can be resumed at any; most recipes change nothing."""

    def revise(self, model: nn.Module, step: int) -> None:
        """Change the gradient of a step before it is clipped; the same holds."""

    def rate(self, step: int) -> float:
        """The learning rate of step 0, 1, …: a function of the step, so it has no state to keep."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / (self.warmup + 1)
        done = (step - self.warmup) / (self.steps - self.warmup)
        factor = {
            "constant": 1.0,
            "cosine": (1 + math.cos(math.pi * done)) / 2,
            "linear": 1 - done,
            "halving": 0.5 ** (step // (self.period or 1)),
        }
        return self.learning_rate * factor[self.schedule]

    def clipped(self, model: nn.Module) -> float:
        """Clip the gradient as set; its norm before that."""
        gradients = [w.grad for w in model.parameters() if w.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if self.clip_each is not None:
            for gradient in gradients:
                gradient.mul_(_shrinking(_norms(gradient), self.clip_each))
        if self.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(
                model.parameters(), self.clip, torch.nn.utils.get_total_norm(gradients)
            )
        return float(norm)


def _norms(gradient: Tensor) -> Tensor:
    """The Frobenius norm of each matrix of a stack; of a vector, its norm."""
    places = (-2, -1) if gradient.ndim >= 2 else tuple(range(gradient.ndim))
    return gradient.norm(dim=places, keepdim=True) if gradient.ndim else gradient.abs()


def _shrinking(norms: Tensor, most: float) -> Tensor:
    return (most / norms.clamp_min(1e-30)).clamp_max(1.0)
