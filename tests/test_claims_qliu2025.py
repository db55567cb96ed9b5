"""What the claims of qliu2025 found, recomputed in NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from innerloop.claims.base import Claim
from innerloop.claims.evidence import Evidence
from innerloop.claims.loading import load_claims
from innerloop.claims.qliu2025 import (
    corollary_10,
    deflation,
    deflation_runs,
    exact_classes,
    hard_instances,
    proposition_9,
    theorem_7,
    theorem_7_errata,
)
from innerloop.claims.qliu2025.deflation import proper_tau
from innerloop.claims.qliu2025.lemma_8 import probability_within
from innerloop.claims.qliu2025.lipschitz import lipschitz_constant
from innerloop.claims.qliu2025.slides import run_layers


def decode(H: np.ndarray) -> np.ndarray:
    """The two layers by their formulas: rows are x, y, r, q, ⌈i/2⌉, 1, parity of the columns."""
    H = H.copy()
    r, q, pos, par = (H.shape[0] - k for k in (5, 4, 3, 1))
    first = H.copy()
    for i in range(H.shape[1]):
        seen = H[:, : i + 1]
        first[r, i] += np.mean(np.maximum(H[par, i] * seen[pos], 0) * seen[pos])
        first[q, i] += 3 * np.mean(H[par, i] * seen[pos])
    second = first.copy()
    for i in range(H.shape[1]):
        a = 4 / 3 * first[q, i] - 2 * first[par, i]
        b = -6 * first[r, i] + 10 / 3 * first[q, i] - 4 * first[par, i]
        weights = np.maximum(a * first[pos, : i + 1] + b, 0) / (i + 1)
        second[: H.shape[0] - 6, i] += first[: H.shape[0] - 6, : i + 1] @ weights
    second[[r, q]] = 0
    return second


@pytest.mark.parametrize("N", [1, 2, 7, 60])
def test_two_layers_pair_x_with_y(N: int) -> None:
    rng = np.random.default_rng(N)
    d, i = 2, np.arange(1, 2 * N + 2)
    X, y = rng.normal(size=(d, N + 1)), rng.normal(size=N)
    H = np.zeros((d + 6, 2 * N + 1))
    H[:d, 0::2], H[d, 1::2] = X, y
    H[-3], H[-2], H[-1] = (i + 1) // 2, 1, (i + 1) % 2
    out = decode(H)
    expected = H.copy()
    expected[:d, 1::2] = X[:, :N]
    np.testing.assert_allclose(out, expected, atol=1e-11)
    # Without row D − 2 and in columns 2, 4, …, 2N, 2N + 1 it is the encoder's prompt.
    kept = np.delete(out, -3, axis=0)[:, [*range(1, 2 * N, 2), 2 * N]]
    encoder = np.vstack([X, np.append(y, 0), np.zeros((2, N + 1)), np.ones(N + 1), np.ones(N + 1)])
    encoder[-1, -1] = 0
    np.testing.assert_allclose(kept, encoder, atol=1e-11)


def test_what_holds_and_what_does_not(check_tiny: Callable[[Claim], Evidence]) -> None:
    claim = load_claims()["qliu2025.proposition-6"]
    evidence = check_tiny(claim)
    assert evidence.label == "holds · 2 errata"
    display, rows = (erratum.printed.counterexample for erratum in evidence.errata)
    assert display.endswith(": [0, 5, 0, 0, 1, 1] ≠ [3, 5, 0, 0, 1, 1]")
    assert "7 rows for 6 and a 0" in rows
    assert "≠" in rows
    numbers = evidence.numbers
    assert (numbers["layers"], numbers["heads in a layer"], numbers["hidden units"]) == (2, 2, 2)
    # max over layers: √‖score‖ + Σ‖V‖ + ‖W₁‖ + ‖W₂‖ of the second, with score rows as built.
    score = np.zeros((3, 2))
    score[0], score[1], score[2] = (4 / 3, 10 / 3), (-2, -4), (0, -6)  # q, par, r by pos, 1
    norm = np.sqrt(np.linalg.norm(score, 2)) + 1 + 1 + 1
    assert numbers["‖θ‖"] == pytest.approx(norm)


def test_the_matrix_form_of_attention_swaps_query_and_key() -> None:
    """H = V = K = I, Q = [[1, 1], [0, 1]]: column i must hold σ⟨Qh_i, Kh_j⟩ in row j."""
    Q = np.array([[1.0, 1.0], [0.0, 1.0]])
    expected = np.array([[relu(Q[:, i] @ np.eye(2)[:, j]) for i in range(2)] for j in range(2)])
    np.testing.assert_array_equal(relu(np.eye(2).T @ Q), expected)
    assert not np.array_equal(relu(Q.T @ np.eye(2)), expected)


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


@pytest.mark.parametrize("d", [2, 3, 4])
def test_small_inner_products_on_the_sphere(d: int) -> None:
    """Closed forms: 2 asin(δ)/π on the circle, δ on the sphere, (2/π)(asin δ + δ√(1−δ²)) next."""
    delta = 0.9 / (2 * d)
    arc, chord = np.arcsin(delta), delta * np.sqrt(1 - delta**2)
    closed = {2: 2 * arc / np.pi, 3: delta, 4: 2 / np.pi * (arc + chord)}[d]
    assert probability_within(d, delta) == pytest.approx(closed, rel=1e-12)
    assert closed <= np.sqrt(delta / np.pi)


def test_the_lipschitz_constant_of_a_scalar_layer() -> None:
    """Q = K = V = t and no MLP at h = 1: 1 + t³; no constant does for all t, λ(B) for ‖θ‖ ≤ B."""
    for t in (1.0, 3.0, 9.0):
        assert t**3 <= lipschitz_constant(2 * t, 1.0, 1) * 2 * t
    assert 9.0**3 > (1.0 / 2.0) * 18.0


def test_power_iterations_that_cannot_know_the_gap() -> None:
    """λ = (100², 99²), δ = 0.1, ε₀ = 0.1: 46 iterations are far from enough, 127 are enough."""
    A, p = np.diag([1.0, 0.9801]), np.array([0.1, np.sqrt(0.99)])
    tau = int(np.log(1 / (0.1 * 0.1)) / 0.1)
    after = np.linalg.matrix_power(A, tau) @ p
    assert after[0] / np.linalg.norm(after) == pytest.approx(0.2456, abs=1e-4)
    needed = proper_tau(0.1, 0.1, 1.0, 0.9801)
    after = np.linalg.matrix_power(A, needed) @ p
    assert after[0] / np.linalg.norm(after) >= 0.9


@pytest.mark.parametrize("tau", [1, 4, 15])
def test_deflation_is_algorithm_1(tau: int) -> None:
    generator = torch.Generator().manual_seed(tau)
    spectrum = torch.tensor([4.0, 2.5, 1.0, 0.5], dtype=torch.float64)
    A, vectors = deflation.draw_matrix(generator, spectrum)
    starts = [deflation.draw_start(generator, vectors[:, i], 0.3) for i in range(2)]
    found = deflation.run_deflation(A, vectors, spectrum, starts, [tau, tau])
    B, v = A.numpy().copy(), vectors.numpy()
    for eta in range(2):
        p = starts[eta].numpy()
        for _ in range(tau):
            p = B @ p / np.linalg.norm(B @ p)
        value = np.linalg.norm(B @ p)
        B = B - value * np.outer(p, p)
        apart = min(np.linalg.norm(v[:, eta] - p), np.linalg.norm(v[:, eta] + p))
        assert found.a[eta] == pytest.approx(apart, abs=1e-10)
        assert found.b[eta] == pytest.approx(abs(float(spectrum[eta]) - value), abs=1e-10)


def test_verdicts_on_the_slides_of_qliu2025(check_tiny: Callable[[Claim], Evidence]) -> None:
    expected = {
        "definition-masks": ["holds"] * 3,
        "lemma-8": ["holds"] * 2,
        "lipschitz": ["holds"],
        "theorem-7": ["fails"] * 2,
    }
    for name, verdicts in expected.items():
        found = check_tiny(load_claims()[f"qliu2025.{name}"])
        assert [part.verdict for part in found.parts] == verdicts, name


def test_slides_on_pca_are_charged_with_what_they_print(
    check_tiny: Callable[[Claim], Evidence],
) -> None:
    """The single bound has one outcome in both documents; only one of them prints a proof."""
    whole, short = (
        check_tiny(load_claims()[id]) for id in ("qliu2025.theorem-7", "yang2025.he.pca")
    )
    (part,) = short.parts
    assert (short.verdict, whole.verdict) == ("fails", "fails")
    for each in (part, *whole.parts):
        assert each.corrected is None
        assert each.weaker is not None
        assert each.weaker.passed
    assert part.printed == whole.parts[0].printed
    assert {erratum.where.partition(",")[0] for erratum in short.errata} == {"Theorem 2.1"}


def test_the_printed_bounds_of_theorem_7_are_compared_with_the_distance_of_vectors(
    check_tiny: Callable[[Claim], Evidence],
) -> None:
    """By hand, with C = 1: eigenvalues 3, 1 and 1, Δ = 2, ε₀ = 10⁻¹⁰, ε = ε₀², δ = 1/√2."""
    values, root = (3.0, 1.0, 1.0), 1e-5
    iterations = 9 * 1e-10 * np.log(np.sqrt(2) * 1e10)
    single = iterations + 3 * root / 2 * (5 / 2) * (5 / 2)
    joint = 2 * iterations + root * (3 / 2) * (5 / 2)
    for name, bound, part in zip(
        ("single", "joint"),
        (single, joint),
        check_tiny(load_claims()["qliu2025.theorem-7"]).parts,
        strict=True,
    ):
        assert theorem_7.compute_printed_bound(name, values, 1e-10) == pytest.approx(bound)
        assert f": 0.707 > {bound:.2g} " in part.printed.counterexample


def test_the_recursion_of_theorem_7_starts_at_three_times_its_error(
    check_tiny: Callable[[Claim], Evidence],
) -> None:
    """diag(13, 8) at (1, √3)/2: a₁ = 1, λ̂₁ = 19/2, so that A₁ + b₁ = 26 + 7/2."""
    p = np.array([1, np.sqrt(3)]) / 2
    a, b = np.linalg.norm(p - [1, 0]), 13 - np.linalg.norm([13, 8] * p)
    assert (a, b) == pytest.approx((1, 3.5))
    errata = check_tiny(load_claims()["qliu2025.theorem-7"]).errata
    (start,) = (each for each in errata if each.where.endswith("start of the recursion"))
    assert start.printed.counterexample.endswith(": 2 · 13 · 1 + 3.5 = 29.5 > 2 · 13 · 1 = 26")
    assert start.corrected is not None
    assert start.corrected.passed
    assert 26 < 2 * 13 * a + b <= 3 * 13 * a


def test_few_heads_are_too_few_as_the_matrix_tends_to_zero() -> None:
    heads = theorem_7_errata.name_heads("Theorem 7")
    assert heads.printed.counterexample.startswith(
        "As $λ₁ → 0$ the bound allows less than one head; without attention nothing can be "
        "computed across tokens."
    )


def test_errors_of_power_iterations_do_not_add_up() -> None:
    """diag(1, 1/100) from (10⁻⁶, 1): an error of ε‖Ap‖ in step 1 is 48ε after step 3."""
    A, epsilon = np.array([1.0, 0.01]), 1e-3
    p = q = np.array([1e-6, 1.0]) / np.hypot(1e-6, 1)
    for step in range(3):
        size = np.linalg.norm(A * q)
        p, q = A * p / np.linalg.norm(A * p), A * q / size
        if step == 0:
            q = q + epsilon * size * np.array([1.0, 0.0])
    assert np.linalg.norm(p - q) == pytest.approx(0.0476, abs=1e-4)
    assert np.abs(p - q).max() > 11 * 3 * epsilon


def test_layers_of_the_proof_by_hand() -> None:
    """X = 2: with V = I_D the stream (2, 0, 1, 1) becomes (6, 0, 3, 3); rpe,3 turns 4 into −4."""
    cov, rpe = theorem_7_errata._run_layers(torch.full((1, 1), 2.0), torch.ones(1), "")
    assert cov["printed"].flatten().tolist() == [6, 0, 3, 3]
    assert cov["mended"].flatten().tolist() == cov["wanted"].flatten().tolist() == [2, 4, 1, 1]
    assert (float(rpe["printed"]), float(rpe["mended"])) == (-4, 0)


def test_no_continuous_map_finds_a_second_vector_without_its_gap() -> None:
    """diag(3, 1 + t, 1) and diag(3, 1, 1 + t) meet as t → 0, their second vectors do not."""
    for t in (1e-1, 1e-4):
        ends = [np.linalg.eigh(np.diag(a))[1][:, 1] for a in ([3, 1 + t, 1], [3, 1, 1 + t])]
        assert np.linalg.norm(np.abs(ends[0]) - np.abs(ends[1])) == pytest.approx(2**0.5)


def test_deflated_vectors_stay_within_the_corrected_bound() -> None:
    """Algorithm 1 by a loop, few iterations: ‖p₂ − v₂‖ ≤ 8oλ₁/Δ, o the iterations' own error."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        values = np.sort(rng.uniform(0.1, 3, size=3))[::-1]
        B, own, off = np.diag(values), 0.0, 0.0
        for eta in range(2):
            p, leading = rng.normal(size=3), np.linalg.eigh(B)[1][:, -1]
            for _ in range(rng.integers(1, 20)):
                p = B @ p / np.linalg.norm(B @ p)
            own = max(own, min(np.linalg.norm(leading - p), np.linalg.norm(leading + p)))
            off = min(np.linalg.norm(np.eye(3)[eta] - p), np.linalg.norm(np.eye(3)[eta] + p))
            B = B - np.linalg.norm(B @ p) * np.outer(p, p)
        gap = min(values[0] - values[1], values[1] - values[2])
        assert off <= 8 * own * values[0] / gap


