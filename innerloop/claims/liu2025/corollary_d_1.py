"""Corollary D.1: with the support known to lie in a set 𝕊, d gives way to |𝕊|.

Printed    heads with I^S before M and for the keys, an MLP that clears the entries outside 𝕊, and
           then, for n ≥ N_0^S, with probability 1 − δ, ‖β^(K) − β*‖ ≤ c₁ e^(−α_n^S K), β^(K)
           read from H^(K+1) at token 2N+1; N_0^S (also N_0^P) and α_n^S with |𝕊| for d. The MLP's
           four blocks have I, −I, I, −I on 𝕊 and I, I, −I, I outside, W₂ = (−I, I, I, −I), the last
           bias +θ. A layer's output is said to equal diag(I^S, 1, I^S, 1) times itself
Tested     the printed layers on random streams against LISTA-VM on the columns of 𝕊; the bound at
           n = N_0^S on bounded measurements, |𝕊| = 4, d up to 200
Correction the last bias is −θ; I^S M I^S in V, as x outside 𝕊 enters through a dense M;
           diag(I_d, 1, I^S, 1), as x keeps its entries; β^(K+1), after K layers (at K = 1,
           β^(1) = 0 is as far from β* as it was)
Beyond     what is gained is a logarithm: N_0 = 18,253 for |𝕊| = 10 in place of 20,471 for d = 20
Note       V has 2d + 3 rows as printed (0_{2×d}), the stream 2d + 2
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.liu2025 import printed
from innerloop.claims.liu2025.measurements import add_violation_rate, draw_sparse_vectors, iterate
from innerloop.claims.liu2025.printed import Units, soft_threshold
from innerloop.claims.liu2025.theorem_5_1 import DELTA, K, draw_grams, step_and_thresholds
from innerloop.claims.prompts import draw_integer, draw_normal
from innerloop.claims.trials import Equality, Inequality
from innerloop.theory import sparse

INSIDE = 4


def restricted_units(
    d: int, inside: int, theta: float, last: float, signs: tuple[int, ...]
) -> Units:
    """The MLP of D.2: `signs` are those of the entries outside 𝕊, block by block."""
    blocks = []
    for own, other in zip((1, -1, 1, -1), signs, strict=True):
        block = own * printed.beta_projection(d)
        outside = torch.arange(d + 1 + inside, 2 * d + 1)
        block[outside, outside] = float(other)
        blocks.append(block)
    bias = torch.zeros(8 * d + 8, dtype=torch.float64)
    bias[5 * d + 5 : 5 * d + 5 + inside] = -theta
    bias[7 * d + 7 : 7 * d + 7 + inside] = last * theta
    return Units(torch.cat(blocks), printed.printed_units(d, theta, last).outer, bias)


@claim(
    "liu2025.corollary-D.1",
    "Where the support lies in a known set, a transformer that keeps to it converges as if d were "
    "the size of that set.",
    where="Appendix D.2, Corollary D.1 and Remark 3",
    kind="rate",
    quick={"trials": 200, "draws": 100},
    full={"trials": 20_000, "draws": 1_000},
    tiny={"trials": 12, "draws": 6},
    falsified={
        "the entries outside keep the signs of those inside": {"signs": (1, -1, 1, -1)},
        "no threshold on the negative side": {"corrected": 0.0},
        "the rate of ten layers more": {"more": 10},
    },
)
def corollary_d_1(
    generator: torch.Generator,
    *,
    trials: int,
    draws: int,
    signs: tuple[int, ...] = (1, 1, -1, 1),
    corrected: float = -1.0,
    more: int = 0,
) -> Evidence:
    cleared = Equality("the MLP clears β outside 𝕊", tolerance=1e-12)
    shifted = Equality("the MLP with last bias +θ gives S_θ on 𝕊", tolerance=1e-12)
    proper = Equality("the MLP with last bias −θ gives S_θ on 𝕊", tolerance=1e-12)
    whole_of = Equality("diag(I^S, 1, I^S, 1) H = H after a layer", tolerance=1e-12)
    beta_only = Equality("diag(I_d, 1, I^S, 1) H = H after a layer", tolerance=1e-12)
    dense = Equality("odd tokens take LISTA-VM's step on the columns of 𝕊, any M", tolerance=1e-9)
    step = Equality("the same for I^S M I^S in V, as for diagonal M", tolerance=1e-9)
    for trial in range(trials):
        d = 2 + trial % 5
        inside, n = draw_integer(generator, 1, d - 1), draw_integer(generator, 1, 6)
        theta = 0.05 + 0.5 * float(torch.rand((), generator=generator, dtype=torch.float64))
        X, M = draw_normal(generator, n, d), 0.5 * draw_normal(generator, d, d)
        star, beta = draw_normal(generator, d), draw_normal(generator, d, 2 * n + 1)
        star[inside:], beta[inside:] = 0, 0
        H = printed.printed_prompt(X, X @ star, draw_normal(generator, d))
        H[d + 1 : 2 * d + 1] = beta
        keep = (torch.arange(d) < inside).double()
        moved = printed.attend(H, _heads(d, keep, M))
        size, about = (d, n, trial), f"d = {d}, |𝕊| = {inside}, n = {n}, θ = {theta:.3g}"
        start, stop = d + 1, d + 1 + inside
        wanted = soft_threshold(moved[start:stop], theta)
        loose = moved.clone()
        loose[stop : 2 * d + 1] = draw_normal(generator, d - inside, 2 * n + 1)
        for last, found in ((1.0, shifted), (corrected, proper)):
            after = printed.apply_mlp(loose, restricted_units(d, inside, theta, last, signs))
            found.add(after[start:stop], wanted, size=size, about=about)
        rest = after[stop : 2 * d + 1]
        cleared.add(rest, torch.zeros_like(rest), size=size, about=about)
        one, none = torch.ones(1).double(), torch.ones(d).double()
        told = f"{about}, x of the first token ends in {float(after[d - 1, 0]):.3g}"
        shown = torch.cat([keep, one, keep, one])[:, None] * after
        whole_of.add(shown, after, size=size, about=told)
        shown = torch.cat([none, one, keep, one])[:, None] * after
        beta_only.add(shown, after, size=size, about=about)
        stepped = _steps(X, M, star, beta, inside, theta)
        dense.add(after[start:stop, 2::2], stepped, size=size, about=about)
        both = printed.attend(H, _heads(d, keep, M * keep))
        after = printed.apply_mlp(both, restricted_units(d, inside, theta, corrected, signs))
        step.add(after[start:stop, 2::2], stepped, size=size, about=about)
    early, late, table = _rates(generator, draws, more)
    return Evidence(
        parts=[
            Part(printed=cleared.check()),
            Part(printed=shifted.check(), corrected=proper.check()),
            Part(printed=whole_of.check(), corrected=beta_only.check()),
            Part(printed=dense.check(), corrected=step.check()),
            Part(printed=early.check(), corrected=late.check(), matters="print"),
        ],
        table=table,
        numbers={
            "N_0^S for |𝕊| = 10, S = 3, δ = 0.1, z = ±1": math.ceil(
                sparse.least_examples(3, 10, DELTA, 0.25)
            ),
            "N_0 for d = 20 in its place": math.ceil(sparse.least_examples(3, 20, DELTA, 0.25)),
        },
    )


def _heads(d: int, keep: Tensor, M: Tensor) -> list[printed.Head]:
    """The heads (C.1) with I^S before M^Q and M^V, and for the keys."""
    beta, found = slice(d + 1, 2 * d + 1), []
    for k, head in enumerate(printed.printed_heads(d, keep[:, None] * M, 1e6)):
        query, key = head.query.clone(), head.key.clone()
        if k < 2:
            query[beta, beta] = keep[:, None] * query[beta, beta]
            key[beta, :d] = torch.diag(keep)
        found.append(printed.Head(query, key, head.value))
    return found


def _steps(X: Tensor, M: Tensor, star: Tensor, beta: Tensor, inside: int, theta: float) -> Tensor:
    """Run LISTA-VM on the first columns of X, for every prefix."""
    A, W = X[:, :inside], M[:inside, :inside]
    found = []
    for n in range(1, len(X) + 1):
        now, y = beta[:inside, 2 * n], X[:n] @ star
        moved = now - W @ A[:n].mT @ (A[:n] @ now - y) / (2 * n + 1)
        found.append(soft_threshold(moved, theta))
    return torch.stack(found, dim=-1)


def _rates(
    generator: torch.Generator, draws: int, more: int
) -> tuple[Inequality, Inequality, list[dict]]:
    early = Inequality("‖β^(K) − β*‖ ≤ c₁ e^(−α_n^S K), n ≥ N_0^S")
    late = Inequality("‖β^(K+1) − β*‖ ≤ c₁ e^(−α_n^S K), n ≥ N_0^S")
    S, c, gamma, table = 1, 0.25, 1.0, []
    n = math.ceil(sparse.least_examples(S, INSIDE, DELTA, c))
    factor = sparse.rate_factor(n, S, INSIDE, DELTA, c, gamma)
    bound = factor ** torch.arange(K + 1 + more, dtype=torch.float64)[more:]
    step, thetas = step_and_thresholds(n, n, S, INSIDE, c, gamma)
    for d in (INSIDE, 20, 200):
        # Columns outside 𝕊 reach neither the scores nor the values: drawing |𝕊| of d is enough.
        G = 2 * draw_grams(generator, "signs", n, INSIDE, draws)
        star = draw_sparse_vectors(generator, draws, INSIDE, S)
        errors = (iterate(G, star, step, thetas) - star).norm(dim=-1)
        about = f"S = 1, |𝕊| = {INSIDE}, d = {d}, n = N_0^S = {n}, γ = 1"
        first = f"{about}, K = 1: error {float(errors[0].max()):.3g}, bound {float(bound[1]):.3g}"
        add_violation_rate(early, errors[0] > bound[1], DELTA, (d,), first)
        over = (errors[1:] > bound[1:, None] + 1e-13).any(0)
        add_violation_rate(late, over, DELTA, (d,), about)
        full = math.ceil(sparse.least_examples(S, d, DELTA, c))
        table.append({"d": d, "N_0 without the support": full, f"N_0 with |𝕊| = {INSIDE}": n})
    return early, late, table
