"""Networks that read prompts token by token, and what the claims measure of them: against NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.claims.recorded import RESULTS, is_recorded, recorded
from innerloop.claims.yang2025 import networks
from innerloop.claims.yang2025.bai_theorem_1 import Lab, Risk, Setting, minimisers
from innerloop.claims.yang2025.fu_convergence import _on_each_prompt, _orders, _weight_errors
from innerloop.identify.hooked import PENALTIES, HookedModel
from innerloop.identify.hyper import ran
from innerloop.identify.instances import prefixes
from innerloop.identify.models import predicted
from innerloop.models.lstm import LSTM
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.recipes.gpt2_regression import GPT2OnRegression
from innerloop.recipes.lstm_regression import LSTMOnRegression

RECIPES = (GPT2OnRegression, LSTMOnRegression)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sigmoid(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-values))


def test_an_lstm_is_its_formula() -> None:
    torch.manual_seed(0)
    model = LSTM(3, width=4, layers=2).double()
    prompt = torch.randn(2, 5, 3, generator=seeded(), dtype=torch.float64)
    stream = prompt.numpy()
    for k, layer in enumerate(model.network):
        w, u, b, c = (weight.detach().numpy() for weight in layer.parameters())
        hidden, cell, found = np.zeros((2, 4)), np.zeros((2, 4)), []
        for token in range(5):
            gates = stream[:, token] @ w.T + b + hidden @ u.T + c
            i, f, g, o = np.split(gates, 4, axis=-1)
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            hidden = sigmoid(o) * np.tanh(cell)
            found.append(hidden)
        stream = np.stack(found, axis=1)
        np.testing.assert_allclose(model.streams(prompt)[k].detach(), stream, atol=1e-12)
    answers = stream @ model.read_out.weight.detach().numpy()[0] + model.read_out.bias.item()
    np.testing.assert_allclose(model(prompt).detach(), answers, atol=1e-12)
    torch.testing.assert_close(model.layers(prompt)[-1], model(prompt))


@pytest.mark.parametrize("kind", RECIPES)
def test_answers_come_from_the_examples_before_alone(kind: type[Any]) -> None:
    """A later example changes nothing, an own label nothing, an earlier one does."""
    recipe = kind(**{**kind.small, "warmup": 0})
    model, problem = recipe.model(seeded()), recipe.problems().sample(2, generator=seeded(1))
    problem = problem.to(torch.float32)
    y, x = problem.y.clone(), problem.x.clone()
    y[:, 1] += 1.0
    x[:, 2] += 1.0
    with torch.no_grad():
        before, after = (
            recipe.answers(model, each) for each in (problem, replace(problem, x=x, y=y))
        )
        whole = recipe.layers(model, problem)[-1]
    assert before.shape == (2, problem.n + 1)
    torch.testing.assert_close(after[:, :2], before[:, :2], rtol=0, atol=0)
    assert not torch.allclose(after[:, 2:], before[:, 2:], atol=1e-6)
    torch.testing.assert_close(whole, before[:, -1:])


@pytest.mark.parametrize("kind", RECIPES)
def test_the_loss_is_of_every_prefix(kind: type[Any]) -> None:
    recipe = kind(**{**kind.small, "warmup": 0, "kappa": 10.0})
    model, problem = recipe.model(seeded()), recipe.problems().sample(3, generator=seeded(1))
    problem = problem.to(torch.float32)
    with torch.no_grad():
        loss = float(recipe.objective().loss(model, problem))
        said = recipe.answers(model, problem).numpy()
    truth = np.concatenate([problem.y.numpy(), problem.targets.numpy()], axis=-1)
    assert loss == pytest.approx(float(((said - truth) ** 2).mean()), rel=1e-5)


def test_read_outs_at_every_prefix_are_ridge_regression() -> None:
    """scikit-learn's, at the penalty that is best on the last quarter of the prompts."""

    class Sums(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Identity()])

        def forward(self, prompt: torch.Tensor) -> torch.Tensor:
            pairs = prompt[:, 0:-1:2] * prompt[:, 1::2, :1]
            return self.layers[0](pairs.sum(dim=1, keepdim=True) * prompt[:, -1:])

    problems = LinearRegression(d=2, n=3)
    model = HookedModel.of(Sums(), problems, prompts=400, everywhere=True)
    drawn = problems.sample(400, generator=seeded())
    rows, targets = [], []
    for each in prefixes(drawn):
        moment = (each.x * each.y.unsqueeze(-1)).sum(dim=1) * each.x_query[:, 0]
        rows.append(moment.numpy())
        targets.append(each.targets[:, 0].numpy())
    features, truth = np.stack(rows, axis=1).reshape(-1, 2), np.stack(targets, axis=1).reshape(-1)
    scale = (features**2).mean() * 900
    fits = [Ridge(alpha=a * scale).fit(features[:900], truth[:900]) for a in PENALTIES]
    best = min(fits, key=lambda fit: ((fit.predict(features[900:]) - truth[900:]) ** 2).mean())
    expected = [*best.coef_, best.intercept_]
    np.testing.assert_allclose(model.read_outs[0][:, 0], expected, rtol=1e-8)


