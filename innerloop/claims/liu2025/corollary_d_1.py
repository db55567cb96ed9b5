"""Corollary D.1: with the support known to lie in a set 𝕊, d gives way to |𝕊|.

Printed    there are parameters such that for n ≥ N_0^S, with probability 1 − δ,
           ‖β^(K)_{2n+1} − β*‖ ≤ c₁ e^(−α_n^S K), where β^(K)_{2n+1} stands for what H^(K+1), after
           K layers, holds; N_0^S and α_n^S have |𝕊| for d. The proof: heads with I^S before M and
           for the keys, an MLP of four blocks with I, −I, I, −I on 𝕊 and I, I, −I, I outside it,
           W₂ = (−I, I, I, −I), the last bias +θ; M is that of Lemma 3, diagonal
Tested     the printed layers (last bias −θ) on random streams against LISTA-VM on the columns of 𝕊;
           the bound at N_0^S and 10 N_0^S on bounded measurements, S = 1, 2, 3, |𝕊| from S to 10
Reading    "there exists a set of parameters": for the n at hand and in proportion to c₁, as in the
           proof of Theorem 5.1, which is applied to 𝕊. θ = 0, which depends on neither, is shown;
           for large |𝕊| no set that does not know ‖β*‖₁ will do, by one_set.py with |𝕊| for d
Wrong      the last bias is −θ, as in (C.2). A layer's output is not diag(I^S, 1, I^S, 1) times
           itself: x keeps its entries outside 𝕊, so diag(I_d, 1, I^S, 1). Proof: the heads and the
           MLP write to the rows of β alone, and the MLP clears those outside 𝕊
Beyond     what is gained is a logarithm: N_0 = 18,253 for |𝕊| = 10 in place of 20,471 for d = 20.
           A dense M would need I^S M I^S: else x outside 𝕊 enters
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part, misprint
from innerloop.claims.falsifying import change_field
from innerloop.claims.liu2025 import printed, rates
from innerloop.claims.liu2025.hard_instances import list_hard_examples
from innerloop.claims.liu2025.measurements import draw_sparse_vectors, iterate
from innerloop.claims.liu2025.one_set import DELTA as RARE
from innerloop.claims.liu2025.one_set import Offsets, draw_offsets, judge_one_set
from innerloop.claims.liu2025.printed import Units, soft_threshold
from innerloop.claims.liu2025.rates import DELTA, Curves, Found, K
from innerloop.claims.liu2025.theorem_5_1 import GAMMA_RANGE, GAMMAS
from innerloop.claims.prompts import draw_integer, draw_normal
from innerloop.claims.trials import Equality, take_worst
from innerloop.theory import sparse

C, SIZES = 0.25, ((1, 1), (1, 4), (2, 2), (2, 4), (3, 3), (3, 10))
"""The constant c for z = ±1, and pairs of S and |𝕊|."""
OUTSIDE = (1, 1, -1, 1)
"""Signs of the MLP's four blocks outside 𝕊."""


class Layer(NamedTuple):
    """A stream after one layer of the printed heads, before and after the MLP."""

    moved: Tensor
    shifted: Tensor
    """After the MLP with last bias +θ."""
    after: Tensor
    """After the MLP with last bias −θ."""
    steps: Tensor
    """LISTA-VM on the columns of 𝕊, for every prefix."""
    theta: float
    diagonal: bool
    """Whether M is diagonal."""
    case: Case


class Data(NamedTuple):
    layers: list[Layer]
    rates: Found
    offsets: list[Offsets]


