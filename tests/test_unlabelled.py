"""Recipes without labels: their starts are the constructions, their losses what they say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import subspace_angles

from innerloop.algorithms.spectral_clustering import SpectralClustering
from innerloop.errors import InputError
from innerloop.identification.models import answer_problem
from innerloop.identification.trained import TrainedModel
from innerloop.models.encoder import Encoder
from innerloop.problems.mixture_of_regressions import MixtureProblem
from innerloop.recipes.binary_mixture import BinaryMixtureRecipe
from innerloop.recipes.gaussian_mixture import GaussianMixtureRecipe
from innerloop.recipes.mixture_of_regressions import MixtureOfRegressionsRecipe, find_oracle
from innerloop.recipes.pca import PCARecipe, measure_sines, solve_eigenproblem
from innerloop.recipes.points import PointsRecipe, cut_points

BUILT: list[tuple[type[PointsRecipe], dict[str, Any]]] = [
    (PCARecipe, {"d": 3, "n": 8, "components": 2, "blocks": 4}),
    (PCARecipe, {"d": 3, "n": 8, "pooling": "free"}),
    (GaussianMixtureRecipe, {"d": 2, "n": 9, "starts": True}),
    (BinaryMixtureRecipe, {"d": 3, "n": 8}),
    (MixtureOfRegressionsRecipe, {"d": 2, "n": 9, "starts": True}),
]


def draw(recipe: PointsRecipe, count: int = 6) -> Any:
    generator = torch.Generator().manual_seed(3)
    return recipe.build_distribution().sample(count, generator=generator)


@pytest.mark.parametrize(("kind", "settings"), BUILT)
def test_a_start_at_a_construction_is_its_algorithm(kind: Any, settings: dict[str, Any]) -> None:
    recipe = kind(start="construction", **settings)
    model = recipe.build_model(torch.Generator().manual_seed(0)).double()
    problem, algorithm = draw(recipe), recipe.build_construction().algorithm
    *_, state = algorithm.states(problem, max(recipe.blocks, getattr(recipe, "components", 1)))
    expected = algorithm.predict(problem, state)
    with torch.no_grad():
        read = recipe.predict(model, problem)
        last = recipe.predict_layers(model, problem)[-1]
        near = kind(start="near", **settings).build_model(torch.Generator().manual_seed(0))
    expected = expected[..., :1] if kind is BinaryMixtureRecipe else expected
    # Float32 weights and few knots: far below the change that one step of the algorithm makes.
    torch.testing.assert_close(read.flatten(), expected.flatten(), rtol=0.02, atol=0.02)
    torch.testing.assert_close(last, recipe.shape_answers(read))
    assert any(
        not torch.equal(one, other.double())
        for one, other in zip(model.parameters(), near.parameters(), strict=True)
    )


def test_the_loss_of_directions_is_least_for_numpys_eigenvectors() -> None:
    problem = draw(PCARecipe(d=4, n=9, components=2))
    values, vectors = solve_eigenproblem(problem)
    for k in range(6):
        found = np.linalg.svd(problem.x[k].numpy() / 3.0)
        np.testing.assert_allclose(values[k], found.S[:2] ** 2, rtol=1e-10)
        np.testing.assert_allclose(
            np.abs(vectors[k].numpy() @ found.Vh[:2].T), np.eye(2), atol=1e-8
        )


class Constant(torch.nn.Module):
    """Reads out the same numbers whatever the prompt."""

    def __init__(self, numbers: torch.Tensor) -> None:
        super().__init__()
        self.numbers = torch.nn.Parameter(numbers)

    def forward(self, tokens: torch.Tensor, points: int) -> torch.Tensor:
        return self.numbers


def test_the_printed_loss_needs_signs_and_the_other_does_not() -> None:
    problem = draw(PCARecipe(d=3, n=9, components=1))
    _, vectors = solve_eigenproblem(problem)
    up = vectors * vectors.sum(dim=-1, keepdim=True).sign()
    losses = {
        (fixed, sign): PCARecipe(d=3, n=9, fixed=fixed).losses(
            Constant(sign * up.flatten(1)), problem
        )
        for fixed in (False, True)
        for sign in (1, -1)
    }
    for key in ((False, 1), (False, -1), (True, 1)):
        torch.testing.assert_close(losses[key].detach(), torch.zeros(6).double())
    torch.testing.assert_close(losses[True, -1].detach(), torch.full((6,), 2.0).double())
    led = PCARecipe(d=3, n=9, fixed=True, auxiliary=True)
    sides = (vectors * problem.start).sum(dim=-1, keepdim=True).sign()
    with torch.no_grad():
        found = [led.losses(Constant(s * (sides * vectors).flatten(1)), problem) for s in (1, -1)]
    torch.testing.assert_close(
        torch.stack(found), torch.tensor([[0.0], [2.0]]).double().expand(2, 6)
    )
    far = PCARecipe(d=3, n=9, wanted="eigenvalues")
    values, _ = solve_eigenproblem(problem)
    with torch.no_grad():
        found = far.losses(Constant(values + 2), problem)
        relative = far.measure(Constant(2 * values), problem)
    torch.testing.assert_close(found, torch.full((6,), 4.0).double())
    assert relative == pytest.approx({"relative": 1.0})


def test_principal_angles_are_scipys() -> None:
    generator = torch.Generator().manual_seed(1)
    one, other = torch.randn(2, 5, 2, 4, generator=generator, dtype=torch.float64)
    other = torch.linalg.qr(other.mT)[0].mT
    sines = [
        np.sin(subspace_angles(a.T, b.T)) ** 2
        for a, b in zip(one.numpy(), other.numpy(), strict=True)
    ]
    assert float(measure_sines(one, other)) == pytest.approx(np.mean(sines), rel=1e-10)


def test_the_oracle_predicts_with_the_mean_of_the_true_vectors() -> None:
    problem = draw(MixtureOfRegressionsRecipe(d=3, n=9))
    assert problem.betas is not None
    expected = np.einsum("bqd,bkd->bq", problem.x_query, problem.betas / 3)
    np.testing.assert_allclose(find_oracle(problem).numpy(), expected, atol=1e-12)
    bare = MixtureProblem(problem.x, problem.y, problem.x_query, problem.start)
    with pytest.raises(InputError, match="true vectors"):
        find_oracle(bare)


def test_a_pool_of_instances_is_drawn_once() -> None:
    objective = BinaryMixtureRecipe(d=2, n=4, pool=3, batch=50).build_objective()
    drawn = [objective.draw(torch.Generator().manual_seed(seed)).x for seed in (0, 1)]
    assert not torch.equal(*drawn)
    assert len(torch.cat(drawn).unique(dim=0)) == 3
    other = BinaryMixtureRecipe(d=2, n=4, pool=3, batch=50, pool_seed=1).build_objective()
    again = other.draw(torch.Generator().manual_seed(0)).x
    assert len(torch.cat([*drawn, again]).unique(dim=0)) == 6


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        (PCARecipe, {"components": 6}, "at most d=5"),
        (PCARecipe, {"width": 5}, "width must be at least 6"),
        (PCARecipe, {"auxiliary": True, "n": 3}, "auxiliary needs n"),
        (PCARecipe, {"auxiliary": True, "start": "near"}, "leave auxiliary out"),
        (PCARecipe, {"wanted": "eigenvalues", "fixed": True}, "eigenvalues have neither signs"),
        (PCARecipe, {"noise_scale": 0.1}, "does not use noise_scale"),
        (PCARecipe, {"pool_seed": 1}, "leave it out"),
        (PCARecipe, {"start": "near", "heads": 4}, "the construction's heads"),
        (PCARecipe, {"start": "near", "supervise": "all"}, "the construction's supervise"),
        (PCARecipe, {"shortest": 21}, "shortest must be at most n=20"),
        (PCARecipe, {"shortest": 5, "pooling": "free"}, "fits only one length"),
        (GaussianMixtureRecipe, {"start": "near"}, "set starts=true"),
        (GaussianMixtureRecipe, {"n": 2}, "clusters must be at most n=2"),
        (MixtureOfRegressionsRecipe, {"start": "near"}, "set starts=true"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    kind: Any, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        kind(**settings)


def test_a_read_out_with_weights_for_tokens_takes_that_many() -> None:
    recipe = PCARecipe(d=2, n=4, width=8, hidden=4, pooling="free")
    model = recipe.build_model(torch.Generator().manual_seed(0))
    longer = draw(PCARecipe(d=2, n=5)).to(torch.float32)
    with pytest.raises(InputError, match="each of 4 points, got 5"):
        recipe.predict(model, longer)
    with pytest.raises(InputError, match="no weights for tokens"):
        Encoder(model.machine, "points", torch.ones(1, 8), torch.ones(4))


@pytest.mark.parametrize("kind", [PCARecipe, GaussianMixtureRecipe, MixtureOfRegressionsRecipe])
def test_supervising_all_layers_trains_on_the_mean_of_their_losses(kind: Any) -> None:
    recipe = kind(**kind.small, supervise="all")
    model = recipe.build_model(torch.Generator().manual_seed(0))
    problem = draw(recipe).to(torch.float32)
    tokens, targets = recipe.make_prompt(problem), recipe.find_targets(problem)
    with torch.no_grad():
        each = [
            recipe.compare(model.read(snapshot.stream, problem.n), targets)
            for snapshot in list(model.machine.trace(tokens, problem.n))[1:]
        ]
        trained, last = recipe.train_losses(model, problem), recipe.losses(model, problem)
        objective = recipe.build_objective()
        minimised = objective.loss(model, problem)
    assert len(each) == recipe.blocks
    torch.testing.assert_close(trained, sum(each) / len(each))
    torch.testing.assert_close(last, each[-1])
    assert float(minimised) == pytest.approx(float(trained.mean()))
    assert abs(float(trained.mean() - last.mean())) > 1e-4


def test_batches_have_every_length_from_the_shortest_on() -> None:
    recipe = MixtureOfRegressionsRecipe(d=2, n=9, shortest=4)
    problem = draw(recipe)
    lengths = [recipe.simplify_batch(problem, step).n for step in range(60)]
    assert set(lengths) == set(range(4, 10))
    assert max(lengths.count(n) for n in set(lengths)) <= 13
    cut = recipe.simplify_batch(problem, 7)
    assert cut.y.shape == cut.x.shape[:-1]
    assert torch.equal(cut.x, problem.x[:, : cut.n])
    assert torch.equal(cut.betas, problem.betas)
    whole = MixtureOfRegressionsRecipe(d=2, n=9).simplify_batch(problem, 7)
    assert whole is problem


def make_bad(name: str) -> tuple[PointsRecipe, Any]:
    """A recipe, and a problem that its models cannot answer."""
    pca = PCARecipe(d=3, n=8, components=2, width=8, hidden=4)
    clouds = GaussianMixtureRecipe(d=2, n=5, width=8, hidden=4)
    mixture = MixtureOfRegressionsRecipe(d=2, n=5, components=2, width=10, hidden=4)
    points = draw(pca)
    if name == "features":
        return pca, draw(PCARecipe(d=4, n=8, components=2))
    if name == "rank":
        return pca, replace(points, x=points.x[..., :1] * torch.ones(3).double())
    if name == "few points":
        return clouds, cut_points(draw(clouds), 2)
    if name == "one point":
        binary = BinaryMixtureRecipe(d=2, n=5, width=8, hidden=4)
        return binary, cut_points(draw(binary), 1)
    if name == "NaN labels":
        return mixture, break_rule(draw(mixture), "y")
    return clouds, break_rule(draw(clouds), "x")


def break_rule(problem: Any, name: str) -> Any:
    """Put a NaN into a tensor of a problem that was sound when it was made."""
    getattr(problem, name).flatten()[3] = torch.nan
    return problem


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("features", "trained on points of 3 features, got 4"),
        ("rank", "X has rank 1 in some prompt, which leaves 2"),
        ("few points", "3 clusters need at least as many points, got 2"),
        ("one point", "at least two points for two clouds"),
        ("NaN points", "x must be finite"),
        ("NaN labels", "y must be finite"),
    ],
)
def test_problems_that_no_model_can_answer_are_refused(name: str, words: str) -> None:
    recipe, problem = make_bad(name)
    model = recipe.build_model(torch.Generator().manual_seed(0))
    with pytest.raises(InputError, match=words):
        TrainedModel(recipe, model).predict(problem)


def test_scores_of_two_clouds_have_the_sign_of_the_iteration_from_the_start() -> None:
    recipe = BinaryMixtureRecipe(d=3, n=8, separation=5.0)
    problem = draw(recipe).to(torch.float32)
    algorithm = SpectralClustering(torch.tensor(0.1, dtype=torch.float64))
    *_, state = algorithm.states(problem.to(torch.float64), 30)
    expected = algorithm.predict(problem.to(torch.float64), state)[..., 0].sign()
    built = BinaryMixtureRecipe(d=3, n=8, separation=5.0, start="construction", blocks=8)
    model = built.build_model(torch.Generator().manual_seed(0))
    with torch.no_grad():
        answers = [built.predict_layers(model, problem)[-1]]
        model.left.neg_()  # the same network with the other common sign
        answers.append(built.predict_layers(model, problem)[-1])
    for each in answers:
        assert torch.equal(each[..., 0].sign().double(), expected)
        torch.testing.assert_close(each[..., 1], each[..., 0].tanh())


def test_identification_compares_directions_and_shares() -> None:
    pca = PCARecipe(d=3, n=8, components=2, width=8, hidden=4)
    clouds = GaussianMixtureRecipe(d=2, n=5, width=8, hidden=4)
    families = []
    for recipe in (pca, clouds):
        model = TrainedModel(recipe, recipe.build_model(torch.Generator().manual_seed(0)))
        families.append(answer_problem(model, draw(recipe)).family.name)
    assert families == ["directions", "shares of clusters"]


def test_names_of_clusters_are_matched_before_they_are_compared() -> None:
    recipe = GaussianMixtureRecipe(d=2, n=9, width=8, hidden=4)
    model = recipe.build_model(torch.Generator().manual_seed(0))
    problem = draw(recipe)
    first = TrainedModel(recipe, model).predict(problem)
    with torch.no_grad():
        model.left.copy_(model.left[[2, 0, 1]])
    torch.testing.assert_close(TrainedModel(recipe, model).predict(problem), first)
