"""Soft LinUCB and Thompson sampling as weights: the policies, NumPy's solves, SciPy's root."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch

import innerloop
from innerloop.algorithms.accelerated_ridge import Solves
from innerloop.algorithms.inverse_root import inverse_root
from innerloop.constructions.law import deviations
from innerloop.constructions.linear_bandit import LinearBanditConstruction
from innerloop.constructions.soft_lin_ucb import SoftLinUCBByAttention
from innerloop.constructions.thompson_sampling import ThompsonSamplingByAttention
from innerloop.errors import InputError, OutOfRange
from innerloop.problems.bandit import ActionSet
from innerloop.problems.linear_bandit_games import BanditGame, LinearBanditGames
from innerloop.problems.linear_bandits import LinearBandit, LinearBandits
from innerloop.transformer import Attention, Head, Layout
from innerloop.transformer.positions import own_position

KINDS = [SoftLinUCBByAttention, ThompsonSamplingByAttention]


def games(construction: LinearBanditConstruction, *batch: int, seed: int = 0) -> BanditGame:
    generator = torch.Generator().manual_seed(seed)
    return construction.distributions()[0].sample(*batch, generator=generator)


def policy_log_odds(construction: LinearBanditConstruction, game: BanditGame) -> torch.Tensor:
    """The reference policy's log odds at every step of games that were played already."""
    policy = construction.policy
    zeros = game.features.new_zeros(*game.features.shape[:-3], game.d)
    state, told = policy.start(LinearBandit(game.features, zeros)), []
    for t in range(game.n):
        shown = ActionSet(t, game.features[..., t, :, :])
        told.append(policy.log_probabilities(state, shown, game.noise[..., t, :]))
        state = policy.update(state, shown, game.actions[..., t], game.rewards[..., t])
    return torch.stack(told, dim=-2)


def played(construction: LinearBanditConstruction, game: BanditGame) -> torch.Tensor:
    stream = construction.transformer(construction.prompt(game))
    return construction.decode(game, stream)


def off_policy(construction: LinearBanditConstruction, game: BanditGame) -> float:
    return float((played(construction, game) - policy_log_odds(construction, game)).abs().max())


def solved(construction: LinearBanditConstruction, game: BanditGame, steps: int) -> Solves:
    *_, state = construction.algorithm.states(game, steps)
    return state


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [(6,), (2, 2), ()])
def test_log_odds_are_the_policys_at_every_step(kind: Any, batch: tuple[int, ...]) -> None:
    construction = kind(d=3, arms=4, n=12, steps=80)
    game = games(construction, *batch)
    off = (played(construction, game) - policy_log_odds(construction, game)).abs()
    assert off.shape == (*batch, 12, 4)
    assert off.max() <= construction.accuracy < 5e-3


@pytest.mark.parametrize("kind", KINDS)
def test_default_steps_are_enough(kind: Any) -> None:
    construction = kind()
    game = games(construction, 20)
    assert off_policy(construction, game) <= construction.accuracy < 5e-3


@pytest.mark.parametrize("kind", KINDS)
def test_the_distance_to_the_policy_falls_geometrically(kind: Any) -> None:
    """Within the declared accuracy after every number of steps, and at its rate or faster."""
    fine = {"knots": 2_000} if kind is SoftLinUCBByAttention else {"terms": 16}
    game = games(kind(n=8), 4)
    found, counts = [], [10, 20, 30, 40, 50]
    for steps in counts:
        construction = kind(n=8, steps=steps, **fine)
        found.append(off_policy(construction, game))
        assert found[-1] <= construction.accuracy
    slope = np.polyfit(counts, np.log(found), 1)[0]
    slowest = float((1 - kind(n=8).algorithm.pace.q.min()).log())
    assert slope < 0.9 * slowest < 0
    assert found[-1] < 1e-3 * found[0]


