"""Trained encoders over sets of points: recorded ones by name, small ones trained here.

    load_encoder("pca", "pca-relu", {}, seed=0)          the recorded weights, or an error
    load_encoder("pca", None, {"steps": 4, …}, seed=0)   trained now, for tests: decides nothing
    load_encoders("pca", ["pca-relu", "pca-relu-seed-1"], {})          several trainings, by name

Trainings on pools of instances, whose number varies, are made here as well: they are small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.claims.evidence import Check, Part
from innerloop.claims.recorded import load_recorded
from innerloop.models.encoder import Encoder
from innerloop.problems.base import Distribution
from innerloop.problems.principal_components import PCAProblem
from innerloop.recipes.base import train
from innerloop.recipes.pca import solve_eigenproblem
from innerloop.recipes.points import POOLS, PointsRecipe

FOLDER = "unlabelled"
"""Where encoders are recorded below results."""
Rows = list[dict[str, Any]]
HELD_OUT = 1000
"""Fresh instances on which the risk of a network from a pool is measured."""


@dataclass(frozen=True, eq=False)
class TrainedEncoder:
    """A trained encoder with its recipe, and a description of its training."""

    recipe: PointsRecipe
    model: Encoder
    description: str

    def answer(self, problem: Any) -> Float[Tensor, "layers batch ..."]:
        """Answer after every layer, in float64."""
        with torch.no_grad():
            answers = self.recipe.predict_layers(self.model, problem.to(torch.float32))
        return answers.double()

    @property
    def layers(self) -> int:
        return self.recipe.blocks

    def build_distribution(self) -> Distribution:
        return self.recipe.build_distribution()


def load_encoder(
    recipe: str, machine: str | None, sizes: Mapping[str, Any], seed: int = 0
) -> TrainedEncoder:
    """Load the recorded encoder called `machine`, or train one now where none is named."""
    if machine is not None:
        trained = load_recorded(FOLDER, machine)
    else:
        given = {"evaluate_every": sizes["steps"], "warmup": 0, **sizes}
        trained = train(recipe, seed=seed, **given)
    made = trained.recipe
    assert isinstance(made, PointsRecipe)
    assert isinstance(trained.model, Encoder)
    told = (
        f"{made.blocks} layers of {made.kind} attention, {made.heads} heads, width {made.width}, "
        f"{trained.step} steps"
    )
    return TrainedEncoder(made, trained.model, told)


def load_encoders(
    recipe: str, machines: str | Sequence[str | None] | None, sizes: Mapping[str, Any]
) -> dict[str, TrainedEncoder]:
    """Load one or several trainings of an encoder, as players by name."""
    names = [machines] if machines is None or isinstance(machines, str) else machines
    return {
        f"transformer, seed {seed}": load_encoder(recipe, name, sizes, seed)
        for seed, name in enumerate(names)
    }


def train_on_pools(
    recipe: str,
    settings: Mapping[str, Any],
    pools: Sequence[int],
    seeds: Sequence[int],
    measure: Callable[[TrainedEncoder, Any], float],
    *,
    longer: bool = False,
) -> Rows:
    """Train on pools of several sizes; the risk on all of a pool, and on fresh instances.

    Weights and pool change with the seed; the fresh instances are the same for all networks. A pool
    of 0 stands for fresh instances in every batch. What minimises the loss on a pool is not known:
    the least risk on it of all these networks bounds it, and of those that are trained twice as
    long on the pools of the first seed, if asked for (`longer`).
    """

    def train_on(pool: int, seed: int, steps: int) -> TrainedEncoder:
        named = {"pool": pool, "pool_seed": seed} if pool else {}
        return load_encoder(recipe, None, {**settings, "steps": steps, **named}, seed)

    made = [(pool, seed) for seed in seeds for pool in pools]
    networks = [train_on(*each, settings["steps"]) for each in made]
    again = [each for each in made if each[0] and each[1] == seeds[0] and longer]
    others = networks + [train_on(*each, 2 * settings["steps"]) for each in again]
    distribution, rows = networks[0].build_distribution(), []
    fresh = _sample_instances(distribution, HELD_OUT, 1)
    for (pool, seed), network in zip(made, networks, strict=True):
        seen = _sample_instances(distribution, pool, POOLS + seed) if pool else fresh
        rows.append(
            {
                "pool": pool,
                "seed": seed,
                "risk": measure(network, fresh),
                "risk on the pool": measure(network, seen),
                "least risk on the pool": min(measure(each, seen) for each in others),
            }
        )
    return rows


def _sample_instances(distribution: Distribution, count: int, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return distribution.sample(count, generator=generator, dtype=torch.float32)


def mean_by(rows: Rows, key: str, value: str) -> tuple[list[float], list[float]]:
    """Average a column over all rows with the same key; keys in order."""
    keys = sorted({row[key] for row in rows})
    means = []
    for each in keys:
        found = [row[value] for row in rows if row[key] == each]
        means.append(sum(found) / len(found))
    return [float(each) for each in keys], means


def measure_sine_squares(
    answers: Float[Tensor, "steps batch k d"], problem: PCAProblem
) -> Float[Tensor, "steps batch"]:
    """The mean over components of sin² of the angle to the eigenvector, by step and instance."""
    _, vectors = solve_eigenproblem(problem)
    cosines = torch.nn.functional.cosine_similarity(answers, vectors.to(answers), dim=-1)
    return (1 - cosines.square()).clamp_min(0.0).mean(dim=-1)


def run_steps(algorithm: Algorithm[Any, Any], problem: Any, steps: int) -> Tensor:
    """The answers of an algorithm after 0, 1, …, `steps` steps."""
    states = algorithm.states(problem, steps)
    return torch.stack([algorithm.predict(problem, state) for state in states])


def join_checks(checks: Sequence[Check]) -> Check:
    """Join the same check of several trainings: it passes or fails where all of them do.

    The summary has a line for each of them.
    """
    outcomes = {check.passed for check in checks}
    passed = outcomes.pop() if len(outcomes) == 1 else None
    told = "\n".join(f"seed {k}: {c.outcome}, {c.summary}" for k, c in enumerate(checks))
    example = checks[0].counterexample if passed is False else ""
    return replace(checks[0], passed=passed, summary=told, counterexample=example)


def join_trainings(checks: Sequence[Check]) -> Part:
    """Join the check of each training to a part."""
    return Part(printed=join_checks(checks), trainings=len(checks))
