"""A transformer is Lipschitz in the norm of its weights, for bounded inputs.

Printed    one sentence after ‖θ‖ = max_ℓ { max_m max(‖Q‖, ‖K‖) + Σ_m ‖V_m‖ + ‖W₁‖ + ‖W₂‖ }: the
           transformer can be proven Lipschitz continuous to this norm when inputs are bounded
Reading    on the space of parameters that the slides define, Θ(B) = {‖θ‖ ≤ B, at most B_M heads}.
           Over all θ no constant does: D = N = 1, Q = K = V = t adds t³h³
Tested     ‖TF_θ(H) − TF_θ'(H)‖ (the largest column) against λ‖θ − θ'‖ for encoders and decoders,
           L ≤ 3 layers, M ≤ 3 heads, at random, near each other, all weights one hard matrix, and
           by a search that maximises the quotient
Ours       the constant: columns of length ≤ r, then a layer has r₊ = (1 + B²)(r + B³r³), and
           λ₊ = (1 + B²)((1 + 3B³r²)λ + B²r³) + B(r + B³r³) for the Lipschitz constant λ so far
Proof      with q = max(‖Q‖, ‖K‖), v = Σ‖V‖, w = ‖W₁‖, u = ‖W₂‖, q + v + w + u ≤ B: attention adds
           at most q²vr³, and moves by 3q²vr²‖ΔH‖ + r³ max(2qv, q²)‖Δθ‖ ≤ 3B³r²‖ΔH‖ + B²r³‖Δθ‖; the
           MLP adds at most uw ≤ B² of its input, and moves by B times that input a unit of ‖Δθ‖
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.falsifying import change_column
from innerloop.claims.prompts import draw_integer, draw_normal
from innerloop.claims.qliu2025.hard_instances import HARD_MATRICES
from innerloop.claims.qliu2025.slides import Layer, combine_layers, run_layers, weights_norm
from innerloop.claims.searching import search_minimum
from innerloop.claims.trials import Inequality


def lipschitz_constant(B: float, r: float, layers: int) -> float:
    """The Lipschitz constant λ for ‖θ‖ ≤ B, L layers and columns of length at most r."""
    found = 0.0
    for _ in range(layers):
        middle = r + B**3 * r**3
        found = (1 + B**2) * ((1 + 3 * B**3 * r**2) * found + B**2 * r**3) + B * middle
        r = (1 + B**2) * middle
    return found


def distance(one: Tensor, other: Tensor) -> Tensor:
    return (one - other).norm(dim=0).max()


CONSTANT = (
    "the constant: the slides name none. A layer takes $r$ to $(1 + B²)(r + B³r³)$, and "
    "$λ$ to $(1 + B²)((1 + 3B³r²)λ + B²r³) + B(r + B³r³)$, $λ = 0$ before the first"
)
Rows = list[dict[str, Any]]
"""The case, how far apart outputs and weights are, λ; without λ, a case outside every ball."""


def judge_quotients(rows: Rows) -> Evidence:
    ball = Inequality(
        "$‖TF_θ(H) − TF_θ'(H)‖ ≤ λ(B, r, L) ‖θ − θ'‖$ for $‖θ‖$, $‖θ'‖ ≤ B$, columns $≤ r$"
    )
    anywhere = Inequality("$‖TF_θ(H) − TF_θ'(H)‖ ≤ λ‖θ − θ'‖$ for all $θ$, $λ$ fitted at $‖θ‖ = 2$")
    fitted = next(row["moved"] / row["apart"] for row in rows if row["λ"] is None)
    for row in rows:
        if row["λ"] is None:
            working = (f"{row['case']['t']:g}³", f"{fitted:g} · {row['apart']:g}")
            anywhere.add(row["moved"], fitted * row["apart"], row["case"], working=working)
            continue
        ball.add(row["moved"], row["λ"] * row["apart"], row["case"])
        ball.search_note = row.get("search", "")
    inside = [row for row in rows if row["λ"] is not None]
    return Evidence(
        parts=[
            Part(
                printed=replace(ball.check(), ours=CONSTANT),
                reading=(
                    "over the space of parameters $Θ(B_θ)$ that the slides define for training"
                ),
                other_readings={"over all $θ$": anywhere.check()},
            )
        ],
        numbers={
            "largest quotient, in units of λ": max(
                row["moved"] / (row["λ"] * row["apart"]) for row in inside
            )
        },
    )


@claim(
    "qliu2025.lipschitz",
    "On bounded inputs a transformer is a Lipschitz function of its weights in the norm $‖θ‖$.",
    where="Slide after the definition of ‖θ‖",
    kind="inequality",
    hypotheses={
        "inputs bounded": "the sentence itself",
        "$‖θ‖ ≤ B_θ$": (
            "the space of parameters $Θ(B_θ)$, defined with the pre-training objective (1)"
        ),
    },
    quick={"trials": 300, "starts": 2},
    full={"trials": 60_000, "starts": 40},
    tiny={"trials": 20, "starts": 1},
    judge=judge_quotients,
    falsified={
        "outputs 1 apart, however near the weights are": change_column("moved", lambda _: 1.0),
        "outputs 40 times as far apart": change_column("moved", lambda moved: 40 * moved),
    },
)
def lipschitz(generator: torch.Generator, *, trials: int, starts: int) -> Rows:
    rows = measure_cubic()
    for trial in range(trials):
        layers, D, heads, hidden, N = (draw_integer(generator, 1, most) for most in (3, 4, 3, 4, 5))
        B, r = (10 ** (torch.rand(2, generator=generator) - 0.7)).tolist()
        one = _draw_layers(generator, layers, D, heads, hidden, B)
        other = _draw_layers(generator, layers, D, heads, hidden, B)
        if trial % 2:
            other = combine_layers(one, other, 1 - 1e-4, 1e-4)  # inside the ball, which is convex
        H = draw_normal(generator, D, N)
        H = H / H.norm(dim=0) * r
        case = Case(L=layers, D=D, M=heads, N=N, B=B, r=r)
        rows.append(measure_pair(one, other, H, case, causal=trial % 3 == 0))
    return [*rows, *measure_hard_pairs(), search_pair(generator, starts)]


def measure_hard_pairs() -> Rows:
    """Measure layers whose weights all are one hard matrix, against 0, −θ and a near θ'."""
    rows = []
    for name, build in HARD_MATRICES.items():
        for D, layers, B, r in product((1, 3), (1, 2), (0.01, 1.0, 100.0), (0.01, 1.0, 100.0)):
            A = build(D)
            whole = [Layer(A[None], A[None], A[None], A, A)] * layers
            if not A.any():
                continue
            one = combine_layers(whole, whole, B / float(weights_norm(whole)), 0.0)
            H = r * A / A.norm(dim=0).max()
            case = Case(L=layers, D=D, M=1, N=D, B=B, r=r, note=f"all weights and $H$: {name}")
            for by in (0.0, -1.0, 1 - 1e-4):
                rows.append(
                    measure_pair(one, combine_layers(one, one, by, 0.0), H, case, causal=D == 3)
                )
    return rows


