"""The stream of any `nn.Module`, read and replaced by hooks on its layers while it predicts.

The model runs unchanged: the output of a layer is recorded, or replaced by another stream. This
works for modules with fitted read-outs, GPT-2 of `transformers`, and the runs of `train`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from innerloop.certification.building import BuiltTransformer
from innerloop.errors import InputError
from innerloop.identification.hooked import HookedModel
from innerloop.identification.inside.streams import (
    Stream,
    StreamModel,
    read_built,
    shuffle_weights,
)
from innerloop.identification.instances import select_queries
from innerloop.identification.models import ConstructionModel, Model, Predictions
from innerloop.problems.base import Distribution

READABLE = "a built transformer, or a module whose layers are named or stand in a list"


@dataclass(frozen=True, eq=False)
class HookedStreams(StreamModel):
    """A model that runs a module, and the names of the module's layers."""

    model: Model
    holder: str
    """The field of the model that holds the module."""
    names: tuple[str, ...]

    @property
    def layers(self) -> list[str]:
        return [f"layer {k}" for k in range(1, len(self.names) + 1)]

    def distribution(self) -> Distribution | None:
        return self.model.distribution()

    def check(self, problem: Any) -> None:
        self.model.check(problem)

    def predict(self, problem: Any) -> Predictions:
        # A model may answer before its first layer too: layers are counted from the last.
        answers = self.model.predict(problem)[-len(self.names) :]
        return select_queries(problem, answers).flatten(2)

    def read_streams(self, problem: Any) -> list[Stream]:
        found: list[Stream] = []

        def record(k: int, before: Tensor | None, after: Tensor) -> None:
            if k == 1 and before is not None:
                found.append(before.clone())
            found.append(after.clone())  # later layers may add to it in place

        with self._listen(record):
            self.predict(problem)
        if len(found) != len(self.names) + 1:
            raise InputError(
                f"expected a stream before the first and after each of {len(self.names)} layers, "
                f"got {len(found)}: each layer must run once, and take and give (batch, tokens, "
                "width)"
            )
        return found

    def resume(self, problem: Any, layer: int, stream: Stream) -> Predictions:
        def exchange(k: int, before: Tensor | None, after: Tensor) -> Tensor | None:
            return stream.to(after) if k == layer else None

        with self._listen(exchange):
            return self.predict(problem)[layer - 1 :]

    def randomise(self, generator: torch.Generator) -> HookedStreams | None:
        if not any(weight.numel() for weight in self._module.parameters()):
            return None
        shuffled = {self.holder: shuffle_weights(self._module, generator)}
        return replace(self, model=replace(self.model, **shuffled))  # pyright: ignore[reportArgumentType, reportCallIssue]

    @property
    def _module(self) -> nn.Module:
        return getattr(self.model, self.holder)

    @contextmanager
    def _listen(self, react: Callable[[int, Tensor | None, Tensor], Any]) -> Iterator[None]:
        """Call `react` with the number of the layer that ran, its input and its output.

        What it returns, unless that is None, is the layer's output instead.
        """
        known, calls = dict(self._module.named_modules()), 0

        def hook(_: nn.Module, arguments: Any, named: dict[str, Any], output: Any) -> Any:
            nonlocal calls
            calls += 1
            several = isinstance(output, tuple | list)
            stream = output[0] if several else output
            inputs = [*arguments, *named.values()]
            before = next((each for each in inputs if _is_stream(each)), None)
            if not _is_stream(stream):
                return None
            new = react(calls, before, stream)
            return None if new is None else type(output)([new, *output[1:]]) if several else new

        hooks = [known[n].register_forward_hook(hook, with_kwargs=True) for n in self.names]
        try:
            with torch.no_grad():
                yield
        finally:
            for each in hooks:
                each.remove()


def _is_stream(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 3 and value.is_floating_point()


def as_stream_model(model: Any) -> StreamModel:
    """Return a model whose stream can be read and replaced.

    Raise an error if that is not possible.
    """
    if isinstance(model, StreamModel):
        return model
    if isinstance(model, BuiltTransformer):
        model = ConstructionModel.from_built(model)
    if isinstance(model, ConstructionModel):
        return read_built(model)
    if isinstance(model, HookedModel):
        model = model.without_output()
    names = [f.name for f in fields(model)] if isinstance(model, Model) else []  # pyright: ignore[reportArgumentType]
    holder = next((name for name in names if isinstance(getattr(model, name), nn.Module)), None)
    if holder is not None:
        layers = getattr(model, "layer_names", None) or find_layers(getattr(model, holder))
        if layers:
            return HookedStreams(model, holder, tuple(layers))
    kind = type(model).__name__
    raise InputError(f"the stream of a {kind} cannot be read: expected {READABLE}")


def find_layers(module: nn.Module) -> list[str]:
    """Return the names of the layers in a module's longest list of modules.

    If each element of the list is a list too, its last part is the layer.
    """
    known = dict(module.named_modules())
    lists = [name for name, part in known.items() if isinstance(part, nn.ModuleList) and len(part)]
    if not lists:
        return []
    longest = max(lists, key=lambda name: len(known[name]))  # pyright: ignore[reportArgumentType]
    found = []
    for k, part in enumerate(known[longest]):  # pyright: ignore[reportArgumentType]
        name = f"{longest}.{k}" if longest else str(k)
        found.append(f"{name}.{len(part) - 1}" if isinstance(part, nn.ModuleList) else name)
    return found
