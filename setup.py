"""Put the recorded results into the wheel: claims use the weights, reports the stored cells.

Of the weights a wheel has those that the preset `quick` uses, with their histories. All others are
described there, and whoever asks for one is told the command that makes it.
"""

from fnmatch import fnmatch
from pathlib import Path
from shutil import copytree

from setuptools import setup
from setuptools.command.build_py import build_py

RECORDED = ("sparse", "regression", "unlabelled", "decisions", "cells/full")
WEIGHTS = (
    "regression/gpt2.safetensors",
    "regression/gpt2-100.safetensors",
    "regression/lstm-?.safetensors",
    "sparse/quick-*.safetensors",
    "unlabelled/clusters-*[a-z].safetensors",
    "unlabelled/pca-[ars]*.safetensors",
    "decisions/bernoulli*.safetensors",
    "decisions/distilled.safetensors",
    "decisions/distilled-200.safetensors",
    "decisions/networks-?.safetensors",
)


def name_weights(path: Path) -> str:
    """Name the weights that a file is or belongs to: `regression/gpt2.safetensors`."""
    return f"{path.parent.name}/{path.stem}.safetensors"


def list_left_out(folder: str, names: list[str]) -> set[str]:
    """List what a wheel does not take from a folder: other weights and histories, and runs."""
    place = Path(folder)
    return {
        name
        for name in names
        if (place.parent == Path("results") and (place / name).is_dir())
        or (
            (
                name.endswith((".safetensors", ".csv"))
                and not any(fnmatch(name_weights(place / name), pattern) for pattern in WEIGHTS)
            )
            or (name.endswith(".csv") and not (place / name).with_suffix(".safetensors").exists())
        )
    }


class BuildWithResults(build_py):
    """Copy what `results/` records to `innerloop/recorded`, where an installed package looks."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for folder in RECORDED:
                place = Path(self.build_lib) / "innerloop" / "recorded" / folder
                copytree(Path("results") / folder, place, ignore=list_left_out, dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithResults})
