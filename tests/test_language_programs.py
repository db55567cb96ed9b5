"""The programs of the package: certified, exact, and in agreement with independent oracles."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import Lasso

import innerloop
from innerloop.algorithms.approximate_message_passing import ApproximateMessagePassing
from innerloop.algorithms.chebyshev import Chebyshev
from innerloop.algorithms.gradient_descent_with_weight_decay import GradientDescentWithWeightDecay
from innerloop.algorithms.heavy_ball import HeavyBall
from innerloop.algorithms.huber_descent import HuberDescent
from innerloop.algorithms.kernel_smoothing import KernelSmoothing
from innerloop.algorithms.nesterov import Nesterov
from innerloop.algorithms.soft_k_means import SoftKMeans
from innerloop.algorithms.subspace_iteration import SubspaceIteration
from innerloop.constructions.base import iterate_streams, read_prediction
from innerloop.language.construction import ProgramConstruction
from innerloop.language.emission import _find_alike
from innerloop.language.plan import Unit
from innerloop.language.types import to_fractions
from innerloop.problems.gaussian_mixture import GaussianMixture
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.problems.principal_components import PrincipalComponents
from innerloop.programs.heavy_ball import heavy_ball
from innerloop.registry import find_member, load_members

pytestmark = pytest.mark.usefixtures("law_alone")

STEPS = 2
FEWER = {
    "approximate-message-passing": {"knots": 30, "d": 2, "steps": 1},
    "logistic-descent": {"knots": 41},
    "soft-k-means": {"knots": 40},
    "subspace-iteration": {"knots": 60, "components": 2, "steps": 1},
    "oja": {"components": 2},
}
"""Settings with which programs are quick."""
COUNTS = {
    "accelerated-ridge": (2, 1, 3, 16),
    "approximate-message-passing": (4, 4, 2, 16),
    "chebyshev": (1, 1, 1, 14),
    "gradient-descent-with-weight-decay": (1, 1, 1, 9),
    "heavy-ball": (1, 1, 1, 12),
    "huber-descent": (1, 1, 4, 9),
    "ista": (1, 1, 1, 9),
    "kernel-descent": (1, 1, 1, 4),
    "kernel-smoothing": (1, 1, 1, 6),
    "logistic-descent": (2, 2, 1, 10),
    "nesterov": (1, 1, 1, 12),
    "oja": (3, 3, 2, 18),
    "soft-k-means": (4, 4, 2, 24),
    "subspace-iteration": (9, 9, 2, 21),
}
"""Blocks of a step, those on the critical path, most heads, and width, at d = 3 and K = c = 2."""


def list_programs() -> dict[str, Any]:
    return load_members("programs", ProgramConstruction)


def test_every_program_is_counted() -> None:
    assert set(COUNTS) == set(list_programs())
    assert list_programs()["heavy-ball"] is heavy_ball


def make(name: str, **settings: Any) -> Any:
    kind: Any = find_member("programs", ProgramConstruction, name)
    sizes = {"d": 3, "n": 6, "steps": STEPS, "clusters": 2}
    known = {key: value for key, value in sizes.items() if key in kind.declared_types()}
    return kind.from_values({**known, **FEWER.get(name, {}), **settings})


@pytest.mark.parametrize("name", COUNTS)
def test_programs_hold_their_law_exactly_and_cost_what_they_did(name: str) -> None:
    made = make(name)
    certificate = innerloop.build(made, instances=2).certificate
    assert certificate.holds, certificate.explain()
    plan, counts = made.compiled.steps[-1], made.compiled.count()
    found = (counts["blocks"], plan.depth, counts["heads"], counts["width"])
    assert found == COUNTS[name]
    if name in ("kernel-smoothing", "soft-k-means"):
        with pytest.raises(innerloop.InputError, match="softmax has no exact certificate"):
            innerloop.exact(made)
        return
    exact = innerloop.exact(made, points=2, d=2, n=3)
    assert exact.equal, exact.difference
    if exact.degree is None:
        assert "exact at the points tried" in exact.text
        assert "proof for these sizes" not in exact.text
    else:
        assert f"({exact.degree}/2^31)^2" in exact.text


def run_both(made: Any, algorithm: Any, problem: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Answers of the weights and of an algorithm after every step."""
    states = algorithm.states(problem, made.steps)
    expected = torch.stack([algorithm.predict(problem, state) for state in states])
    return predict_all(made, problem), expected


