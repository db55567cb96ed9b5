"""`--inside` finds the state in every layer of built models, and none in impostors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from impostors import DESCENT, NEWTON, build_descent, build_printed_descent, build_side_by_side
from small_settings import SETTINGS
from torch import Tensor, nn

from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.constructions.base import Construction
from innerloop.constructions.lista_vm import ListaVMConstruction
from innerloop.errors import InputError
from innerloop.identification.hooked import HookedModel
from innerloop.identification.inside.hooks import as_stream_model
from innerloop.identification.inside.looking import look_inside
from innerloop.identification.inside.streams import BuiltStreams
from innerloop.identification.models import FunctionModel, answer_problem
from innerloop.identification.trained import TrainedModel
from innerloop.problems.linear_regression import LinearRegression
from innerloop.recipes.gaussian_mixture import GaussianMixtureRecipe
from innerloop.recipes.pca import PCARecipe
from innerloop.recipes.small_transformer import SmallTransformerRecipe
from innerloop.registry import load_members
from innerloop.report.inside import draw_inside
from innerloop.transformer.disguises import change_basis, draw_rotation, split_heads

SMALLER: dict[str, dict[str, Any]] = {
    "packed-ucb-vi": {"d": 1},
    "ucb-vi": {"d": 1},
}
CONSTRUCTIONS = {
    name: kind.from_values({**SETTINGS[name], **SMALLER.get(name, {})})
    for name, kind in load_members("constructions", Construction).items()
}


def show(construction: Construction) -> BuiltStreams:
    return BuiltStreams(construction, construction.transformer)


@pytest.mark.parametrize("name", sorted(CONSTRUCTIONS))
def test_answers_state_and_intervention_agree_at_every_layer(name: str) -> None:
    construction = CONSTRUCTIONS[name]
    found = look_inside(show(construction), construction.algorithm, prompts=32)
    assert found.agrees, found.text
    assert found.verdict.endswith("answers, state and intervention agree at every layer")
    for layer in found.layers:
        assert layer.intervention is not None
        assert layer.intervention.effect > 0.999
        assert layer.intervention.random < 0.9
        for reading in layer.readings:
            assert reading.r2 > 0.999
            assert max(reading.prompt, reading.random, reading.shuffled) < 0.9999


def test_newton_beside_printed_gradient_descent_is_read_and_moves_nothing() -> None:
    model = build_side_by_side(steps=2)
    newton = look_inside(model, NEWTON, prompts=32)
    assert not newton.agrees
    for layer in newton.layers:
        assert layer.state_agrees
        assert not layer.answers_agree
        assert layer.intervention is not None
        assert abs(layer.intervention.effect) < 1e-9
    chart = draw_inside(newton).to_dict()
    assert [panel["title"] for panel in chart["hconcat"]] == ["answers", "state", "intervention"]
    assert chart["title"]["text"] == newton.verdict


def test_answers_that_a_read_out_computes_have_no_state() -> None:
    model = build_printed_descent(steps=2)
    descent = look_inside(model, DESCENT, prompts=32)
    assert all(layer.answers_agree for layer in descent.layers)
    assert not any(layer.state_agrees or layer.intervention_agrees for layer in descent.layers)
    assert "answers agree at every layer, state at no layer" in descent.verdict
    newton = look_inside(model, NEWTON, prompts=32)
    assert all(layer.state_agrees and not layer.intervention_agrees for layer in newton.layers)


def test_another_algorithm_is_not_found() -> None:
    found = look_inside(show(build_descent(2, 8, 2)), NEWTON, prompts=32)
    assert not any(layer.state_agrees for layer in found.layers)


def test_what_the_prompt_nearly_holds_is_not_found() -> None:
    """Residuals after a tiny step are nearly the labels: R² is high, and says nothing."""
    tiny = GradientDescent(torch.tensor([0.003], dtype=torch.float64))
    found = look_inside(build_printed_descent(steps=1), tiny, prompts=32)
    assert not found.layers[0].state_agrees
    exact = look_inside(
        show(replace(build_descent(2, 8, 1), step_size=0.003)), tiny, prompts=32
    ).layers[0]
    (reading,) = exact.readings
    assert reading.prompt > 0.99
    assert exact.state_agrees


@pytest.mark.parametrize("name", ["preconditioned-gradient-descent", "newton", "lista-vm"])
def test_a_disguise_hides_nothing(name: str) -> None:
    construction = CONSTRUCTIONS[name]
    generator = torch.Generator().manual_seed(0)
    basis = draw_rotation(construction.layout.width, generator, dead=2)
    disguised = change_basis(split_heads(construction.transformer, generator), basis)
    found = look_inside(
        BuiltStreams(construction, disguised, basis), construction.algorithm, prompts=32
    )
    assert found.agrees, found.text


class PlainAttention(nn.Module):
    """One step of gradient descent on the last entry of each token, by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.tensor([0.3], dtype=torch.float64))

    def forward(self, stream: Tensor) -> tuple[Tensor, None]:
        rows, label = stream[..., :-1], stream[..., -1:]
        known = rows[:, :-1]
        update = rows @ known.mT @ label[:, :-1] / known.shape[1]
        return torch.cat([rows, label - self.rate * update], dim=-1), None


