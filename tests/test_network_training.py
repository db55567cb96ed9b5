"""Training on the functions of random networks: tokens, causality and the loss, each by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import innerloop
from innerloop.recipes.network_regression import NetworkRegressionRecipe


def make(**settings: Any) -> NetworkRegressionRecipe:
    small = NetworkRegressionRecipe.small
    return NetworkRegressionRecipe(**{**small, "warmup": 0, "steps": 1, **settings})


def make_generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_tokens_ask_and_tell_in_turn() -> None:
    recipe = make(n=2)
    problem = recipe.build_distribution().sample(1, generator=make_generator())
    x, y, query = (part[0].tolist() for part in (problem.x, problem.y, problem.x_query))
    expected = [
        *([*x[0], 0.0, 1.0], [*x[0], *y[0], 0.0], [*x[1], 0.0, 1.0], [*x[1], *y[1], 0.0]),
        [*query, 0.0, 1.0],
    ]
    assert recipe.encode_tokens(problem)[0].tolist() == expected


@pytest.mark.parametrize("network", ["gpt2", "transformer"])
def test_a_prediction_knows_the_examples_before_it_alone(network: str) -> None:
    recipe = make(network=network)
    model = recipe.build_model(make_generator())
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=make_generator(3)))
        problem = recipe.build_distribution().sample(
            4, generator=make_generator(1), dtype=torch.float32
        )
        first = recipe.predict_prefixes(model, problem)
        problem.y[:, 1] += 1.0
        second = recipe.predict_prefixes(model, problem)
        layers = recipe.predict_layers(model, problem)
    assert first.shape == (4, 4)
    assert torch.equal(first[:, :2], second[:, :2])
    assert not torch.allclose(first[:, 2:], second[:, 2:])
    assert layers.shape == (3, 4, 1)
    assert torch.allclose(layers[-1, :, 0], second[:, -1])


def test_the_loss_is_the_error_at_every_prefix() -> None:
    """Against NumPy's forward pass of the teachers."""
    recipe = make(batch=16)
    objective, model = recipe.build_objective(), recipe.build_model(make_generator())
    batch = objective.draw(make_generator(2))
    assert batch.teacher is not None
    rows = torch.cat([batch.x, batch.x_query[:, None]], dim=1).numpy()
    for matrix in batch.teacher:
        rows = np.maximum(rows @ matrix.numpy().transpose(0, 2, 1), 0)
    with torch.no_grad():
        said = recipe.predict_prefixes(model, batch).numpy()
        assert float(objective.loss(model, batch)) == pytest.approx(
            float(np.mean((said - rows[..., 0]) ** 2)), rel=1e-5
        )
        assert set(objective.evaluate(model)) == {"loss", "prefixes"}


def test_it_is_trained_and_identified() -> None:
    run = innerloop.train(make(steps=2))
    found = innerloop.identify(run, prompts=16, steps=2, algorithms=["network-gradient-descent"])
    assert len(found.layers) == make().blocks + 1
