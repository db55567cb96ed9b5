"""Theorem 10 of Lin et al.: Thompson sampling on linear bandits, by a transformer.

Printed    informally: transformers approximate Thompson sampling for linear bandits through a
           matrix square root by a Padé decomposition, with error bounds of high probability. No
           counts are given
Tested     the transformer `thompson-sampling`, given the normals z: its log-probabilities against
           softmax(⟨a, ŵ + s G^(−1/2) z⟩/τ) with exact roots; the sum of shifted inverses against
           G^(−1/2) on random matrices, its error over the number of terms; the event that all
           ‖z‖ are in range, exactly from χ²; layers needed for ε over two decades of T; the hard
           games and spectra of this source, with ‖z‖ at the end of the range
Reading    ours: given z, and soft, as LinUCB and UCB-VI are on these slides. The slide says neither
Law        the other reading: the chance of an action, averaged over z. Of two actions the first is
           played with Φ(m/v), m = ⟨Δ, ŵ⟩, v = s‖G^(−1/2)Δ‖, Δ = a₁ − a₂. A softmax at τ is the
           largest score with a standard Gumbel variable times τ added to each, so that it plays the
           first with E Φ((m + τΛ)/v), Λ standard logistic: E Λ = 0, E Λ² = π²/3 and |φ'| ≤ 0.242
           leave at most 0.399 (τ/v)². At τ = 0.5 the chances differ (e₁, e₂, G = I, ŵ = (0.5, 0):
           0.760 and 0.675), at a small τ they do not, for actions that are apart. Near Δ = 0 the
           law jumps, and no transformer follows it
Ours       the error 10⁻² of log-probabilities, a number for every ε, and of chances; actions are
           apart from ‖Δ‖ = 1/2 on
Beyond     a sum of shifted inverses is G^(−1/2) to 10⁻³, and all ‖z‖ are within √d + √(2 log(T/δ))
           with probability 1 − δ: both numbers are of our build, none is on the slides. m terms
           leave 2ω/(1 + ω), ω = ((κ^(1/4) − 1)/(κ^(1/4) + 1))^(2m), of the root: m grows like
           κ^(1/4) log(1/ε) at worst, κ = 1 + (T − 1)B²/λ. Layers are Õ(√T), as for LinUCB
Note       what is random is given with the prompt: no transformer draws numbers
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from scipy.stats import chi2
from torch import Tensor

from innerloop.algorithms.accelerated_ridge import StepRates
from innerloop.algorithms.inverse_root import inverse_root
from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.falsifying import Rows, change_column
from innerloop.claims.figures import draw_lines
from innerloop.claims.trials import Inequality
from innerloop.claims.yang2025.bandit_layers import (
    ERROR,
    WIDE,
    check_depth,
    count_choices,
    draw_games,
    least_steps,
    measure_games,
    prefix_moments,
)
from innerloop.claims.yang2025.hard_instances import HARD_SPECTRA, list_hard_games
from innerloop.constructions.thompson_sampling import ThompsonSamplingConstruction
from innerloop.problems.linear_bandit_games import BanditGameProblem

ARMS, D, DELTA = 3, 2, 0.01
RIDGE, SCALE, TEMPERATURE = 1.0, 0.5, 0.5
APART, LAW_ROUNDS, NODES = 0.5, 10, 201
"""Least distance of two actions, steps of a game, and values of ⟨z, u⟩ for the law of actions."""


def judge_sampling(rows: Rows) -> Evidence:
    held = Inequality(
        f"given $z$, softened at $τ = {TEMPERATURE}$: $|Δ log p| ≤ ε = {ERROR}$ at every step of a "
        "game where all $‖z‖$ are in range, with the root by a sum of shifted inverses"
    )
    law = Inequality(
        f"averaged over $z$, the first of two actions is played with the chance $Φ(m/v)$ of "
        f"Thompson sampling, to {ERROR}"
    )
    roots = Inequality("a sum of shifted inverses is $G^(−1/2)$ to 1e-3, terms as stated")
    normals = Inequality(
        "all $‖z‖$ of $T$ steps are within $√d + √(2 log(T/δ))$, with probability $1 − δ$"
    )
    curve = [row for row in rows if "layers" in row]
    for row in rows:
        if "off" in row:
            held.add(row["off"], ERROR, row["case"])
        elif "law off" in row:
            law.add(row["law off"], ERROR, row["case"])
        elif "root off" in row:
            roots.add(row["root off"], 1e-3, row["case"])
        elif "missed" in row:
            normals.add(row["missed"], DELTA, row["case"])
    return Evidence(
        parts=[
            Part(
                printed=replace(held.check(), ours=f"$ε = {ERROR}$"),
                reading="given its normals $z$, and softened: ours; the slides soften LinUCB and "
                "UCB-VI, and do not say what of Thompson sampling is approximated",
                other_readings={
                    "the law of its actions": replace(
                        law.check(), ours=f"{ERROR} of a chance; actions at least {APART} apart"
                    )
                },
            )
        ],
        beyond=[roots.check(), normals.check(), check_depth("by the bound", curve, 0.02)],
        numbers={row["about"]: row["number"] for row in rows if "number" in row},
        table=curve,
        figures=[
            draw_lines(
                "Thompson sampling with log-probabilities within 0.01",
                curve,
                "T: steps T of a game",
                "layers: layers, by the bound",
                log="xy",
            )
        ],
    )


@claim(
    "yang2025.lin.theorem-10",
    "Transformers approximate Thompson sampling for linear bandits through a matrix square root, "
    "with error bounds of high probability; tested given its normals and softened.",
    where="Third paper (Lin et al. 2023): Theorem 10, informal",
    kind="rate",
    hypotheses={
        "the normals $z$ are given with the prompt": "ours: no transformer draws numbers",
        "all $‖z‖$ are in range": "high probability, on the slides; which range is ours",
    },
    quick={"rounds": 10, "trials": 60},
    full={"rounds": 24, "trials": 3_000},
    tiny={"rounds": 4, "trials": 6},
    judge=judge_sampling,
    falsified={"log-probabilities that are off by 0.02": change_column("off", lambda _: 0.02)},
)
def lin_theorem_10(generator: torch.Generator, *, rounds: int, trials: int) -> Rows:
    rows = measure_accuracy(generator, rounds) + measure_law(generator, min(rounds, LAW_ROUNDS))
    rows += [measure_root(*draw_matrix(generator, trial), "drawn") for trial in range(trials)]
    for name, build in HARD_SPECTRA.items():
        for most in (10.0, 1e4):
            rows.append(measure_root(torch.eye(4).double(), most * build(4, most), most, name))
    for d in (1, 2, 5, 20, 100):
        for T in (1, 10, 1000, 10**6):
            radius = math.sqrt(d) + math.sqrt(2 * math.log(T / DELTA))
            missed = T * float(chi2.sf(radius**2, d))
            rows.append({"case": Case(d=d, T=T, δ=DELTA), "missed": missed})
    return rows + [{"T": T, "layers": _steps_by_bound(T) + 2, "terms": _terms(T)} for T in WIDE]


def noise_radius(T: int) -> float:
    """Radius √d + √(2 log(T/δ)), exceeded by one of T normals with probability at most δ."""
    return math.sqrt(D) + math.sqrt(2 * math.log(T / DELTA))


def measure_law(generator: torch.Generator, T: int) -> Rows:
    """Measure the chance of the first of two actions, averaged over z, against Φ(m/v).

    Only the part of z along u, the direction of G^(−1/2)Δ, moves the scores apart: it runs over
    nodes of the normal law; the part across is drawn.
    """
    least = SCALE * APART / math.sqrt(RIDGE + T - 1)
    temperature = least * math.sqrt(ERROR / 2 / 0.399)
    terms = _terms(T, temperature)
    built = _build_construction(T, _steps_by_bound(T, temperature), terms, temperature, arms=2)
    drawn = draw_games(generator, 4, T, 2, D)
    axes = torch.eye(D, dtype=torch.float64)[:2].expand_as(drawn.features)
    far = (find_difference(drawn).norm(dim=-1) >= APART)[..., None, None]
    drawn = replace(drawn, features=drawn.features.where(far, axes))
    hard = [
        (name, game)
        for name, game in list_hard_games(D, T, 2)
        if float(find_difference(game).norm(dim=-1).min()) >= APART
    ]
    return [
        {"case": Case(T=T, τ=temperature, game=k, note=name), "law off": off}
        for name, games in (("drawn", drawn), *hard)
        for k in range(len(games.features))
        for off in [compare_law(built, replace(games, **_select(games, k)), generator)]
    ]


def _select(games: BanditGameProblem, k: int) -> dict[str, Tensor]:
    names = ("features", "actions", "rewards", "noise")
    return {name: getattr(games, name)[k : k + 1] for name in names}


def find_difference(game: BanditGameProblem) -> Tensor:
    """Δ, the first action's features minus the second's."""
    return game.features[..., 0, :] - game.features[..., 1, :]


def compare_law(
    built: ThompsonSamplingConstruction, game: BanditGameProblem, generator: torch.Generator
) -> float:
    """Compare the chances of one game's first actions with Φ(m/v): the largest difference."""
    gram, moment = prefix_moments(game, RIDGE)
    values, vectors = torch.linalg.eigh(gram)
    root = (vectors / values.sqrt().unsqueeze(-2)) @ vectors.mT
    difference = find_difference(game).unsqueeze(-1)
    moved = (root @ difference).squeeze(-1)
    middle = (difference.mT @ torch.linalg.solve(gram, moment.unsqueeze(-1))).flatten(1)
    along = moved / moved.norm(dim=-1, keepdim=True)
    across = torch.stack([-along[..., 1], along[..., 0]], dim=-1)
    nodes = torch.linspace(-4.5, 4.5, NODES, dtype=torch.float64)
    weights = (-nodes.square() / 2).exp()
    stray = torch.randn(NODES, game.n, 1, generator=generator, dtype=torch.float64).clamp(-1, 1)
    many = BanditGameProblem(
        game.features.expand(NODES, -1, -1, -1),
        game.actions.expand(NODES, -1),
        game.rewards.expand(NODES, -1),
        nodes[:, None, None] * along + stray * across,
    )
    found = built.decode(many, built.transformer(built.prompt(many))).exp()[..., 0]
    chances = (weights[:, None] * found).sum(dim=0) / weights.sum()
    exact = torch.special.ndtr(middle / (SCALE * moved.norm(dim=-1)))
    return float((chances - exact).abs().max())


