"""Settings of a training run: optimiser, schedule, clipping, evaluations, and when to stop.

An option that the chosen optimiser or schedule does not use raises an error.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, SGD, Adam, AdamW, Optimizer

from innerloop.errors import InputError
from innerloop.limits import format_number
from innerloop.parameters import Parameters, parameter

MAX_STEPS = 10**9
"""Upper bound on every number of steps: at a millisecond each, twelve days."""
MAX_FACTOR = 1e38
"""Upper bound on rates: for larger ones, multiplying float32 numbers fails in torch."""


@dataclass(frozen=True, kw_only=True)
class Settings(Parameters):
    """All settings of the training loop."""

    steps: int = parameter(1000, "steps of the optimiser (L-BFGS: 20 iterations each)", least=1)
    optimizer: Literal["adam", "adamw", "sgd", "lbfgs"] = parameter(
        "adam", "optimiser of torch.optim"
    )
    learning_rate: float = parameter(1e-3, "peak of the schedule", least=0)
    beta1: float | None = parameter(
        None, "Adam: decay of the mean; none means 0.9", least=0, most=1
    )
    beta2: float | None = parameter(
        None, "Adam: decay of the mean square; none means 0.999", least=0, most=1
    )
    momentum: float | None = parameter(None, "SGD: momentum; none means 0", least=0, most=1)
    weight_decay: float | None = parameter(
        None, "Adam, AdamW, SGD: weight decay; none means 0", least=0
    )
    schedule: Literal["constant", "cosine", "linear", "halving"] = parameter(
        "constant", "learning rate: constant, decaying to 0 at the last step, or halved"
    )
    period: int | None = parameter(None, "halving: steps between halvings", least=1)
    warmup: int = parameter(0, "steps in which the learning rate rises from 0", least=0)
    clip: float | None = parameter(None, "clip the norm of the whole gradient to this", least=0)
    clip_each: float | None = parameter(
        None, "clip the norm of each matrix of the gradient to this", least=0
    )
    redraw: int = parameter(1, "steps between new batches; 0 uses the first batch always", least=0)
    evaluate_every: int = parameter(100, "steps between evaluations", least=1)
    patience: int | None = parameter(
        None, "stop after this many evaluations without a lower loss", least=1
    )
    target: float | None = parameter(None, "stop once the evaluated loss is at most this")
    precision: Literal["float32", "bfloat16"] = parameter(
        "float32",
        "precision of matrix products in training (automatic mixed precision); networks only",
    )
    compiled: bool = parameter(False, "whether torch.compile compiles the model; networks only")

    is_network: ClassVar[bool] = False
    """Whether the model is a network that can be compiled and trained in mixed precision."""
    takes_bfloat16: ClassVar[bool] = False
    """Whether the model can be trained in mixed precision although it cannot be compiled."""

    def __post_init__(self) -> None:
        super().__post_init__()
        adam = self.optimizer in ("adam", "adamw")
        applicable = {
            "beta1": adam,
            "beta2": adam,
            "momentum": self.optimizer == "sgd",
            "weight_decay": self.optimizer != "lbfgs",
            "clip": self.optimizer != "lbfgs",
            "clip_each": self.optimizer != "lbfgs",
        }
        self._check_ranges()
        for name, used in applicable.items():
            if getattr(self, name) is not None and not used:
                raise InputError(f"optimizer {self.optimizer} does not use {name}: leave it out")
        if (self.period is None) == (self.schedule == "halving"):
            raise InputError("the schedule halving needs a period, and other schedules have none")
        if self.warmup >= self.steps:
            raise InputError(f"warmup must be shorter than steps={self.steps}, got {self.warmup}")
        refused = {
            "precision": self.precision != "float32" and not self.takes_bfloat16,
            "compiled": self.compiled,
        }
        if not self.is_network and any(refused.values()):
            names = " and ".join(name for name, is_set in refused.items() if is_set)
            raise InputError(
                f"{names} applies only to recipes that train networks, such as gpt2: leave it out"
            )
        if self.optimizer == "lbfgs" and self.redraw:
            raise InputError("L-BFGS needs the same batch in all steps: set redraw=0")

    def _check_ranges(self) -> None:
        """Check the limits that also apply to recipes with defaults of their own."""
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            if value is not None and value >= 1:
                raise InputError(f"{name} must be below 1, got {value}: a mean needs some decay")
        for name in ("learning_rate", "weight_decay"):
            value = getattr(self, name)
            if value is not None and value > MAX_FACTOR:
                raise InputError(f"{name} must be at most {MAX_FACTOR}, got {value}")
        for name in ("steps", "period", "warmup", "redraw", "evaluate_every", "patience"):
            value = getattr(self, name)
            if value is not None and value > MAX_STEPS:
                number = format_number(value)
                raise InputError(f"{name} must be at most {MAX_STEPS}, got {number}")

    def make_optimizer(self, model: nn.Module) -> Optimizer:
        """Make the optimiser of a model's trainable weights."""
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

    def use_precision(self, device: torch.device) -> AbstractContextManager[Any]:
        """Use the precision of training in a `with` block; weights keep their own precision."""
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(device.type, torch.bfloat16)

    def simplify_batch(self, batch: Any, step: int) -> Any:
        """Return an easier batch for this step of a curriculum; by default the batch itself.

        The result must depend on the batch and the step alone, so that a run can be resumed.
        """
        return batch

    def prepare_model(self, model: nn.Module, step: int) -> None:
        """Change the model before a step; by default nothing.

        The change must depend on the model and the step alone, so that a run can be resumed.
        """

    def adjust_gradients(self, model: nn.Module, step: int) -> None:
        """Change the gradient of a step before it is clipped; by default nothing.

        The change must depend on the model and the step alone, so that a run can be resumed.
        """

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of step 0, 1, …, which depends only on the step."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / (self.warmup + 1)
        share = (step - self.warmup) / (self.steps - self.warmup)
        factor = {
            "constant": 1.0,
            "cosine": (1 + math.cos(math.pi * share)) / 2,
            "linear": 1 - share,
            "halving": 0.5 ** (step // (self.period or 1)),
        }
        return self.learning_rate * factor[self.schedule]

    def clip_gradients(self, model: nn.Module) -> float:
        """Clip the gradient according to the settings, and return its norm before clipping."""
        gradients = [w.grad for w in model.parameters() if w.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if self.clip_each is not None:
            for gradient in gradients:
                gradient.mul_(_clip_factors(_matrix_norms(gradient), self.clip_each))
        if self.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(
                model.parameters(), self.clip, torch.nn.utils.get_total_norm(gradients)
            )
        return float(norm)


def _matrix_norms(gradient: Tensor) -> Tensor:
    """Return the Frobenius norm of each matrix of a stack, or the norm of a vector."""
    dims = (-2, -1) if gradient.ndim >= 2 else tuple(range(gradient.ndim))
    return gradient.norm(dim=dims, keepdim=True) if gradient.ndim else gradient.abs()


def _clip_factors(norms: Tensor, limit: float) -> Tensor:
    return (limit / norms.clamp_min(1e-30)).clamp_max(1.0)
