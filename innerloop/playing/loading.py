"""Load a player from a file: a network trained to decide, or a built transformer that acts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from innerloop import sealed
from innerloop.certification.building import restore_construction
from innerloop.constructions.acting import ActingConstruction
from innerloop.errors import InputError
from innerloop.parameters import parse_settings
from innerloop.playing.player import TransformerPolicy
from innerloop.playing.trained import TrainedPolicy
from innerloop.policies.base import Policy
from innerloop.problems.base import Distribution
from innerloop.problems.environment import Environment
from innerloop.recipes.base import FORMAT
from innerloop.recipes.base import load as load_run
from innerloop.recipes.runs import find_model
from innerloop.registry import find_class, make_member
from innerloop.transformer.file import load as load_built

STEPS = 100
"""Number of steps of a game, if neither a training nor a construction limits it."""


class Player(NamedTuple):
    """A policy from a file, with its environments and the length of its games."""

    policy: Policy[Any, Any]
    environments: Distribution
    steps: int


def load_player(word: str, definition: str | None = None) -> Player:
    """Load a player from a file.

    Args:
        word: Path of a file or of the folder of a run.
        definition: The recipe or construction of the file as `module:attribute` or
            `file.py:attribute`, if it is neither in this package nor registered.
    """
    path = find_model(Path(word))
    if sealed.read_format(path) == FORMAT:
        recipe, model, _ = load_run(path, definition)
        policy = TrainedPolicy.from_run(recipe, model)
        return Player(policy, recipe.build_distribution(), policy.recipe.horizon_steps)
    transformer, about = load_built(path)
    construction = restore_construction(path, about, definition)
    if not isinstance(construction, ActingConstruction):
        raise InputError(f"expected a construction that chooses actions, got {construction.name}")
    policy = TransformerPolicy(construction=construction, transformer=transformer)
    longest = construction.max_game_steps
    return Player(policy, construction.environments(), STEPS if longest is None else longest)


def select_environments(
    own: Distribution, name: str | None, settings: Sequence[str]
) -> Distribution:
    """Make the environments to play in.

    Args:
        own: The environments for which the player was made.
        name: Name of other environments; None takes `own`.
        settings: Parameters to change, as `key=value`.
    """
    if name is None:
        return replace(own, **parse_settings(type(own), settings)) if settings else own
    kind = find_class("problems", Distribution, name)
    if not issubclass(kind.problem_type, Environment):
        raise InputError(
            f"expected environments to play in, got {name}, which are problems to solve"
        )
    return make_member("problems", Distribution, name, parse_settings(kind, settings))
