"""Coverage: which weights of a transformer had an effect on what the law compares.

A weight that no instance reaches could be anything, and the certificate would hold all the same.
The law's parts (prologue, each step from the exact state, each read-out) are run once more with
gradients: for a random direction v of the compared entries, relative to max(1, |reference|), the
derivative of ⟨v, entries⟩ by a weight is zero for every v only if no entry depends on the weight to
first order, so one backward pass for each part tells it for all weights together.

Reached    a change of the weight by its own size, or by 1 if that is more, moves the compared
           entries by more than the tolerance, to first order, on some instance
ReLU       a unit, hinge or score that is never above 0 has derivative 0: its weights are not
           reached, though large changes of what it reads might be noticed
Saturated  a softmax that is 0 or 1 to the last digit has derivative 0 as well
Zeros      weights that are 0 take part like others. They are counted apart: many read registers
           that are 0 at their block on every problem. Zeros that no data can reach are not counted
           (a row of Q whose row of K is 0, a hidden unit that writes nowhere)
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from innerloop.constructions.base import Construction
from innerloop.transformer import Block, Transformer

MAX_ENTRIES = 1 << 24
"""Scores and hidden units kept for a backward pass; instances are taken a few at a time."""
FIRST_INSTANCES = 8
"""Instances of the first passes; parts whose weights they all reach are not run again."""


class Coverage:
    """The largest first-order effect of every weight on the law's entries, over problems so far."""

    def __init__(self, construction: Construction[Any, Any], transformer: Transformer) -> None:
        self.construction = construction
        self.model = copy.deepcopy(transformer).requires_grad_(True)
        self.dtype = next(transformer.parameters()).dtype
        self.tolerance = construction.tolerance(self.dtype)
        self.measured = True
        self._weights = dict(self.model.named_parameters())
        self._effects = {name: torch.zeros_like(w) for name, w in self._weights.items()}
        self._settled: set[str] = set()
        self._changed: set[str] = set()

    def list_unreached(self) -> dict[str, int]:
        """Count, for each tensor, the weights other than 0 that were not reached."""
        counts = {
            name: int((self._is_unreached(name) & (weight != 0)).sum())
            for name, weight in self._weights.items()
        }
        return {name: count for name, count in counts.items() if count}

    def count_unreached(self) -> int:
        """Count the weights other than 0 that were not reached."""
        return sum(self.list_unreached().values())

    def count_unreached_zeros(self) -> int:
        """Count the weights that are 0, were not reached, and could be by some data."""
        live = find_live_weights(self.model)
        return sum(
            int((self._is_unreached(name) & (weight == 0) & live[name]).sum())
            for name, weight in self._weights.items()
        )

    def observe(self, problem: Any, generator: torch.Generator) -> None:
        """Record the effects of the weights on a batch of instances, until no weight is missing."""
        count = len(problem)
        room = MAX_ENTRIES // max(1, self._entries_per_instance(problem))
        if room < 1:
            self.measured = False
            return
        first = 0
        while first < count:
            size = min(room, FIRST_INSTANCES if first < 2 * FIRST_INSTANCES else count)
            self._changed = set()
            self._observe_chunk(problem[first : first + size], generator)
            # A part is settled when its weights are all reached, and the last pass added nothing.
            unreached = {_name_part(name) for name in self.list_unreached()}
            parts = {_name_part(name) for name in self._weights}
            self._settled = parts - unreached - self._changed if first else set()
            if self._settled == parts:
                return
            first += size

    def observe_further(self, problem: Any, generator: torch.Generator) -> bool:
        """Record effects on further instances; tell whether they reach another nonzero weight."""
        before = self.count_unreached()
        unreached = {_name_part(name) for name in self.list_unreached()}
        self._settled = {_name_part(name) for name in self._weights} - unreached
        count, room = len(problem), MAX_ENTRIES // max(1, self._entries_per_instance(problem))
        for first in range(0, count, max(1, room)):
            self._observe_chunk(problem[first : first + room], generator)
        return self.count_unreached() < before

    def _is_unreached(self, name: str) -> Tensor:
        weight, effect = self._weights[name].detach(), self._effects[name]
        return ~(effect * weight.abs().clamp_min(1.0) > self.tolerance)

    def _entries_per_instance(self, problem: Any) -> int:
        """Count the scores and hidden units of the largest part, for one instance."""
        tokens = self.construction.prompt(problem).shape[-2]
        sizes: dict[str, int] = {}
        for name, module in self.model.named_modules():
            if isinstance(module, Block):
                heads = module.attention.heads if module.attention else 0
                hidden = module.mlp.hidden if module.mlp else 0
                part = _name_part(name)
                sizes[part] = sizes.get(part, 0) + tokens * (heads * tokens + hidden)
        return 4 * max(sizes.values(), default=0)

    def _observe_chunk(self, problem: Any, generator: torch.Generator) -> None:
        construction, model = self.construction, self.model
        context = construction.context_length(problem)
        with torch.no_grad():
            state = construction.algorithm.init(problem)
            exact = construction.encode(problem, state)
            prompt = construction.prompt(problem).to(self.dtype)
            self._observe_stream(
                "prologue", lambda: model.run_prologue(prompt, context), exact, generator
            )
            self._observe_prediction(problem, state, exact, generator)
            for k in range(model.steps):
                before = self._add_noise(exact, generator)
                state = construction.algorithm.step(problem, state, k)
                exact = construction.encode(problem, state)
                self._observe_stream(
                    f"body.{k % len(model.body)}",
                    lambda before=before, k=k: model.step(before, k, context),
                    exact,
                    generator,
                )
                self._observe_prediction(problem, state, exact, generator)

    def _observe_stream(
        self, part: str, run: Callable[[], Tensor], exact: Tensor, generator: torch.Generator
    ) -> None:
        if part in self._settled:
            return
        with torch.enable_grad():
            stream = run()
        ignored = self.construction.ignored_mask(exact).to(exact.device)
        direction = _draw_like(exact, generator) / exact.abs().clamp_min(1.0)
        self._record(part, stream, direction.masked_fill(ignored, 0.0))

    def _observe_prediction(
        self, problem: Any, state: Any, exact: Tensor, generator: torch.Generator
    ) -> None:
        if "epilogue" in self._settled or not len(self.model.epilogue):
            return
        noised = self._add_noise(exact, generator)
        with torch.enable_grad():
            stream = self.model.run_epilogue(noised, self.construction.context_length(problem))
            read = stream.detach().requires_grad_()
            prediction = self.construction.decode(problem, read)
        if not prediction.requires_grad:
            return
        answer = self.construction.algorithm.predict(problem, state)
        direction = _draw_like(answer, generator) / answer.abs().clamp_min(1.0)
        (gradient,) = torch.autograd.grad(prediction, read, direction.to(prediction))
        self._record("epilogue", stream, gradient)

    def _record(self, part: str, stream: Tensor, direction: Tensor) -> None:
        """Keep the larger of each weight's effect so far and that on this stream."""
        names = [name for name in self._weights if _name_part(name) == part]
        if not (names and stream.requires_grad):
            return
        weights = [self._weights[name] for name in names]
        gradients = torch.autograd.grad(stream, weights, direction.to(stream), allow_unused=True)
        for name, gradient in zip(names, gradients, strict=True):
            if gradient is not None:
                missing = self._is_unreached(name)
                effect = torch.maximum(self._effects[name], gradient.abs().nan_to_num(nan=0.0))
                self._effects[name] = effect
                if bool((missing & ~self._is_unreached(name)).any()):
                    self._changed.add(part)

    def _add_noise(self, exact: Tensor, generator: torch.Generator) -> Tensor:
        """Return an exact stream with random numbers in the ignored entries."""
        ignored = self.construction.ignored_mask(exact).to(exact.device)
        if not bool(ignored.any()):
            return exact.to(self.dtype)
        return torch.where(ignored, _draw_like(exact, generator), exact).to(self.dtype)


