"""What every construction has: one algorithm, one machine, and the law that ties them.

    prologue( prompt(p) )               ==  encode(p, init(p))
    body_k( encode(p, s) )              ==  encode(p, step(p, s, k))
    decode( epilogue( encode(p, s) ) )  ==  predict(p, s)

A new construction is one file with one class: a header (algorithm, invariant, proof, exactness,
source), the parameters, and the methods below that it needs.
"""

from __future__ import annotations

import typing
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.errors import InputError, OutOfRange
from innerloop.parameters import Parameters, parameter
from innerloop.problems.base import Distribution
from innerloop.registry import name_of
from innerloop.transformer import Block, Layout, Transformer


class Cost(NamedTuple):
    """What k steps take, as formulas in k, d and n, and what the source prints of it.

    `where` names the parameters that further letters stand for: `c = components, T = inner`.
    """

    layers: str
    heads: str
    width: str
    printed: str = "—"
    where: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Construction(Parameters, ABC):
    """An algorithm as weights. Subclasses are frozen dataclasses of their parameters."""

    source: ClassVar[str]
    cost: ClassVar[Cost]
    required: ClassVar[tuple[str, ...]] = ("source", "cost")
    exact: ClassVar[bool] = True
    error: ClassVar[str] = "exact"
    """The error of a step: exact, or a formula of what `tolerance` bounds it by."""
    scratch: ClassVar[tuple[str, ...]] = ()
    """Registers whose content must not matter between steps; the law fills them with noise."""
    tolerances: ClassVar[dict[torch.dtype, float]] = {torch.float64: 1e-10}
    """The relative deviation allowed in each precision that the construction declares."""
    looped: ClassVar[bool] = False
    """Whether the body is one step, run `steps` times."""
    remedy: ClassVar[str] = "build it with a larger bound"
    """What to do about data beyond the declared range."""
    cases: ClassVar[tuple[dict[str, Any], ...]] = ()
    """Parameters of its own to test the law at, besides the problem's general cases."""

    steps: int = parameter(8, "steps of the algorithm", least=1, most=10_000)

    @cached_property
    def layout(self) -> Layout:
        """The registers of the stream."""
        raise TypeError(f"{self.name} must define its layout")

    @cached_property
    def algorithm(self) -> Algorithm[Any, Any]:
        """The reference that the weights must follow."""
        raise TypeError(f"{self.name} must define its algorithm")

    @abstractmethod
    def distributions(self) -> Sequence[Distribution]:
        """The problems that the certificate is measured on; several where sizes may vary."""

    @abstractmethod
    def prompt(self, problem: Any) -> Tensor:
        """The input tokens: data, positions and constants in their places, nothing computed."""

    @abstractmethod
    def encode(self, problem: Any, state: Any) -> Tensor:
        """The stream that stands for a state of the algorithm."""

    @abstractmethod
    def body(self, k: int) -> list[Block]:
        """The blocks of step k."""

    @abstractmethod
    def decode(self, problem: Any, stream: Tensor) -> Tensor:
        """The prediction that an output stream holds."""

    def prologue(self) -> Sequence[Block]:
        """The blocks before the first step."""
        return ()

    def epilogue(self) -> Sequence[Block]:
        """The blocks after the last step."""
        return ()

    def context(self, problem: Any) -> int | None:
        """How many leading tokens are context."""
        return None

    def check(self, problem: Any) -> None:
        """Refuse a problem of another kind, or beyond a documented limit."""
        sample = type(self.distributions()[0]).sample
        kind = typing.get_type_hints(sample)["return"]
        if not isinstance(problem, kind):
            raise InputError(f"{self.name} takes a {kind.__name__}, got a {type(problem).__name__}")
        self.accept(problem)

    def accept(self, problem: Any) -> None:
        """Raise `OutOfRange` for a problem beyond a documented limit."""

    def usage(self, stream: Tensor) -> float:
        """The share of the declared range that a stream between steps uses; above 1 is outside."""
        return 0.0

    def ignored(self, stream: Tensor) -> Bool[Tensor, "#tokens width"]:
        """Where the content of a stream between steps must not matter."""
        return self.layout.mask(*self.scratch).unsqueeze(0)

    @property
    def name(self) -> str:
        return name_of(type(self))

    def tolerance(self, dtype: torch.dtype) -> float:
        """The deviation that a step is held against: rounding, or the declared bound."""
        if dtype not in self.tolerances:
            asked = str(dtype).removeprefix("torch.")
            raise OutOfRange(f"{self.name} is declared for {self.precisions()}, not for {asked}")
        return self.tolerances[dtype]

    @classmethod
    def precisions(cls) -> str:
        """The precisions that the construction declares."""
        return ", ".join(str(kind).removeprefix("torch.") for kind in cls.tolerances)

    @cached_property
    def transformer(self) -> Transformer:
        """The weights, in float64 and shared: copy before changing them."""
        distinct = 1 if self.looped else self.steps
        return Transformer(
            self.layout,
            [self.body(k) for k in range(distinct)],
            prologue=self.prologue(),
            epilogue=self.epilogue(),
            loops=self.steps if self.looped else 1,
        )


def streams(construction: Construction, transformer: Transformer, problem: Any) -> Iterator[Tensor]:
    """The streams after 0, 1, …, all steps of a forward pass.

    Raises `OutOfRange` as soon as one leaves the construction's declared range.
    """
    construction.check(problem)
    context = construction.context(problem)
    stream = transformer.enter(construction.prompt(problem), context)
    for k in range(transformer.steps + 1):
        if k:
            stream = transformer.step(stream, k - 1, context)
        if (usage := construction.usage(stream)) > 1:
            raise OutOfRange(
                f"after step {k} the data reach {usage:.3g} times the range that "
                f"{construction.name} was built for: {construction.remedy}"
            )
        yield stream


def answer(
    construction: Construction, transformer: Transformer, problem: Any, stream: Tensor
) -> Tensor:
    """The prediction that a stream between steps gives; divergence is an error, not a number."""
    out = transformer.leave(stream, construction.context(problem))
    prediction = construction.decode(problem, out)
    if not bool(torch.isfinite(prediction).all()):
        raise InputError(
            f"{construction.name} diverged: its prediction is not finite; "
            "scale the data down, or build it with smaller steps"
        )
    return prediction
