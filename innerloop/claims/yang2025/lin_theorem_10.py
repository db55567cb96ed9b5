"""Theorem 10 of Lin et al.: Thompson sampling on linear bandits, by a transformer.

Printed    informally: transformers approximate Thompson sampling for linear bandits through a
           matrix square root by a Padé decomposition, with error bounds of high probability. No
           counts are given
Tested     the transformer `thompson-sampling`, given the normals z: its log-probabilities against
           softmax(⟨a, ŵ + s G^(−1/2) z⟩/τ) with exact roots; the sum of shifted inverses against
           G^(−1/2) on random matrices, its error over the number of terms; the event that all
           ‖z‖ are in range, exactly from χ²; layers needed for ε over two decades of T
Beyond     m terms leave 2ω/(1 + ω), ω = ((κ^(1/4) − 1)/(κ^(1/4) + 1))^(2m), of the root: m grows
           like κ^(1/4) log(1/ε) at worst, κ = 1 + (T − 1)B²/λ. Layers are Õ(√T), as for LinUCB
Note       what is random is given with the prompt: no transformer draws numbers
"""

from __future__ import annotations

import math

import torch
from scipy.stats import chi2
from torch import Tensor

from innerloop.algorithms.accelerated_ridge import StepRates
from innerloop.algorithms.inverse_root import inverse_root
from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Evidence, Figure, Part
from innerloop.claims.intervals import fit_exponent
from innerloop.claims.trials import Inequality
from innerloop.claims.yang2025.bandit_layers import draw_games, least_steps, prefix_moments
from innerloop.claims.yang2025.rates import check_power_law
from innerloop.constructions.thompson_sampling import ThompsonSamplingConstruction
from innerloop.playing.contest import play_contest
from innerloop.problems.linear_bandit_games import BanditGameProblem

ERROR, ARMS, D, DELTA = 1e-2, 3, 2, 0.01
RIDGE, SCALE, TEMPERATURE = 1.0, 0.5, 0.5


@claim(
    "yang2025.lin.theorem-10",
    "A transformer gives the log-probabilities of Thompson sampling on linear bandits to within ε "
    "with high probability, taking the matrix root by a sum of shifted inverses.",
    where="Third paper (Lin et al. 2023): Theorem 10, informal",
    kind="rate",
    quick={"rounds": 10, "trials": 60},
    full={"rounds": 24, "trials": 3_000},
    tiny={"rounds": 4, "trials": 6},
    falsified={
        "half the layers": {"share": 0.5},
        "half the terms": {"terms": 0.5},
        "gradient descent without momentum": {"accelerated": False},
        "‖z‖ ≤ √d": {"tail": 0.0},
    },
)
def lin_theorem_10(
    generator: torch.Generator,
    *,
    rounds: int,
    trials: int,
    share: float = 1.0,
    terms: float = 1.0,
    accelerated: bool = True,
    tail: float = 1.0,
) -> Evidence:
    within, same = _check_within(generator, rounds, share)
    wide = [10, 30, 100, 300, 1000, 2000]
    layers = [_steps_by_bound(T, accelerated) + 2 for T in wide]
    sizes = [_terms(T) for T in wide]
    scaled = [L / math.log(T / ERROR) for T, L in zip(wide, layers, strict=True)]
    told = "layers over log(T/ε) grow no faster than √T, by the bound"
    return Evidence(
        parts=[
            within,
            _roots(generator, trials, terms),
            _normals(tail),
            Part(
                printed=check_power_law(told, wide, scaled, 0.5, within=0.02, what="T", bound=True)
            ),
        ],
        numbers={
            "exponent of layers over T, logarithms left in": fit_exponent(
                wide, [float(L) for L in layers]
            )[0],
            f"terms for T = {wide[-1]}, ε = {ERROR}": sizes[-1],
            f"choices like the policy's in a game of {rounds} steps": same,
        },
        table=[
            {"T": T, "layers": L, "terms": m} for T, L, m in zip(wide, layers, sizes, strict=True)
        ],
        figures=[
            Figure(
                title="Thompson sampling with log-probabilities within 0.01",
                rows=[{"T": T, "layers": L} for T, L in zip(wide, layers, strict=True)],
                x=Axis(field="T", title="steps T of a game", scale="log"),
                y=Axis(field="layers", title="layers, by the bound", scale="log"),
            )
        ],
    )


def noise_radius(T: int) -> float:
    """Radius √d + √(2 log(T/δ)), exceeded by one of T normals with probability at most δ."""
    return math.sqrt(D) + math.sqrt(2 * math.log(T / DELTA))


def thompson_log_probabilities(game: BanditGameProblem) -> Tensor:
    """Log-probabilities of Thompson sampling given z, with the exact symmetric root."""
    gram, moment = prefix_moments(game, RIDGE)
    values, vectors = torch.linalg.eigh(gram)
    root = (vectors / values.sqrt().unsqueeze(-2)) @ vectors.mT
    estimate = torch.linalg.solve(gram, moment.unsqueeze(-1))
    w = estimate + SCALE * root @ game.noise.unsqueeze(-1)
    return ((game.features @ w).squeeze(-1) / TEMPERATURE).log_softmax(dim=-1)


