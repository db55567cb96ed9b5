"""Models to identify: objects that return their answers to a problem after each layer.

You can write a model of your own in several ways: a function on batches (`FunctionModel`), any
`nn.Module` (modules.py), an `nn.Module` with hooks on its layers (hooked.py), or a class with
`layers` and `predict`.
"""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.arrays import as_tensor
from innerloop.certification.building import BuiltTransformer, restore_construction
from innerloop.constructions.base import Construction, iterate_streams, read_prediction
from innerloop.devices import move, require_precision
from innerloop.errors import FileError, InputError
from innerloop.identification.answers import find_limit
from innerloop.identification.families.base import Family
from innerloop.identification.families.choosing import choose_family, get_batch
from innerloop.identification.families.clouds import match_signs
from innerloop.identification.families.clustering import match_clusters
from innerloop.identification.families.games import PlayedPolicy, ask_policy
from innerloop.identification.families.odds import count_actions
from innerloop.identification.instances import copy_problem, list_tensors, select_queries
from innerloop.limits import is_out_of_memory
from innerloop.locations import describe_failure
from innerloop.policies.base import Policy
from innerloop.problems.base import Distribution
from innerloop.problems.environment import Environment
from innerloop.problems.gaussian_mixture import ClusteringProblem
from innerloop.problems.linear_bandit_games import BanditGameProblem
from innerloop.problems.points import PointsProblem
from innerloop.problems.principal_components import PCAProblem
from innerloop.problems.tabular_games import TabularGameProblem
from innerloop.registry import get_name
from innerloop.transformer import Transformer
from innerloop.transformer.file import load

Predictions = Float[Tensor, "layers batch *answer"]
ModuleType = TypeVar("ModuleType", bound=nn.Module)
ANSWER = "the model's answer"
QUERY_ARGUMENTS = 3
AT_QUERIES = 3
"""Dimensions of predictions: layers, batch, queries."""


class Model(ABC):
    """Base class of models, which answer problems layer by layer."""

    @property
    @abstractmethod
    def layers(self) -> list[str]:
        """A name for each layer."""

    @abstractmethod
    def predict(self, problem: Any) -> Predictions:
        """Return the answers to a batch of problems after each layer.

        The dimensions are layers, batch, and those of an answer: one prediction for each query, one
        share for each point and cluster, one vector for each component, or one logarithm of the
        odds for each step and action.
        """

    def distribution(self) -> Distribution | None:
        """Return the distribution that the model declares, if it declares one."""
        return None

    def get_declared_algorithm(self) -> str | None:
        """Return the name of the algorithm that the model declares, or None."""
        return None

    def place(self, device: torch.device) -> Model:
        """Return the model on a device; a model that is a user's function is returned unchanged."""
        return self

    def check(self, problem: Any) -> None:  # noqa: B027, most models take any problem
        """Raise an error if the model cannot answer this problem; called before many are drawn."""


@dataclass(frozen=True, eq=False)
class ConstructionModel(Model):
    """A built transformer, whose answers are read after every step as its construction declares."""

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
        weight = next(self.transformer.parameters())
        problem = problem.to(weight.dtype)
        placed = move(problem, weight.device)
        rows = [
            read_prediction(self.construction, self.transformer, placed, stream)
            for stream in iterate_streams(self.construction, self.transformer, placed)
        ]
        answers = torch.stack(rows[1:]).cpu()
        at_queries = hasattr(problem, "x_query") and answers.ndim == AT_QUERIES
        return select_queries(problem, answers) if at_queries else answers

    def place(self, device: torch.device) -> ConstructionModel:
        return replace(self, transformer=place_module(self.transformer, device))

    def distribution(self) -> Distribution:
        return self.construction.distributions()[0]

    def get_declared_algorithm(self) -> str:
        return get_name(type(self.construction.algorithm))

    def check(self, problem: Any) -> None:
        self.construction.check(problem)


