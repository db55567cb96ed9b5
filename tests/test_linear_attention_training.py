"""The objective by Gram matrices, against tokens in the package's transformer and closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor, nn

from innerloop.claims.prompts import attention, tokens
from innerloop.errors import InputError
from innerloop.theory.layers import Layers
from innerloop.theory.looped import Looped
from innerloop.theory.single_layer import SingleLayer
from innerloop.training import kernel
from innerloop.training.full_attention import FullSampledLoss
from innerloop.training.linear_attention import (
    GaussianPrompts,
    PopulationLoss,
    SampledLoss,
    distance,
)
from innerloop.training.stacks import FullStack, LinearStack, LoopedBlock, Weights

DENSE = torch.tensor([[2.0, 0.7, 0.1], [0.7, 0.5, -0.2], [0.1, -0.2, 1.0]], dtype=torch.float64)
TRUTH = torch.tensor([[1.0, 0.3, 0.0], [0.3, 2.0, 0.4], [0.0, 0.4, 0.5]], dtype=torch.float64)
Stack = LinearStack | LoopedBlock | FullStack


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def covariates(law: GaussianPrompts, gram: Tensor) -> Tensor:
    """Contexts of d tokens whose Gram matrix is C G_0 Cᵀ: nothing else of them matters."""
    values, vectors = torch.linalg.eigh(gram.permute(2, 0, 1))
    return (law.d**0.5 * law.root @ (vectors * values.clamp(min=0).sqrt()[:, None])).mT


def printed(weights: Weights) -> list[tuple[Tensor, Tensor]]:
    """P and Q of every layer, as matrices of (d+1)² entries that the tape sees."""
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


def token_errors(layers: list[tuple[Tensor, Tensor]], X: Tensor, w: Tensor, q: Tensor) -> Tensor:
    """(5) of ahn2023 from the equations, token by token, for one query of each prompt."""
    Z = tokens(X, w, q)
    for P, Q in layers:
        Z = Z + attention(Z, P, Q) / X.shape[-2]
    return (Z[..., -1, -1] + (w * q).sum(-1)) ** 2


def expected(law: GaussianPrompts, layers: list[tuple[Tensor, Tensor]], X: Tensor) -> Tensor:
    """The mean over contexts, exactly over w* and the query: both at their roots' columns."""
    root = torch.linalg.solve_triangular(law.root.mT, law.factor, upper=True)
    total = X.new_zeros(())
    for w in (law.d**0.5 * torch.cat([root, -root], dim=1)).mT:
        for q in law.root.mT:
            errors = token_errors(layers, X, w.expand(len(X), -1), q.expand(len(X), -1))
            total = total + errors.mean() / (2 * law.d)
    return total


def slopes(value: Tensor, model: nn.Module) -> Tensor:
    found = torch.autograd.grad(value, list(model.parameters()))
    return torch.cat([slope.flatten() for slope in found])


STACKS = {
    "form (9)": LinearStack.random(3, 3, scale=0.4, generator=generator(1)),
    "form (13)": LinearStack.random(3, 3, moving=True, scale=0.4, generator=generator(2)),
    "form (13), two": LinearStack.random(3, 2, moving=True, scale=0.4, generator=generator(3)),
    "one layer": LinearStack.random(3, 1, moving=True, scale=0.4, generator=generator(4)),
    "looped": LoopedBlock.random(3, 3, scale=0.4, generator=generator(5)),
    "looped with u": LoopedBlock.random(3, 3, with_u=True, scale=0.4, generator=generator(6)),
}
LAWS: dict[str, dict[str, Any]] = {
    "isotropic": {"n": 7},
    "dense": {"n": 7, "covariance": DENSE, "truth": TRUTH},
    "n < d": {"n": 2, "covariance": DENSE, "truth": "inverse"},
}


@pytest.mark.parametrize("setting", LAWS)
@pytest.mark.parametrize("name", STACKS)
def test_loss_and_gradient_are_those_of_the_tokens(name: str, setting: str) -> None:
    law, model = SampledLoss(d=3, batch=11, **LAWS[setting]), STACKS[name]
    batch = law.draw(generator())
    loss = law.loss(model, batch)
    plain = expected(law, printed(model.weights()), covariates(law, batch.gram))
    torch.testing.assert_close(loss, plain, rtol=1e-11, atol=0)
    used = [p for p in model.parameters() if p.numel()]
    ours, theirs = (torch.autograd.grad(value, used) for value in (loss, plain))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11 * float(other.abs().max()))


