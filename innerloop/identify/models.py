"""What identification sees of a model: its predictions at the query after each layer.

A model of your own is a function `(X, y, x_query) → prediction` on batches (`FunctionModel`), any
`nn.Module` whose layers can be hooked (hooked.py), or a class with `layers` and `predict`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.constructions.base import Construction, answer, streams
from innerloop.constructions.certificate import Built
from innerloop.errors import FileError, InputError
from innerloop.identify.instances import at_queries
from innerloop.problems.base import Distribution, tensor_of
from innerloop.registry import find
from innerloop.transformer import Transformer
from innerloop.transformer.file import load

Predictions = Float[Tensor, "layers batch outputs"]


class Model(ABC):
    """Anything that predicts at a query, layer by layer."""

    @property
    @abstractmethod
    def layers(self) -> list[str]:
        """A name for each layer."""

    @abstractmethod
    def predict(self, problem: Any) -> Predictions:
        """What it predicts at the queries of a batch after each layer."""

    def distribution(self) -> Distribution | None:
        """The problems that the model is for, where it knows them."""
        return None


@dataclass(frozen=True, eq=False)
class ConstructionModel(Model):
    """One of our transformers, read out after every step in the way its construction says."""

    construction: Construction
    transformer: Transformer

    @classmethod
    def of(cls, built: Built) -> ConstructionModel:
        return cls(built.construction, built.transformer)

    @classmethod
    def read(cls, path: Path) -> ConstructionModel:
        """From a file that `Built.save` wrote; what it says it runs is used to read it out only."""
        transformer, about = load(path)
        name, settings = about.get("construction"), about.get("settings")
        if not isinstance(name, str) or not isinstance(settings, dict):
            raise FileError(f"{path} names no construction: nobody knows how to read it out")
        construction = find("constructions", Construction, name).made(settings)
        if transformer.layout != construction.layout:
            raise FileError(f"{path} has other registers than {name} with its settings")
        return cls(construction, transformer)

    @property
    def layers(self) -> list[str]:
        return [f"step {k}" for k in range(1, self.transformer.steps + 1)]

    def predict(self, problem: Any) -> Predictions:
        problem = problem.to(next(self.transformer.parameters()).dtype)
        said = [
            answer(self.construction, self.transformer, problem, stream)
            for stream in streams(self.construction, self.transformer, problem)
        ]
        return at_queries(problem, torch.stack(said[1:]))

    def distribution(self) -> Distribution:
        return self.construction.distributions()[0]


@dataclass(frozen=True, eq=False)
class FunctionModel(Model):
    """A function of X (batch, n, d), y (batch, n) and x_query (batch, d); its last layer only."""

    function: Callable[[Tensor, Tensor, Tensor], Any]

    @property
    def layers(self) -> list[str]:
        return ["output"]

    def predict(self, problem: Any) -> Predictions:
        query = problem.x_query
        query = query.squeeze(-2) if query.ndim == problem.x.ndim else query
        said = tensor_of(self.function(problem.x, problem.y, query))
        batch = len(problem.x)
        if said.ndim not in (1, 2) or len(said) != batch:
            raise InputError(
                f"the model must give a prediction for each of the {batch} prompts, shape "
                f"({batch},) or ({batch}, outputs); got {tuple(said.shape)}"
            )
        return said.reshape(1, batch, -1)


def predicted(model: Model, problem: Any) -> Predictions:
    """A model's predictions in float64, without gradients; NaN and infinity are errors."""
    with torch.no_grad():
        found = model.predict(problem).detach().to(problem.x)
    names = model.layers
    if found.ndim != 3 or found.shape[:2] != (len(names), len(problem.x)):
        raise InputError(
            f"the model must give (layers, prompts, outputs) = ({len(names)}, {len(problem.x)}, …) "
            f"predictions, got {tuple(found.shape)}"
        )
    finite = torch.isfinite(found).all(dim=-1)
    if not bool(finite.all()):
        layer = int((~finite).any(dim=-1).int().argmax())
        raise InputError(
            f"the model's predictions after {names[layer]} are NaN or infinite at "
            f"{int((~finite[layer]).sum())} of {len(problem.x)} prompts: is it for such problems?"
        )
    return found
