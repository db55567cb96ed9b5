"""GPT-2 on sparse recovery: its read-outs, what it learns from, and the curriculum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from innerloop.errors import InputError
from innerloop.models.gpt2 import GPT2
from innerloop.recipes.base import train
from innerloop.recipes.gpt2 import FIRST_FEATURES, GPT2Recipe

SIZES: dict[str, Any] = {"d": 7, "n": 3, "sparsity": 2, "batch": 6}
NETWORK: dict[str, Any] = {"blocks": 2, "heads": 2, "width": 8}


def make_recipe(**settings: Any) -> GPT2Recipe:
    return GPT2Recipe(**{**SIZES, **NETWORK, **settings})


def draw_batch(recipe: GPT2Recipe) -> Any:
    return recipe.build_objective().draw(torch.Generator().manual_seed(1))


def test_a_query_readout_multiplies_what_is_read_with_x() -> None:
    recipe = make_recipe(readout="query", supervision="weights")
    model, problem = recipe.build_model(torch.Generator().manual_seed(0)), draw_batch(recipe)
    assert isinstance(model, GPT2)
    rows = np.concatenate([problem.x.numpy(), problem.x_query.numpy()], axis=-2)
    with torch.no_grad():
        found = model.read(recipe.encode_tokens(problem))[:, 0::2].numpy()
        answers = recipe.predict_prefixes(model, problem).numpy()
        layers = recipe.predict_layers(model, problem).numpy()
        loss = float(recipe.build_objective().loss(model, problem))
    assert found.shape == rows.shape
    np.testing.assert_allclose(answers, np.einsum("bmd,bmd->bm", rows, found), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layers[-1], answers[:, -1:], rtol=1e-4, atol=1e-5)
    missed = ((found - problem.weights.numpy()[:, None]) ** 2).sum(axis=-1)
    assert loss == pytest.approx(missed.mean(), rel=1e-5)


@pytest.mark.parametrize("support", [None, 4])
def test_a_curriculum_begins_with_few_features_and_ends_with_all(support: int | None) -> None:
    recipe = make_recipe(curriculum=3, support=support)
    problem = draw_batch(recipe)
    for step, features in (
        (0, FIRST_FEATURES),
        (2, FIRST_FEATURES),
        (3, FIRST_FEATURES + 1),
        (5, FIRST_FEATURES + 1),
        (6, 7),
        (99, 7),
    ):
        easier = recipe.simplify_batch(problem, step)
        assert easier.weights is not None
        kept = slice(0, features)
        assert torch.equal(easier.x[..., kept], problem.x[..., kept])
        assert torch.equal(easier.x_query[..., kept], problem.x_query[..., kept])
        for part in (easier.x, easier.x_query, easier.weights):
            assert not part[..., features:].any()
        labels = np.einsum("bnd,bd->bn", easier.x.numpy(), easier.weights.numpy())
        np.testing.assert_allclose(easier.y.numpy(), labels, rtol=1e-4, atol=1e-5)
        # No weight is lost, and none is where the support does not reach.
        np.testing.assert_allclose(easier.weights.sum(-1), problem.weights.sum(-1), atol=1e-6)
        assert not easier.weights[..., (support or 7) :].any()
    assert recipe.simplify_batch(problem, 6) is problem
    assert make_recipe().simplify_batch(problem, 0) is problem


def test_a_curriculum_is_what_is_trained_on_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    settings = {**SIZES, **NETWORK, "steps": 6, "warmup": 0, "curriculum": 2}
    whole = train("gpt2", folder=tmp_path / "whole", **settings)
    assert not torch.equal(
        whole.model.get_parameter("read_in.weight"),
        train("gpt2", **{**settings, "curriculum": None}).model.get_parameter("read_in.weight"),
    )

    def stop(share: float, doing: str = "") -> None:
        if share >= 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train("gpt2", folder=tmp_path / "cut", every=0, progress=stop, **settings)
    again = train("gpt2", folder=tmp_path / "cut", resume=True, **settings)
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, again.model.state_dict()[name]), name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"supervision": "weights"}, "does not compute β̂"),
        ({"curriculum": 5, "fixed": 1}, "leave curriculum out"),
        ({"curriculum": 5, "d": 5}, "leave it out"),
        ({"curriculum": 20, "d": 20, "steps": 300}, "a curriculum below 20"),
        ({"curriculum": 5, "optimizer": "lbfgs", "redraw": 0, "clip": None}, "leave curriculum"),
        ({"curriculum": 0}, "curriculum"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        GPT2Recipe.from_values(settings)
