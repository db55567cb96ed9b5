"""Edits: a user's model that changes its arguments in place must not change the verdict.

The same model is identified twice: once it computes out of place, once it edits its arguments
first. Its answers are the same, so the scores must be the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

import innerloop
from tools.torture.attack import Attack, Defect, Verdict

Edit = Callable[[Tensor, Tensor, Tensor], object]
EDITS: tuple[Edit, ...] = (
    lambda X, y, q: y.clamp_(-0.5, 0.5),
    lambda X, y, q: X.div_(3.0),
    lambda X, y, q: q.zero_(),
    lambda X, y, q: X.add_(1.0),
    lambda X, y, q: y.copy_(y.flip(0)),
    lambda X, y, q: X.t_() if X.ndim == 2 else X.transpose_(-1, -2).transpose_(-1, -2).mul_(0.1),
    lambda X, y, q: y.resize_(y.shape).fill_(float("nan")),
    lambda X, y, q: X.requires_grad_(),
)
CANDIDATES = ["gradient-descent", "ridge"]


def prepare(folder: Path) -> None:
    """Return None: the tries have no data in common."""


def attempt(prepared: None, chance: random.Random, folder: Path) -> Verdict:
    """Identify one model out of place and in place, and compare the scores."""
    edit = chance.choice(EDITS)
    step, cap = chance.uniform(0.1, 1.0), chance.choice((0.5, 1.0, 100.0))

    def predict(X: Tensor, y: Tensor, q: Tensor) -> Tensor:
        return step * ((X * y.clamp(-cap, cap)[..., None]).mean(-2) * q).sum(-1)

    def predict_and_edit(X: Tensor, y: Tensor, q: Tensor) -> Tensor:
        answer = predict(X, y, q).clone()
        edit(X, y, q)
        return answer

    d, n = chance.randint(1, 3), chance.randint(2, 6)
    seed = chance.randrange(100)
    problem = innerloop.LinearRegression(d=d, n=n)
    scores = []
    for model in (predict, predict_and_edit):
        result = innerloop.identify(
            model, problem, algorithms=CANDIDATES, prompts=16, steps=3, seed=seed
        )
        scores.append([(layer.nearest, layer.score) for layer in result.layers])
    if scores[0] != scores[1]:
        raise Defect(f"editing arguments in place changes the verdict: {scores[0]} → {scores[1]}")
    return "survived"


ATTACKS = (Attack("edits", 500, prepare, attempt, sample=4),)
