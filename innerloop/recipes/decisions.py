"""Base classes of recipes in which a network imitates an expert's decisions in recorded games.

Games    environments are drawn, and a policy plays in them; several policies play equal shares
Labels   the expert's probabilities of actions at every step, conditional on the game so far. There
         are the two set-ups of Lin et al. 2023. In distillation, the expert also plays (Laskin et
         al. 2022). In decision, the best action is the label; half of the games are played
         uniformly at random, half by the expert of distillation (Lee et al. 2023)
Tokens   one per step: 1, the time, the previous action and reward, and the current observation
Loss     −Σ expert's probability · log probability, averaged over all steps of all games; so the
         network is trained on every prefix of a game at once
Model    the `transformers` library's GPT-2 with ReLU attention, as in the source, or with softmax;
         or a causal transformer of this package with trainable weights
Pool     games that are drawn once (their number is the n of the source's Theorem 6), or new games
         for every batch, which take longer to play than to learn from
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from innerloop.devices import default_to_cpu, move
from innerloop.errors import OutOfRangeError
from innerloop.parameters import parameter
from innerloop.policies.base import Policy
from innerloop.policies.optimal import OptimalPolicy
from innerloop.policies.rollout import Draws
from innerloop.policies.uniform import UniformPolicy
from innerloop.problems.environment import Environment, sample_inverse_cdf
from innerloop.recipes.backbone import AttentionKind, Network, build_backbone
from innerloop.recipes.base import Recipe

EXAMPLES = 256
"""Number of games on which measures are computed."""


class Steps(NamedTuple):
    """Observations, actions and rewards of games; constant observations are stored for one step."""

    observations: Float[Tensor, "*batch steps numbers"]
    actions: Int[Tensor, "*batch steps"]
    rewards: Float[Tensor, "*batch steps"]


class LabelledGames(NamedTuple):
    """Games, with the expert's probabilities of the actions at every step."""

    steps: Steps
    odds: Float[Tensor, "*batch steps actions"]

    def select(self, index: Int[Tensor, " games"]) -> LabelledGames:
        """Return the games with these indices."""
        return LabelledGames(Steps(*(part[index] for part in self.steps)), self.odds[index])


@dataclass(frozen=True)
class ImitationObjective:
    """The cross-entropy with the expert's probabilities, on a fixed pool of games or new ones."""

    draw_games: Callable[[int, torch.Generator], LabelledGames]
    log_odds: Callable[[nn.Module, Steps], Float[Tensor, "batch steps actions"]]
    batch: int
    pool: int | None
    pool_seed: int

    def draw(self, generator: torch.Generator) -> LabelledGames:
        if self.pool is None:
            return self.draw_games(self.batch, generator)
        return self._pooled.select(torch.randint(self.pool, (self.batch,), generator=generator))

    def loss(self, model: nn.Module, batch: LabelledGames) -> Tensor:
        batch = move(batch, next(model.parameters()).device)
        return -(batch.odds * self.log_odds(model, batch.steps)).sum(dim=-1).mean()

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        batch = move(self._held_out, next(model.parameters()).device)
        logs = self.log_odds(model, batch.steps)
        loss = -(batch.odds * logs).sum(dim=-1).mean()
        entropy = -torch.xlogy(batch.odds, batch.odds).sum(dim=-1).mean()
        agreement = (batch.odds * logs.exp()).sum(dim=-1).mean()
        return {
            "loss": float(loss),
            "divergence": float(loss - entropy),
            "agreement": float(agreement),
        }

    def compute_blank_loss(self, model: nn.Module) -> float:
        """Compute the loss of a uniform choice among the actions."""
        return math.log(self._held_out.odds.shape[-1])

    @cached_property
    def _pooled(self) -> LabelledGames:
        generator = torch.Generator().manual_seed(2**31 + self.pool_seed)
        return self.draw_games(self.pool or 1, generator)

    @cached_property
    def _held_out(self) -> LabelledGames:
        with default_to_cpu():
            return self.draw_games(EXAMPLES, torch.Generator().manual_seed(2**31 - 1))


