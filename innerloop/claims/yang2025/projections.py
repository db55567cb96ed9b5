"""The least disturbance inside a projection onto a box: after = Proj(free + ε).

    find_disturbance(after, free, 0.5)      after = 0.49, free = 10: ε = −9.51
                                            after = 0.5, free = 10: ε = 0

Inside the box ε is after − free. At a side it is what free lacks to reach this side, and none if
free is beyond it. What lies outside of the box is no projection: how far out it is, is added.
"""

from __future__ import annotations

from torch import Tensor

from innerloop.claims.falsifying import Rows

ROUNDING = 1e-12
"""Values this near to a side of the box lie on it: the built layers clip by sums that round."""


def find_disturbance(after: Tensor, free: Tensor, box: float) -> Tensor:
    """Find the least ε, coordinate by coordinate, with which the projection of free + ε is after.

    Args:
        after: Weights after a step.
        free: Weights that the exact step leads to, before it is projected.
        box: Largest magnitude of a weight.
    """
    off = after - free
    off = off.clamp(min=0).where(after >= box - ROUNDING, off)
    off = off.clamp(max=0).where(after <= -box + ROUNDING, off)
    outside = (after.abs() - box).clamp(min=0)
    return off + outside.copysign(off)


def measure_disturbance(before: Tensor, after: Tensor, free: Tensor, box: float) -> Rows:
    """Measure each instance's `off`, the norm of its disturbance, and the `length` of its step."""
    moved = free.clamp(-box, box) - before
    pair = (each.norm(dim=-1).tolist() for each in (find_disturbance(after, free, box), moved))
    return [{"off": off, "length": length} for off, length in zip(*pair, strict=True)]


def shorten_steps(rows: Rows) -> Rows:
    """Let the transformer take half of each step of gradient descent."""
    return [{**row, "off": row["length"] / 2} if "off" in row else row for row in rows]
