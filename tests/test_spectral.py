"""Principal components and spectral clustering: libraries' eigenvectors, rates, ranges."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA, TruncatedSVD

import innerloop
from innerloop.algorithms.power_method import PowerMethod
from innerloop.algorithms.spectral_clustering import SpectralClustering
from innerloop.certification.building import BuiltTransformer
from innerloop.certification.certificate import certify
from innerloop.certification.law import measure_deviations
from innerloop.constructions import pca
from innerloop.constructions.base import Construction, iterate_streams, read_prediction
from innerloop.constructions.spectral_clustering import SpectralClusteringConstruction
from innerloop.errors import InputError, OutOfRangeError
from innerloop.problems.binary_mixture import BinaryMixture
from innerloop.problems.principal_components import PCAProblem, PrincipalComponents
from innerloop.transformer import Attention, Block, Head, make_signed_pair

pytestmark = pytest.mark.usefixtures("law_alone")


@functools.cache
def build_default(name: str) -> BuiltTransformer:
    """Build a construction at its default parameters; tests must not change its weights."""
    return innerloop.build(name, instances=4)


def predict(construction: Construction, problem: Any) -> torch.Tensor:
    """Predict with a construction's own weights, which it takes no certificate to do."""
    *_, last = iterate_streams(construction, construction.transformer, problem)
    return read_prediction(construction, construction.transformer, problem, last)


def cosines(found: torch.Tensor, expected: np.ndarray) -> np.ndarray:
    """|cos| between rows."""
    found_ = found.numpy() / np.linalg.norm(found.numpy(), axis=-1, keepdims=True)
    return np.abs((found_ * expected).sum(axis=-1))


def test_the_power_method_finds_the_eigenvectors_of_numpy_and_scikit_learn() -> None:
    problem = PrincipalComponents(d=4, n=50, components=3).sample(6)
    algorithm = PowerMethod(600)
    *_, last = algorithm.states(problem, 600)
    for k in range(6):
        values, vectors = np.linalg.eigh(problem.x[k].numpy().T @ problem.x[k].numpy() / 50)
        np.testing.assert_allclose(cosines(last.vectors[k], vectors.T[:0:-1]), 1.0, atol=1e-9)
        by_svd = TruncatedSVD(n_components=3, algorithm="arpack").fit(problem.x[k].numpy())
        np.testing.assert_allclose(
            cosines(last.vectors[k], np.array(by_svd.components_)), 1.0, atol=1e-9
        )
        left = np.linalg.eigvalsh(last.matrix[k].numpy())
        np.testing.assert_allclose(left, [0.0, 0.0, 0.0, values[0]], atol=1e-9)


def test_the_angle_falls_at_the_rate_of_the_gap() -> None:
    """tan θ_τ ≤ (λ₂/λ₁)^τ tan θ₀, with equality where only two eigenvalues are in play."""
    problem = PrincipalComponents(d=2, n=30, components=1).sample(8)
    values, vectors = np.linalg.eigh(problem.covariance.numpy())
    tangents = []
    for state in PowerMethod(6).states(problem, 6):
        vector = state.vectors[:, 0].numpy()
        along, across = (np.abs((vector * vectors[..., k]).sum(axis=-1)) for k in (1, 0))
        tangents.append(across / along)
    for k, tangent in enumerate(tangents):
        expected = (values[:, 0] / values[:, 1]) ** k * tangents[0]
        np.testing.assert_allclose(tangent, expected, rtol=1e-9)


def test_built_weights_find_the_eigenvectors_of_a_library() -> None:
    construction = pca.PCAConstruction(d=4, n=40, components=3, steps=180)
    problem = PrincipalComponents(d=4, n=40, components=3, gap=0.4).sample(5)
    found = predict(construction, problem)
    for k in range(5):
        _, vectors = np.linalg.eigh(problem.covariance[k].numpy())
        np.testing.assert_allclose(cosines(found[k], vectors.T[:0:-1]), 1.0, atol=1e-9)
        np.testing.assert_allclose(np.linalg.norm(found[k].numpy(), axis=-1), 1.0, atol=1e-6)


