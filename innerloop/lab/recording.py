"""Record the forward pass of a transformer as plain data: frames, registers and attention.

Frame k is the stream after k steps; frame 0 is after the layers before the first step, if any.
Large arrays are encoded as base64: registers as float32 (frames × entries × tokens), and each
head's pattern as a scale and whole numbers from −127 to 127; 127 stands for the scale.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from innerloop.certification.building import BuiltTransformer
from innerloop.lab.pattern import compute_pattern
from innerloop.transformer import Block, Layout

LEVELS = 127
"""The whole number that encodes a pattern's scale."""
SHOWN = 0.98
"""The scale of a pattern is this quantile of its nonzero weights; larger weights are clipped."""


LARGE = 1e3
"""If the absolute value of an answer exceeds this, the run may have diverged."""


@dataclass(frozen=True, eq=False)
class Recording:
    """The residual streams of one forward pass, with the blocks that computed them."""

    layout: Layout
    blocks: list[Block]
    streams: list[Tensor]
    frames: list[int]
    """For each block, the frame that displays it, which is the number of its step."""
    last: list[int]
    """For each frame, the number of blocks that have run."""
    context: int
    ignored: Tensor
    """A mask of the stream's entries whose values between steps have no effect."""

    def after_step(self, k: int) -> Tensor:
        """Return the stream after k steps."""
        return self.streams[self.last[k]]


@torch.no_grad()
def record(built: BuiltTransformer, problem: Any) -> Recording:
    """Run a built transformer on a single problem, and record the stream after every layer."""
    transformer, trace = built.transformer, built.trace(problem)
    body = [list(cast(nn.ModuleList, step)) for step in transformer.body]
    sections = [list(transformer.prologue), *body * transformer.loops]
    blocks = [block for section in sections for block in section]
    frames = [k for k, section in enumerate(sections) for _ in section]
    last = [sum(len(section) for section in sections[: k + 1]) for k in range(len(sections))]
    readout = list(transformer.epilogue)
    steps = len(sections) - 1
    context = built.construction.context_length(problem)
    tokens = trace.streams[0].shape[-2]
    return Recording(
        transformer.layout,
        cast(list[Block], [*blocks, *readout]),
        trace.streams,
        [*frames, *[steps] * len(readout)],
        last,
        tokens - 1 if context is None else context,
        built.construction.ignored_mask(trace.streams[0]),
    )


@torch.no_grad()
def predict_steps(built: BuiltTransformer, problem: Any, recording: Recording) -> Tensor:
    """Return the answers after 0, 1, … steps from a recorded pass.

    They equal those of `built.predictions`, but the layers do not run again. If a stream is out of
    range or an answer is very large, `built.predictions` is used, because it checks every step and
    raises the right error.
    """
    construction = built.construction
    streams = torch.stack([recording.after_step(k) for k in range(len(recording.last))])
    if construction.usage(streams) <= 1:
        context = construction.context_length(problem)
        answers = construction.decode(problem, built.transformer.run_epilogue(streams, context))
        if float(answers.abs().max()) <= LARGE:
            return answers
    return torch.stack(list(built.predictions(problem)))


def describe_run(
    recording: Recording, notes: Sequence[str], tokens: Sequence[str]
) -> dict[str, Any]:
    """Return the frames, registers and attention patterns of a run for a scene's answer."""
    return {
        "frames": describe_frames(recording, notes),
        "registers": describe_registers(recording, tokens),
        "attention": describe_attention(recording, tokens),
    }


def describe_frames(recording: Recording, notes: Sequence[str]) -> list[dict[str, Any]]:
    """Return the label, the layers and the scene's note for each position of the slider."""
    total, steps = len(recording.blocks), len(recording.last) - 1
    rows = []
    for k, note in enumerate(notes):
        label = f"after step {k} of {steps}" if k else "before the first step"
        first = recording.last[k - 1] + 1 if k else 1
        layers = _format_layers(first, recording.last[k], total)
        rows.append({"label": label, "layers": layers, "note": note})
    return rows


def _format_layers(first: int, last: int, total: int) -> str:
    if last < first:
        return f"no layer of {total} yet"
    return f"layer {last} of {total}" if first == last else f"layers {first}–{last} of {total}"


