"""What the claims of yang2025 found, recomputed in NumPy or in exact arithmetic."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.stats import norm

from innerloop.algorithms.symmetric_gradient_em import SymmetricGradientEM
from innerloop.claims.base import Claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Check, Evidence
from innerloop.claims.loading import load_claims
from innerloop.claims.readings import decide_together
from innerloop.claims.yang2025.fu_rates import ERRORS, _count_steps, descent_errors, newton_errors
from innerloop.claims.yang2025.hard_instances import (
    HARD_EXAMPLES,
    HARD_SPECTRA,
    list_hard_clouds,
    list_hard_episodes,
    list_hard_games,
    list_hard_networks,
    list_hard_regressions,
)
from innerloop.claims.yang2025.he_better_than_power import count_theorem_steps
from innerloop.claims.yang2025.he_minimax import (
    choose_far_points,
    error_exponent,
    known_centres_error,
)
from innerloop.claims.yang2025.lin_theorem_8 import lin_ucb_log_probabilities
from innerloop.claims.yang2025.lin_theorem_10 import RIDGE, SCALE, thompson_log_probabilities
from innerloop.claims.yang2025.lin_theorem_10 import TEMPERATURE as WARMTH
from innerloop.claims.yang2025.lin_theorem_12 import (
    TEMPERATURE,
    check_many_actions,
    soft_ucb_vi,
)
from innerloop.claims.yang2025.two_regressions import (
    INNER_STEPS,
    STRONG,
    draw_mixture,
    em_estimates,
    estimation_errors,
    fisher_error,
    fisher_information,
)
from innerloop.constructions.packed_ucb_vi import PackedUCBVIConstruction, count_layers
from innerloop.problems.linear_bandit_games import BanditGameProblem, LinearBanditGames
from innerloop.problems.mixture_of_regressions import MixtureProblem
from innerloop.problems.tabular_games import TabularGameProblem, TabularGames


def test_newton_from_the_edge_never_moves() -> None:
    """S = diag(1, 1/2), α = 2: the first entry of I − MS is 1 for ever, the second vanishes."""
    S, M = (Fraction(1), Fraction(1, 2)), [Fraction(2), Fraction(1)]
    for _ in range(8):
        M = [2 * m - m * s * m for m, s in zip(M, S, strict=True)]
        assert M[0] == 0
    assert abs(1 - M[1] * S[1]) < Fraction(1, 10**9)


def test_newton_in_numpy() -> None:
    """(28) adds |a|, (38) is not the first step, and below the edge the limit is the inverse."""
    # x = T = n = 1: the score is −1/2, the pair of equal values adds 1/2, doubled 3, and not 1.
    a, step = -0.5, 2 * 1 - 1 * 1 * 1
    assert 2 * (1 + max(a, 0) + max(-a, 0)) == 3
    assert 2 * (1 + max(a, 0) - max(-a, 0)) == step
    X = np.random.default_rng(0).normal(size=(9, 3))
    S = X.T @ X
    alpha = 1.9 / np.linalg.norm(S @ S.T, 2)
    M = alpha * S
    first = 2 * M - M @ S @ M
    np.testing.assert_allclose(first, 2 * alpha * S - alpha**2 * S @ S @ S, rtol=1e-9)
    assert np.abs(first - (2 * alpha * S - 4 * alpha**2 * S @ S @ S)).max() > 0.1 * abs(first).max()
    for _ in range(25):
        M = 2 * M - M @ S @ M
    np.testing.assert_allclose(M, np.linalg.inv(S), rtol=1e-8)


@pytest.mark.parametrize("kappa", [10.0, 700.0])
def test_steps_are_those_of_the_closed_forms(kappa: float) -> None:
    """Errors (1 − 1/κ²)^(2^k) of Newton's and (1 − 1/κ)^k of gradient descent."""
    errors = ERRORS[:6]
    fast = [math.ceil(math.log2(math.log(e) / math.log1p(-(kappa**-2)))) for e in errors]
    slow = [math.ceil(math.log(e) / math.log1p(-1 / kappa)) for e in errors]
    assert _count_steps(newton_errors, kappa, errors) == fast
    assert _count_steps(descent_errors, kappa, errors) == slow


