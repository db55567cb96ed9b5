"""Certificates: what they say, and that they refuse weights that break the law."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch

import innerloop
from innerloop.certification.building import BuiltTransformer
from innerloop.certification.certificate import certify
from innerloop.certification.cost import check_cost, evaluate_formula
from innerloop.certification.law import measure_deviations
from innerloop.constructions.acting import ActingConstruction
from innerloop.constructions.base import Construction
from innerloop.errors import InputError, OutOfRangeError
from innerloop.problems.linear_regression import LinearRegression
from innerloop.registry import load_members
from innerloop.testing.constructions import check_every_weight
from innerloop.transformer import (
    Transformer,
)
from innerloop.transformer.attention import Attention, Normalisation

NAMES = list(load_members("constructions", Construction))
LAW_ALONE = pytest.mark.usefixtures("law_alone")
LINEAR = ["preconditioned-gradient-descent", "looped-gradient-descent", "gd-plus-plus", "newton"]


def is_refused(name: str, mutate: Callable[[Transformer], object], **parameters: Any) -> bool:
    """Whether the certificate refuses a construction's weights after a mutation."""
    built = build_at(name, **parameters)
    assert built.certificate.holds, "unmutated weights must certify"
    return is_detected(built, mutate)


def is_detected(built: BuiltTransformer, mutate: Callable[[Transformer], object]) -> bool:
    """Whether the certificate refuses mutated weights on one instance, or else on four."""
    mutant = copy.deepcopy(built.transformer)
    mutate(mutant)
    return any(not certify(built.construction, mutant, instances=few).holds for few in (1, 4))


@functools.cache
def build_at(name: str, **parameters: Any) -> BuiltTransformer:
    """Build a construction, once for each choice of parameters: copy it before changing weights."""
    return innerloop.build(name, instances=8, **parameters)


@functools.cache
def build_small(name: str) -> BuiltTransformer:
    """Build a construction with few steps, once: copy it before changing weights."""
    return innerloop.build(name, instances=4, **choose_small_parameters(name))


def choose_small_parameters(name: str) -> dict[str, Any]:
    """Choose two steps, and two inner steps where the construction has any."""
    kind = load_members("constructions", Construction)[name]
    few = {"steps": kind.cap_value("steps", 2), "inner": 2}
    return {key: value for key, value in few.items() if key in kind.declared_types()}


@LAW_ALONE
@pytest.mark.parametrize("name", NAMES)
def test_every_weight_matters(name: str) -> None:
    check_every_weight(load_members("constructions", Construction)[name])


@LAW_ALONE
@pytest.mark.parametrize("name", NAMES)
def test_a_small_error_in_the_last_digit_kept_is_refused(name: str) -> None:
    """One part in a million on the values is far above 1e-10; of a bound, a hundredfold."""
    tolerance = (
        load_members("constructions", Construction)[name].from_values({}).tolerance(torch.float64)
    )

    def nudge(mutant: Transformer) -> None:
        for block in mutant.blocks():
            if block.attention is not None:
                block.attention.value.mul_(1 + max(1e-6, 100 * tolerance))

    assert is_refused(name, nudge)


@LAW_ALONE
@pytest.mark.parametrize("name", LINEAR[:3])
def test_a_transposed_matrix_is_refused(name: str) -> None:
    def transpose(mutant: Transformer) -> None:
        for block in mutant.blocks():
            attention = block.attention
            assert attention is not None
            swapped = attention.key.clone(), attention.query.clone()
            attention.query.copy_(swapped[0])
            attention.key.copy_(swapped[1])

    assert is_refused(name, transpose)


@LAW_ALONE
@pytest.mark.parametrize("name", LINEAR)
def test_a_query_that_leaks_into_the_context_is_refused(name: str) -> None:
    def unmask(mutant: Transformer) -> None:
        for block in mutant.blocks():
            assert block.attention is not None
            block.attention.mask = "all"

    assert is_refused(name, unmask)


