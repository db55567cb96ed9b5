"""Measures, fits and laws of identification against NumPy, SciPy, scikit-learn and autograd."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
import torch
from scipy.optimize import curve_fit
from sklearn.linear_model import Lasso as SklearnLasso
from sklearn.neighbors import KNeighborsRegressor
from torch import Tensor

from innerloop.algorithms.averaging import Averaging
from innerloop.algorithms.base import Algorithm
from innerloop.algorithms.gd_plus_plus import GDPlusPlus
from innerloop.algorithms.lasso import Lasso
from innerloop.algorithms.lista_vm import ListaVM
from innerloop.algorithms.nearest_neighbours import NearestNeighbours
from innerloop.errors import InputError
from innerloop.identification import measures
from innerloop.identification.candidates import find_generalisations, list_candidates
from innerloop.identification.fitting import FitTarget, group_guesses
from innerloop.identification.hyper import (
    differentiate_predictions,
    find_owning_steps,
    list_free_parameters,
    pack_parameters,
    predict_steps,
    repeat_per_step,
    unpack_parameters,
)
from innerloop.identification.instances import draw_prompts
from innerloop.identification.marquardt import minimise_squares
from innerloop.identification.relation import fit_step_growth, order_of_convergence
from innerloop.identification.shared import fit_shared
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.problems.mixture_of_regressions import MixtureOfRegressions
from innerloop.problems.network_regression import NetworkRegression
from innerloop.registry import load_members

PROBLEMS = LinearRegression(d=3, n=6, noise=0.3)
DISTRIBUTIONS = (PROBLEMS, MixtureOfRegressions(d=3, n=6), NetworkRegression(d=2, n=5))


def make_problem(prompts: int = 7) -> RegressionProblem:
    return draw_prompts(PROBLEMS, prompts, torch.Generator().manual_seed(0))


def draw_normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_measures_are_their_formulas() -> None:
    m, c, t = draw_normal(3, 5, 4, seed=1), draw_normal(2, 5, 4, seed=2), draw_normal(5, 4, seed=3)
    queries = draw_normal(5, 4, 2)
    tables = {
        "distance": measures.squared_distance(m, c),
        "errors": measures.error_similarity(m, c, t),
        "weights": measures.weight_similarity(m, c, queries),
        "cosine": measures.sensitivity_cosine(m, c),
        "apart": measures.sensitivity_distance(m, c),
        "score": measures.score(m, c, t),
    }
    for i in range(3):
        for k in range(2):
            a, b, truth = m[i].numpy(), c[k].numpy(), t.numpy()
            rows = range(5)
            fit = [
                [np.linalg.lstsq(queries[p].numpy(), x[p], rcond=None)[0] for p in rows]
                for x in (a, b)
            ]
            distance = np.mean([np.sum((a[p] - b[p]) ** 2) for p in rows])
            done, left = (
                np.mean([np.sum((a[p] - x[p]) ** 2) for p in rows]) for x in (0 * a, truth)
            )
            lengths = np.mean([np.linalg.norm(a[p]) for p in rows])
            expected = {
                "distance": distance,
                "errors": np.mean([cosine(a[p] - truth[p], b[p] - truth[p]) for p in rows]),
                "weights": np.mean([cosine(fit[0][p], fit[1][p]) for p in rows]),
                "cosine": np.mean([cosine(a[p], b[p]) for p in rows]),
                "apart": np.mean([np.linalg.norm(a[p] - b[p]) for p in rows]) / lengths,
                "score": 1 - distance / min(done, left),
            }
            for name, value in expected.items():
                assert float(tables[name][i, k]) == pytest.approx(value, rel=1e-12), name


def test_scale_free_measures_do_not_see_the_scale() -> None:
    m, c, t = draw_normal(3, 5, 4, seed=1), draw_normal(2, 5, 4, seed=2), draw_normal(5, 4, seed=3)
    for measure in (measures.score, measures.error_similarity):
        torch.testing.assert_close(measure(m, c, t), measure(1e3 * m, 1e3 * c, 1e3 * t))
    diverged = c.clone()
    diverged[1, 0, 0] = torch.nan
    assert float(measures.squared_distance(m, diverged)[0, 1]) == torch.inf


def test_sensitivity_is_the_derivative_by_the_query() -> None:
    given, h = make_problem(), 1e-4
    algorithm = GDPlusPlus(0.3 * torch.eye(3).double()[None], 0.2 * torch.eye(3).double()[None])
    moved = h * torch.eye(3, dtype=torch.float64)
    around = given.with_queries(torch.cat([given.x_query + moved, given.x_query - moved], dim=1))
    ahead, behind = predict_steps(algorithm, around, 2).reshape(3, 7, 6).split(3, dim=-1)
    query = given.x_query.clone().requires_grad_()
    predict_steps(algorithm, replace(given, x_query=query), 2)[-1].sum().backward()
    assert query.grad is not None
    torch.testing.assert_close(measures.sensitivity(ahead, behind, h)[-1], query.grad[:, 0])


def test_prefixes_have_the_examples_before_a_position() -> None:
    given = make_problem()
    parts = given.prefixes()
    assert [part.n for part in parts] == [1, 2, 3, 4, 5, 6]
    torch.testing.assert_close(parts[2].x_query, given.x[:, 3:4])
    torch.testing.assert_close(parts[5].x_query, given.x_query)
    assert torch.equal(parts[2].y, given.y[:, :3])


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_hyperparameters_may_differ_from_instance_to_instance(distribution) -> None:
    """One batch, each instance with its own, is a loop over instances, each with its own."""
    given = draw_prompts(distribution, 3, torch.Generator().manual_seed(0))
    tried = set()
    for candidate in list_candidates(given, draw_normal(3, 1)):
        for guess in candidate.guesses[:: max(len(candidate.guesses) // 3, 1)]:
            parts, view = list_free_parameters(guess), candidate.view(given)
            own = [
                unpack_parameters(guess, pack_parameters(guess) * (1 + 0.1 * k)) for k in range(3)
            ]
            together = replace(
                guess,  # pyright: ignore[reportArgumentType]
                **{
                    p.name: torch.stack([getattr(a, p.name) for a in own], dim=p.batch_dim)
                    for p in parts
                },
            )
            found = predict_steps(together, view, 2)
            for k, algorithm in enumerate(own):
                alone = view[k : k + 1]
                torch.testing.assert_close(found[:, k : k + 1], predict_steps(algorithm, alone, 2))
            tried.add(candidate.name)
    assert tried


def test_every_algorithm_with_guesses_is_a_candidate_somewhere() -> None:
    found = set()
    for distribution in DISTRIBUTIONS:
        given = draw_prompts(distribution, 2, torch.Generator().manual_seed(0))
        found |= {candidate.name for candidate in list_candidates(given, draw_normal(2, 1))}
    assert {"lasso", "ridge", "averaging", "nearest-neighbours", "least-squares"} <= found
    assert {"newton", "ista", "fista", "lista-vm", "gd-plus-plus", "gradient-em"} <= found
    assert "network-gradient-descent" in found


def test_special_cases_are_named_and_true() -> None:
    """Each larger family, fitted to its special case, reproduces it on other prompts."""
    assert find_generalisations(load_members("algorithms", Algorithm)["averaging"]) == {
        "gradient-descent",
        "preconditioned-gradient-descent",
        "gd-plus-plus",
        "lista-vm",
        "weighted-gradient-descent",
        "gradient-descent-with-weight-decay",
        "heavy-ball",
        "nesterov",
    }
    fitting, scoring = (
        make_problem(80),
        draw_prompts(PROBLEMS, 40, torch.Generator().manual_seed(9)),
    )
    known, checked = load_members("algorithms", Algorithm), 0
    for name, kind in known.items():
        for above in kind.special_case_of:
            small = kind.guesses(fitting)[0]
            steps = 2 if kind.has_steps else 0
            target = predict_steps(small, fitting, steps)[-1:]
            wanted = FitTarget(fitting, target, target.square().mean(dim=(1, 2)))
            groups = group_guesses(known[above].guesses(fitting))
            _, (step,), large = fit_shared(groups, wanted, 4)
            expected = predict_steps(small, scoring, steps)[-1]
            off = (
                predict_steps(large, scoring, step)[-1] - expected
            ).square().mean() / expected.square().mean()
            assert float(off) < 1e-4, (name, above)
            checked += 1
    assert checked >= 4


def test_derivatives_by_hyperparameters_are_those_of_autograd() -> None:
    given = make_problem()
    base = torch.eye(3, dtype=torch.float64)[None]
    lista = ListaVM(
        0.5 * base + 0.1 * draw_normal(1, 3, 3), draw_normal(1).abs() / 10, None, draw_normal(2)
    )
    for algorithm in (repeat_per_step(lista, 2), GDPlusPlus(0.3 * base, 0.2 * base)):
        predictions, slopes = differentiate_predictions(algorithm, given, [1, 2])
        torch.testing.assert_close(predictions, predict_steps(algorithm, given, 2)[1:])
        expected = torch.autograd.functional.jacobian(
            lambda theta, a=algorithm: predict_steps(unpack_parameters(a, theta), given, 2)[1:],
            pack_parameters(algorithm),
        )
        torch.testing.assert_close(slopes, expected)
    assert (
        find_owning_steps(repeat_per_step(lista, 2)).tolist()
        == [0.0] * 9 + [1.0] * 9 + [0.0, 1.0] + [-1.0] * 2
    )


def test_least_squares_finds_what_scipy_finds() -> None:
    x, y = draw_normal(30), draw_normal(30).cos()

    def residual(theta: Tensor, slopes: bool) -> tuple[Tensor, Tensor | None] | None:
        a, b = theta
        wave = (b * x).sin()
        jacobian = torch.stack([wave, a * x * (b * x).cos()], dim=-1)
        return a * wave - y, jacobian if slopes else None

    start = torch.tensor([0.5, 1.3], dtype=torch.float64)
    found = minimise_squares(residual, start, 200)

    def plain(theta: np.ndarray) -> np.ndarray:
        return theta[0] * np.sin(theta[1] * x.numpy()) - y.numpy()

    best = scipy.optimize.least_squares(plain, start.numpy())
    reached = float(np.square(plain(found.numpy())).sum())
    assert reached == pytest.approx(2 * best.cost, rel=0.03)
    assert minimise_squares(lambda theta, slopes: None, start) is start


@pytest.mark.parametrize(("d", "n"), [(3, 7), (5, 3), (1, 4)])
def test_exact_solvers_against_scikit_learn(d: int, n: int) -> None:
    given = LinearRegression(d=d, n=n, noise=0.3, queries=2).sample(
        2, 2, generator=torch.Generator().manual_seed(0)
    )
    lasso, nearest, average = Lasso(torch.tensor(0.4).double()), NearestNeighbours(3), Averaging()
    weights, labels, mean = lasso.init(given), nearest.init(given), average.init(given)
    for index in np.ndindex(2, 2):
        x, y = given.x[index].numpy(), given.y[index].numpy()
        plain = SklearnLasso(alpha=0.4 / n, fit_intercept=False, tol=1e-14, max_iter=100_000)
        np.testing.assert_allclose(weights[index].numpy(), plain.fit(x, y).coef_, atol=1e-8)
        neighbours = KNeighborsRegressor(3).fit(x, y).predict(given.x_query[index].numpy())
        np.testing.assert_allclose(labels[index].numpy(), neighbours, rtol=1e-12)
        np.testing.assert_allclose(mean[index].numpy(), x.T @ y / n, rtol=1e-12)
    for refused in (lambda: Lasso(torch.tensor(0.0)), lambda: NearestNeighbours(0)):
        with pytest.raises(InputError, match="must be"):
            refused()


@pytest.mark.parametrize(
    ("steps", "better"),
    [
        ([2, 9, 36, 103, 208], "exponential"),
        ([0, 0, 5, 25, 72], "exponential"),
        ([0, 0, 5, 9, 12], "linear"),
        ([9, 5, 3, 2, 1, 1], "exponential"),
        ([2, 0, 3, 4, 6, 6], "linear"),
    ],
)
def test_growth_is_fitted_to_the_steps_with_their_zeros(steps: list[int], better: str) -> None:
    """Both laws by least squares on the steps: SciPy's fit explains as much, and no more."""
    x, y = np.arange(1.0, len(steps) + 1), np.array(steps, dtype=float)
    total = ((y - y.mean()) ** 2).sum()
    (a, b), _ = curve_fit(lambda k, a, b: a * np.exp(b * k), x, y, p0=(y.mean(), 0.1))
    line = np.polynomial.Polynomial.fit(x, y, 1)
    found = fit_step_growth([int(k) for k in x], steps)
    assert found is not None
    assert found["better"] == better
    assert found["exponential"]["slope"] == pytest.approx(b, rel=1e-5)
    assert np.exp(found["exponential"]["intercept"]) == pytest.approx(a, rel=1e-4)
    left = {"exponential": y - a * np.exp(b * x), "linear": y - line(x)}
    for law, rest in left.items():
        assert found[law]["r2"] == pytest.approx(1 - (rest**2).sum() / total, abs=1e-9)


