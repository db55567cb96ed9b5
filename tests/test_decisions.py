"""Networks that learn to decide: labels, tokens, caches and play, each against another way."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import vl_convert

import innerloop
from innerloop.errors import InputError, OutOfRangeError
from innerloop.models.decider import Decider
from innerloop.models.gpt2 import GPT2
from innerloop.playing.comparison import choose_references, list_regret_rows, play_players
from innerloop.playing.trained import TrainedPolicy
from innerloop.policies.lin_ucb import LinUCBPolicy
from innerloop.policies.rollout import rollout
from innerloop.policies.uniform import UniformPolicy
from innerloop.problems.bernoulli_bandits import BernoulliBandits
from innerloop.problems.linear_bandit_games import BanditGameProblem
from innerloop.problems.linear_bandits import LinearBandits
from innerloop.recipes.bernoulli_bandits import BernoulliBanditsRecipe
from innerloop.recipes.decisions import DecisionRecipe, Steps
from innerloop.recipes.linear_bandits import LinearBanditsRecipe
from innerloop.recipes.tabular_mdps import TabularMDPsRecipe
from innerloop.report.regret import plot_players

RECIPES: list[type[DecisionRecipe]] = [
    LinearBanditsRecipe,
    BernoulliBanditsRecipe,
    TabularMDPsRecipe,
]


def make(kind: type[DecisionRecipe], **settings: Any) -> DecisionRecipe:
    return kind(**{**kind.small, "horizon_steps": 4, "warmup": 0, "steps": 1, **settings})


def make_generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randomise(model: torch.nn.Module, deviation: float = 0.4) -> torch.nn.Module:
    """Move weights away from a start at which all odds are equal."""
    generator = make_generator(7)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(deviation * torch.randn(weight.shape, generator=generator))
    return model


@pytest.mark.parametrize("attention", ["relu", "softmax"])
def test_relu_attention_in_the_library_is_its_formula(attention: str) -> None:
    """The first layer's attention, recomputed from its weights, and causality by differences."""
    torch.manual_seed(0)
    model = GPT2(3, width=8, layers=2, heads=2, tokens=6, outputs=4, attention=attention)  # pyright: ignore[reportArgumentType]
    randomise(model.double())
    prompt = torch.randn(5, 6, 3, dtype=torch.float64, generator=make_generator())
    block, caught = model.network.h[0], []
    block.attn.register_forward_hook(lambda module, given, out: caught.append(out[0]))
    model(prompt)
    stream = block.ln_1(model.read_in(prompt) + model.network.wpe(torch.arange(6)))
    mixed = stream @ block.attn.c_attn.weight + block.attn.c_attn.bias
    query, key, value = (x.unflatten(-1, (2, 4)).transpose(1, 2) for x in mixed.split(8, dim=-1))
    scores = query @ key.mT / 2
    if attention == "relu":
        weights = scores.tril().relu() / torch.arange(1, 7)[:, None]
    else:
        hidden = torch.ones(6, 6, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)
    heads = (weights @ value).transpose(1, 2).flatten(2)
    expected = heads @ block.attn.c_proj.weight + block.attn.c_proj.bias
    assert torch.allclose(caught[0], expected, atol=1e-12)


@pytest.mark.parametrize("network", ["gpt2", "transformer"])
@pytest.mark.parametrize("kind", RECIPES)
def test_step_by_step_is_the_whole_game(kind: type[DecisionRecipe], network: str) -> None:
    """Odds with a cache are those of one pass over the game, whatever else was asked meanwhile."""
    recipe = make(kind, network=network, width=24)
    model = randomise(recipe.build_model(make_generator()))
    environment = recipe.build_distribution().sample(6, generator=make_generator(1))
    policy = TrainedPolicy.from_run(recipe, model)
    played = rollout(policy, environment, recipe.horizon_steps, 3)
    if isinstance(recipe, TabularMDPsRecipe):
        states, actions, rewards = played.history
        sizes = environment.states, environment.actions
        problem: Any = innerloop.TabularGameProblem(states, actions, rewards, sizes)
    else:
        problem = BanditGameProblem.from_history(played.history)
    layers = recipe.predict_layers(model, problem)
    assert layers.shape[0] == recipe.blocks + 1
    whole = layers[-1].detach().softmax(dim=-1)
    assert torch.allclose(whole.double(), played.probabilities, atol=2e-5)
    assert float((whole - 1 / recipe.actions).abs().max()) > 0.05  # it is not all equal odds