def plan_with_dictionaries(game: TabularGameProblem, width: float) -> np.ndarray:
    """Plan one game by soft UCB-VI, with dictionaries: log-odds (episodes, H, A)."""
    parts = (game.states, game.actions, game.rewards)
    states, actions, rewards = (part[0].numpy() for part in parts)
    (S, A), (episodes, H) = game.sizes, states.shape
    visits, moves, earned = Counter(), Counter(), defaultdict(float)
    rows = []
    for e in range(episodes):
        Q, V = np.zeros((H, S, A)), np.zeros((H + 1, S))
        for h in reversed(range(H)):
            for s in range(S):
                for a in range(A):
                    n = visits[h, s, a]
                    if n == 0:
                        Q[h, s, a] = H
                        continue
                    later = sum(moves[h, s, a, t] / n * V[h + 1, t] for t in range(S))
                    Q[h, s, a] = min(H, earned[h, s, a] / n + width / math.sqrt(n) + later)
                V[h, s] = Q[h, s].max()
        seen = Q[np.arange(H), states[e]] / TEMPERATURE
        rows.append(seen - np.log(np.exp(seen).sum(axis=1, keepdims=True)))
        for h in range(H):
            cell = (h, states[e, h], actions[e, h])
            visits[cell] += 1
            earned[cell] += rewards[e, h]
            if h + 1 < H:
                moves[(*cell, states[e, h + 1])] += 1
    return np.stack(rows)


@pytest.mark.parametrize(("S", "A", "H", "n"), [(2, 2, 3, 9), (2, 5, 2, 14), (1, 9, 2, 24)])
def test_packed_planning_is_soft_ucb_vi(S: int, A: int, H: int, n: int) -> None:
    built = PackedUCBVIConstruction(
        d=S, arms=A, steps=H - 1, n=n, bonus=0.02, temperature=TEMPERATURE
    )
    generator = torch.Generator().manual_seed(1)
    game = TabularGames(states=S, arms=A, horizon=H, episodes=n).sample(1, generator=generator)
    expected = plan_with_dictionaries(game, float(built.algorithm.width))
    reference = soft_ucb_vi(game, float(built.algorithm.width))[0].numpy()
    np.testing.assert_allclose(reference, expected, atol=1e-12)
    values = built.decode(game, built.transformer(built.prompt(game)))
    found = (values / TEMPERATURE).log_softmax(dim=-1)[0].numpy()
    np.testing.assert_allclose(found, expected, atol=1e-11)
    assert (values < H - 1e-6).double().mean() > 0.1, "not everything is as hopeful as can be"
    assert built.transformer.count()["layers"] == count_layers(H, A)


def test_layers_fit_for_up_to_eight_actions() -> None:
    for H in (2, 3, 10, 1000):
        assert count_layers(H, 2) == H + 3
        assert count_layers(H, 8) == count_layers(H, 3) == 2 * H + 2
    assert count_layers(7, 32) == 2 * 7 + 8
    assert count_layers(8, 32) > 2 * 8 + 8