class DecisionRecipe(Recipe, ABC):
    """A network that imitates an expert; subclasses define the policies and the environments."""

    is_network: ClassVar[bool] = True

    horizon_steps: int = parameter(200, "T, steps of a game", least=1, most=100_000)
    setup: Literal["distillation", "decision"] = parameter(
        "distillation", "imitate the expert that plays, or the best action"
    )
    network: Network = parameter("gpt2", "GPT-2 of transformers, or this package's")
    attention: AttentionKind = parameter("relu", "kind of attention")
    blocks: int = parameter(4, "layers", least=1, most=48)
    heads: int = parameter(4, "heads in a layer", least=1, most=64)
    width: int = parameter(64, "width of the stream", least=1, most=2048)
    pool: int | None = parameter(
        10_000, "games to learn from; none means fresh ones in every batch", least=1, most=10**7
    )
    pool_seed: int = parameter(0, "seed of the pool of games", least=0, most=2**31 - 1)
    batch: int = parameter(32, "games in a batch", least=1, most=100_000)
    learning_rate: float = parameter(1e-3, "peak of the schedule", least=0)
    warmup: int = parameter(100, "steps in which the learning rate rises from 0", least=0)
    schedule: Literal["constant", "cosine", "linear", "halving"] = parameter(
        "cosine", "of the learning rate"
    )
    clip: float | None = parameter(1.0, "clip the norm of the whole gradient to this", least=0)
    steps: int = parameter(3000, "steps of the optimiser", least=1)
    evaluate_every: int = parameter(250, "steps between evaluations", least=1)

    @property
    @abstractmethod
    def actions(self) -> int:
        """The number of actions to choose from."""

    @property
    @abstractmethod
    def observation_size(self) -> int:
        """The number of entries of an observation."""

    @cached_property
    @abstractmethod
    def teacher(self) -> Policy[Any, Any]:
        """The policy that plays the games, and that the network imitates under distillation."""

    def build_expert(self) -> Policy[Any, Any]:
        """Build the expert that labels the games."""
        return self.teacher if self.setup == "distillation" else OptimalPolicy()

    def list_behaviours(self) -> Sequence[Policy[Any, Any]]:
        """List the policies that play the games; each plays an equal share of them."""
        alone = self.setup == "distillation"
        return [self.teacher] if alone else [UniformPolicy(), self.teacher]

    @abstractmethod
    def show(self, observation: Any) -> Float[Tensor, "*batch numbers"]:
        """Encode an observation as the numbers that a token contains."""

    @abstractmethod
    def describe_actions(
        self, observations: Float[Tensor, "*batch numbers"], actions: Int[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch described"]:
        """Encode actions as numbers; `observations` are those at which they were chosen."""

    @abstractmethod
    def read_problem(self, problem: Any) -> Steps:
        """Return the steps of recorded games."""

    @abstractmethod
    def check_environment(self, environment: Environment) -> None:
        """Raise `OutOfRangeError` for environments that the network cannot read."""

    @property
    def inputs(self) -> int:
        """The number of entries of a token."""
        nothing = torch.zeros(1, self.observation_size), torch.zeros(1, dtype=torch.long)
        return 2 + self.describe_actions(*nothing).shape[-1] + 1 + self.observation_size

    def build_model(self, generator: torch.Generator) -> nn.Module:
        return build_backbone(
            self.network,
            self.inputs,
            width=self.width,
            layers=self.blocks,
            heads=self.heads,
            tokens=self.horizon_steps,
            outputs=self.actions,
            attention=self.attention,
            generator=generator,
        )

    def build_objective(self) -> ImitationObjective:
        return ImitationObjective(
            self.draw_games, self.compute_log_odds, self.batch, self.pool, self.pool_seed
        )

    def draw_games(self, count: int, generator: torch.Generator) -> LabelledGames:
        """Draw environments, play games, and label every step with the expert's probabilities."""
        behaviours, expert = self.list_behaviours(), self.build_expert()
        bounds = [k * count // len(behaviours) for k in range(len(behaviours) + 1)]
        parts = [
            self._play(behaviour, expert, last - first, generator)
            for behaviour, first, last in zip(behaviours, bounds, bounds[1:], strict=False)
            if last > first
        ]
        steps = Steps(*(torch.cat(each) for each in zip(*(p.steps for p in parts), strict=True)))
        return LabelledGames(steps, torch.cat([part.odds for part in parts]))

    def _play(
        self,
        behaviour: Policy[Any, Any],
        expert: Policy[Any, Any],
        count: int,
        generator: torch.Generator,
    ) -> LabelledGames:
        environment = self.build_distribution().sample(count, generator=generator)
        draws = Draws.sample(behaviour, environment, self.horizon_steps, generator)
        alike = behaviour is expert
        draws_of_expert = (
            draws if alike else Draws.sample(expert, environment, self.horizon_steps, generator)
        )
        state, expert_state = behaviour.init_state(environment), expert.init_state(environment)
        previous, rows = None, []
        for t in range(self.horizon_steps):
            observation = environment.observe(t, draws.luck[t], previous)
            odds = expert.probabilities(expert_state, observation, draws_of_expert.noise[t])
            chances = odds if alike else behaviour.probabilities(state, observation, draws.noise[t])
            action = sample_inverse_cdf(chances, draws.lots[t])
            reward = environment.reward(observation, action, draws.luck[t])
            expert_state = expert.update(expert_state, observation, action, reward)
            state = expert_state if alike else behaviour.update(state, observation, action, reward)
            previous = (observation, action)
            rows.append((self.show(observation), action, reward, odds))
        observations, actions, rewards, odds = zip(*rows, strict=True)
        numbers = torch.stack(observations, dim=-2).float()
        if bool((numbers == numbers[:, :1]).all()):
            numbers = numbers[:, :1].clone()  # a fixed set of actions is stored once
        steps = Steps(numbers, torch.stack(actions, dim=-1), torch.stack(rewards, dim=-1).float())
        return LabelledGames(steps, torch.stack(odds, dim=-2).float())

    def encode_tokens(self, games: Steps) -> Float[Tensor, "batch steps inputs"]:
        """Encode whole games, one token for every step."""
        count = games.actions.shape[-1]
        observations = games.observations.expand(-1, count, -1)
        before = self.describe_actions(observations, games.actions)
        before = torch.cat(
            [before.to(observations), games.rewards.unsqueeze(-1).to(observations)], dim=-1
        )
        before = torch.cat([torch.zeros_like(before[:, :1]), before[:, :-1]], dim=1)
        return torch.cat([self._mark_time(observations, 0), before, observations], dim=-1)

    def encode_step(
        self,
        t: int,
        observation: Float[Tensor, "batch numbers"],
        previous: tuple[Tensor, Tensor, Tensor] | None,
    ) -> Float[Tensor, "batch 1 inputs"]:
        """Encode one step; `previous` is the observation, action and reward of the last step."""
        if previous is None:
            before = observation.new_zeros(
                *observation.shape[:-1], self.inputs - 2 - self.observation_size
            )
        else:
            described = self.describe_actions(previous[0], previous[1]).to(observation)
            before = torch.cat([described, previous[2].unsqueeze(-1).to(observation)], dim=-1)
        time = self._mark_time(observation.unsqueeze(-2), t)
        rows = (before.unsqueeze(-2), observation.unsqueeze(-2))
        return torch.cat([time, *rows], dim=-1)

    def _mark_time(self, like: Float[Tensor, "batch steps numbers"], first: int) -> Tensor:
        count = like.shape[-2]
        times = torch.arange(first, first + count, device=like.device, dtype=like.dtype)
        marks = torch.stack([torch.ones_like(times), times / self.horizon_steps], dim=-1)
        return marks.expand(*like.shape[:-1], 2)

    def compute_log_odds(
        self, model: nn.Module, games: Steps
    ) -> Float[Tensor, "batch steps actions"]:
        """Compute the log-probabilities of actions at every step of whole games."""
        return model(self.encode_tokens(games)).log_softmax(dim=-1)

    def predict_layers(self, model: Any, problem: Any) -> Tensor:
        """Return the log-odds after each layer, at every step of recorded games."""
        games = self.read_problem(problem)
        if games.actions.shape[-1] > self.horizon_steps:
            raise OutOfRangeError(
                f"{self.name} was trained on games of {self.horizon_steps} steps, "
                f"got {games.actions.shape[-1]}"
            )
        tensors = (games.observations.float(), games.actions, games.rewards.float())
        return model.predict_layers(self.encode_tokens(Steps(*tensors)))
