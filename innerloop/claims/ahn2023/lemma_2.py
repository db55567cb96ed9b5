"""Lemma 2: the layers of a sparse linear transformer are steps of preconditioned gradient descent.

Printed    Z ← Z + (1/n) P Z M (Zᵀ Q Z) with (9), P = diag(0, …, 0, 1), Q = diag(A_i, 0), A_i
           symmetric: after layer i the query's label is −⟨x, w_i⟩ for some w_i, and
           w_{i+1} = w_i + A_i ∇R(w_i), R(w) = 1/(2n) Σ (wᵀx_j − w*ᵀx_j)²
Tested     the layers as printed, on prompts that share their context and differ in the query: more
           queries than features, so that "for some w_i" can fail; then the w_i recovered by least
           squares against the printed step, layer by layer. A_i dense, symmetric, of any sign, and
           not commuting with each other or with the covariance of the data
Beyond     with A_i that are not symmetric the step is w + A_iᵀ ∇R: told as a number
Note       "A_0 … A_k" for k layers counts one matrix too many; layer i uses A_i, i < k
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.trials import Equality

LARGEST_D, LARGEST_N, LAYERS = 5, 12, 6
Step = Callable[[Tensor, Tensor, Tensor], Tensor]
Layer = Callable[[Tensor, Tensor, Tensor], Tensor]


def printed_step(w: Tensor, A: Tensor, gradient: Tensor) -> Tensor:
    """One step of preconditioned gradient descent as the lemma prints it."""
    return w + A @ gradient


def ascending_step(w: Tensor, A: Tensor, gradient: Tensor) -> Tensor:
    return w - A @ gradient


def plain_step(w: Tensor, A: Tensor, gradient: Tensor) -> Tensor:
    return w + torch.linalg.matrix_norm(A, 2) * gradient


def layer(Z: Tensor, P: Tensor, Q: Tensor) -> Tensor:
    """One layer, equations (3) and (4): Z is (…, d+1, n+1), the last token is never a key."""
    n = Z.shape[-1] - 1
    M = torch.diag(torch.tensor([1.0] * n + [0.0], dtype=Z.dtype))
    return Z + P @ Z @ M @ (Z.mT @ Q @ Z) / n


def unmasked_layer(Z: Tensor, P: Tensor, Q: Tensor) -> Tensor:
    return Z + P @ Z @ (Z.mT @ Q @ Z) / (Z.shape[-1] - 1)


@claim(
    "ahn2023.lemma-2",
    "The layers of a linear transformer of form (9) are steps of preconditioned gradient descent "
    "on the prompt's least squares, and the iterate can be recovered after every layer.",
    where="Section 5, Lemma 2",
    kind="equality",
    quick={"trials": 300},
    full={"trials": 20_000},
    tiny={"trials": 20},
    falsified={
        "the sign of the step": {"step": ascending_step},
        "no preconditioner, only its norm": {"step": plain_step},
        "the query is a key": {"attend": unmasked_layer},
    },
)
def lemma_2(
    generator: torch.Generator, *, trials: int, step: Step = printed_step, attend: Layer = layer
) -> Evidence:
    linear = Equality("the label of every query is −⟨x, w_i⟩ with one w_i", tolerance=1e-8)
    steps = Equality("w_{i+1} = w_i + A_i ∇R(w_i), A_i symmetric", tolerance=1e-8)
    skew = Equality("w_{i+1} = w_i + A_iᵀ ∇R(w_i), A_i any", tolerance=1e-8)
    for trial in range(trials):
        d = 1 + trial % LARGEST_D
        n = int(torch.randint(1, LARGEST_N, (), generator=generator))
        layers = int(torch.randint(1, LAYERS, (), generator=generator))
        for symmetric in (True, False):
            prompt = _Prompt.draw(generator, d, n)
            added = (linear, steps if symmetric else skew)
            _check_layers(generator, prompt, layers, symmetric, added, step, attend)
    numbers = {
        "largest d": LARGEST_D,
        "largest n": LARGEST_N - 1,
        "most layers": LAYERS - 1,
        "largest difference with A_iᵀ for A_i that are not symmetric": skew.worst,
    }
    parts = [Part(printed=linear.check()), Part(printed=steps.check())]
    return Evidence(parts=parts, numbers=numbers)


class _Prompt(NamedTuple):
    """A context, the weights behind its labels, and more queries than features."""

    X: Tensor
    star: Tensor
    queries: Tensor

    @classmethod
    def draw(cls, generator: torch.Generator, d: int, n: int) -> _Prompt:
        root = _normal(generator, d, d)
        X = _normal(generator, n, d) @ root.mT
        return cls(X, _normal(generator, d), _normal(generator, 2 * d + 3, d) @ root.mT)

    def tokens(self) -> Tensor:
        """The prompt of equation (1), once per query."""
        (n, d), q = self.X.shape, len(self.queries)
        tokens = torch.cat([self.X.expand(q, n, d), self.queries[:, None]], dim=1).mT
        labels = torch.cat([self.X @ self.star, self.X.new_zeros(1)])
        return torch.cat([tokens, labels.expand(q, 1, n + 1)], dim=1)


def _check_layers(
    generator: torch.Generator,
    prompt: _Prompt,
    layers: int,
    symmetric: bool,
    trials: tuple[Equality, Equality],
    step: Step,
    attend: Layer,
) -> None:
    """Run a prompt through all layers and add each layer to the trials."""
    linear, steps = trials
    X, star, queries = prompt
    n, d = X.shape
    Z = prompt.tokens()
    P = torch.zeros(d + 1, d + 1, dtype=torch.float64)
    P[d, d] = 1.0
    w = torch.zeros(d, dtype=torch.float64)
    # Steps small enough that iterates stay of order one: rounding is not what is tested.
    scale = 0.5 / float(torch.linalg.matrix_norm(X.mT @ X / n, 2))
    for i in range(layers):
        A = _normal(generator, d, d)
        A = (A + A.mT) / 2 if symmetric else A
        A = A * scale / torch.linalg.matrix_norm(A, 2)
        Q = torch.zeros_like(P)
        Q[:d, :d] = A
        stated = step(w, A if symmetric else A.mT, X.mT @ (X @ w - X @ star) / n)
        Z = attend(Z, P, Q)
        told = -Z[:, d, n]
        # The default driver reads memory that nobody wrote: its last digits differ from run to run.
        w = torch.linalg.lstsq(queries, told, driver="gelsd").solution
        about = f"d = {d}, n = {n}, layer {i + 1}"
        linear.add(queries @ w, told, size=(d, n, i), about=about)
        steps.add(w, stated, size=(d, n, i), about=about)


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)
