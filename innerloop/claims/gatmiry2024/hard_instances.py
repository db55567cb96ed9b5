"""Matrices that broke some inequality or correction of gatmiry2024, in whitened weights.

Every inequality of this source, and every correction, is tried on all of them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def shear(t: float) -> Callable[[int], Tensor]:
    """The identity plus t in the corner above the diagonal; at d = 1 the identity."""

    def build(d: int) -> Tensor:
        A = torch.eye(d, dtype=torch.float64)
        A[0, -1] += t if d > 1 else 0.0
        return A

    return build


def multiple(a: float) -> Callable[[int], Tensor]:
    """A multiple of the identity."""
    return lambda d: a * torch.eye(d, dtype=torch.float64)


HARD_MATRICES: dict[str, Callable[[int], Tensor]] = {
    "A = 0 (theorem-3.4)": multiple(0.0),
    "A = I/2, the minimiser at n = d + 1 (theorem-3.4)": multiple(0.5),
    "A = 0.899 I (lemma-A.10)": multiple(0.899),
    "A = 12 I (theorem-3.3)": multiple(12.0),
    "a shear (theorem-3.4)": shear(31.77),
    "a shear (theorem-A.11)": shear(63.60),
    "a shear (lemma-A.10)": shear(1046.64),
    "a shear (theorem-3.3)": shear(1131.37),
}
