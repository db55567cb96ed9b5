"""The file of a trained model: weights, recipe, settings, and the conditions of the training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from innerloop import sealed
from innerloop.errors import FileError, MissingLibraryError
from innerloop.jsonfiles import parse_object
from innerloop.limits import check_seed
from innerloop.provenance import spell_command
from innerloop.recipes.continuing import limit_file_model
from innerloop.recipes.definition import Recipe
from innerloop.registry import make_member
from innerloop.training.environment import Environment, is_environment
from innerloop.training.extending import EXTENSIONS
from innerloop.training.history import digest_history
from innerloop.training.loop import Training
from innerloop.training.opening import OPENING, is_opening
from innerloop.training.restoring import check_weights, is_number, require, shorten
from innerloop.training.resuming import ENVIRONMENTS

FORMAT = "innerloop-model"
VERSION = 1


def save_model(
    training: Training, about: dict[str, Any], environment: Environment, path: Path
) -> None:
    """Write the weights of a finished training; `about` names its recipe, settings and seed."""
    recipe = training.settings
    assert isinstance(recipe, Recipe)
    extensions = list(map(list, training.extensions))
    description = {
        **about,
        "ended": training.stop_reason,
        "seconds": round(training.seconds, 3),
        "final": training.history[-1],
        "history_sha256": digest_history(training.history),
        **({OPENING: training.opening.as_dict()} if training.opening else {}),
        **({EXTENSIONS: extensions} if extensions else {}),
        **environment,
        ENVIRONMENTS: training.environments,
        "command": format_command(recipe, about["seed"], environment),
    }
    weights = dict(training.model.state_dict())
    sealed.write(path, weights, {"about": json.dumps(description)}, format=FORMAT, version=VERSION)


def format_command(recipe: Recipe, seed: int, environment: Mapping[str, Any] | None = None) -> str:
    """Return the command line that repeats a run, with its threads and device if they are known."""
    defaults = type(recipe).from_values({}).values()
    threads = (environment or {}).get("threads", 1)
    device = (environment or {}).get("device", "cpu").partition(" ")[0]
    options = {"seed": seed} | ({"threads": threads} if threads != 1 else {})
    options |= {"device": device} if device != "cpu" else {}
    command = spell_command("train", recipe.name, recipe.values(), defaults, options)
    processes = (environment or {}).get("processes", 1)
    return command if processes == 1 else f"torchrun --nproc-per-node {processes} -m {command}"


def load(path: Path, definition: Any = None) -> tuple[Recipe, nn.Module, dict[str, Any]]:
    """Load a trained model from its file: the recipe, the model, and the run's description.

    A file contains the name of its recipe, but code is never imported because a file names it. If
    the recipe is neither in this package nor registered, it must be passed as `definition`. The
    model that the settings define must not be much larger than the weights in the file, and the
    weights must fit the model and be finite.
    """
    metadata, tensors = sealed.read(path, format=FORMAT, version=VERSION)
    try:
        about = parse_object(metadata["about"])
        name = about["recipe"]
        require(isinstance(name, str), f"its recipe must be a name, got {shorten(name)}")
        _check_description(about)
        if definition is None and ":" in name:
            raise FileError(
                f"it was trained by {name!r}, a user-defined recipe: pass it, as "
                f"--definition {name} (it will be imported and run)"
            )
        held = sum(tensor.nbytes for tensor in tensors.values())
        with limit_file_model(held):
            recipe = make_member("recipes", Recipe, definition or name, about["settings"])
            model = recipe.build_model(torch.Generator().manual_seed(about["seed"]))
        check_weights(model, tensors)
        model.load_state_dict(tensors)
    except MissingLibraryError:
        raise
    except (KeyError, ValueError, TypeError, RuntimeError, OverflowError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error).partition("\n")[0]
        raise FileError(f"{path} does not contain the model it describes: {reason[:500]}") from None
    return recipe, model, about


def _check_description(about: dict[str, Any]) -> None:
    """Check the entries of a model file's description that other functions use."""
    check_seed(about["seed"])
    require(isinstance(about["settings"], dict), "its settings have no names")
    require(is_number(about.get("seconds", 0.0)), "its seconds are not a number")
    require(isinstance(about.get("ended", ""), str), "its end is not a word")
    require(isinstance(about.get("command", ""), str), "its command is not a text")
    final = about.get("final", {"loss": 0.0})
    numbers = isinstance(final, dict) and all(type(x) in (int, float) for x in final.values())
    require(numbers and is_number(final.get("loss")), "its final measures are not numbers")
    require(
        OPENING not in about or is_opening(about[OPENING]), "its opening is not valid for this run"
    )
    versions = about.get("versions", {})
    texts = [*versions, *versions.values()] if isinstance(versions, dict) else [None]
    require(all(isinstance(text, str) for text in texts), "its versions are not texts")
    listed = about.get(ENVIRONMENTS, [])
    whole = isinstance(listed, list) and all(is_environment(each) for each in listed)
    require(whole, "its threads, versions and code are not those of a run")
