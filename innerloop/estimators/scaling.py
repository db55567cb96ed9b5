"""Scale the data linearly into the range of a construction, and undo the scaling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

EPSILON = float(np.finfo(np.float64).eps)
FLAT_SHARE = 2 * EPSILON
"""A column whose spread is at most this share of its size is constant up to rounding."""


@dataclass(frozen=True, eq=False)
class RegressionScale:
    """The scaling of a regression.

    Rows become (x − origin − mean) · basis · size, and labels (y − shift) / unit.
    `basis` gives all features the same spread and leaves out constant and collinear directions. It
    stretches directions of little spread, until their eigenvalue is the share `floor` of the
    largest. `spectrum` holds the eigenvalues of XᵀX/n of the rows before they are multiplied by
    `size`, in descending order.

    `flat` lists the columns that vary by no more than rounding. They have no effect.
    """

    origin: np.ndarray
    """A row of the data. Differences to it are exact, even if the mean is large."""
    mean: np.ndarray
    """The mean of the rows after `origin` is subtracted."""
    inverse: np.ndarray
    """1 / spread of each column; 0 for constant columns."""
    basis: np.ndarray
    shift: float
    unit: float
    spectrum: np.ndarray
    label_rounding: float
    """The rounding error of the original labels, as a share of their spread."""
    rank_share: float
    """Singular values below this share of the largest are rounding errors."""
    flat: tuple[int, ...] = ()
    size: float = 1.0

    @classmethod
    def fit(
        cls, X: np.ndarray, y: np.ndarray, weight: np.ndarray, fit_intercept: bool, floor: float
    ) -> Any:
        """Compute the scaling from the means, spreads and directions of weighted rows."""
        share = weight / weight.sum()
        origin, mean, shift = np.zeros(X.shape[1]), np.zeros(X.shape[1]), 0.0
        if fit_intercept:
            first = int(weight.argmax())
            origin, mean = X[first], share @ (X - X[first])
            shift = float(y[first] + share @ (y - y[first]))
        rows, labels = X - origin - mean, y - shift
        spread, unit = _measure_spread(rows, share), float(_measure_spread(labels, share)) or 1.0
        sizes = np.abs(X[weight > 0]).max(axis=0)
        real = spread > FLAT_SHARE * sizes
        flat = tuple(np.flatnonzero(~real & (spread > 0)).tolist())
        inverse = np.where(real, 1 / np.where(real, spread, 1.0), 0.0)
        _, values, directions = np.linalg.svd(
            np.sqrt(share)[:, None] * rows * inverse, full_matrices=False
        )
        # Singular values up to the rounding errors of the columns and of the SVD count as 0.
        noise = np.linalg.norm(directions * (EPSILON * sizes * inverse), axis=1)
        rank = int((values > noise + max(X.shape) * EPSILON * values[0]).sum())
        lift = np.maximum(1.0, np.sqrt(floor) * values[0] / np.where(values > 0, values, 1.0))
        if rank == X.shape[1] and (lift == 1).all():
            basis = np.diag(inverse)
        else:
            basis = inverse[:, None] * directions[: max(rank, 1)].T * lift[: max(rank, 1)]
        # Without any direction, because all features are constant, the prediction is the mean.
        spectrum = (values[:rank] * lift[:rank]) ** 2 if rank else np.ones(1)
        below = values[rank] if 0 < rank < len(values) else 0.0
        rank_share = float((values[rank - 1] + below) / (2 * values[0])) if rank else 1.0
        label_rounding = EPSILON * float(np.abs(y).max()) / unit
        return cls(
            origin=origin,
            mean=mean,
            inverse=inverse,
            basis=basis,
            shift=shift,
            unit=unit,
            spectrum=np.sort(spectrum)[::-1],
            label_rounding=label_rounding,
            rank_share=min(rank_share, 0.5),
            flat=flat,
        )

    def centre(self, X: np.ndarray) -> np.ndarray:
        """Return rows minus the mean of the training set."""
        return X - self.origin - self.mean

    def scale_rows(self, X: np.ndarray) -> np.ndarray:
        """Return rows as they appear in the transformer's prompt."""
        return self.centre(X) @ self.basis * self.size

    @property
    def condition(self) -> tuple[float, float]:
        """The least and the largest eigenvalue of XᵀX/n of the scaled rows."""
        return float(self.spectrum[-1]) * self.size**2, float(self.spectrum[0]) * self.size**2


def _measure_spread(values: np.ndarray, share: np.ndarray) -> Any:
    """Return the root mean square of each column, without underflow for tiny numbers."""
    largest = np.abs(values).max(axis=0)
    largest = np.where(largest > 0, largest, 1.0)
    return np.sqrt(share @ (values / largest) ** 2) * largest