def test_from_zero_units_stay_copies() -> None:
    """One hidden layer by hand: sigmoid units from 0 have equal gradients, tanh ones have none."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(9, 2)), rng.normal(size=9)
    for active, slope in (
        (np.tanh, lambda a: 1 - np.tanh(a) ** 2),
        (lambda a: 1 / (1 + np.exp(-a)), lambda a: np.exp(-a) / (1 + np.exp(-a)) ** 2),
    ):
        V, w = np.zeros((3, 2)), np.zeros(3)
        for _ in range(50):
            hidden = active(x @ V.T)
            back = (active(hidden @ w) - y) * slope(hidden @ w) / len(y)
            V, w = (
                V - 0.5 * (back[:, None] * w * slope(x @ V.T)).T @ x,
                w - 0.5 * back @ hidden,
            )
        assert np.ptp(V, axis=0).max() < 1e-12
        assert np.ptp(w) < 1e-12
        assert (np.abs(V).max() == 0) == (active is np.tanh)


def test_the_printed_product_is_zero_for_rank_k() -> None:
    """A = diag(1, 1/2, 0), k = 2: six iterations from (1, 1, 1) leave 0.0156, not 0."""
    A, v = np.diag([1.0, 0.5, 0.0]), np.ones(3)
    for _ in range(6):
        v = A @ v / np.linalg.norm(A @ v)
    assert np.linalg.norm(v - [1, 0, 0]) == pytest.approx(0.0156236, abs=1e-7)


def test_known_centres_err_as_the_normal_tail_says() -> None:
    for ratio in (1.0, 4.0, 6.0):
        assert known_centres_error(2, ratio) == pytest.approx(
            math.erfc(ratio / 8**0.5) / 2, rel=1e-9
        )
    rng = np.random.default_rng(1)
    points = rng.normal(size=(400_000, 4)) + 3 / 2**0.5 * np.array([1, 0, 0, 0])
    share = (points.argmax(axis=1) != 0).mean()
    assert known_centres_error(4, 3.0) == pytest.approx(share, abs=4 * (share / 400_000) ** 0.5)
    assert error_exponent(2, 1000.0) == pytest.approx(1.0, abs=1e-3)


def test_starts_are_points_of_the_data_that_are_far_apart() -> None:
    x = torch.tensor([[[0.0], [1.0], [5.0], [-4.0]]], dtype=torch.float64)
    assert choose_far_points(x, 3).flatten().tolist() == [0.0, 5.0, -4.0]


def test_information_of_the_mixture_of_two() -> None:
    """2η² and 6η² for small η, 1 and 1 for large; and errors as it says."""
    across, along = fisher_information(0.01)
    assert across == pytest.approx(2e-4, rel=2e-3)
    assert along == pytest.approx(6e-4, rel=2e-3)
    assert fisher_information(30.0) == pytest.approx((1.0, 1.0), abs=0.05)
    generator = torch.Generator().manual_seed(3)
    found = estimation_errors(generator, 200, 2000, 2, 1.0).square().mean().sqrt()
    assert float(found) == pytest.approx(fisher_error(2000, 2, 1.0), rel=0.15)


@pytest.mark.parametrize("name", ["3.2", "3.3"])
def test_no_correction_is_false_for_random_starts_at_large_signal(
    name: str, check_tiny: Callable[[Claim], Evidence]
) -> None:
    """A bound with constant 1 on errors of any start fails: some starts end at wrong fixed points.

    A correction that passes must name a condition on the start.
    """
    for d, n, eta in STRONG:
        errors = estimation_errors(torch.Generator().manual_seed(1), 100, n, d, eta)
        assert float(errors.square().mean()) > 10 * d * math.log(n) ** 2 / n
        assert float((errors > math.sqrt(d / n) * math.log(n / 0.1)).double().mean()) > 0.1
    parts = check_tiny(load_claims()[f"yang2025.jin.theorem-{name}"]).parts
    corrections = [part.corrected for part in parts if part.corrected is not None]
    assert not [check for check in corrections if check.passed and "start" not in check.statement]


def test_wrong_ends_of_random_starts_are_fixed_points() -> None:
    x, y, star, start = draw_mixture(torch.Generator().manual_seed(0), 100, 20, 2, 30.0)
    ends = em_estimates(x, y, start, 200)
    wrong = torch.minimum((ends - star).norm(dim=-1), (ends + star).norm(dim=-1)) > 2.0
    assert 0.05 < float(wrong.double().mean()) < 0.35
    moved = em_estimates(x[wrong], y[wrong], ends[wrong], 1) - ends[wrong]
    assert float(moved.abs().max()) < 1e-9


def test_one_constant_for_all_signals_fails_at_the_edge(
    check_tiny: Callable[[Claim], Evidence],
) -> None:
    """By Fisher's information errors at the edge grow past every constant times the bound."""
    high = check_tiny(load_claims()["yang2025.jin.theorem-3.2"]).parts[3]
    assert high.verdict == "fails"
    assert high.weaker is not None
    assert high.weaker.passed is not False
    n = 1e16
    eta, bound = (2 * math.log(n) ** 2 / n) ** 0.25, math.sqrt(2 / n) * math.log(n / 0.1)
    error = ((1 / 2 + 1 / 6) / n) ** 0.5 / eta
    assert fisher_error(n, 2, eta) == pytest.approx(error, rel=1e-3)
    example = high.printed.counterexample
    assert f"{error:.3g} against {bound:.3g}" in example
    assert f"{error / bound:.3g} times the bound" in example


