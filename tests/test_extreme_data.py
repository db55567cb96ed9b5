"""Extreme data: numbers near the largest, tensors with gradients, very long names."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch

import innerloop
from innerloop.recipes.runs import NOTES, load_finished_runs


def test_an_infinite_prediction_is_an_error_whatever_the_size_of_the_data() -> None:
    """1e12 times the largest entry is infinite itself here."""
    built = innerloop.build("newton", d=2, n=4, steps=3, instances=2)
    x = torch.randn(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.full((4,), 1e308, dtype=torch.float64)
    problem = innerloop.RegressionProblem.from_arrays(x, y, 100 * x[:1])
    with pytest.raises(innerloop.InputError, match="is not finite"):
        built.predict(problem)


def test_data_with_gradients_are_taken_without_a_warning() -> None:
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            x = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
            newton = innerloop.build("newton", d=2, n=4, steps=2, instances=2)
            newton.predict(innerloop.RegressionProblem.from_arrays(x, x[:, 0], x[:1]))
            em = innerloop.build("em", d=2, n=4, clusters=2, steps=1, instances=2, bound=9.0)
            em.predict(innerloop.ClusteringProblem.from_arrays(x, x[:2]))
            pca = innerloop.build("pca", d=2, n=4, components=1, steps=1, instances=2)
            pca.predict(innerloop.PCAProblem.from_arrays(x, x[:1]))
    finally:
        torch.set_warn_always(False)


@pytest.mark.parametrize("folder", ["x" * 300, "x/" * 3000, "\0", "a\0b"])
def test_a_note_of_a_folder_that_no_system_has_is_told_and_passed_over(
    tmp_path: Path, folder: str
) -> None:
    (tmp_path / NOTES).mkdir()
    (tmp_path / NOTES / "a.json").write_text(json.dumps({"folder": folder}))
    told: list[tuple[str, str]] = []
    assert not list(load_finished_runs(tmp_path, lambda place, why: told.append((place, why))))
    assert len(told) <= 1
    assert all("the note is damaged" in why for _, why in told)
