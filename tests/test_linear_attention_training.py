"""Losses computed from Gram matrices, against computations on tokens and closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor, nn

from innerloop.claims.prompts import attention, build_tokens
from innerloop.errors import InputError
from innerloop.theory.layers import LayeredLoss
from innerloop.theory.looped import LoopedLoss
from innerloop.theory.single_layer import SingleLayerLoss
from innerloop.training import kernel
from innerloop.training.full_attention import FullSampledLoss
from innerloop.training.linear_attention import (
    GaussianPrompts,
    PopulationLoss,
    SampledLoss,
    distance_to_identity,
)
from innerloop.training.stacks import FullStack, LinearStack, LoopedBlock, Weights

DENSE = torch.tensor([[2.0, 0.7, 0.1], [0.7, 0.5, -0.2], [0.1, -0.2, 1.0]], dtype=torch.float64)
TRUTH = torch.tensor([[1.0, 0.3, 0.0], [0.3, 2.0, 0.4], [0.0, 0.4, 0.5]], dtype=torch.float64)
Stack = LinearStack | LoopedBlock | FullStack


def make_generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def build_covariates(law: GaussianPrompts, gram: Tensor) -> Tensor:
    """Build contexts of d tokens with Gram matrix C G₀ Cᵀ: the loss depends on nothing else."""
    values, vectors = torch.linalg.eigh(gram.permute(2, 0, 1))
    return (law.d**0.5 * law.root @ (vectors * values.clamp(min=0).sqrt()[:, None])).mT


def build_matrices(weights: Weights) -> list[tuple[Tensor, Tensor]]:
    """Build the full (d+1)×(d+1) matrices P and Q of every layer, with gradients."""
    d, layers = weights.A.shape[-1], []
    for i, A in enumerate(weights.A):
        P, Q = A.new_zeros(d + 1, d + 1), A.new_zeros(d + 1, d + 1)
        P[d, d] = 1.0
        if weights.u is not None:
            P[d, :d] = weights.u
        if weights.B is not None and i < len(weights.B):
            P[:d, :d] = weights.B[i]
        Q[:d, :d] = A
        layers.append((P, Q))
    return layers


def compute_token_errors(
    layers: list[tuple[Tensor, Tensor]], X: Tensor, w: Tensor, q: Tensor
) -> Tensor:
    """Squared error of each prompt by equation (5) of ahn2023, computed on its tokens."""
    Z = build_tokens(X, w, q)
    for P, Q in layers:
        Z = Z + attention(Z, P, Q) / X.shape[-2]
    return (Z[..., -1, -1] + (w * q).sum(-1)) ** 2


def compute_expected_loss(
    law: GaussianPrompts, layers: list[tuple[Tensor, Tensor]], X: Tensor
) -> Tensor:
    """Mean loss over contexts, with exact expectation over w* and the query.

    The loss is quadratic in both, so the columns of the roots of their covariances suffice.
    """
    root = torch.linalg.solve_triangular(law.root.mT, law.factor, upper=True)
    total = X.new_zeros(())
    for w in (law.d**0.5 * torch.cat([root, -root], dim=1)).mT:
        for q in law.root.mT:
            errors = compute_token_errors(layers, X, w.expand(len(X), -1), q.expand(len(X), -1))
            total = total + errors.mean() / (2 * law.d)
    return total


def compute_gradient(value: Tensor, model: nn.Module) -> Tensor:
    gradients = torch.autograd.grad(value, list(model.parameters()))
    return torch.cat([gradient.flatten() for gradient in gradients])


STACKS = {
    "form (9)": LinearStack.random(3, 3, scale=0.4, generator=make_generator(1)),
    "form (13)": LinearStack.random(3, 3, moving=True, scale=0.4, generator=make_generator(2)),
    "form (13), two": LinearStack.random(3, 2, moving=True, scale=0.4, generator=make_generator(3)),
    "one layer": LinearStack.random(3, 1, moving=True, scale=0.4, generator=make_generator(4)),
    "looped": LoopedBlock.random(3, 3, scale=0.4, generator=make_generator(5)),
    "looped with u": LoopedBlock.random(3, 3, with_u=True, scale=0.4, generator=make_generator(6)),
}
LAWS: dict[str, dict[str, Any]] = {
    "isotropic": {"n": 7},
    "dense": {"n": 7, "covariance": DENSE, "truth": TRUTH},
    "n < d": {"n": 2, "covariance": DENSE, "truth": "inverse"},
}


@pytest.mark.parametrize("setting", LAWS)
@pytest.mark.parametrize("name", STACKS)
def test_loss_and_gradient_agree_with_those_on_tokens(name: str, setting: str) -> None:
    law, model = SampledLoss(d=3, batch=11, **LAWS[setting]), STACKS[name]
    batch = law.draw(make_generator())
    loss = law.loss(model, batch)
    from_tokens = compute_expected_loss(
        law, build_matrices(model.weights()), build_covariates(law, batch.gram)
    )
    torch.testing.assert_close(loss, from_tokens, rtol=1e-11, atol=0)
    parameters = [p for p in model.parameters() if p.numel()]
    ours, theirs = (torch.autograd.grad(value, parameters) for value in (loss, from_tokens))
    for found, known in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, known, rtol=1e-9, atol=1e-11 * float(known.abs().max()))


@pytest.mark.parametrize("setting", LAWS)
def test_loss_and_gradient_of_full_weights_agree_with_those_on_tokens(setting: str) -> None:
    law = FullSampledLoss(d=3, batch=9, **LAWS[setting])
    for layers in (1, 2, 3):
        model = FullStack.random(3, layers, scale=0.4, generator=make_generator(layers))
        batch = law.draw(make_generator())
        X = build_covariates(law, batch.gram[1:, 1:])
        w = torch.linalg.solve_triangular(law.root.mT, -batch.target[0, 1:], upper=True).mT
        pairs = list(zip(model.P, model.Q, strict=True))
        from_tokens = sum(
            compute_token_errors(pairs, X, w, q.expand(9, -1)).mean() for q in law.root.mT
        )
        assert isinstance(from_tokens, Tensor)
        loss = law.loss(model, batch)
        torch.testing.assert_close(loss, from_tokens, rtol=1e-11, atol=0)
        torch.testing.assert_close(
            compute_gradient(loss, model),
            compute_gradient(from_tokens, model),
            rtol=1e-9,
            atol=1e-9,
        )


@pytest.mark.parametrize("name", [*STACKS, "full"])
def test_the_transformer_of_a_stack_computes_the_same(name: str) -> None:
    """`model.transformer()`, run on tokens, makes the same errors as the equations."""
    full = FullStack.random(3, 2, scale=0.4, generator=make_generator(7))
    model: Stack = full if name == "full" else STACKS[name]
    pairs = (
        list(zip(full.P, full.Q, strict=True))
        if name == "full"
        else build_matrices(model.weights())  # pyright: ignore
    )
    X, w, q = (
        torch.randn(5, *s, generator=make_generator(8)).double() for s in ((4, 3), (3,), (3,))
    )
    transformer = model.transformer()
    stream = transformer(build_tokens(X, w, q).mT)
    predictions = -transformer.layout.read(stream, "y")[:, -1]
    errors = compute_token_errors(pairs, X, w, q)
    torch.testing.assert_close((predictions - (w * q).sum(-1)) ** 2, errors)


def test_splitting_a_batch_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    law, model = SampledLoss(d=3, n=5, batch=2000, covariance=DENSE), STACKS["form (13)"]
    batch = law.draw(make_generator())
    whole = law.loss(model, batch)
    gradient = compute_gradient(whole, model)
    monkeypatch.setattr(kernel, "_CACHED_ENTRIES", 9 * 700)
    assert [part.size for part in batch.split()] == [700, 700, 600]
    pieces = law.loss(model, batch)
    torch.testing.assert_close(pieces, whole)
    torch.testing.assert_close(compute_gradient(pieces, model), gradient)
    monkeypatch.setattr(kernel, "_EINSUM_WIDTH", 1)
    torch.testing.assert_close(compute_gradient(law.loss(model, batch), model), gradient)


def test_single_precision_agrees_to_rounding() -> None:
    model = STACKS["form (13)"]
    exact = SampledLoss(d=3, n=5, batch=500, covariance=DENSE)
    batch = exact.draw(make_generator())
    rough = SampledLoss(d=3, n=5, batch=500, covariance=DENSE, precision="float32")
    single = rough.loss(model, type(batch)(*(t.float() for t in batch)))
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact.loss(model, batch), rtol=1e-4, atol=0)


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_gram_matrices_have_the_moments_of_the_wishart_law(n: int) -> None:
    """Mean, covariances and E tr W³ of the drawn matrices, some against SciPy."""
    d, count = 3, 40_000
    G = GaussianPrompts(d=d, n=n).draw_gram(count, make_generator(n)) * n
    flat = G.reshape(d * d, count).numpy()
    mean, known = flat.mean(1), n * np.eye(d).ravel()
    assert np.all(np.abs(mean - known) <= 5 * flat.std(1) / count**0.5)
    if n >= d:
        law = scipy.stats.wishart(n, np.eye(d))
        np.testing.assert_allclose(flat.reshape(d, d, -1).var(-1), law.var(), rtol=0.08)
    spread = np.cov(flat)
    eye = np.eye(d)
    exact = n * (np.einsum("ik,jl->ijkl", eye, eye) + np.einsum("il,jk->ijkl", eye, eye))
    np.testing.assert_allclose(spread, exact.reshape(d * d, d * d), atol=0.1 * n)
    third = np.einsum("ijb,jkb,kib->b", *[G.numpy()] * 3)
    power = n * d * (n**2 + d**2 + 3 * n * d + 3 * n + 3 * d + 4)  # E tr W³
    assert abs(third.mean() - power) <= 5 * third.std() / count**0.5


@pytest.mark.parametrize(
    ("name", "layers", "moving"),
    [
        ("one layer", 1, False),
        ("form (13), two", 2, True),
        ("form (9)", 3, False),
        ("looped with u", 3, False),
    ],
)
def test_the_population_loss_is_the_mean_over_sampled_prompts(
    name: str, layers: int, moving: bool
) -> None:
    model: Any = STACKS[name]
    if name == "one layer":
        model = LinearStack(model.A)
    shared: dict[str, Any] = {"d": 3, "n": 6, "covariance": DENSE, "truth": TRUTH}
    exact = PopulationLoss(layers=layers, moving=moving, **shared).evaluate(model)
    found = SampledLoss(batch=40_000, **shared).evaluate(model)
    assert abs(found["loss"] - exact["loss"]) <= 4 * found["standard error"]
    assert found["standard error"] < 0.1 * exact["loss"]


def test_the_population_loss_agrees_with_closed_forms() -> None:
    """One layer, layers of form (9) and (13), and loops with u agree with innerloop.theory."""
    A = 0.4 * STACKS["form (9)"].A.detach()
    one = PopulationLoss(d=3, n=4, covariance=DENSE, layers=1)
    b, top = torch.tensor([0.0, 0, 0, 1]).double(), torch.cat([A[0], torch.zeros(1, 3)])
    known = SingleLayerLoss(DENSE, 4).loss(b, top)
    torch.testing.assert_close(one.loss(LinearStack(A[:1]), None), known)
    for moving, count in ((False, 3), (False, 2), (True, 2)):
        B = STACKS["form (13)"].B
        assert B is not None
        moves = B.detach()[: count - 1] if moving else None
        law = PopulationLoss(
            d=3, n=4, covariance=DENSE, truth="inverse", layers=count, moving=moving
        )
        found = law.loss(LinearStack(A[:count], moves), law.draw())
        torch.testing.assert_close(
            found, LayeredLoss(DENSE, 4, count, moving).loss(A[:count], moves)
        )
    for loops in (1, 2, 3):
        block = LoopedBlock(A[0], loops, A[1, 0])
        law = PopulationLoss(d=3, n=4, truth="inverse", layers=loops)
        known = LoopedLoss(3, 4, loops).loss(A[0], A[1, 0])
        torch.testing.assert_close(law.loss(block, law.draw()), known)


def test_a_layer_trained_on_the_population_loss_is_the_optimum_of_theorem_1() -> None:
    """L-BFGS reaches the closed form's loss to 1e-12 and its A to 1e-6."""
    law, theory = PopulationLoss(d=3, n=4, covariance=DENSE, layers=1), SingleLayerLoss(DENSE, 4)
    model = LinearStack.random(3, 1, generator=make_generator())
    optimiser = torch.optim.LBFGS(
        model.parameters(), max_iter=200, line_search_fn="strong_wolfe", tolerance_change=0
    )

    def closure() -> float:
        optimiser.zero_grad()
        loss = law.loss(model, None)
        loss.backward()
        return float(loss.detach())

    optimiser.step(closure)
    b, A = theory.optimum()
    assert law.evaluate(model)["loss"] == pytest.approx(float(theory.loss(b, A)), rel=1e-12)
    torch.testing.assert_close(model.A[0].detach(), A[:3], rtol=0, atol=1e-6)


