"""Theorem 4.1 (Theorem C.1): every odd token of every layer carries LISTA-VM's iterate.

Printed    there are parameters such that for all layers k and prefixes n, with M^(k) = γ^(k) M^V,
           β_{2n+1} ← S_θ(β_{2n+1} − 1/(2n+1) M X_nᵀ (X_n β_{2n+1} − y_n))                    (4.4)
           Appendix C gives the parameters: four heads (C.1) with M₁^Q = −I, M₁^V = γM^V, …, B from
           the bounds on x and β*, and the MLP (C.2). β is addressed as rows d+1 … 2d+1 of a token
           (Section 4.3) or d+2 … 2d+1 (Theorem C.1). The first line of (C.12) divides only the
           term in XᵀXβ by i
Tested     the built transformer `lista-vm`, and the printed weights run as Definitions 3.1 and 3.2
           have them: each layer's step from what the stream held before it, at every odd token.
           M dense and asymmetric, anisotropic x, n < d and n > d, with and without noise in y
Correction the last bias of (C.2) is −θ; rows d+2 … 2d+1; both terms of (C.12) over i
Beyond     n = 0, the first token, which has seen no label: its β stays S_θ(0) = 0
Note       (C.5), (C.6), (C.8) and (C.10) print the key's x with the query's index i; (C.13)
           gives an even token label 0, flag 1 and one row too many: it keeps its y and flag 0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.liu2025 import printed
from innerloop.claims.liu2025.printed import soft_threshold
from innerloop.claims.trials import Equality
from innerloop.constructions.lista_vm import ListaVMConstruction
from innerloop.problems.linear_regression import RegressionProblem

LARGEST_D, LARGEST_N, LAYERS = 6, 9, 4
Step = Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]
FORMS = (
    "some parameters give (4.4), every layer k and prefix n",
    "the parameters of Appendix C, (C.1) and (C.2), give (4.4)",
    "(C.1) and (C.2) with last bias −θ give (4.4)",
    "rows d+1 … 2d+1 of a token are its β, d numbers",
    "rows d+2 … 2d+1 of a token are its β, d numbers",
    "first line of (C.12): the term in y is not divided by i",
    "(C.12) with both terms divided by i",
)


def stated_step(beta: Tensor, M: Tensor, X: Tensor, y: Tensor, theta: float) -> Tensor:
    """The stated step (4.4) for a prefix X, y of n examples."""
    return soft_threshold(beta - M @ X.mT @ (X @ beta - y) / (2 * len(y) + 1), theta)


def transposed_step(beta: Tensor, M: Tensor, X: Tensor, y: Tensor, theta: float) -> Tensor:
    return stated_step(beta, M.mT, X, y, theta)


def evenly_divided_step(beta: Tensor, M: Tensor, X: Tensor, y: Tensor, theta: float) -> Tensor:
    return soft_threshold(beta - M @ X.mT @ (X @ beta - y) / max(2 * len(y), 1), theta)


def undivided_step(beta: Tensor, M: Tensor, X: Tensor, y: Tensor, theta: float) -> Tensor:
    """The step of (C.12), first line, as printed."""
    moved = beta - M @ X.mT @ X @ beta / (2 * len(y) + 1) + M @ X.mT @ y
    return soft_threshold(moved, theta)


class _Instance(NamedTuple):
    X: Tensor
    y: Tensor
    query: Tensor
    matrices: Tensor
    thetas: Tensor
    bound: float

    @property
    def size(self) -> tuple[int, int]:
        return self.X.shape[1], self.X.shape[0]


@claim(
    "liu2025.theorem-4.1",
    "A decoder with four heads and the MLP of (C.2) in each layer runs LISTA-VM: after layer k, "
    "odd token 2n+1 carries the k-th iterate of the first n examples, for every n.",
    where="Section 4.3, Theorem 4.1; Appendix C.1 and C.2, Theorem C.1",
    kind="equality",
    quick={"trials": 120},
    full={"trials": 10_000},
    tiny={"trials": 10},
    falsified={
        "Mᵀ in place of M": {"step": transposed_step},
        "1/(2n) in place of 1/(2n + 1)": {"step": evenly_divided_step},
        "β one row further down": {"first": 1},
    },
)
def theorem_4_1(
    generator: torch.Generator, *, trials: int, step: Step = stated_step, first: int = 0
) -> Evidence:
    found = [Equality(form, tolerance=1e-10) for form in FORMS]
    for trial in range(trials):
        instance = _smallest() if trial == 0 else _draw_instance(generator, trial)
        _check_construction(instance, trial, found[0], step)
        _check_printed_weights(instance, trial, 1.0, [(found[1], step)])
        corrected = [(found[2], step), (found[5], undivided_step), (found[6], step)]
        _check_printed_weights(instance, trial, -1.0, corrected)
        _address(instance, trial, found[3], found[4], first)
    checks = [each.check() for each in found]
    return Evidence(
        parts=[
            Part(printed=checks[0]),
            Part(printed=checks[1], corrected=checks[2]),
            *(Part(printed=checks[k], corrected=checks[k + 1], matters="print") for k in (3, 5)),
        ],
        numbers={
            "largest d": LARGEST_D,
            "largest N": LARGEST_N,
            "most layers": LAYERS,
            "steps of odd tokens tested with the built weights": found[0].cases,
        },
    )


def _check_construction(instance: _Instance, trial: int, found: Equality, step: Step) -> None:
    """Check every layer of the construction, from its own stream; θ is the same for all layers."""
    (d, n), layers = instance.size, len(instance.thetas)
    problem = RegressionProblem.from_arrays(instance.X, instance.y, instance.query)
    built = ListaVMConstruction(
        d=d,
        n=n,
        steps=layers,
        threshold=float(instance.thetas[0]),
        preconditioners=instance.matrices,
        bound=1e6,
    )
    trace = built.transformer.trace(built.prompt(problem))
    instance = instance._replace(thetas=instance.thetas[:1].expand(layers))
    for k in range(layers):
        before, after = (trace[k + j]["beta"][0::2].mT for j in (0, 1))
        _compare(instance, (trial, k), before, after, found, step)


def _check_printed_weights(
    instance: _Instance, trial: int, last: float, tried: list[tuple[Equality, Step]]
) -> None:
    """Check every layer with the weights of Appendix C, the last bias being `last`·θ."""
    d, _ = instance.size
    rows = slice(d + 1, 2 * d + 1)
    H = printed.printed_prompt(instance.X, instance.y, instance.query)
    for k, theta in enumerate(instance.thetas.tolist()):
        heads = printed.printed_heads(d, instance.matrices[k], instance.bound)
        after = printed.apply_mlp(printed.attend(H, heads), printed.printed_units(d, theta, last))
        for found, step in tried:
            _compare(instance, (trial, k), H[rows, 0::2], after[rows, 0::2], found, step)
        H = after


def _compare(
    instance: _Instance,
    place: tuple[int, int],
    before: Tensor,
    after: Tensor,
    found: Equality,
    step: Step,
) -> None:
    """Compare one layer at every odd token: columns n = 0 … N are the prefixes."""
    (trial, k), (d, N) = place, instance.size
    M, theta = instance.matrices[k], float(instance.thetas[k])
    for n in range(N + 1):
        wanted = step(before[:, n], M, instance.X[:n], instance.y[:n], theta)
        values = [f"{float(part[0]):.3g}" for part in (wanted, after[:, n])]
        about = f"d = {d}, N = {N}, n = {n}, layer {k + 1}, θ = {theta:.3g}"
        if trial == 0:
            about += ", x = 1, y = 2, M = 1, β = 0"
        about += f", wanted {values[0]}, found {values[1]}"
        found.add(after[:, n], wanted, size=(d, N, trial, k, -n), about=about)


def _address(instance: _Instance, trial: int, told: Equality, proper: Equality, first: int) -> None:
    """Check which rows hold β, on a prompt whose β is known."""
    d, N = instance.size
    H = printed.printed_prompt(instance.X, instance.y, instance.query)
    beta = torch.arange(1.0, d + 1, dtype=torch.float64)
    H[d + 1 : 2 * d + 1] = beta[:, None]
    for trial_of, start in ((told, d + 1), (proper, d + 2 + first)):
        rows = H[start - 1 : 2 * d + 1, 0]  # 1-based, both ends included
        about = f"d = {d}: rows {start} … {2 * d + 1} are {len(rows)} numbers for {d}"
        padded = torch.cat([rows, rows.new_zeros(max(0, d + 1 - len(rows)))])
        wanted = torch.cat([beta, beta.new_zeros(1)])
        trial_of.add(padded[: d + 1], wanted, size=(d, N, trial), about=about)


def _smallest() -> _Instance:
    """An instance with d = N = 1, one layer, small whole numbers, to check by hand."""
    one = torch.ones(1, 1, dtype=torch.float64)
    return _Instance(one, 2 * one[0], one[0], one[None], one[0], 100.0)


def _draw_instance(generator: torch.Generator, trial: int) -> _Instance:
    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    d = 1 + trial % LARGEST_D
    N = int(torch.randint(1, LARGEST_N + 1, (), generator=generator))
    layers = int(torch.randint(1, LAYERS + 1, (), generator=generator))
    scales = torch.linspace(0.5, 2.0, d, dtype=torch.float64)
    X, query = normal(N, d) * scales, normal(d) * scales
    star = normal(d) * (torch.rand(d, generator=generator) < 0.5)
    y = X @ star + (0.3 * normal(N) if trial % 2 else 0.0)
    top = float(torch.linalg.matrix_norm(X, 2)) ** 2 / (2 * N + 1)
    matrices = normal(layers, d, d) / (top * d**0.5)
    thetas = 0.3 * torch.rand(layers, generator=generator, dtype=torch.float64)
    # The printed bound: B ≥ b_β b_x + b_x √d (b_β + C_β^K).
    b_x, b_beta = float(torch.cat([X, query[None]]).norm(dim=1).max()), float(star.abs().sum())
    norm = float(torch.linalg.matrix_norm(matrices, 2).max())
    grown = (1 + b_x**2 * d * norm + b_beta * b_x * norm) ** layers
    bound = b_beta * b_x + b_x * d**0.5 * (b_beta + grown)
    return _Instance(X, y, query, matrices, thetas, bound)
