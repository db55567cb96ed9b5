"""Record the forward pass of a transformer as plain data: frames, registers and attention.

Frame k is the stream after k steps; frame 0 is after the layers before the first step, if any.
Large arrays travel as base64: registers as float32 (frames × places × tokens), each head's pattern
as whole numbers from −127 to 127, which stand for plus and minus its scale.
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
"""Whole numbers that a pattern's largest weight becomes."""
SHOWN = 0.98
"""The share of a pattern's weights that are told apart."""


LARGE = 1e3
"""Answers beyond this may have diverged."""


@dataclass(frozen=True, eq=False)
class Recording:
    """The streams of one forward pass, with the blocks that made them."""

    layout: Layout
    blocks: list[Block]
    streams: list[Tensor]
    frames: list[int]
    """For each block the frame that shows it: the step it belongs to."""
    last: list[int]
    """For each frame the number of blocks that have run."""
    context: int
    ignored: Tensor
    """A mask of the entries whose content does not matter between steps."""

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
    """Return the answers after 0, 1, … steps from a recorded pass, all of them at once.

    They are those of `built.predictions`, which runs the layers again and looks at every step for
    what is out of range or diverges: it answers, or refuses, where something might.
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
    """Describe frames, registers and attention of a run, for an answer of the lab."""
    return {
        "frames": describe_frames(recording, notes),
        "registers": describe_registers(recording, tokens),
        "attention": describe_attention(recording, tokens),
    }


def describe_frames(recording: Recording, notes: Sequence[str]) -> list[dict[str, Any]]:
    """Describe each position of the slider: its label, its layers, and a note of the scene."""
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
    """Return the registers of all tokens after every step, without those that have no effect."""
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
    """Return the patterns of every head, or of those in some layers (counted from 0)."""
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
    """Return registers and patterns of a causal pass: frame k has its first `visible[k]` tokens.

    Later tokens change nothing before them, so one pass over all of them has every frame.
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
    """Return the registers of a layout with the number of their places."""
    return [{"name": name, "size": layout[name].size} for name in layout.registers]


def encode_patterns(patterns: Tensor) -> list[dict[str, Any]]:
    """Encode each head's matrix as whole numbers and a scale; the few largest may be cut.

    A token whose content does not matter may have weights of any size, which would hide all others.
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
    """Return each matrix' quantile `SHOWN` of the sizes of its entries that are not 0."""
    sizes = patterns.abs().flatten(1).sort(dim=1).values
    count = (sizes > 0).sum(dim=1)
    place = sizes.shape[1] - count + SHOWN * (count - 1).clamp_min(0).double()
    low = place.floor().long().clamp_max(sizes.shape[1] - 1)
    high = (low + 1).clamp_max(sizes.shape[1] - 1)
    below, above = (sizes.gather(1, at[:, None])[:, 0] for at in (low, high))
    return torch.where(count > 0, below + (place - low) * (above - below), 0.0)


def encode_floats(values: Tensor) -> str:
    """Encode numbers as float32, the bytes of each from the least on."""
    plain = values.to(torch.float32).contiguous().numpy().astype("<f4")
    return b64encode(plain.tobytes()).decode()


def name_tokens(count: int, kind: str, others: Sequence[str] = ()) -> list[str]:
    """Name tokens: `point 1`, `point 2`, …, and the others."""
    return [*(f"{kind} {number}" for number in range(1, count + 1)), *others]