def test_deflation_loses_the_sign_that_the_start_fixes() -> None:
    """λ = (4, 2), p₂ᵀv₂ = 0.01: the deflated matrix turns p₂, so the corrections are up to sign."""
    A, found = np.diag([4.0, 2.0]), []
    for start in ([1.0, 1.0], [100.0, 1.0]):
        p = np.array(start)
        for _ in range(6):
            p = A @ p / np.linalg.norm(A @ p)
        found.append(p)
        A = A - np.linalg.norm(A @ p) * np.outer(p, p)
    np.testing.assert_allclose(found[1], [0.031, -0.9995], atol=5e-4)
    o, gap = np.linalg.norm(found[0] - [1, 0]), 2.0
    assert np.linalg.norm(found[1] - [0, 1]) > 1.99 > 8 * o * 4 / gap
    assert np.linalg.norm(found[1] + [0, 1]) <= 8 * o * 4 / gap


def test_a_rate_of_networks_that_do_not_minimise_is_open_won_or_lost() -> None:
    """Both statements are about the minimiser on the pool, and a hundredth above it is noise."""
    exact = [{"n": n, "excess": 1 / n, "layers": 1, "class": "", "law": ""} for n in (4, 16, 64)]
    for judge, power in ((proposition_9.judge_pools, -0.5), (corollary_10.judge_risks, -0.2)):
        first = judge is proposition_9.judge_pools
        for slope, passed in ((power - 0.1, True), (0.0, False)):
            for above, outcome in ((0.0, passed), (0.009, passed), (0.02, None)):
                rows = [{"pool": 0, "seed": 0, "risk": 0.0, "layers": 1}] if first else []
                rows += [
                    {"pool": n, "seed": 0, "risk": 0.8 * (n / 20) ** slope, "layers": 1}
                    for n in (20, 60, 200, 700)
                ]
                rows = [
                    {**row, "risk on the pool": 0.01 + above, "least risk on the pool": 0.01}
                    for row in rows
                ]
                found = judge([rows, exact] if first else [rows])
                check = found.beyond[0] if first else found.parts[0].corrected
                assert check is not None
                assert check.passed is outcome, check.summary


