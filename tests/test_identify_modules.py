"""Modules as they are: formats, modes, precisions; what is printed; mistakes of a model's own."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import innerloop
from innerloop.errors import InputError, MissingLibraryError
from innerloop.identification.identification import identify
from innerloop.identification.models import FunctionModel, predict_layers
from innerloop.identification.modules import (
    EXTRA_NUMBERS,
    FORMATS,
    ModuleModel,
    guess_format,
)
from innerloop.identification.tables import format_identification
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem

PROBLEMS = LinearRegression(d=3, n=6)
SOME: dict[str, Any] = {"algorithms": ["averaging", "least-squares", "ridge"], "prompts": 48}


class Averager(nn.Module):
    """Σ y ⟨x, x_query⟩ / n from the tokens of a format, with dropout that must not act."""

    def __init__(self, extra: int, kind: str) -> None:
        super().__init__()
        self.read_in = nn.Linear(3 + extra, 3 + extra, bias=False)
        nn.init.eye_(self.read_in.weight)
        self.dropout, self.frozen, self.kind = nn.Dropout(0.5), nn.Dropout(0.5), kind
        self.frozen.eval()

    def forward(self, tokens: Tensor) -> Tensor:
        assert tokens.dtype == self.read_in.weight.dtype
        tokens = self.dropout(self.read_in(tokens))
        if self.kind == "alternating":
            x, y, query = tokens[:, :-1:2], tokens[:, 1::2, 0], tokens[:, -1]
        else:
            x, y, query = tokens[:, :-1, :3], tokens[:, :-1, 3], tokens[:, -1, :3]
        if self.kind == "flag":
            assert bool((tokens[:, -1, 4] == 1).all())
            assert bool((tokens[:, :-1, 4] == 0).all())
        return (torch.einsum("bnd,bn->bd", x, y) / x.shape[1] * query).sum(-1)


@pytest.mark.parametrize(("kind", "extra"), list(EXTRA_NUMBERS.items()))
def test_a_module_goes_in_as_it_is(kind: str, extra: int) -> None:
    module = Averager(extra, kind)
    found = identify(module, PROBLEMS, **SOME)
    assert found.verdict == "averaging"
    assert found.layers[0].score > 1 - 1e-4  # float32
    assert module.training
    assert module.dropout.training
    assert not module.frozen.training
    assert guess_format(module, 3) == kind


def test_a_module_of_three_arguments_and_tokens_that_come_out() -> None:
    class Three(nn.Module):
        def forward(self, xs: Tensor, ys: Tensor, query: Tensor) -> Tensor:
            return (torch.einsum("bnd,bn->bd", xs, ys) / xs.shape[1] * query).sum(-1)

    class Stream(nn.Module):
        """A stream of tokens [x, y] comes out: the query's y is the answer."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = Averager(1, "tokens").double()

        def forward(self, tokens: Tensor) -> Tensor:
            answer = self.inner(tokens)
            return torch.cat([tokens[:, :, :3], answer[:, None, None].expand(-1, 7, 1)], dim=-1)

    for module in (Three(), Stream()):
        found = identify(module, PROBLEMS, **SOME)
        assert found.verdict == "averaging"
        assert found.layers[0].score > 1 - 1e-9


def test_what_a_module_does_wrong_is_its_own_fault() -> None:
    class Raises(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, tokens: Tensor) -> Tensor:
            raise ValueError("out of tokens\nand more")

    class Wide(Raises):
        def forward(self, tokens: Tensor) -> Tensor:
            return torch.zeros(len(tokens), 5, 5)

    with pytest.raises(InputError, match=r"^the model failed: .*ValueError: out of tokens$"):
        identify(Raises(), PROBLEMS, **SOME)
    with pytest.raises(InputError, match=r"each of the 54 prompts.*got \(54, 5, 5\)"):
        identify(Wide(), PROBLEMS, **SOME)
    with pytest.raises(
        InputError, match=r"it takes 17 numbers a token.*format=…\) .*: function .* flag"
    ):
        identify(nn.Linear(17, 1), PROBLEMS, **SOME)
    with pytest.raises(InputError, match="no format called 'pairs': function"):
        ModuleModel(nn.Linear(4, 1), format="pairs")
    with pytest.raises(InputError, match="write a function that calls it"):
        identify(nn.Linear(4, 1), innerloop.GaussianMixture(d=2, n=9))
    broken = Raises()
    with pytest.raises(InputError):
        predict_layers(ModuleModel(broken), PROBLEMS.sample(2))
    assert broken.training


