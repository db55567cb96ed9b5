"""A trained transformer finds principal components without the auxiliary matrix P.

Printed    "The experiments show that P is not necessary for the pre-trained Transformer to perform
           PCA with high accuracy." P holds e_j on token j ≤ d and the starting vectors; no number
           is printed
Tested     ReLU transformers trained here without e_j and starting vectors (three seeds of
           results/unlabelled/pca-relu: d = 5, 20 points, λ_j = 2^(1−j), 3 layers), the leading
           direction on fresh problems; one that was trained alike with them (pca-auxiliary). A
           token is x, a constant 1 and 26 zeros: place holders, the first of P's parts, stay
Training   the least over signs of ‖v̂ ∓ v‖², read out after every layer and averaged, where the
           slides' objective (1) has a convex loss of the output alone
Ours       high accuracy: |cos| of the angle to the eigenvector is 0.95 or more on average, and half
           of the problems have 0.99 or more. One short training had been seen when these were set
Note       networks depend on the scale of X: at half and twice that of training mean |cos| is 0.7
           to 0.9, see yang2025.he.better-than-power. Without P the weights themselves must decide
           between v and −v; no continuous function of X can do so everywhere
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.encoders import TrainedEncoder, join_trainings, load_encoder
from innerloop.claims.evidence import Check, Evidence
from innerloop.claims.falsifying import change_column
from innerloop.claims.figures import draw_lines
from innerloop.claims.intervals import check_within, estimate_mean, take_central
from innerloop.claims.recorded import name_seeds
from innerloop.recipes.pca import solve_eigenproblem

MEAN, MEDIAN = 0.95, 0.99
TIMES = 200
SEEN = "set after one short training had been seen"
FACTORS = (0.5, 2.0)
READING = (
    "accuracy means that of the direction, $|cos|$, because the sign in the slides' loss "
    "$‖v̂ − v‖₂$ is fixed by the starting vectors, which are in $P$. Without $P$ means without "
    "$e_j$ and starting vectors; a token has $x$, a constant 1 and zero place holders"
)
Data = list[dict[str, Any]]
"""One entry per training: whether it sees P, and |cos| by layer and problem."""


def judge_accuracy(data: Data) -> Evidence:
    bare = [each for each in data if not each["auxiliary"]]
    return Evidence(
        parts=[
            replace(join_trainings(checks), reading=READING)
            for checks in (
                [_check_mean(each["cosines"][-1]) for each in bare],
                [_check_median(each) for each in bare],
            )
        ],
        beyond=[
            _compare_with(each["cosines"][-1], bare[0]["cosines"][-1])
            for each in data
            if each["auxiliary"]
        ],
        numbers={
            f"mean |cos| {name}": float(each["cosines"][-1].mean())
            for name, each in _name_trainings(data)
        }
        | {
            f"mean |cos| {name}, points {factor:g} times as large": float(found.mean())
            for name, each in _name_trainings(data)
            for factor, found in each["scaled"].items()
        },
        figures=[
            draw_lines(
                "Principal components with and without the auxiliary matrix",
                [
                    {"layer": k + 1, "miss": max(float(1 - row.mean()), 1e-9), "training": name}
                    for name, each in _name_trainings(data)
                    for k, row in enumerate(each["cosines"])
                ],
                "layer: layer that is read out",
                "miss: 1 − mean |cos|",
                "training: training",
                log="y",
                caption=f"{len(bare[0]['cosines'][0])} fresh problems. {bare[0]['about']}.",
            )
        ],
    )


def _name_trainings(data: Data) -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{'with' if each['auxiliary'] else 'without'} P, training {k + 1}", each)
        for k, each in enumerate(data)
    ]


def _check_mean(cosines: Tensor) -> Check:
    return check_within(
        "without $P$ the mean $|cos|$ to the leading eigenvector is at least 0.95",
        estimate_mean(cosines),
        least=MEAN,
        what=f"mean $|cos|$ of {len(cosines)} problems",
        ours=f"0.95, {SEEN}",
    )


def _check_median(each: dict[str, Any]) -> Check:
    cosines, picks = each["cosines"][-1], each["picks"]
    again = cosines[picks].median(dim=-1).values
    return check_within(
        "without $P$ half of the problems have $|cos|$ of at least 0.99",
        take_central(again.tolist(), float(cosines.median())),
        least=MEDIAN,
        what=f"median $|cos|$ of {len(cosines)} problems",
        ours=f"0.99, {SEEN}",
    )


def _compare_with(own: Tensor, bare: Tensor) -> Check:
    return check_within(
        "a network that was trained alike with $P$ is more accurate than one without",
        estimate_mean(own - bare),
        least=0.0,
        what="mean $|cos|$ with $P$ minus that without, the same problems",
    )


SMALL = {"d": 2, "n": 5, "width": 8, "hidden": 4, "batch": 4, "steps": 2}
"""Sizes trained where no recorded network is named: hardly trained."""


@claim(
    "qliu2025.auxiliary-matrix",
    "A pre-trained transformer performs PCA with high accuracy without the auxiliary matrix $P$.",
    where="Pretraining via supervised learning, and the design of P",
    kind="figure",
    hypotheses={
        "one component, $λ_j = 2^(1−j)$, rows $N(0, Σ)$, at the scale of training": (
            "ours: the slides name no problems"
        ),
        "trained on $min ‖v̂ ∓ v‖²$ after every layer": (
            "ours: objective (1) has a convex loss of the output alone"
        ),
    },
    quick={"bare": name_seeds("pca-relu", 3), "led": ["pca-auxiliary"], "examples": 1000},
    full={"bare": name_seeds("pca-relu", 3), "led": ["pca-auxiliary"], "examples": 20_000},
    tiny={"bare": [None], "led": [None], "examples": 3},
    judge=judge_accuracy,
    falsified={
        "networks that are off by 37° on every problem": change_column(
            "cosines", lambda cosines: torch.full_like(cosines, 0.8)
        )
    },
)
def auxiliary_matrix(
    generator: torch.Generator,
    *,
    bare: Sequence[str | None],
    led: Sequence[str | None],
    examples: int,
) -> Data:
    """Measure |cos| by layer, of networks trained without P (`bare`) and with it (`led`)."""
    networks = [load_encoder("pca", name, SMALL, seed) for seed, name in enumerate(bare)]
    with_matrix: Mapping[str, Any] = {**SMALL, "auxiliary": True, "width": 16}
    networks += [load_encoder("pca", name, with_matrix, seed) for seed, name in enumerate(led)]
    problem = networks[0].build_distribution().sample(examples, generator=generator)
    picks = torch.randint(examples, (TIMES, examples), generator=generator)
    return [
        {
            "auxiliary": bool(getattr(each.recipe, "auxiliary", False)),
            "about": each.description,
            "cosines": measure_cosines(each, problem),
            "scaled": {
                factor: measure_cosines(each, replace(problem, x=factor * problem.x))[-1]
                for factor in FACTORS
            },
            "picks": picks,
        }
        for each in networks
    ]


def measure_cosines(network: TrainedEncoder, problem: Any) -> Tensor:
    """|cos| between the first direction read out of each layer and the leading eigenvector."""
    _, vectors = solve_eigenproblem(problem)
    answers = network.answer(problem)[..., 0, :]
    return torch.nn.functional.cosine_similarity(answers, vectors[:, 0], dim=-1).abs()