@pytest.mark.parametrize("setting", LAWS)
def test_full_weights_too(setting: str) -> None:
    law = FullSampledLoss(d=3, batch=9, **LAWS[setting])
    for layers in (1, 2, 3):
        model = FullStack.random(3, layers, scale=0.4, generator=generator(layers))
        batch = law.draw(generator())
        X = covariates(law, batch.gram[1:, 1:])
        w = torch.linalg.solve_triangular(law.root.mT, -batch.target[0, 1:], upper=True).mT
        pairs = list(zip(model.P, model.Q, strict=True))
        plain = sum(token_errors(pairs, X, w, q.expand(9, -1)).mean() for q in law.root.mT)
        assert isinstance(plain, Tensor)
        loss = law.loss(model, batch)
        torch.testing.assert_close(loss, plain, rtol=1e-11, atol=0)
        torch.testing.assert_close(slopes(loss, model), slopes(plain, model), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [*STACKS, "full"])
def test_its_transformer_computes_the_same(name: str) -> None:
    """The package's own machine, on tokens, with the weights that were trained."""
    full = FullStack.random(3, 2, scale=0.4, generator=generator(7))
    model: Stack = full if name == "full" else STACKS[name]
    pairs = list(zip(full.P, full.Q, strict=True)) if name == "full" else printed(model.weights())  # pyright: ignore
    X, w, q = (torch.randn(5, *s, generator=generator(8)).double() for s in ((4, 3), (3,), (3,)))
    transformer = model.transformer()
    stream = transformer(tokens(X, w, q).mT)
    said = -transformer.layout.read(stream, "y")[:, -1]
    errors = token_errors(pairs, X, w, q)
    torch.testing.assert_close((said - (w * q).sum(-1)) ** 2, errors)


def test_a_batch_in_pieces_is_the_same_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    law, model = SampledLoss(d=3, n=5, batch=2000, covariance=DENSE), STACKS["form (13)"]
    batch = law.draw(generator())
    whole = law.loss(model, batch)
    slope = slopes(whole, model)
    monkeypatch.setattr(kernel, "_CLOSE", 9 * 700)
    assert [part.size for part in batch.cut()] == [700, 700, 600]
    pieces = law.loss(model, batch)
    torch.testing.assert_close(pieces, whole)
    torch.testing.assert_close(slopes(pieces, model), slope)
    monkeypatch.setattr(kernel, "_WIDE", 1)
    torch.testing.assert_close(slopes(law.loss(model, batch), model), slope)


