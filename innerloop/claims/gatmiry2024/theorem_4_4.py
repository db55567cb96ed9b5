"""Theorem 4.4 and Lemma A.9: a small loss puts A close to the minimiser.

Printed    (1 − w)A^opt ≼ A ≼ (1 + w)A^opt, with δ = (8Ld/√n)^{1/(2L)}, follows
           (4.4) for ε > 4δ from L(A, 0) ≤ ε^{2L}/2, with w = (4 + 16d^{1/(2L)})ε;
           (A.9) for ε > 2δ from L(A, 0) ≤ ε^{2L} − δ^{2L}(ε + 2)^{2L}, with w = 4ε + 16δd^{1/(2L)}
Tested     both forms of L(A, 0), see `landscape`, A^opt = bΣ*⁻¹: along diagonals of B = Σ*^½AΣ*^½
           (all symmetric A, by rotation), as far out as B ≽ 0 and the loss stays below its level,
           and a search; n from d + 1 to 10^24, ε from its least value up. Lemma A.9 at those ε for
           which its level is positive: for δ < 1, that is n > 64L²d², and ε > 2δ/(1 − δ)
Proof      for ε ≤ 1/2 or δ < 1: L(A, 0) ≥ ‖I − A^½Σ*A^½‖^{2L} (theorem-3.2) puts the eigenvalues λ
           of A^½Σ*A^½, and those of A^opt, whose loss is no more, within ε of 1. For ε ≤ 1/2
           |λ/b − 1| ≤ 2ε/b ≤ 4ε. Else w > 1, so that the lower end is below 0, and for δ < 1
           b ≥ 1 − (2L − 1)η ≥ 0.64, hence 1 + ε ≤ (1 + 4ε)b ≤ (1 + w)b. Elsewhere, for δ ≥ 1 and
           so ε > 4, Theorem 4.4 is tested, not proved
Beyond     the eigenvalues of Σ*^½AΣ*^½ are within L(A, 0)^{1/(2L)} of 1, whatever n. Among all
           matrices, ≼ the order of quadratic forms, it fails from two loops on: with N nilpotent
           (I − SB)^L stays small at B = b(I + tN) for t of order n^{1/4}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.falsifying import change_column
from innerloop.claims.gatmiry2024.hard_instances import HARD_MATRICES
from innerloop.claims.gatmiry2024.landscape import (
    FORMS,
    LOSS,
    TRACE,
    delta,
    draw_directions,
    farthest_within,
    get_law,
    identity,
)
from innerloop.claims.searching import search_counterexample
from innerloop.claims.shrinking import shrink
from innerloop.claims.trials import Inequality

SIZES = [[1, 1], [2, 1], [1, 2], [2, 2], [3, 1], [2, 3], [1, 8]]
Rows = list[dict[str, Any]]
"""The case, which of the two functions, the loss, and eigenvalues of B relative to b."""


class Statement(NamedTuple):
    """One of the two statements, as functions of ε, δ and of L or d^{1/(2L)}."""

    least: float
    """ε is above this many δ."""
    told: str
    level: Callable[[float, float, int], float]
    """The allowed loss."""
    width: Callable[[float, float, float], float]

    def bound_loss(self, size: Mapping[str, Any]) -> float:
        d, L, n, epsilon = (size[name] for name in ("d", "L", "n", "ε"))
        return self.level(epsilon, delta(L, d, n), L)

    def bound_distance(self, size: Mapping[str, Any]) -> float:
        d, L, n, epsilon = (size[name] for name in ("d", "L", "n", "ε"))
        return self.width(epsilon, delta(L, d, n), d ** (1 / (2 * L)))


THEOREM = Statement(
    least=4.0,
    told="$cε$, $c = 4 + 16d^{1/(2L)}$",
    level=lambda epsilon, small, L: epsilon ** (2 * L) / 2,
    width=lambda epsilon, small, root: (4 + 16 * root) * epsilon,
)
LEMMA = Statement(
    least=2.0,
    told="$(4ε + 16δd^{1/(2L)})$",
    level=lambda epsilon, small, L: epsilon ** (2 * L) - (small * (epsilon + 2)) ** (2 * L),
    width=lambda epsilon, small, root: 4 * epsilon + 16 * small * root,
)


def judge(rows: Rows, statement: Statement) -> Evidence:
    told = statement.told
    near = {form: Inequality(f"$A$ within a factor 1 ± {told}, $L(A, 0)$ {form}") for form in FORMS}
    skew = Inequality(
        f"any matrix $A$, $B = Σ*^½AΣ*^½$: the quadratic form of $B$ within a factor 1 ± {told} of "
        "the minimiser's"
    )
    sharp = Inequality("$A$ with $A^½$, any $n$: $‖I − A^½Σ*A^½‖^{2L} ≤ L(A, 0)$", rounding=1e-9)
    for row in rows:
        case, b = row["case"], row["b"]
        allowed, L = statement.bound_distance(case.values), case["L"]
        far = max(abs(ratio - 1) for ratio in row["ratios"])
        if not row["symmetric"]:
            skew.add(far, allowed, case)
            continue
        near[row["form"]].add(far, allowed, case)
        sharp.add(max(abs(b * ratio - 1) for ratio in row["ratios"]) ** (2 * L), row["loss"], case)
        near[row["form"]].search_note = row.get("search", "as far along a diagonal as it goes")
    if statement is THEOREM:
        near[LOSS].search_note += "; proved for $δ < 1$, for $δ ≥ 1$ tested"
    part = Part(
        printed=near[LOSS].check(),
        reading="$L(A, 0)$ is the loss, as Section 3.5 defines it",
        other_readings={TRACE: near[TRACE].check()},
    )
    return Evidence(
        parts=[part],
        beyond=[sharp.check(), skew.check()],
        # The lower end is proportional to δ at ε = 4δ, and δ to n^{−1/(4L)}.
        numbers={
            f"$n$ above which $1 − cε > 0$ at $ε = 4δ$, $L = {L}$, $d = {d}$": (
                THEOREM.bound_distance({"d": d, "L": L, "n": 1, "ε": 4 * delta(L, d, 1)}) ** (4 * L)
            )
            for d, L in ((1, 1), (1, 2), (2, 2))
            if statement is THEOREM
        },
    )


SETTINGS: dict[str, Any] = {
    "kind": "inequality",
    "quick": {"sizes": SIZES, "extra": 3, "descents": 1},
    "full": {"sizes": SIZES, "extra": 60, "descents": 6},
    "tiny": {"sizes": [[1, 1], [2, 2]], "extra": 0, "descents": 0},
    "falsified": {
        f"A as small a loss, at {times} times the minimiser": change_column(
            "ratios", lambda ratios, times=times: [times for _ in ratios]
        )
        for times in (400.0, -400.0)
    },
}
HYPOTHESES = {
    "$A$ symmetric, with $A^½$": "$≼$; Lemma 4.3, on which the proof rests, takes $A^½$",
    "n > d": "Section 3.2",
}


@claim(
    "gatmiry2024.theorem-4.4",
    "A loss of at most $ε^{2L}/2$, $ε > 4δ$, puts $A$ within a factor "
    "$1 ± (4 + 16d^{1/(2L)})ε$ of the minimiser.",
    where="Section 4, Theorem 4.4",
    hypotheses={"$ε > 4δ$": "the theorem", **HYPOTHESES},
    judge=lambda rows: judge(rows, THEOREM),
    **SETTINGS,
)
def theorem_4_4(generator: torch.Generator, **settings: Any) -> Rows:
    return measure(generator, THEOREM, **settings)


@claim(
    "gatmiry2024.lemma-A.9",
    "A loss of at most $ε^{2L} − δ^{2L}(ε + 2)^{2L}$, $ε > 2δ$, puts $A$ within a factor "
    "$1 ± (4ε + 16δd^{1/(2L)})$ of the minimiser.",
    where="Appendix A.1, Lemma A.9",
    hypotheses={"$ε > 2δ$": "the lemma", **HYPOTHESES},
    judge=lambda rows: judge(rows, LEMMA),
    **SETTINGS,
)
def lemma_a_9(generator: torch.Generator, **settings: Any) -> Rows:
    return measure(generator, LEMMA, **settings)


def measure(
    generator: torch.Generator,
    statement: Statement,
    *,
    sizes: list[list[int]],
    extra: int,
    descents: int,
) -> Rows:
    """Measure eigenvalues where the loss is at its level."""
    rows: Rows = []
    for case, most in list_cases(sizes, statement):
        along = draw_directions(generator, case["d"], extra)
        for form in FORMS:
            rows += go_out(case, most, form, case["b"] * identity(case["d"]), along)
    rows += [measure_shear(L, statement) for L in sorted({L for _, L in sizes if 1 < L < 8})]
    return [*rows, search_row(generator, sizes, descents, statement)]


def list_cases(sizes: list[list[int]], statement: Statement) -> Iterator[tuple[Case, float]]:
    """List sizes with ε and the level of the loss, where some A is below it."""
    for d, L in sizes:
        for n in (d + 1, 200 * d, 10**8, 10**18, 10**24):
            law = get_law(d, n, L)
            b = 1 - law.minimum_deviation()
            for times in (1.001, 3):
                case = Case(d=d, L=L, n=n, ε=statement.least * delta(L, d, n) * times, b=b)
                most = statement.bound_loss(case.values)
                if float(law.loss(b * identity(d))) <= most:
                    yield case, most


def measure_rows(case: Case, matrices: Tensor, form: str, b: float) -> Rows:
    law = get_law(*(case[name] for name in ("d", "n", "L")))
    return [
        {
            "case": case.extend(B=B),
            "form": form,
            "symmetric": torch.equal(B, B.mT),
            "loss": float(loss),
            "b": b,
            "ratios": (torch.linalg.eigvalsh((B + B.mT) / 2) / b).tolist(),
        }
        for B, loss in zip(matrices, FORMS[form](law, matrices), strict=True)
    ]


def go_out(case: Case, most: float, form: str, start: Tensor, along: Tensor) -> Rows:
    """Go from `start` as far along each direction as B ≽ 0 and the loss is below its level."""
    law = get_law(case["d"], case["n"], case["L"])

    def inside(t: Tensor) -> Tensor:
        B = start + t[:, None, None] * along
        least = torch.linalg.eigvalsh((B + B.mT) / 2)[:, 0]
        kept = (least >= 0) | (B.mT != B).any(dim=(-2, -1))
        return (FORMS[form](law, B) <= most) & kept

    t = farthest_within(inside, most ** (1 / (2 * law.loops)), len(along))
    return measure_rows(case, start + t[:, None, None] * along, form, case["b"])


def measure_shear(L: int, statement: Statement) -> dict[str, Any]:
    """Measure I with as large an entry above the diagonal as the level of ε = 1 allows, rounded."""
    case = Case(d=2, L=L, n=10**8 if L == 2 else 10**14, ε=1.0)
    law = get_law(2, case["n"], L)
    b, most = 1 - law.minimum_deviation(), statement.bound_loss(case.values)

    def is_far(B: Tensor) -> bool:
        (row,) = measure_rows(case, B[None], LOSS, b)
        far = max(abs(ratio - 1) for ratio in row["ratios"])
        return row["loss"] <= most and far > statement.bound_distance(case.values)

    N = torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    (row,) = go_out(case.extend(b=b), most, LOSS, identity(2), N[None])
    return measure_rows(case, shrink(row["case"]["B"], is_far)[None], LOSS, b)[0]


def search_row(
    generator: torch.Generator, sizes: list[list[int]], descents: int, statement: Statement
) -> dict[str, Any]:
    """Search the symmetric B ≽ 0 that is farthest out for its bound."""

    def margin(A: Tensor, **size: Any) -> tuple[Tensor, Tensor]:
        values = torch.linalg.eigvalsh((A + A.mT) / 2)
        far = (values / size["b"] - 1).abs().amax(dim=-1).clamp(min=1e-300)
        loss = get_law(size["d"], size["n"], size["L"]).loss(A)
        below = (statement.bound_loss(size) / loss).log()
        room = (statement.bound_distance(size) / far).log()
        return room, torch.minimum(below, values[..., 0])

    listed = [[case.values for case, _ in list_cases([size], statement)] for size in sizes]
    tried = [values for cases in listed for values in cases[::4]]
    found = search_counterexample(
        margin, tried, generator, symmetric=True, pool=HARD_MATRICES, descents=descents
    )
    (row,) = measure_rows(found.case, found.case["A"][None], LOSS, found.case["b"])
    return {**row, "case": found.case, "search": found.summary}