def predict_all(made: Any, problem: Any) -> torch.Tensor:
    """Answers of the weights after every step."""
    streams = iterate_streams(made, made.transformer, problem)
    return torch.stack([read_prediction(made, made.transformer, problem, s) for s in streams])


def to_tensor(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


@pytest.mark.parametrize(
    ("made", "algorithm"),
    [
        (make("heavy-ball", eta=0.2, beta=0.7), HeavyBall(to_tensor(0.2), to_tensor(0.7))),
        (make("nesterov", eta=0.2, beta=0.7), Nesterov(to_tensor(0.2), to_tensor(0.7))),
        (make("chebyshev", steps=4), Chebyshev(torch.tensor(0.25), torch.tensor(2.5))),
        (
            make("gradient-descent-with-weight-decay", eta=[0.1, 0.3]),
            GradientDescentWithWeightDecay(to_tensor(0.1, 0.3), torch.tensor(0.1)),
        ),
        (make("huber-descent"), HuberDescent(to_tensor(0.2), torch.tensor(1.0))),
        (make("kernel-smoothing"), KernelSmoothing(torch.tensor(1.0))),
    ],
    ids=lambda part: getattr(part, "name", ""),
)
def test_programs_run_the_algorithm_of_that_name(made: Any, algorithm: Any) -> None:
    problem = LinearRegression(d=3, n=6, queries=2, noise=1.0).sample(3)
    found, expected = run_both(made, algorithm, problem)
    first = 1 if not algorithm.has_steps else 0
    assert torch.allclose(found[first:], expected[first:], atol=1e-6 if first else 1e-12)
    assert found.std() > 0.1


def test_message_passing_is_the_algorithm_but_for_its_knots() -> None:
    made = make("approximate-message-passing", d=3, n=9, knots=1000, steps=3)
    problem = LinearRegression(d=3, n=9, noise=1.0).sample(3)
    found, expected = run_both(made, ApproximateMessagePassing(to_tensor(1.0)), problem)
    assert torch.allclose(found, expected, atol=1e-4)


def test_soft_k_means_is_the_algorithm_within_its_bound() -> None:
    made = make("soft-k-means", knots=400, n=8, stiffness=1.0, bound=30.0)
    problem = GaussianMixture(d=3, n=8, clusters=2, separation=1.0).sample(3)
    found, expected = run_both(made, SoftKMeans(torch.tensor(1.0)), problem)
    assert torch.allclose(found, expected, atol=60 * np.tanh(2 / (2 * 399**2) / 4) * 10)


def test_subspace_iteration_is_the_algorithm_and_ends_at_eigenvectors() -> None:
    made = make("subspace-iteration", knots=800, n=9, steps=3)
    problem = PrincipalComponents(d=3, n=9, components=2, gap=0.3).sample(2)
    found, expected = run_both(made, SubspaceIteration(), problem)
    assert torch.allclose(found[1:], expected[1:], atol=1e-5)
    *_, state = made.algorithm.states(problem, 60)
    leading = np.linalg.eigh(problem.covariance.numpy())[1][..., ::-1].swapaxes(-1, -2)
    products = (state.v.numpy() * leading[:, :2]).sum(-1)
    assert np.allclose(np.abs(products), 1.0, atol=1e-4)


def test_oja_is_the_formula_in_numpy() -> None:
    made = make("oja")
    problem = PrincipalComponents(d=3, n=6, components=2, gap=0.3).sample(1)[0]
    v, covariance = problem.start.numpy(), problem.covariance.numpy()
    for found in predict_all(made, problem)[1:]:
        image = v @ covariance
        v = v + 0.5 * (image - (v * image).sum(-1, keepdims=True) * v)
        assert np.allclose(found.numpy(), v, atol=1e-12)
    *_, state = made.algorithm.states(problem, 400)
    leading = np.linalg.eigh(covariance)[1][:, -1]
    assert np.allclose(np.abs(state.v.numpy() @ leading), 1.0, atol=1e-6)


def test_ista_ends_at_scikit_learns_lasso() -> None:
    problem = LinearRegression(d=3, n=12, noise=1.0).sample(1)[0]
    *_, state = make("ista", penalty=0.4).algorithm.states(problem, 400)
    lasso = Lasso(alpha=0.4, fit_intercept=False, tol=1e-12).fit(problem.x, problem.y)
    assert np.allclose(state.w.numpy(), lasso.coef_, atol=1e-8)
    assert 0 < np.count_nonzero(lasso.coef_) <= 3


def test_logistic_descent_is_the_formula_in_numpy() -> None:
    drawn = LinearRegression(d=3, n=6).sample(1)[0]
    problem = RegressionProblem(drawn.x, (drawn.y > 0).double(), drawn.x_query)
    made = make("logistic-descent", knots=4001)
    x, y, w = drawn.x.numpy(), problem.y.numpy(), np.zeros(3)
    for state in list(made.algorithm.states(problem, 5))[1:]:
        w = w - 0.5 / 6 * x.T @ (1 / (1 + np.exp(-x @ w)) - y)
        assert np.allclose(state.w.numpy(), w, atol=1e-4)


def test_kernel_descent_is_a_power_of_the_kernel_matrix() -> None:
    problem = LinearRegression(d=3, n=6, queries=2).sample(1)[0]
    answers = predict_all(make("kernel-descent"), problem)
    x, y = problem.x.numpy(), problem.y.numpy()
    kernel, cross = np.maximum(x @ x.T, 0), np.maximum(problem.x_query.numpy() @ x.T, 0)
    alpha = np.zeros(6)
    for found in answers:
        assert np.allclose(found.numpy(), cross @ alpha, atol=1e-12)
        alpha = alpha + 0.2 / 6 * (y - kernel @ alpha)


@pytest.mark.parametrize("attention", ["linear", "relu"])
def test_accelerated_ridge_is_its_recursion_on_every_prefix(attention: str) -> None:
    made = make("accelerated-ridge", attention=attention)
    problem = LinearRegression(d=3, n=6).sample(1)[0]
    found = predict_all(made, problem)[-1]
    x, y = problem.x.numpy(), problem.y.numpy()
    rows = np.concatenate([x, problem.x_query.numpy()])
    for m in range(7):
        gram, moment = x[:m].T @ x[:m] + np.eye(3), x[:m].T @ y[:m]
        ahead = behind = np.zeros(3)
        for _ in range(STEPS):
            moved = ahead - 2.0 / 3 / (2 * m + 1) * (gram @ ahead - moment)
            ahead, behind = moved + 0.5 * (moved - behind), moved
        assert np.isclose(float(found[m]), rows[m] @ behind, atol=1e-12)
    assert len(made.compiled.steps[0].blocks) == (2 if attention == "linear" else 1)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("heavy-ball", {"beta": 1e-9}),
        ("heavy-ball", {"beta": 1.0, "eta": 1e-6}),
        ("gradient-descent-with-weight-decay", {"decay": 1e6, "eta": 1e-6}),
        ("chebyshev", {"lower": 1e-3, "upper": 50.0}),
        ("nesterov", {"beta": 1e-9}),
        ("accelerated-ridge", {"beta": 1e-9}),
        ("accelerated-ridge", {"beta": 1e-6}),
    ],
)
def test_extreme_numbers_keep_the_law(name: str, settings: dict[str, float]) -> None:
    """Exact algebra is blind to conditioning: no saving may amplify what it adds up."""
    assert innerloop.build(make(name, **settings), instances=4).certificate.holds