def test_the_declared_rate_is_reached_where_nothing_was_learned() -> None:
    """Examples along e₁ alone: of ⟨e₂, G⁻¹e₂⟩ = 1/λ, k steps leave (1 + kq)(1 − q)^k undone."""
    construction = SoftLinUCBByAttention(d=2, arms=2, n=9, ridge=0.3)
    features = torch.eye(2, dtype=torch.float64).expand(9, 2, 2)
    actions = torch.zeros(9, dtype=torch.long)
    game = BanditGame(features, actions, torch.ones(9).double(), torch.zeros(9, 2).double())
    for k, state in enumerate(construction.algorithm.states(game, 50)):
        left = 1 - 0.3 * state.behind[-1, 2, 1]
        torch.testing.assert_close(left, construction.algorithm.pace.left(k)[2], rtol=1e-9, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_no_step_overshoots_the_range(kind: Any) -> None:
    """Whatever is left of a solution is at most the solution: products stay within the gates."""
    construction = kind(d=3, n=15, ridge=0.05, reward=4.0)
    game = games(construction, 10)
    for state in construction.algorithm.states(game, 60):
        squares = (game.features * state.behind[..., 1:4, :]).sum(dim=-1)
        across = torch.einsum("...isd,...jad->...isja", state.behind, game.features)
        if isinstance(construction, SoftLinUCBByAttention):
            assert squares.min() >= -1e-12
            assert squares.max() <= construction.squares
        else:
            mix = construction.algorithm.mix  # pyright: ignore[reportAttributeAccessIssue]
            across = torch.einsum("s,...isja->...ija", mix, across)
        assert across.abs().max() <= construction.scores


@pytest.mark.parametrize("kind", KINDS)
def test_solves_are_numpys(kind: Any) -> None:
    construction = kind(d=3, arms=4, n=7, ridge=0.5)
    game = games(construction, 3)
    state, ridges = solved(construction, game, 400), construction.algorithm.ridges.numpy()
    for index in np.ndindex(3, 7):
        case, t = index
        chosen = [game.features[case, j, game.actions[case, j]].numpy() for j in range(t)]
        phi = np.array(chosen).reshape(t, 3)
        sides = [phi.T @ game.rewards[case, :t].numpy()]
        if kind is SoftLinUCBByAttention:
            sides += list(game.features[case, t].numpy())
        else:
            sides += [game.noise[case, t].numpy()] * 6
        for s, side in enumerate(sides):
            expected = np.linalg.solve(phi.T @ phi + ridges[s] * np.eye(3), side)
            np.testing.assert_allclose(state.behind[index][s].numpy(), expected, atol=1e-10)


@pytest.mark.parametrize(("terms", "printed"), [(12, 2e-4), (24, 2e-8)])
def test_the_inverse_root_is_scipys(terms: int, printed: float) -> None:
    shifts, weights, error = inverse_root(terms, 1.0, 801.0)
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
    spectrum = np.array([1.0, 3.0, 28.3, 400.0, 801.0])
    matrix = rotation @ np.diag(spectrum) @ rotation.T
    root = scipy.linalg.fractional_matrix_power(matrix, -0.5)
    pairs = zip(shifts.tolist(), weights.tolist(), strict=True)
    found = sum(w * np.linalg.inv(matrix + s * np.eye(5)) for s, w in pairs)
    relative = 1 - np.diag(rotation.T @ np.asarray(found) @ rotation) * np.sqrt(spectrum)
    assert np.abs(np.linalg.inv(scipy.linalg.sqrtm(matrix)) - root).max() < 1e-10
    assert np.abs(found - root).max() < 1.01 * error
    assert relative.min() > -1e-12, "never too large"
    np.testing.assert_allclose(relative[[0, -1]], error, rtol=1e-5)
    assert relative.max() <= error * (1 + 1e-6)
    assert printed / 1.5 < error < 1.5 * printed


def test_the_inverse_root_is_exact_on_one_eigenvalue() -> None:
    shifts, weights, error = inverse_root(1, 4.0, 4.0)
    assert error == 0
    torch.testing.assert_close((weights / (4.0 + shifts)).sum(), torch.tensor(0.5).double())
    for bad in [(0, 1.0, 2.0), (3, 0.0, 1.0), (3, 2.0, 1.0)]:
        with pytest.raises(InputError, match="an inverse root needs"):
            inverse_root(*bad)


def test_thompson_nears_its_policy_with_the_terms() -> None:
    game = games(ThompsonSamplingByAttention(n=12, ridge=0.02), 12)
    found = []
    for terms in (2, 4, 6, 8):
        construction = ThompsonSamplingByAttention(n=12, ridge=0.02, terms=terms)
        state = solved(construction, game, 400)
        answer = construction.algorithm.predict(game, state)
        found.append(float((answer - policy_log_odds(construction, game)).abs().max()))
        assert found[-1] <= replace(construction, steps=400).accuracy
    end = (1 + 11 / 0.02) ** 0.25
    rate = 2 * np.log((end - 1) / (end + 1))
    slope = np.polyfit([2, 4, 6, 8], np.log(found), 1)[0]
    assert slope == pytest.approx(rate, rel=0.15)


def test_the_error_falls_like_the_square_of_the_knots() -> None:
    """At the declared rate, and within the declared bound without slack to hide in."""
    counts, found = np.array([60, 170, 500]), []
    for knots in counts:
        built = innerloop.build("soft-lin-ucb", knots=int(knots), instances=8, steps=8)
        assert built.certificate.holds
        found.append(max(built.certificate.step_deviation))
        assert found[-1] > built.certificate.tolerance / 10
    slope = np.polyfit(np.log(counts - 1), np.log(found), 1)[0]
    assert abs(slope + 2) < 0.25


@pytest.mark.parametrize("kind", KINDS)
def test_solves_are_exact_whatever_the_bound(kind: Any) -> None:
    """A bound on the read-out says nothing about the state: every register agrees to rounding."""
    construction = kind(d=3, n=9, steps=30)
    game = games(construction, 4)
    expected = construction.encode(game, solved(construction, game, 30))
    stream = construction.transformer.enter(construction.prompt(game))
    for k in range(30):
        stream = construction.transformer.step(stream, k)
    matters = ~construction.ignored(stream)
    assert ((stream - expected).abs() * matters).max() < 1e-13


@pytest.mark.parametrize("kind", KINDS)
def test_later_tokens_change_nothing_before_them(kind: Any) -> None:
    """The first steps of a game, alone, or with another end, give the same odds."""
    construction = kind(n=8, steps=15)
    game, other = games(construction, 3), games(construction, 3, seed=1)
    parts = {
        name: torch.cat([getattr(game, name)[:, :5], getattr(other, name)[:, 5:]], dim=1)
        for name in ("features", "actions", "rewards", "noise")
    }
    short = BanditGame(**{name: part[:, :5] for name, part in parts.items()})
    whole, mixed = played(construction, game), played(construction, BanditGame(**parts))
    torch.testing.assert_close(mixed[:, :5], whole[:, :5], rtol=0, atol=1e-12)
    torch.testing.assert_close(played(construction, short), whole[:, :5], rtol=0, atol=1e-12)
    assert (mixed[:, 5:] - whole[:, 5:]).abs().max() > 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_one_step_at_a_time_is_the_same_prompt(kind: Any) -> None:
    construction = kind(n=4)
    game, tokens = games(construction, 2), []
    for t in range(4):
        shown = ActionSet(t, game.features[:, t])
        tokens.append(construction.observed(t, shown, game.noise[:, t]))
        tokens.append(construction.acted(t, shown, game.actions[:, t], game.rewards[:, t]))
    assert torch.equal(torch.cat(tokens, dim=-2), construction.prompt(game))
    last = construction.transformer(torch.cat(tokens[:-1], dim=-2))[:, -1]
    torch.testing.assert_close(construction.log_odds(last), played(construction, game)[:, -1])


def test_a_rollouts_history_is_a_game() -> None:
    bandits = LinearBandits(d=2, arms=3, noise=0.2, bound=1.0).sample(5)
    construction = SoftLinUCBByAttention(alpha=0.7)
    found = innerloop.rollout(construction.policy, bandits, steps=10, generator=0)
    game = BanditGame.of(found.history)
    off = played(construction, game) - found.probabilities.log()
    assert off.abs().max() <= construction.accuracy


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_weights_are_refused(kind: Any) -> None:
    """A ridge, a reward, a normalisation or an action that is lost shows in the law."""
    construction = kind(n=6, steps=3)
    game = games(construction, 6)
    layout = construction.layout

    def broken(part: str, place: int, weight: str, register: str) -> str:
        mutant = copy.deepcopy(construction.transformer)
        block = {"prologue": mutant.prologue, "body": mutant.body[0], "epilogue": mutant.epilogue}
        attention = block[part][place].attention  # pyright: ignore[reportIndexIssue]
        getattr(attention, weight)[..., list(layout[register].places)] = 0
        return deviations(construction, mutant, game).broken

    assert not deviations(construction, construction.transformer, game).broken
    assert broken("prologue", 0, "query", "chosen") == "in the prologue, register phi"
    assert broken("body", 0, "key", "reward").startswith("in step 1")
    assert broken("body", 0, "value", "ahead").startswith("in step")
    assert broken("body", 0, "key", "pos").startswith("in step")
    assert "read-out" in broken("epilogue", 0, "key", "pos")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"n": 11}, "built for 10 steps of a game, got step 11"),
        ({"d": 3}, "built for arms=3, d=2; got arms=3, d=3"),
        ({"arms": 2}, "built for arms=3, d=2; got arms=2, d=2"),
        ({"bound": 40.0}, "norms up to bound=1, got .* build it with a larger bound"),
        ({"noise": 1e3}, "rewards up to reward=10 in size, got .* with a larger reward"),
    ],
)
def test_games_out_of_range_are_detected(kind: Any, change: dict, says: str) -> None:
    built = innerloop.build(kind().name, steps=2, instances=2)
    distribution = replace(built.construction.distributions()[0], **change)
    with pytest.raises(OutOfRange, match=says):
        built.predict(distribution.sample(4))


