"""Linear changes of the data into the range of a construction, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

EPSILON = float(np.finfo(np.float64).eps)
FLAT_SHARE = 2 * EPSILON
"""A column with less than this share of its size as spread cannot be told from a constant."""


@dataclass(frozen=True, eq=False)
class RegressionScale:
    """Rows (x − origin − mean) · basis · size, labels (y − shift) / unit, and their spectrum.

    `basis` gives features the same spread, leaves out constant and collinear directions, and
    raises directions of little spread to `floor` of the largest eigenvalue. `spectrum` holds the
    eigenvalues of XᵀX/n of the rows before `size`, the largest first.

    `flat` lists columns that vary by no more than rounding. They get no weight.
    """

    origin: np.ndarray
    """A row of the data: differences to it are exact where offsets are large."""
    mean: np.ndarray
    """The mean of the rows after `origin` is subtracted."""
    inverse: np.ndarray
    """1 / spread of each column; 0 for constant columns."""
    basis: np.ndarray
    shift: float
    unit: float
    spectrum: np.ndarray
    label_rounding: float
    """Rounding of the labels as they came, as a share of their spread."""
    rank_share: float
    """Singular values below this share of the largest are rounding."""
    flat: tuple[int, ...] = ()
    size: float = 1.0

    @classmethod
    def fit(
        cls, X: np.ndarray, y: np.ndarray, weight: np.ndarray, fit_intercept: bool, floor: float
    ) -> Any:
        """Measure means, spreads and directions of weighted rows."""
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
        # What rounding of the columns contributes to each direction, and what that of the SVD does.
        noise = np.linalg.norm(directions * (EPSILON * sizes * inverse), axis=1)
        rank = int((values > noise + max(X.shape) * EPSILON * values[0]).sum())
        lift = np.maximum(1.0, np.sqrt(floor) * values[0] / np.where(values > 0, values, 1.0))
        if rank == X.shape[1] and (lift == 1).all():
            basis = np.diag(inverse)
        else:
            basis = inverse[:, None] * directions[: max(rank, 1)].T * lift[: max(rank, 1)]
        # Constant features have no direction; what is predicted from none is the mean.
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
        """Return rows without their mean."""
        return X - self.origin - self.mean

    def scale_rows(self, X: np.ndarray) -> np.ndarray:
        """Return rows as the transformer sees them."""
        return self.centre(X) @ self.basis * self.size

    @property
    def condition(self) -> tuple[float, float]:
        """The least and the largest eigenvalue of XᵀX/n of the scaled rows."""
        return float(self.spectrum[-1]) * self.size**2, float(self.spectrum[0]) * self.size**2


def _measure_spread(values: np.ndarray, share: np.ndarray) -> Any:
    """Return the root mean square of each column; squares of tiny numbers do not vanish."""
    largest = np.abs(values).max(axis=0)
    largest = np.where(largest > 0, largest, 1.0)
    return np.sqrt(share @ (values / largest) ** 2) * largest
