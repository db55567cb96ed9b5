"""Linear changes of the data into the range of a construction, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

RANK_SHARE = 1e-10
"""Directions with less than this share of the largest singular value count as none."""


@dataclass(frozen=True, eq=False)
class RegressionScale:
    """Rows (x − mean) · basis · size, labels (y − shift) / unit, and the spectrum of the rows.

    `basis` gives features the same spread and leaves out constant and collinear directions;
    `spectrum` are the eigenvalues of XᵀX/n of the rows before `size`, the largest first.
    """

    mean: np.ndarray
    basis: np.ndarray
    shift: float
    unit: float
    spectrum: np.ndarray
    size: float = 1.0

    @classmethod
    def fit(cls, X: np.ndarray, y: np.ndarray, weight: np.ndarray, fit_intercept: bool) -> Any:
        """Measure means, spreads and directions of weighted rows."""
        share = weight / weight.sum()
        mean, shift = (
            (share @ X, float(share @ y)) if fit_intercept else (np.zeros(X.shape[1]), 0.0)
        )
        rows, labels = X - mean, y - shift
        spread = np.sqrt(share @ rows**2)
        # Rounding of a large mean is no spread.
        real = spread > 1e-12 * np.maximum(np.abs(mean), np.finfo(float).tiny)
        inverse = np.where(real, 1 / np.where(real, spread, 1.0), 0.0)
        unit = float(np.sqrt(share @ labels**2)) or 1.0
        _, values, directions = np.linalg.svd(
            np.sqrt(share)[:, None] * rows * inverse, full_matrices=False
        )
        rank = int((values > RANK_SHARE * max(values[0], np.finfo(float).tiny)).sum())
        if rank == X.shape[1]:
            basis = np.diag(inverse)
        else:
            basis = inverse[:, None] * directions[: max(rank, 1)].T
        # Constant features have no direction; what is predicted from none is the mean.
        spectrum = values[:rank] ** 2 if rank else np.ones(1)
        return cls(mean, basis, shift, unit, spectrum)

    def scale_rows(self, X: np.ndarray) -> np.ndarray:
        """Return rows as the transformer sees them."""
        return (X - self.mean) @ self.basis * self.size

    @property
    def condition(self) -> tuple[float, float]:
        """The least and the largest eigenvalue of XᵀX/n of the scaled rows."""
        return float(self.spectrum[-1]) * self.size**2, float(self.spectrum[0]) * self.size**2
