"""Put the recorded results into the wheel: claims use the weights, reports the stored cells."""

from pathlib import Path
from shutil import copytree

from setuptools import setup
from setuptools.command.build_py import build_py

RECORDED = ("sparse", "regression", "cells/full")


class BuildWithResults(build_py):
    """Copy what `results/` records to `innerloop/recorded`, where an installed package looks."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for folder in RECORDED:
                place = Path(self.build_lib) / "innerloop" / "recorded" / folder
                copytree(Path("results") / folder, place, dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithResults})