def test_steps_and_normals_out_of_range_are_detected() -> None:
    construction = ThompsonSamplingByAttention(n=3)
    game = games(construction, 2)
    shown = ActionSet(0, game.features[:, 0])
    with pytest.raises(OutOfRange, match="built for 3 steps of a game, got step 4"):
        construction.observed(3, shown, game.noise[:, 0])
    with pytest.raises(OutOfRange, match=r"up to normal=10, got .* with a larger normal"):
        construction.observed(0, shown, 100 + game.noise[:, 0])
    with pytest.raises(OutOfRange, match="needs 2 normals a step, got 0"):
        construction.observed(0, shown, game.noise[:, 0, :0])
    with pytest.raises(InputError, match=r"actions must be in 0 … 2, got \[\[3\], \[4\]\]"):
        construction.acted(0, shown, torch.tensor([3, 4]), game.rewards[:, 0])
    with pytest.raises(OutOfRange, match="rewards up to reward=10"):
        construction.acted(0, shown, game.actions[:, 0], 100 + game.rewards[:, 0])
    with pytest.raises(OutOfRange, match="up to normal=10"):
        construction.accept(replace(game, noise=1e3 * game.noise))


@pytest.mark.parametrize(
    ("name", "parameters", "says"),
    [
        ("soft-lin-ucb", {"ridge": 0.0}, "ridge must be at least"),
        ("soft-lin-ucb", {"ridge": -1.0}, "ridge must be at least"),
        ("soft-lin-ucb", {"temperature": 0.0}, "temperature must be at least"),
        ("soft-lin-ucb", {"alpha": -1.0}, "alpha must be at least 0"),
        ("soft-lin-ucb", {"knots": 1}, "knots must be at least 2"),
        ("thompson-sampling", {"terms": 0}, "terms must be at least 1"),
        ("thompson-sampling", {"n": 0}, "n must be at least 1"),
        ("thompson-sampling", {"scale": float("nan")}, "scale must be finite"),
    ],
)
def test_bad_parameters_are_named(name: str, parameters: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        innerloop.build(name, **parameters)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rewards": torch.zeros(2, 4).double()}, r"expected features \(\*batch, n, arms, d\)"),
        ({"noise": torch.zeros(2, 5, 4).double()}, r"noise \(2, 5, 4\)"),
        ({"actions": torch.full((2, 5), 3)}, "actions must be in 0 … 2, got 3 … 3"),
        ({"actions": torch.zeros(2, 5)}, "actions must be whole numbers"),
        ({"rewards": torch.full((2, 5), torch.nan).double()}, "rewards must be finite"),
        ({"rewards": torch.zeros(2, 5)}, "convert one"),
        ({"features": torch.zeros(2, 5, 0, 2).double()}, "at least one game, step, action"),
    ],
)
def test_bad_games_are_named(change: dict, says: str) -> None:
    game = vars(LinearBanditGames(d=2, n=5, arms=3).sample(2))
    # Made without its constructor, whose shapes the tests enforce.
    made = object.__new__(BanditGame)
    for name, value in {**game, **change}.items():
        object.__setattr__(made, name, value)
    with pytest.raises(InputError, match=says):
        made.__post_init__()