def noisy_least_squares(X: Tensor, y: Tensor, query: Tensor) -> Tensor:
    """Least squares with an error of its own, a twentieth of what it says."""
    weights = torch.linalg.lstsq(X, y.unsqueeze(-1)).solution.squeeze(-1)
    wave = torch.sin(1000 * X.sum(dim=(-2, -1)))
    return (weights * query).sum(dim=-1) + 0.12 * wave


def test_a_model_with_the_answers_of_least_squares_has_its_own_errors() -> None:
    result = identify(noisy_least_squares, PROBLEMS, **SOME)
    (layer,) = result.layers
    assert (layer.fit, layer.nearest, layer.algorithm) == ("answers", "least-squares", None)
    assert layer.share > 0.99
    assert layer.similarity is None  # least squares has no errors to compare with
    assert result.verdict == "gives the answers of least-squares, with errors of its own"
    noisy = identify(noisy_least_squares, LinearRegression(d=3, n=6, noise=2.0), **SOME)
    (layer,) = noisy.layers
    assert layer.fit == "close"  # beside the errors that noise makes, its own are small
    assert layer.similarity is not None
    assert layer.similarity > 0.99


def test_a_miss_says_on_which_prompts() -> None:
    def clip_and_predict(X: Tensor, y: Tensor, query: Tensor) -> Tensor:
        gram = X.mT @ X
        floor = 0.35 * torch.linalg.matrix_norm(gram, ord=2)[:, None, None]
        values, vectors = torch.linalg.eigh(gram)
        kept = torch.maximum(values, 0.02 * floor[:, 0])
        moment = vectors.mT @ (X.mT @ y.unsqueeze(-1))
        weights = (vectors @ (moment / kept.unsqueeze(-1))).squeeze(-1)
        return (weights * query).sum(dim=-1)

    problems = LinearRegression(d=3, n=6, kappa=30.0)
    found = identify(clip_and_predict, problems, algorithms=["least-squares"], prompts=256)
    (layer,) = found.layers
    assert layer.fit in ("close", "answers"), str(found)
    assert layer.where == "κ is large"
    assert layer.describe().endswith(", most where κ is large")


def test_a_verdict_prints_as_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    found = identify(FunctionModel(noisy_least_squares), PROBLEMS, **SOME)
    text = str(found)
    assert len(text) < 3000
    assert len(repr(found)) < 200
    assert "1 output" in text
    assert "own error" in text
    assert "gives the answers of least-squares" in " ".join(text.split())
    assert found._repr_html_().startswith("<table>")
    assert "<td>1 output</td>" in found._repr_html_()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingLibraryError, match="pip install pandas"):
        found.to_frame()
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))  # pyright: ignore
    (row,) = found.to_frame()
    assert (row["layer"], row["name"], row["fit"]) == (1, "output", "answers")
    assert row["does"] == found.layers[0].describe()


def test_the_runner_up_is_never_ahead() -> None:
    def between(X: Tensor, y: Tensor, query: Tensor) -> Tensor:
        return 0.5 * noisy_least_squares(X, y, query) + 0.3 * y.mean(dim=-1) * query.sum(dim=-1)

    for seed in range(3):
        for model in (between, noisy_least_squares):
            names = ["averaging", "gradient-descent", "least-squares", "newton", "ridge"]
            found = identify(model, PROBLEMS, algorithms=names, prompts=16, steps=4, seed=seed)
            for layer in found.layers:
                assert layer.runner_up_score is None or layer.runner_up_score <= layer.score
                assert len(layer.near) == 3
                shares = [near.share for near in layer.near[1:]]
                assert shares == sorted(shares, reverse=True)


def test_prompts_are_what_the_formats_say() -> None:
    problem = RegressionProblem.from_arrays([[[1.0, 2.0], [3.0, 4.0]]], [[5.0, 6.0]], [[7.0, 8.0]])
    built = {name: FORMATS[name](problem)[0].tolist() for name in EXTRA_NUMBERS}
    assert built["tokens"] == [[1, 2, 5], [3, 4, 6], [7, 8, 0]]
    assert built["flag"] == [[1, 2, 5, 0], [3, 4, 6, 0], [7, 8, 0, 1]]
    assert built["alternating"] == [[1, 2], [5, 0], [3, 4], [6, 0], [7, 8]]


def test_the_name_of_a_layer_is_not_broken() -> None:
    found = identify(lambda X, y, x_query: y[:, 0], PROBLEMS, **SOME).as_dict()
    (layer,) = found["layers"]
    layer |= {"name": "embedding", "does": "none fits; nearest " + "a" * 100}
    layer |= {"similarity": 0.5, "error": 0.5, "runner_up": "b" * 30, "runner_up_share": 0.1}
    assert "1 embedding " in format_identification(found)
