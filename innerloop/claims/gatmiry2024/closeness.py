"""A small loss puts A close to the minimiser: what Theorem 4.4 and Lemma A.9 share.

Tested     both forms of L(A, 0), see `landscape`, A^opt = bΣ*⁻¹: along diagonals of B = Σ*^½AΣ*^½
           (all symmetric A, by rotation), as far out as B ≽ 0 and the loss stays below its level,
           and a search; n from d + 1 to 10^24, ε from its least value up
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.falsifying import change_column
from innerloop.claims.figures import Value
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

Level = Callable[[float, float, int], float]
"""Map ε, δ and L to the allowed loss."""
Spread = Callable[[float, float, float], float]
"""Map ε, δ and d^{1/(2L)} to the allowed distance of A from A^opt."""
Rows = list[dict[str, Any]]
"""The case, which of the two functions, the loss, and eigenvalues of B relative to b."""
SIZES = [[1, 1], [2, 1], [1, 2], [2, 2], [3, 1], [2, 3], [1, 8]]
HYPOTHESES = {
    "$A$ symmetric, with $A^½$": "$≼$; Lemma 4.3, on which the proof rests, takes $A^½$",
    "n > d": "Section 3.2",
}
FALSIFIED = {
    "A as small a loss, at 400 times the minimiser": change_column(
        "ratios", lambda ratios: [400.0 for _ in ratios]
    ),
    "A as small a loss, at −400 times the minimiser": change_column(
        "ratios", lambda ratios: [-400.0 for _ in ratios]
    ),
}


def judge_closeness(rows: Rows, told: str, wide: Spread, numbers: dict[str, Value]) -> Evidence:
    near = {form: Inequality(f"$A$ within a factor 1 ± {told}, $L(A, 0)$ {form}") for form in FORMS}
    skew = Inequality(f"$A$ any matrix, its quadratic form within a factor 1 ± {told}")
    sharp = Inequality("$A$ with $A^½$, any $n$: $‖I − A^½Σ*A^½‖^{2L} ≤ L(A, 0)$", rounding=1e-9)
    for row in rows:
        case, b = row["case"], row["b"]
        d, L, n, epsilon = (case[name] for name in ("d", "L", "n", "ε"))
        allowed = wide(epsilon, delta(L, d, n), d ** (1 / (2 * L)))
        far = max(abs(ratio - 1) for ratio in row["ratios"])
        if not row["symmetric"]:
            skew.add(far, allowed, case)
            continue
        near[row["form"]].add(far, allowed, case)
        sharp.add(max(abs(b * ratio - 1) for ratio in row["ratios"]) ** (2 * L), row["loss"], case)
        near[row["form"]].search_note = row.get("search", "as far along a diagonal as it goes")
    part = Part(
        printed=near[LOSS].check(),
        reading="$L(A, 0)$ is the loss, as Section 3.5 defines it",
        other_readings={TRACE: near[TRACE].check()},
    )
    return Evidence(parts=[part], beyond=[sharp.check(), skew.check()], numbers=numbers)


def measure_closeness(
    generator: torch.Generator,
    sizes: list[list[int]],
    extra: int,
    descents: int,
    least: float,
    level: Level,
    wide: Spread,
) -> Rows:
    """Measure eigenvalues where the loss is at its level, for ε of at least `least`·δ."""
    rows: Rows = []
    for case, most in list_cases(sizes, least, level):
        d, b = case["d"], case["b"]
        along = draw_directions(generator, d, extra)
        for form in FORMS:
            rows += go_out(case, most, form, b * identity(d), along)
    rows += [measure_shear(L, level, wide) for L in sorted({L for _, L in sizes if 1 < L < 8})]
    return rows + search_rows(generator, sizes, descents, least, level, wide)


def measure_shear(L: int, level: Level, wide: Spread) -> dict[str, Any]:
    """Measure I with as large an entry above the diagonal as the level of ε = 1 allows, rounded."""
    n = 10**8 if L == 2 else 10**14
    law, small = get_law(2, n, L), delta(L, 2, n)
    b, most = 1 - law.minimum_deviation(), level(1.0, small, L)

    def is_far(B: Tensor) -> bool:
        far = (torch.linalg.eigvalsh((B + B.mT) / 2) / b - 1).abs().max()
        return float(law.loss(B)) <= most and bool(far > wide(1.0, small, 2 ** (1 / (2 * L))))

    N = torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    (row,) = go_out(Case(d=2, L=L, n=n, ε=1.0, b=b), most, LOSS, identity(2), N[None])
    B = shrink(row["case"]["B"], is_far)
    ratios = (torch.linalg.eigvalsh((B + B.mT) / 2) / b).tolist()
    case = Case(d=2, L=L, n=n, ε=1.0, B=B)
    return {**row, "case": case, "loss": float(law.loss(B)), "ratios": ratios}


def list_cases(sizes: list[list[int]], least: float, level: Level) -> Iterator[tuple[Case, float]]:
    """List sizes with ε and the level of the loss, where some A is below it."""
    for d, L in sizes:
        for n in (d + 1, 200 * d, 10**8, 10**18, 10**24):
            law = get_law(d, n, L)
            b = 1 - law.minimum_deviation()
            for times in (1.001, 3):
                epsilon = least * delta(L, d, n) * times
                most = level(epsilon, delta(L, d, n), L)
                if float(law.loss(b * identity(d))) <= most:
                    yield Case(d=d, L=L, n=n, ε=epsilon, b=b), most


def go_out(case: Case, most: float, form: str, start: Tensor, along: Tensor) -> Rows:
    """Go from `start` as far along each direction as B ≽ 0 and the loss is below its level."""
    law, b = get_law(case["d"], case["n"], case["L"]), case["b"]

    def inside(t: Tensor) -> Tensor:
        B = start + t[:, None, None] * along
        least = torch.linalg.eigvalsh((B + B.mT) / 2)[:, 0]
        kept = (least >= 0) | (B.mT != B).any(dim=(-2, -1))
        return (FORMS[form](law, B) <= most) & kept

    t = farthest_within(inside, most ** (1 / (2 * law.loops)), len(along))
    B = start + t[:, None, None] * along
    losses = FORMS[form](law, B)
    return [
        {
            "case": case.extend(B=each),
            "form": form,
            "symmetric": torch.equal(each, each.mT),
            "loss": float(loss),
            "b": b,
            "ratios": (torch.linalg.eigvalsh((each + each.mT) / 2) / b).tolist(),
        }
        for each, loss in zip(B, losses, strict=True)
    ]


def search_rows(
    generator: torch.Generator,
    sizes: list[list[int]],
    descents: int,
    least: float,
    level: Level,
    wide: Spread,
) -> Rows:
    """Search the symmetric B ≽ 0 that is farthest out for its bound."""
    listed = [[case.values for case, _ in list_cases([size], least, level)] for size in sizes]

    def margin(A: Tensor, **size: Any) -> tuple[Tensor, Tensor]:
        d, L, n, epsilon, b = (size[name] for name in ("d", "L", "n", "ε", "b"))
        values = torch.linalg.eigvalsh((A + A.mT) / 2)
        far = (values / b - 1).abs().amax(dim=-1).clamp(min=1e-300)
        allowed = wide(epsilon, delta(L, d, n), d ** (1 / (2 * L)))
        below = (level(epsilon, delta(L, d, n), L) / get_law(d, n, L).loss(A)).log()
        return (allowed / far).log(), torch.minimum(below, values[..., 0])

    tried = [values for cases in listed for values in cases[::4]]
    found = search_counterexample(
        margin, tried, generator, symmetric=True, pool=HARD_MATRICES, descents=descents
    )
    B, b = found.case["A"], found.case["b"]
    law = get_law(*(found.case[name] for name in ("d", "n", "L")))
    row = {"form": LOSS, "symmetric": True, "loss": float(law.loss(B)), "b": b}
    ratios = (torch.linalg.eigvalsh(B) / b).tolist()
    return [{"case": found.case, **row, "ratios": ratios, "search": found.summary}]