def test_low_signals_are_judged_at_the_ends_of_their_range(
    check_tiny: Callable[[Claim], Evidence],
) -> None:
    """Low signal to noise reaches from η = 0, or just above, to the edge itself."""
    parts = check_tiny(load_claims()["yang2025.jin.theorem-3.2"]).parts
    ends = [part.printed.statement.rpartition(" at ")[2] for part in parts[:3]]
    assert ends == ["$0$", "half the edge", "the edge"]
    low, _ = check_tiny(load_claims()["yang2025.jin.theorem-3.3"]).parts
    assert sum(name.endswith("$η$ at the edge") for name in low.other_readings) == 2


def test_large_signals_are_shown_beside_the_rate_of_the_prediction(
    check_tiny: Callable[[Claim], Evidence],
) -> None:
    """At η = 500 random starts that end at wrong optima pass the printed bound with constant 1."""
    (strong,) = check_tiny(load_claims()["yang2025.jin.theorem-3.1"]).beyond
    assert strong.passed is False
    bound = math.log(2 / 0.01) ** 0.5 * ((4 * math.log(8000) ** 2 / 20) ** 0.5 + (4 / 20) ** 0.5)
    assert "$d = 2$, $n = 20$, $K = 2$, $η = 500$" in strong.counterexample
    assert strong.counterexample.endswith(f"> {bound:.6g}")


