"""Learned solvers and the decoder's read-outs, against NumPy and against equivalent models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from innerloop.algorithms.lista_vm import ListaVM as Iteration
from innerloop.constructions.lista_vm import ListaVMConstruction
from innerloop.errors import InputError, OutOfRangeError
from innerloop.models.alista import Alista, analytic_weight
from innerloop.models.decoder import Decoder
from innerloop.models.lista import Lista
from innerloop.models.lista_cp import ListaCP
from innerloop.models.lista_vm import ListaVM, chebyshev_steps, spectrum_edges
from innerloop.models.unrolled import Unrolled
from innerloop.problems.sparse_recovery import SparseRecovery
from innerloop.recipes.base import train
from innerloop.recipes.gpt2 import GPT2Recipe
from innerloop.recipes.lista_vm_learned import ListaVMLearnedRecipe
from innerloop.recipes.small_transformer import SmallTransformerRecipe
from innerloop.recipes.sparse import (
    LARGE,
    OVERFLOW,
    STRETCHED_SHARE,
    HeldOutObjective,
    SparseRecipe,
    compress_errors,
    select_instances,
)

D, N, K = 7, 4, 3
GENERATOR = torch.Generator().manual_seed(5)


def soft_threshold(values: np.ndarray, theta: float) -> np.ndarray:
    return np.sign(values) * np.maximum(np.abs(values) - theta, 0)


def perturb(model: Unrolled) -> Unrolled:
    """Add noise to every weight of a model, so that none has a special value."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=GENERATOR, dtype=weight.dtype))
    return model


def apply_formula(
    model: Unrolled, x: np.ndarray, y: np.ndarray, k: int, beta: np.ndarray
) -> np.ndarray:
    """Compute layer k before its threshold, as the papers print it."""

    def as_array(weight: Tensor) -> np.ndarray:
        return weight.detach().numpy()

    if isinstance(model, Lista):
        return as_array(model.encoders[k]) @ y + as_array(model.couplings[k]) @ beta
    if isinstance(model, ListaCP):
        return beta - as_array(model.directions[k]).T @ (x @ beta - y)
    if isinstance(model, Alista):
        analytic = analytic_weight(torch.tensor(x)) if model.weight is None else model.weight
        return beta - model.steps[k].item() * as_array(analytic).T @ (x @ beta - y)
    assert isinstance(model, ListaVM)
    x = x * (np.arange(D) < (model.support or D))
    step = as_array(model.matrices()[k]) @ x.T @ (x @ beta - y) / (2 * N + 1)
    return (beta - step) * (np.arange(D) < (model.support or D))