def describe_registers(recording: Recording, tokens: Sequence[str]) -> dict[str, Any]:
    """Return the registers of all tokens after every step, with 0 for values without effect."""
    steps = range(len(recording.last))
    streams = [recording.after_step(k).masked_fill(recording.ignored, 0.0) for k in steps]
    return {
        "rows": describe_rows(recording.layout),
        "tokens": list(tokens),
        "data": encode_floats(torch.stack(streams).mT),
    }


def describe_attention(
    recording: Recording, tokens: Sequence[str], layers: Sequence[int] | None = None
) -> dict[str, Any]:
    """Return the patterns of the heads in all layers, or in `layers` (counted from 0)."""
    heads = []
    for number in range(len(recording.blocks)) if layers is None else layers:
        attention = recording.blocks[number].attention
        if attention is None:
            continue
        patterns = compute_pattern(attention, recording.streams[number], recording.context)
        for m, pattern in enumerate(encode_patterns(patterns)):
            note = attention.notes[m] if attention.notes else ""
            name = f"layer {number + 1}" + (f", head {m + 1}" if attention.heads > 1 else "")
            heads.append(
                {
                    "frame": recording.frames[number],
                    "name": f"{name} ({attention.kind})",
                    "note": note,
                    **pattern,
                }
            )
    return {"tokens": list(tokens), "heads": heads}


def describe_last(
    recording: Recording, tokens: Sequence[str], visible: Sequence[int], layers: Sequence[int]
) -> dict[str, Any]:
    """Return the registers and patterns after the last layer of a causal transformer.

    Frame k displays the first `visible[k]` tokens. Later tokens do not affect earlier ones, so one
    pass over all tokens gives every frame.
    """
    registers = {
        "rows": describe_rows(recording.layout),
        "tokens": list(tokens),
        "data": encode_floats(recording.streams[-1].masked_fill(recording.ignored, 0.0).mT),
        "visible": list(visible),
    }
    attention = describe_attention(recording, tokens, layers)
    heads = [{**head, "frame": None} for head in attention["heads"]]
    return {
        "registers": registers,
        "attention": {**attention, "heads": heads, "visible": list(visible)},
    }


def describe_rows(layout: Layout) -> list[dict[str, Any]]:
    """Return the names and sizes of a layout's registers."""
    return [{"name": name, "size": layout[name].size} for name in layout.registers]


def encode_patterns(patterns: Tensor) -> list[dict[str, Any]]:
    """Encode each head's matrix as whole numbers and a scale; the few largest may be clipped.

    A token whose values have no effect may have very large weights, which would hide all others.
    """
    scales = measure_scales(patterns)
    factors = torch.where(scales > 0, LEVELS / scales, 0.0)
    levels = (patterns * factors[:, None, None]).round().clamp(-LEVELS, LEVELS).to(torch.int8)
    rows, columns = patterns.shape[1:]
    return [
        {
            "rows": rows,
            "columns": columns,
            "scale": scale,
            "data": b64encode(data.tobytes()).decode(),
        }
        for scale, data in zip(scales.tolist(), levels.numpy(), strict=True)
    ]


def measure_scales(patterns: Tensor) -> Tensor:
    """Return the quantile `SHOWN` of the absolute nonzero entries of each matrix."""
    sizes = patterns.abs().flatten(1).sort(dim=1).values
    count = (sizes > 0).sum(dim=1)
    place = sizes.shape[1] - count + SHOWN * (count - 1).clamp_min(0).double()
    low = place.floor().long().clamp_max(sizes.shape[1] - 1)
    high = (low + 1).clamp_max(sizes.shape[1] - 1)
    below, above = (sizes.gather(1, index[:, None])[:, 0] for index in (low, high))
    return torch.where(count > 0, below + (place - low) * (above - below), 0.0)


def encode_floats(values: Tensor) -> str:
    """Encode numbers as base64 of float32 in little-endian order."""
    plain = values.to(torch.float32).contiguous().numpy().astype("<f4")
    return b64encode(plain.tobytes()).decode()


def name_tokens(count: int, kind: str, others: Sequence[str] = ()) -> list[str]:
    """Return names of tokens: `point 1`, `point 2`, … if `kind` is `point`, and then `others`."""
    return [*(f"{kind} {number}" for number in range(1, count + 1)), *others]
