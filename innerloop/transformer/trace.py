"""The stream after every block, with registers by name: `trace[k]["beta"]`."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from innerloop.errors import InputError
from innerloop.transformer.layout import Layout, Location


class Snapshot:
    """The stream at one point of the forward pass; `snapshot["beta"]` is a register."""

    def __init__(self, layout: Layout, stream: Tensor, label: str) -> None:
        self.layout = layout
        self.stream = stream
        self.label = label

    def __getitem__(self, where: Location) -> Tensor:
        return self.layout.read(self.stream, where)


class Trace(Sequence[Snapshot]):
    """The streams of a forward pass.

    `trace[0]` is the prompt, `trace[k]` the stream after block k, and `trace[-1]` the output.
    """

    def __init__(self, layout: Layout, streams: list[Tensor], labels: list[str]) -> None:
        self.layout = layout
        self.streams = streams
        self.labels = labels

    def __len__(self) -> int:
        return len(self.streams)

    def __getitem__(self, index: int) -> Snapshot:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Snapshot(self.layout, self.streams[index], self.labels[index])

    def after_step(self, k: int) -> Snapshot:
        """Return the stream after k steps of the body; `after_step(0)` is after the prologue."""
        step_labels = [f"step {k}"] if k else ["prompt", "prologue"]
        matches = [i for i, label in enumerate(self.labels) if label in step_labels]
        if not matches:
            raise InputError(
                f"this trace has no step {k}; its blocks are: {', '.join(self.labels)}"
            )
        return self[matches[-1]]
