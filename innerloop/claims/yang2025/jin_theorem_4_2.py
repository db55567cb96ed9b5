"""Theorem 4.2 of Jin et al.: gradient flow of one linear attention layer reaches the optimum.

Printed    single linear self-attention layers with proper initialisation converge to global optima
           of the population loss by gradient flow. The slides do not say which are proper
Reading    ours: the initialisation of Zhang, Frei & Bartlett (2024), Trained transformers learn
           linear models in-context, JMLR 25(49), arXiv:2306.09927, whose training procedure has
           W^PV = σ e eᵀ with e the last unit vector and W^KQ = σ diag(ΘΘᵀ, 0), ‖ΘΘᵀ‖ = 1, σ > 0:
           here b = (0, σ), A = [σΘΘᵀ; 0]
Tested     the flow integrated on the exact loss (`theory.mixture_layer`), K = 1 … 4 vectors, signal
           to noise from 1 on, n from 2 to 1000, from σ = 10⁻³ and 0.7, Θ of rank 1 (`full`: to 4);
           the hard spectra of this source for ΘΘᵀ, n = 1, σ = 10⁻⁶ and 10
Proof      p = 0 and a = 0 stay so. With R = rI/√d + S, tr S = 0: S' = −2vβ²S,
           r' = 2β(m√d − vβr), and β² − r² − ‖S‖² is conserved, 0 here. r' > 0 where r ≤ 0, so
           that r > 0 stays so and bounds β from below; S decays, and then β = r, whose only
           attractor is r² = m√d/v: K = βR = (m/v)I, the optimum. σ need not be small
Ours       "reaches": what is left of the loss above the minimum is below 10⁻⁶ of what it was; the
           flow converges exponentially, and the time is 40/(2m) for every case
Beyond     other initialisations: all weights 0 are a critical point, R = −σI/√d of the wrong sign
           ends in it, and from random weights everywhere the flow is slower
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case, format_entry
from innerloop.claims.evidence import Evidence, Figure, Part
from innerloop.claims.falsifying import Rows, change_column
from innerloop.claims.figures import draw_lines
from innerloop.claims.trials import Inequality
from innerloop.claims.yang2025.hard_instances import HARD_SPECTRA
from innerloop.theory.flow import Trajectory, gradient_flow
from innerloop.theory.mixture_layer import MixtureLayerLoss

LEFT = 1e-6
"""Share of the loss above the minimum that may be left."""
UNITS = 40.0
"""Time of the flow, in units of 1/(2m): the optimum attracts at the rate 2m or faster."""
OURS = (
    f"at most {LEFT:.0e} of the loss above the minimum is left after the time {UNITS:g}/(2m); the "
    "optimum attracts at the rate 2m or faster"
)
HARD_HERE = ("one value", "one small eigenvalue")
"""The hard spectra that differ at d = 2."""


def judge_flows(rows: Rows) -> Evidence:
    end = "gradient flow ends at the least loss of a linear layer"
    proper = Inequality(f"from $b = (0, σ)$, $A = [σΘΘᵀ; 0]$ {end}")
    zero = Inequality(f"from all weights 0 {end}")
    wrong = Inequality(f"from $b = (0, σ)$, $A = [−σI/√d; 0]$ {end}")
    random = Inequality(f"from weights $N(0, 0.09)$ {end}, within as much time")
    kinds = {"proper": proper, "zero": zero, "wrong sign": wrong, "random": random}
    for row in rows:
        kinds[row["kind"]].add(row["end"], LEFT * row["start"], row["case"])
    return Evidence(
        parts=[
            Part(
                printed=replace(proper.check(), ours=OURS),
                reading="proper: ours, that of Zhang, Frei & Bartlett (2024) for one regression",
            )
        ],
        beyond=[replace(each.check(), ours=OURS) for each in (zero, wrong, random)],
        figures=[draw_flows(rows)],
    )


def draw_flows(rows: Rows) -> Figure:
    """Plot the loss above the minimum along the flow from each kind of start, in the last case."""
    last = {row["kind"]: row for row in rows}
    case = rows[-1]["case"]
    told = [
        {"time": time, "excess": max(value, 1e-12), "start": kind}
        for kind, row in last.items()
        for time, value in zip(row["times"], row["curve"], strict=True)
    ]
    return draw_lines(
        "One linear attention layer on a mixture of regressions",
        told,
        "time: time of gradient flow",
        "excess: loss above the minimum",
        "start: initial weights",
        log="xy",
        caption=f"d = {case['d']}, n = {case['n']}, K = {case['K']}, noise {case['noise']:g}.",
    )


@claim(
    "yang2025.jin.theorem-4.2",
    "Gradient flow on the population loss of one linear self-attention layer, properly "
    "initialised, converges to a global optimum.",
    where="Fourth paper (Jin et al. 2024): Theorem 4.2",
    kind="inequality",
    hypotheses={
        "$b = (0, σ)$, $A = [σΘΘᵀ; 0]$, $‖ΘΘᵀ‖ = 1$, $σ > 0$": "ours, after "
        "arXiv:2306.09927: the slides say proper initialisation",
        "$x ~ N(0, I)$, $β_k$ independent, uniform on a sphere": "ours: the slides do not "
        "say which",
    },
    quick={
        "sizes": [[1, 2, 1], [2, 5, 2], [4, 1000, 4], [3, 20, 3]],
        "noises": [0.0, 1.0],
        "sigmas": [1e-3, 0.7],
        "starts": 1,
    },
    full={
        "sizes": [[1, 2, 1], [1, 2, 3], [2, 5, 2], [4, 1000, 4], [8, 40, 2], [3, 20, 3]],
        "noises": [0.0, 0.5, 1.0],
        "sigmas": [1e-3, 0.1, 0.7],
        "starts": 4,
    },
    tiny={"sizes": [[1, 2, 2]], "noises": [1.0], "sigmas": [0.7], "starts": 1},
    judge=judge_flows,
    falsified={
        "flows that stay where they begin": lambda rows: [
            {**row, "end": row["start"]} if "end" in row else row for row in rows
        ],
        "flows that end a thousandth above the minimum": change_column(
            "end", lambda end: max(end, 1e-3)
        ),
    },
)
def jin_theorem_4_2(
    generator: torch.Generator,
    *,
    sizes: list[list[int]],
    noises: list[float],
    sigmas: list[float],
    starts: int,
) -> Rows:
    rows: Rows = []
    for d, n, K in sizes:
        for noise in noises:
            layer = MixtureLayerLoss(d=d, n=n, components=K, noise=noise)
            rows += follow_flows(layer, draw_starts(generator, d, sigmas, starts))
    return list_hard_flows() + rows


def list_hard_flows() -> Rows:
    """Follow flows from the hard spectra of ΘΘᵀ, with one example and none to spare."""
    rows: Rows = []
    for d, n, K, names in ((1, 1, 1, HARD_HERE[:1]), (2, 1, 2, HARD_HERE)):
        layer = MixtureLayerLoss(d=d, n=n, components=K, noise=0.0)
        starts = []
        for name in names:
            square = torch.diag(HARD_SPECTRA[name](d, 100.0))
            for sigma in (1e-6, 10.0):
                packed = pack(sigma, sigma * square / square.norm())
                starts.append(("proper", f"$σ = {sigma:g}$, {name}", packed))
        rows += follow_flows(layer, starts)
    smallest = MixtureLayerLoss(d=2, n=1, components=1, noise=0.0)
    slow = torch.tensor([[3, 3, -3], [3, -3, 3], [3, 3, 3]], dtype=torch.float64) / 10
    told = f"weights $(b | A) = {format_entry(slow)}$"
    return rows + follow_flows(smallest, [("random", told, slow)])


def draw_starts(
    generator: torch.Generator, d: int, sigmas: list[float], count: int
) -> list[tuple[str, str, Tensor]]:
    """Draw initial weights (b | A) of every kind, with a description."""
    found: list[tuple[str, str, Tensor]] = []
    for k in range(count):
        rank = 1 + k % d
        root = torch.randn(d, rank, generator=generator, dtype=torch.float64)
        square = root @ root.mT
        square = square / square.norm()
        for sigma in sigmas:
            found.append(("proper", f"$σ = {sigma:g}$, rank {rank}", pack(sigma, sigma * square)))
            minus = -sigma / d**0.5 * torch.eye(d, dtype=torch.float64)
            found.append(("wrong sign", f"$σ = {sigma:g}$", pack(sigma, minus)))
        noise = torch.randn(d + 1, d + 1, generator=generator, dtype=torch.float64)
        found.append(("random", "$N(0, 0.09)$", 0.3 * noise))
    found.append(("zero", "all weights 0", torch.zeros(d + 1, d + 1, dtype=torch.float64)))
    return found


def pack(scale: float, square: Tensor) -> Tensor:
    """Put b = (0, scale) and A = [square; 0] into one matrix (b | A)."""
    d = len(square)
    packed = torch.zeros(d + 1, d + 1, dtype=torch.float64)
    packed[d, 0], packed[:d, 1:] = scale, square
    return packed


def compute_excess(layer: MixtureLayerLoss, packed: Tensor) -> Tensor:
    """The loss above its minimum."""
    return layer.loss(packed[..., 0], packed[..., 1:]) - layer.minimum


def follow(layer: MixtureLayerLoss, start: Tensor, times: Tensor) -> Trajectory:
    """Follow gradient flow; its attractor forgets errors made on the way."""
    return gradient_flow(lambda w: compute_excess(layer, w), start, times, rtol=1e-5, atol=1e-8)


def follow_flows(layer: MixtureLayerLoss, starts: list[tuple[str, str, Tensor]]) -> Rows:
    """Follow the flows of all starts to the end."""
    times = torch.logspace(-4, 0, 17, dtype=torch.float64) * UNITS / (2 * layer.overlap)
    # One by one: LSODA's Jacobian of all together would be mostly zeros.
    found = [follow(layer, start, times) for *_, start in starts]
    return [
        {
            "kind": kind,
            "case": Case(d=layer.d, n=layer.n, K=layer.components, noise=layer.noise, note=told),
            "start": float(compute_excess(layer, start)),
            "end": max(float(flow.losses[-1]), 0.0),
            "times": times.tolist(),
            "curve": flow.losses.tolist(),
        }
        for flow, (kind, told, start) in zip(found, starts, strict=True)
    ]