def test_images_make_the_symmetry_of_the_distribution_exact() -> None:
    """With all images of each prompt, gradients keep the form of the weights.

    At A_i ∝ Σ⁻¹ and B_i ∝ I, every gradient is a multiple of the identity after whitening.
    """
    law = SampledLoss(d=3, n=5, covariance=DENSE, truth="inverse", batch=4, images=True)
    grams, batch = law.draw_gram(4, make_generator()), law.draw(make_generator())
    assert batch.size == 4 * 12
    mean_eigenvalues = [
        torch.linalg.eigvalsh(g.permute(2, 0, 1)).sum(0) / g.shape[-1] for g in (grams, batch.gram)
    ]
    torch.testing.assert_close(*mean_eigenvalues)
    inner = torch.tensor([-0.4, -0.9, 0.3]).double()[:, None, None] * torch.eye(3).double()
    model = LinearStack(*law.colour(Weights(inner[:2], inner[2:]))[:2])
    torch.testing.assert_close(law.whiten(model.weights()).A, inner[:2])
    law.loss(model, batch).backward()
    assert model.A.grad is not None
    assert model.B is not None
    assert model.B.grad is not None
    C = law.root
    gradients = [torch.linalg.solve(C, g) @ torch.linalg.inv(C).mT for g in model.A.grad]
    gradients += [C.mT @ g @ torch.linalg.inv(C).mT for g in model.B.grad]
    assert all(float(distance_to_identity(gradient)) < 1e-6 for gradient in gradients)
    plain = SampledLoss(d=3, n=5, covariance=DENSE, truth="inverse", batch=48)
    model.zero_grad()
    plain.loss(model, plain.draw(make_generator())).backward()
    assert (
        float(distance_to_identity(torch.linalg.solve(C, model.A.grad[0]) @ torch.linalg.inv(C).mT))
        > 0.01
    )
    with pytest.raises(InputError, match="images"):
        SampledLoss(d=12, n=20, batch=1, images=True).draw(make_generator())


