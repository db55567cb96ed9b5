"""Every construction of the package, through its file: its own algorithm at every layer."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_settings import DESCENT, REGRESSION, SETTINGS, SPARSE

from innerloop.certification.building import build
from innerloop.constructions.base import Construction
from innerloop.identification.identification import identify
from innerloop.identification.loading import load_model
from innerloop.registry import get_name, load_members

CONSTRUCTIONS = load_members("constructions", Construction)
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