def thompson_log_probabilities(game: BanditGameProblem) -> Tensor:
    """Log-probabilities of Thompson sampling given z, with the exact symmetric root."""
    gram, moment = prefix_moments(game, RIDGE)
    values, vectors = torch.linalg.eigh(gram)
    root = (vectors / values.sqrt().unsqueeze(-2)) @ vectors.mT
    estimate = torch.linalg.solve(gram, moment.unsqueeze(-1))
    w = estimate + SCALE * root @ game.noise.unsqueeze(-1)
    return ((game.features @ w).squeeze(-1) / TEMPERATURE).log_softmax(dim=-1)


def _build_construction(
    T: int, steps: int, terms: int, temperature: float = TEMPERATURE, arms: int = ARMS
) -> ThompsonSamplingConstruction:
    return ThompsonSamplingConstruction(
        d=D,
        n=T,
        arms=arms,
        steps=steps,
        terms=terms,
        ridge=RIDGE,
        scale=SCALE,
        temperature=temperature,
        normal=noise_radius(T),
    )


def _terms(T: int, temperature: float = TEMPERATURE) -> int:
    """Number of terms at which the root contributes a tenth of the error ε."""
    off = 2 * SCALE * noise_radius(T) / temperature / math.sqrt(RIDGE)
    most = RIDGE + T - 1
    return least_steps(lambda m: inverse_root(m, RIDGE, most).error * off <= ERROR / 10)