def find_live_weights(transformer: Transformer) -> dict[str, Tensor]:
    """Tell of each weight whether a change of it alone could matter on some stream."""
    weights = dict(transformer.named_parameters())
    live = {name: torch.ones_like(weight, dtype=torch.bool) for name, weight in weights.items()}
    for name, module in transformer.named_modules():
        if not isinstance(module, Block):
            continue
        if (attention := module.attention) is not None:
            query, key = (
                (w != 0).any(dim=-1, keepdim=True) for w in (attention.query, attention.key)
            )
            writes = (attention.value != 0).any(dim=-1).any(dim=-1)[:, None, None]
            live[f"{name}.attention.query"] &= key & writes
            live[f"{name}.attention.key"] &= query & writes
            if attention.kind != "softmax":
                live[f"{name}.attention.value"] &= (query & key).any(dim=1, keepdim=True)
        if (mlp := module.mlp) is not None:
            writes = (mlp.outer != 0).any(dim=0)
            live[f"{name}.mlp.inner"] &= writes[:, None]
            live[f"{name}.mlp.bias"] &= writes
            live[f"{name}.mlp.outer"] &= (mlp.inner != 0).any(dim=-1) | (mlp.bias > 0)
    return live


def _name_part(name: str) -> str:
    """Name the part of the law that a module or weight takes part in: `prologue`, `body.3`, … ."""
    words = name.split(".")
    return ".".join(words[:2]) if words[0] == "body" else words[0]


def _draw_like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype).to(tensor.device)