@dataclass(frozen=True, eq=False)
class FunctionModel(Model):
    """A function on batches as a model with one layer. The problem decides its arguments.

    regression  X (batch, n, d), y (batch, n) and x_query (batch, d); returns predictions
    points      X, and the starting vectors if the function has two arguments; returns the shares of
                clusters (batch, n, clusters), directions (batch, components, d) or labels of two
                clusters (batch, n)
    games       the game so far (`History`); returns the odds of the next action (batch, actions)
    """

    function: Callable[..., Any] | Policy[Any, Any]
    label: str = "the model"

    @property
    def layers(self) -> list[str]:
        return ["output"]

    def check(self, problem: Any) -> None:
        """Raise an error if a function cannot be called with the arguments of these problems."""
        arguments = self._list_arguments(problem)
        if _takes(self.function, len(arguments)):
            return
        words = {"x": "X", "start": "its starting vectors"}
        names = [words.get(name, name) for name in arguments]
        raise InputError(
            f"expected a function of {', '.join(names[:-1])} and {names[-1]}; {self.label} does "
            "not take these three"
            if len(arguments) == QUERY_ARGUMENTS
            else f"expected a function of {' and '.join(names)}; {self.label} takes something else"
        )

    def _list_arguments(self, problem: Any) -> tuple[str, ...]:
        if isinstance(problem, PointsProblem):
            return ("x", "start") if _takes(self.function, 2) else ("x",)
        if isinstance(problem, BanditGameProblem | TabularGameProblem | Environment):
            return ("a game so far",)
        return ("x", "y", "x_query")

    def predict(self, problem: Any) -> Predictions:
        if isinstance(problem, BanditGameProblem | TabularGameProblem):
            return self._predict_odds(problem)
        if isinstance(problem, PointsProblem):
            return self._predict_points(problem)
        query = problem.x_query
        query = query.squeeze(-2) if query.ndim == problem.x.ndim else query
        answers = as_tensor(self._call(problem.x, problem.y, query), ANSWER)
        batch = len(problem.x)
        if answers.ndim not in (1, 2) or len(answers) != batch:
            raise InputError(
                f"the model must return a prediction for each of the {batch} prompts, shape "
                f"({batch},) or ({batch}, outputs); got {tuple(answers.shape)}"
            )
        return answers.reshape(1, batch, -1)

    def _call(self, *arguments: Any) -> Any:
        assert callable(self.function)  # a policy is not: it plays
        return self.function(*arguments)

    def _predict_points(self, problem: PointsProblem) -> Predictions:
        names = self._list_arguments(problem)
        answers = as_tensor(self._call(*(getattr(problem, name) for name in names)), ANSWER)
        answers, blind = answers.to(problem.x), "start" not in names
        batch, n = problem.x.shape[:2]
        starts, d = problem.start.shape[-2:]
        shape = tuple(answers.shape)
        if isinstance(problem, ClusteringProblem):
            if shape != (batch, n, starts):
                what = f"shares of each cluster in each point, {(batch, n, starts)}"
                raise InputError(f"the model must return {what}; got {shape}")
            return match_clusters(problem, answers[None]) if blind else answers[None]
        if shape == (batch, starts, d):
            return answers[None]
        if not isinstance(problem, PCAProblem) or shape not in ((batch, n), (batch, n, 2)):
            what = f"directions, {(batch, starts, d)}, or labels of two clouds, {(batch, n)}"
            raise InputError(f"the model must return {what}; got {shape}")
        labels = answers.reshape(1, batch, n, -1)
        return match_signs(problem, labels) if blind else labels

    def _predict_odds(self, problem: BanditGameProblem | TabularGameProblem) -> Predictions:
        if isinstance(self.function, Policy):
            return PlayedPolicy(self.function).init(problem).unsqueeze(0)
        shape = (len(problem), count_actions(problem))
        rows = []
        for t, row in enumerate(ask_policy(self._call, problem)):
            odds = as_tensor(row, "the model's odds")
            if tuple(odds.shape) != shape or bool((odds < 0).any()):
                raise InputError(
                    f"the model must return odds of {shape[1]} actions, {shape} numbers that "
                    f"are not negative; got {tuple(odds.shape)} at step {t + 1}"
                )
            rows.append(odds.to(problem.rewards))
        return torch.stack(rows, dim=-2).log().unsqueeze(0)


