"""Every construction of the package, through its file: its own algorithm at every layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from innerloop.certification.building import build
from innerloop.constructions.base import Construction
from innerloop.identification.identification import identify
from innerloop.identification.loading import load_model
from innerloop.registry import get_name, load_members

CONSTRUCTIONS = load_members("constructions", Construction)
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
AT_A_QUERY = {*REGRESSION, *SPARSE, *DESCENT, "alpha", "heard_above", "threshold", "transform_size"}
RIVALS = [
    *("averaging", "gradient-descent", "ista", "least-squares", "newton"),
    *("preconditioned-gradient-descent", "ridge"),
]
ALL_RIVALS = {"lista-vm", "newton", "preconditioned-gradient-descent"}
"""Constructions for regression that are compared with every candidate, the others with `RIVALS`."""


@pytest.mark.parametrize("name", sorted(CONSTRUCTIONS))
def test_a_built_file_is_identified(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.safetensors"
    build(name, instances=2, **SETTINGS[name]).save(path)
    model = load_model(str(path))
    own = get_name(type(CONSTRUCTIONS[name].from_values(SETTINGS[name]).algorithm))
    rivals = sorted({own, *RIVALS}) if SETTINGS[name].keys() <= AT_A_QUERY else None
    found = identify(model, algorithms=None if name in ALL_RIVALS else rivals, prompts=32, steps=6)
    assert found.algorithm == own, str(found)
    for k, layer in enumerate(found.layers, 1):
        assert (layer.algorithm, layer.fit) == (own, "match"), str(found)
        assert layer.score >= 0.999
        assert layer.step in (k, None)
