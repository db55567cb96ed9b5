"""Theorems 4.5 and A.13: the error of the minimiser on an instance from another distribution.

Printed    0 < ζ < 1, Σ* ≼ Σ^out ≼ (2 − ζ)Σ* (10), in A.13 ζΣ* ≼ Σ^out ≼ (2 − ζ)Σ* (30), implies
           (TF − y_q)² ≤ (1 + r)²(1 + r − ζ)^{2L}‖x_q‖²_{Σ*}‖w‖²_{Σ*⁻¹}, r = 16δd^{1/(2L)}
Tested     TF − y_q = −wᵀ(I − Σ^outA^opt)^L x_q with A^opt = bΣ*⁻¹, b by exact moments, under (30),
           on Σ* with a condition number up to 10⁶, Σ^out at the ends and between, random and
           worst w and x_q, and a search; n from d + 1 to 10⁴⁰, L ≤ 4, d ≤ 4
Reading    ‖v‖²_M = vᵀMv, as the proof's last display writes it out
Wrong      the proof has wᵀA^{opt −1}w and x_qᵀA^opt x_q, and A^opt ≈ Σ*⁻¹: the two matrices are
           exchanged. If Σ* is a multiple of I, this makes no difference
Corrected  ‖x_q‖²_{Σ*⁻¹}‖w‖²_{Σ*}, under (30), which contains (10): for A^opt = bΣ*⁻¹ and any n, or
           for any minimiser under theorem-3.2's condition on n
Proof      M = I − A^½Σ^outA^½ is symmetric: (TF − y_q)² ≤ (wᵀA⁻¹w)(x_qᵀAx_q)‖M‖^{2L}. If
           ‖A^½Σ*A^½ − I‖ ≤ s, the eigenvalues of A^½Σ^outA^½ lie within ζ(1 − s) and
           (2 − ζ)(1 + s), so that ‖M‖ ≤ 1 − ζ + 2s, and the two factors are at most
           (1 + s)/(1 − s) times the norms. Under the condition of theorem-3.2 s ≤ 0.36(r/16)²,
           and 2s ≤ r, (1 + s)/(1 − s) ≤ (1 + r)². For any n and A^opt = bΣ*⁻¹, 0 < b ≤ 1: the two
           factors give the norms themselves, ‖M‖ ≤ 1 − bζ, and 1 − b ≤ min(1, (2L − 1)η) ≤ r
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part, misprint
from innerloop.claims.falsifying import change_column
from innerloop.claims.gatmiry2024.hard_instances import HARD_MATRICES
from innerloop.claims.gatmiry2024.landscape import delta, identity
from innerloop.claims.prompts import draw_covariance, draw_integer, draw_normal
from innerloop.claims.searching import search_counterexample
from innerloop.claims.trials import Inequality, as_erratum
from innerloop.theory.looped import isotropic_minimum

Rows = list[dict[str, Any]]
"""An instance: its case, the squared error, and both products of norms. Or the ends of (31)."""


def get_width(d: int, n: int, L: int) -> float:
    """r = 16δd^{1/(2L)}."""
    return 16 * delta(L, d, n) * d ** (1 / (2 * L))


def state_factor(d: int, n: int, L: int, zeta: float) -> float:
    r = get_width(d, n, L)
    return (1 + r) ** 2 * (1 + r - zeta) ** (2 * L)


def judge_transfer(rows: Rows) -> Evidence:
    bound = "(TF − y_q)² ≤ (1 + r)²(1 + r − ζ)^{2L}"
    printed = Inequality(f"(10): ${bound}‖x_q‖²_{{Σ*}}‖w‖²_{{Σ*⁻¹}}$, $r = 16δd^{{1/(2L)}}$")
    corrected = Inequality(
        f"(30), $A^opt = bΣ*⁻¹$: ${bound}‖x_q‖²_{{Σ*⁻¹}}‖w‖²_{{Σ*}}$", rounding=1e-9
    )
    follows = Inequality("(30), $(1 − r)A⁻¹ ≼ Σ* ≼ (1 + r)A⁻¹$: $‖I − A^½Σ^outA^½‖ ≤ 1 + r − ζ$")
    mended = Inequality(
        "(30), $(1 − r/2)Σ*⁻¹ ≼ A ≼ (1 + r/2)Σ*⁻¹$: $‖I − A^½Σ^outA^½‖ ≤ 1 + r − ζ$"
    )
    for row in rows:
        case = row["case"]
        if "norm" in row:
            trial = mended if row["half"] else follows
            right = f"1 + {case['r']:g} − {case['ζ']:g}"
            trial.add(row["norm"], 1 + case["r"] - case["ζ"], case, working=(row["working"], right))
            continue
        factor = state_factor(*(case[name] for name in ("d", "n", "L", "ζ")))
        if row["above"]:
            working = ("", f"{factor:.6g} · {row['printed']:.6g}")
            printed.add(row["error"], factor * row["printed"], case, working=working)
        corrected.add(row["error"], factor * row["exchanged"], case)
        corrected.search_note = row.get("search", "")
    return Evidence(
        parts=[Part(printed=printed.check(), corrected=corrected.check())],
        errata=[
            as_erratum("proof of Theorem A.13, (31)", follows, mended),
            misprint(
                "Theorems 4.5 and A.13",
                "$Σ^out = X^outX^outᵀ$",
                "$Σ^out = X^outX^outᵀ/n$, the data covariance of Section 3.6: the "
                "transformer divides by $n$",
                "$d = L = 1$, $Σ* = w = x_q = 1$, $n = 10⁸$, every $x = 10⁻⁴$: $XXᵀ = 1$, "
                "and the transformer answers 10⁻⁸. At $ζ = 0.9$ the bound is 0.64, the squared "
                "error 1",
            ),
            misprint(
                "Theorem A.13",
                "Theorem A.13 restates Theorem 4.5, with (30), $ζΣ* ≼ Σ^out$, in place of (10)",
                "the wider (30): the corrected bound holds under it, and (10) implies it",
                "$Σ^out = Σ*/2$ satisfies (30) at $ζ = 1/2$, and not (10)",
            ),
            misprint(
                "proof of Theorem A.13, after (31)",
                "$A^{out −½}$",
                "$A^{opt −½}$, as in the line after it",
                "there is no $A^out$",
            ),
        ],
        numbers={"largest d": 4, "most loops": 4, "largest n": 1e40},
    )


@claim(
    "gatmiry2024.theorem-4.5",
    "On an instance whose covariance is at most $(2 − ζ)Σ*$, and at least $Σ*$ (in Theorem "
    "A.13 at least $ζΣ*$), the minimiser's squared error is at most "
    "$(1 + r)²(1 + r − ζ)^{2L}‖x_q‖²_{Σ*}‖w‖²_{Σ*⁻¹}$, $r = 16δd^{1/(2L)}$.",
    where="Section 4.1, Theorem 4.5, (10)",
    kind="inequality",
    hypotheses={
        "$A^opt$ symmetric, with $A^½$": "Theorem 3.2, with which the proof begins",
        "$Σ* ≼ Σ^out ≼ (2 − ζ)Σ*$, $0 < ζ < 1$": "(10); $ζΣ* ≼ Σ^out$ in (30)",
    },
    restates={"gatmiry2024.theorem-A.13": "Appendix A.1, Theorem A.13, (30) and (31)"},
    quick={"trials": 1500, "descents": 2},
    full={"trials": 40_000, "descents": 8},
    tiny={"trials": 100, "descents": 0},
    judge=judge_transfer,
    falsified={
        "errors twice as large": change_column("error", lambda error: 2 * error),
        "norms of (31) half as large again": change_column("norm", lambda norm: 1.5 * norm),
    },
)
def theorem_4_5(generator: torch.Generator, *, trials: int, descents: int) -> Rows:
    star = torch.diag(torch.tensor([1.0, 4.0], dtype=torch.float64))
    sample = torch.tensor([[1.25, 0.5], [0.5, 5.0]], dtype=torch.float64)
    case = Case(d=2, L=1, κ=4.0, n=10**12, ζ=0.5, note=f"$w = e₂$, $x_q = e₁$, {SMALLEST}")
    rows = [measure_instance(case, star, sample, identity(2)[1], identity(2)[0])]
    rows += [draw_instance(generator, k) for k in range(trials)]
    return rows + measure_contraction() + [search_row(generator, descents)]


SMALLEST = "$Σ* = diag(1, 4)$, $XXᵀ/n = [[5/4, 1/2], [1/2, 5]]$"


def measure_instance(
    case: Case, star: Tensor, sample: Tensor, w: Tensor, query: Tensor
) -> dict[str, Any]:
    """Measure the squared error (TF − y_q)² with A^opt = bΣ*⁻¹ and Σ^out = XXᵀ/n."""
    d, L, inverse = case["d"], case["L"], torch.linalg.inv(star)
    b = 1 - isotropic_minimum(d, case["n"], L)
    R = torch.linalg.matrix_power(identity(d) - b * sample @ inverse, L)
    return {
        "case": case,
        "above": bool(torch.linalg.eigvalsh(sample - star)[0] >= -1e-9 * star.max()),
        "error": float(w @ R @ query) ** 2,
        "printed": float((query @ star @ query) * (w @ inverse @ w)),
        "exchanged": float((query @ inverse @ query) * (w @ star @ w)),
    }


def draw_instance(generator: torch.Generator, k: int) -> dict[str, Any]:
    """Draw Σ^out under (30), every second one under (10); every second w and x_q is the worst."""
    d, L = 1 + k % 4, draw_integer(generator, 1, 4)
    n = (d + 1, 100, 10**6, 10**12, 10**40)[draw_integer(generator, 0, 4)]
    zeta = 0.02 + 0.96 * float(torch.rand((), generator=generator))
    star = draw_covariance(generator, d, 10.0 ** draw_integer(generator, 0, 6))
    values, U = torch.linalg.eigh(star)
    root = U * values.sqrt() @ U.mT
    share = torch.rand(d, generator=generator, dtype=torch.float64)
    share[0] = float(draw_integer(generator, 0, 1))
    V, _ = torch.linalg.qr(draw_normal(generator, d, d))
    low = 1.0 if k // 2 % 2 else zeta
    middle = V * (low + share * (2 - zeta - low)) @ V.mT
    w, query = draw_normal(generator, d), draw_normal(generator, d)
    if k % 2:
        # In whitened coordinates the residual is symmetric: its first vector is the worst.
        w, query = torch.linalg.solve(root, V[:, 0]), root @ V[:, 0]
    case = Case(d=d, L=L, κ=float(values[-1] / values[0]), n=n, ζ=zeta)
    return measure_instance(case, star, root @ middle @ root, w, query)


def measure_contraction() -> Rows:
    """Measure |1 − aσ| at the ends of the proof's premise and of (30), d = 1, Σ* = 1."""
    rows = []
    for r in (0.01, 0.1, 0.5):
        for zeta in (0.1, 0.5, 0.9):
            for half, far in ((False, r), (True, r / 2)):
                for a in (1 - far, 1 + far):
                    for sigma in (zeta, 2 - zeta):
                        case = Case(d=1, r=r, ζ=zeta, A=a, note=f"$Σ* = 1$, $Σ^out = {sigma:g}$")
                        working = f"|1 − {a:g} · {sigma:g}|"
                        norm = abs(1 - a * sigma)
                        rows.append({"case": case, "norm": norm, "half": half, "working": working})
    return rows


