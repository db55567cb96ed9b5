"""Coverage: which weights of a transformer the compared numbers depend on, and how strongly.

A certificate cannot detect an error in a weight that affects no compared number. To find such
weights, the parts of the law (prologue, single steps from the exact state, read-outs) are run once
more with gradients on a few of the measured instances. For random signs v, the derivative of
⟨v, entries⟩ by a weight has the size of the Euclidean norm of all entries' derivatives. Divided by
√(number of entries), it is a cautious estimate of the largest derivative. One backward pass gives
this estimate for all weights.

Reached    A weight is reached if the smallest relevant error moves some compared entry by more than
           the tolerance, to first order. That error is a thousandth of the weight; for a weight of
           0, it is the smallest other weight of its tensor (at most 1)
Gates      A hidden unit or score that is never above 0 has derivative 0. Weights that keep a gate
           closed are therefore not reached, even on instances that nearly open it
Choices    A softmax that is 0 or 1 to the last digit also has derivative 0. If the algorithm makes
           a hard choice (the nearest mean, the best action), a small error matters only near ties,
           so the weights before the choice are not reached. Large errors are still noticed
Corrected  An error that a later block corrects has no effect to first order, such as one in the
           knots of 1/√s before a step of Newton's method. Large errors are still noticed
Bounds     If the law allows an error of knots, a thousandth of one knot's weight is often smaller
           than this error. Such knots are not reached either
Zeros      Weights that are 0 are tested like others and counted separately. Many of them multiply
           registers that are 0 at their block on every problem. Zeros that no data can reach are
           left out (a row of Q whose row of K is 0, a hidden unit without output)
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from innerloop.constructions.base import Construction
from innerloop.transformer import Block, Transformer
from innerloop.transformer.mlp import ElementwiseUnits

SMALLEST_ERROR = 1e-3
"""The relative error of a weight that must be noticeable for it to count as reached."""
MAX_ENTRIES = 1 << 24
"""Largest number of scores and hidden units in a backward pass; none is run above it."""


class Unreached(NamedTuple):
    """Masks of the weights that were not reached, for every tensor.

    small  weights in which the smallest relevant error is not noticed
    large  weights in which not even an error of the weight's own size is noticed
    """

    small: dict[str, Tensor]
    large: dict[str, Tensor]


def find_unreached(
    construction: Construction[Any, Any],
    transformer: Transformer,
    problem: Any,
    generator: torch.Generator,
) -> Unreached | None:
    """Find the weights that a few instances do not reach; None if a single one is too large."""
    room = MAX_ENTRIES // max(1, _count_entries(construction, transformer, problem))
    if not room:
        return None
    effects = _Effects(construction, transformer, generator)
    effects.observe(problem[:room])
    return effects.find_unreached()


class _Effects:
    """The largest estimated effect of errors in every weight, of two sizes."""

    def __init__(
        self,
        construction: Construction[Any, Any],
        transformer: Transformer,
        generator: torch.Generator,
    ) -> None:
        self.construction = construction
        self.generator = generator
        self.model = copy.deepcopy(transformer).requires_grad_(True)
        self.dtype = next(transformer.parameters()).dtype
        self._weights = dict(self.model.named_parameters())
        self._derivatives = {name: torch.zeros_like(w) for name, w in self._weights.items()}
        self._written = _find_written_places(self.model)

    def find_unreached(self) -> Unreached:
        """Compare the effects of errors with the tolerance."""
        tolerance, live = self.construction.tolerance(self.dtype), find_live_weights(self.model)
        masks: tuple[dict[str, Tensor], dict[str, Tensor]] = {}, {}
        for name, derivative in self._derivatives.items():
            weight = self._weights[name].detach()
            matters = live[name] | (weight != 0)
            for mask, share in zip(masks, (SMALLEST_ERROR, 1.0), strict=True):
                mask[name] = matters & ~(derivative * _list_errors(weight, share) > tolerance)
        return Unreached(*masks)

    def observe(self, problem: Any) -> None:
        """Record for a batch of instances which weights change the error if they are perturbed."""
        construction, model = self.construction, self.model
        context, period = construction.context_length(problem), len(model.body)
        with torch.no_grad():
            state = construction.algorithm.init(problem)
            exact = construction.encode(problem, state)
            prompt = construction.prompt(problem).to(self.dtype)
            run = functools.partial(model.run_prologue, prompt, context)
            self._observe_stream("prologue", run, exact)
            for k in range(model.steps):
                before = exact
                state = construction.algorithm.step(problem, state, k)
                exact = construction.encode(problem, state)
                # If several steps share weights, observe only the first and the last of them.
                if k < period or k >= model.steps - period:
                    noised = self._add_noise(before)
                    run = functools.partial(model.step, noised, k, context)
                    self._observe_stream(f"body.{k % period}", run, exact)
                if k in (0, model.steps - 1):
                    self._observe_prediction(problem, state, exact)

    def _observe_stream(self, part: str, run: Callable[[], Tensor], exact: Tensor) -> None:
        """Record which weights change the compared entries of the stream after one part of the law.

        The gradient is that of the sum of the entries with random signs. Errors are relative to
        max(1, |entry|), so each entry is divided by this scale.
        """
        if part not in self._written:
            return
        with torch.enable_grad():
            stream = run()
        compared = ~self.construction.ignored_mask(exact).to(exact.device)
        compared = compared & self._written[part].to(exact.device)
        direction = _draw_signs(exact, self.generator) / exact.abs().clamp_min(1.0) * compared
        self._record(part, stream, direction, int(compared.expand_as(exact).sum()))

    def _observe_prediction(self, problem: Any, state: Any, exact: Tensor) -> None:
        """Record which weights change the prediction that is read from an exact state."""
        if "epilogue" not in self._written:
            return
        noised = self._add_noise(exact)
        with torch.enable_grad():
            stream = self.model.run_epilogue(noised, self.construction.context_length(problem))
            read = stream.detach().requires_grad_()
            prediction = self.construction.decode(problem, read)
        if not prediction.requires_grad:
            return
        answer = self.construction.algorithm.predict(problem, state)
        direction = _draw_signs(answer, self.generator) / answer.abs().clamp_min(1.0)
        (gradient,) = torch.autograd.grad(prediction, read, direction.to(prediction))
        self._record("epilogue", stream, gradient, answer.numel())

    def _record(self, part: str, stream: Tensor, direction: Tensor, entries: int) -> None:
        """Update each weight's largest derivative with those on this stream."""
        names = [name for name in self._weights if _name_part(name) == part]
        if not (names and entries and stream.requires_grad):
            return
        weights = [self._weights[name] for name in names]
        gradients = torch.autograd.grad(stream, weights, direction.to(stream), allow_unused=True)
        for name, gradient in zip(names, gradients, strict=True):
            if gradient is not None:
                derivative = (gradient.abs() / entries**0.5).nan_to_num(nan=0.0, posinf=0.0)
                torch.maximum(self._derivatives[name], derivative, out=self._derivatives[name])

    def _add_noise(self, exact: Tensor) -> Tensor:
        """Return an exact stream with random numbers in the ignored entries."""
        ignored = self.construction.ignored_mask(exact).to(exact.device)
        if not bool(ignored.any()):
            return exact.to(self.dtype)
        noise = torch.randn(exact.shape, generator=self.generator, dtype=exact.dtype)
        return torch.where(ignored, noise.to(exact.device), exact).to(self.dtype)


