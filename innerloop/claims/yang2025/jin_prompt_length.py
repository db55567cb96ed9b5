"""Excess risk against prompt length in mixtures of regressions, next to EM.

Printed    "Experimental Results: Prompt Length Impact", a title above an empty slide, and "Validate
           performance through simulations, comparing with EM algorithm". No number, no curve, no
           sentence on what length does: nothing is asserted, out of reach. That the risk of EM
           falls with n is jin.theorem-3.3
Measured   transformers trained here (results/unlabelled/clusters-regressions, three trainings at
           `full`, one at `quick`: K = 2 vectors on a sphere, d = 3, 4 layers, prompts of 10 to 40
           examples and the two vectors that EM starts from); on the same fresh prompts EM from
           these vectors (gradient EM, T = 20, 40 steps), least squares, and 0, the best constant.
           Excess: E (ŷ − ⟨x, (β_1 + β_2)/2⟩)², relative to the mean square of the latter, which is
           the Bayes rule that knows the vectors
Beyond     the excess risk falls, for every transformer and for EM: the mean at the longest prompts
           of training is below that at the shortest, by the 95 % interval of both. Every
           transformer against EM and least squares at 40 examples; prompts longer than any in
           training, told as such
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from innerloop.algorithms.gradient_em import GradientEM
from innerloop.claims.base import claim
from innerloop.claims.encoders import TrainedEncoder, join_trainings, load_encoders
from innerloop.claims.evidence import Check, Evidence
from innerloop.claims.figures import draw_lines
from innerloop.claims.intervals import Interval, check_within, estimate_mean
from innerloop.claims.recorded import name_seeds
from innerloop.problems.mixture_of_regressions import MixtureOfRegressions, MixtureProblem
from innerloop.recipes.mixture_of_regressions import find_oracle

EM_STEPS, INNER = 40, 20
Data = dict[str, Any]
"""Networks, prompt lengths, those of training, excess risks by method, length and prompt."""
MISSING = (
    "The slide on the prompt's length has a title and no content, and no other one says what "
    "length does to the transformer's risk: the figure is missing, and would be what is compared."
)


def judge_lengths(data: Data) -> Evidence:
    trained = [n for n in data["lengths"] if data["shortest"] <= n <= data["longest"]]
    excess = data["excess"]
    networks = [excess[name] for name in data["networks"]]
    ends = [each[trained[-1]] for each in networks]
    return Evidence(
        out_of_reach=MISSING,
        beyond=[
            join_trainings(
                [_check_fall("a trained transformer's", each, trained) for each in networks]
            ).printed,
            _check_fall("EM's", excess["EM, the same start"], trained),
            *(
                join_trainings([_compare(end, rows[trained[-1]], name) for end in ends]).printed
                for name, rows in excess.items()
                if name not in data["networks"]
            ),
        ],
        table=[
            {"n": n, "in training": n in trained}
            | {name: float(rows[n].mean()) for name, rows in excess.items()}
            for n in data["lengths"]
        ],
        figures=[
            draw_lines(
                "Mixture of regressions: excess risk against prompt length",
                [
                    {"n": n, "excess": max(float(rows[n].mean()), 1e-9), "method": name}
                    for name, rows in excess.items()
                    for n in data["lengths"]
                ],
                f"n: examples, {data['shortest']} to {data['longest']} in training",
                "excess: E (ŷ − oracle)², relative",
                "method: method",
                log="xy",
                caption=f"{data['about']}; the oracle knows the vectors.",
            ),
            draw_lines(
                "Layers of transformers and steps of EM",
                [
                    {"k": k, "excess": max(value, 1e-9), "of": name}
                    for name, curve in data["curves"].items()
                    for k, value in enumerate(curve, 1)
                ],
                "k: layers or steps",
                "excess: E (ŷ − oracle)², relative",
                "of: of",
                log="y",
                caption=f"{data['longest']} examples.",
            ),
        ],
    )


def _check_fall(whose: str, rows: dict[int, Tensor], lengths: list[int]) -> Check:
    short, long = rows[lengths[0]], rows[lengths[-1]]
    low, high = estimate_mean(long), estimate_mean(short)
    difference = Interval(high.value - low.value, high.low - low.high, high.high - low.low)
    return check_within(
        f"{whose} excess risk falls from {lengths[0]} to {lengths[-1]} examples",
        difference,
        least=0.0,
        what=f"{high.value:.3g} minus {low.value:.3g}, {len(short)} prompts",
        ours="the ends of the lengths in training",
    )


def _compare(network: Tensor, other: Tensor, name: str) -> Check:
    return check_within(
        f"the transformer's excess risk is below that of {name}",
        estimate_mean(other - network),
        least=0.0,
        what=f"{float(other.mean()):.3g} minus {float(network.mean()):.3g} at the longest prompts "
        "of training",
    )


def reverse_lengths(data: Data) -> Data:
    """The errors of short prompts at long ones, and the other way round, further apart."""
    lengths = data["lengths"]
    excess = {
        name: {n: torch.full_like(rows[n], float(n)) for n in lengths}
        for name, rows in data["excess"].items()
    }
    return {**data, "excess": excess}


SMALL = {
    **{"d": 2, "n": 8, "components": 2, "width": 10, "hidden": 4, "batch": 4, "steps": 2},
    **{"starts": True, "shortest": 4},
}


@claim(
    "yang2025.jin.prompt-length",
    "Simulations show how the prompt's length affects a transformer on mixtures of regressions, "
    "compared with EM.",
    where="Fourth paper (Jin et al. 2024): main work; experimental results, prompt length impact",
    kind="figure",
    hypotheses={"$K = 2$, $ϑ = 0.1$, unit vectors": "ours: the slide's figure is missing"},
    quick={"machine": "clusters-regressions", "lengths": [10, 20, 40, 80], "examples": 1000},
    full={
        "machine": name_seeds("clusters-regressions", 3),
        "lengths": [5, 10, 14, 20, 28, 40, 57, 80, 160],
        "examples": 20_000,
    },
    tiny={"machine": [None, None, None], "lengths": [4, 8, 12], "examples": 3},
    judge=judge_lengths,
    falsified={"errors that grow with the prompt": reverse_lengths},
)
def jin_prompt_length(
    generator: torch.Generator,
    *,
    machine: str | Sequence[str | None],
    lengths: list[int],
    examples: int,
) -> Data:
    networks = load_encoders("mixture-of-regressions", machine, SMALL)
    first, *_ = networks.values()
    own = first.build_distribution()
    assert isinstance(own, MixtureOfRegressions)
    methods = list_methods(networks, own)
    excess: dict[str, dict[int, Tensor]] = {name: {} for name in methods}
    curves: dict[str, list[float]] = {}
    for n in lengths:
        law = MixtureOfRegressions(
            d=own.d, n=n, components=own.components, signal=own.signal, noise=own.noise
        )
        problem = law.sample(examples, generator=generator)
        power = find_oracle(problem).square().mean()
        for name, method in methods.items():
            steps = (method(problem) - find_oracle(problem)).square().sum(dim=-1) / power
            excess[name][n] = steps[-1]
            if n == own.n and len(steps) > 1:
                curves[name] = steps.mean(dim=-1).tolist()
    return {
        "networks": list(networks),
        "lengths": lengths,
        "shortest": first.recipe.shortest or own.n,
        "longest": own.n,
        "excess": excess,
        "curves": curves,
        "about": first.description,
    }


def list_methods(
    networks: Mapping[str, TrainedEncoder], law: MixtureOfRegressions
) -> dict[str, Callable[[MixtureProblem], Tensor]]:
    """List the methods: each gives predictions by step or layer, prompt and query."""
    equal = torch.full((law.components,), 1 / law.components, dtype=torch.float64)

    def run_em(problem: MixtureProblem) -> Tensor:
        top = torch.linalg.eigvalsh(problem.x.mT @ problem.x / problem.n)[..., -1]
        noise = torch.full_like(top, law.noise)
        algorithm = GradientEM(equal.expand(len(top), -1), noise, 1 / top, INNER)
        states = list(algorithm.states(problem, EM_STEPS))[1:]
        return torch.stack([algorithm.predict(problem, state) for state in states])

    def solve_least_squares(problem: MixtureProblem) -> Tensor:
        fitted = torch.linalg.pinv(problem.x) @ problem.y.unsqueeze(-1)
        return (problem.x_query @ fitted).squeeze(-1).unsqueeze(0)

    return {
        **{name: each.answer for name, each in networks.items()},
        "EM, the same start": run_em,
        "least squares": solve_least_squares,
        "zero": lambda problem: torch.zeros_like(problem.x_query[..., 0]).unsqueeze(0),
    }