def test_two_signals_near_each_other_cannot_be_told_apart() -> None:
    """The divergence of β* + Δ from β* is near η²‖Δ‖² per example, Δ orthogonal, by quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    u, v, z = np.meshgrid(nodes, nodes, nodes, indexing="ij")
    mass = np.einsum("i,j,k->ijk", *[weights / weights.sum()] * 3)

    def log_density(signal: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.logaddexp(y * signal, -y * signal) - signal**2 / 2

    for eta, apart in ((0.05, 0.02), (0.1, 0.01)):
        y = eta * u + z
        gap = log_density(eta * u, y) - log_density(eta * u + apart * v, y)
        assert (mass * gap).sum() == pytest.approx(eta**2 * apart**2, rel=0.15)


def test_the_excess_risk_is_decided_where_its_readings_agree(
    check_tiny: Callable[[Claim], Evidence],
) -> None:
    """The slides define no risk: of two risks one falls like 1/n at η = 2 and one does not."""
    found = check_tiny(load_claims()["yang2025.jin.theorem-3.3"])
    assert found.verdict == "not decidable from the source"
    low, high = found.parts
    assert {check.passed for check in low.other_readings.values()} <= {True, None}
    fixed, constant, least = high.other_readings.values()
    assert (constant.passed, least.passed) == (False, False)
    assert fixed.passed is not False


def test_estimates_are_those_of_gradient_em() -> None:
    generator = torch.Generator().manual_seed(4)
    x, y, star, start = draw_mixture(generator, 3, 50, 3, 1.0)
    rate = 50 / (50**0.5 + 3**0.5 + 5) ** 2
    one, step = torch.tensor([1.0, rate], dtype=torch.float64)
    pair = torch.stack([start, -start], dim=-2)
    *_, expected = SymmetricGradientEM(one, step, INNER_STEPS).states(
        MixtureProblem(x, y, x[:, :1], pair, torch.stack([star, -star], dim=-2)), 7
    )
    torch.testing.assert_close(em_estimates(x, y, start, 7), expected, atol=1e-12, rtol=0)


def test_the_best_prediction_of_a_fair_sign_is_zero() -> None:
    """E(y − ⟨x, b⟩)² − E y² = ‖b‖² for y = ±⟨x, β⟩ + noise, whatever β."""
    rng = np.random.default_rng(5)
    x, b = rng.normal(size=(400_000, 2)), np.array([1.0, -0.5])
    y = rng.choice([-1, 1], size=len(x)) * (x @ [2.0, 1.0]) + rng.normal(size=len(x))
    each = (y - x @ b) ** 2 - y**2
    assert each.mean() == pytest.approx(1.25, abs=5 * each.std() / len(x) ** 0.5)


def test_bandit_log_probabilities_step_by_step() -> None:
    """LinUCB and Thompson sampling of one game, with a loop over its steps."""
    generator = torch.Generator().manual_seed(6)
    game = LinearBanditGames(d=3, n=5, arms=4).sample(generator=generator)
    parts = (game.features, game.actions, game.rewards, game.noise)
    features, actions, rewards, noise = (part.numpy() for part in parts)
    found = (
        lin_ucb_log_probabilities(game, 0.5, 0.7, 0.3).numpy(),
        thompson_log_probabilities(game).numpy(),
    )
    for t in range(5):
        phi = features[np.arange(t), actions[:t]]
        for k, ridge in enumerate((0.5, RIDGE)):
            G = ridge * np.eye(3) + phi.T @ phi
            w = np.linalg.solve(G, phi.T @ rewards[:t])
            if k == 0:
                width = [math.sqrt(a @ np.linalg.solve(G, a)) for a in features[t]]
                scores = (features[t] @ w + 0.7 * np.array(width)) / 0.3
            else:
                values, vectors = np.linalg.eigh(G)
                root = vectors @ np.diag(values**-0.5) @ vectors.T
                scores = features[t] @ (w + SCALE * root @ noise[t]) / WARMTH
            expected = scores - np.log(np.exp(scores).sum())
            np.testing.assert_allclose(found[k][t], expected, atol=1e-10)
    assert isinstance(game, BanditGameProblem)


def test_softened_thompson_sampling_nears_the_law_of_its_actions() -> None:
    """e₁ and e₂, G = I, ŵ = (0.5, 0), s = 0.5: chances by SciPy, and what a temperature leaves."""
    m, v = 0.5, 0.5 * math.sqrt(2)
    exact = norm.cdf(m / v)
    assert exact == pytest.approx(0.760, abs=5e-4)
    z = np.linspace(-9, 9, 200_001)
    for temperature, limit in ((0.5, 0.675), (0.05, 0.759)):
        soft = np.trapezoid(norm.pdf(z) / (1 + np.exp(-(m + v * z) / temperature)), z)
        assert soft == pytest.approx(limit, abs=2e-3)
        assert abs(soft - exact) <= 0.399 * (temperature / v) ** 2


@pytest.mark.parametrize(
    ("id", "verdicts"),
    [
        ("yang2025.fu.newton", ["holds"] * 2),
        ("yang2025.fu.rates", ["holds"] * 4),
        ("yang2025.lin.theorem-12", ["holds"] * 2 + ["undecided"]),
        ("yang2025.wu.theorem-1", ["holds"] * 4 + ["undecided"] * 2 + ["holds"]),
        ("yang2025.he.em-steps", ["holds"] * 2),
        ("yang2025.he.gmm", ["holds"] * 2),
        ("yang2025.lin.theorem-8", ["holds"] * 2 + ["undecided", "holds"]),
        ("yang2025.lin.theorem-10", ["holds"]),
        ("yang2025.wu.theorem-6", ["holds"] * 3),
    ],
)
def test_what_holds_and_what_does_not(
    id: str, verdicts: list[str], check_tiny: Callable[[Claim], Evidence]
) -> None:
    claim = load_claims()[id]
    found = check_tiny(claim)
    assert [part.verdict for part in found.parts] == verdicts
    if id == "yang2025.fu.rates":
        assert found.numbers["largest difference to the counts on rotated data"] == 0


def test_hard_instances_are_what_they_are_called() -> None:
    """By NumPy: ranks, condition numbers, sizes; and every problem is accepted as one."""
    for d in (1, 2, 4):
        rows = {name: build(d).numpy() for name, build in HARD_EXAMPLES.items()}
        assert rows["one example"].shape == (1, d)
        assert np.linalg.matrix_rank(rows["equal examples"]) == 1
        assert len(rows["one example fewer than features"]) == max(d - 1, 1)
        sizes = np.abs(rows["examples of size 10³"]).max(), np.abs(rows["κ = 10⁴"]).max()
        assert sizes == (2000.0, 1.0)
        if d > 1:
            assert np.linalg.cond(rows["κ = 10⁴"]) ** 2 == pytest.approx(1e4)
        for spectrum in (build(d, 100.0) for build in HARD_SPECTRA.values()):
            assert spectrum.shape == (d,)
            assert float(spectrum.min()) == 0.01 or d == 1
    for name, problem in list_hard_regressions(3, 5):
        assert problem.n == 5, name
        fitted = np.linalg.lstsq(problem.x.numpy(), problem.y.numpy(), rcond=None)[0]
        assert np.abs(problem.x.numpy() @ fitted - problem.y.numpy()).max() > 0, name
    for name, cloud in list_hard_clouds(2, 7, 3):
        assert (cloud.n, cloud.clusters) == (7, 3), name
    network = dict(list_hard_networks([(2, 3), (1, 2)], 4, 0.5))
    assert all(float(each.x.norm(dim=-1).max()) <= 1 + 1e-12 for each in network.values())
    for _, game in list_hard_games(2, 5, 3):
        assert float(game.features.norm(dim=-1).max()) <= 1
        assert float(game.rewards.abs().max()) <= 3
    assert len(list_hard_episodes(2, 3, 4, 5)) == 4


@pytest.mark.parametrize("kappa", [1.0, 30.0, 1e4])
def test_powers_of_two_of_steps_are_enough_on_hard_spectra(kappa: float) -> None:
    """(1 − x)^(2^k) ≤ (1 − x²)^(2^k): gradient descent reaches Newton's k-th in 2^k steps."""
    for build in HARD_SPECTRA.values():
        x = build(5, kappa).numpy()
        m, off = x.copy(), np.ones_like(x)
        for k in range(12):
            assert (off <= np.abs(1 - m * x) * (1 + 1e-9) + 1e-12).all() or k == 0
            m, off = 2 * m - x * m**2, (1 - x) ** (2.0 ** (k + 1))