def _takes(function: Callable[..., Any] | Policy[Any, Any], count: int) -> bool:
    """Return whether a function accepts this number of arguments; True if Python cannot tell."""
    if isinstance(function, Policy):
        return count == 1
    try:
        inspect.signature(function).bind(*(None,) * count)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


class Answered(NamedTuple):
    """A model's answers as vectors, their family, and the original shape of an answer."""

    family: Family
    shape: tuple[int, ...]
    vectors: Predictions

    def find_truth(self, problem: Any) -> Float[Tensor, "batch outputs"] | None:
        """Return the true answers; None if they are unknown or of another kind."""
        target = self.family.find_targets(problem)
        if target is None or target.shape != self.vectors.shape[1:]:
            return None
        return target


def predict_layers(model: Model, problem: Any) -> Predictions:
    """Return a model's answers as vectors, layer by layer: see `answer_problem`."""
    return answer_problem(model, problem).vectors


def answer_problem(model: Model, problem: Any) -> Answered:
    """Run a model in float64 without gradients; raise an error for NaN, infinite or huge answers.

    The model's own code receives a copy of the problem, and its answer is copied.
    """
    limit, batch = find_limit(problem), get_batch(problem)
    like = next(each for each in list_tensors(problem) if each.is_floating_point())
    with torch.no_grad():
        answer = _run_model(model, copy_problem(problem))
        found = as_tensor(answer, ANSWER).detach().to(like, copy=True)
    names = list(model.layers)
    if found.ndim < 3 or tuple(found.shape[:2]) != (len(names), *batch):
        raise InputError(
            "the model must return (layers, prompts, outputs) = "
            f"({len(names)}, {batch[0]}, …) predictions, got {tuple(found.shape)}"
        )
    shape = tuple(found.shape[2:])
    family = choose_family(problem, shape)
    vectors = family.flatten(problem, found)
    finite = torch.isfinite(vectors).all(dim=-1)
    if not bool(finite.all()):
        layer = int((~finite).any(dim=-1).int().argmax())
        raise InputError(
            f"the model's predictions after {names[layer]} are NaN or infinite at "
            f"{int((~finite[layer]).sum())} of {batch[0]} prompts: "
            "is it for problems of this distribution?"
        )
    _check_divergence(vectors, names, limit)
    return Answered(family, shape, vectors)


def _check_divergence(found: Predictions, names: Sequence[str], limit: float) -> None:
    """Raise an error for predictions that are too large to be compared."""
    large = (found.abs() > limit).any(dim=-1)
    if bool(large.any()):
        layer = int(large.any(dim=-1).int().argmax())
        raise InputError(
            f"the model's predictions after {names[layer]} have diverged at "
            f"{int(large[layer].sum())} of {found.shape[1]} prompts, up to "
            f"{float(found[layer].abs().max()):.3g}: is it for problems of this distribution?"
        )


def place_module(module: ModuleType, device: torch.device) -> ModuleType:
    """Return a copy of a module on a device, or the module itself if it is there."""
    if all(weight.device == device for weight in module.parameters()):
        return module
    require_precision(device, list(module.parameters()))
    return copy.deepcopy(module).to(device)


def _run_model(model: Model, problem: Any) -> Any:
    """Run a model's own code; turn an exception into an `InputError` of one line."""
    try:
        return model.predict(problem)
    except (InputError, MemoryError):
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise InputError(f"the model failed: {describe_failure(error)}") from error
