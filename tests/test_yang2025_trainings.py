"""Claims about trained networks judge every training: one that contradicts leaves nothing decided.

Three tiny networks stand for three trainings; what they are said to have measured is then set, for
all of them or for one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from innerloop.claims.loading import load_claims
from innerloop.claims.yang2025 import he_experiments, wu_experiments

TRAININGS: list[None] = [None, None, None]
Change = Callable[[Any, dict[int, float]], Any]


def set_errors(found: Any, worse: dict[int, float]) -> Any:
    """Let transformers err half as much as training on the prompt, or `worse` times as much."""
    return [
        each._replace(
            networks=[
                worse.get(k, 0.5) * (each.others[wu_experiments.TRAINING] + 1e-6)
                for k in range(len(each.networks))
            ]
        )
        for each in found
    ]


def set_clusters(found: Any, worse: dict[int, float]) -> Any:
    """Let transformers cluster as well as the rule that knows the centres, or much worse."""
    names = {name: worse.get(k, 0.0) for k, name in enumerate(found["networks"])}
    settled = {**{name: 1.0 - wrong for name, wrong in names.items()}, he_experiments.LLOYD: 1.0}
    scores = {
        setting: {
            name: {m: torch.full_like(v, settled.get(name, 0.5)) for m, v in each.items()}
            for name, each in methods.items()
        }
        for setting, methods in found["scores"].items()
    }
    rates = [
        {"Δ/σ": row["Δ/σ"], "known": row["known"], "EM": row["known"]}
        | {
            name: row["known"] if not wrong else 0 * row["known"] + wrong
            for name, wrong in names.items()
        }
        for row in found["rates"]
    ]
    return {**found, "scores": scores, "rates": rates}


def set_sets(found: Any, worse: dict[int, float]) -> Any:
    """Let transformers tell real classes apart as KMeans does, or `worse` by so much ARI."""
    names = found["networks"]
    ari = {
        name: {
            method: torch.full_like(each, 0.9)
            - (worse.get(names.index(method), 0.0) if method in names else 0.0)
            for method, each in scores.items()
        }
        for name, scores in found["ari"].items()
    }
    cosines = [
        {name: torch.full_like(row, 1.0 - worse.get(k, 0.0)) for name, row in each.items()}
        for k, each in enumerate(found["cosines"])
    ]
    return {**found, "ari": ari, "cosines": cosines}


CASES: dict[str, tuple[dict[str, Any], Change, float]] = {
    "yang2025.wu.experiments": (
        {"machines": [TRAININGS], "prompts": 6, "starts": 2, "steps": 3},
        set_errors,
        2.0,
    ),
    "yang2025.he.experiments": (
        {"machine": TRAININGS, "examples": 20, "lengths": [15], "shown": 3},
        set_clusters,
        0.6,
    ),
    "yang2025.he.real-data": (
        {"components": TRAININGS, "clouds": [TRAININGS] * 2, "sets": ["wine"], "samples": 3},
        set_sets,
        0.5,
    ),
}


@pytest.mark.parametrize("id", CASES)
def test_every_training_is_judged(id: str) -> None:
    settings, change, worse = CASES[id]
    claim = load_claims()[id]
    data = claim.gather(settings)

    def judge(*contradicting: int) -> list[tuple[str, int | None]]:
        changed = change(data, dict.fromkeys(contradicting, worse))
        return [(part.verdict, part.trainings) for part in claim.judge_cells([changed]).parts]

    count = len(judge())
    assert judge() == [("holds", 3)] * count
    for k in range(3):
        assert judge(k) == [("undecided", 3)] * count, "one training contradicts the others"
    assert judge(0, 1, 2) == [("fails", 3)] * count
    for form in claim.falsified.values():
        assert callable(form)
        assert claim.judge_cells([form(data)]).verdict == "fails"


def test_every_length_is_judged_for_every_training() -> None:
    claim = load_claims()["yang2025.jin.prompt-length"]
    settings = {"machine": TRAININGS, "lengths": [4, 8, 12], "examples": 3}
    data = claim.gather(settings)
    falls = {n: torch.full((3,), 1.0 / n, dtype=torch.float64) for n in settings["lengths"]}
    excess = {name: dict(falls) for name in data["excess"]}
    assert claim.judge_cells([{**data, "excess": excess}]).beyond[0].passed is True
    excess[data["networks"][1]] = {n: torch.full_like(falls[n], float(n)) for n in falls}
    found = claim.judge_cells([{**data, "excess": excess}]).beyond
    assert found[0].passed is None, "one training's risk grows"
    assert found[0].summary.count("seed ") == 3
    (form,) = claim.falsified.values()
    assert callable(form)
    assert claim.judge_cells([form(data)]).beyond[0].passed is False


@pytest.mark.parametrize(
    ("id", "counts"),
    [
        ("yang2025.wu.experiments", {"networks-3": 3, "networks-4": 3, "networks-6": 3}),
        ("yang2025.he.experiments", {"clusters-gaussian": 3}),
        ("yang2025.jin.prompt-length", {"clusters-regressions": 3}),
        ("yang2025.he.real-data", {"pca-relu": 3, "clusters-gaussian": 3, "clusters-binary": 3}),
    ],
)
def test_full_takes_three_trainings(id: str, counts: dict[str, int]) -> None:
    (settings,) = load_claims()[id].presets["full"]
    for name, count in counts.items():
        names = [name, *(f"{name}-seed-{seed}" for seed in range(1, count))]
        assert all(f'"{each}"' in str(settings).replace("'", '"') for each in names)