@pytest.mark.parametrize("kind", RECIPES)
def test_odds_depend_on_the_past_alone(kind: type[DecisionRecipe]) -> None:
    """A change at step t leaves the odds before and at t, and moves those after."""
    recipe = make(kind)
    model = randomise(recipe.build_model(make_generator()))
    games = recipe.draw_games(5, make_generator(2)).steps
    at = recipe.horizon_steps - 2
    rewards = games.rewards.clone()
    rewards[:, at] += 1
    first = recipe.compute_log_odds(model, games)
    second = recipe.compute_log_odds(model, games._replace(rewards=rewards))
    assert torch.equal(first[:, : at + 1], second[:, : at + 1])
    assert not torch.allclose(first[:, at + 1], second[:, at + 1])


def test_labels_of_distillation_are_the_experts_own_odds() -> None:
    """Against a rollout of the expert alone in the same environments with the same luck."""
    recipe = make(LinearBanditsRecipe, horizon_steps=6, temperature=0.4)
    games = recipe.draw_games(9, make_generator(5))
    generator = make_generator(5)
    environment = recipe.build_distribution().sample(9, generator=generator)
    played = rollout(LinUCBPolicy(alpha=2.0, ridge=1.0, temperature=0.4), environment, 6, generator)
    assert torch.equal(games.steps.actions, played.history.actions)
    assert torch.allclose(games.odds.double(), played.probabilities, atol=1e-6)
    assert games.steps.observations.shape == (9, 1, 6)  # a fixed set of actions is stored once


@pytest.mark.parametrize("kind", RECIPES)
def test_labels_of_decisions_are_the_best_actions(kind: type[DecisionRecipe]) -> None:
    recipe = make(kind, setup="decision", pool=None)
    assert isinstance(recipe.list_behaviours()[0], UniformPolicy)
    games = recipe.draw_games(8, make_generator(3))
    assert torch.equal(games.odds.sum(dim=-1), torch.ones(8, recipe.horizon_steps))
    if isinstance(recipe, LinearBanditsRecipe):
        generator = make_generator(3)
        environment = recipe.build_distribution().sample(4, generator=generator)
        best = environment.means.squeeze(-2).argmax(dim=-1)
        assert torch.equal(games.odds[:4].argmax(dim=-1), best[:, None].expand(-1, 4))


def test_the_loss_is_the_experts_cross_entropy() -> None:
    """By hand, with torch's own loss for probabilities; measures follow from it."""
    recipe = make(BernoulliBanditsRecipe, policy="ucb")
    objective, model = recipe.build_objective(), randomise(recipe.build_model(make_generator()))
    batch = objective.draw(make_generator(4))
    logits = model(recipe.encode_tokens(batch.steps))
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.odds.flatten(0, 1))
    assert torch.allclose(objective.loss(model, batch), expected)
    with torch.no_grad():
        measures = objective.evaluate(model)
    assert 0 < measures["divergence"] <= measures["loss"]
    assert 0 < measures["agreement"] < 1


def test_a_pool_is_the_same_games_again() -> None:
    recipe = make(LinearBanditsRecipe, pool=3, batch=40)
    batch = recipe.build_objective().draw(make_generator())
    assert len(batch.steps.rewards.unique(dim=0)) == 3
    again = make(LinearBanditsRecipe, pool=3, batch=40).build_objective().draw(make_generator())
    assert torch.equal(batch.odds, again.odds)
    other = make(LinearBanditsRecipe, pool=3, batch=40, pool_seed=1).build_objective()
    assert not torch.equal(batch.steps.rewards, other.draw(make_generator()).steps.rewards)
    fresh = make(LinearBanditsRecipe, pool=None, batch=40).build_objective().draw(make_generator())
    assert len(fresh.steps.rewards.unique(dim=0)) == 40


def test_a_network_learns_to_imitate() -> None:
    """UCB1 tries each arm once, then the one that paid: hardly a step is left to chance."""
    recipe = make(
        BernoulliBanditsRecipe,
        **{"arms": 2, "horizon_steps": 6, "policy": "ucb", "pool": 400, "batch": 64},
        **{"network": "transformer", "width": 16, "blocks": 2, "attention": "softmax"},
        **{"steps": 150, "learning_rate": 1e-2},
    )
    run = innerloop.train(recipe)
    assert run.final["divergence"] < run.history[0]["divergence"] / 4


