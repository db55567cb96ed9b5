"""Constructions of soft LinUCB and Thompson sampling, against policies, NumPy and SciPy."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch

import innerloop
from innerloop.algorithms.accelerated_ridge import SolverState
from innerloop.algorithms.inverse_root import inverse_root
from innerloop.certification.law import measure_deviations
from innerloop.constructions.linear_bandit import LinearBanditConstruction
from innerloop.constructions.soft_lin_ucb import SoftLinUCBConstruction
from innerloop.constructions.thompson_sampling import ThompsonSamplingConstruction
from innerloop.errors import InputError, OutOfRangeError
from innerloop.problems.bandit import ActionSet
from innerloop.problems.linear_bandit_games import BanditGameProblem, LinearBanditGames
from innerloop.problems.linear_bandits import LinearBandit, LinearBandits
from innerloop.transformer import Attention, Head, Layout
from innerloop.transformer.positions import gate_own_position

KINDS = [SoftLinUCBConstruction, ThompsonSamplingConstruction]


def sample_games(
    construction: LinearBanditConstruction, *batch: int, seed: int = 0
) -> BanditGameProblem:
    generator = torch.Generator().manual_seed(seed)
    return construction.distributions()[0].sample(*batch, generator=generator)


def compute_policy_log_odds(
    construction: LinearBanditConstruction, game: BanditGameProblem
) -> torch.Tensor:
    """The reference policy's log odds at every step of games."""
    policy = construction.policy
    zeros = game.features.new_zeros(*game.features.shape[:-3], game.d)
    state, log_odds = policy.init_state(LinearBandit(game.features, zeros)), []
    for t in range(game.n):
        observation = ActionSet(t, game.features[..., t, :, :])
        log_odds.append(policy.log_probabilities(state, observation, game.noise[..., t, :]))
        state = policy.update(state, observation, game.actions[..., t], game.rewards[..., t])
    return torch.stack(log_odds, dim=-2)


def compute_log_odds(
    construction: LinearBanditConstruction, game: BanditGameProblem
) -> torch.Tensor:
    """The transformer's log odds at every step of games."""
    stream = construction.transformer(construction.prompt(game))
    return construction.decode(game, stream)


def measure_policy_error(construction: LinearBanditConstruction, game: BanditGameProblem) -> float:
    expected = compute_policy_log_odds(construction, game)
    return float((compute_log_odds(construction, game) - expected).abs().max())


def run_solver(
    construction: LinearBanditConstruction, game: BanditGameProblem, steps: int
) -> SolverState:
    *_, state = construction.algorithm.states(game, steps)
    return state


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [(6,), (2, 2), ()])
def test_log_odds_are_the_policys_at_every_step(kind: Any, batch: tuple[int, ...]) -> None:
    construction = kind(d=3, arms=4, n=12, steps=80)
    game = sample_games(construction, *batch)
    expected = compute_policy_log_odds(construction, game)
    errors = (compute_log_odds(construction, game) - expected).abs()
    assert errors.shape == (*batch, 12, 4)
    assert errors.max() <= construction.accuracy < 5e-3


@pytest.mark.parametrize("kind", KINDS)
def test_the_default_number_of_steps_is_accurate_enough(kind: Any) -> None:
    construction = kind()
    game = sample_games(construction, 20)
    assert measure_policy_error(construction, game) <= construction.accuracy < 5e-3


@pytest.mark.parametrize("kind", KINDS)
def test_the_distance_to_the_policy_falls_geometrically(kind: Any) -> None:
    """The error stays below the declared accuracy and falls at least at the declared rate."""
    accurate = {"knots": 2_000} if kind is SoftLinUCBConstruction else {"terms": 16}
    game = sample_games(kind(n=8), 4)
    errors, counts = [], [10, 20, 30, 40, 50]
    for steps in counts:
        construction = kind(n=8, steps=steps, **accurate)
        errors.append(measure_policy_error(construction, game))
        assert errors[-1] <= construction.accuracy
    slope = np.polyfit(counts, np.log(errors), 1)[0]
    slowest = float((1 - kind(n=8).algorithm.rates.q.min()).log())
    assert slope < 0.9 * slowest < 0
    assert errors[-1] < 1e-3 * errors[0]


def test_the_declared_rate_is_attained_in_a_direction_without_examples() -> None:
    """All examples are e₁: the relative error of ⟨e₂, G⁻¹e₂⟩ after k steps is (1 + kq)(1 − q)^k."""
    construction = SoftLinUCBConstruction(d=2, arms=2, n=9, ridge=0.3)
    features = torch.eye(2, dtype=torch.float64).expand(9, 2, 2)
    actions = torch.zeros(9, dtype=torch.long)
    game = BanditGameProblem(features, actions, torch.ones(9).double(), torch.zeros(9, 2).double())
    for k, state in enumerate(construction.algorithm.states(game, 50)):
        remaining = 1 - 0.3 * state.behind[-1, 2, 1]
        torch.testing.assert_close(
            remaining, construction.algorithm.rates.remaining_share(k)[2], rtol=1e-9, atol=0
        )