X = SparseRecovery(d=D, n=N, sparsity=2).draw_measurements(3)
STEPS = torch.linspace(0.4, 1.4, K, dtype=torch.float64)
MODELS = {
    "lista": perturb(Lista(X, K)),
    "lista-cp": perturb(ListaCP(X, K)),
    "alista": perturb(Alista(X, K)),
    "alista, W for each X": perturb(Alista(None, K)),
    "lista-vm": perturb(ListaVM(D, STEPS)),
    "lista-vm-ss": perturb(ListaVM(D, STEPS, support=3)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_learned_solver_is_its_formula(name: str) -> None:
    """Every layer agrees on every instance of a two-dimensional batch, each with its own X."""
    model = MODELS[name]
    problem = SparseRecovery(d=D, n=N, sparsity=2).sample(2, 3, generator=GENERATOR)
    found = model.iterates(problem.x, problem.y).detach().numpy()
    assert found.shape == (K, 2, 3, D)
    for a, b in np.ndindex(2, 3):
        beta = np.zeros(D)
        for k in range(K):
            before_threshold = apply_formula(
                model, problem.x[a, b].numpy(), problem.y[a, b].numpy(), k, beta
            )
            beta = soft_threshold(before_threshold, model.thresholds[k].item())
            np.testing.assert_allclose(found[k, a, b], beta, rtol=1e-10, atol=1e-12)


def test_untrained_lista_and_lista_cp_are_ista() -> None:
    problem = SparseRecovery(d=D, n=N, sparsity=2, fixed=3).sample(5, generator=GENERATOR)
    torch.testing.assert_close(
        Lista(X, K)(problem.x, problem.y), ListaCP(X, K)(problem.x, problem.y)
    )


@pytest.mark.parametrize("count", [1, 2, 3, 7, 12, 16])
def test_chebyshev_steps_give_the_chebyshev_polynomial(count: int) -> None:
    least, largest = 0.08, 2.8
    eigenvalues = np.linspace(least, largest, 200)
    steps = chebyshev_steps(least, largest, count).numpy()
    factors = 1 - steps[:, None] * eigenvalues
    scaled = (2 * np.append(eigenvalues, 0.0) - largest - least) / (largest - least)
    values = np.polynomial.chebyshev.chebval(scaled, np.eye(count + 1)[-1])
    np.testing.assert_allclose(factors.prod(axis=0), values[:-1] / values[-1], atol=1e-9)
    # The order of the steps decides how large intermediate products become.
    worst = np.abs(np.cumprod(factors, axis=0)).max()
    assert worst <= 60
    large_first = 1 - np.sort(steps)[::-1, None] * eigenvalues
    assert count < 12 or np.abs(np.cumprod(large_first, axis=0)).max() > 1000 * worst


def test_spectrum_edges_agree_with_singular_values() -> None:
    for n, d in ((300, 600), (600, 300)):
        x = torch.randn(n, d, generator=GENERATOR, dtype=torch.float64)
        values = torch.linalg.svdvals(x).square() / (2 * n + 1)
        np.testing.assert_allclose(spectrum_edges(n, d), [values[-1], values[0]], rtol=0.15)


def test_the_analytic_weight_has_the_least_coherence() -> None:
    weight = analytic_weight(X)
    diagonal = (weight * X).sum(dim=0)
    torch.testing.assert_close(diagonal, torch.ones_like(diagonal))
    least = (weight.mT @ X).square().sum()
    for _ in range(20):
        other = weight + 0.1 * torch.randn(N, D, generator=GENERATOR, dtype=torch.float64)
        other = other / (other * X).sum(dim=0)
        assert (other.mT @ X).square().sum() > least
    with pytest.raises(OutOfRangeError, match="at most as many examples"):
        analytic_weight(X.mT)


def test_lista_vm_is_the_iteration_that_the_transformer_runs() -> None:
    """The construction, given the learned matrices and thresholds, predicts the same."""
    model = MODELS["lista-vm-ss"]
    assert isinstance(model, ListaVM)
    thresholds = model.thresholds.detach()
    problem = SparseRecovery(d=D, n=N, sparsity=2).sample(6, generator=GENERATOR)
    iteration = Iteration(model.matrices().detach(), thresholds, support=3)
    state = iteration.init(problem)
    for k in range(K):
        state = iteration.step(problem, state, k)
    beta = model(problem.x, problem.y).detach()
    torch.testing.assert_close(state[..., -1, :], beta)
    built = ListaVMConstruction(
        d=D,
        n=N,
        steps=K,
        preconditioners=model.matrices().detach(),
        threshold=thresholds,
        support=3,
    )
    decoder = Decoder(built.transformer, "constructed")
    found = decoder(built.prompt(problem))[..., -1]
    torch.testing.assert_close(found, (beta * problem.x_query.squeeze(-2)).sum(dim=-1))


def test_read_outs_of_the_decoder() -> None:
    built = ListaVMConstruction(d=3, n=2, steps=1)
    problem = SparseRecovery(d=3, n=2, sparsity=1).sample(4, generator=GENERATOR)
    prompt = built.prompt(problem)
    transformer = built.transformer
    constructed, query = (Decoder(transformer, kind) for kind in ("constructed", "query"))
    torch.testing.assert_close(query(prompt), constructed(prompt), msg="V begins as constructed")
    linear = Decoder(transformer, "linear")
    with torch.no_grad():
        linear.reading.copy_(torch.arange(8.0))
    stream = transformer(prompt)[:, 0::2].numpy()
    np.testing.assert_allclose(linear(prompt).detach().numpy(), stream @ np.arange(8.0))


def test_a_transformer_that_starts_at_the_construction_is_the_construction() -> None:
    recipe = SmallTransformerRecipe(d=3, n=2, sparsity=1, blocks=2, start="construction")
    model = recipe.build_model(GENERATOR).double()
    problem = recipe.build_distribution().sample(4, generator=GENERATOR)
    built = recipe.construction
    expected = built.decode(problem, built.transformer(built.prompt(problem)))
    torch.testing.assert_close(model(built.prompt(problem)), expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match="heads=4"):
        SmallTransformerRecipe(start="near", heads=2)


def test_training_lowers_the_loss_and_selection_helps() -> None:
    """LISTA-CP learns to solve one fixed X; a known support lowers the loss of LISTA-VM."""
    sizes: dict[str, Any] = {"d": 8, "n": 6, "sparsity": 2, "blocks": 4, "batch": 128, "steps": 40}
    cp = train("lista-cp", fixed=0, **sizes).history
    assert cp[-1]["loss"] < 0.5 * cp[0]["loss"]
    plain, selected = (
        train("lista-vm-learned", support=4, select=select, **sizes).history[-1]["loss"]
        for select in (False, True)
    )
    assert selected < 0.8 * plain
    with pytest.raises(InputError, match="select needs a support"):
        train("lista-vm-learned", select=True)


def test_a_fixed_seed_gives_all_instances_the_same_x() -> None:
    distribution = SparseRecovery(d=5, n=3, sparsity=2, fixed=4)
    problem = distribution.sample(6, generator=GENERATOR)
    assert all(torch.equal(x, distribution.draw_measurements(4)) for x in problem.x)
    assert problem.x_query.unique(dim=0).shape[0] == 6
    with pytest.raises(InputError, match="layers must be"):
        ListaVM(3, STEPS[:0])
    with pytest.raises(InputError, match="support must be"):
        ListaVM(3, STEPS, support=4)


def test_a_prompt_that_overflows_is_left_out_of_training_and_counted_in_the_loss() -> None:
    recipe = SmallTransformerRecipe(d=2, n=2, sparsity=1, blocks=1, start="construction")
    model, objective = recipe.build_model(GENERATOR), recipe.build_objective()
    batch = objective.draw(GENERATOR)
    without_overflow = objective.loss(model, batch).detach()
    overflowing = select_instances(batch, slice(None))
    overflowing.x[0] *= 1e25
    errors = objective.label_errors(model, select_instances(batch, slice(1, None))).detach()
    torch.testing.assert_close(objective.loss(model, overflowing).detach(), errors.mean())
    assert not torch.equal(without_overflow, errors.mean())
    held_out = objective.held_out
    with torch.no_grad():
        before = objective.evaluate(model)["loss"]
        held_out.x[0] *= 1e25
        after = objective.evaluate(model)["loss"]
    assert after == pytest.approx(before + OVERFLOW / len(held_out.x), rel=0.02)


@pytest.mark.parametrize("recipe", [ListaVMLearnedRecipe, SmallTransformerRecipe, GPT2Recipe])
def test_stretched_problems_scale_x_and_its_labels_in_training_only(
    recipe: type[SparseRecipe],
) -> None:
    settings: dict[str, Any] = {"d": 4, "n": 3, "sparsity": 2, "batch": 20_000}
    plain, stretched = (
        recipe(**settings, stretch=stretch).build_objective() for stretch in (1.0, 1.5)
    )
    assert isinstance(plain, HeldOutObjective)
    assert isinstance(stretched, HeldOutObjective)
    before, after = (
        objective.draw(torch.Generator().manual_seed(3)) for objective in (plain, stretched)
    )
    factors = (after.x / before.x).mean(dim=(-1, -2))
    torch.testing.assert_close(after.x, before.x * factors[:, None, None])
    assert after.weights is not None
    assert torch.equal(after.x_query, before.x_query)
    labels = np.einsum("bnd,bd->bn", after.x.numpy(), after.weights.numpy())
    np.testing.assert_allclose(after.y.numpy(), labels, rtol=1e-4, atol=1e-5)
    stretched_factors = factors[(factors - 1).abs() > 1e-5]
    assert len(stretched_factors) == pytest.approx(STRETCHED_SHARE * settings["batch"], rel=0.2)
    assert 1 < stretched_factors.min() < 1.05
    assert 1.45 < stretched_factors.max() <= 1.5 + 1e-5
    assert torch.equal(plain.held_out.x, stretched.held_out.x)


def test_large_errors_are_compressed_to_their_logarithm() -> None:
    errors = torch.tensor([0.5, LARGE, 1e9], dtype=torch.float64, requires_grad=True)
    compressed = compress_errors(errors)
    np.testing.assert_allclose(compressed.detach(), [0.5, LARGE, LARGE * (1 + np.log(1e9 / LARGE))])
    compressed.sum().backward()
    assert errors.grad is not None
    np.testing.assert_allclose(errors.grad, [1, 1, LARGE / 1e9])


def test_lista_vm_trained_on_stretched_x_stays_bounded_on_rare_ones() -> None:
    sizes: dict[str, Any] = {"d": 8, "n": 5, "sparsity": 2, "blocks": 8}
    problem = SparseRecovery(d=8, n=5, sparsity=2).sample(
        20_000, generator=torch.Generator().manual_seed(0), dtype=torch.float32
    )
    worst = []
    for stretch in (1.0, 1.4):
        model = train("lista-vm-learned", stretch=stretch, batch=128, steps=150, **sizes).model
        with torch.no_grad():
            found = model(problem.x, problem.y)
        worst.append(float((found - problem.weights).square().sum(dim=-1).max()))
    assert worst[0] > 1e3
    assert worst[1] < 50


def test_the_analytic_weight_in_float32_is_accurate_for_nearly_singular_x() -> None:
    x = torch.tensor([[1.0, 1.0], [1.0, 1.0001]])
    expected = analytic_weight(x.double()).numpy()
    np.testing.assert_allclose(analytic_weight(x).numpy(), expected, rtol=1e-6)
