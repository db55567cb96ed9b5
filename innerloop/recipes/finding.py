"""Find the run that `--resume` continues, by its folder or by its recipe and some settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from innerloop.errors import FileError, InputError
from innerloop.recipes.definition import Recipe
from innerloop.registry import find_class, get_name
from innerloop.training import checkpoint
from innerloop.training.folder import CHECKPOINT, MODEL

MAX_LISTED = 5
"""Largest number of folders that an error lists."""


def holds_run(folder: Path) -> bool:
    """Return whether a folder contains a started run, or started runs of several seeds."""
    return any(folder.glob(f"seed-*/{CHECKPOINT}")) or (folder / CHECKPOINT).is_file()


def split_seed(folder: Path) -> tuple[Path, int | None]:
    """Split the folder of one run, `…/seed-3`, into the folder of all seeds and the seed.

    A folder that contains the runs of several seeds, or no run, is returned with None as the seed.
    """
    if not (folder / CHECKPOINT).is_file():
        return folder, None
    whole = folder.absolute()
    number = whole.name.removeprefix("seed-")
    if not (number.isascii() and number.isdigit()) or whole.name != f"seed-{int(number)}":
        raise InputError(
            f"{folder} contains a run but is not named by its seed: continue it in Python, "
            f"innerloop.train(…, folder={str(folder)!r}, resume=True), or rename it seed-N"
        )
    return (whole if folder.name in ("", "..") else folder).parent, int(number)


def list_begun_seeds(folder: Path) -> list[int]:
    """List the seeds that have a started run in a folder."""
    names = (path.parent.name.removeprefix("seed-") for path in folder.glob(f"seed-*/{CHECKPOINT}"))
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def read_recipe_name(folder: Path) -> str:
    """Read the name of the recipe of the runs in a folder."""
    about = _read_about(folder)
    name = about.get("recipe")
    if not isinstance(name, str):
        raise FileError(f"{folder} does not contain the name of its recipe")
    if ":" in name:
        raise FileError(
            f"{folder} is trained by {name!r}, a user-defined recipe: name it, as in "
            f"`innerloop train {name} -o {folder} --resume` (it will be imported and run)"
        )
    return name


def find_folder(root: Path, recipe: Any, settings: Mapping[str, Any]) -> Path:
    """Find the folder to resume below `root`, or return the folder that a new run would have.

    A folder whose run has exactly these settings comes first. Otherwise it is the only folder whose
    run is not finished and agrees with these settings, apart from the number of steps.
    """
    kind = find_class("recipes", Recipe, recipe)
    exact = _name_exact(root, kind, settings)
    if exact is not None and _is_unfinished(exact):
        return exact
    expected = {name: value for name, value in settings.items() if name != "steps"}
    begun = [path.parent.parent for path in sorted(root.glob(f"*/seed-*/{CHECKPOINT}"))]
    alike = [each for each in dict.fromkeys(begun) if _agrees(each, kind, expected)]
    matches = [each for each in alike if _is_unfinished(each)]
    matches = matches or [each for each in alike if each == exact] or alike
    if len(matches) > 1:
        names = ", ".join(map(str, matches[:MAX_LISTED])) + (
            ", …" if len(matches) > MAX_LISTED else ""
        )
        raise InputError(
            f"{len(matches)} runs of {get_name(kind)} match: resume one by its folder, as "
            f"in `innerloop train {matches[0]} --resume` (there is: {names})"
        )
    return matches[0] if matches else kind.from_values(dict(settings)).name_folder(root)


def _name_exact(root: Path, kind: type[Recipe], settings: Mapping[str, Any]) -> Path | None:
    """Return the folder of a run with exactly these settings; None if settings are missing."""
    try:
        return kind.from_values(dict(settings)).name_folder(root)
    except InputError:
        return None


def _is_unfinished(folder: Path) -> bool:
    return any(not (p.parent / MODEL).exists() for p in folder.glob(f"seed-*/{CHECKPOINT}"))


def _agrees(folder: Path, kind: type[Recipe], expected: Mapping[str, Any]) -> bool:
    """Return whether a folder's run belongs to this recipe and has these settings."""
    try:
        about = _read_about(folder)
        if about.get("recipe") != get_name(kind) or not isinstance(about.get("settings"), dict):
            return False
        made = kind.from_values(about["settings"])
        return made.values() == kind.from_values({**made.values(), **expected}).values()
    except InputError:  # damaged, or of another version
        return False


def _read_about(folder: Path) -> dict[str, Any]:
    path = next(iter(sorted(folder.glob(f"seed-*/{CHECKPOINT}"))), folder / CHECKPOINT)
    return checkpoint.read(path)[0]
