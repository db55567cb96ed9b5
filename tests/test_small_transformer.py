"""Training Small TF: gradients shared among features, layers that double, and its loss."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from innerloop.errors import InputError
from innerloop.models.decoder import Decoder
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.recipes.small_transformer import SmallTransformerRecipe
from innerloop.recipes.sparse import LARGE, LOST
from innerloop.training import checkpoint
from innerloop.training.loop import Training, fit
from innerloop.training.symmetry import Orbits, find_orbits, list_places
from innerloop.transformer import Layout

D = 3
SMALL: dict[str, Any] = {"d": D, "n": 2, "sparsity": 1, "heads": 2, "batch": 4, "warmup": 0}


def make_generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def build_model(recipe: SmallTransformerRecipe) -> Decoder:
    model = recipe.build_model(make_generator()).double()
    assert isinstance(model, Decoder)
    return model


def permutation_matrix(order: tuple[int, ...], places: int) -> np.ndarray:
    """The matrix that permutes features in `places` coordinates of streams (x, y, beta, odd)."""
    one = np.eye(1)
    blocks = [np.eye(D)[list(order)], one, np.eye(D)[list(order)], one]
    width = 2 * D + 2
    matrix = np.zeros((width, width))
    offset = 0
    for block in blocks:
        matrix[offset : offset + len(block), offset : offset + len(block)] = block
        offset += len(block)
    return np.kron(np.eye(places // width), matrix)


@pytest.mark.parametrize("support", [None, 1, 2])
def test_the_mean_over_orbits_is_the_mean_over_all_permutations(support: int | None) -> None:
    """With a support, features inside it and features outside it are permuted separately."""
    transformer = build_model(SmallTransformerRecipe(**SMALL, blocks=1)).machine
    orbits = find_orbits(transformer, support)
    inside = set(range(support or D))
    orders = [order for order in permutations(range(D)) if set(order[: len(inside)]) == inside]
    assert len(orders) == (6 if support is None else 2)
    for name, weight in transformer.named_parameters():
        draw = torch.randn(weight.shape, generator=make_generator(), dtype=torch.float64)
        matrix = draw if draw.ndim > 1 else draw.unsqueeze(-1)
        rows, columns = matrix.shape[-2:]
        expected = np.mean(
            [
                permutation_matrix(order, rows)
                @ matrix.numpy()
                @ (permutation_matrix(order, columns).T if columns > 1 else np.eye(1))
                for order in orders
            ],
            axis=0,
        )
        np.testing.assert_allclose(orbits[name].average(matrix).numpy(), expected, atol=1e-14)


def test_symmetric_random_weights_are_symmetric_and_have_the_given_scale() -> None:
    places = list_places(Layout(x=4, y=(), beta=4))
    orbits = Orbits.from_places(places, places)
    draws = orbits.draw_matrix((1000,), 0.5, make_generator())
    torch.testing.assert_close(orbits.average(draws), draws)
    for orbit in range(int(orbits.index.max()) + 1):
        parts = (draws * (orbits.index == orbit)).numpy()
        norms = np.linalg.norm(parts, ord=2, axis=(-2, -1))
        assert np.sqrt(np.mean(norms**2)) == pytest.approx(0.5, rel=0.1)
    with pytest.raises(InputError, match="have the same length"):
        list_places(Layout(x=4, beta=3))
    with pytest.raises(InputError, match="multiple of the width 8"):
        find_orbits(build_model(SmallTransformerRecipe(**SMALL, blocks=1, hidden=9)).machine)


def permute_features(problem: RegressionProblem, order: list[int]) -> RegressionProblem:
    """Reorder the features of a problem."""
    assert problem.weights is not None
    x, query, weights = (part[..., order] for part in (problem.x, problem.x_query, problem.weights))
    return RegressionProblem(x, problem.y, query, weights)


@pytest.mark.parametrize(("support", "order"), [(None, [2, 0, 1]), (2, [1, 0, 2])])
def test_features_stay_interchangeable_only_while_gradients_are_shared(
    support: int | None, order: list[int]
) -> None:
    recipe = SmallTransformerRecipe(
        **SMALL, blocks=2, start="symmetric", steps=5, sharing=3, support=support
    )
    training = Training(
        recipe.build_model(make_generator()).double(), recipe.build_objective(), recipe
    )
    training.objective = DoubleBatches(recipe)
    problem = recipe.build_distribution().sample(6, generator=make_generator())
    for step in range(5):
        training.advance()
        labels, other = (
            recipe.predict_prefixes(training.model, p)
            for p in (problem, permute_features(problem, order))
        )
        assert torch.allclose(labels, other, atol=1e-12, rtol=1e-12) == (step < 3)


class DoubleBatches:
    """The objective of a recipe in double precision."""

    def __init__(self, recipe: SmallTransformerRecipe) -> None:
        self.own = recipe.build_objective()

    def draw(self, generator: torch.Generator) -> RegressionProblem:
        return self.own.draw(generator).to(torch.float64)

    def loss(self, model: Any, batch: Any) -> Tensor:
        return self.own.loss(model, batch)

    def evaluate(self, model: Any) -> dict[str, float]:
        return {"loss": 0.0}


def test_layers_double_as_copies_and_a_stopped_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    growth = {"blocks": 4, "growth": [2, 3], "sharing": 3, "supervision": "weights"}
    recipe = SmallTransformerRecipe.from_values(
        {**SMALL, **growth, "steps": 5, "evaluate_every": 1}
    )
    whole = fit(
        Training(recipe.build_model(make_generator()), recipe.build_objective(), recipe, seed=1)
    )
    path, depths, part = tmp_path / "checkpoint.safetensors", [], None
    for _ in range(5):
        part = Training(
            recipe.build_model(make_generator()), recipe.build_objective(), recipe, seed=1
        )
        with checkpoint.isolate_random_states(part.seed):
            if path.exists():
                part.restore(checkpoint.read(path)[1])
            part.advance()
            checkpoint.write(path, {}, part.capture_state())
        assert isinstance(part.model, Decoder)
        depths.append(part.model.depth)
    assert part is not None
    assert depths == [1, 1, 2, 4, 4]
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, part.model.state_dict()[name]), name
    model = build_model(recipe)
    recipe.prepare_model(model, 2)
    first, second, third, _ = (block.state_dict() for block in model.machine.blocks())
    assert all(torch.equal(weight, second[name]) for name, weight in first.items())
    assert not all(torch.equal(weight, third[name]) for name, weight in first.items())


def test_fewer_layers_are_the_first_ones() -> None:
    recipe = SmallTransformerRecipe(**SMALL, blocks=3)
    model = build_model(recipe)
    problem = recipe.build_distribution().sample(4, generator=make_generator())
    layers = recipe.predict_layers(model, problem)
    for depth in range(4):
        model.depth = depth
        torch.testing.assert_close(recipe.predict_prefixes(model, problem)[..., -1:], layers[depth])


def test_the_loss_on_weights_is_that_on_labels_over_all_queries() -> None:
    recipe = SmallTransformerRecipe(**SMALL, blocks=1, supervision="weights", emphasis=2)
    model = build_model(recipe)
    problem = recipe.build_distribution().sample(4, generator=make_generator())
    assert problem.weights is not None
    stream = model.compute_stream(recipe.construction.prompt(problem)).detach().numpy()
    reading = model.reading.detach().numpy()
    errors = stream[:, 0::2] @ reading.T - problem.weights.numpy()[:, None]
    expected = np.average((errors**2).sum(-1).mean(0), weights=[1, 4, 9])
    assert float(recipe.build_objective().loss(model, problem).detach()) == pytest.approx(expected)
    rows = recipe.construction.prompt(problem)[:, 0::2, :D].numpy()
    labels = recipe.build_objective().label_errors(model, problem).detach().numpy()
    np.testing.assert_allclose(labels, (errors * rows).sum(-1) ** 2, atol=1e-12)


def test_a_large_error_counts_by_its_logarithm() -> None:
    recipe = SmallTransformerRecipe(**SMALL, blocks=1, prefixes=False)
    model, objective = build_model(recipe), recipe.build_objective()
    problem = recipe.build_distribution().sample(1, generator=make_generator())
    far = RegressionProblem(problem.x, problem.y, 100 * problem.x_query, problem.weights)
    error = float(objective.label_errors(model, far).detach()[0, -1])
    assert LARGE < error < LOST
    loss = float(objective.loss(model, far).detach())
    assert loss == pytest.approx(LARGE * (1 + np.log(error / LARGE)))


def test_diverging_prompts_are_learned_from_at_the_last_bounded_layer() -> None:
    recipe = SmallTransformerRecipe(**SMALL, blocks=2, supervision="weights")
    model, objective = build_model(recipe), recipe.build_objective()
    problem = recipe.build_distribution().sample(4, generator=make_generator())
    second = model.machine.blocks()[1].attention
    assert second is not None
    with torch.no_grad():
        second.value.mul_(1e9)
    loss = objective.loss(model, problem)
    loss.backward()
    assert second.value.grad is None
    assert model.depth is None
    model.depth = 1
    torch.testing.assert_close(loss.detach(), recipe.weight_errors(model, problem).mean().detach())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"growth": [3], "blocks": 3}, "multiple of 2"),
        ({"growth": [0.5]}, "distinct whole numbers"),
        ({"growth": [5, 5]}, "distinct whole numbers"),
        ({"growth": [5], "start": "near"}, "does not use growth"),
        ({"supervision": "weights", "readout": "linear"}, "does not compute β̂"),
        ({"emphasis": 1, "prefixes": False}, "does not use emphasis"),
        ({"sharing": 5, "start": "near"}, "does not use sharing"),
        ({"sharing": 5, "fixed": 0}, "not interchangeable"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SmallTransformerRecipe.from_values(settings)