@pytest.mark.parametrize("kind", KINDS)
def test_intermediate_solutions_stay_within_the_range(kind: Any) -> None:
    """Intermediate solutions never exceed the bounds that the gates are built for."""
    construction = kind(d=3, n=15, ridge=0.05, reward=4.0)
    game = sample_games(construction, 10)
    for state in construction.algorithm.states(game, 60):
        squares = (game.features * state.behind[..., 1:4, :]).sum(dim=-1)
        products = torch.einsum("...isd,...jad->...isja", state.behind, game.features)
        if isinstance(construction, SoftLinUCBConstruction):
            assert squares.min() >= -1e-12
            assert squares.max() <= construction.max_square
        else:
            mix = construction.algorithm.mix  # pyright: ignore[reportAttributeAccessIssue]
            products = torch.einsum("s,...isja->...ija", mix, products)
        assert products.abs().max() <= construction.max_score


@pytest.mark.parametrize("kind", KINDS)
def test_solutions_agree_with_numpy(kind: Any) -> None:
    construction = kind(d=3, arms=4, n=7, ridge=0.5)
    game = sample_games(construction, 3)
    state, ridges = run_solver(construction, game, 400), construction.algorithm.ridges.numpy()
    for index in np.ndindex(3, 7):
        case, t = index
        chosen = [game.features[case, j, game.actions[case, j]].numpy() for j in range(t)]
        phi = np.array(chosen).reshape(t, 3)
        sides = [phi.T @ game.rewards[case, :t].numpy()]
        if kind is SoftLinUCBConstruction:
            sides += list(game.features[case, t].numpy())
        else:
            sides += [game.noise[case, t].numpy()] * 6
        for s, side in enumerate(sides):
            expected = np.linalg.solve(phi.T @ phi + ridges[s] * np.eye(3), side)
            np.testing.assert_allclose(state.behind[index][s].numpy(), expected, atol=1e-10)


@pytest.mark.parametrize(("terms", "documented"), [(12, 2e-4), (24, 2e-8)])
def test_the_inverse_root_agrees_with_scipy(terms: int, documented: float) -> None:
    shifts, weights, error = inverse_root(terms, 1.0, 801.0)
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
    spectrum = np.array([1.0, 3.0, 28.3, 400.0, 801.0])
    matrix = rotation @ np.diag(spectrum) @ rotation.T
    root = scipy.linalg.fractional_matrix_power(matrix, -0.5)
    pairs = zip(shifts.tolist(), weights.tolist(), strict=True)
    approximation = sum(w * np.linalg.inv(matrix + s * np.eye(5)) for s, w in pairs)
    relative = 1 - np.diag(rotation.T @ np.asarray(approximation) @ rotation) * np.sqrt(spectrum)
    assert np.abs(np.linalg.inv(scipy.linalg.sqrtm(matrix)) - root).max() < 1e-10
    assert np.abs(approximation - root).max() < 1.01 * error
    assert relative.min() > -1e-12, "never too large"
    np.testing.assert_allclose(relative[[0, -1]], error, rtol=1e-5)
    assert relative.max() <= error * (1 + 1e-6)
    assert documented / 1.5 < error < 1.5 * documented


def test_the_inverse_root_is_exact_on_one_eigenvalue() -> None:
    shifts, weights, error = inverse_root(1, 4.0, 4.0)
    assert error == 0
    torch.testing.assert_close((weights / (4.0 + shifts)).sum(), torch.tensor(0.5).double())
    for arguments in [(0, 1.0, 2.0), (3, 0.0, 1.0), (3, 2.0, 1.0)]:
        with pytest.raises(InputError, match="expected at least one term"):
            inverse_root(*arguments)


def test_thompson_approaches_its_policy_as_terms_are_added() -> None:
    game = sample_games(ThompsonSamplingConstruction(n=12, ridge=0.02), 12)
    errors = []
    for terms in (2, 4, 6, 8):
        construction = ThompsonSamplingConstruction(n=12, ridge=0.02, terms=terms)
        state = run_solver(construction, game, 400)
        answer = construction.algorithm.predict(game, state)
        errors.append(float((answer - compute_policy_log_odds(construction, game)).abs().max()))
        assert errors[-1] <= replace(construction, steps=400).accuracy
    end = (1 + 11 / 0.02) ** 0.25
    rate = 2 * np.log((end - 1) / (end + 1))
    slope = np.polyfit([2, 4, 6, 8], np.log(errors), 1)[0]
    assert slope == pytest.approx(rate, rel=0.15)


