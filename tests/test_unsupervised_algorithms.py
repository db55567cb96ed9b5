"""Algorithms for components, clusters and bandits agree with NumPy and SciPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import subspace_angles
from scipy.optimize import brentq
from scipy.special import rel_entr
from sklearn.cluster import KMeans

from innerloop.algorithms.block_krylov import BlockKrylov
from innerloop.algorithms.em import EM
from innerloop.algorithms.k_means_plus_plus import KMeansPlusPlus
from innerloop.algorithms.oja import Oja
from innerloop.algorithms.soft_k_means import SoftKMeans
from innerloop.algorithms.subspace_iteration import SubspaceIteration
from innerloop.errors import InputError
from innerloop.policies.arms import Tally
from innerloop.policies.kl_ucb import KLUCBPolicy
from innerloop.problems.gaussian_mixture import ClusteringProblem, GaussianMixture
from innerloop.problems.principal_components import PCAProblem, PrincipalComponents

Array = np.ndarray
CASES = [{"d": 4, "n": 9}, {"d": 3, "n": 2, "components": 1}, {"d": 3, "n": 5, "components": 3}]


def draw_data(**setting: int) -> PCAProblem:
    return PrincipalComponents(**setting).sample(3, generator=torch.Generator().manual_seed(0))


def draw_clouds() -> ClusteringProblem:
    distribution = GaussianMixture(d=2, n=12, clusters=3)
    return distribution.sample(3, generator=torch.Generator().manual_seed(0))


def gram_schmidt(vectors: Array) -> Array:
    found: list[Array] = []
    for vector in vectors:
        left = vector - sum(((other @ vector) * other for other in found), np.zeros(len(vector)))
        found.append(left / np.linalg.norm(left))
    return np.array(found)


@pytest.mark.parametrize("setting", CASES[:2])
def test_oja_and_subspace_iteration_agree_with_loops(setting: dict[str, int]) -> None:
    problem = draw_data(**setting)
    size = torch.tensor(0.3, dtype=torch.float64)
    *_, moved = Oja(size).states(problem, 2)
    *_, one_by_one = Oja(size, False).states(problem, 2 * problem.n)
    *_, powered = SubspaceIteration().states(problem, 3)
    torch.testing.assert_close(moved, one_by_one)
    for k in range(3):
        x, v = problem.x[k].numpy(), gram_schmidt(problem.start[k].numpy())
        w = v
        for point in [*x, *x]:
            v = gram_schmidt(v + 0.3 * np.outer(v @ point, point))
        np.testing.assert_allclose(moved[k].numpy(), v, atol=1e-10)
        for _ in range(3):
            w = gram_schmidt(w @ (x.T @ x) / len(x))
        np.testing.assert_allclose(powered[k].numpy(), w, atol=1e-8)


@pytest.mark.parametrize("setting", CASES)
def test_block_krylov_is_rayleigh_ritz_in_its_space(setting: dict[str, int]) -> None:
    problem, algorithm = draw_data(**setting), BlockKrylov()
    size = problem.components
    for k, state in enumerate(algorithm.states(problem, 3)):
        found = algorithm.predict(problem, state)
        for index in range(3):
            covariance, start = problem.covariance[index].numpy(), problem.start[index].numpy()
            powers = [start @ np.linalg.matrix_power(covariance, j) for j in range(k + 1)]
            rank = min(problem.d, size * (k + 1), problem.n + size)
            space = np.linalg.svd(np.vstack(powers))[2][:rank]
            values, vectors = np.linalg.eigh(space @ covariance @ space.T)
            expected = vectors[:, ::-1][:, :size].T @ space
            overlaps = np.abs((found[index].numpy() * expected).sum(axis=1))
            large = values[::-1][:size] > 1e-9  # directions without variance are all alike
            np.testing.assert_allclose(overlaps[large], 1.0, atol=1e-7)


def test_krylov_finds_more_than_subspace_iteration() -> None:
    problem = PrincipalComponents(d=8, n=30, gap=0.8).sample(
        5, generator=torch.Generator().manual_seed(1)
    )
    *_, krylov = (BlockKrylov().predict(problem, s) for s in BlockKrylov().states(problem, 2))
    *_, power = SubspaceIteration().states(problem, 2)
    for k in range(5):
        best = np.linalg.eigh(problem.covariance[k].numpy())[1][:, -2:]
        near, far = (subspace_angles(v[k].numpy().T, best).max() for v in (krylov, power))
        assert near < far


def test_soft_k_means_is_em_with_equal_weights() -> None:
    problem = draw_clouds()
    weights = torch.full((3,), 1 / 3, dtype=torch.float64).log()
    noise = torch.tensor(1.4, dtype=torch.float64)
    soft, em = SoftKMeans(1 / noise**2), EM(noise, weights)
    for one, other in zip(soft.states(problem, 4), em.states(problem, 4), strict=True):
        torch.testing.assert_close(one, other)
        torch.testing.assert_close(soft.predict(problem, one), em.predict(problem, other))


def test_soft_k_means_agrees_with_a_loop() -> None:
    problem = draw_clouds()
    *_, last = SoftKMeans(torch.tensor(0.8, dtype=torch.float64)).states(problem, 3)
    for k in range(3):
        x, means = problem.x[k].numpy(), problem.start[k].numpy()
        for _ in range(3):
            closeness = np.exp([[-0.4 * np.sum((p - m) ** 2) for m in means] for p in x])
            shares = closeness / closeness.sum(axis=1, keepdims=True)
            means = np.array([np.average(x, axis=0, weights=column) for column in shares.T])
        np.testing.assert_allclose(last[k].numpy(), means, atol=1e-10)


def test_the_farthest_points_start_k_means_and_scikit_learn_ends_alike() -> None:
    problem = draw_clouds()
    algorithm = KMeansPlusPlus()
    *_, last = algorithm.states(problem, 30)
    for k in range(3):
        x, centres = problem.x[k].numpy(), [problem.start[k, 0].numpy()]
        for _ in range(2):
            nearest = [min(np.sum((p - c) ** 2) for c in centres) for p in x]
            centres.append(x[int(np.argmax(nearest))])
        np.testing.assert_allclose(algorithm.init(problem)[k].numpy(), centres)
        options: dict[str, Any] = {"init": np.array(centres), "n_init": 1, "tol": 0}
        model = KMeans(3, **options).fit(x)
        np.testing.assert_allclose(last[k].numpy(), model.cluster_centers_, atol=1e-10)


def test_draws_follow_the_squared_distances() -> None:
    """Over a fine grid of draws, each point is chosen as often as its share of Σ D²."""
    problem = draw_clouds()
    two = ClusteringProblem(problem.x, problem.start[..., :2, :])
    grid = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000
    chosen = torch.stack([KMeansPlusPlus(u.reshape(1)).init(two)[:, 1] for u in grid])
    for k in range(3):
        x = problem.x[k].numpy()
        squares = np.sum((x - problem.start[k, 0].numpy()) ** 2, axis=1)
        counts = [int((chosen[:, k] == torch.from_numpy(p)).all(dim=-1).sum()) for p in x]
        np.testing.assert_allclose(np.array(counts) / 2000, squares / squares.sum(), atol=1e-3)
    with pytest.raises(InputError, match="expected 2 draws"):
        KMeansPlusPlus(grid[:1]).init(problem)


def test_the_kl_ucb_index_is_the_root_of_its_equation() -> None:
    counts = torch.tensor([[3.0, 7.0, 1.0, 2.0, 0.0]], dtype=torch.float64)
    sums = torch.tensor([[1.0, 6.0, 0.0, 2.0, 0.0]], dtype=torch.float64)
    for width, step in ((0.0, 13), (3.0, 13), (3.0, 2), (0.0, 1)):
        found = KLUCBPolicy(width=width).compute_index(Tally(counts, sums), step)[0].numpy()
        bound = math.log(step) + width * max(0.0, math.log(max(math.log(step), 1e-9)))
        for arm in range(4):
            n, p = float(counts[0, arm]), float(sums[0, arm] / counts[0, arm])

            def over(q: float, n: float = n, p: float = p, bound: float = bound) -> float:
                return n * float(rel_entr(p, q) + rel_entr(1 - p, 1 - q)) - bound

            top = 1 - 1e-15
            root = p if p == 1 or bound == 0 else brentq(over, p, top) if over(top) > 0 else 1.0
            assert found[arm] == pytest.approx(root, abs=1e-8)
        assert found[4] == math.inf