def find_live_weights(transformer: Transformer) -> dict[str, Tensor]:
    """Return masks of the weights whose change, on its own, could affect some stream."""
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


def format_ranges(mask: Tensor) -> str:
    """Write the indices of a mask over the flattened tensor, counted from 0, as in `3,7-19`."""
    flat = mask.flatten().to("cpu", torch.int8)
    edges = torch.diff(flat, prepend=flat.new_zeros(1), append=flat.new_zeros(1))
    starts, ends = (edges == 1).nonzero().flatten(), (edges == -1).nonzero().flatten() - 1
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in pairs)


def _list_errors(weight: Tensor, share: float) -> Tensor:
    """Return an error for each weight: a share of it; for zeros, the smallest other weight."""
    sizes = weight.abs()
    nonzero = sizes > 0
    least = sizes[nonzero].amin().clamp_max(1.0) if bool(nonzero.any()) else sizes.new_ones(())
    return torch.where(nonzero, share * sizes, least)


def _count_entries(
    construction: Construction[Any, Any], transformer: Transformer, problem: Any
) -> int:
    """Count the scores and hidden units of the largest part of the law, for one instance."""
    tokens = construction.prompt(problem[:1]).shape[-2]
    sizes: dict[str, int] = {}
    for name, module in transformer.named_modules():
        if isinstance(module, Block):
            heads = module.attention.heads if module.attention else 0
            hidden = module.mlp.hidden if module.mlp else 0
            part = _name_part(name)
            sizes[part] = sizes.get(part, 0) + tokens * (heads * tokens + hidden)
    return 4 * max(sizes.values(), default=0)


def _find_written_places(transformer: Transformer) -> dict[str, Tensor]:
    """Return, for each part of the law, a mask of the entries of a token that it may write."""
    written: dict[str, Tensor] = {}
    for name, module in transformer.named_modules():
        if isinstance(module, Block):
            none = torch.zeros(transformer.layout.width, dtype=torch.bool)
            places = written.setdefault(_name_part(name), none)
            if module.attention is not None:
                places[module.attention.targets] = True
            if module.mlp is not None:
                places[module.mlp.targets] = True
                for units in module.mlp.everywhere:
                    places[cast(ElementwiseUnits, units).target] = True
    return written


def _name_part(name: str) -> str:
    """Name the part of the law that a module or weight takes part in: `prologue`, `body.3`, … ."""
    words = name.split(".")
    return ".".join(words[:2]) if words[0] == "body" else words[0]


def _draw_signs(like: Tensor, generator: torch.Generator) -> Tensor:
    signs = torch.randint(2, like.shape, generator=generator, dtype=like.dtype)
    return (2 * signs - 1).to(like.device)
