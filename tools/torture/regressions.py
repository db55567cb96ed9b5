"""Hard regression data, and the least objective that another library or LAPACK reaches on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Rows:
    """Rows, labels and weights of one problem; without weights every row counts once."""

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None

    @property
    def weights(self) -> np.ndarray:
        """The weight of every row."""
        return np.ones(len(self.y)) if self.weight is None else self.weight

    def centre(self, fit_intercept: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return rows and labels times the root of their weight, centred in extended precision."""
        share = (self.weights / self.weights.sum()).astype(np.longdouble)
        x, y = self.x.astype(np.longdouble), self.y.astype(np.longdouble)
        if fit_intercept:
            # Differences to one row are exact. Without them, the rounding of `share` is multiplied
            # by the offset of a column.
            x, y = x - x[0], y - y[0]
            x, y = x - share @ x, y - share @ y
        root = np.sqrt(self.weights)
        return np.float64(x) * root[:, None], np.float64(y) * root

    def find_residuals(self, coef: np.ndarray, intercept: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return weighted residuals, and the inevitable rounding error of each."""
        wide = np.longdouble
        residuals = self.y.astype(wide) - self.x.astype(wide) @ coef.astype(wide) - wide(intercept)
        sizes = np.abs(self.x) @ np.abs(coef) + np.abs(self.y) + abs(float(intercept))
        root = np.sqrt(self.weights)
        return np.float64(residuals) * root, 16 * EPSILON * sizes * root


def draw_rows(sizes: SearchStrategy[int], features: SearchStrategy[int]) -> SearchStrategy[Rows]:
    """Draw rows of hard scales, large offsets, constant and collinear columns, uneven weights."""
    exponents = st.one_of(st.just(0), st.integers(-8, 8))
    return st.builds(
        make_rows,
        n=sizes,
        d=features,
        seed=st.integers(0, 2**32 - 1),
        scales=st.lists(exponents, min_size=8, max_size=8),
        offsets=st.lists(st.sampled_from([-99, -99, 0, 3, 6, 9]), min_size=8, max_size=8),
        odd=st.sampled_from(["none", "none", "constant", "collinear", "polynomial", "nearly"]),
        label_scale=exponents,
        noise=st.sampled_from([0.0, 1e-6, 0.1, 1.0]),
        weights=st.sampled_from(["none", "none", "whole", "uneven", "large", "small"]),
    )


def make_rows(
    n: int,
    d: int,
    seed: int,
    scales: list[int],
    offsets: list[int],
    odd: str,
    label_scale: int,
    noise: float,
    weights: str,
) -> Rows:
    """Make the rows of a case."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    if odd == "polynomial":
        x = np.linspace(0, 1, n)[:, None] ** np.arange(1, d + 1)
    elif odd == "collinear" and d > 1:
        x[:, -1] = x[:, 0] - 2 * x[:, d // 2]
    elif odd == "nearly" and d > 1:
        x[:, -1] = x[:, 0] + 1e-5 * x[:, -1]
    y = x @ (rng.normal(size=d) * (rng.random(d) < 0.6)) + noise * rng.normal(size=n) + 1.0
    if odd == "constant":
        x[:, -1] = 0.1
    scale = 10.0 ** np.array(scales[:d])
    shift = np.where(np.array(offsets[:d]) < 0, 0.0, 10.0 ** np.array(offsets[:d]))
    weight = {
        "none": None,
        "whole": rng.integers(0, 3, size=n) + 0.0,
        "uneven": 10.0 ** rng.integers(-8, 9, size=n),
        "large": rng.random(n) * 1e100,
        "small": rng.random(n) * 1e-100,
    }[weights]
    if weight is not None and not weight.any():
        weight[0] = 1.0
    return Rows((x + shift) * scale, y * 10.0**label_scale, weight)


def find_least_squares(rows: Rows, fit_intercept: bool, penalty: float = 0.0) -> float:
    """Return the root of the least objective ‖y − Xw − b‖² + penalty ‖w‖², by LAPACK."""
    x, y = rows.centre(fit_intercept)
    length = np.linalg.norm(x, axis=0)
    length = np.where(length > 0, length, 1.0)
    below = np.sqrt(penalty) * np.diag(1 / length)
    system = np.concatenate([x / length, below])
    right = np.concatenate([y, np.zeros(len(length))])
    # Directions below the rounding of the original columns are left out.
    root = np.sqrt(rows.weights)[:, None]
    noise = EPSILON * float((np.linalg.norm(rows.x * root, axis=0) / length).max(initial=0.0))
    solved = np.linalg.lstsq(system, right, rcond=4 * noise + max(x.shape) * EPSILON)[0]
    return float(np.linalg.norm(right - system @ solved))
