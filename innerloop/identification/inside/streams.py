"""Models whose stream can be read after every layer and replaced: built transformers, in any basis.

The stream is a tensor (batch, tokens, width) after each layer. Its reading must not depend on how
it is written: a basis (see transformer/disguises.py) changes every number of it and no answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from innerloop.constructions.base import Construction
from innerloop.identification.instances import select_queries
from innerloop.identification.models import ConstructionModel, Model, Predictions
from innerloop.problems.base import Distribution
from innerloop.transformer import Transformer

Stream = Float[Tensor, "batch tokens width"]


class StreamModel(Model, ABC):
    """A model whose stream can be read and replaced; layers count from 1, 0 is the prompt."""

    @abstractmethod
    def read_streams(self, problem: Any) -> list[Stream]:
        """Return the stream before the first layer, and after each."""

    @abstractmethod
    def resume(self, problem: Any, layer: int, stream: Stream) -> Predictions:
        """Return the answers of `layer` and each later one, with this stream after `layer`."""

    def find_in_range(self, problem: Any, layer: int, stream: Stream) -> Bool[Tensor, " batch"]:
        """Return for which prompts the stream after `layer` is in the range that the model
        declares.
        """
        return torch.ones(len(stream), dtype=torch.bool)

    @abstractmethod
    def randomise(self, generator: torch.Generator) -> StreamModel | None:
        """Return the model with its weights in random order; None if it has none."""


@dataclass(frozen=True, eq=False)
class BuiltStreams(StreamModel):
    """A construction's transformer, in the basis of its registers or in another.

    With a basis B the transformer's stream is B h for the h that the construction reads and writes;
    places beyond those of h are dead, and hold random numbers.
    """

    construction: Construction
    transformer: Transformer
    basis: Float[Tensor, "places width"] | None = None

    @property
    def layers(self) -> list[str]:
        return [f"step {k}" for k in range(1, self.transformer.steps + 1)]

    def distribution(self) -> Distribution:
        return self.construction.distributions()[0]

    def check(self, problem: Any) -> None:
        self.construction.check(problem)

    def predict(self, problem: Any) -> Predictions:
        problem = self._convert(problem)
        return torch.stack([self._answer(problem, s) for s in self.read_streams(problem)[1:]])

    def read_streams(self, problem: Any) -> list[Stream]:
        problem = self._convert(problem)
        self.construction.check(problem)
        context, prompt = self.construction.context_length(problem), self._write_prompt(problem)
        stream, streams = self.transformer.run_prologue(prompt, context), [prompt]
        for k in range(self.transformer.steps):
            stream = self.transformer.step(stream, k, context)
            streams.append(stream)
        return streams

    def resume(self, problem: Any, layer: int, stream: Stream) -> Predictions:
        problem = self._convert(problem)
        context = self.construction.context_length(problem)
        stream = stream.to(next(self.transformer.parameters()))
        answers = [self._answer(problem, stream)]
        for k in range(layer, self.transformer.steps):
            stream = self.transformer.step(stream, k, context)
            answers.append(self._answer(problem, stream))
        return torch.stack(answers)

    def find_in_range(self, problem: Any, layer: int, stream: Stream) -> Bool[Tensor, " batch"]:
        """Follow the stream to the last step; a construction declares its range for registers."""
        problem = self._convert(problem)
        context = self.construction.context_length(problem)
        stream = stream.to(next(self.transformer.parameters()))
        in_range = self._keeps_range(stream)
        for k in range(layer, self.transformer.steps):
            stream = self.transformer.step(stream, k, context)
            in_range &= self._keeps_range(stream)
        return in_range

    def _keeps_range(self, stream: Stream) -> Bool[Tensor, " batch"]:
        if type(self.construction).usage is Construction.usage:  # which any stream keeps to
            return torch.ones(len(stream), dtype=torch.bool)
        registers = stream if self.basis is None else stream @ self.basis.to(stream)
        usage = [self.construction.usage(each) for each in registers.split(1)]
        return torch.tensor([share <= 1 for share in usage])

    def randomise(self, generator: torch.Generator) -> BuiltStreams:
        return replace(self, transformer=shuffle_weights(self.transformer, generator))

    def _convert(self, problem: Any) -> Any:
        return problem.to(next(self.transformer.parameters()).dtype)

    def _write_prompt(self, problem: Any) -> Stream:
        prompt = self.construction.prompt(problem)
        if self.basis is None:
            return prompt
        basis = self.basis.to(prompt)
        places = len(basis)
        # What dead places hold must not matter: numbers, the same for the same prompts.
        noise = torch.randn(
            *prompt.shape[:-1], places, generator=torch.Generator().manual_seed(0)
        ).to(prompt)
        return prompt @ basis.mT + (noise - noise @ basis @ basis.mT)

    def _answer(self, problem: Any, stream: Stream) -> Float[Tensor, "batch outputs"]:
        """Read the answer from a stream between steps, all of its numbers in one row."""
        out = self.transformer.run_epilogue(stream, self.construction.context_length(problem))
        if self.basis is not None:
            out = out @ self.basis.to(out)
        answer = select_queries(problem, self.construction.decode(problem, out))
        return answer.flatten(1)


def read_built(model: ConstructionModel) -> BuiltStreams:
    """Return a built transformer as a model whose stream can be read."""
    return BuiltStreams(model.construction, model.transformer)


def shuffle_weights(module: nn.Module, generator: torch.Generator) -> Any:
    """Return a copy of a module with the entries of each parameter in random order.

    Entries that are all equal are drawn anew, from a normal distribution of the same power.
    """
    copied = deepcopy(module).requires_grad_(False)
    for weight in copied.parameters():
        values = weight.flatten()
        order = torch.randperm(len(values), generator=generator).to(weight.device)
        if len(values) and bool((values == values[0]).all()):
            drawn = torch.randn(len(values), generator=generator).to(values) * values[0]
        else:
            drawn = values[order]
        weight.copy_(drawn.reshape(weight.shape))
    return copied
