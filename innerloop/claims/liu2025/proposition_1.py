"""Proposition 1: the induction of Appendix C.2, with its bounds on β and on B.

Printed    the stream before layer k holds x, y, the flags, and at odd tokens
           β^(k) = S_θ(β^(k−1) − γD_nᵀ(X_n β^(k) − y_n)); |β^(k−1)| ≤ C_β^k for a constant C_β. The
           proof: C_β = 1 + b_x² d γ_max‖M‖ + b_β b_x γ_max‖M‖; B ≥ b_β b_x + b_x√d (b_β + C_β^K)
           exceeds every |⟨β^(k), x⟩|, k ≤ K, which silences odd keys
Reading    β^(k−1) on the right, as in (4.4), which is proved by this
Tested     layers with the printed weights (last bias −θ, see liu2025.eq-4.3); the bounds along the
           iterates of random instances at every prefix, b_x and b_β from 0.01 to 10⁶, the least
           that Assumption 1 allows
Wrong      C_β: Xᵀy = XᵀXβ* brings b_x twice, and with one b_x both bounds fail for large b_x.
           C_β = 1 + b_x² d γ_max‖M‖ + b_β b_x² γ_max‖M‖ will do. Proof: with g = γ_max‖M‖,
           ‖β^(k+1)‖ ≤ (1 + g b_x²)‖β^(k)‖ + g b_x² b_β, so ‖β^(k)‖ ≤ C_β^(k−1) from β^(1) = 0 on,
           and |⟨β^(k), x⟩| ≤ b_x C_β^(K−1)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case, format_entry
from innerloop.claims.evidence import Evidence, Part, misprint
from innerloop.claims.falsifying import change_field
from innerloop.claims.liu2025 import printed
from innerloop.claims.liu2025.hard_instances import list_hard_examples
from innerloop.claims.liu2025.lemma_1 import draw_uniform
from innerloop.claims.prompts import draw_integer, draw_normal
from innerloop.claims.trials import Equality, Inequality


class Instance(NamedTuple):
    X: Tensor
    star: Tensor
    M: Tensor
    thetas: Tensor

    @property
    def bounds(self) -> tuple[float, float, float]:
        """The bounds b_x, b_β and γ_max‖M‖."""
        longest = float(self.X.norm(dim=-1).max())
        return longest, float(self.star.abs().sum()), float(torch.linalg.matrix_norm(self.M, 2))

    def grow(self, power: int) -> float:
        """The constant C_β with b_x to this power beside b_β: 1 as printed, 2 as it must be."""
        b_x, b_beta, g = self.bounds
        return 1 + (b_x**2 * len(self.star) + b_beta * b_x**power) * g

    def gate(self, power: int) -> float:
        """The least B, with C_β as in `grow`."""
        b_x, b_beta, _ = self.bounds
        grown = self.grow(power) ** len(self.thetas)
        return b_beta * b_x + b_x * len(self.star) ** 0.5 * (b_beta + grown)


class Layer(NamedTuple):
    """A layer of the printed weights: β at odd tokens after it, and what the recursion gives."""

    after: Tensor
    explicit: Tensor
    """From β^(k−1)."""
    implicit: Tensor
    """With β^(k) on the right."""
    kept: Tensor
    """How far x, y and the flags moved."""
    case: Case


class Size(NamedTuple):
    """‖β^(k)‖ and |⟨β^(k), x⟩|, each with its bound for b_x and for b_x² in C_β."""

    length: float
    balls: tuple[float, float]
    product: float
    gates: tuple[float, float]
    case: Case


class Data(NamedTuple):
    layers: list[Layer]
    sizes: list[Size]


def judge_induction(data: Data) -> Evidence:
    line = "$β^(k) = S_θ(β^(k−1) − γD_nᵀ(X_n {} − y_n))$ at odd tokens"
    implicit, explicit = (
        Equality(line.format(name), tolerance=1e-8) for name in ("β^(k)", "β^(k−1)")
    )
    kept = Equality("$x$, $y$ and the flags of the stream stay as they are", tolerance=1e-12)
    for layer in data.layers:
        explicit.add(layer.after, layer.explicit, layer.case)
        implicit.add(layer.after, layer.implicit, layer.case)
        kept.add(layer.kept, torch.zeros_like(layer.kept), layer.case)
    line = "$|β^(k−1)| ≤ C_β^k$, $C_β = 1 + (b_x² d + b_β {})γ_max‖M‖$"
    balls = [Inequality(line.format(power)) for power in ("b_x", "b_x²")]
    line = "$|⟨β^(k), x⟩| ≤ b_β b_x + b_x√d(b_β + C_β^K)$, $k ≤ K$, $C_β$ with $b_β {}$"
    gates = [Inequality(line.format(power)) for power in ("b_x", "b_x²")]
    for size in data.sizes:  # the case has the k of β^(k), which the ball calls k − 1
        for k in (0, 1):
            ball, gate = _write_bounds(size.case, k + 1)
            case = size.case.extend(k=size.case["k"] + 1)
            balls[k].add(size.length, size.balls[k], case, working=("", ball))
            gates[k].add(size.product, size.gates[k], size.case, working=("", gate))
    held = balls[1].check()
    index = Part(printed=implicit.check(), corrected=explicit.check())
    return Evidence(
        parts=[
            Part(printed=explicit.check(), reading="$β^(k−1)$ on the right, as in (4.4)"),
            Part(printed=kept.check()),
            Part(printed=held),
        ],
        errata=[
            index.as_erratum("Proposition 1, $β^(k)$ on both sides", grade="print"),
            Part(printed=balls[0].check(), corrected=held).as_erratum("proof, $C_β$ after (C.9)"),
            Part(printed=gates[0].check(), corrected=gates[1].check()).as_erratum("proof, $B$"),
            misprint(
                "proof, the recursion for $β_i$ before (C.9)",
                "the examples $1 : ⌊(i+1)/2⌋$",
                "$1 : (i−1)/2$, as in (C.12)",
                "$i = 3$ has seen one example, and $⌊(i+1)/2⌋ = 2$",
            ),
        ],
    )


def _write_bounds(case: Case, power: int) -> tuple[str, str]:
    """Write both bounds with their numbers, C_β with b_x to this power beside b_β."""
    names = ("d", "b_x", "b_β", "γ_max‖M‖", "k", "K")
    d, b_x, b_beta, g, k, K = (format_entry(case[name]) for name in names)
    other = b_x if power == 1 else f"{b_x}²"
    constant = f"(1 + ({b_x}² · {d} + {b_beta} · {other}) · {g})"
    ball = f"{constant}^{int(k) + 1}"
    return ball, f"{b_beta} · {b_x} + {b_x} · √{d} · ({b_beta} + {constant}^{K})"


@claim(
    "liu2025.proposition-1",
    "Layer by layer, odd tokens carry LISTA-VM's iterates, which stay below $C_β^k$ for a "
    "constant $C_β$.",
    where="Appendix C.2, Proposition 1",
    kind="inequality",
    hypotheses={
        "$‖x‖ ≤ b_x$, $‖β*‖₁ ≤ b_β$, no noise": "Assumption 1",
        "$C_β$ is some constant": "the proposition; the proof names one",
        "last bias $−θ$": "(C.3), which is what the MLP is for",
    },
    quick={"trials": 250},
    full={"trials": 20_000},
    tiny={"trials": 25},
    judge=judge_induction,
    falsified={
        "a layer that adds 1 to all": change_field(
            "layers",
            lambda layers: [e._replace(after=e.after + 1, kept=e.kept + 1) for e in layers],
        ),
        "iterates twice as long as they may be": change_field(
            "sizes",
            lambda sizes: [
                e._replace(length=2 * e.balls[1], product=2 * e.gates[1]) for e in sizes
            ],
        ),
    },
)
def proposition_1(generator: torch.Generator, *, trials: int) -> Data:
    data = Data([], [])
    drawn = (_draw_instance(generator, trial) for trial in range(trials))
    zero = torch.zeros(3, dtype=torch.float64)
    hard = [Instance(*each[:3], zero) for each in list_hard_examples(1, 2, 3)]
    for given in [*_list_by_hand(), *hard, *drawn]:
        found = _iterate(given)
        data.sizes.extend(_measure_sizes(given, found))
        if given.gate(2) < 1e5:  # beyond, rounding leaves too little of β x + B − B to compare
            data.layers.extend(_run_layers(generator, given, found))
    return data


def _iterate(given: Instance) -> list[Tensor]:
    """The iterates β^(1), …, β^(K+1), one row per prefix n ≥ 1."""
    y, found = given.X @ given.star, [torch.zeros_like(given.X)]
    for theta in given.thetas.tolist():
        rows = [
            printed.take_step(given.M, given.X[: n + 1], y[: n + 1], beta, theta)
            for n, beta in enumerate(found[-1])
        ]
        found.append(torch.stack(rows))
    return found


def _measure_sizes(given: Instance, found: list[Tensor]) -> list[Size]:
    K, gates = len(given.thetas), (given.gate(1), given.gate(2))
    sizes = []
    for k in range(1, K + 1):  # β^(k) is found[k − 1]
        balls = given.grow(1) ** (k + 1), given.grow(2) ** (k + 1)
        length = float(found[k - 1].norm(dim=-1).max())
        product = float((found[k - 1] @ given.X.mT).abs().max())
        sizes.append(Size(length, balls, product, gates, _describe(given).extend(k=k, K=K)))
    return sizes


def _run_layers(generator: torch.Generator, given: Instance, found: list[Tensor]) -> list[Layer]:
    """Compare layers of the printed weights with the recursion under either index."""
    (n, d), y, layers = given.X.shape, given.X @ given.star, []
    query = draw_normal(generator, d)
    H = printed.printed_prompt(given.X, y, query * given.bounds[0] / query.norm())
    others = [*range(d + 1), 2 * d + 1]
    for k, theta in enumerate(given.thetas.tolist()):
        before, H = H, printed.run_layer(H, given.M, theta, given.gate(2))
        after = printed.read_beta(H)[:, 1:].mT
        same = [
            printed.take_step(given.M, given.X[:m], y[:m], found[k][m - 1], theta, after[m - 1])
            for m in range(1, n + 1)
        ]
        kept, case = H[others] - before[others], _describe(given).extend(layer=k + 1)
        layers.append(Layer(after, found[k + 1], torch.stack(same), kept, case))
    return layers


def _list_by_hand() -> list[Instance]:
    """β^(2) is beyond C_β^3, 10⁴/3 > 12³, and b_x β^(2) beyond B: 10⁴/3 > 2 · 10³ + 12²."""
    one, zero = torch.ones(1, 1, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    return [Instance(1e4 * one, 1e3 * one[0], 1e-7 * one, zero)]


def _draw_instance(generator: torch.Generator, trial: int) -> Instance:
    d, n, K = (draw_integer(generator, 1, most) for most in (4, 6, 4))
    powers = 8 * draw_uniform(generator, 2) - 2 if trial % 2 else draw_uniform(generator, 2) - 0.5
    X, star = draw_normal(generator, n, d), draw_normal(generator, d)
    X = X / X.norm(dim=-1).max() * 10 ** powers[0]
    star[draw_integer(generator, 1, d) :] = 0
    star = star / star.abs().sum() * 10 ** powers[1]
    M = draw_normal(generator, d, d)
    size = float(12 * draw_uniform(generator)) / float(torch.linalg.matrix_norm(M, 2))
    M = M * size / 10 ** (2 * powers[0])
    return Instance(X, star, M, 0.01 * draw_uniform(generator, K) * star.abs().sum())


def _describe(given: Instance) -> Case:
    (n, d), (b_x, b_beta, g) = given.X.shape, torch.tensor(given.bounds, dtype=torch.float64)
    told: dict[str, Any] = {"b_x": b_x, "b_β": b_beta, "γ_max‖M‖": g}
    return Case(d=d, n=n, **told)