def test_exact_classes_are_power_iterations_and_minimisers() -> None:
    """Two layers are ((1 + c)(I + bA))²p; the excess of the better of two weights on a pool."""
    generator = torch.Generator().manual_seed(0)
    H, v, gaps = exact_classes.draw_instances(generator, 6)
    out = run_layers([exact_classes.build_layer(0.7, -0.3)] * 2, H, causal=False)[:, 2:, 0]
    X, p = H[:, :2].numpy(), H[:, 2:, 0].numpy()
    step = 0.7 * (np.eye(2) + 0.7 * X @ X.transpose(0, 2, 1) / 6)
    np.testing.assert_allclose(out, (step @ step @ p[..., None])[..., 0], atol=1e-12)
    assert float((v * H[:, 2:, 0]).sum(-1).min()) > 0
    assert float(gaps.min()) >= 0.5
    # The second weight, risk 0.3 for 0.1, wins on pools that have the first instance alone.
    losses = torch.tensor([[0.2, 0.0], [0.0, 0.6]], dtype=torch.float64)
    law = torch.tensor([0.5, 0.5], dtype=torch.float64)
    assert exact_classes.find_tie(losses, torch.tensor([True, False])) == pytest.approx(0.75)
    found = exact_classes.measure_excess(generator, losses, law, 1, 200)
    assert found == pytest.approx(0.2)
    assert exact_classes.measure_excess(generator, losses, law, 1000, 200) == 0