def search_row(generator: torch.Generator, descents: int) -> dict[str, Any]:
    """Search the whitened Σ^out that is worst for the corrected bound, with the worst w and x_q."""

    def margin(S: Tensor, **size: Any) -> tuple[Tensor, Tensor]:
        d, L, n, zeta = (size[name] for name in ("d", "L", "n", "ζ"))
        values = torch.linalg.eigvalsh((S + S.mT) / 2)
        residual = 1 - (1 - isotropic_minimum(d, n, L)) * values
        worst = residual.abs().amax(dim=-1).clamp(min=1e-300) ** (2 * L)
        inside = torch.minimum(values[..., 0] - zeta, 2 - zeta - values[..., -1])
        return (state_factor(d, n, L, zeta) / worst).log(), inside

    tried = [
        {"d": d, "L": L, "κ": 1.0, "n": n, "ζ": zeta}
        for d, L in ((1, 1), (2, 2), (2, 4))
        for n in (d + 1, 10**12, 10**40)
        for zeta in (0.05, 0.5)
    ]
    result = search_counterexample(
        margin, tried, generator, symmetric=True, pool=HARD_MATRICES, descents=descents
    )
    values, V = torch.linalg.eigh(result.case["A"])
    end = V[:, 0] if abs(values[0] - 1) > abs(values[-1] - 1) else V[:, -1]
    row = measure_instance(result.case, identity(len(V)), result.case["A"], end, end)
    return {**row, "search": result.summary}
