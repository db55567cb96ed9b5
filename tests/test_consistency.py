"""Models whose answers are not those of single prompts are known, and rounding is not mistaken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from innerloop.errors import InputError
from innerloop.identification.consistency import check_consistency, find_tolerance
from innerloop.identification.identification import as_model, identify
from innerloop.identification.instances import draw_prompts
from innerloop.identification.models import Model, predict_layers
from innerloop.identification.modules import ModuleModel
from innerloop.problems.linear_regression import LinearRegression

PROBLEMS = LinearRegression(d=3, n=8)
SOME: dict[str, Any] = {"algorithms": ["gradient-descent", "ridge"], "prompts": 64}
Function = Callable[[Tensor, Tensor, Tensor], Tensor]


def descend(X: Tensor, y: Tensor, x_query: Tensor) -> Tensor:
    """Take two steps of gradient descent."""
    w = torch.zeros_like(x_query)
    for _ in range(2):
        residual = y - torch.einsum("bnd,bd->bn", X, w)
        w = w + 0.3 * torch.einsum("bnd,bn->bd", X, residual) / X.shape[1]
    return (w * x_query).sum(-1)


def change_with_batch(X: Tensor, y: Tensor, x_query: Tensor) -> Tensor:
    return descend(X, y, x_query) * (1.0 if len(X) > 8 else 0.5)


def subtract_batch_mean(X: Tensor, y: Tensor, x_query: Tensor) -> Tensor:
    answers = descend(X, y, x_query)
    return answers - answers.mean()


def mark_last_prompt(X: Tensor, y: Tensor, x_query: Tensor) -> Tensor:
    answers = descend(X, y, x_query)
    answers[-1] += 1.0
    return answers


def answer_at_random(X: Tensor, y: Tensor, x_query: Tensor) -> Tensor:
    return descend(X, y, x_query) + 0.01 * torch.randn(len(X), dtype=X.dtype)


def make_forgetful(calls: int) -> Function:
    """Make a model that descends in its first calls, and answers the labels' mean later."""
    count = 0

    def predict(X: Tensor, y: Tensor, x_query: Tensor) -> Tensor:
        nonlocal count
        count += 1
        return descend(X, y, x_query) if count <= calls else y.mean(dim=-1)

    return predict


@pytest.mark.parametrize(
    ("model", "finding"),
    [
        (change_with_batch, "does not treat prompts one by one: in batches of 1, 2, 4, 8 its"),
        (
            subtract_batch_mean,
            "does not treat prompts one by one: in batches of 1, 2, 4, 8, 16, 32",
        ),
        (mark_last_prompt, "does not treat prompts one by one"),
        (answer_at_random, "gives random answers"),
        (make_forgetful(2), "does not repeat itself"),
        (make_forgetful(3), "does not repeat itself"),
    ],
)
def test_a_model_without_one_answer_for_a_prompt_is_not_named(model: Any, finding: str) -> None:
    result = identify(model, PROBLEMS, **SOME)
    (layer,) = result.layers
    assert result.algorithm is None
    assert result.verdict.startswith(f"the model {finding}")
    assert (layer.fit, layer.algorithm, layer.score) == ("inconsistent", None, 0.0)
    assert layer.describe() in str(result)
    assert result.without("ridge").verdict == result.verdict


def test_a_layer_is_judged_although_another_one_is_random() -> None:
    class Layered(Model):
        @property
        def layers(self) -> list[str]:
            return ["layer 1", "layer 2"]

        def predict(self, problem: Any) -> Tensor:
            given = problem.x, problem.y, problem.x_query[:, 0]
            return torch.stack([answer_at_random(*given), descend(*given)]).unsqueeze(-1)

    result = identify(Layered(), PROBLEMS, **SOME)
    assert [layer.fit for layer in result.layers] == ["inconsistent", "match"]
    assert result.verdict == "gradient-descent at layers 2 of 2"


def find_again(model: Any, prompts: int = 200) -> list[str | None]:
    model = as_model(model)
    problem = draw_prompts(PROBLEMS, prompts, torch.Generator().manual_seed(0))
    found = check_consistency(model, [(problem, predict_layers(model, problem))])
    assert not found.notes
    return found.layers


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16])
def test_rounding_of_a_network_is_no_inconsistency(kind: torch.dtype) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True)
    network = nn.Sequential(nn.Linear(4, 64), nn.TransformerEncoder(layer, 4), nn.Linear(64, 1))
    assert find_again(ModuleModel(network.to(kind))) == [None]


def test_rounding_of_matrices_in_another_order_is_no_inconsistency() -> None:
    """All prompts in one float32 product, whose order of sums depends on the batch."""

    def predict(X: Tensor, y: Tensor, x_query: Tensor) -> Tensor:
        rows = X.float().flatten(1)
        mixed = rows @ torch.linspace(-1, 1, 24 * 512).reshape(24, 512).sin() * 100
        return (mixed @ mixed.new_ones(512)).double() + descend(X, y, x_query)

    def vanish(X: Tensor, y: Tensor, x_query: Tensor) -> Tensor:
        return 1e-17 * torch.randn(len(X), dtype=X.dtype)

    assert find_again(predict) == find_again(vanish) == [None]


def test_a_tolerance_of_16_bits_is_for_16_bits() -> None:
    answers = torch.randn(1, 50, 1, dtype=torch.float64)
    assert find_tolerance(answers) == find_tolerance(answers.float().double()) == 1e-4
    assert find_tolerance(answers.bfloat16().double()) > find_tolerance(answers.half().double())
    assert find_tolerance((answers > 0).double()) == 1e-4


def test_a_model_of_one_batch_size_is_named_with_a_note() -> None:
    def predict(X: Tensor, y: Tensor, x_query: Tensor) -> Tensor:
        if len(X) < 3:
            raise InputError("expected at least three prompts")
        return descend(X, y, x_query)

    result = identify(predict, PROBLEMS, **SOME)
    assert result.verdict == "gradient-descent"
    assert any("batches of 1, 2 fail: expected at least three" in note for note in result.notes)