def test_many_features_compile() -> None:
    compiled = make("heavy-ball", d=100, n=4).compiled
    assert compiled.count() == {
        **{"blocks": 1, "heads": 1, "hidden": 200, "scratch": 0},
        "width": 100 + 1 + 1 + 200 + 1,
    }


def test_an_interval_of_length_0_is_refused() -> None:
    with pytest.raises(
        innerloop.InputError, match=r"chebyshev.py, line .* division by a number that is 0"
    ):
        make("chebyshev", lower=1.0, upper=1.0).compiled  # noqa: B018


def test_numbers_are_what_their_digits_say_and_rationals_what_they_are() -> None:
    """A rational may equal a float without being what its digits say: no memory mixes them up."""
    tenth = Fraction(0.1)
    assert tenth == 0.1 != Fraction(1, 10)
    assert to_fractions([0.1, -0.0, 1e-3]) == [Fraction(1, 10), 0, Fraction(1, 1000)]
    assert to_fractions([tenth, 0, 1]) == [tenth, 0, 1]
    assert to_fractions((0.1, tenth)) == [Fraction(1, 10), tenth]


def test_units_that_are_alike_on_several_entries_are_stored_once() -> None:
    def make_unit(source: str, slope: int, bias: int, targets: int = 1) -> Unit:
        writes = {("w", k): Fraction(2) for k in range(targets)}
        return Unit({(source, 0): Fraction(slope)}, Fraction(bias), writes)

    same = [make_unit("a", 1, 3), make_unit("a", -1, 1)]
    other = [make_unit("b", 1, 0), make_unit("a", 1, 3, targets=2)]
    rest, (net,) = _find_alike([other[0], *same, other[1]])
    assert rest == other, "without a bias, or with two results, a unit is its own"
    assert (net.sources, net.targets) == ([("a", 0)], [("w", 0)])
    assert [list(part) for part in net.net] == [[1, -1], [3, 1], [2, 2]]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("soft-k-means", {"d": 3, "n": 20, "clusters": 3, "steps": 8, "knots": 100}),
        ("soft-k-means", {"d": 100, "n": 99, "clusters": 3, "steps": 1, "knots": 2}),
        ("accelerated-ridge", {"d": 100, "n": 20, "steps": 8}),
    ],
)
def test_programs_hold_at_size_and_by_default(name: str, settings: dict[str, Any]) -> None:
    """Gates that grow with d, and steps that diverge with d, are none that a user can use."""
    certificate = innerloop.build(make(name, **settings), instances=64 if settings["d"] < 9 else 2)
    assert certificate.certificate.holds, certificate.certificate.explain()


