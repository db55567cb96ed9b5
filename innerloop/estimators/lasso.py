"""The lasso by a transformer that runs ISTA: LISTA-VM with one matrix and one threshold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from innerloop.errors import InputError, OutOfRangeError
from innerloop.estimators.machine import (
    MAX_STEPS,
    certify_once,
    check_steps,
    make_construction,
    make_transformer,
    round_up,
    warn_gap,
)
from innerloop.estimators.reading import check_number, read_data
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.solving.coordinate_descent import Descent
from innerloop.transformer.cache import GatheredStream

BOUND, THRESHOLD = 1e6, 0.005
"""The largest |⟨β, x⟩| that the construction accepts, and its threshold θ."""


class TransformerLasso(RegressorMixin, BaseEstimator):
    """Fit a lasso by the forward pass of a causal transformer.

    The objective is that of scikit-learn's Lasso: 1/(2n) ‖y − Xw − b‖² + alpha ‖w‖₁. The training
    set is the prompt, and every step of the transformer is a step of ISTA. The features of a query
    enter only the read-out ⟨x, β⟩, so that one pass over the prompt suffices for all queries.

    After fitting, these attributes are set: `layers_` holds the weights after every step. `coef_`
    and `intercept_` are those after the last step, and `dual_gap_` is their duality gap. `steps_`
    is the number of steps, and `certificate_` the evidence that the transformer runs the algorithm.

    Args:
        alpha: The weight of the ℓ₁ norm. It must be above 0.
        steps: The number of steps. "auto" runs until the duality gap is at most `tolerance` times
            ½ mean (y − ȳ)². It takes at most the number of steps that the conditioning of the data
            calls for, and at most 2,000.
        tolerance: The largest duality gap, as a share of ½ mean (y − ȳ)².
        fit_intercept: Whether to centre the data, which gives an intercept.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        steps: int | str = "auto",
        tolerance: float = 1e-6,
        fit_intercept: bool = True,
    ) -> None:
        self.alpha = alpha
        self.steps = steps
        self.tolerance = tolerance
        self.fit_intercept = fit_intercept

    def fit(self, X: Any, y: Any) -> TransformerLasso:
        """Build and certify the transformer, and run it on the training set as its prompt."""
        X, y = read_data(self, X, y, y_numeric=True)
        if self.alpha == 0:
            raise InputError("alpha must be above 0, got 0: use TransformerRegressor")
        check_number("alpha", self.alpha)
        check_number("tolerance", self.tolerance, 1.0)
        self._origin, self._mean, self._shift = np.zeros(X.shape[1]), np.zeros(X.shape[1]), 0.0
        if self.fit_intercept:  # differences to a row are exact, even if the mean is large
            self._origin, self._mean = X[0], (X - X[0]).mean(axis=0)
            self._shift = float(y.mean())
        rows, labels = self.centre(X), y - self._shift
        n, d = X.shape
        values = np.linalg.eigvalsh(rows.T @ rows / n if d <= n else rows @ rows.T / n)
        largest = float(max(values[-1], 1e-300))
        least = float(values[0]) if d <= n else 0.0
        size = round_up(n, most=2000)
        self._matrix = 0.2 / (1 + math.sqrt(d / size)) ** 2
        rate = self._matrix * n / (2 * n + 1)
        # Multiplied by stretch, rows have η λmax = 1 for the step size η. Multiplied by lift,
        # labels make THRESHOLD the threshold η · alpha of ISTA.
        self._stretch = 1 / math.sqrt(rate * largest)
        self._lift = THRESHOLD / (rate * self.alpha * self._stretch)
        self._needed = math.inf if least <= 0 else -math.log(self.tolerance) * largest / least
        depth = check_steps(self.steps)
        most = int(min(MAX_STEPS, self._needed + 1)) if depth is None else depth
        self._construction = make_construction(
            "lista-vm",
            d=d,
            n=size,
            steps=most,
            preconditioners="identity",
            step_size=self._matrix,
            threshold=THRESHOLD,
            bound=BOUND,
        )
        self.certificate_ = certify_once(self._construction)
        self.transformer_ = make_transformer(self._construction)
        self._run(rows, labels, n, depth is None)
        return self

    def centre(self, X: np.ndarray) -> np.ndarray:
        """Return rows minus the mean of the training set."""
        return X - self._origin - self._mean

    def _run(self, rows: np.ndarray, labels: np.ndarray, n: int, stop_early: bool) -> None:
        """Run one step after another, and set the fitted attributes.

        With `stop_early`, the steps end when the duality gap is within the tolerance.
        """
        gram, moment = torch.tensor(rows.T @ rows / n), torch.tensor(rows.T @ labels / n)
        square = torch.tensor(float(labels @ labels) / n)
        penalty = torch.tensor([float(self.alpha)], dtype=torch.float64)
        problem = Descent(gram[None], moment[None], square[None].double(), penalty)
        limit = self.tolerance * 0.5 * float(square)
        layers, gap = [], math.inf
        for weights in self._iterate(rows, labels):
            layers.append(weights)
            gap = float(problem.measure(torch.tensor(weights)[None]))
            if stop_early and gap <= limit:
                break
        self.layers_ = np.stack(layers)
        self.steps_, self.dual_gap_ = len(layers) - 1, gap
        self.coef_ = layers[-1]
        self.intercept_ = self._shift - float((self._origin + self._mean) @ self.coef_)
        if not gap <= limit:
            warn_gap(type(self).__name__, self.steps_, self._needed, gap, "the duality gap")

    def _iterate(self, rows: np.ndarray, labels: np.ndarray) -> Any:
        """Yield the weights after 0, 1, … steps, read from register `beta` of the query token."""
        construction, unlift = self._construction, self._stretch / self._lift
        x, y = torch.tensor(rows * self._stretch), torch.tensor(labels * self._lift)
        problem = RegressionProblem(x, y, torch.zeros(1, x.shape[1], dtype=torch.float64))
        construction.check(problem)
        tokens = construction.prompt(problem)
        last, gathered = tokens[..., -1:, :], GatheredStream(tokens)
        (block,) = construction.body(0)
        with torch.no_grad():
            for k in range(construction.steps + 1):
                beta = construction.layout.read(last, "beta")[0]
                usage = float((x @ beta).abs().max()) / BOUND
                if not usage <= 1:
                    raise OutOfRangeError(
                        f"after step {k} the data reach {usage:.3g} times the range of lista-vm: "
                        "choose a larger alpha"
                    )
                yield beta.numpy() * unlift
                # The keys and values of the examples do not change: only run the query's token.
                last = block.forward_last(last, gathered)

    def predict(self, X: Any) -> np.ndarray:
        """Return the prediction at every row of X, by the transformer's read-out ⟨x, β⟩."""
        check_is_fitted(self, "coef_")
        X = read_data(self, X, reset=False)
        x = torch.tensor(self.centre(X) * self._stretch)
        beta = torch.tensor(self.coef_ * self._lift / self._stretch).expand_as(x)
        tokens = self._construction.layout.make_tokens(x=x, beta=beta, odd=1.0)
        stream = self.transformer_.run_epilogue(tokens.unsqueeze(-2), 0)
        problem = RegressionProblem(x[:1], x[:1, 0], x)  # the read-out ignores the examples
        predictions = self._construction.decode(problem, stream).squeeze(-1)
        return predictions.numpy() / self._lift + self._shift