def judge_support(data: Data) -> Evidence:
    runs, shifted, proper, whole, beta_only, dense = (
        Equality(statement, tolerance=1e-9)
        for statement in (
            "odd tokens take LISTA-VM's step on the columns of 𝕊, and are 0 outside it",
            "the MLP with last bias $+θ$ gives $S_θ$ on 𝕊",
            "the MLP with last bias $−θ$ gives $S_θ$ on 𝕊",
            "$diag(I^S, 1, I^S, 1) H = H$ after a layer",
            "$diag(I_d, 1, I^S, 1) H = H$ after a layer",
            "odd tokens take LISTA-VM's step on the columns of 𝕊 for a dense $M$ too",
        )
    )
    for layer in data.layers:
        d, inside, case = layer.case["d"], layer.case["inside"], layer.case
        own, rest = slice(d + 1, d + 1 + inside), slice(d + 1 + inside, 2 * d + 1)
        wanted = soft_threshold(layer.moved[own], layer.theta)
        shifted.add(layer.shifted[own], wanted, case)
        proper.add(layer.after[own], wanted, case)
        steps = torch.cat([layer.steps, torch.zeros_like(layer.after[rest, 2::2])])
        (runs if layer.diagonal else dense).add(layer.after[d + 1 : 2 * d + 1, 2::2], steps, case)
        keep, one = (torch.arange(d) < inside).double(), torch.ones(d + 1).double()
        both = torch.cat([keep, one[:1], keep, one[:1]])[:, None]
        note = case.extend(note="the token where the sides differ most")
        whole.add(*take_worst(both * layer.after, layer.after, 1), note)
        beta = torch.cat([one, keep, one[:1]])[:, None]
        beta_only.add(beta * layer.after, layer.after, case)
    bound = "$‖[H^(K+1)] − β*‖ ≤ ‖β*‖₁ e^(−α_n^S K)$, $n ≥ N_0^S$, with probability $1 − δ$"
    line = "Appendix D.2, {}"
    return Evidence(
        parts=[
            Part(printed=runs.check()),
            Part(
                printed=rates.judge_curves(bound, data.rates["of n"], DELTA),
                reading="$θ$ may depend on $n$ and be proportional to $‖β*‖₁$, as in the proof",
                other_readings={
                    "$θ = 0$, which does not depend on $n$ or $‖β*‖₁$": rates.judge_curves(
                        bound, data.rates["0"], DELTA
                    ),
                    **{
                        f"one set for all $‖β*‖₁$, $|𝕊|$ for $d$, {about}": check
                        for about, check in judge_one_set(bound, data.offsets, RARE).items()
                    },
                },
            ),
        ],
        errata=[
            Part(printed=shifted.check(), corrected=proper.check()).as_erratum(
                line.format("$b^(k)$ of the modified MLP")
            ),
            Part(printed=whole.check(), corrected=beta_only.check()).as_erratum(
                line.format("the output of the modified self-attention layer"), "print"
            ),
            GAMMA_RANGE,
            misprint(
                "Corollary D.1, where $β^(K)$ is defined",
                "$β^(K)_{2n+1} = [H^(K+1)]$ at token $2N+1$, and $N_0^P$",
                "$β^(K+1)_{2n+1}$, at token $2n+1$, as in Theorem D.1, and $N_0^S$",
                "elsewhere $β^(K)$ is what $H^(K)$ holds; $n ≥ N_0^S$ is only defined as $N_0^P$",
            ),
            misprint(
                line.format("$V_{±1}$ and $V_{±2}$"),
                "a last block $0_{2×d}$, so $2d + 3$ rows",
                "$0_{1×d}$, as in (C.1)",
                "$d = 1$: 5 rows, for a stream of 4",
            ),
        ],
        beyond=[dense.check()],
        numbers={
            "N_0^S for |𝕊| = 10, S = 3, δ = 0.1, z = ±1": math.ceil(
                sparse.least_examples(3, 10, DELTA, C)
            ),
            "N_0 for d = 20 in its place": math.ceil(sparse.least_examples(3, 20, DELTA, C)),
        },
    )