def test_numbers_of_programs_have_ranges() -> None:
    for name, kind in list_programs().items():
        ranges = kind.describe_parameters()
        for number in kind.definition.numbers:
            assert ranges[number]["least"] is not None, f"{name}: {number}"
    for name in ("heavy-ball", "nesterov", "oja", "huber-descent", "accelerated-ridge"):
        with pytest.raises(innerloop.InputError, match=r"eta must be at least 0, got -1\.0"):
            make(name, eta=-1.0)


def test_subspace_iteration_has_weights_that_a_machine_can_hold() -> None:
    made = make("subspace-iteration", knots=400, components=1, steps=1, n=20, d=4)
    assert made.transformer.operator_norm() < 1e6
    knots = [each.knots for each in made.compiled.steps[0].ranges if each.knots is not None]
    for each in knots:  # the inverse root is off by (3/32) ln² r of itself, r the ratio of knots
        ratio = (each.errors * each.places[1:].sqrt()).max()
        assert float(ratio) < 1.5 * 3 / 32 * np.log(1e6) ** 2 / 399**2


def test_logistic_descent_is_certified_on_labels_that_it_is_for() -> None:
    made = make("logistic-descent", d=20, n=20, steps=8, knots=801)
    problem = made.distributions()[0].sample(200, generator=torch.Generator().manual_seed(0))
    assert set(problem.y.unique().tolist()) == {0.0, 1.0}
    right = ((problem.x @ problem.weights.unsqueeze(-1)).squeeze(-1) > 0) == (problem.y > 0.5)
    assert 0.8 < right.double().mean() < 0.95, "labels follow the odds, by chance"
    built = innerloop.build(made, instances=4)
    assert built.certificate.holds
    assert built.certificate.redrawn_instances == 0
    found = innerloop.identify(built, algorithms=[made.algorithm], prompts=8, steps=9)
    assert found.verdict == "logistic-descent"
