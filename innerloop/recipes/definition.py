"""The base class of recipes, which a file in this folder subclasses."""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from innerloop.problems.base import Distribution
from innerloop.registry import get_name
from innerloop.training.objective import Objective
from innerloop.training.settings import Settings

MAX_NAME = 200
"""Largest number of bytes of a recipe's name in a folder name; file systems allow 255 in all."""


class Recipe(Settings, ABC):
    """A named training: methods define the model and the objective, fields are its settings."""

    source: ClassVar[str]
    small: ClassVar[dict[str, Any]]
    """Settings with which two steps take almost no time; the tests run every recipe with them."""
    required: ClassVar = ("source", "small")

    @property
    def name(self) -> str:
        return get_name(type(self))

    @abstractmethod
    def build_model(self, generator: torch.Generator) -> nn.Module:
        """Build the model with its initial weights."""

    @abstractmethod
    def build_objective(self) -> Objective:
        """Build the objective to minimise."""

    @abstractmethod
    def build_distribution(self) -> Distribution:
        """Build the distribution of problems that the model learns to solve."""

    @abstractmethod
    def predict_layers(self, model: nn.Module, problem: Any) -> Tensor:
        """Return the answer after each layer, of shape layers × batch × queries for predictions."""

    def name_folder(self, root: Path) -> Path:
        """Name the folder of this recipe's runs; non-default settings add a hash to the name."""
        values, name = self.values(), re.sub(r"[^\w.-]+", "-", self.name).strip("-.")
        name = name.encode()[-MAX_NAME:].decode(errors="ignore")
        if values == type(self).from_values({}).values():
            return root / name
        mark = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]
        return root / f"{name}-{mark}"
