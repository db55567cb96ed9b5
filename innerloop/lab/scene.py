"""The base class of scenes: a title, controls, and a method that answers a request of the page.

An answer is a dictionary of JSON values, with the same parts for every scene:

    frames       for each position of the slider, a label, a note, and which layers have run
    picture      the data that the scene's own module draws
    error        curves of errors per frame, of the transformer and its reference algorithm
    registers    the registers of the residual stream after each step (`recording`)
    attention    the attention patterns of the layers of each step (`recording`)
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
    """Base class of the lab's scenes."""

    place: ClassVar[int]
    """The position of the scene among all scenes, counted from 1."""
    tab: ClassVar[str]
    title: ClassVar[str]
    hint: ClassVar[str]
    """One or two sentences about what the user can do, and what the picture displays."""
    controls: ClassVar[tuple[Control, ...]] = ()

    @abstractmethod
    def run(self, values: Values, progress: Progress) -> dict[str, Any]:
        """Compute the answer to a request, and report its progress from 0 to 1."""

    @property
    def name(self) -> str:
        """The name of the scene's file, with dashes."""
        return type(self).__module__.rpartition(".")[2].replace("_", "-")

    def describe(self) -> dict[str, Any]:
        """Return the description that the page needs before the scene runs."""
        return {
            "name": self.name,
            "tab": self.tab,
            "title": self.title,
            "hint": self.hint,
            "controls": [control.describe() for control in self.controls],
        }


@cache
def load_scenes() -> dict[str, Scene]:
    """Load all scenes, by name and in the order of `place`."""
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
    """Return the scene of a name; an unknown name raises an error."""
    known = load_scenes()
    if name not in known:
        raise unknown_name_error("scene", name, known)
    return known[name]
