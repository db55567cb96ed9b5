"""bfloat16 in training: a loss curve beside float32's, and only where a recipe allows it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from innerloop.errors import InputError
from innerloop.recipes.base import train
from innerloop.recipes.linear_attention import LinearAttentionRecipe
from innerloop.recipes.network_regression import NetworkRegressionRecipe
from innerloop.recipes.small_transformer import SmallTransformerRecipe

SMALL: dict[str, Any] = {
    **{"d": 2, "n": 6, "layers": 2, "units": 2, "batch": 16, "network": "transformer"},
    **{"blocks": 2, "heads": 2, "width": 16, "steps": 40, "evaluate_every": 10, "warmup": 0},
    "learning_rate": 1e-2,
}


def test_a_training_in_bfloat16_follows_that_in_float32() -> None:
    whole, half = (
        train(NetworkRegressionRecipe, precision=precision, **SMALL)
        for precision in ("float32", "bfloat16")
    )
    curves = [[row["loss"] for row in run.history] for run in (whole, half)]
    assert curves[0] != curves[1]
    assert curves[0][0] == curves[1][0], "evaluations are in float32"
    assert curves[0][-1] < 0.9 * curves[0][0]
    for one, other in zip(*curves, strict=True):
        assert other == pytest.approx(one, rel=0.01)
    assert all(w.dtype == torch.float32 for w in half.model.parameters())


def test_small_tf_in_bfloat16_follows_that_in_float32_and_is_not_compiled() -> None:
    sizes: dict[str, Any] = {"d": 3, "n": 4, "sparsity": 1, "blocks": 2, "batch": 64}
    options: dict[str, Any] = {"steps": 60, "evaluate_every": 20, "warmup": 5, "sharing": 60}
    options |= {"learning_rate": 2e-2, "supervision": "weights", "emphasis": 2}
    whole, half = (
        train("small-transformer", precision=precision, **sizes, **options)
        for precision in ("float32", "bfloat16")
    )
    curves = [[row["loss"] for row in run.history] for run in (whole, half)]
    assert curves[0] != curves[1]
    assert curves[0][0] == curves[1][0], "evaluations are in float32"
    for curve in curves:
        assert curve[-1] < 0.6 * curve[0]
    assert curves[1][-1] == pytest.approx(curves[0][-1], rel=0.05)
    with pytest.raises(InputError, match=r"^compiled applies only to recipes that train networks"):
        SmallTransformerRecipe(compiled=True)


def test_recipes_of_exact_losses_refuse_it() -> None:
    refused: list[dict[str, Any]] = [{"precision": "bfloat16"}, {"compiled": True}]
    for settings in refused:
        with pytest.raises(InputError, match="applies only to recipes that train networks"):
            LinearAttentionRecipe(**settings)
    assert NetworkRegressionRecipe(compiled=True).compiled