@LAW_ALONE
def test_a_query_that_leaks_through_relu_attention_is_refused() -> None:
    def ungate(mutant: Transformer) -> None:
        """Queries pose as context: the flag's weight in the keys is what keeps them out."""
        place = mutant.layout["t"].places[0]
        for block in mutant.blocks():
            assert block.attention is not None
            block.attention.key[..., place] = 0
            block.attention.query[..., place] = 0

    def unkey(mutant: Transformer) -> None:
        """Keys read x, which a query has, instead of xk, which it has not."""
        x, xk = (list(mutant.layout[name].places) for name in ("x", "xk"))
        for block in mutant.blocks():
            assert block.attention is not None
            block.attention.key[..., x] += block.attention.key[..., xk]
            block.attention.key[..., xk] = 0

    assert is_refused("relu-gradient-descent", ungate)
    assert is_refused("relu-newton", unkey)


def list_attentions(transformer: Transformer) -> list[Attention]:
    """List the attention of every block that has one; others are an MLP alone."""
    blocks = transformer.blocks()
    return [block.attention for block in blocks if block.attention is not None]


@LAW_ALONE
@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_normalisation_is_refused(name: str) -> None:
    others: tuple[Normalisation, ...] = ("1/n", "1/N", "1")
    for other in others:

        def renormalise(mutant: Transformer, other: Normalisation = other) -> None:
            for attention in list_attentions(mutant):
                attention.normalisation = other

        built = build_small(name)
        own = list_attentions(built.transformer)[0]
        if own.normalisation != other:
            assert is_detected(built, renormalise)


def test_two_sizes_and_all_instances_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def spy(construction, transformer, problem, *rest, **options):
        seen.append((problem.n, problem.queries, len(problem.x)))
        return measure_deviations(construction, transformer, problem, *rest)

    monkeypatch.setattr("innerloop.certification.measuring.measure_deviations", spy)
    innerloop.build("gd-plus-plus", n=20, instances=7)
    assert seen == [(20, 2, 4), (11, 3, 3)]


def test_not_a_number_is_refused() -> None:
    def spoil(mutant: Transformer) -> None:
        next(mutant.parameters()).fill_(torch.nan)

    built = innerloop.build("newton")
    spoil(built.transformer)
    certificate = certify(built.construction, built.transformer)
    assert not certificate.holds
    assert certificate.max_deviation == certificate.operator_norm == float("inf")


def test_a_register_that_no_answer_reads_counts() -> None:
    """The last step of GD++ moves x, which nothing reads after it."""

    def spoil(mutant: Transformer) -> None:
        attention = mutant.blocks()[-1].attention
        assert attention is not None
        rows = [attention.targets.tolist().index(place) for place in mutant.layout["x"].places]
        attention.value[:, rows] *= 1 + 1e-6

    assert is_refused("gd-plus-plus", spoil)


def test_float32_is_held_against_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def spy(construction, transformer, problem, *rest):
        seen.append((next(transformer.parameters()).dtype, problem.x.dtype, problem.x))
        return measure_deviations(construction, transformer, problem, *rest)

    monkeypatch.setattr("innerloop.certification.measuring.measure_deviations", spy)
    innerloop.build("gd-plus-plus", dtype="float32")
    assert len(seen) == 2
    for weights, data, x in seen:
        assert (weights, data) == (torch.float32, torch.float64)
        assert torch.equal(x, x.float().double()), "the data are exact in float32 too"


@LAW_ALONE
def test_a_weight_that_is_right_for_one_n_only_is_refused() -> None:
    def specialise(mutant: Transformer) -> None:
        for block in mutant.blocks():
            assert block.attention is not None
            block.attention.normalisation = "1"
            block.attention.value.div_(20)

    assert is_refused("preconditioned-gradient-descent", specialise, n=20)


def test_what_a_certificate_says() -> None:
    built = innerloop.build("newton", d=4, n=30, steps=5, instances=16, seed=3)
    certificate = built.certificate
    assert (certificate.layers, certificate.heads, certificate.width) == (7, 1, 10)
    assert certificate.hidden == 8
    assert len(certificate.step_deviation) == len(certificate.deviation) == 5
    assert certificate.max_deviation == max(*certificate.step_deviation, *certificate.deviation)
    assert certificate.instances == 16
    assert certificate.seed == 3
    assert certificate.exact
    assert certificate.tolerance == 1e-10
    assert set(certificate.versions) >= {"innerloop", "torch", "python"}
    expected = "innerloop build newton -s steps=5 -s d=4 -s n=30 --instances 16 --seed 3"
    assert certificate.command == expected
    again = innerloop.build("newton", d=4, n=30, steps=5, instances=16, seed=3).certificate
    assert again == certificate
    other = innerloop.build("newton", d=4, n=30, steps=5, instances=16, seed=4).certificate
    assert other != certificate