@claim(
    "liu2025.corollary-D.1",
    "Where the support lies in a known set, a transformer that keeps to it converges as if "
    "$d$ were the size of that set.",
    where="Appendix D.2, Corollary D.1 and Remark 3",
    kind="rate",
    hypotheses={
        "$‖x‖ ≤ b_x$, $‖β*‖₁ ≤ b_β$, no noise": "Assumption 1",
        "$S ≤ |𝕊|$, the size of the set": "the corollary",
        "$M^V$ is diagonal": "Lemma 3, whose $M^V$ the proof takes over",
        "$c$ is some constant": "the corollary; here that of Hoeffding's inequality",
    },
    quick={"trials": 150, "draws": 100},
    full={"trials": 20_000, "draws": 1_000},
    tiny={"trials": 12, "draws": 6},
    judge=judge_support,
    falsified={
        "an MLP that adds 1 and does not threshold": lambda data: data._replace(
            layers=[each._replace(after=each.moved + 1) for each in data.layers]
        ),
        "layers that do not lower the error": change_field("rates", rates.stop_learning),
    },
)
def corollary_d_1(generator: torch.Generator, *, trials: int, draws: int) -> Data:
    layers, rates = _list_layers(generator, trials), _measure_rates(generator, draws)
    return Data(layers, rates, draw_offsets(generator, max(4, draws // 10)))


def restricted_units(d: int, inside: int, theta: float, last: float) -> Units:
    """The MLP of D.2, with `last`·θ for the last bias."""
    blocks, outside = [], torch.arange(d + 1 + inside, 2 * d + 1)
    for own, other in zip((1, -1, 1, -1), OUTSIDE, strict=True):
        block = own * printed.beta_projection(d)
        block[outside, outside] = float(other)
        blocks.append(block)
    bias = torch.zeros(8 * d + 8, dtype=torch.float64)
    bias[5 * d + 5 : 5 * d + 5 + inside] = -theta
    bias[7 * d + 7 : 7 * d + 7 + inside] = last * theta
    return Units(torch.cat(blocks), printed.printed_units(d, theta, last).outer, bias)


def _list_layers(generator: torch.Generator, trials: int) -> list[Layer]:
    """Run a layer by hand, for a diagonal M and a dense one, on hard examples, and on random ones.

    All by hand or hard begin at β = 0.
    """
    x, star = torch.tensor([[3.0, 3.0]], dtype=torch.float64), torch.eye(2, dtype=torch.float64)[0]
    eye, ones = torch.eye(2, dtype=torch.float64), torch.ones(2, 2, dtype=torch.float64)
    words = "$x = (3, 3)$, $β* = (1, 0)$, $β = 0$ before, $M = {}$"
    found = [
        _run_layer(x, star, M, torch.zeros(2, 3).double(), 1, 1.0, words.format(name))
        for M, name in ((eye, "I"), (ones, "[[1, 1], [1, 1]]"))
    ]
    for each in list_hard_examples(2, 3):
        zero = torch.zeros(len(each.star), 2 * len(each.X) + 1, dtype=torch.float64)
        found.append(_run_layer(each.X, each.star, each.M, zero, 1, 0.01))
    return found + [_draw_layer(generator, trial) for trial in range(trials)]


def _draw_layer(generator: torch.Generator, trial: int) -> Layer:
    d = 2 + trial % 5
    inside, n = draw_integer(generator, 1, d - 1), draw_integer(generator, 1, 6)
    theta = 0.05 + 0.5 * float(torch.rand((), generator=generator, dtype=torch.float64))
    X, M = draw_normal(generator, n, d), 0.5 * draw_normal(generator, d, d)
    M = torch.diag(M.diagonal()) if trial % 3 else M
    star, beta = draw_normal(generator, d), draw_normal(generator, d, 2 * n + 1)
    star[inside:] = 0
    return _run_layer(X, star, M, beta, inside, theta)


def _run_layer(
    X: Tensor, star: Tensor, M: Tensor, beta: Tensor, inside: int, theta: float, note: str = ""
) -> Layer:
    (n, d), y = X.shape, X @ star
    H = printed.printed_prompt(X, y, X[0])
    H[d + 1 : 2 * d + 1] = beta
    bound = 10 * float((X @ beta).abs().max()) + 1
    moved = printed.attend(H, _restricted_heads(d, (torch.arange(d) < inside).double(), M, bound))
    shifted, after = (
        printed.apply_mlp(moved, restricted_units(d, inside, theta, last)) for last in (1, -1)
    )
    A, W = X[:, :inside], M[:inside, :inside]
    steps = [
        printed.take_step(W, A[:m], y[:m], beta[:inside, 2 * m], theta) for m in range(1, n + 1)
    ]
    diagonal = torch.equal(M, torch.diag(M.diagonal()))
    case = Case(d=d, inside=inside, n=n, θ=torch.tensor(theta), note=note)
    return Layer(moved, shifted, after, torch.stack(steps, dim=-1), theta, diagonal, case)


def _restricted_heads(d: int, keep: Tensor, M: Tensor, bound: float) -> list[printed.Head]:
    """The heads (C.1) with I^S before M^Q and M^V, and for the keys."""
    beta, found = slice(d + 1, 2 * d + 1), []
    for k, head in enumerate(printed.printed_heads(d, keep[:, None] * M, bound)):
        query, key = head.query.clone(), head.key.clone()
        if k < 2:
            query[beta, beta] = keep[:, None] * query[beta, beta]
            key[beta, :d] = torch.diag(keep)
        found.append(printed.Head(query, key, head.value))
    return found


def _measure_rates(generator: torch.Generator, draws: int) -> Found:
    """Columns outside 𝕊 reach neither scores nor values: drawing those of 𝕊 is enough."""
    found: Found = {"of n": [], "0": []}
    for S, inside in SIZES:
        least = math.ceil(sparse.least_examples(S, inside, DELTA, C))
        for n, count in ((least, draws), (10 * least, max(4, draws // 10))):
            G = 2 * rates.draw_grams(generator, "signs", n, inside, count)
            for gamma in GAMMAS:
                star = draw_sparse_vectors(generator, count, inside, S)
                step, thetas = rates.choose_thresholds(n, S, inside, C, gamma)
                case = Case(S=S, inside=inside, n=n, γ=gamma, K=K)
                bound = rates.bound_errors(n, S, inside, C, gamma)
                for name, used in (("0", 0 * thetas), ("of n", thetas)):
                    errors = (iterate(G, star, step, used) - star).norm(dim=-1)
                    found[name].append(Curves(errors, bound, case))
    return found
