"""What the report shows: every construction's certificate, error against layers, and regret.

Each survey yields its finished parts one by one, so that whoever runs it can show progress.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from innerloop.constructions.acting import ActingConstruction
from innerloop.constructions.base import Construction, answer, streams
from innerloop.constructions.certificate import Certificate, build
from innerloop.constructions.contest import contest
from innerloop.constructions.gd_plus_plus import LinearGDPlusPlus
from innerloop.constructions.looped_gradient_descent import LoopedGradientDescent
from innerloop.constructions.newton import LinearNewton
from innerloop.constructions.preconditioned_gradient_descent import LinearGradientDescent
from innerloop.problems.linear_regression import LinearRegression
from innerloop.problems.mdp import TabularMDP
from innerloop.registry import members

D, N, INSTANCES = 5, 40, 64
WORLDS = 200
"""Environments that `regret` plays in."""
PLAYED: dict[str, dict[str, Any]] = {
    "soft-lin-ucb": {"n": 25, "steps": 110, "alpha": 0.5, "temperature": 0.1, "reward": 5.0},
    "thompson-sampling": {
        **{"n": 25, "steps": 110, "terms": 5, "temperature": 0.1},
        **{"reward": 5.0, "normal": 6.0},
    },
    "ucb-vi": {"n": 20, "temperature": 0.02},
}
"""Parameters for games that are long enough to learn in; others have their defaults."""


def certificates(seed: int = 0) -> Iterator[Certificate]:
    """The certificate of every construction at its default parameters."""
    for name in members("constructions", Construction):
        yield build(name, seed=seed).certificate


def convergence(seed: int = 0) -> Iterator[list[dict[str, Any]]]:
    """Prediction error after each layer, algorithm by algorithm, on κ = 1 and κ = 100.

    Rows are N(0, Σ) with a fixed Σ, weights N(0, Σ⁻¹), no noise. Every number comes from a forward
    pass of a built transformer; error is √(mean (ŷ − y)² / mean y²) over queries and instances.
    """
    for kappa in (1.0, 100.0):
        generator = torch.Generator().manual_seed(seed)
        covariance = _covariance(kappa, generator)
        problem = LinearRegression(
            d=D, n=N, queries=4, covariance=covariance, weights="inverse"
        ).sample(INSTANCES, generator=generator)
        power = problem.targets.square().mean()
        for algorithm, construction in _contenders(kappa, covariance).items():
            transformer = construction.transformer
            outside = len(transformer.prologue) + len(transformer.epilogue)
            each = (transformer.count()["layers"] - outside) // transformer.steps
            rows = []
            for k, stream in enumerate(streams(construction, transformer, problem)):
                if k and _worth_drawing(k):
                    prediction = answer(construction, transformer, problem, stream)
                    error = ((prediction - problem.targets).square().mean() / power).sqrt()
                    row = {"kappa": kappa, "algorithm": algorithm, "layers": outside + k * each}
                    rows.append({**row, "error": float(error)})
            yield rows


def convergence_setting() -> str:
    """What `convergence` runs, in a sentence."""
    return (
        f"d = {D}, n = {N}, {INSTANCES} instances of 4 queries, rows N(0, Σ), weights N(0, Σ⁻¹), "
        "no noise, spectrum of Σ geometric from 1 to 1/κ. Error is √(mean (ŷ − y)² / mean y²). "
        "All weights follow from Σ and n alone. At κ = 1 gradient descent and its preconditioned "
        "form coincide. GD++ with B = I/3 and A growing by 9/4 at every layer squares its error as "
        "Newton's iteration does, and needs fewer layers here."
    )


def regret(seed: int = 0) -> Iterator[list[dict[str, Any]]]:
    """Mean cumulative regret of transformer, policy and blind play, construction by construction.

    All three play the same games with the same luck; every row also says how many actions
    transformer and policy chose alike.
    """
    for name, construction in players().items():
        generator = torch.Generator().manual_seed(seed)
        environment = construction.worlds().sample(WORLDS, generator=generator)
        steps = construction.longest
        assert steps is not None, f"{name} must say how long its games may be"
        found = contest(construction, environment, steps, seed)
        about = {
            "construction": name,
            "unit": "episode" if isinstance(environment, TabularMDP) else "step",
            "same": found.same,
            "choices": found.choices,
        }
        yield [{**about, **row} for row in found.rows()]


def regret_setting() -> str:
    """What `regret` plays, in a sentence."""
    told = "; ".join(
        f"{name}: " + ", ".join(f"{key} {value:g}" for key, value in PLAYED.get(name, {}).items())
        for name in players()
    )
    return (
        f"Each transformer, its reference policy and uniform play, in the same {WORLDS} "
        "environments with the same luck, drawn beforehand. Regret is what the best action, or "
        "plan, would have earned more on average; bands are means ± 1.96 standard errors over "
        "environments. Linear bandits show a fresh action set at every step, with rewards' noise "
        f"σ = 0.5; decision processes are random. Parameters: {told}."
    )


def players() -> dict[str, ActingConstruction]:
    """The constructions that act, as `regret` plays them."""
    kinds = members("constructions", ActingConstruction)
    return {name: kind.made(PLAYED.get(name, {})) for name, kind in kinds.items()}


def contenders() -> int:
    """How many curves `convergence` yields."""
    return 2 * len(_contenders(1.0, torch.eye(D, dtype=torch.float64)))


def _contenders(kappa: float, covariance: torch.Tensor) -> dict[str, Construction]:
    """The constructions that race, each with weights chosen from Σ and n alone."""
    # A typical λmax(XᵀX/n) for Σ ≤ I and some; gradient steps tolerate up to twice this.
    top = (N**0.5 + D**0.5 + 1.0) ** 2 / N
    identity = torch.eye(D, dtype=torch.float64)
    inverse = torch.linalg.inv(covariance)
    growing = torch.stack([identity / top * 2.25**k for k in range(24)])
    return {
        "gradient descent": LoopedGradientDescent(
            d=D, n=N, steps=4000 if kappa > 1 else 100, preconditioners=identity / top
        ),
        "preconditioned by Σ⁻¹": LinearGradientDescent(
            d=D, n=N, steps=100, preconditioners=inverse / top
        ),
        "GD++ (A grows by 9/4, B = I/3)": LinearGDPlusPlus(
            d=D, n=N, steps=24, preconditioners=growing, transforms=identity / 3
        ),
        "Newton": LinearNewton(d=D, n=N, steps=30),
    }


def _covariance(kappa: float, generator: torch.Generator) -> torch.Tensor:
    rotation, _ = torch.linalg.qr(torch.randn(D, D, generator=generator, dtype=torch.float64))
    covariance = (rotation * kappa ** -torch.linspace(0, 1, D, dtype=torch.float64)) @ rotation.mT
    return (covariance + covariance.mT) / 2


def _worth_drawing(k: int) -> bool:
    """Every step up to 40, then about forty a decade: a log axis shows no more."""
    return k <= 40 or int(40 * math.log10(k)) != int(40 * math.log10(k - 1))
