"""Clouds that violate the assumptions of Gaussian mixtures, and scores of clusterings of them.

Violations  anisotropic: each cloud stretched by its own random matrix of determinant 1; unequal: a
            cloud with 70 % of the points and spreads 0.5, 1 and 1.5; heavy tails: Student's t with
            3 degrees of freedom, scaled to variance 1; two or four clouds: not the K of training
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from innerloop.claims.encoders import TrainedEncoder
from innerloop.claims.prompts import draw_normal
from innerloop.problems.gaussian_mixture import ClusteringProblem, GaussianMixture
from innerloop.recipes.clusters import (
    adjusted_rand_index,
    best_over_names,
    count_pairs,
    mutual_information,
)

VIOLATIONS = ("anisotropic", "unequal", "heavy tails", "two clouds", "four clouds")
STRETCH = 2.0
"""Ratio of the axes of an anisotropic cloud to those of a round one: 2 and 1/2."""
FREEDOM = 3


def draw_clouds(
    law: GaussianMixture, violation: str, examples: int, generator: torch.Generator
) -> ClusteringProblem:
    """Draw problems with centres as in training, and clouds that violate an assumption."""
    clouds = {"two clouds": 2, "four clouds": 4}.get(violation, law.clusters)
    centres = law.separation * draw_normal(generator, examples, clouds, law.d)
    odds = torch.ones(clouds, dtype=torch.float64)
    if violation == "unequal":
        odds[0] = 0.7 * (clouds - 1) / 0.3
    labels = torch.multinomial(
        odds.expand(examples, clouds), law.n, replacement=True, generator=generator
    )
    noise = draw_normal(generator, examples, law.n, law.d)
    if violation == "anisotropic":
        noise = _stretch(noise, labels, clouds, generator)
    if violation == "unequal":
        spreads = torch.linspace(0.5, 1.5, clouds, dtype=torch.float64)
        noise = noise * spreads[labels].unsqueeze(-1)
    if violation == "heavy tails":
        squares = draw_normal(generator, FREEDOM, examples, law.n, 1).square().mean(dim=0)
        noise = noise / squares.sqrt() * math.sqrt((FREEDOM - 2) / FREEDOM)
    place = labels.unsqueeze(-1).expand(-1, -1, law.d)
    x = centres.gather(-2, place) + law.noise * noise
    return ClusteringProblem(x, x[:, : law.clusters].clone(), labels)


def draw_triangle(
    law: GaussianMixture, delta: float, examples: int, generator: torch.Generator
) -> tuple[ClusteringProblem, Tensor]:
    """Draw problems whose three centres are Δσ from each other, turned at random."""
    angles = 2 * math.pi * torch.rand(examples, 1, generator=generator, dtype=torch.float64)
    angles = angles + 2 * math.pi / 3 * torch.arange(3, dtype=torch.float64)
    radius = delta * law.noise / math.sqrt(3)
    centres = radius * torch.stack([angles.cos(), angles.sin()], dim=-1)
    labels = torch.randint(3, (examples, law.n), generator=generator)
    place = labels.unsqueeze(-1).expand(-1, -1, 2)
    x = centres.gather(-2, place) + law.noise * draw_normal(generator, examples, law.n, 2)
    return ClusteringProblem(x, x[:, :3].clone(), labels), centres


def label_by_bayes(problem: ClusteringProblem, centres: Tensor) -> Tensor:
    """Label points by the nearest true centre: the Bayes rule of equal, round clouds."""
    return torch.cdist(problem.x, centres).argmin(dim=-1)


def label_points(
    networks: Mapping[str, TrainedEncoder], problem: ClusteringProblem
) -> dict[str, Tensor]:
    """Label points by the largest output after the last layer, for each network."""
    return {name: each.answer(problem)[-1].argmax(dim=-1) for name, each in networks.items()}


def score_instances(found: Tensor, problem: ClusteringProblem) -> dict[str, Tensor]:
    """Score each instance: ARI, NMI and the share of points in a wrong cluster."""
    assert problem.labels is not None
    table = count_pairs(problem.labels.long(), found)
    return {
        "ari": adjusted_rand_index(table),
        "nmi": mutual_information(table),
        "wrong": 1 - best_over_names(table) / table.sum(dim=(-2, -1)),
    }


def _stretch(noise: Tensor, labels: Tensor, clouds: int, generator: torch.Generator) -> Tensor:
    """Stretch every cloud along a random direction, and shrink it across."""
    examples, _, d = noise.shape
    axes = torch.linalg.qr(draw_normal(generator, examples, clouds, d, d)).Q
    sizes = torch.full((d,), STRETCH ** (-1 / max(d - 1, 1)), dtype=torch.float64)
    sizes[0] = STRETCH
    maps = axes * sizes @ axes.mT
    own = maps[torch.arange(examples).unsqueeze(-1), labels]
    return (own @ noise.unsqueeze(-1)).squeeze(-1)
