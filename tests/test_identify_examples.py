"""The example of every prompt format: what it writes, what is identified, and that it runs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from innerloop.identification.identification import identify
from innerloop.problems.linear_regression import LinearRegression

PATH = Path(__file__).parents[1] / "examples" / "identify_a_transformer.py"
FORMATS = ("tokens", "flag", "alternating", "function")
STEP_SIZES = (0.2, 0.7)


def load_example() -> Any:
    spec = importlib.util.spec_from_file_location("identify_a_transformer", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXAMPLE = load_example()


def descend(x: Tensor, y: Tensor, query: Tensor) -> Tensor:
    """Two steps of gradient descent on the mean of squares, by hand."""
    w = torch.zeros_like(query)
    for size in STEP_SIZES:
        residual = y - torch.einsum("bnd,bd->bn", x, w)
        w = w + size * torch.einsum("bnd,bn->bd", x, residual) / x.shape[1]
    return (w * query).sum(dim=-1)


class Descent(nn.Module):
    """Gradient descent that reads its prompt token by token, with a layer that tells its width."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, numbers = kind, EXAMPLE.WRITERS[kind][1]
        self.read_in = nn.Linear(numbers, numbers, bias=False, dtype=torch.float64)
        nn.init.eye_(self.read_in.weight)

    def forward(self, prompt: Tensor) -> Tensor:
        prompt, d = self.read_in(prompt), EXAMPLE.D
        if self.kind == "alternating":
            return descend(prompt[:, 0:-1:2], prompt[:, 1::2, 0], prompt[:, -1])
        return descend(prompt[:, :-1, :d], prompt[:, :-1, d], prompt[:, -1, :d])


class ThreeArguments(nn.Module):
    def forward(self, x: Tensor, y: Tensor, query: Tensor) -> Tensor:
        return descend(x, y, query)


@pytest.mark.parametrize("kind", FORMATS)
def test_an_algorithm_of_known_truth_is_found_through_the_format(kind: str) -> None:
    """What the example writes is what its module reads, and what `identify` writes is the same."""
    module = ThreeArguments() if kind == "function" else Descent(kind)
    problems = LinearRegression(d=EXAMPLE.D, n=EXAMPLE.N)
    problem = problems.sample(5, generator=torch.Generator().manual_seed(0))
    given = (problem.x, problem.y, problem.x_query[:, 0])
    torch.testing.assert_close(EXAMPLE.answer(module, kind, *given), descend(*given))
    found = identify(module, problems, algorithms=["averaging", "gradient-descent"], prompts=32)
    (layer,) = found.layers
    assert found.verdict == "gradient-descent (per step)", str(found)
    assert layer.step == len(STEP_SIZES)
    fitted = sorted(found.hyperparameters["step_sizes"])
    assert fitted == pytest.approx(sorted(STEP_SIZES), rel=1e-3)


@pytest.mark.parametrize("kind", FORMATS)
def test_the_example_trains_and_prints_the_table(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--steps", "2", "--candidate", "ridge", "--prompts", "16"]
    monkeypatch.setattr(sys, "argv", [str(PATH), kind, *words])
    EXAMPLE.main()
    printed = capsys.readouterr().out
    assert printed.startswith("trained: loss ")
    assert "1 output" in printed
    assert "verdict: none fits" in printed


def test_training_lowers_the_loss() -> None:
    torch.manual_seed(0)
    x, y, query = torch.randn(64, 8, 2), torch.randn(64, 8), torch.randn(64, 2)
    module = EXAMPLE.build("tokens")
    before = EXAMPLE.answer(module, "tokens", x, y, query)
    first, last = EXAMPLE.train(module, "tokens", 1), EXAMPLE.train(module, "tokens", 15)
    assert last < first
    assert not torch.equal(before, EXAMPLE.answer(module, "tokens", x, y, query))
