"""Instances at which statements of this source are tight or have nothing to spare.

Every inequality of this source, every equality of a build, and every correction is tried on those
of its type: examples of regressions and networks, spectra, clouds, and games.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.problems.gaussian_mixture import ClusteringProblem
from innerloop.problems.linear_bandit_games import BanditGameProblem
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.problems.network_regression import NetworkProblem
from innerloop.problems.tabular_games import TabularGameProblem


def _eye(d: int) -> Tensor:
    return torch.eye(d, dtype=torch.float64)


def _ones(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.float64)


def _with_condition(kappa: float) -> Callable[[int], Tensor]:
    """Examples with orthogonal features, the last of variance 1/κ."""

    def build(d: int) -> Tensor:
        X = _eye(d)
        X[-1, -1] = kappa**-0.5 if d > 1 else 1.0
        return X

    return build


def _one_long(d: int) -> Tensor:
    X = _ones(d + 1, d) + _eye(d + 1)[:, :d]
    X[0] *= 1e3
    return X


HARD_EXAMPLES: dict[str, Callable[[int], Tensor]] = {
    "one example": lambda d: _ones(1, d),
    "one example fewer than features": lambda d: _eye(d)[: max(d - 1, 1)],
    "equal examples": lambda d: _ones(d + 1, d),
    "a spectrum of one value": _eye,
    "κ = 10²": _with_condition(1e2),
    "κ = 10⁴": _with_condition(1e4),
    "nearly parallel examples": lambda d: _ones(d, d) + 0.1 * _eye(d),
    "one example a thousand times as long": _one_long,
    "examples of size 10³": lambda d: 1e3 * (_ones(d + 2, d) + _eye(d + 2)[:, :d]),
    "examples of size 10⁻³": lambda d: 1e-3 * (_ones(d + 2, d) + _eye(d + 2)[:, :d]),
}
"""Rows x, n × d, by name, from d."""


def take_examples(name: str, n: int, d: int) -> Tensor:
    """Take n of the hard examples, which come round again where there are fewer."""
    rows = HARD_EXAMPLES[name](d)
    return rows[torch.arange(n) % len(rows)]


def list_hard_regressions(d: int, n: int = 0) -> list[tuple[str, RegressionProblem]]:
    """List regressions on hard examples, with labels off any line; of n examples if n is given."""
    found = []
    for name, build in HARD_EXAMPLES.items():
        x = take_examples(name, n, d) if n else build(d)
        signs = (-1.0) ** torch.arange(max(len(x), d), dtype=torch.float64)
        size = float(x.abs().max())
        y = x @ signs[:d] + 0.5 * size * signs[: len(x)]
        found.append((name, RegressionProblem(x, y, size * _ones(1, d))))
    return found


def list_hard_networks(
    shapes: list[tuple[int, int]], n: int, box: float
) -> list[tuple[str, NetworkProblem]]:
    """List regressions by networks within the unit ball, from weights at the corners of a box."""
    d, outputs = shapes[0][1], shapes[-1][0]
    found = []
    for name in HARD_EXAMPLES:
        x = take_examples(name, n, d)
        x = x / x.norm(dim=-1, keepdim=True).clamp_min(1.0)
        y = (-1.0) ** torch.arange(n, dtype=torch.float64).unsqueeze(-1) * _ones(n, outputs)
        start = [box * (-1.0) ** torch.arange(r * c, dtype=torch.float64) for r, c in shapes]
        weights = tuple(v.reshape(1, *shape) for v, shape in zip(start, shapes, strict=True))
        problem = NetworkProblem(x[None], y[None] / outputs**0.5, x[None, 0], weights)
        found.append((name, problem))
    return found


HARD_SPECTRA: dict[str, Callable[[int, float], Tensor]] = {
    "one value": lambda d, kappa: _ones(d) / kappa,
    "one small eigenvalue": lambda d, kappa: torch.cat([_ones(1) / kappa, _ones(d - 1)]),
    "one large eigenvalue": lambda d, kappa: torch.cat([_ones(d - 1) / kappa, _ones(1)]),
    "half small, half large": lambda d, kappa: torch.cat(
        [_ones(d // 2) / kappa, _ones(d - d // 2)]
    ),
}
"""Eigenvalues from 1/κ to 1, for d ≥ 2, by name, from d and κ; the first is all 1/κ."""


HARD_SEPARATIONS = tuple(
    (d, N, mu)
    for d, N in ((1, 2), (1, 500), (3, 1000), (50, 40), (50, 2000))
    for mu in (0.1, 0.3, 6.0)
)
"""Dimensions, points and ‖μ‖/σ of two clouds: touching, far apart, fewer points than features."""


def list_hard_clouds(d: int, n: int, K: int) -> list[tuple[str, ClusteringProblem]]:
    """List clouds of n points with K starting centres, one instance each."""
    line = (1.0 + torch.arange(n).unsqueeze(-1) % K) * _ones(n, d)
    centres = (1.0 + torch.arange(K).unsqueeze(-1)) * _ones(K, d)
    lonely = centres.clone()
    lonely[-1] += 50.0
    instances = {
        "equal centres": (line, 0.5 * _ones(K, d)),
        "all points in one place": (_ones(n, d), centres),
        "points half way between centres": (line + 0.5, centres),
        "far centres": (100 * line, 100 * centres),
        "touching clouds": (1e-3 * line, 1e-3 * centres),
        "an empty cluster": (line, lonely),
    }
    return [(name, ClusteringProblem(x[None], c[None])) for name, (x, c) in instances.items()]


def list_hard_games(d: int, n: int, arms: int) -> list[tuple[str, BanditGameProblem]]:
    """List games of linear bandits with features of norm at most 1 and rewards up to 3."""
    unit = _eye(d)[torch.arange(arms) % d].expand(1, n, arms, d)
    alike = _eye(d)[0].expand(1, n, arms, d)
    actions, signs = torch.arange(n)[None] % arms, (-1.0) ** torch.arange(n)[None].double()
    zeros = torch.zeros(1, n, d, dtype=torch.float64)
    instances = {
        "features 0": (0 * unit, actions, 3 * signs),
        "equal actions": (alike, actions, 3 * signs),
        "one action for ever": (unit, 0 * actions, 3 * signs.abs()),
        "rewards of both signs": (unit, actions, 3 * signs),
    }
    return [(name, BanditGameProblem(*each, zeros)) for name, each in instances.items()]


def list_hard_episodes(
    states: int, arms: int, horizon: int, episodes: int
) -> list[tuple[str, TabularGameProblem]]:
    """List tabular games in which one state and action is all that is seen, or every pair is."""
    shape = (1, episodes, horizon)
    same = torch.zeros(shape, dtype=torch.int64)
    turns = torch.arange(episodes * horizon).reshape(shape)
    each, every = (same, same), (turns % states, turns // states % arms)
    rewards = {"rewards 0": 0.0, "rewards 1": 1.0}
    return [
        (f"{pairs}, {told}", TabularGameProblem(s, a, value * _ones(*shape), (states, arms)))
        for pairs, (s, a) in (("one state and action", each), ("all in turn", every))
        for told, value in rewards.items()
    ]
