"""Errata of Theorem 7 and its proof: layers as printed, bounds of the proof, errors of print.

Part 1     V^cov = ±I_D multiplies all of H by the scores. Mended: V maps the rows of X to those of
           p̃₁, times N, and adds Σ_j x_j x_jᵀe_i to token i
Part 2     iterations: p^(τ) is as near as 1 − ε₀ after τ ≥ log(1/(δ√ε₀))/log(λ₁/λ₂), as the tangent
           of the angle is at most (λ₂/λ₁)^τ/δ ≤ √ε₀
Part 2     errors do not add up: with ‖u/‖u‖ − w/‖w‖‖ ≤ 2‖u − w‖/‖u‖, an error e before a step is at
           most 2λ₁e/‖Ap‖ after it, so that e_{t+1} ≤ ε‖Aq_t‖ + 2λ₁e_t/‖Ap_t‖, q with errors
Part 3     rpe,3: Q and K both read √λ̂ p, which is on token 1 alone: column 1 of XXᵀ loses λ̂^(3/2)p,
           the others nothing. Mended: the key reads the identity, and column i loses λ̂p p_i
Part 4     the recursion: see theorem_7. Unrolling x_{η+1} = r_{η+1}x_η + c, r_i = 5λ_i/Δ: x + κ
           multiplies by at most r where c + κ ≤ rκ, so κ = c/(min r − 1), not c/(r₁ − 1)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from innerloop.claims.cases import Case
from innerloop.claims.evidence import Erratum, Part, misprint
from innerloop.claims.prompts import draw_integer, draw_normal
from innerloop.claims.qliu2025 import deflation
from innerloop.claims.qliu2025.deflation_runs import ROUNDING, Angle, Run, as_tensor
from innerloop.claims.qliu2025.hard_instances import HARD_MATRICES, HARD_SPECTRA
from innerloop.claims.trials import Equality, Inequality, as_erratum

C = 4.0
"""The constant C of the printed bound, at which the product to k is tried."""
Rows = list[dict[str, Any]]


def list_errata(runs: list[Run], angles: list[Angle], layers: Rows, bounds: Rows) -> list[Erratum]:
    """List all errata of Theorem 7 and its proof."""
    return [
        mend_layer(layers, "cov"),
        mend_angles(angles),
        mend_bound(bounds, "errors"),
        mend_layer(layers, "rpe"),
        mend_recursion(runs),
        mend_start(runs),
        mend_bound(bounds, "unrolled"),
        find_product(runs, "Theorem 7, the single bound"),
        *PROOF,
        name_layers("Theorem 7 and the proof's last line"),
        name_heads("Theorem 7"),
    ]


LAYERS = {
    "cov": (
        "proof, part 1",
        "with $V^cov = ±I_D$ the first layer writes $XXᵀ$ beside $X$ and $P$",
        "with $V$ that maps the rows of $X$ to those of $p̃₁$, times $N$, it does",
    ),
    "rpe": (
        "proof, part 3",
        "rpe,3, whose $Q$ and $K$ both read $√λ̂ p$, subtracts $λ̂ppᵀ$ from $XXᵀ$",
        "with a key that reads the identity it does",
    ),
}


def mend_layer(rows: Rows, of: str) -> Erratum:
    where, printed, mended = LAYERS[of]
    trials = Equality(printed), Equality(mended)
    for row in rows:
        if row["of"] == of:
            for trial, name in zip(trials, ("printed", "mended"), strict=True):
                trial.add(row[name], row["wanted"], row["case"])
    return Part(printed=trials[0].check(), corrected=trials[1].check()).as_erratum(where)


def mend_angles(angles: list[Angle]) -> Erratum:
    printed = Inequality(
        "$pᵀv₁ ≥ 1 − ε₀$ after $τ = log(1/(ε₀δ))/ε₀$, twice the proof's, $√λ₁ ≥ √λ₂ + 1$",
        larger_first=True,
    )
    proper = Inequality(
        "$pᵀv₁ ≥ 1 − ε₀$ after $τ ≥ log(1/(δ√ε₀))/log(λ₁/λ₂)$", rounding=1e-9, larger_first=True
    )
    for each in angles:
        working = (f"1 − {each.epsilon:g}", "")
        trial = proper if each.corrected else printed
        trial.add(1 - each.epsilon, each.cosine, each.case, working=working)
    return Part(printed=printed.check(), corrected=proper.check()).as_erratum("proof, part 2")


BOUNDS = {
    "errors": (
        "proof, part 2, sublinearity of errors",
        "errors of $ε‖XXᵀp‖$ in each of $τ$ iterations add up to at most $τε‖XXᵀ‖$ in every entry",
        "$e_(t+1) ≤ ε‖Aq_t‖ + 2λ₁e_t/‖Ap_t‖$ bounds the error, $p_t$ without errors and $q_t$ "
        "with them",
    ),
    "unrolled": (
        "proof, part 4, unrolling the recursion",
        "$x_(η+1) + κ ≤ (x₁ + κ) ∏ 5λ_(i+1)/Δ$, $κ = c/(5λ₁/Δ − 1)$, for $x_(η+1) = "
        "5λ_(η+1)x_η/Δ + c$, brackets added",
        "the inequality with $κ = c/(min_{i≤η} 5λ_(i+1)/Δ − 1)$, $λ_(k+1)$ in $Δ$",
    ),
}


def mend_bound(rows: Rows, of: str) -> Erratum:
    where, printed, mended = BOUNDS[of]
    trials = Inequality(printed), Inequality(mended)
    for row in rows:
        if row["of"] == of:
            trials[0].add(row["entry"], row["printed"], row["case"], working=row["working"])
            trials[1].add(row["error"], row["mended"], row["case"])
    return as_erratum(where, *trials)


def mend_recursion(runs: list[Run]) -> Erratum:
    printed = Inequality("$a_(η+1) ≤ (max b_i + ∑ 2λ_i a_i)/Δ$")
    mended = Inequality(
        "$a_(η+1) ≤ e_(η+1) + 2√2 ∑(b_i + λ_i a_i)/Δ$, $e$ its own error, $λ_(k+1)$ in $Δ$, "
        "$a$ and $e$ up to sign"
    )
    for run, eta, error, at in _list_errors(runs):
        a, b, values = run.a, run.b, run.values
        past = sum(2 * value * each for value, each in zip(values[:eta], a, strict=False))
        gap = _narrow(run)
        working = ("", f"({max(b[:eta]):.6g} + {past:.6g})/{gap:g}")
        printed.add(error, (max(b[:eta]) + past) / gap, at, working=working)
        given = sum(y + v * x for v, x, y in zip(values[:eta], a, b, strict=False))
        mended.add(error, run.own[eta] + 2 * math.sqrt(2) * given / run.gap, at)
    return Part(printed=printed.check(), corrected=mended.check()).as_erratum("proof, part 4")


def mend_start(runs: list[Run]) -> Erratum:
    """Correct the first value of the recursion, for the least ε₀ with a₁ ≤ √(2ε₀)."""
    where = "proof, part 4, the start of the recursion"
    line = "$A₁ + b₁ ≤ {}λ₁√(2ε₀)$ for $A₁ = 2λ₁a₁$, $a₁ ≤ √(2ε₀)$ and $b₁ ≤ λ₁√(2ε₀)$"
    printed = Inequality(f"{line.format(2)} (printed as an equality)")
    corrected = Inequality(line.format(3))
    for run in runs:
        largest, a, b = run.values[0], run.a[0], run.b[0]
        rounded = max(2 * largest * a + b - ROUNDING * largest, 0.0)
        corrected.add(rounded, 3 * largest * a, run.case)
        numbers = f"2 · {largest:g} · {a:g}"
        printed.add(rounded, 2 * largest * a, run.case, working=(f"{numbers} + {b:g}", numbers))
    return as_erratum(where, printed, corrected)


def find_product(runs: list[Run], where: str) -> Erratum:
    """The product to k in the bound, which is 0 where the rank of XXᵀ is k."""
    to_k = Inequality(f"Algorithm 1 errs by $(Cλ₁√ε₀/Δ) ∏_{{i=1}}^k 5λ_(i+1)/Δ$, $C = {C:g}$")
    for run, _, error, at in _list_errors(runs):
        if run.epsilon is not None and run.k < run.case["d"]:  # else there is no λ_(k+1)
            gap, values = _narrow(run), run.values
            product = math.prod(5 * values[i] / gap for i in range(1, run.k + 1))
            factors = " · ".join(f"(5 · {values[i]:g}/{gap:g})" for i in range(1, run.k + 1))
            working = f"({C:g} · {values[0]:g} · √{run.epsilon:g}/{gap:g}) · {factors}"
            bound = C * values[0] * math.sqrt(run.epsilon) / gap * product
            to_k.add(error, bound, at, working=("", working))
    found = Part(printed=to_k.check()).as_erratum(where, "print")
    return replace(found, meant="the product to $η$, with which the proof of the theorem ends")


def _narrow(run: Run) -> float:
    """Δ as printed: among the first k eigenvalues."""
    first = run.values[: run.k]
    return min((x - y for x, y in pairwise(first)), default=run.values[0] - run.values[1])


def _list_errors(runs: list[Run]) -> Iterator[tuple[Run, int, float, Case]]:
    for run in runs:
        for eta in range(1, run.k):
            yield run, eta, max(run.a[eta] - ROUNDING, 0.0), run.case.extend(η=eta)


def name_layers(where: str) -> Erratum:
    return misprint(
        where,
        "the number of layers is $2τ + 4k + 1$",
        "$2kτ + 4k + 1$: each of the $k$ vectors has $τ$ iterations of two layers",
        "$k = 2$, $τ = 1$: $1 + 2 · (2 + 4) = 13$ layers, one for $XXᵀ$ and for each vector two "
        "that iterate and four that deflate; printed $2 + 8 + 1 = 11$",
    )


def name_heads(where: str) -> Erratum:
    return misprint(
        f"{where}, the number of heads",
        "heads $≤ λ₁^d C/ε²$",
        "at least one head: the power method does not change when $X$ is scaled, and `pca` has "
        "three heads at every scale",
        "As $λ₁ → 0$ the bound allows less than one head; without attention nothing can be "
        "computed across tokens. $d = 1$, $ε = 1$, $λ₁ = 1/(2C)$: $λ₁C = 1/2 < 1$",
    )


PROOF = (
    misprint(
        "Algorithm 1",
        "$v_(0,ℓ) ∈ S^{N−1}$",
        "$S^{d−1}$, as where $P$ is described",
        "$d = 1$, $N = 2$: $A$ is $1 × 1$",
    ),
    misprint(
        "Theorem 7, the joint bound",
        "the sum over $η$ from 1 to $k − 1$ bounds the error of all $k$ vectors",
        "the sum from $η = 0$, which contains the error of $v₁$",
        "$k = 1$: the sum is empty, so that the error of $v₁$ would be at most $Cτελ₁²$",
    ),
    misprint(
        "proof, part 1",
        "$σ(HᵀQ₁ᵀK₁H) + σ(HᵀQ₂ᵀK₂H) = [Xᵀ, 0]$",
        "a minus sign between them, which $V₂ = −V₁$ gives: the sum is $[|X|ᵀ, 0]$",
        "$X = −1$: $σ(−1) + σ(1) = 1$",
    ),
    misprint(
        "proof, part 2, $H^{pow,3}$",
        "$(XXᵀ)²p/‖XXᵀp‖²$",
        "$(XXᵀ)²p/‖XXᵀp‖$ before the normalisation, $(XXᵀ)²p/‖(XXᵀ)²p‖$ after it, as the formula "
        "for $p^(τ)$ has it",
        "$XXᵀ = diag(2, 1)$, $p = (1, 1)/√2$: printed $(1.131, 0.283)$, of length 1.166; "
        "$(1.789, 0.447)$ before, $(0.970, 0.243)$ after",
    ),
    misprint(
        "proof, part 2, $H^{pow,2τ+2}$",
        "it contains $p^(τ)$",
        "$p^(τ+1)$, because an iteration takes two layers",
        "$τ = 1$: $H^{pow,4}$ contains the result of two iterations",
    ),
    misprint(
        "proof, part 3",
        "$A₁ = XXᵀ − ‖XXᵀp‖ppᵀ$",
        "$A₁ = XXᵀ$, as in Algorithm 1: $λ̂_η = ‖A_ηp_η‖$ estimates $λ_η$",
        "$XXᵀ = diag(2, 1)$, $p₁ = v₁$: $A₁p₁ = 0$ would estimate $λ₁ = 2$",
    ),
    replace(
        misprint(
            "proof, part 4",
            "$λ_η/Δ > 1$ for all $η ≤ k$, a fact",
            "$λ_η ≥ Δ$, true with the gap to $λ_(k+1)$ in $Δ$",
            "$λ = (10, 1)$, $k = 2$: $Δ = 9$, $λ₂/Δ = 1/9$",
        ),
        grade="step",
    ),
)


def measure_layers(generator: torch.Generator, trials: int) -> Rows:
    """Run the layers cov and rpe,3, printed and mended, by hand and on hard and random X."""
    one = torch.ones(1, 1, dtype=torch.float64)
    given = [(2 * one, one[0], "$X = 2$, $p = 1$")]
    given += [
        (build(d), build(d)[0], f"$X$: {name}")
        for name, build in HARD_MATRICES.items()
        for d in (1, 2, 3)
    ]
    for _ in range(trials):
        d = draw_integer(generator, 1, 3)
        X = draw_normal(generator, d, d + draw_integer(generator, 0, 3))
        given.append((X, draw_normal(generator, d), ""))
    return [row for X, p, note in given for row in _run_layers(X, p, note)]


def _run_layers(X: Tensor, p: Tensor, note: str) -> Rows:
    """The stream after each layer, rows in blocks of d, and what the slides say that it is."""
    (d, N), E, zero = X.shape, torch.zeros_like(X), torch.zeros_like(X)
    E[:, :d] = torch.eye(d, dtype=X.dtype)
    start, A = zero.clone(), X @ X.mT @ E
    start[:, 0] = p
    H = torch.cat([X, zero, E, start])
    scores = X.mT @ E
    moved = [(H @ scores.relu() - H @ (-scores).relu()) / N, torch.cat([zero, A, zero, zero])]
    case = Case(d=d, N=N, note=note)
    cov = {"of": "cov", "case": case.extend(note="rows of $X$, $p̃₁$, $p̃₂$, $p̃₃$")}
    cov |= {"printed": H + moved[0], "mended": H + _read(X, scores, d), "wanted": H + moved[1]}
    p = p / p.norm().clamp(min=1e-12)
    value = (X @ X.mT @ p).norm()
    U = zero.clone()
    U[:, 0] = value.sqrt() * p
    printed, mended = (A - (U @ each.relu() - U @ (-each).relu()) for each in (U.mT @ U, U.mT @ E))
    wanted = A - value * torch.outer(p, p) @ E
    rpe = {"of": "rpe", "case": case.extend(note="the rows of $XXᵀ$")}
    return [cov, rpe | {"printed": printed, "mended": mended, "wanted": wanted}]


def _read(X: Tensor, scores: Tensor, d: int) -> Tensor:
    """What heads with values X in the second block, times N, add under 1/N."""
    found = torch.zeros(4 * d, X.shape[1], dtype=X.dtype)
    found[d : 2 * d] = X @ scores.relu() - X @ (-scores).relu()
    return found


def measure_bounds(generator: torch.Generator, runs: Sequence[Run], trials: int) -> Rows:
    """Measure iterations with errors, and recursions unrolled, next to both bounds."""
    rows = [_unroll([2.0, 1.0, 0.0], 2)]
    rows += [_unroll(run.values, run.k) for run in runs if run.k > 1]
    first, start = as_tensor((1, 0.01)), as_tensor((1e-6, 1))
    note = "$XXᵀ = diag(1, 1/100)$, $p ∝ (10^(−6), 1)$, $ε = 10^(−3)$, $τ = 3$, an error "
    note += "in step 1 alone"
    rows.append(_perturb(first.diag(), start, 3, 1e-3, [as_tensor((1, 0)), None, None], note))
    spectra = [build(d) for build in HARD_SPECTRA.values() for d in (1, 2, 3)]
    for trial in range(trials + len(spectra)):
        spectrum = spectra[trial % len(spectra)]
        A, vectors = deflation.draw_matrix(generator, spectrum)
        delta = 10.0 ** -draw_integer(generator, 1, 8)
        tau = draw_integer(generator, 1, 6)
        ways = [draw_normal(generator, len(spectrum)) for _ in range(tau)]
        ways = [vectors[:, 0] if trial % 2 else way / way.norm() for way in ways]
        begin = deflation.draw_start(generator, vectors[:, 0], delta)
        epsilon = 10.0 ** -draw_integer(generator, 1, 6)
        rows.append(_perturb(A / spectrum[0], begin, tau, epsilon, ways))
    return rows


def _perturb(
    A: Tensor,
    start: Tensor,
    tau: int,
    epsilon: float,
    ways: Sequence[Tensor | None],
    note: str = "",
) -> dict[str, Any]:
    """Iterate with errors of ε‖Aq‖ along given directions, and without."""
    p = q = start / start.norm()
    norm, allowed = float(torch.linalg.matrix_norm(A, 2)), 0.0
    for way in ways[:tau]:
        allowed = epsilon * float((A @ q).norm()) + 2 * norm * allowed / float((A @ p).norm())
        p, u = A @ p / (A @ p).norm(), A @ q
        q = u / u.norm() + (0.0 if way is None else epsilon * u.norm() * way)
    off = (p - q).abs()
    return {
        **{"of": "errors", "entry": max(float(off.max()) - ROUNDING, 0.0)},
        "printed": tau * epsilon * norm,
        "working": ("", f"{tau} · {epsilon:g} · {norm:g}"),
        **{"error": max(float(off.norm()) - ROUNDING, 0.0), "mended": allowed},
        # Only d orders cases: the one by hand comes first among equals.
        "case": Case(d=len(start), note=note or f"$λ₁ = 1$, $τ = {tau}$, $ε = {epsilon:g}$"),
    }


def _unroll(values: list[float], k: int) -> dict[str, Any]:
    """Unroll the recursion to k from x₁ = 2c with c = λ₁, in units of √(2ε₀)."""
    gap = min(x - y for x, y in pairwise(values[: k + 1]))
    factors = [5 * value / gap for value in values[:k]]
    c, x = values[0], 2 * values[0]
    recursion = f"{x:g}"
    for factor in factors[1:]:
        x = factor * x + c
        inner = f"({recursion})" if " " in recursion else recursion
        recursion = f"{factor:g} · {inner} + {c:g}"
    product = math.prod(factors[1:])
    kappas = {"printed": c / (factors[0] - 1), "mended": c / (min(factors[1:]) - 1)}
    bounds = {name: (2 * c + kappa) * product - kappa for name, kappa in kappas.items()}
    case = Case(k=k, λ=as_tensor(values[:k]), Δ=as_tensor([gap])[0], note="units of $√(2ε₀)$")
    kappa = kappas["printed"]
    working = (recursion, f"({2 * c:g} + {kappa:.6g}) · {product:.6g} − {kappa:.6g}")
    row = {"of": "unrolled", "entry": x, "error": x * (1 - 1e-9), "case": case, "working": working}
    return {**row, **bounds}