class PlainNetwork(nn.Module):
    """A module of the user's own, whose layers return tuples."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(PlainAttention() for _ in range(3))

    def forward(self, tokens: Tensor) -> Tensor:
        for layer in self.layers:
            tokens = layer(tokens)[0]
        return -tokens[:, -1, -1]


def write_tokens(problem: Any) -> Tensor:
    label = torch.cat([problem.y, torch.zeros_like(problem.y[:, :1])], dim=-1)
    return torch.cat([torch.cat([problem.x, problem.x_query], 1), label.unsqueeze(-1)], dim=-1)


def test_a_module_is_read_and_moved_by_hooks() -> None:
    distribution = LinearRegression(d=2, n=7)
    model = HookedModel.fit(PlainNetwork(), distribution, write_tokens, prompts=64)
    streams = as_stream_model(model).read_streams(distribution.sample(2))
    assert [tuple(stream.shape) for stream in streams] == [(2, 8, 3)] * 4
    # Its read-outs are fitted to the truth: what is moved is read at the last layers' answers.
    found = look_inside(model, DESCENT, distribution, prompts=32)
    assert all(layer.state_agrees for layer in found.layers)
    assert found.as_dict()["layers"][0]["readings"][0]["view"] == "residuals of state on each token"
    effects = [layer.intervention.effect for layer in found.layers if layer.intervention]
    assert len(effects) == 3
    assert min(effects) > 0.5


def test_a_trained_network_is_reported_without_expectation() -> None:
    recipe = SmallTransformerRecipe(d=2, n=3, sparsity=1, blocks=2, heads=2)
    model = TrainedModel(recipe, recipe.build_model(torch.Generator().manual_seed(0)))
    found = look_inside(model, ListaVMConstruction(d=2, n=3, steps=2).algorithm, prompts=32)
    assert len(found.layers) == 2
    assert not found.agrees
    assert str(found).count("\n") == 2


@pytest.mark.parametrize(
    "recipe",
    [
        GaussianMixtureRecipe(d=2, n=8, clusters=2, width=8, hidden=4),
        PCARecipe(d=3, n=8, components=1, width=8, hidden=4),
    ],
    ids=["shares", "directions"],
)
def test_answers_of_a_trained_network_are_those_that_identify_compares(recipe: Any) -> None:
    model = TrainedModel(recipe, recipe.build_model(torch.Generator().manual_seed(0)))
    problem = recipe.build_distribution().sample(5, generator=torch.Generator().manual_seed(1))
    streams = as_stream_model(model)
    answers, expected = streams.predict(problem), answer_problem(model, problem).vectors
    torch.testing.assert_close(answers.double(), expected, atol=1e-6, rtol=0)
    layer = streams.read_streams(problem)[2]
    torch.testing.assert_close(streams.resume(problem, 2, layer), answers[1:])


def test_what_shows_no_stream_is_refused() -> None:
    model = FunctionModel(lambda x, y, query: y[:, 0])
    with pytest.raises(InputError, match="stream of a FunctionModel cannot be read"):
        look_inside(model, DESCENT, LinearRegression(d=2))
    with pytest.raises(InputError, match="3 layers: expected as many"):
        look_inside(show(build_descent(2, 5, 3)), DESCENT, steps=[1, 2])
