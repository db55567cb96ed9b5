"""The interface of a construction: an algorithm, a transformer, and the law that connects them.

    prologue( prompt(p) )               ==  encode(p, init(p))
    body_k( encode(p, s) )              ==  encode(p, step(p, s, k))
    decode( epilogue( encode(p, s) ) )  ==  predict(p, s)

A new construction is one file with one class. It has a header (algorithm, invariant, proof,
exactness, source) and parameters, and it overrides the methods below that it needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from innerloop.algorithms.base import Algorithm, P, S
from innerloop.errors import InputError, OutOfRangeError
from innerloop.parameters import Parameters, parameter
from innerloop.problems.base import Distribution
from innerloop.registry import get_name
from innerloop.transformer import Block, Layout, Transformer

MAX_WEIGHTS = 1 << 28
"""The largest number of weights of a transformer that is built: 2 GB in float64."""
MAX_DIVERGENCE = 1e12
"""A prediction has diverged if it exceeds this factor times the largest entry of the prompt."""


class Cost(NamedTuple):
    """Layers, heads and width for k steps, as formulas in k, d and n.

    `printed` is the cost that the source states. `where` defines other letters by attributes of the
    construction: `c = components, T = inner`.
    """

    layers: str
    heads: str
    width: str
    printed: str = "—"
    where: str = ""


class Construction(Parameters, ABC, Generic[P, S]):
    """A transformer whose weights run an algorithm with states of type S on problems of type P.

    Subclasses are frozen dataclasses of their parameters.
    """

    source: ClassVar[str]
    cost: ClassVar[Cost]
    required: ClassVar[tuple[str, ...]] = ("source", "cost")
    exact: ClassVar[bool] = True
    error: ClassVar[str] = "exact"
    """The error of one step: "exact", or a formula for the bound that `tolerance` computes."""
    scratch: ClassVar[tuple[str, ...]] = ()
    """Registers whose values between steps must have no effect; tests fill them with noise."""
    tolerances: ClassVar[dict[torch.dtype, float]] = {torch.float64: 1e-10}
    """The relative deviation allowed in each supported precision."""
    looped: ClassVar[bool] = False
    """Whether the body is a single step, run `steps` times."""
    remedy: ClassVar[str] = "build it with a larger bound"
    """Advice for users whose data are outside the declared range, for error messages."""
    cases: ClassVar[tuple[dict[str, Any], ...]] = ()
    """Further parameter sets at which the law is tested, besides the cases of the problem."""

    steps: int = parameter(8, "steps of the algorithm", least=1, most=10_000)

    @cached_property
    def layout(self) -> Layout:
        """The registers of the stream."""
        raise TypeError(f"{self.name} must define its layout")

    @cached_property
    def algorithm(self) -> Algorithm[P, S]:
        """The reference algorithm that the weights must follow."""
        raise TypeError(f"{self.name} must define its algorithm")

    @abstractmethod
    def distributions(self) -> Sequence[Distribution]:
        """Return the distributions to certify on; there are several if sizes may vary."""

    def draw_further(self, count: int, generator: torch.Generator, dtype: torch.dtype) -> list[P]:
        """Draw instances that the first distribution hardly ever draws, with the same sizes.

        Certificates are measured on them too, and on data scaled to the ends of the range. They may
        be extreme, because instances out of range are removed afterwards. By default there are
        none.
        """
        return []

    @abstractmethod
    def prompt(self, problem: P) -> Tensor:
        """Return the input tokens, which contain only data, positions and constants."""

    @abstractmethod
    def encode(self, problem: P, state: S) -> Tensor:
        """Return the stream that represents a state of the algorithm."""

    @abstractmethod
    def body(self, k: int) -> list[Block]:
        """Return the blocks of step k."""

    @abstractmethod
    def decode(self, problem: P, stream: Tensor) -> Tensor:
        """Return the prediction in an output stream."""

    def prologue(self) -> Sequence[Block]:
        """Return the blocks before the first step."""
        return ()

    def epilogue(self) -> Sequence[Block]:
        """Return the blocks after the last step."""
        return ()

    def context_length(self, problem: P) -> int | None:
        """Return the number of leading context tokens; None means all but the last."""
        return None

    def check(self, problem: P) -> None:
        """Check the type of a problem and its documented limits, else raise."""
        expected = self.distributions()[0].problem_type
        if not isinstance(problem, expected):
            actual = type(problem).__name__
            raise InputError(f"{self.name} expects a {expected.__name__}, got {actual}")
        self.accept(problem)

    def accept(self, problem: P) -> None:
        """Raise `OutOfRangeError` for a problem beyond a documented limit."""

    def usage(self, stream: Tensor) -> float:
        """Return the share of the declared range that a stream uses; above 1 is out of range."""
        return 0.0

    def ignored_mask(self, stream: Tensor) -> Bool[Tensor, "#tokens width"]:
        """Return a mask of the entries that must have no effect between steps."""
        return self.layout.mask(*self.scratch).unsqueeze(0)

    def describe_origin(self) -> dict[str, Any]:
        """Return metadata for a file of its weights, such as the source text of a program."""
        return {}

    def check_origin(self, path: Path, about: dict[str, Any]) -> None:
        """Raise `FileError` for a file whose origin is not this construction."""

    @property
    def name(self) -> str:
        """The name of the member: its file name, with dashes."""
        return get_name(type(self))

    def tolerance(self, dtype: torch.dtype) -> float:
        """Return the largest deviation allowed in a step: for rounding, or the declared bound."""
        if dtype not in self.tolerances:
            precision = str(dtype).removeprefix("torch.")
            raise OutOfRangeError(
                f"{self.name} supports {self.precision_names()}, got {precision}: convert the data"
            )
        return self.tolerances[dtype]

    @classmethod
    def precision_names(cls) -> str:
        """Return the names of the supported precisions, separated by commas."""
        return ", ".join(str(kind).removeprefix("torch.") for kind in cls.tolerances)

    @cached_property
    def transformer(self) -> Transformer:
        """The transformer in float64. It is shared: copy it before changing weights."""
        distinct = 1 if self.looped else self.steps
        first = self.body(0)
        weights = distinct * sum(w.numel() for block in first for w in block.parameters())
        if weights > MAX_WEIGHTS:
            raise OutOfRangeError(
                f"expected parameters that give at most {MAX_WEIGHTS:,} weights, got {weights:,} "
                f"weights for {self.name}: choose smaller sizes"
            )
        return Transformer(
            self.layout,
            [first, *(self.body(k) for k in range(1, distinct))],
            prologue=self.prologue(),
            epilogue=self.epilogue(),
            loops=self.steps if self.looped else 1,
        )


def iterate_streams(
    construction: Construction[P, Any], transformer: Transformer, problem: P
) -> Iterator[Tensor]:
    """Yield the streams after 0, 1, …, all steps of a forward pass.

    Raises `OutOfRangeError` as soon as a stream leaves the construction's declared range.
    """
    construction.check(problem)
    context = construction.context_length(problem)
    stream = transformer.run_prologue(construction.prompt(problem), context)
    for k in range(transformer.steps + 1):
        if k:
            stream = transformer.step(stream, k - 1, context)
        if (usage := construction.usage(stream)) > 1:
            raise OutOfRangeError(
                f"after step {k} the data reach {usage:.3g} times the range that "
                f"{construction.name} was built for: {construction.remedy}"
            )
        yield stream


def read_prediction(
    construction: Construction[P, Any], transformer: Transformer, problem: P, stream: Tensor
) -> Tensor:
    """Return the prediction from a stream between steps; raise `InputError` if it diverged.

    It has diverged if it is not finite, or far larger than the data.
    """
    out = transformer.run_epilogue(stream, construction.context_length(problem))
    prediction = construction.decode(problem, out)
    peak = float(prediction.detach().abs().max())
    largest = float(construction.prompt(problem).detach().abs().max())
    # Dividing avoids overflow: for the largest data, the product of limit and data is infinite.
    if not peak / MAX_DIVERGENCE <= max(1.0, largest):
        finite = bool(torch.isfinite(prediction).all())
        reason = f"reaches {peak:.0e}" if finite else "is not finite"
        raise InputError(
            f"{construction.name} diverged: its prediction {reason}; "
            "scale the data down, or build it with smaller steps"
        )
    return prediction