def test_distance_to_the_identity() -> None:
    M = torch.randn(4, 3, 3, generator=make_generator()).double()
    for matrix in M:
        mean = matrix.trace() / 3 * torch.eye(3)
        assert float(distance_to_identity(matrix)) == pytest.approx(
            float((matrix - mean).norm() / matrix.norm())
        )
    assert float(distance_to_identity(-2.5 * torch.eye(3).double())) == pytest.approx(0, abs=1e-7)
    assert float(distance_to_identity(torch.zeros(3, 3).double())) == 1.0


def test_starting_weights_are_zero_or_near_the_model() -> None:
    zero = LinearStack.random(3, 2, moving=True, scale=0.0)
    assert not any(bool(p.any()) for p in zero.parameters())
    for model in (zero, LoopedBlock.random(3, 2, with_u=True), FullStack.random(3, 2)):
        near = model.perturb(1e-3, make_generator())
        pairs = list(zip(model.parameters(), near.parameters(), strict=True))
        assert all(0 < float((a - b).detach().abs().max()) < 1e-2 for a, b in pairs)
        assert pairs


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"d": 0}, "d must be at least 1"),
        ({"n": 0}, "n must be at least 1"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"covariance": torch.ones(2, 2)}, "positive definite"),
        ({"covariance": torch.tensor([[1.0, 0.5], [0.0, 1.0]])}, "symmetric"),
        ({"covariance": torch.eye(3)}, "must be 2×2"),
        ({"covariance": torch.full((2, 2), float("nan"))}, "finite"),
        ({"truth": -torch.eye(2)}, "positive semidefinite"),
    ],
)
def test_bad_settings_are_named(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SampledLoss(**{"d": 2, "n": 3, **setting})


def test_weights_that_do_not_fit_are_named() -> None:
    with pytest.raises(InputError, match="one matrix fewer"):
        LinearStack(torch.zeros(2, 3, 3), torch.zeros(2, 3, 3))
    with pytest.raises(InputError, match="layers must be at least 1"):
        LinearStack.random(3, 0)
    with pytest.raises(InputError, match="the model has 3 with B"):
        PopulationLoss(d=3, n=4, layers=3).loss(STACKS["form (13)"], None)
    with pytest.raises(InputError, match="more than"):
        PopulationLoss(d=5, n=10, layers=3, moving=True).draw()
