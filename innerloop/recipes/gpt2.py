"""GPT-2 learns sparse recovery in context.

Model       the `transformers` library's GPT-2 on the tokens of sequence.py, with a linear read-out
            as in the paper, or a query read-out like Small TF: ŷ = ⟨β̂, x⟩, with β̂ a linear read-out
Loss        (ŷ − y)² at the query as in the paper, or at every prefix; or ‖β̂ − β‖², which compares
            d numbers instead of one label
Curriculum  training starts with the first 5 features and adds one every `curriculum` steps (Garg et
            al. 2022). The other features of x are 0, and their weights are added to weights of the
            features in use, so that β has its final size and at most as many nonzero entries
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from innerloop.errors import InputError
from innerloop.models.gpt2 import GPT2
from innerloop.parameters import parameter
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.recipes.sequence import GPT2BackboneRecipe
from innerloop.recipes.sparse import LabelObjective, SparseRecipe

FIRST_FEATURES = 5
"""Number of features at the start of a curriculum."""


class GPT2Recipe(GPT2BackboneRecipe, SparseRecipe):
    """GPT-2 on sparse recovery, sized for two cores.

    The paper's model has 12 layers, width 256 and 8 heads.
    """

    source: ClassVar[str] = "R. Liu et al. 2025, section 6; Garg et al. 2022"
    small: ClassVar = {
        **{"d": 2, "n": 3, "sparsity": 1, "batch": 4},
        **{"blocks": 2, "heads": 2, "width": 8},
    }

    d: int = parameter(20, "features", least=1, most=512)
    readout: Literal["linear", "query"] = parameter("linear", "how the label is read out")
    supervision: Literal["labels", "weights"] = parameter("labels", "what the loss compares")
    curriculum: int | None = parameter(
        None, "steps for each feature beyond the first 5; none means all at once", least=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.supervision == "weights" and self.readout == "linear":
            raise InputError(
                "a linear read-out does not compute β̂: set supervision=labels or readout=query"
            )
        self._check_curriculum()

    def _check_curriculum(self) -> None:
        if self.curriculum is None:
            return
        if self.fixed is not None:
            raise InputError("a fixed X uses all features from the start: leave curriculum out")
        if self.optimizer == "lbfgs":
            raise InputError("L-BFGS needs the same batch in all steps: leave curriculum out")
        if self.d <= FIRST_FEATURES:
            raise InputError(
                f"a curriculum starts with {FIRST_FEATURES} features, got d={self.d}: leave it out"
            )
        complete = (self.d - FIRST_FEATURES) * self.curriculum
        if complete >= self.steps:
            raise InputError(
                f"curriculum={self.curriculum} adds features up to step {complete}: set more "
                f"steps, or a curriculum below {self.steps / (self.d - FIRST_FEATURES):g}"
            )

    @property
    def query_size(self) -> int | None:
        return self.d if self.readout == "query" else None

    def build_objective(self) -> LabelObjective:
        errors = self.weight_errors if self.supervision == "weights" else None
        return replace(super().build_objective(), stretch=self.stretch, training_errors=errors)

    def weight_errors(self, model: nn.Module, problem: RegressionProblem) -> Tensor:
        """Compute ‖β̂ − β‖² at every prefix."""
        assert isinstance(model, GPT2)
        assert problem.weights is not None
        weights = model.read(self.encode_tokens(problem))[..., 0::2, :]
        return (weights - problem.weights.unsqueeze(-2)).square().sum(dim=-1)

    def simplify_batch(self, batch: RegressionProblem, step: int) -> RegressionProblem:
        if self.curriculum is None:
            return batch
        features = FIRST_FEATURES + step // self.curriculum
        if features >= self.d:
            return batch
        assert batch.weights is not None
        present = torch.arange(self.d, device=batch.x.device) < features
        x, x_query = batch.x * present, batch.x_query * present
        folds = min(features, self.support or self.d)
        weights = torch.zeros_like(batch.weights)
        for part in batch.weights.split(folds, dim=-1):
            weights[..., : part.shape[-1]] += part
        y = (x @ weights.unsqueeze(-1)).squeeze(-1)
        return RegressionProblem(x, y, x_query, weights)