def _steps_by_bound(T: int, temperature: float = TEMPERATURE) -> int:
    built = _build_construction(T, 1, _terms(T, temperature), temperature)
    # The slowest system is the estimate's: the others have larger ridges.
    q = float(StepRates.of(torch.tensor([RIDGE], dtype=torch.float64), 1.0, T).q[0])
    rest = 2 * built.root.error * built.max_deviation / temperature

    def enough(k: int) -> bool:
        left = (1 + k * q) * (1 - q) ** k
        return 2 * left * (built.max_estimate + built.max_deviation) / temperature + rest <= ERROR

    return least_steps(enough)


def measure_accuracy(generator: torch.Generator, T: int) -> Rows:
    """Measure the transformer with the number of layers and of terms from the bound."""
    steps = _steps_by_bound(T)
    built = _build_construction(T, steps, _terms(T))
    game = draw_games(generator, 8, T, ARMS, D)
    shrink = (noise_radius(T) / game.noise.norm(dim=-1, keepdim=True)).clamp(max=1.0)
    game = BanditGameProblem(game.features, game.actions, game.rewards, game.noise * shrink)
    far = torch.full_like(game.noise[:1], noise_radius(T) / D**0.5)
    hard = [(name, replace(each, noise=far)) for name, each in list_hard_games(D, T, ARMS)]
    case = Case(T=T, layers=steps + 2, terms=built.terms)
    free = ThompsonSamplingConstruction(d=D, n=T, arms=ARMS, steps=steps, terms=built.terms)
    return [
        {"about": f"bound on $|Δ log p|$, {steps + 2} layers", "number": built.accuracy},
        *measure_games(built, [("drawn", game), *hard], thompson_log_probabilities, case),
        count_choices(free, T, generator),
    ]


def draw_matrix(generator: torch.Generator, trial: int) -> tuple[Tensor, Tensor, float]:
    """Draw eigenvectors, eigenvalues from 1 to the largest, and that."""
    d, most = 2 + trial % 4, 10.0 ** (1 + trial % 4)
    turned = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q
    values = most ** torch.rand(d, generator=generator, dtype=torch.float64)
    values[0], values[-1] = 1.0, most
    return turned, values, most


def measure_root(turned: Tensor, values: Tensor, most: float, told: str) -> dict[str, Any]:
    """Measure ‖sum − G^(−1/2)‖ over ‖G^(−1/2)‖, with the terms for an error of 1e-3."""
    terms = least_steps(lambda m: inverse_root(m, 1.0, most).error <= 1e-3)
    root, d = inverse_root(terms, 1.0, most), len(values)
    G = turned * values @ turned.mT
    eye = torch.eye(d, dtype=torch.float64)
    pairs = zip(root.weights, root.shifts, strict=True)
    found = torch.stack([w * torch.linalg.inv(G + s * eye) for w, s in pairs]).sum(dim=0)
    exact = turned / values.sqrt() @ turned.mT
    off = torch.linalg.matrix_norm(found - exact, 2) / torch.linalg.matrix_norm(exact, 2)
    case = Case(d=d, κ=most, terms=len(root.shifts), note=told)
    return {"case": case, "root off": float(off)}