def test_steps_are_those_of_the_eigenvalues() -> None:
    """Newton leaves (1 − x²)^(2^k), gradient descent (1 − x)^k of a component."""
    x = torch.tensor([[2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    star = torch.ones(1, 2, dtype=torch.float64)
    problem = RegressionProblem(x[None], star @ x, x[None], star)
    share = 0.25  # λ = 4 and 1
    fast = _weight_errors(problem, networks.newton, 3)[:, 0].tolist()
    slow = _weight_errors(problem, networks.descent, 5)[:, 0].tolist()
    assert fast == pytest.approx([(1 - share**2) ** (2**k) for k in range(4)])
    assert slow[1:] == pytest.approx([(1 - share) ** k for k in range(1, 6)])
    assert _on_each_prompt(problem, networks.descent).passed is False
    assert networks.reached(slow, fast[3]) == 2


def test_the_order_of_convergence_down_to_a_floor() -> None:
    """Errors that square have order 2, that halve order 1; what is below the floor is not seen."""
    square = [0.9 ** (2**k) for k in range(6)]
    floor = square[4]
    spoiled = torch.tensor([*square[:5], 0.9 * square[4]], dtype=torch.float64)
    weights = networks.resampled(3, 10, seeded())
    assert weights.sum(dim=1).tolist() == pytest.approx([1.0] * 10)
    found = _orders(spoiled[:, None].expand(-1, 3), floor, weights)
    assert found is not None
    assert found == pytest.approx((2.0, 2.0, 2.0))
    half = torch.tensor([0.5**k for k in range(6)], dtype=torch.float64)
    linear = _orders(half[:, None].expand(-1, 3), 0.0, weights)
    assert linear is not None
    assert linear[0] == pytest.approx(1.0)


def test_layers_of_a_network_and_of_an_iteration() -> None:
    """What `network` reads out has the network's layers; an iteration's steps take their place."""
    sizes = {**networks.SMALL, "d": 2, "n": 3, "steps": 1}
    layers = networks.network("gpt2-regression", None, sizes, 40)
    problem = layers.drawn(5, seeded())
    assert networks.layer_shares(layers, problem).shape == (sizes["blocks"], 5)
    own = networks.in_its_place(networks.descent, 1, 4)("", None, sizes)
    expected = ran(networks.descent(problem), problem, 4)[[1, 4]]
    torch.testing.assert_close(predicted(own.model, problem), expected)
    power = problem.targets.square().mean()
    shares = networks.layer_shares(own, problem)
    torch.testing.assert_close(shares, (expected - problem.targets).square()[..., 0] / power)


def test_recorded_networks_solve_what_they_were_trained_on() -> None:
    """The file, its history and its model agree: the loss that was written is the loss it has."""
    assert not is_recorded("regression", "none")
    for name in sorted(path.stem for path in (RESULTS / "regression").glob("*.safetensors")):
        trained = recorded("regression", name)
        assert trained.final["step"] == trained.recipe.steps
        with torch.no_grad():
            loss = trained.recipe.objective().evaluate(trained.model)["loss"]
        assert loss == pytest.approx(trained.final["loss"], rel=1e-3)


def test_the_risk_of_pretraining_is_what_prompts_show() -> None:
    """Estimates are gradient descent's, moments and risks those of simulated prompts."""
    setting = Setting(2, prompts=3000, examples=12, kappa=3.0, sigma=0.5)
    spectrum = setting.spectrum.sqrt()
    problems = LinearRegression(d=2, n=12, covariance=torch.diag(setting.spectrum))
    problem = problems.sample(4, generator=seeded())
    sizes = torch.tensor([setting.step], dtype=torch.float64)
    gram = problem.x.mT @ problem.x / 12
    assert problem.weights is not None
    # Without noise the closed form is the iteration.
    exact = setting.estimates(gram, problem.weights, torch.zeros_like(problem.weights))
    units = torch.eye(2, dtype=torch.float64).expand(4, 2, 2)
    steps = ran(GradientDescent(sizes), replace(problem, x_query=units), setting.layers)
    torch.testing.assert_close(exact, steps[-1])
    risk = Risk(setting, *setting.moments(20_000, seeded()))
    a = torch.tensor([[0.9, 0.1], [-0.2, 1.1]], dtype=torch.float64)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 12, 2)) * spectrum.numpy()
    w = rng.normal(size=(20_000, 2)) / 2**0.5
    y = np.einsum("bnd,bd->bn", x, w) + 0.5 * rng.normal(size=(20_000, 12))
    found = np.zeros((20_000, 2))
    for _ in range(setting.layers):
        left = y - np.einsum("bnd,bd->bn", x, found)
        found += setting.step / 12 * np.einsum("bnd,bn->bd", x, left)
    missed = (found @ a.numpy().T - w) * spectrum.numpy()
    assert float(risk.of(a)) == pytest.approx((missed**2).sum(-1).mean() / 2, rel=0.05)
    best = minimisers(setting, 2, seeded(1))
    assert best.shape == (2, 2, 2)
    least = risk.least()
    assert all(least <= float(r) <= 1.1 * least for r in risk.of(best))
    assert least < float(risk.of(a))
    assert Lab(1, 500, seeded()).excess(setting)[0] >= Lab(1, 500, seeded()).excess(setting)[1]
