"""What claims about trained policies and networks measure, each against another way."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch

from innerloop.algorithms.network_gradient_descent import NetworkGradientDescent
from innerloop.claims.yang2025.deciding import (
    estimate_ratio,
    list_rows,
    load_players,
    play_games,
)
from innerloop.claims.yang2025.lin_bernoulli_bandit import find_best_odds
from innerloop.claims.yang2025.lin_linear_bandit import fit_lin_ucb
from innerloop.claims.yang2025.network_baselines import (
    run_descent,
    train_again,
    train_networks,
    tune_regressors,
)
from innerloop.claims.yang2025.wu_experiments import TRAINING, Errors, judge_depth
from innerloop.policies.lin_ucb import LinUCBPolicy
from innerloop.policies.uniform import UniformPolicy
from innerloop.problems.linear_bandits import LinearBandits
from innerloop.problems.network_regression import NetworkRegression


def test_a_ratio_of_means_has_an_interval_over_environments() -> None:
    generator = torch.Generator().manual_seed(0)
    under = torch.rand(400, generator=generator, dtype=torch.float64) + 0.5
    assert estimate_ratio(2 * under, under) == pytest.approx((2.0, 2.0, 2.0))
    noise = torch.randn(400, generator=generator, dtype=torch.float64)
    found = estimate_ratio(1.5 + noise, under)
    deviation = (noise - 1.5 * (under - under.mean())).std() / 20 / under.mean()
    assert found.low < 1.5 < found.high
    assert found.high - found.low == pytest.approx(2 * 1.96 * float(deviation), rel=0.15)


def test_the_odds_that_an_arm_is_best_are_those_of_the_posterior() -> None:
    """Against the integral over each arm's chance, by SciPy: no draws, so no scatter of theirs."""
    generator = torch.Generator().manual_seed(3)
    actions = torch.randint(3, (4, 99), generator=generator)
    actions[1], actions[2, :95] = 0, 1
    rewards = torch.randint(2, (4, 99), generator=generator).float()
    rewards[1:3] = (torch.rand(2, 99, generator=generator) < 0.9).float()
    found = find_best_odds(actions, rewards, 3)

    def weigh(p: float, own: list[float], others: list[list[float]]) -> float:
        below = [scipy.stats.beta.cdf(p, *other) for other in others]
        return float(scipy.stats.beta.pdf(p, *own) * np.prod(below))

    for game, (chosen, earned) in enumerate(zip(actions.numpy(), rewards.numpy(), strict=True)):
        wins = [float(earned[chosen == arm].sum()) for arm in range(3)]
        losses = [float((1 - earned[chosen == arm]).sum()) for arm in range(3)]
        shapes = [[1 + won, 1 + lost] for won, lost in zip(wins, losses, strict=True)]
        for arm in range(3):
            others = [shapes[k] for k in range(3) if k != arm]
            exact, _ = scipy.integrate.quad(weigh, 0, 1, args=(shapes[arm], others), limit=200)
            assert float(found[game, arm]) == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize(("alpha", "temperature"), [(1.0, 0.1), (2.5, 0.5)])
def test_the_numbers_of_a_lin_ucb_are_found(alpha: float, temperature: float) -> None:
    policy = LinUCBPolicy(alpha=alpha, temperature=temperature)
    bandits = LinearBandits(d=2, arms=4).sample(40, generator=torch.Generator().manual_seed(1))
    for player in (policy, UniformPolicy()):
        found = fit_lin_ucb(policy, player, bandits, 20, torch.Generator().manual_seed(2))
        assert (found["α"], found["τ"]) == (alpha, temperature)
        assert found["divergence"] < 1e-3


def test_networks_that_are_trained_on_the_prompt_find_the_teacher() -> None:
    """A single layer is found from any start that is not silent; the built iteration agrees."""
    problem = NetworkRegression(d=2, n=30, layers=1, width=1).sample(
        6, generator=torch.Generator().manual_seed(0)
    )
    truth = problem.targets[:, 0]
    found = train_networks(problem, 4, 300, torch.Generator().manual_seed(1))
    for answers in found:
        assert float((answers - truth).square().mean()) < 1e-3 * float(truth.square().mean())
    assert not torch.equal(found.whole, found.part)
    untrained = train_networks(problem, 4, 0, torch.Generator().manual_seed(1))
    for answers in untrained:
        assert float((answers - truth).square().mean()) > 1e-2 * float(truth.square().mean())
    sizes = torch.tensor([0.1], dtype=torch.float64)
    box = torch.tensor(1e6, dtype=torch.float64)
    *_, last = NetworkGradientDescent(sizes, box).states(problem, 5)
    said = NetworkGradientDescent(sizes, box).predict(problem, last)[:, 0]
    assert torch.allclose(run_descent(problem, 5, 0.1), said)
    stops = torch.tensor([5, 0, 5, 5, 0, 5])
    first = NetworkGradientDescent(sizes, box).predict(problem, problem.start)[:, 0]
    again = train_again(problem, torch.full((6,), 0.1, dtype=torch.float64), stops)
    assert torch.allclose(again, torch.where(stops == 5, said, first))


def test_errors_far_below_those_of_training_are_not_equal_to_them() -> None:
    """In-context learning may err less than training does; the two-sided reading says no."""
    errors = torch.rand(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.5
    part = judge_depth(Errors(3, [errors / 100], {TRAINING: errors}, 1.0))
    assert part.printed.passed is True
    assert part.other_readings["errors are equal"].passed is False


def test_regressors_are_scikit_learns_on_every_prompt() -> None:
    """Each prompt is fitted alone: ridge's answer is its normal equations' for one of the grid."""
    law = NetworkRegression(d=2, n=8, layers=2, width=2)
    problem = law.sample(3, generator=torch.Generator().manual_seed(0))
    methods = tune_regressors(law, torch.Generator().manual_seed(1))
    assert set(methods) == {"ridge", "nearest neighbours", "kernel ridge"}
    found, answers = methods["ridge"](problem), []
    mean_x, mean_y = problem.x.mean(dim=1, keepdim=True), problem.y.mean(dim=1, keepdim=True)
    x, y = problem.x - mean_x, problem.y - mean_y
    for k in range(-2, 3):
        gram = x.mT @ x + 10.0**k * torch.eye(2, dtype=torch.float64)
        weights = torch.linalg.solve(gram, x.mT @ y)
        query = problem.x_query.unsqueeze(1) - mean_x
        answers.append((query @ weights + mean_y).flatten())
    assert any(torch.allclose(found, answer) for answer in answers)


def test_recorded_policies_play_better_than_chance() -> None:
    """Weights that are recorded are those that a claim finds, and they have learned."""
    (player,) = load_players("linear-bandits", ["distilled"], {})
    bandits = player.recipe.build_distribution().sample(
        60, generator=torch.Generator().manual_seed(5)
    )
    references = {"uniform": UniformPolicy(), "LinUCB": player.recipe.teacher}
    games = play_games([player], references, bandits, torch.Generator().manual_seed(6))
    ends = {name: float(regret[:, -1].mean()) for name, regret in games.players.items()}
    assert ends["transformer, seed 0"] < 0.6 * ends["uniform"]
    rows = list_rows(games, every=10)
    assert [row["t"] for row in rows if row["player"] == "LinUCB"] == [1, 10, 20, 30, 40, 50]
    assert rows[5]["regret"] == pytest.approx(ends["transformer, seed 0"])
    assert all(row["low"] <= row["regret"] <= row["high"] for row in rows)