def test_more_actions_stay_open_until_the_layers_fit() -> None:
    """Wrong log-odds fail; layers above the printed count leave it open; layers within decide."""
    odds = torch.ones(2, 9, dtype=torch.float64)
    exact = {"case": Case(H=2, A=9), "told": odds, "wanted": odds}
    few, many = ({"case": Case(H=2, A=9), "layers": layers} for layers in (12, 13))
    assert check_many_actions([exact, few]).passed
    assert check_many_actions([exact, few, many]).passed is None
    assert check_many_actions([{**exact, "told": 2 * odds}, many]).passed is False


def test_readings_decide_a_statement_only_if_all_agree() -> None:
    checks = {
        name: Check(statement=name, passed=passed, summary="")
        for name, passed in (("a", True), ("b", False), ("c", None))
    }
    expected = {"aa": True, "bb": False}
    for names in ("aa", "bb", "ab", "ba", "ac", "bc", "cc"):
        readings = {str(k): checks[name] for k, name in enumerate(names)}
        assert decide_together("a", readings).passed is expected.get(names), names


def test_three_layers_are_no_step_by_the_count_of_the_theorem() -> None:
    """L = 2τ + 4k + 1 with k = 1: 11 layers for three steps, none for three layers."""
    assert [count_theorem_steps(layers) for layers in (3, 5, 6, 7, 11)] == [0, 0, 0, 1, 3]
