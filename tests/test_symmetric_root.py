"""The symmetric square root of a covariance, in whose coordinates trained matrices are compared."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch

from innerloop.training.linear_attention import symmetric_root


@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_root_agrees_with_scipy(d: int) -> None:
    factor = torch.randn(d, 2 * d, dtype=torch.float64)
    matrix = factor @ factor.mT + 0.1 * torch.eye(d, dtype=torch.float64)
    expected = np.real(scipy.linalg.sqrtm(matrix.numpy()))
    np.testing.assert_allclose(symmetric_root(matrix).numpy(), expected, rtol=1e-10, atol=1e-12)