def test_growth_of_no_steps_and_of_one_jump() -> None:
    assert fit_step_growth([1, 2, 3], [0, 0, 0]) is None
    jump = fit_step_growth([1, 2, 3, 4], [0, 0, 0, 5])
    assert jump is not None
    assert jump["exponential"]["r2"] == pytest.approx(1.0)
    same = fit_step_growth([1, 2, 3], [4, 4, 4])
    assert same is not None
    assert same["better"] == "linear"
    assert same["exponential"]["slope"] == pytest.approx(0.0, abs=1e-6)


def test_steps_against_layers_and_the_order_of_convergence() -> None:
    layers = [1, 2, 3, 4, 5]
    linear = fit_step_growth(layers, [3, 6, 9, 12, 15])
    assert linear is not None
    assert linear["better"] == "linear"
    assert linear["linear"]["slope"] == pytest.approx(3.0)
    grown = fit_step_growth(layers, [2, 4, 8, 16, 32])
    assert grown is not None
    assert grown["better"] == "exponential"
    assert grown["exponential"]["slope"] == pytest.approx(np.log(2))
    assert grown["exponential"]["r2"] == pytest.approx(1.0)
    assert fit_step_growth([1, 2], [1, 2]) is None
    halved = order_of_convergence([0.5**k for k in range(1, 8)])
    squared = order_of_convergence([0.7 ** (2**k) for k in range(6)])
    assert halved is not None
    assert squared is not None
    assert halved["order"] == pytest.approx(1.0)
    assert squared["order"] == pytest.approx(2.0)
    assert order_of_convergence([1.0, 0.5]) is None