def test_the_error_falls_like_the_square_of_the_knots() -> None:
    """The error falls as knots⁻² and lies between a tenth of the declared bound and the bound."""
    counts, errors = np.array([60, 170, 500]), []
    for knots in counts:
        built = innerloop.build("soft-lin-ucb", knots=int(knots), instances=8, steps=8)
        assert built.certificate.holds
        errors.append(max(built.certificate.step_deviation))
        assert errors[-1] > built.certificate.tolerance / 10
    slope = np.polyfit(np.log(counts - 1), np.log(errors), 1)[0]
    assert abs(slope + 2) < 0.25


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_is_exact_even_though_the_read_out_is_not(kind: Any) -> None:
    """Only the read-out is approximate: every register of the state agrees to rounding."""
    construction = kind(d=3, n=9, steps=30)
    game = sample_games(construction, 4)
    expected = construction.encode(game, run_solver(construction, game, 30))
    stream = construction.transformer.run_prologue(construction.prompt(game))
    for k in range(30):
        stream = construction.transformer.step(stream, k)
    checked = ~construction.ignored_mask(stream)
    assert ((stream - expected).abs() * checked).max() < 1e-13


@pytest.mark.parametrize("kind", KINDS)
def test_later_tokens_change_nothing_before_them(kind: Any) -> None:
    """The first steps of a game give the same odds alone and with a different continuation."""
    construction = kind(n=8, steps=15)
    game, other = sample_games(construction, 3), sample_games(construction, 3, seed=1)
    parts = {
        name: torch.cat([getattr(game, name)[:, :5], getattr(other, name)[:, 5:]], dim=1)
        for name in ("features", "actions", "rewards", "noise")
    }
    short = BanditGameProblem(**{name: part[:, :5] for name, part in parts.items()})
    whole = compute_log_odds(construction, game)
    spliced = compute_log_odds(construction, BanditGameProblem(**parts))
    torch.testing.assert_close(spliced[:, :5], whole[:, :5], rtol=0, atol=1e-12)
    alone = compute_log_odds(construction, short)
    torch.testing.assert_close(alone, whole[:, :5], rtol=0, atol=1e-12)
    assert (spliced[:, 5:] - whole[:, 5:]).abs().max() > 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_encoding_step_by_step_gives_the_same_prompt(kind: Any) -> None:
    construction = kind(n=4)
    game, tokens = sample_games(construction, 2), []
    for t in range(4):
        observation = ActionSet(t, game.features[:, t])
        tokens.append(construction.encode_observation(t, observation, game.noise[:, t]))
        tokens.append(
            construction.encode_action(t, observation, game.actions[:, t], game.rewards[:, t])
        )
    assert torch.equal(torch.cat(tokens, dim=-2), construction.prompt(game))
    last = construction.transformer(torch.cat(tokens[:-1], dim=-2))[:, -1]
    torch.testing.assert_close(
        construction.log_odds(last), compute_log_odds(construction, game)[:, -1]
    )


def test_a_rollouts_history_is_a_game() -> None:
    bandits = LinearBandits(d=2, arms=3, noise=0.2, bound=1.0).sample(5)
    construction = SoftLinUCBConstruction(alpha=0.7)
    result = innerloop.rollout(construction.policy, bandits, steps=10, generator=0)
    game = BanditGameProblem.from_history(result.history)
    errors = compute_log_odds(construction, game) - result.probabilities.log()
    assert errors.abs().max() <= construction.accuracy


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_weights_are_refused(kind: Any) -> None:
    """Zeroing the weights on any one register breaks the certificate, at the expected place."""
    construction = kind(n=6, steps=3)
    game = sample_games(construction, 6)
    layout = construction.layout

    def zero_and_measure(part: str, place: int, weight: str, register: str) -> str:
        changed = copy.deepcopy(construction.transformer)
        block = {
            "prologue": changed.prologue,
            "body": changed.body[0],
            "epilogue": changed.epilogue,
        }
        attention = block[part][place].attention  # pyright: ignore[reportIndexIssue]
        getattr(attention, weight)[..., list(layout[register].places)] = 0
        return measure_deviations(construction, changed, game).broken.partition(":")[0]

    assert not measure_deviations(construction, construction.transformer, game).broken
    assert zero_and_measure("prologue", 0, "query", "chosen") == "in the prologue, register phi"
    assert zero_and_measure("body", 0, "key", "reward").startswith("in step 1")
    assert zero_and_measure("body", 0, "value", "ahead").startswith("in step")
    assert zero_and_measure("body", 0, "key", "pos").startswith("in step")
    assert "read-out" in zero_and_measure("epilogue", 0, "key", "pos")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 11}, "built for up to n=10, got n=11"),
        ({"d": 3}, "built for 3 actions, 2 features; got 3, 3: build it for these"),
        ({"arms": 2}, "built for 3 actions, 2 features; got 2, 2: build it for these"),
        ({"bound": 40.0}, r"bound=1, .* norm of an action; got .*: use a larger bound"),
        ({"noise": 1e3}, r"reward=10, the largest .reward.; got .*: use a larger reward"),
    ],
)
def test_games_out_of_range_are_detected(kind: Any, change: dict, message: str) -> None:
    built = innerloop.build(kind().name, steps=2, instances=2)
    distribution = replace(built.construction.distributions()[0], **change)
    with pytest.raises(OutOfRangeError, match=message):
        built.predict(distribution.sample(4))