@pytest.mark.parametrize("name", ["pca", "spectral-clustering"])
def test_the_error_falls_like_the_fourth_power_of_the_knots(name: str) -> None:
    """At the declared rate, and within the declared bound without slack to hide in."""
    counts, found = np.array([80, 230, 640]), []
    for knots in counts:
        certificate = innerloop.build(name, knots=int(knots), instances=16).certificate
        assert certificate.holds
        found.append(max(certificate.step_deviation))
        assert found[-1] > certificate.tolerance / 30
    slope = np.polyfit(np.log(counts - 1), np.log(found), 1)[0]
    assert abs(slope + 4) < 0.15


def test_the_bound_holds_at_its_worst() -> None:
    """Every length between the knots, not only those that random data meet."""
    for knots in (30, 60, 200):
        construction = SpectralClusteringConstruction(d=2, n=4, steps=1, knots=knots)
        lengths = torch.logspace(-0.8, 0.9, 4000, dtype=torch.float64)
        points = torch.tensor([[1.0, 0], [-1, 0], [0, 0], [0, 0]], dtype=torch.float64)
        start = torch.tensor([[1.0, 0]], dtype=torch.float64).expand(4000, 1, 2)
        problem = PCAProblem(lengths[:, None, None] * points, start)
        found = measure_deviations(construction, construction.transformer, problem)
        assert not found.broken
        assert max(found.step) > 0.99 * construction.length_error


def test_directions_are_exact_whatever_the_knots() -> None:
    construction = pca.PCAConstruction(d=5, n=12, components=1, steps=10, knots=30)
    problem = construction.distributions()[0].sample(4)
    stream = construction.transformer(construction.prompt(problem))
    found = construction.decode(problem, stream)
    *_, state = construction.algorithm.states(problem, 10)
    assert (found.norm(dim=-1) - 1).abs().max() > 1e-4
    np.testing.assert_allclose(cosines(found, state.vectors.numpy()), 1.0, atol=1e-12)


def test_printed_forms_that_do_not_hold() -> None:
    """What the source prints of its first layer, and of its pairs of heads."""
    construction = pca.PCAConstruction(d=3, n=6, components=1, steps=2)
    problem = construction.distributions()[0].sample(3)
    layout = construction.layout

    def describe_break(first: Block) -> str:
        mutant = pca.PCAConstruction(d=3, n=6, components=1, steps=2).transformer
        mutant.prologue[0] = first
        return measure_deviations(construction, mutant, problem).broken.partition(":")[0]

    def make_block(*heads: Head) -> Block:
        return Block(
            Attention.from_heads(layout, heads, kind="relu", mask="all", normalisation="1/N")
        )

    head = Head({("id", "x"): 1.0}, {("x", "cov"): 1.0})
    assert describe_break(make_block(*make_signed_pair(head))) == ""
    # V = I writes every register into itself, x to begin with.
    whole = Head({("id", "x"): 1.0}, {("x", "x"): 1.0, ("x", "cov"): 1.0})
    assert describe_break(make_block(*make_signed_pair(whole))) == "in the prologue, register x"
    # A sum of the two ReLU parts is |score|, not the score.
    plus = [replace(part, value={("x", "cov"): 1.0}) for part in make_signed_pair(head)]
    assert describe_break(make_block(*plus)) == "in the prologue, register cov"


def test_spectral_scores_are_the_principal_component_of_scikit_learn() -> None:
    construction = SpectralClusteringConstruction(d=4, n=60, steps=150)
    problem = BinaryMixture(d=4, n=60, separation=2.0, offset=3.0).sample(6)
    found = predict(construction, problem)
    for k in range(6):
        expected = PCA(1).fit_transform(problem.x[k].numpy())[:, 0]
        sign = np.sign(expected @ found[k, :, 0].numpy())
        np.testing.assert_allclose(found[k, :, 0].numpy(), sign * expected, atol=1e-5)


