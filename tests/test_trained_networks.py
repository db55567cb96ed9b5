"""Networks that read prompts token by token, and measurements on them, against NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.claims.recorded import RESULTS, load_recorded
from innerloop.claims.yang2025 import networks
from innerloop.claims.yang2025.bai_theorem_1 import ExcessRiskLab, Risk, Setting, fit_minimisers
from innerloop.claims.yang2025.fu_convergence import find_linear, fit_orders, weight_errors
from innerloop.errors import FileError
from innerloop.identification.hooked import PENALTIES, HookedModel
from innerloop.identification.hyper import predict_steps
from innerloop.models.lstm import LSTM
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.recipes.gpt2_regression import GPT2RegressionRecipe
from innerloop.recipes.lstm_regression import LSTMRegressionRecipe

RECIPES = (GPT2RegressionRecipe, LSTMRegressionRecipe)


def make_generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sigmoid(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-values))


def test_an_lstm_is_its_formula() -> None:
    torch.manual_seed(0)
    model = LSTM(3, width=4, layers=2).double()
    prompt = torch.randn(2, 5, 3, generator=make_generator(), dtype=torch.float64)
    stream = prompt.numpy()
    for k, layer in enumerate(model.network):
        w, u, b, c = (weight.detach().numpy() for weight in layer.parameters())
        hidden, cell, outputs = np.zeros((2, 4)), np.zeros((2, 4)), []
        for token in range(5):
            gates = stream[:, token] @ w.T + b + hidden @ u.T + c
            i, f, g, o = np.split(gates, 4, axis=-1)
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            hidden = sigmoid(o) * np.tanh(cell)
            outputs.append(hidden)
        stream = np.stack(outputs, axis=1)
        np.testing.assert_allclose(model.compute_streams(prompt)[k].detach(), stream, atol=1e-12)
    answers = stream @ model.read_out.weight.detach().numpy()[0] + model.read_out.bias.item()
    np.testing.assert_allclose(model(prompt).detach(), answers, atol=1e-12)
    torch.testing.assert_close(model.predict_layers(prompt)[-1], model(prompt))


@pytest.mark.parametrize("kind", RECIPES)
def test_answers_depend_on_earlier_examples_only(kind: type[Any]) -> None:
    """The answer at an example ignores its own label and later examples, not earlier ones."""
    recipe = kind(**{**kind.small, "warmup": 0})
    model, problem = (
        recipe.build_model(make_generator()),
        recipe.build_distribution().sample(2, generator=make_generator(1)),
    )
    problem = problem.to(torch.float32)
    y, x = problem.y.clone(), problem.x.clone()
    y[:, 1] += 1.0
    x[:, 2] += 1.0
    with torch.no_grad():
        before, after = (
            recipe.predict_prefixes(model, instance)
            for instance in (problem, replace(problem, x=x, y=y))
        )
        whole = recipe.predict_layers(model, problem)[-1]
    assert before.shape == (2, problem.n + 1)
    torch.testing.assert_close(after[:, :2], before[:, :2], rtol=0, atol=0)
    assert not torch.allclose(after[:, 2:], before[:, 2:], atol=1e-6)
    torch.testing.assert_close(whole, before[:, -1:])


@pytest.mark.parametrize("kind", RECIPES)
def test_the_loss_is_the_mean_over_every_prefix(kind: type[Any]) -> None:
    recipe = kind(**{**kind.small, "warmup": 0, "kappa": 10.0})
    model, problem = (
        recipe.build_model(make_generator()),
        recipe.build_distribution().sample(3, generator=make_generator(1)),
    )
    problem = problem.to(torch.float32)
    with torch.no_grad():
        loss = float(recipe.build_objective().loss(model, problem))
        predictions = recipe.predict_prefixes(model, problem).numpy()
    truth = np.concatenate([problem.y.numpy(), problem.targets.numpy()], axis=-1)
    assert loss == pytest.approx(float(((predictions - truth) ** 2).mean()), rel=1e-5)


def test_read_outs_at_every_prefix_are_ridge_regression() -> None:
    """They equal scikit-learn's ridge at the penalty that is best on held-out prompts."""

    class Sums(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Identity()])

        def forward(self, prompt: torch.Tensor) -> torch.Tensor:
            pairs = prompt[:, 0:-1:2] * prompt[:, 1::2, :1]
            return self.layers[0](pairs.sum(dim=1, keepdim=True) * prompt[:, -1:])

    problems = LinearRegression(d=2, n=3)
    model = HookedModel.fit(Sums(), problems, prompts=400, everywhere=True)
    sample = problems.sample(400, generator=make_generator())
    rows, targets = [], []
    for prefix in sample.prefixes():
        moment = (prefix.x * prefix.y.unsqueeze(-1)).sum(dim=1) * prefix.x_query[:, 0]
        rows.append(moment.numpy())
        targets.append(prefix.targets[:, 0].numpy())
    features, truth = np.stack(rows, axis=1).reshape(-1, 2), np.stack(targets, axis=1).reshape(-1)
    scale = (features**2).mean() * 900
    fits = [Ridge(alpha=a * scale).fit(features[:900], truth[:900]) for a in PENALTIES]
    best = min(fits, key=lambda fit: ((fit.predict(features[900:]) - truth[900:]) ** 2).mean())
    expected = [*best.coef_, best.intercept_]
    np.testing.assert_allclose(model.read_outs[0][:, 0], expected, rtol=1e-8)


