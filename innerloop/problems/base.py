"""What every problem has: declared settings, and instances drawn from a generator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from innerloop.parameters import Parameters


@dataclass(frozen=True, kw_only=True)
class Distribution(Parameters, ABC):
    """A distribution over instances. `sample` draws a batch of them: a problem."""

    source: ClassVar[str]
    cases: ClassVar[tuple[dict[str, Any], ...]]
    """Settings general enough to break a construction; the law is tested on each of them."""

    @abstractmethod
    def sample(
        self,
        *batch: int,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> Any:
        """A batch of instances with these leading dimensions."""
