"""Linear regression by transformers that run Newton's iteration or gradient descent."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from innerloop.constructions.base import iterate_streams, read_prediction
from innerloop.errors import InputError, unknown_name_error
from innerloop.estimators.machine import (
    certify_once,
    check_steps,
    make_construction,
    make_transformer,
    round_up,
    warn_gap,
)
from innerloop.estimators.reading import check_number, check_unmasked, read_data
from innerloop.estimators.scaling import RegressionScale
from innerloop.problems.linear_regression import RegressionProblem

CONSTRUCTIONS = {
    "newton": "newton",
    "relu-newton": "relu-newton",
    "gradient-descent": "looped-gradient-descent",
    "gd-plus-plus": "gd-plus-plus",
}
MAX_STEPS = 1000
"""The largest depth that `steps="auto"` chooses."""
SPECTRUM_FLOOR = 1 / 3000
"""The least eigenvalue of the scaled data, as a share of the largest; smaller ones are raised.

Newton's iteration would lose the digits of smaller eigenvalues to rounding: with more than 20
steps, its construction raises an error if αλmin(XᵀX)² is below 1e-7.
"""
GROWTH, SHRINKAGE = 27 / 8, 0.5
"""The factor between successive step sizes of GD++, and the number b of its matrix B = bI.

A step with B = ½I maps curvatures of at most 1 to at most 8/27. The growth brings them back to at
most 1.
"""
MAX_QUERIES = 4096
"""The largest number of queries in one prompt."""


class TransformerRegressor(RegressorMixin, BaseEstimator):
    """Fit least squares by a transformer; its prompt is the training set and the queries.

    Predictions are forward passes. Collinear or constant features and n < d are allowed: the
    predictions are those of some least-squares weights. Directions of very little spread are
    stretched in the prompt, so that `condition_` is at most 3,000.

    After fitting, these attributes are set: `layers_` holds the predictions on the training set
    after every step. `certificate_` is the evidence that the transformer runs the algorithm.
    `steps_` is the number of steps, and `condition_` the condition number of the scaled data.
    `gap_` is the distance of the predictions on the training set from those of least squares on
    the original data, as a share of the labels' spread.

    Args:
        algorithm: "newton", "relu-newton", "gradient-descent" or "gd-plus-plus".
        steps: The number of steps. "auto" computes it from the conditioning of the data and
            `tolerance`, up to 1,000. If the data need more steps, a warning states how many.
        tolerance: The largest error of predictions on the training set, as a share of the labels'
            spread.
        fit_intercept: Whether to centre the data, which gives an intercept.
        run: The folder of a trained network that makes the predictions; see `from_run`.
    """

    def __init__(
        self,
        algorithm: str = "newton",
        *,
        steps: int | str = "auto",
        tolerance: float = 1e-8,
        fit_intercept: bool = True,
        run: str | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.steps = steps
        self.tolerance = tolerance
        self.fit_intercept = fit_intercept
        self.run = run

    @classmethod
    def from_run(cls, path: str | Path, *, fit_intercept: bool = True) -> TransformerRegressor:
        """Make an estimator that predicts with the trained network in the folder of a run."""
        return cls("trained", fit_intercept=fit_intercept, run=str(path))

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TransformerRegressor:
        """Scale the training set, build and certify the transformer, and run it on the data."""
        X, y = read_data(self, X, y, y_numeric=True, ensure_min_samples=1)
        check_number("tolerance", self.tolerance, 1.0)
        check_unmasked("sample_weight", sample_weight)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weight.max() > 0:
            raise InputError("sample_weight must not be 0 for every row")
        weight = weight / weight.max()  # so that the sum neither overflows nor underflows
        scale = RegressionScale.fit(X, y, weight, self.fit_intercept, SPECTRUM_FLOOR)
        if scale.flat:
            names = getattr(self, "feature_names_in_", [f"x{k}" for k in range(X.shape[1])])
            self._warn_flat([str(names[k]) for k in scale.flat])
        if self.run is not None:
            self._load_run(scale, X, y)
        else:
            if self.algorithm not in CONSTRUCTIONS:
                raise unknown_name_error("algorithm", str(self.algorithm), CONSTRUCTIONS)
            self._build(scale, len(X))
        roots = np.sqrt(weight / weight.mean())  # a row of weight 2 counts as two
        self._examples = (
            torch.tensor(self._scale.scale_rows(X) * roots[:, None]),
            torch.tensor((y - scale.shift) / scale.unit * roots),
        )
        self.layers_ = np.stack(list(self._iterate_layers(X)))
        self.gap_ = self._measure_gap(X, y, weight)
        if self.run is None and not self.gap_ <= max(10 * self.tolerance, self._rounding):
            what = "the gap to least squares, as a share of the labels' spread,"
            warn_gap(type(self).__name__, self.steps_, self._needed, self.gap_, what)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the predictions at X, by a forward pass on the training set and the queries X."""
        *_, last = self.staged_predict(X)
        return last

    def staged_predict(self, X: Any) -> Iterator[np.ndarray]:
        """Yield the predictions at X after 0, 1, … steps, up to the last."""
        check_is_fitted(self, "certificate_")
        X = read_data(self, X, reset=False)
        yield from self._iterate_layers(X)

    def _iterate_layers(self, X: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the predictions at X after every step, in the original units."""
        rows = torch.tensor(self._scale.scale_rows(X))
        parts = [self._stream_layers(part) for part in rows.split(MAX_QUERIES)]
        for layers in zip(*parts, strict=True):
            yield torch.cat(layers).numpy() * self._scale.unit + self._scale.shift

    def _stream_layers(self, queries: torch.Tensor) -> Iterator[torch.Tensor]:
        """Yield the predictions at scaled queries of one prompt after every step."""
        problem = RegressionProblem(*self._examples, queries)
        with torch.no_grad():
            if self.run is not None:
                yield from self._predict_with_run(problem)
                return
            for stream in iterate_streams(self._construction, self.transformer_, problem):
                yield read_prediction(self._construction, self.transformer_, problem, stream)

    def _build(self, scale: RegressionScale, n: int) -> None:
        """Choose the scale and the number of steps for the data, and build the transformer."""
        d, size = scale.basis.shape[1], round_up(n)
        # The largest λmax(XᵀX) of the random rows on which the blocks are certified.
        bound = (size**0.5 + d**0.5 + 6.0) ** 2
        least, largest = float(scale.spectrum[-1]), max(float(scale.spectrum[0]), 1e-300)
        name, depth = CONSTRUCTIONS[self.algorithm], check_steps(self.steps)
        changes: dict[str, Any] = {}
        if name in ("newton", "relu-newton"):
            self._scale = replace(scale, size=float((bound / (n * largest)) ** 0.5))
            self._needed = count_newton_steps((least / largest) ** 2, self.tolerance)
            steps = depth or min(self._needed, MAX_STEPS)
            parameters: dict[str, Any] = {"n": size}
        elif name == "looped-gradient-descent":
            rate = size / bound
            self._scale = replace(scale, size=float((2 / (rate * (largest + least))) ** 0.5))
            self._needed = count_descent_steps(largest / max(least, 1e-300), self.tolerance)
            steps = depth or min(self._needed, MAX_STEPS)
            parameters = {"n": size, "preconditioners": "identity", "step_size": rate}
        else:
            rate = size / bound
            self._scale = replace(scale, size=float((1 / (rate * largest)) ** 0.5))
            self._needed = count_growing_steps(scale.spectrum / largest, self.tolerance)
            steps = depth or min(self._needed, MAX_STEPS)
            growth = rate * torch.tensor([GROWTH**k for k in range(steps)], dtype=torch.float64)
            eye = torch.eye(d, dtype=torch.float64)
            parameters = {"n": size, "transforms": SHRINKAGE * eye}
            parameters["preconditioners"] = growth[:, None, None] * eye
            certified = min(steps, 12)
            changes = {
                "steps": certified,
                "preconditioners": parameters["preconditioners"][:certified],
            }
        self.steps_ = int(steps)
        self._construction = make_construction(name, d=d, steps=self.steps_, **parameters)
        self.certificate_ = certify_once(self._construction, **changes)
        distinct = (lambda k: k) if name == "gd-plus-plus" else None
        self.transformer_ = make_transformer(self._construction, distinct)
        self.condition_ = largest / max(least, 1e-300)

    @property
    def _rounding(self) -> float:
        """The part of the gap that rounding may explain.

        It is the certificate's tolerance times the condition number, and the labels' rounding.
        """
        allowed = self.certificate_.tolerance * max(1.0, self.condition_)
        return allowed + 10 * self._scale.label_rounding

    def _measure_gap(self, X: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
        """Return the distance of the last predictions from least squares on the original columns.

        It is a share of the labels' spread.
        """
        scale, root = self._scale, np.sqrt(weight / weight.sum())
        rows, labels = scale.centre(X) * scale.inverse, (y - scale.shift) / scale.unit
        exact = np.linalg.lstsq(root[:, None] * rows, root * labels, rcond=scale.rank_share)[0]
        differences = (self.layers_[-1] - scale.shift) / scale.unit - rows @ exact
        return float(np.linalg.norm(root * differences))

    def _warn_flat(self, names: list[str]) -> None:
        """Warn about columns whose entries differ only by rounding."""
        warnings.warn(
            f"{type(self).__name__}: {', '.join(names)} cannot be told from a constant, and gets "
            "no weight: its entries differ in their last digits only; subtract an offset where the "
            "data come from",
            UserWarning,
            stacklevel=3,
        )

    def _load_run(self, scale: RegressionScale, X: np.ndarray, y: np.ndarray) -> None:
        """Load the network of `run`, and scale the data as in its training."""
        from innerloop.recipes.base import load
        from innerloop.recipes.runs import find_model

        path = Path(str(self.run))
        recipe, model, about = load(find_model(path))
        distribution: Any = recipe.build_distribution()
        if distribution.problem_type is not RegressionProblem:
            raise InputError(f"{path} holds a {recipe.name}, but a regression is needed")
        if X.shape[1] > distribution.d:
            raise InputError(
                f"{path} was trained for d={distribution.d} features, the data have {X.shape[1]}"
            )
        # As in the training of the network, features get spread 1 and labels spread √d. If the
        # network was trained with more features, the others are 0.
        rows = replace(scale, basis=np.diag(_inverse_spread(scale, X)))
        wide = np.zeros((X.shape[1], distribution.d))
        wide[:, : X.shape[1]] = rows.basis
        unit = scale.unit / math.sqrt(X.shape[1])
        self._scale = replace(rows, basis=wide, unit=unit)
        network: Any = model
        no_certificate: Any = None  # a trained network has no certificate
        self._recipe, self.transformer_ = recipe, network
        self.certificate_, self.steps_, self.condition_ = no_certificate, 0, math.nan
        self.run_about_ = about

    def _predict_with_run(self, problem: RegressionProblem) -> Iterator[torch.Tensor]:
        """Yield the predictions of the trained network after every layer."""
        dtype = next(self.transformer_.parameters()).dtype
        batch = problem.map_tensors(lambda tensor: tensor.unsqueeze(0).to(dtype))
        layers = self._recipe.predict_layers(self.transformer_, batch)
        yield from layers[:, 0].double()


def _inverse_spread(scale: RegressionScale, X: np.ndarray) -> np.ndarray:
    """Return 1 / standard deviation of each column, and 0 for constant columns."""
    spread = scale.centre(X).std(axis=0)
    return np.where(spread > 0, 1 / np.where(spread > 0, spread, 1.0), 0.0)


def count_newton_steps(ratio: float, tolerance: float) -> int:
    """Return the least k with (1 − ρ)^(2ᵏ) ≤ tolerance, for the ratio ρ = αλmin².

    The left side is the error of Newton's iteration in its slowest direction.
    """
    if ratio >= 0.5:
        return max(2, math.ceil(math.log2(math.log(1 / tolerance) / math.log(2))))
    return max(2, math.ceil(math.log2(-math.log(tolerance) / -math.log1p(-ratio))))


def count_descent_steps(condition: float, tolerance: float) -> int:
    """Return the least k with ((κ − 1)/(κ + 1))ᵏ ≤ tolerance, for the condition number κ.

    The left side is the error of gradient descent at its best step size.
    """
    if condition <= 1 + 1e-9:
        return 2
    rate = math.log1p(2 / (condition - 1))
    return max(2, math.ceil(-math.log(tolerance) / rate))


def count_growing_steps(spectrum: np.ndarray, tolerance: float) -> int:
    """Return the steps of GD++ that reach the tolerance, if step sizes grow by the factor 27/8.

    They are counted by running the recursion of every eigenvalue's error.
    """
    curvature, error = spectrum.copy(), np.ones_like(spectrum)
    for k in range(1, MAX_STEPS + 1):
        error = error * (1 - curvature)
        if np.abs(error).max() <= tolerance:
            return max(2, k)
        curvature = GROWTH * curvature * (1 - SHRINKAGE * curvature) ** 2
    return MAX_STEPS + 1