def test_formulas_are_evaluated() -> None:
    letters = {"k": 5, "d": 2, "K": 3, "N": 7}
    found = [
        evaluate_formula(text, letters) for text in ("k + 2", "2d", "4", "2Nk − 2K²", "− d + NK")
    ]
    assert found == [7, 4, 4, 52, 19]
    assert evaluate_formula("max(2d + 3, 3K)", letters) == 9
    assert evaluate_formula("max(2N + 3, 3K)", letters) == 17


@pytest.mark.parametrize("formula", ["O(d)", "2d +3", "", "d^2", "3 d", "kT", "max(d)x"])
def test_formulas_that_cannot_be_read_are_refused(formula: str) -> None:
    with pytest.raises(InputError, match=r"cannot read|let `where` explain it"):
        evaluate_formula(formula, {"k": 5, "d": 2})


@pytest.mark.parametrize("name", NAMES)
def test_the_declared_cost_is_the_cost(name: str) -> None:
    """At sizes of its own: `test_construction_law` has those of the cases."""
    kind = load_members("constructions", Construction)[name]
    sizes = [
        {"steps": kind.cap_value("steps", steps), "d": d, "n": n}
        for steps, d, n in ((1, 2, 5), (5, 3, 9), (8, 4, 7))
    ]
    constructions = []
    for parameters in sizes:
        with suppress(OutOfRangeError):
            constructions.append(kind.from_values(parameters))
    assert len(constructions) >= 2
    for construction in constructions:
        assert check_cost(construction, construction.transformer) == ""


@LAW_ALONE
@pytest.mark.parametrize("name", NAMES)
def test_predictions_are_the_reference_algorithms(name: str) -> None:
    kind = load_members("constructions", Construction)[name]
    steps, instances = kind.cap_value("steps", 6), 8 if kind.exact else 16
    # A game's transformer grows with its episodes, and its certificate takes the time of ten.
    d, n = (2, 5) if issubclass(kind, ActingConstruction) else (3, 12)
    built = innerloop.build(name, d=d, n=n, steps=steps, instances=instances)
    problem = built.construction.distributions()[0].sample(5)
    algorithm = built.construction.algorithm
    expected = [algorithm.predict(problem, state) for state in algorithm.states(problem, steps)]
    # A bound is on single steps; running free, the certificate says how far.
    off = 1e-10 if built.construction.exact else max(built.certificate.free_tolerance)
    for found, reference in zip(built.predictions(problem), expected, strict=True):
        torch.testing.assert_close(found, reference, rtol=off, atol=off)
    torch.testing.assert_close(built.predict(problem), expected[-1], rtol=off, atol=off)
    out = built.construction.decode(problem, built.trace(problem)[-1].stream)
    assert torch.equal(out, built.predict(problem))


@LAW_ALONE
@pytest.mark.parametrize("name", ["newton", "relu-newton"])
def test_newton_holds_for_a_hundred_steps(name: str) -> None:
    """Only because the query reads m and the key x: the other way round, rounding doubles."""
    assert innerloop.build(name, d=5, n=60, steps=100, instances=8).certificate.holds