def test_labels_find_the_clouds() -> None:
    construction = SpectralClusteringConstruction(d=3, n=80, steps=60)
    problem = BinaryMixture(d=3, n=80, separation=3.0).sample(20)
    scores, labels = predict(construction, problem).unbind(dim=-1)
    sure = scores.abs() > 0.1
    torch.testing.assert_close(labels[sure], scores[sure].sign(), rtol=1e-12, atol=0)
    assert problem.labels is not None
    agreement = (labels.sign() * problem.labels).mean(dim=-1).abs()
    assert agreement.min() > 0.95


def test_spectral_clustering_is_the_power_method_on_centred_points() -> None:
    problem = BinaryMixture(d=3, n=9).sample(4)
    spectral = SpectralClustering(torch.tensor(0.1, dtype=torch.float64))
    centred = PCAProblem(problem.x - problem.x.mean(dim=-2, keepdim=True), problem.start)
    *_, power = PowerMethod(7).states(centred, 7)
    *_, state = spectral.states(problem, 7)
    torch.testing.assert_close(state, power.vectors[:, 0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("pca", {"d": 5, "n": 4}, "n ≥ d=5 points.*got n=4"),
        ("pca", {"d": 2, "components": 3}, "at most d=2 .* got 3"),
        ("pca", {"steps": 1}, "at most steps=1, so that each has an iteration"),
        ("pca", {"least": 2.0, "most": 1.0}, "least=2 must be below most=1"),
        ("pca", {"knots": 5}, "for 5 knots from 0.001 to 10: use more knots"),
        ("spectral-clustering", {"d": 3, "n": 2}, "n ≥ d=3 points.*got n=2"),
        ("spectral-clustering", {"d": 1}, "d of at least 2, got 1"),
    ],
)
def test_impossible_parameters_name_the_limit(name: str, parameters: dict, message: str) -> None:
    with pytest.raises(OutOfRangeError, match=message):
        innerloop.build(name, **parameters)


@pytest.mark.parametrize("name", ["pca", "spectral-clustering"])
@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_data_outside_the_range_of_the_knots_are_detected(name: str, scale: float) -> None:
    built = build_default(name)
    problem = built.construction.distributions()[0].sample(3)
    with pytest.raises(
        OutOfRangeError, match=r"got .* to .*: build it with another least and most"
    ):
        built.predict(replace(problem, x=scale * problem.x))
    with pytest.raises(OutOfRangeError, match="was built for n=20"):
        built.predict(PCAProblem(problem.x[:, :7], problem.start))


def test_a_certificate_on_data_out_of_range_is_refused() -> None:
    narrow = SpectralClusteringConstruction(least=0.1, most=0.2)
    with pytest.raises(OutOfRangeError, match="was built for"):
        certify(narrow, narrow.transformer)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start": torch.zeros(2, 1, 3, dtype=torch.float64)}, "vectors that are not 0"),
        ({"start": torch.ones(2, 4, 3, dtype=torch.float64)}, "expected 1 to d=3 starting vectors"),
        ({"x": torch.full((2, 5, 3), torch.nan, dtype=torch.float64)}, "finite"),
    ],
)
def test_bad_problems_are_named(change: dict, message: str) -> None:
    problem = PrincipalComponents(d=3, n=5, components=1).sample(2)
    with pytest.raises(InputError, match=message):
        replace(problem, **change)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("pca", 0.0, "the data are constant"),
        ("pca", 1e200, "constant or too large"),
        ("spectral-clustering", 1.0, "the data are constant"),
        ("spectral-clustering", 1e200, "entries up to 10000"),
    ],
)
def test_degenerate_data_are_named(name: str, value: float, message: str) -> None:
    built = build_default(name)
    start = built.construction.distributions()[0].sample(1).start
    with pytest.raises(OutOfRangeError, match=message):
        built.predict(PCAProblem(torch.full((1, 20, 5), value, dtype=torch.float64), start))


def test_own_data_come_as_arrays() -> None:
    problem = PCAProblem.from_arrays(np.eye(3), [1.0, 0, 0])
    assert problem.start.shape == (1, 3)