def test_steps_and_normals_out_of_range_are_detected() -> None:
    construction = ThompsonSamplingConstruction(n=3)
    game = sample_games(construction, 2)
    observation = ActionSet(0, game.features[:, 0])
    with pytest.raises(OutOfRangeError, match="built for 3 steps of a game, got 4"):
        construction.encode_observation(3, observation, game.noise[:, 0])
    with pytest.raises(OutOfRangeError, match=r"normal=10, .*; got .*: use a larger normal"):
        construction.encode_observation(0, observation, 100 + game.noise[:, 0])
    with pytest.raises(OutOfRangeError, match="built for 2 features; got 0 in z"):
        construction.encode_observation(0, observation, game.noise[:, 0, :0])
    with pytest.raises(InputError, match="actions must be in 0 … 2, got 3 … 4"):
        construction.encode_action(0, observation, torch.tensor([3, 4]), game.rewards[:, 0])
    with pytest.raises(OutOfRangeError, match="built for reward=10"):
        construction.encode_action(0, observation, game.actions[:, 0], 100 + game.rewards[:, 0])
    with pytest.raises(OutOfRangeError, match="built for normal=10"):
        construction.accept(replace(game, noise=1e3 * game.noise))


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
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
def test_bad_parameters_are_named(name: str, parameters: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        innerloop.build(name, **parameters)


@pytest.mark.parametrize(
    ("change", "message"),
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
def test_bad_games_are_named(change: dict, message: str) -> None:
    fields = vars(LinearBanditGames(d=2, n=5, arms=3).sample(2))
    # Bypass the constructor: the type checker of the tests would refuse these shapes first.
    problem = object.__new__(BanditGameProblem)
    for name, value in {**fields, **change}.items():
        object.__setattr__(problem, name, value)
    with pytest.raises(InputError, match=message):
        problem.__post_init__()


def test_sampled_games_have_uniform_actions_and_bounded_features() -> None:
    game = LinearBanditGames(d=3, n=30, arms=4, bound=2.0, noise=0.0).sample(200)
    assert game.features.norm(dim=-1).max() <= 2.0
    shares = torch.bincount(game.actions.flatten(), minlength=4) / game.actions.numel()
    assert (shares - 0.25).abs().max() < 0.03
    assert (game.features[:, 0] - game.features[:, 1]).abs().max() > 0.1, "sets vary"
    for k in range(3):
        phi, r = game.chosen_features[k].numpy(), game.rewards[k].numpy()
        weights = np.linalg.lstsq(phi, r, rcond=None)[0]
        np.testing.assert_allclose(phi @ weights, r, atol=1e-12)
    single = game.to(torch.float32)
    assert single.features.dtype == single.noise.dtype == torch.float32
    assert torch.equal(single.actions, game.actions)


def test_gate_own_position_attends_to_the_token_itself_only() -> None:
    layout = Layout(x=2, y=2, out=(), pos=(), one=())
    x, y = torch.randn(2, 9, 2, dtype=torch.float64).unbind()
    tokens = layout.make_tokens(x=x, y=y, pos=torch.arange(1.0, 10.0).double(), one=1.0)
    bound = float((x @ y.mT).abs().max())

    def run_attention(gate: float) -> torch.Tensor:
        heads = [
            Head({("x", "y"): sign}, {("one", "out"): sign}, gate=gate_own_position(gate))
            for sign in (1.0, -1.0)
        ]
        attention = Attention.from_heads(
            layout, heads, kind="relu", mask="causal", normalisation="1"
        )
        return layout.read(attention(tokens, 8), "out")

    torch.testing.assert_close(run_attention(bound), (x * y).sum(dim=-1), rtol=0, atol=1e-13)
    assert (run_attention(bound / 100) - (x * y).sum(dim=-1)).abs().max() > 1e-3
    with pytest.raises(InputError, match="positive bound, got 0"):
        gate_own_position(0.0)
