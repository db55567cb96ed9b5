"""What an algorithm declares: its problem, its name, and the fields that a fit may choose."""

from __future__ import annotations

import typing
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm, hyperparameter
from innerloop.algorithms.least_squares import LeastSquares
from innerloop.algorithms.regression import LinearModel, Weights
from innerloop.errors import InputError
from innerloop.identification.hyper import (
    FreeParameter,
    differentiate_predictions,
    list_free_parameters,
    pack_parameters,
    repeat_per_step,
)
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.registry import _check_complete, load_members

ALGORITHMS = load_members("algorithms", Algorithm)


@dataclass(frozen=True, eq=False)
class Toy(LinearModel):
    """Declares fields whose annotations say nothing, and leaves out one whose annotation would."""

    source: ClassVar[str] = "none"
    fixed: Float[Tensor, " steps *batch"]
    shift: Tensor = field(metadata=hyperparameter())
    sizes: Any = field(metadata=hyperparameter(per_step=True))
    missing: Tensor | None = field(default=None, metadata=hyperparameter())

    def step(self, problem: RegressionProblem, state: Weights, k: int) -> Weights:
        size = self.sizes[k % len(self.sizes)].unsqueeze(-1)
        return state + size * (problem.x.mean(dim=-2) + self.shift.unsqueeze(-1)) * self.fixed[0]


def toy() -> Toy:
    number = torch.tensor(3.0, dtype=torch.float64)
    return Toy(number.reshape(1), number, torch.tensor([1.0, 2.0], dtype=torch.float64))


def test_what_is_fitted_follows_from_the_declaration_only() -> None:
    assert list_free_parameters(toy()) == [
        FreeParameter("shift", batch_dim=0, per_step=False),
        FreeParameter("sizes", batch_dim=1, per_step=True),
    ]
    assert pack_parameters(toy()).tolist() == [3.0, 1.0, 2.0]
    repeated = repeat_per_step(toy(), 4)
    assert isinstance(repeated, Toy)
    assert (repeated.sizes.tolist(), repeated.fixed.shape) == ([1.0] * 4, (1,))


def test_derivatives_are_by_the_declared_fields() -> None:
    problem = LinearRegression(d=2, n=5).sample(3)
    predictions, slopes = differentiate_predictions(toy(), problem, [2])
    assert predictions.shape == (1, 3, 1)
    query, mean = problem.x_query[:, 0], problem.x.mean(dim=-2)
    by_shift = 3 * (1.0 + 2.0) * query.sum(dim=-1)
    by_size = 3 * (query * (mean + 3.0)).sum(dim=-1)
    expected = torch.stack([by_shift, by_size, by_size], dim=-1)
    torch.testing.assert_close(slopes[0, :, 0], expected)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_shapes_agree_with_declarations(name: str) -> None:
    """A free field's shape names `*batch` where the declaration puts it; no other field's does."""
    kind = ALGORITHMS[name]
    hints, shaped = typing.get_type_hints(kind), {}
    for each in fields(kind):  # pyright: ignore[reportArgumentType]
        options = (hints[each.name], *typing.get_args(hints[each.name]))
        dims = next((o.dim_str.split() for o in options if hasattr(o, "dim_str")), [])
        if "*batch" in dims:
            shaped[each.name] = (dims.index("*batch"), "steps" in dims)
    assert kind.hyperparameters() == shaped


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_declared_problem_is_the_one_that_is_solved(name: str) -> None:
    kind = ALGORITHMS[name]
    assert typing.get_type_hints(kind.init)["problem"] is kind.problem_type


def test_an_algorithm_has_its_files_name() -> None:
    assert LeastSquares().name == "least-squares"


def test_an_algorithm_without_a_problem_is_refused() -> None:
    class Nameless(Algorithm[Any, Any]):
        source: ClassVar[str] = "none"

        def init(self, problem: Any) -> Any: ...
        def step(self, problem: Any, state: Any, k: int) -> Any: ...
        def predict(self, problem: Any, state: Any) -> Any: ...

    with pytest.raises(InputError, match="Nameless lacks problem_type"):
        _check_complete(Nameless)