def test_single_precision_agrees_to_rounding() -> None:
    model = STACKS["form (13)"]
    exact = SampledLoss(d=3, n=5, batch=500, covariance=DENSE)
    batch = exact.draw(generator())
    rough = SampledLoss(d=3, n=5, batch=500, covariance=DENSE, precision="float32")
    single = rough.loss(model, type(batch)(*(t.float() for t in batch)))
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact.loss(model, batch), rtol=1e-4, atol=0)


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_gram_matrices_have_the_moments_of_the_wishart_law(n: int) -> None:
    """Mean and all covariances against SciPy's, within 5 standard errors."""
    d, count = 3, 40_000
    G = GaussianPrompts(d=d, n=n).gram(count, generator(n)) * n
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
def test_the_population_loss_is_the_mean_of_drawn_prompts(
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


def test_the_population_loss_is_what_theory_has() -> None:
    """One layer, layers of form (9) and (13), loops with u: each by its own closed form."""
    A = 0.4 * STACKS["form (9)"].A.detach()
    one = PopulationLoss(d=3, n=4, covariance=DENSE, layers=1)
    b, top = torch.tensor([0.0, 0, 0, 1]).double(), torch.cat([A[0], torch.zeros(1, 3)])
    known = SingleLayer(DENSE, 4).loss(b, top)
    torch.testing.assert_close(one.loss(LinearStack(A[:1]), None), known)
    for moving, count in ((False, 3), (False, 2), (True, 2)):
        B = STACKS["form (13)"].B
        assert B is not None
        moves = B.detach()[: count - 1] if moving else None
        law = PopulationLoss(
            d=3, n=4, covariance=DENSE, truth="inverse", layers=count, moving=moving
        )
        found = law.loss(LinearStack(A[:count], moves), law.draw())
        torch.testing.assert_close(found, Layers(DENSE, 4, count, moving).loss(A[:count], moves))
    for loops in (1, 2, 3):
        block = LoopedBlock(A[0], loops, A[1, 0])
        law = PopulationLoss(d=3, n=4, truth="inverse", layers=loops)
        known = Looped(3, 4, loops).loss(A[0], A[1, 0])
        torch.testing.assert_close(law.loss(block, law.draw()), known)


def test_a_layer_trained_on_the_population_loss_is_theorem_1_s() -> None:
    """Within 1e-6 of the closed form's loss: 1e-12, and its A to 1e-6."""
    law, S = PopulationLoss(d=3, n=4, covariance=DENSE, layers=1), SingleLayer(DENSE, 4)
    model = LinearStack.random(3, 1, generator=generator())
    optimiser = torch.optim.LBFGS(
        model.parameters(), max_iter=200, line_search_fn="strong_wolfe", tolerance_change=0
    )

    def closure() -> float:
        optimiser.zero_grad()
        loss = law.loss(model, None)
        loss.backward()
        return float(loss.detach())

    optimiser.step(closure)
    b, A = S.optimum()
    assert law.evaluate(model)["loss"] == pytest.approx(float(S.loss(b, A)), rel=1e-12)
    torch.testing.assert_close(model.A[0].detach(), A[:3], rtol=0, atol=1e-6)


def test_images_make_the_symmetry_of_the_law_exact() -> None:
    """Mean and variance are kept; at A_i ∝ Σ⁻¹, B_i ∝ I every slope is a multiple of theirs."""
    law = SampledLoss(d=3, n=5, covariance=DENSE, truth="inverse", batch=4, images=True)
    few, batch = law.gram(4, generator()), law.draw(generator())
    assert batch.size == 4 * 12
    kept = [
        torch.linalg.eigvalsh(g.permute(2, 0, 1)).sum(0) / g.shape[-1] for g in (few, batch.gram)
    ]
    torch.testing.assert_close(*kept)
    inner = torch.tensor([-0.4, -0.9, 0.3]).double()[:, None, None] * torch.eye(3).double()
    model = LinearStack(*law.coloured(Weights(inner[:2], inner[2:]))[:2])
    torch.testing.assert_close(law.whitened(model.weights()).A, inner[:2])
    law.loss(model, batch).backward()
    assert model.A.grad is not None
    assert model.B is not None
    assert model.B.grad is not None
    C = law.root
    sides = [torch.linalg.solve(C, g) @ torch.linalg.inv(C).mT for g in model.A.grad]
    sides += [C.mT @ g @ torch.linalg.inv(C).mT for g in model.B.grad]
    assert all(float(distance(side)) < 1e-6 for side in sides)
    plain = SampledLoss(d=3, n=5, covariance=DENSE, truth="inverse", batch=48)
    model.zero_grad()
    plain.loss(model, plain.draw(generator())).backward()
    assert float(distance(torch.linalg.solve(C, model.A.grad[0]) @ torch.linalg.inv(C).mT)) > 0.01
    with pytest.raises(InputError, match="images"):
        SampledLoss(d=12, n=20, batch=1, images=True).draw(generator())


def test_distance_to_the_identity() -> None:
    M = torch.randn(4, 3, 3, generator=generator()).double()
    for one in M:
        mean = one.trace() / 3 * torch.eye(3)
        assert float(distance(one)) == pytest.approx(float((one - mean).norm() / one.norm()))
    assert float(distance(-2.5 * torch.eye(3).double())) == pytest.approx(0, abs=1e-7)
    assert float(distance(torch.zeros(3, 3).double())) == 1.0


def test_starts() -> None:
    zero = LinearStack.random(3, 2, moving=True, scale=0.0)
    assert not any(bool(p.any()) for p in zero.parameters())
    for model in (zero, LoopedBlock.random(3, 2, with_u=True), FullStack.random(3, 2)):
        near = model.near(1e-3, generator())
        pairs = list(zip(model.parameters(), near.parameters(), strict=True))
        assert all(0 < float((a - b).detach().abs().max()) < 1e-2 for a, b in pairs)
        assert pairs


@pytest.mark.parametrize(
    ("setting", "said"),
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
def test_bad_settings_are_said(setting: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        SampledLoss(**{"d": 2, "n": 3, **setting})


def test_weights_that_do_not_fit_are_said() -> None:
    with pytest.raises(InputError, match="one less than A"):
        LinearStack(torch.zeros(2, 3, 3), torch.zeros(2, 3, 3))
    with pytest.raises(InputError, match="layers must be at least 1"):
        LinearStack.random(3, 0)
    with pytest.raises(InputError, match="the model has 3 with B"):
        PopulationLoss(d=3, n=4, layers=3).loss(STACKS["form (13)"], None)
    with pytest.raises(InputError, match="more than"):
        PopulationLoss(d=5, n=10, layers=3, moving=True).draw()