def test_errors_per_step_follow_from_the_eigenvalues() -> None:
    """After k steps, Newton leaves (1 − s²)^(2^k) of a component, gradient descent (1 − s)^k."""
    x = torch.tensor([[2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    star = torch.ones(1, 2, dtype=torch.float64)
    problem = RegressionProblem(x[None], star @ x, x[None], star)
    share = 0.25  # λ = 4 and 1
    fast = weight_errors(problem, networks.newton_iteration, 3)[:, 0].tolist()
    slow = weight_errors(problem, networks.gradient_descent, 5)[:, 0].tolist()
    assert fast == pytest.approx([(1 - share**2) ** (2**k) for k in range(4)])
    assert slow[1:] == pytest.approx([(1 - share) ** k for k in range(1, 6)])
    assert bool(find_linear(problem).all())
    assert networks.first_below(slow, fast[3]) == 2


def test_the_order_of_convergence_down_to_a_floor() -> None:
    """Squaring errors have order 2, halving ones order 1; errors below the floor are ignored."""
    square = [0.9 ** (2**k) for k in range(6)]
    floor = square[4]
    stalled = torch.tensor([*square[:5], 0.9 * square[4]], dtype=torch.float64)
    weights = networks.draw_bootstrap_weights(3, 10, make_generator())
    assert weights.sum(dim=1).tolist() == pytest.approx([1.0] * 10)
    found = fit_orders(stalled[:, None].expand(-1, 3), floor, weights)
    assert found is not None
    assert found == pytest.approx((2.0, 2.0, 2.0))
    half = torch.tensor([0.5**k for k in range(6)], dtype=torch.float64)
    linear = fit_orders(half[:, None].expand(-1, 3), 0.0, weights)
    assert linear is not None
    assert linear[0] == pytest.approx(1.0)


def test_errors_of_layers_are_shares_of_the_labels_power() -> None:
    sizes = {**networks.SMALL_SIZES, "d": 2, "n": 3, "steps": 1}
    layers = networks.load_network("gpt2-regression", None, sizes, 40)
    problem = layers.draw_problems(5, make_generator())
    assert networks.layer_error_shares(layers, problem).shape == (sizes["blocks"], 5)
    expected = predict_steps(networks.gradient_descent(problem), problem, 4)
    power = problem.targets.square().mean()
    shares = networks.step_error_shares(networks.gradient_descent, problem, 4)
    torch.testing.assert_close(shares, (expected - problem.targets).square()[..., 0] / power)


def test_recorded_networks_solve_what_they_were_trained_on() -> None:
    """The model in a recorded file has the loss that the file's history records."""
    with pytest.raises(FileError, match=r"recorded weights regression/none.safetensors are not"):
        load_recorded("regression", "none")
    for name in sorted(path.stem for path in (RESULTS / "regression").glob("*.safetensors")):
        trained = load_recorded("regression", name)
        assert trained.final["step"] == trained.recipe.steps
        with torch.no_grad():
            loss = trained.recipe.build_objective().evaluate(trained.model)["loss"]
        assert loss == pytest.approx(trained.final["loss"], rel=1e-3)


def test_the_risk_of_pretraining_agrees_with_simulated_prompts() -> None:
    """Closed-form estimates equal gradient descent; risks equal those of simulated prompts."""
    setting = Setting(2, prompts=3000, examples=12, kappa=3.0, sigma=0.5)
    spectrum = setting.spectrum.sqrt()
    problems = LinearRegression(d=2, n=12, covariance=torch.diag(setting.spectrum))
    problem = problems.sample(4, generator=make_generator())
    sizes = torch.tensor([setting.step], dtype=torch.float64)
    gram = problem.x.mT @ problem.x / 12
    assert problem.weights is not None
    # Without noise the closed form is the iteration.
    exact = setting.estimates(gram, problem.weights, torch.zeros_like(problem.weights))
    units = torch.eye(2, dtype=torch.float64).expand(4, 2, 2)
    steps = predict_steps(GradientDescent(sizes), replace(problem, x_query=units), setting.layers)
    torch.testing.assert_close(exact, steps[-1])
    risk = Risk(setting, *setting.moments(20_000, make_generator()))
    a = torch.tensor([[0.9, 0.1], [-0.2, 1.1]], dtype=torch.float64)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 12, 2)) * spectrum.numpy()
    w = rng.normal(size=(20_000, 2)) / 2**0.5
    y = np.einsum("bnd,bd->bn", x, w) + 0.5 * rng.normal(size=(20_000, 12))
    estimates = np.zeros((20_000, 2))
    for _ in range(setting.layers):
        residuals = y - np.einsum("bnd,bd->bn", x, estimates)
        estimates += setting.step / 12 * np.einsum("bnd,bn->bd", x, residuals)
    errors = (estimates @ a.numpy().T - w) * spectrum.numpy()
    assert float(risk.evaluate(a)) == pytest.approx((errors**2).sum(-1).mean() / 2, rel=0.05)
    best = fit_minimisers(setting, 2, make_generator(1))
    assert best.shape == (2, 2, 2)
    least = risk.least_risk()
    assert all(least <= float(r) <= 1.1 * least for r in risk.evaluate(best))
    assert least < float(risk.evaluate(a))
    assert (
        ExcessRiskLab(1, 500, make_generator()).excess(setting)[0]
        >= ExcessRiskLab(1, 500, make_generator()).excess(setting)[1]
    )
