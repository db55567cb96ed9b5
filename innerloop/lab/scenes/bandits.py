"""Bandits: a transformer plays, and its regret is compared with that of the policy that it runs.

At every turn there are three actions, which are points of the plane. The reward of an action is
⟨action, w⟩ plus noise. The prompt is the game so far, and all layers run at every turn.
Transformer and policy play with the same random numbers.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from innerloop.certification.building import BuiltTransformer
from innerloop.constructions.acting import ActingConstruction
from innerloop.lab.builds import INSTANCES, describe_certificate, get_build
from innerloop.lab.controls import SEED, Choice, Control, Slider, Values, read_list, read_number
from innerloop.lab.python import DIGITS, format_call, format_value
from innerloop.lab.recording import Recording, describe_last, record
from innerloop.lab.scene import Scene
from innerloop.playing.player import TransformerPolicy
from innerloop.policies.rollout import Draws, Rollout, play
from innerloop.policies.uniform import UniformPolicy
from innerloop.problems.environment import sample_inverse_cdf
from innerloop.problems.linear_bandit_games import BanditGameProblem
from innerloop.problems.linear_bandits import LinearBandit
from innerloop.progress import Progress

TURNS, ARMS, STEPS = 20, 3, 24
NAMES = {"soft-lin-ucb": "LinUCB", "thompson-sampling": "Thompson sampling"}
REACH = 1.5
POLICY = Choice("policy", "policy", NAMES)
NOISE = Slider("noise", "noise of the rewards", 0.0, 0.6, 0.05, 0.2)


class BanditsScene(Scene):
    """Play one game with a transformer, and with the policy that it runs."""

    place: ClassVar[int] = 5
    tab: ClassVar[str] = "Bandits"
    title: ClassVar[str] = "A transformer plays and learns what pays"
    hint: ClassVar[str] = (
        "Drag the orange arrow: the hidden direction in which actions are rewarded. At every turn "
        "the transformer chooses one of three actions from what it has seen. Its policy plays the "
        "same game with the same luck."
    )
    controls: ClassVar[tuple[Control, ...]] = (POLICY, NOISE)

    def run(self, values: Values, progress: Progress) -> dict[str, Any]:
        name, noise = POLICY.read(values), NOISE.read(values)
        seed = SEED.read_whole(values)
        weights = read_weights(values)
        built = get_build(name, progress, **choose())
        environment = make_environment(built, weights, noise, seed)
        games, recording = play_games(built, environment, seed)
        ours, policy = games["transformer"], games["policy"]
        after = recording.after_step(STEPS)[0::2]
        estimates = recording.layout.read(after, "behind")[:, 0]
        visible = [2 * t for t in range(TURNS + 1)]
        tokens = [
            f"turn {t}: {kind}" for t in range(1, TURNS + 1) for kind in ("actions", "choice")
        ]
        layers = [0, 1, len(recording.blocks) // 2, len(recording.blocks) - 1]
        same = int((ours.history.actions == policy.history.actions).sum())
        gap = float((ours.probabilities - policy.probabilities).abs().max())
        here = (
            f"Here, transformer and policy chose alike in {same} of {TURNS} turns; the odds that "
            f"they gave differ by at most {gap:.1g}."
        )
        return {
            "frames": describe_turns(ours, environment, len(recording.blocks)),
            "opening": TURNS,
            "picture": {
                "weights": weights,
                "features": environment.features[0, :TURNS].tolist(),
                "means": environment.means[0, :TURNS].tolist(),
                "odds": ours.probabilities[0].tolist(),
                "actions": ours.history.actions[0].tolist(),
                "policy_actions": policy.history.actions[0].tolist(),
                "rewards": ours.history.rewards[0].tolist(),
                "estimates": estimates.tolist(),
            },
            "error": {
                "label": "regret so far",
                "linear": True,
                "series": [
                    {"name": title, "kind": kind, "values": sum_regret(games[key])}
                    for title, kind, key in (
                        ("transformer", "transformer", "transformer"),
                        (NAMES[name], "reference", "policy"),
                        ("choosing at random", "other", "uniform"),
                    )
                ],
            },
            **describe_last(recording, tokens, visible, layers),
            "certificate": describe_certificate(built.certificate, here),
            "python": write_program(name, weights, noise, seed),
        }


def choose() -> dict[str, Any]:
    """Return the parameters with which this scene builds its construction."""
    return {"d": 2, "n": TURNS, "arms": ARMS, "steps": STEPS}


def read_weights(values: Values) -> list[float]:
    """Read the hidden direction w from a request."""
    pair = read_list(values.get("weights"), "weights", 2, 2)
    weights = [read_number(part, "weights") for part in pair]
    return [round(max(-REACH, min(REACH, part)), DIGITS) for part in weights]


def make_environment(
    built: BuiltTransformer, weights: list[float], noise: float, seed: int
) -> LinearBandit:
    """Make the environment of a game with random action sets, from w and the noise."""
    assert isinstance(built.construction, ActingConstruction)
    generator = torch.Generator().manual_seed(seed)
    drawn = built.construction.environments().sample(1, generator=generator)
    return LinearBandit(drawn.features, torch.tensor([weights], dtype=torch.float64), noise)


def play_games(
    built: BuiltTransformer, environment: LinearBandit, seed: int
) -> tuple[dict[str, Rollout], Recording]:
    """Play a game with the transformer, its policy and the uniform policy; they share all draws.

    Return the three games, and the recording of the transformer's forward pass.
    """
    assert isinstance(built.construction, ActingConstruction)
    player = TransformerPolicy.from_built(built)
    draws = Draws.sample(player, environment, TURNS, seed)
    policy = play(built.construction.policy, environment, draws)
    ours, recording = review_game(built, policy, draws)
    if not torch.equal(ours.history.actions, choose_actions(ours, draws)):
        ours = play(player, environment, draws)
        recording = review_game(built, ours, draws)[1]
    games = {"transformer": ours, "policy": policy}
    return {**games, "uniform": play(UniformPolicy(), environment, draws)}, recording


def review_game(built: BuiltTransformer, game: Rollout, draws: Draws) -> tuple[Rollout, Recording]:
    """Run the transformer once over a finished game, and return its probabilities at every turn.

    Attention is causal, so later turns do not change earlier ones. If its probabilities and the
    random draws give the actions of the game, the transformer would have played the same game.
    """
    assert isinstance(built.construction, ActingConstruction)
    normals = draws.noise.movedim(0, -2) if draws.noise.shape[-1] else None
    problem = BanditGameProblem.from_history(game.history, normals)[0]
    recording = record(built, problem)
    odds = built.construction.log_odds(recording.streams[-1][0::2]).softmax(dim=-1)
    return game._replace(probabilities=odds.unsqueeze(0)), recording


def choose_actions(game: Rollout, draws: Draws) -> Tensor:
    """Return the action that the probabilities and random draws of a game give in each turn."""
    return sample_inverse_cdf(game.probabilities, draws.lots.movedim(0, -1))


def sum_regret(game: Rollout) -> list[float]:
    """Return the total regret after 0, 1, … turns."""
    return [0.0, *game.regret[0].cumsum(dim=-1).tolist()]


def describe_turns(game: Rollout, environment: LinearBandit, layers: int) -> list[dict[str, Any]]:
    """Describe each turn: the chosen action, its probability and its regret."""
    total = sum_regret(game)
    frames = [
        {
            "label": "before the first turn",
            "layers": f"all {layers} layers run at every turn",
            "note": "nothing is known yet",
        }
    ]
    for t in range(TURNS):
        action = int(game.history.actions[0, t])
        odds, mean = float(game.probabilities[0, t, action]), environment.means[0, t]
        best = int(mean.argmax())
        verdict = "the best" if action == best else f"number {best + 1} would be best"
        frames.append(
            {
                "label": f"turn {t + 1} of {TURNS}",
                "layers": f"all {layers} layers run at every turn",
                "note": f"it takes action {action + 1} with odds of {odds:.0%}: {verdict}. "
                f"Reward {float(game.history.rewards[0, t]):.2f}, regret so far {total[t + 1]:.2f}",
            }
        )
    return frames


def write_program(name: str, weights: list[float], noise: float, seed: int) -> str:
    """Write the program that prints the regret after every turn."""
    return f"""import torch

import innerloop

built = {format_call(name, {**choose(), "instances": INSTANCES})}
assert built.certificate.holds
generator = torch.Generator().manual_seed({seed})
drawn = built.construction.environments().sample(1, generator=generator)
weights = torch.tensor([{format_value(weights)}], dtype=torch.float64)
environment = innerloop.LinearBandit(drawn.features, weights, {noise!r})
player = innerloop.TransformerPolicy.from_built(built)
game = innerloop.rollout(player, environment, {TURNS}, {seed})
for turn, regret in enumerate(game.regret[0].cumsum(-1).tolist(), 1):
    print(turn, regret)
"""
