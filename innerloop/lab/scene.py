"""The interface of a scene: its title, its controls, and the answer to one request of the page.

An answer is plain data, the same parts for every scene:

    frames       a label for each position of the slider, what it says, which layers have run
    picture      what the scene's own drawing needs
    error        lines of errors per frame: the transformer beside its reference algorithm
    registers    the stream's registers after each step (`recording`)
    attention    the attention pattern of the layers of each step (`recording`)
    certificate  the line of the certificate, and how far transformer and algorithm differ here
    python       a program that prints the same numbers
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from functools import cache
from typing import Any, ClassVar

from innerloop.errors import unknown_name_error
from innerloop.lab import scenes
from innerloop.lab.controls import Control, Values
from innerloop.progress import Progress


class Scene(ABC):
    """One scene of the lab."""

    place: ClassVar[int]
    """Its place among the scenes, counted from 1."""
    tab: ClassVar[str]
    title: ClassVar[str]
    hint: ClassVar[str]
    """What to do, and what is seen, in one or two sentences."""
    controls: ClassVar[tuple[Control, ...]] = ()

    @abstractmethod
    def run(self, values: Values, progress: Progress) -> dict[str, Any]:
        """Compute the answer to a request; `progress` takes the share that is done."""

    @property
    def name(self) -> str:
        """The name of the scene's file, with dashes."""
        return type(self).__module__.rpartition(".")[2].replace("_", "-")

    def describe(self) -> dict[str, Any]:
        """Return the description of a scene that the page needs before it runs."""
        return {
            "name": self.name,
            "tab": self.tab,
            "title": self.title,
            "hint": self.hint,
            "controls": [control.describe() for control in self.controls],
        }


@cache
def load_scenes() -> dict[str, Scene]:
    """Load every scene, by name, in the order of their places."""
    loaded_scenes = []
    for module in pkgutil.iter_modules(scenes.__path__, f"{scenes.__name__}."):
        loaded = importlib.import_module(module.name)
        loaded_scenes += [
            value()
            for value in vars(loaded).values()
            if isinstance(value, type)
            and issubclass(value, Scene)
            and value.__module__ == module.name
        ]
    return {scene.name: scene for scene in sorted(loaded_scenes, key=lambda scene: scene.place)}


def find_scene(name: str) -> Scene:
    """Find a scene by its name."""
    known = load_scenes()
    if name not in known:
        raise unknown_name_error("scene", name, known)
    return known[name]