def test_the_display_of_corollary_10_has_a_tenth_as_its_exponent() -> None:
    """By SciPy over ε and ε₀ at once: the exponent nears −1/10, and −1/5 for another display."""
    for kind, power in (({}, -0.1), ({"tau": False, "root": False}, -0.2)):
        least = [corollary_10.minimise_display(n, **kind) for n in (1e50, 1e60)]
        assert np.log10(least[1] / least[0]) / 10 == pytest.approx(power, abs=0.005)

    def display(point: np.ndarray) -> float:
        epsilon, start = 10.0**point
        count = np.log(10 / start)
        return count / start * epsilon + start**0.5 + (count / (1e12 * start)) ** 0.5 / epsilon

    found = minimize(display, [-4.0, -2.0], method="Nelder-Mead").fun
    assert found == pytest.approx(corollary_10.minimise_display(1e12), rel=1e-4)


def test_hard_spectra_have_the_gaps_that_theorem_7_asks_for() -> None:
    found = deflation_runs.list_hard_spectra()
    assert {len(spectrum) for spectrum, _ in found} == {1, 2, 3, 5}
    for spectrum, k in found:
        assert min(-np.diff([*spectrum.tolist(), 0.0])[:k]) > 0
    for build in hard_instances.HARD_ANGLES.values():
        assert all(0 < float(build(d)) < 1 / (2 * d) for d in (1, 2, 10**6))


def test_the_smallest_examples_against_theorem_7_by_a_loop() -> None:
    """diag(49, 36) from (0.1, √0.99) after 5 iterations; diag(4, 1) deflated after 2 and 2."""
    p = np.linalg.matrix_power(np.diag([49.0, 36.0]), 5) @ [0.1, np.sqrt(0.99)]
    assert p[0] / np.linalg.norm(p) == pytest.approx(0.425, abs=1e-3)
    A, errors = np.diag([4.0, 1.0]), []
    for eta, start in enumerate(([1.0, 1.0], [0.0, 1.0])):
        p = np.linalg.matrix_power(A, 2) @ start
        p = p / np.linalg.norm(p)
        value = np.linalg.norm(A @ p)
        errors.append((np.linalg.norm(p - np.eye(2)[eta]), abs([4, 1][eta] - value)))
        A = A - value * np.outer(p, p)
    (a1, b1), (a2, _) = errors
    assert (a2, (b1 + 8 * a1) / 3) == pytest.approx((0.237693, 0.168857), abs=1e-6)
