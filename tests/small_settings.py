"""Settings that make a small network of every construction, for tests of all constructions."""

from __future__ import annotations

from typing import Any

import torch

REGRESSION: dict[str, Any] = {"d": 2, "n": 6, "steps": 2}
SPARSE: dict[str, Any] = {"d": 3, "n": 8, "steps": 2, "bound": 30.0, "step_size": 0.4}
DESCENT: dict[str, Any] = {**REGRESSION, "step_size": 0.3}
SETTINGS: dict[str, dict[str, Any]] = {
    "decoder-gradient-descent": {**DESCENT, "bound": 40.0},
    # With equal weights it is soft k-means, which has fewer numbers.
    "em": {
        **{"d": 2, "n": 8, "clusters": 2, "steps": 2},
        "weights": torch.tensor([0.35, 0.65], dtype=torch.float64),
    },
    "format-conversion": {"d": 2, "n": 4},
    "gd-plus-plus": {**DESCENT, "transform_size": 0.5},
    "lista-vm": {**SPARSE, "threshold": 0.1},
    "lista-vm-linear": {**SPARSE, "threshold": 0.1, "heard_above": -10.0},
    "lloyd": {"d": 2, "n": 8, "clusters": 2, "steps": 2},
    "looped-gradient-descent": DESCENT,
    "mixture-of-regressions": {"d": 2, "n": 10, "components": 2, "steps": 2, "inner": 2},
    "mixture-of-two-regressions": {"d": 2, "n": 10, "steps": 2, "inner": 2},
    "network-gradient-descent": {
        **{"d": 2, "n": 6, "width": 3, "layers": 2, "steps": 2, "step_size": 0.07},
        **{"slope": 1e4, "bound": 30.0},
    },
    "newton": {**REGRESSION, "alpha": 5e-4},
    "packed-ucb-vi": {"d": 2, "n": 4, "arms": 2, "steps": 2},
    "pca": {"d": 3, "n": 6, "steps": 4, "knots": 200, "components": 2},
    "preconditioned-gradient-descent": DESCENT,
    "relu-gradient-descent": {**DESCENT, "bound": 40.0},
    "relu-newton": {**REGRESSION, "alpha": 5e-4},
    "soft-lin-ucb": {"d": 2, "n": 5, "arms": 3, "steps": 4},
    # With the squared loss it is gradient descent, which has fewer numbers.
    "softmax-gradient-descent": {**REGRESSION, "loss": "logistic"},
    "spectral-clustering": {"d": 2, "n": 6, "steps": 3},
    "thompson-sampling": {"d": 2, "n": 5, "arms": 3, "steps": 4, "terms": 3},
    "ucb-vi": {"d": 2, "n": 4, "arms": 2, "steps": 2},
}