@LAW_ALONE
def test_newton_converges_to_numpys_least_squares() -> None:
    built = innerloop.build("newton", d=4, n=30, steps=25)
    problem = LinearRegression(d=4, n=30, noise=0.5, queries=2).sample(8)
    found = built.predict(problem)
    for k in range(8):
        weights = np.linalg.lstsq(problem.x[k].numpy(), problem.y[k].numpy(), rcond=None)[0]
        expected = problem.x_query[k].numpy() @ weights
        np.testing.assert_allclose(found[k].numpy(), expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_papers_matrix_recursion_in_its_own_sign(sign: float) -> None:
    """Z ± (1/n) P Z M (ZᵀQZ): plus and −Aᵀ in Ahn et al., minus and Aᵀ in Gatmiry et al."""
    d, n, steps = 3, 6, 4
    name = "preconditioned-gradient-descent" if sign > 0 else "looped-gradient-descent"
    a = 0.2 * torch.randn(d, d, dtype=torch.float64)
    built = innerloop.build(name, d=d, n=n, steps=steps, preconditioners=a)
    problem = LinearRegression(d=d, n=n).sample(generator=torch.Generator().manual_seed(1))
    z = np.zeros((d + 1, n + 1))
    z[:d] = np.concatenate([problem.x, problem.x_query]).T
    z[d, :n] = problem.y
    mask, p, q = np.diag([1.0] * n + [0.0]), np.zeros((d + 1, d + 1)), np.zeros((d + 1, d + 1))
    p[d, d], q[:d, :d] = 1.0, -sign * a.numpy().T
    for _ in range(steps):
        z = z + sign * p @ z @ mask @ (z.T @ q @ z) / n
    np.testing.assert_allclose(built.predict(problem).numpy(), [-z[d, n]], rtol=1e-12)
    np.testing.assert_allclose(built.trace(problem)[-1].stream.numpy().T, z, atol=1e-12)


@LAW_ALONE
def test_data_outside_the_declared_range_are_detected() -> None:
    built = innerloop.build("relu-gradient-descent", d=2, n=4, bound=1e-3, instances=1)
    assert built.certificate.range_used > 1
    assert not built.certificate.holds
    wide = innerloop.build("relu-gradient-descent", d=2, n=4)
    problem = LinearRegression(d=2, n=4).sample(3)
    scaled = problem.__class__(problem.x * 1e3, problem.y * 1e3, problem.x_query)
    assert wide.predict(problem).shape == (3, 1)
    with pytest.raises(OutOfRangeError, match="times the range"):
        wide.predict(scaled)


@LAW_ALONE
@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("newton", {"d": 3}, "built for d=5, got d=3"),
        ("newton", {"n": 21}, "up to n=20 examples, .* got n=21"),
        ("relu-gradient-descent", {"n": 9}, "built for n=20, got n=9"),
        ("relu-gradient-descent", {"queries": 2}, "one query, got 2"),
    ],
)
def test_problems_beyond_a_limit_are_refused(name: str, setting: dict, message: str) -> None:
    built = innerloop.build(name)
    problem = LinearRegression.from_values({"d": 5, "n": 20, **setting}).sample()
    with pytest.raises(OutOfRangeError, match=message):
        built.predict(problem)
    with pytest.raises(OutOfRangeError, match=message):
        built.trace(problem)


@LAW_ALONE
def test_too_many_newton_steps_on_a_singular_problem_are_refused() -> None:
    with pytest.raises(OutOfRangeError, match=r"exact for up to 20 steps.*got 21 steps"):
        innerloop.build("newton", d=5, n=3, steps=21)
    built = innerloop.build("newton", d=2, n=40, steps=40)
    problem = LinearRegression(d=2, n=40, kappa=1e6).sample(3)
    with pytest.raises(OutOfRangeError, match="got 40 steps"):
        built.predict(problem)


@LAW_ALONE
def test_divergence_is_an_error_not_a_number() -> None:
    built = innerloop.build("newton", d=2, n=9, steps=30)
    problem = LinearRegression(d=2, n=9).sample()
    far = problem.__class__(problem.x * 1e3, problem.y, problem.x_query)
    with pytest.raises(InputError, match=r"newton diverged: .* scale the data down"):
        built.predict(far)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"instances": 0}, "instances must be a whole number of at least 1"),
        ({"seed": -1}, "seed must be"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"dept": 3}, "no parameter called 'dept'"),
        ({"alpha": 0.0}, "alpha must be at least"),
        ({"alpha": 1e-40, "steps": 1}, "moves by .* use larger steps"),
    ],
)
def test_bad_parameters_are_named(parameters: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        innerloop.build("newton", **parameters)


def test_matrices_of_the_wrong_shape_are_named() -> None:
    with pytest.raises(InputError, match="5×5 or 8×5×5, got 3×3"):
        innerloop.build("gd-plus-plus", transforms=torch.eye(3))


@LAW_ALONE
@pytest.mark.parametrize("name", NAMES)
def test_a_problem_of_another_kind_is_named(name: str) -> None:
    built = build_small(name)
    for what in (built.predict, built.trace):
        with pytest.raises(InputError, match=f"{name} expects a [A-Za-z]+, got str"):
            what("a problem")