def test_players_share_their_luck() -> None:
    environment = LinearBandits(d=2, arms=3, noise=0.5).sample(20, generator=make_generator(6))
    same = {"one": LinUCBPolicy(alpha=1.0), "two": LinUCBPolicy(alpha=1.0)}
    played = play_players({**same, "uniform": UniformPolicy()}, environment, 30, seed=2)
    assert torch.equal(played["one"].history.rewards, played["two"].history.rewards)
    rows = list_regret_rows(played)
    assert len(rows) == 90
    last = {row["player"]: row for row in rows if row["t"] == 30}
    assert last["one"]["regret"] < last["uniform"]["regret"]
    assert "optimal" not in choose_references(None, environment)
    assert list(choose_references(["optimal"], environment)) == ["optimal"]
    with pytest.raises(OutOfRangeError, match="ucb-vi cannot play in this environment, only"):
        choose_references(["ucb-vi"], environment)


def test_what_does_not_fit_is_refused() -> None:
    recipe = make(LinearBanditsRecipe)
    policy = TrainedPolicy.from_run(recipe, recipe.build_model(make_generator()))
    for environment, word in (
        (LinearBandits(d=2, arms=4).sample(2), "3 actions of 2 features, got 4 of 2"),
        (BernoulliBandits(arms=3).sample(2), "3 actions of 2 features, got 3 of 3"),
    ):
        with pytest.raises(OutOfRangeError, match=word):
            rollout(policy, environment, 2)
    with pytest.raises(OutOfRangeError, match="games of 4 steps"):
        rollout(policy, recipe.build_distribution().sample(2), 5)
    with pytest.raises(InputError, match="whole episodes of 2, got 5"):
        make(TabularMDPsRecipe, horizon_steps=5)
    with pytest.raises(InputError, match="RiverSwim has 2 actions"):
        make(TabularMDPsRecipe, problem="river", arms=3)
    with pytest.raises(InputError, match="width must be at least"):
        Decider.with_random_weights(
            9, width=8, layers=1, heads=1, outputs=2, kind="relu", generator=make_generator()
        )
    other = innerloop.train("linear-attention", d=2, n=3, steps=1, batch=4)
    with pytest.raises(InputError, match="expected a run that trained a policy"):
        TrainedPolicy.from_run(other.recipe, other.model)


def test_the_command_plays(tmp_path: Path, run) -> None:
    recipe = make(LinearBanditsRecipe)
    innerloop.train(recipe, folder=tmp_path / "run")
    word = str(tmp_path / "run")
    done = run("play", word, "--games", "20", "--against", "uniform", "--against", "lin-ucb")
    assert done.code == 0, done.err
    assert "regret after 4 steps" in done.out
    assert all(name in done.out for name in ("linear-bandits, trained", "uniform", "lin-ucb"))
    assert "its teacher" not in done.out
    assert "lin-ucb, its teacher" in run("play", word, "--games", "4").out
    for words, message in (
        (["--environment", "linear-regression"], "expected environments to play in"),
        (["--against", "nobody"], "nobody cannot play in this environment"),
        (["--steps", "9"], "games of 4 steps"),
        (["-s", "arms=4"], "3 actions of 2 features, got 4 of 2"),
    ):
        failed = run("play", word, "--games", "4", *words)
        assert failed.code == 2
        assert message in failed.err
        assert failed.err.count("\n") == 1


def test_a_set_of_steps_is_what_it_says() -> None:
    """Tokens by hand: 1, time, what was chosen and earned before, what is shown."""
    recipe = make(LinearBanditsRecipe, horizon_steps=2)
    shown = torch.tensor([[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]])
    games = Steps(shown, torch.tensor([[1, 0]]), torch.tensor([[7.0, 8.0]]))
    tokens = recipe.encode_tokens(games)
    features = shown.flatten().tolist()
    assert tokens.tolist() == [
        [[1.0, 0.0, 0.0, 0.0, 0.0, *features], [1.0, 0.5, 3.0, 4.0, 7.0, *features]]
    ]


def test_a_distilled_network_is_identified_as_any_policy() -> None:
    """What `train` returns goes in as it is; candidates are policies with their numbers."""
    run = innerloop.train(make(LinearBanditsRecipe, horizon_steps=20, pool=40))
    found = innerloop.identify(run, prompts=16, steps=2, algorithms=["lin-ucb", "uniform"])
    assert found.layers[0].name == "embedding"
    assert len(found.layers) == run.recipe.values()["blocks"] + 1


@pytest.mark.parametrize("count", [3, 11])
def test_no_two_players_of_a_figure_share_a_colour(count: int) -> None:
    rows = [
        {"player": f"player {k}", "t": t, "regret": float(t), "low": 0.0, "high": 9.0}
        for k in range(count)
        for t in (1, 2)
    ]
    drawn = vl_convert.vegalite_to_svg(plot_players(rows, title="regret").to_dict())
    lines = re.findall(r"mark-line.*?</g>", drawn, flags=re.S)
    colours = re.findall(r'stroke="(#\w+)"', "".join(lines))
    assert len(set(colours)) == count
