"""Theorem 8 of Lin et al.: soft LinUCB in Õ(√T) layers of width O(dA), log-probabilities within ε.

Printed    for any small ε there is a transformer of D ≤ O(dA) dimensions and L = Õ(√T) layers whose
           log-probabilities differ from soft LinUCB's by at most ε, by accelerated gradient descent
           for ridge regression
Tested     the transformer `soft-lin-ucb`: its log-probabilities against LinUCB written out with
           exact solves; layers needed for ε over two decades of T by the proven bound, which holds
           for every game in range, and over a decade on games, half of them as hard as can be
           (one direction played for ever); width over d and A
Beyond     L = k + 2, k ≈ √((2T − 1)(B²/2 + λ)/λ) log(·/ε); without momentum layers grow like T,
           which is what makes the acceleration the point of the theorem
Note       λ, B, τ, α are fixed: √T is √(T B²/λ)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from innerloop.algorithms.accelerated_ridge import StepRates
from innerloop.algorithms.soft_lin_ucb import SoftLinUCB
from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Evidence, Figure, Part
from innerloop.claims.intervals import fit_exponent
from innerloop.claims.trials import Inequality
from innerloop.claims.yang2025.bandit_layers import (
    count_needed_steps,
    draw_games,
    least_steps,
    prefix_moments,
)
from innerloop.claims.yang2025.rates import check_power_law
from innerloop.constructions.soft_lin_ucb import SoftLinUCBConstruction
from innerloop.playing.contest import play_contest
from innerloop.problems.linear_bandit_games import BanditGameProblem

ERROR, ARMS, D, KNOTS = 1e-2, 3, 2, 2_000
ALPHA, RIDGE, TEMPERATURE = 1.0, 1.0, 0.5


@claim(
    "yang2025.lin.theorem-8",
    "A transformer with Õ(√T) layers of width O(dA) gives the log-probabilities of soft LinUCB on "
    "linear bandits over T steps to within ε.",
    where="Third paper (Lin et al. 2023): Theorem 8",
    kind="rate",
    quick={"horizons": [16, 32, 64, 128, 256], "batch": 6, "rounds": 10},
    full={"horizons": [16, 32, 64, 128, 256, 512, 1024], "batch": 40, "rounds": 30},
    tiny={"horizons": [6, 20, 60], "batch": 4, "rounds": 4},
    falsified={
        "gradient descent without momentum": {"accelerated": False},
        "half the layers": {"share": 0.5},
        "width O(d + A)": {"product": False},
    },
)
def lin_theorem_8(
    generator: torch.Generator,
    *,
    horizons: list[int],
    batch: int,
    rounds: int,
    accelerated: bool = True,
    share: float = 1.0,
    product: bool = True,
) -> Evidence:
    wide = [10, 30, 100, 300, 1000, 2000]
    bounded = [_steps_by_bound(T, ERROR, accelerated) + 2 for T in wide]
    measured = [_steps_on_games(generator, T, batch, accelerated) + 2 for T in horizons]
    told = "by the bound, layers over log(T/ε) grow no faster than √T"
    seen = "on games, layers over log(T/ε) grow no faster than √T"
    scaled, less = (
        [L / math.log(T / ERROR) for T, L in zip(over, layers, strict=True)]
        for over, layers in ((wide, bounded), (horizons, measured))
    )
    within, same = _check_within(generator, rounds, share)
    rows = [
        {"T": T, "layers": L, "by": by}
        for by, over, layers in (("bound", wide, bounded), ("games", horizons, measured))
        for T, L in zip(over, layers, strict=True)
    ]
    deeper = _steps_by_bound(100, ERROR / 10, True) - _steps_by_bound(100, ERROR, True)
    return Evidence(
        parts=[
            within,
            Part(
                printed=check_power_law(told, wide, scaled, 0.5, within=0.02, what="T", bound=True)
            ),
            Part(
                printed=check_power_law(seen, horizons, less, 0.5, within=0.1, what="T", bound=True)
            ),
            _widths(product),
        ],
        numbers={
            "layers more for a tenth of ε, T = 100": deeper,
            f"choices like the policy's in a game of {rounds} steps": same,
            "exponent of layers over T, by the bound, logarithms left in": fit_exponent(
                wide, [float(L) for L in bounded]
            )[0],
            f"layers for T = {wide[-1]}, ε = {ERROR}": bounded[-1],
        },
        table=rows,
        figures=[
            Figure(
                title="Layers for log-probabilities within 0.01",
                rows=rows,
                x=Axis(field="T", title="steps T of a game", scale="log"),
                y=Axis(field="layers", title="layers", scale="log"),
                colour=Axis(field="by", title="enough for", scale="category"),
                caption="`bound`: every game in range. `games`: those drawn, half of them hard.",
            )
        ],
    )


def _steps_by_bound(T: int, error: float, accelerated: bool) -> int:
    """Steps at which the proven bound on |Δ log p| is at most the error."""
    built = _build_construction(T, 1, ALPHA, RIDGE)
    q = float(built.algorithm.rates.q[0])

    def enough(k: int) -> bool:
        left = (1 + k * q) * (1 - q) ** k if accelerated else (1 - q**2) ** k
        unsolved = left * built.bound * (built.max_estimate + built.alpha / built.ridge**0.5)
        return 2 * unsolved / built.temperature + built.interpolation_error <= error

    return least_steps(enough)


def lin_ucb_log_probabilities(
    game: BanditGameProblem, ridge: float, alpha: float, temperature: float
) -> Tensor:
    """Log-probabilities of soft LinUCB before every step, with exact solves."""
    gram, moment = prefix_moments(game, ridge)
    inverse = torch.linalg.inv(gram)
    estimate = (inverse @ moment.unsqueeze(-1)).squeeze(-1)
    values = (game.features * estimate.unsqueeze(-2)).sum(dim=-1)
    widths = ((game.features @ inverse) * game.features).sum(dim=-1).sqrt()
    return ((values + alpha * widths) / temperature).log_softmax(dim=-1)


def _steps_on_games(generator: torch.Generator, T: int, batch: int, accelerated: bool) -> int:
    game = draw_games(generator, batch, T, ARMS, D)
    values = torch.tensor([RIDGE, ALPHA, TEMPERATURE], dtype=torch.float64)
    ridge, alpha, temperature = values
    ridges = ridge.expand(1 + ARMS)
    pace = StepRates.of(ridges, 1.0, T)
    pace = pace if accelerated else pace._replace(q=torch.ones_like(pace.q))
    algorithm = SoftLinUCB(ridges, pace, alpha, temperature)
    wanted = lin_ucb_log_probabilities(game, RIDGE, ALPHA, TEMPERATURE)
    return count_needed_steps(algorithm, game, wanted, ERROR)


def _check_within(generator: torch.Generator, T: int, share: float) -> tuple[Part, str]:
    """Check the transformer with the number of layers from the bound, or a share of it."""
    held = Inequality(f"|Δ log p| ≤ ε = {ERROR} at every step of a game, as many layers as stated")
    built = _build_construction(T, 1, ALPHA, RIDGE)
    for alpha, ridge in ((1.0, 1.0), (0.3, 0.2)):
        steps = least_steps(
            lambda k, a=alpha, r=ridge: _build_construction(T, k, a, r).accuracy <= ERROR
        )
        built = _build_construction(T, max(1, int(share * steps)), alpha, ridge)
        held.add(
            built.accuracy, ERROR, size=(T, 0), about=f"T = {T}, α = {alpha}, the proven bound"
        )
        game = draw_games(generator, 6, T, ARMS, D)
        told = built.decode(game, built.transformer(built.prompt(game)))
        wanted = lin_ucb_log_probabilities(game, ridge, alpha, built.temperature)
        about = f"T = {T}, α = {alpha}, λ = {ridge}, {built.steps + 2} layers"
        held.add(float((told - wanted).abs().max()), ERROR, size=(T, 1), about=about)
    played = play_contest(built, built.environments().sample(4, generator=generator), T)
    return Part(printed=held.check()), f"{played.agreement_count} of {played.action_count}"


def _build_construction(T: int, steps: int, alpha: float, ridge: float) -> SoftLinUCBConstruction:
    return SoftLinUCBConstruction(
        d=D,
        n=T,
        arms=ARMS,
        knots=KNOTS,
        steps=steps,
        alpha=alpha,
        ridge=ridge,
        temperature=TEMPERATURE,
    )


def _widths(product: bool) -> Part:
    most = Inequality("D ≤ 12 dA" if product else "D ≤ 12 (d + A)")
    for d, arms in ((1, 1), (2, 30), (8, 8), (20, 3)):
        built = SoftLinUCBConstruction(d=d, n=3, arms=arms, steps=1)
        bound = 12 * (d * arms if product else d + arms)
        most.add(built.layout.width, bound, size=(d, arms), about=f"d = {d}, A = {arms}")
    return Part(printed=most.check())
