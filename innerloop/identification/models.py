"""Models to identify, seen through their predictions at the query after each layer.

A model of your own is a function `(X, y, x_query) → prediction` on batches (`FunctionModel`), any
`nn.Module` whose layers can be hooked (hooked.py), or a class with `layers` and `predict`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.arrays import as_tensor
from innerloop.certification.building import BuiltTransformer, restore_construction
from innerloop.constructions.base import Construction, iterate_streams, read_prediction
from innerloop.errors import FileError, InputError
from innerloop.identification.answers import find_limit
from innerloop.identification.instances import copy_problem, select_queries
from innerloop.limits import is_out_of_memory
from innerloop.locations import describe_failure
from innerloop.problems.base import Distribution
from innerloop.transformer import Transformer
from innerloop.transformer.file import load

Predictions = Float[Tensor, "layers batch outputs"]
ANSWER = "the model's answer"


class Model(ABC):
    """Base class of anything that predicts at a query, layer by layer."""

    @property
    @abstractmethod
    def layers(self) -> list[str]:
        """A name for each layer."""

    @abstractmethod
    def predict(self, problem: Any) -> Predictions:
        """Predict at the queries of a batch after each layer."""

    def distribution(self) -> Distribution | None:
        """Return the distribution that the model declares, if it declares one."""
        return None

    def check(self, problem: Any) -> None:  # noqa: B027, most models take any problem
        """Refuse a problem that the model is not made for; called before many are drawn."""


@dataclass(frozen=True, eq=False)
class ConstructionModel(Model):
    """A built transformer, read out after every step as its construction declares."""

    construction: Construction
    transformer: Transformer

    @classmethod
    def from_built(cls, built: BuiltTransformer) -> ConstructionModel:
        return cls(built.construction, built.transformer)

    @classmethod
    def read(cls, path: Path, definition: Any = None) -> ConstructionModel:
        """Read a file of `BuiltTransformer.save`; its construction is used to read it out only."""
        transformer, about = load(path)
        construction = restore_construction(path, about, definition)
        if transformer.layout != construction.layout:
            name = construction.name
            raise FileError(
                f"{path} has other registers than {name} with its settings: build it again"
            )
        return cls(construction, transformer)

    @property
    def layers(self) -> list[str]:
        return [f"step {k}" for k in range(1, self.transformer.steps + 1)]

    def predict(self, problem: Any) -> Predictions:
        problem = problem.to(next(self.transformer.parameters()).dtype)
        said = [
            read_prediction(self.construction, self.transformer, problem, stream)
            for stream in iterate_streams(self.construction, self.transformer, problem)
        ]
        return select_queries(problem, torch.stack(said[1:]))

    def distribution(self) -> Distribution:
        return self.construction.distributions()[0]

    def check(self, problem: Any) -> None:
        self.construction.check(problem)


@dataclass(frozen=True, eq=False)
class FunctionModel(Model):
    """A function of X (batch, n, d), y (batch, n) and x_query (batch, d): one layer."""

    function: Callable[[Tensor, Tensor, Tensor], Any]

    @property
    def layers(self) -> list[str]:
        return ["output"]

    def predict(self, problem: Any) -> Predictions:
        query = problem.x_query
        query = query.squeeze(-2) if query.ndim == problem.x.ndim else query
        said = as_tensor(self.function(problem.x, problem.y, query), ANSWER)
        batch = len(problem.x)
        if said.ndim not in (1, 2) or len(said) != batch:
            raise InputError(
                f"the model must return a prediction for each of the {batch} prompts, shape "
                f"({batch},) or ({batch}, outputs); got {tuple(said.shape)}"
            )
        return said.reshape(1, batch, -1)


def predict_layers(model: Model, problem: Any) -> Predictions:
    """Predict in float64 without gradients; NaN, infinity and divergence are errors.

    This is where a model's own code runs: it gets a copy of the problem, and its answer is copied.
    """
    limit = find_limit(problem)
    with torch.no_grad():
        answer = _run_model(model, copy_problem(problem))
        found = as_tensor(answer, ANSWER).detach().to(problem.x, copy=True)
    names = list(model.layers)
    if found.ndim != 3 or found.shape[:2] != (len(names), len(problem.x)):
        raise InputError(
            "the model must return (layers, prompts, outputs) = "
            f"({len(names)}, {len(problem.x)}, …) predictions, got {tuple(found.shape)}"
        )
    finite = torch.isfinite(found).all(dim=-1)
    if not bool(finite.all()):
        layer = int((~finite).any(dim=-1).int().argmax())
        raise InputError(
            f"the model's predictions after {names[layer]} are NaN or infinite at "
            f"{int((~finite[layer]).sum())} of {len(problem.x)} prompts: "
            "is it for problems of this distribution?"
        )
    _check_divergence(found, names, limit)
    return found


def _check_divergence(found: Predictions, names: Sequence[str], limit: float) -> None:
    """Refuse predictions that are finite, and too large for any comparison to mean something."""
    large = (found.abs() > limit).any(dim=-1)
    if bool(large.any()):
        layer = int(large.any(dim=-1).int().argmax())
        raise InputError(
            f"the model's predictions after {names[layer]} have diverged at "
            f"{int(large[layer].sum())} of {found.shape[1]} prompts, up to "
            f"{float(found[layer].abs().max()):.3g}: is it for problems of this distribution?"
        )


def _run_model(model: Model, problem: Any) -> Any:
    """Run a model's own code; what it raises is an error of the caller's, in one line."""
    try:
        return model.predict(problem)
    except (InputError, MemoryError):
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise InputError(f"the model failed: {describe_failure(error)}") from error