def measure_pair(
    one: list[Layer], other: list[Layer], H: Tensor, case: Case, causal: bool = False
) -> dict[str, Any]:
    bound = lipschitz_constant(case["B"], case["r"], case["L"]) if "B" in case.values else None
    moved = distance(run_layers(one, H, causal), run_layers(other, H, causal))
    apart = weights_norm(combine_layers(one, other, 1.0, -1.0))
    return {"case": case, "moved": float(moved), "apart": float(apart), "λ": bound}


def measure_cubic() -> Rows:
    """Measure D = N = 1, h = 1, Q = K = V = t against θ' = 0: t³ against 2t."""
    H = torch.ones(1, 1, dtype=torch.float64)
    rows = []
    for t in (1.0, 2.0, 4.0, 8.0):
        case = Case(t=t, note="$D = N = 1$, $h = 1$, $Q = K = V = t$, no MLP, $θ' = 0$")
        rows.append(measure_pair(as_scalars([t, t, t, 0, 0]), as_scalars([0.0] * 5), H, case))
    return rows


def as_scalars(numbers: list[float] | Tensor) -> list[Layer]:
    """A layer with D = 1 and one head from the numbers V, Q, K, W₁, W₂."""
    V, Q, K, W1, W2 = torch.as_tensor(numbers, dtype=torch.float64).reshape(5, 1, 1)
    return [Layer(V[None], Q[None], K[None], W1, W2)]


def _draw_layers(
    generator: torch.Generator, layers: int, D: int, heads: int, hidden: int, B: float
) -> list[Layer]:
    """Draw weights with ‖θ‖ = B, the parts of random size."""
    found = []
    for _ in range(layers):
        V, Q, K = (
            draw_normal(generator, heads, D, D) * torch.rand((), generator=generator).double()
            for _ in range(3)
        )
        found.append(
            Layer(V, Q, K, draw_normal(generator, hidden, D), draw_normal(generator, D, hidden))
        )
    return combine_layers(found, found, B / float(weights_norm(found)), 0.0)


def search_pair(generator: torch.Generator, starts: int) -> dict[str, Any]:
    """Search the largest quotient over two sets of five numbers, ‖θ‖ ≤ 1, one layer, h = 1."""
    H = torch.ones(1, 1, dtype=torch.float64)

    def build(point: Tensor) -> list[Layer]:
        layers = as_scalars(point)
        size = torch.maximum(weights_norm(layers), torch.ones(()))
        return [Layer(*(part / size for part in layers[0]))]

    def margin(point: Tensor) -> Tensor:
        one, other = build(point[:5]), build(point[5:])
        moved = distance(run_layers(one, H, False), run_layers(other, H, False))
        return -moved / weights_norm(combine_layers(one, other, 1.0, -1.0))

    best, _, evaluations = search_minimum(
        margin, draw_normal(generator, starts, 10).abs(), iterations=12
    )
    case = Case(L=1, D=1, M=1, N=1, B=1.0, r=1.0, note="where a search ended")
    row = measure_pair(build(best[:5]), build(best[5:]), H, case)
    return {**row, "search": f"a search over $θ$, $θ'$ evaluated it {evaluations} times"}
