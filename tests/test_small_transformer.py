"""How Small TF is trained: features that share what they learn, layers that double, its loss."""

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
from innerloop.recipes.small_transformer import SmallTransformer
from innerloop.recipes.sparse import LARGE, LOST
from innerloop.training import checkpoint
from innerloop.training.loop import Training, fit
from innerloop.training.symmetry import Orbits, orbits, places
from innerloop.transformer import Layout

D = 3
SMALL: dict[str, Any] = {"d": D, "n": 2, "sparsity": 1, "heads": 2, "batch": 4, "warmup": 0}


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def model_of(recipe: SmallTransformer) -> Decoder:
    model = recipe.model(generator()).double()
    assert isinstance(model, Decoder)
    return model


def renaming(order: tuple[int, ...], places: int) -> np.ndarray:
    """ρ(π) on streams x, y, beta, odd, side by side."""
    one = np.eye(1)
    stream = [np.eye(D)[list(order)], one, np.eye(D)[list(order)], one]
    width = 2 * D + 2
    moved = np.zeros((width, width))
    offset = 0
    for part in stream:
        moved[offset : offset + len(part), offset : offset + len(part)] = part
        offset += len(part)
    return np.kron(np.eye(places // width), moved)


@pytest.mark.parametrize("support", [None, 1, 2])
def test_the_mean_over_orbits_is_the_mean_over_all_renamings(support: int | None) -> None:
    """Of all features, or of those of the support and of the others, each among themselves."""
    machine = model_of(SmallTransformer(**SMALL, blocks=1)).machine
    among = orbits(machine, support)
    inside = set(range(support or D))
    orders = [order for order in permutations(range(D)) if set(order[: len(inside)]) == inside]
    assert len(orders) == (6 if support is None else 2)
    for name, weight in machine.named_parameters():
        drawn = torch.randn(weight.shape, generator=generator(), dtype=torch.float64)
        matrix = drawn if drawn.ndim > 1 else drawn.unsqueeze(-1)
        rows, columns = matrix.shape[-2:]
        expected = np.mean(
            [
                renaming(order, rows)
                @ matrix.numpy()
                @ (renaming(order, columns).T if columns > 1 else np.eye(1))
                for order in orders
            ],
            axis=0,
        )
        np.testing.assert_allclose(among[name].average(matrix).numpy(), expected, atol=1e-14)


def test_random_weights_that_are_alike_are_so_and_of_the_size_they_say() -> None:
    stream = places(Layout(x=4, y=(), beta=4))
    among = Orbits.of(stream, stream)
    drawn = among.random((1000,), 0.5, generator())
    torch.testing.assert_close(among.average(drawn), drawn)
    for orbit in range(int(among.number.max()) + 1):
        parts = (drawn * (among.number == orbit)).numpy()
        norms = np.linalg.norm(parts, ord=2, axis=(-2, -1))
        assert np.sqrt(np.mean(norms**2)) == pytest.approx(0.5, rel=0.1)
    with pytest.raises(InputError, match="of one length"):
        places(Layout(x=4, beta=3))
    with pytest.raises(InputError, match="multiple of the width 8"):
        orbits(model_of(SmallTransformer(**SMALL, blocks=1, hidden=9)).machine)


def renamed(problem: RegressionProblem, order: list[int]) -> RegressionProblem:
    assert problem.weights is not None
    x, query, weights = (part[..., order] for part in (problem.x, problem.x_query, problem.weights))
    return RegressionProblem(x, problem.y, query, weights)


@pytest.mark.parametrize(("support", "order"), [(None, [2, 0, 1]), (2, [1, 0, 2])])
def test_features_stay_alike_while_gradients_are_shared_and_not_after(
    support: int | None, order: list[int]
) -> None:
    recipe = SmallTransformer(
        **SMALL, blocks=2, start="symmetric", steps=5, sharing=3, support=support
    )
    training = Training(recipe.model(generator()).double(), recipe.objective(), recipe)
    training.objective = DoubleBatches(recipe)
    problem = recipe.problems().sample(6, generator=generator())
    for step in range(5):
        training.advance()
        labels, other = (
            recipe.answers(training.model, p) for p in (problem, renamed(problem, order))
        )
        assert torch.allclose(labels, other, atol=1e-12, rtol=1e-12) == (step < 3)


class DoubleBatches:
    """The objective of a recipe in double precision."""

    def __init__(self, recipe: SmallTransformer) -> None:
        self.own = recipe.objective()

    def draw(self, generator: torch.Generator) -> RegressionProblem:
        return self.own.draw(generator).to(torch.float64)

    def loss(self, model: Any, batch: Any) -> Tensor:
        return self.own.loss(model, batch)

    def evaluate(self, model: Any) -> dict[str, float]:
        return {"loss": 0.0}


def test_layers_double_as_copies_and_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    grown = {"blocks": 4, "growth": [2, 3], "sharing": 3, "supervision": "weights"}
    recipe = SmallTransformer.made({**SMALL, **grown, "steps": 5, "evaluate_every": 1})
    whole = fit(Training(recipe.model(generator()), recipe.objective(), recipe, seed=1))
    path, depths, part = tmp_path / "checkpoint.safetensors", [], None
    for _ in range(5):
        part = Training(recipe.model(generator()), recipe.objective(), recipe, seed=1)
        with checkpoint.own_random_states(part.seed):
            if path.exists():
                part.restore(checkpoint.read(path)[1])
            part.advance()
            checkpoint.write(path, {}, part.state())
        assert isinstance(part.model, Decoder)
        depths.append(part.model.depth)
    assert part is not None
    assert depths == [1, 1, 2, 4, 4]
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, part.model.state_dict()[name]), name
    model = model_of(recipe)
    recipe.prepare(model, 2)
    first, second, third, _ = (block.state_dict() for block in model.machine.blocks())
    assert all(torch.equal(weight, second[name]) for name, weight in first.items())
    assert not all(torch.equal(weight, third[name]) for name, weight in first.items())


def test_fewer_layers_are_the_first_ones() -> None:
    recipe = SmallTransformer(**SMALL, blocks=3)
    model = model_of(recipe)
    problem = recipe.problems().sample(4, generator=generator())
    layers = recipe.layers(model, problem)
    for depth in range(4):
        model.depth = depth
        torch.testing.assert_close(recipe.answers(model, problem)[..., -1:], layers[depth])


def test_the_loss_on_weights_is_that_on_labels_over_all_queries() -> None:
    recipe = SmallTransformer(**SMALL, blocks=1, supervision="weights", emphasis=2)
    model = model_of(recipe)
    problem = recipe.problems().sample(4, generator=generator())
    assert problem.weights is not None
    stream = model.stream(recipe.construction.prompt(problem)).detach().numpy()
    read = model.reading.detach().numpy()
    missed = stream[:, 0::2] @ read.T - problem.weights.numpy()[:, None]
    expected = np.average((missed**2).sum(-1).mean(0), weights=[1, 4, 9])
    assert float(recipe.objective().loss(model, problem).detach()) == pytest.approx(expected)
    rows = recipe.construction.prompt(problem)[:, 0::2, :D].numpy()
    labels = recipe.objective().errors(model, problem).detach().numpy()
    np.testing.assert_allclose(labels, (missed * rows).sum(-1) ** 2, atol=1e-12)


def test_a_large_error_counts_by_its_logarithm() -> None:
    recipe = SmallTransformer(**SMALL, blocks=1, prefixes=False)
    model, objective = model_of(recipe), recipe.objective()
    problem = recipe.problems().sample(1, generator=generator())
    far = RegressionProblem(problem.x, problem.y, 100 * problem.x_query, problem.weights)
    error = float(objective.errors(model, far).detach()[0, -1])
    assert LARGE < error < LOST
    loss = float(objective.loss(model, far).detach())
    assert loss == pytest.approx(LARGE * (1 + np.log(error / LARGE)))


def test_prompts_that_run_away_are_learned_from_where_they_still_can_be() -> None:
    recipe = SmallTransformer(**SMALL, blocks=2, supervision="weights")
    model, objective = model_of(recipe), recipe.objective()
    problem = recipe.problems().sample(4, generator=generator())
    second = model.machine.blocks()[1].attention
    assert second is not None
    with torch.no_grad():
        second.value.mul_(1e9)
    loss = objective.loss(model, problem)
    loss.backward()
    assert second.value.grad is None
    assert model.depth is None
    model.depth = 1
    torch.testing.assert_close(loss.detach(), recipe.missed(model, problem).mean().detach())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"growth": [3], "blocks": 3}, "multiple of 2 layers"),
        ({"growth": [0.5]}, "different whole numbers"),
        ({"growth": [5, 5]}, "different whole numbers"),
        ({"growth": [5], "start": "near"}, "does not use growth"),
        ({"supervision": "weights", "readout": "linear"}, "no β̂"),
        ({"emphasis": 1, "prefixes": False}, "does not use emphasis"),
        ({"sharing": 5, "start": "near"}, "does not use sharing"),
        ({"sharing": 5, "fixed": 0}, "not alike"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SmallTransformer.made(settings)