def _build_construction(T: int, steps: int, terms: int) -> ThompsonSamplingConstruction:
    return ThompsonSamplingConstruction(
        d=D,
        n=T,
        arms=ARMS,
        steps=steps,
        terms=terms,
        ridge=RIDGE,
        scale=SCALE,
        temperature=TEMPERATURE,
        normal=noise_radius(T),
    )


def _terms(T: int) -> int:
    """Number of terms at which the root contributes a tenth of the error ε."""
    off = 2 * SCALE * noise_radius(T) / TEMPERATURE / math.sqrt(RIDGE)
    most = RIDGE + T - 1
    return least_steps(lambda m: inverse_root(m, RIDGE, most).error * off <= ERROR / 10)


def _steps_by_bound(T: int, accelerated: bool) -> int:
    built = _build_construction(T, 1, _terms(T))
    # The slowest system is the estimate's: the others have larger ridges.
    q = float(StepRates.of(torch.tensor([RIDGE], dtype=torch.float64), 1.0, T).q[0])
    rest = 2 * built.root.error * built.max_deviation / TEMPERATURE

    def enough(k: int) -> bool:
        left = (1 + k * q) * (1 - q) ** k if accelerated else (1 - q**2) ** k
        return 2 * left * (built.max_estimate + built.max_deviation) / TEMPERATURE + rest <= ERROR

    return least_steps(enough)


def _check_within(generator: torch.Generator, T: int, share: float) -> tuple[Part, str]:
    held = Inequality(f"|Δ log p| ≤ ε = {ERROR} at every step of a game where all ‖z‖ are in range")
    steps = max(1, int(share * _steps_by_bound(T, True)))
    built = _build_construction(T, steps, _terms(T))
    held.add(built.accuracy, ERROR, size=(T, 0), about=f"T = {T}, the proven bound")
    game = draw_games(generator, 8, T, ARMS, D)
    shrink = (noise_radius(T) / game.noise.norm(dim=-1, keepdim=True)).clamp(max=1.0)
    game = BanditGameProblem(game.features, game.actions, game.rewards, game.noise * shrink)
    told = built.decode(game, built.transformer(built.prompt(game)))
    about = f"T = {T}, {steps + 2} layers, {built.terms} terms"
    held.add(
        float((told - thompson_log_probabilities(game)).abs().max()),
        ERROR,
        size=(T, 1),
        about=about,
    )
    free = ThompsonSamplingConstruction(d=D, n=T, arms=ARMS, steps=steps, terms=built.terms)
    played = play_contest(free, free.environments().sample(4, generator=generator), T)
    return Part(printed=held.check()), f"{played.agreement_count} of {played.action_count}"


def _roots(generator: torch.Generator, trials: int, share: float) -> Part:
    """Check ‖sum − G^(−1/2)‖ over ‖G^(−1/2)‖ on random matrices, terms for an error of 1e-3."""
    held = Inequality("a sum of shifted inverses is G^(−1/2) to 1e-3, terms as stated")
    for trial in range(trials):
        d, most = 2 + trial % 4, 10.0 ** (1 + trial % 4)
        terms = least_steps(lambda m, u=most: inverse_root(m, 1.0, u).error <= 1e-3)
        root = inverse_root(max(1, int(share * terms)), 1.0, most)
        turned = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q
        values = most ** torch.rand(d, generator=generator, dtype=torch.float64)
        values[0], values[-1] = 1.0, most
        G = turned * values @ turned.mT
        eye = torch.eye(d, dtype=torch.float64)
        pairs = zip(root.weights, root.shifts, strict=True)
        found = torch.stack([w * torch.linalg.inv(G + s * eye) for w, s in pairs]).sum(dim=0)
        exact = turned / values.sqrt() @ turned.mT
        off = torch.linalg.matrix_norm(found - exact, 2) / torch.linalg.matrix_norm(exact, 2)
        about = f"d = {d}, spectrum from 1 to {most:g}, {len(root.shifts)} terms"
        held.add(float(off), 1e-3, size=(d, most), about=about)
    return Part(printed=held.check())


def _normals(tail: float) -> Part:
    """Check T · P(‖z‖ > √d + √(2 log(T/δ))) ≤ δ, from χ²."""
    held = Inequality("all ‖z‖ of T steps are within √d + √(2 log(T/δ)) with probability 1 − δ")
    for d in (1, 2, 5, 20, 100):
        for T in (1, 10, 1000, 10**6):
            radius = math.sqrt(d) + tail * math.sqrt(2 * math.log(T / DELTA))
            missed = T * float(chi2.sf(radius**2, d))
            held.add(missed, DELTA, size=(d, T), about=f"d = {d}, T = {T}, δ = {DELTA}")
    return Part(printed=held.check())