def test_drawn_games_are_fair_and_within_their_bound() -> None:
    game = LinearBanditGames(d=3, n=30, arms=4, bound=2.0, noise=0.0).sample(200)
    assert game.features.norm(dim=-1).max() <= 2.0
    shares = torch.bincount(game.actions.flatten(), minlength=4) / game.actions.numel()
    assert (shares - 0.25).abs().max() < 0.03
    assert (game.features[:, 0] - game.features[:, 1]).abs().max() > 0.1, "sets vary"
    for k in range(3):
        phi, r = game.chosen[k].numpy(), game.rewards[k].numpy()
        weights = np.linalg.lstsq(phi, r, rcond=None)[0]
        np.testing.assert_allclose(phi @ weights, r, atol=1e-12)
    single = game.to(torch.float32)
    assert single.features.dtype == single.noise.dtype == torch.float32
    assert torch.equal(single.actions, game.actions)


def test_own_position_hears_the_token_itself_alone() -> None:
    layout = Layout(x=2, y=2, out=(), pos=(), one=())
    x, y = torch.randn(2, 9, 2, dtype=torch.float64).unbind()
    tokens = layout.tokens(x=x, y=y, pos=torch.arange(1.0, 10.0).double(), one=1.0)
    bound = float((x @ y.mT).abs().max())

    def heard(gate: float) -> torch.Tensor:
        heads = [
            Head({("x", "y"): sign}, {("one", "out"): sign}, gate=own_position(gate))
            for sign in (1.0, -1.0)
        ]
        attention = Attention.of(layout, heads, kind="relu", mask="causal", normalisation="1")
        return layout.read(attention(tokens, 8), "out")

    torch.testing.assert_close(heard(bound), (x * y).sum(dim=-1), rtol=0, atol=1e-13)
    assert (heard(bound / 100) - (x * y).sum(dim=-1)).abs().max() > 1e-3
    with pytest.raises(InputError, match="positive bound, got 0"):
        own_position(0.0)
