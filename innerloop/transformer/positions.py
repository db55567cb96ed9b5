"""Positions that let a causal ReLU head speak from each token to itself alone, or to the last few.

With token i's own number in a register, the gate B(j − i) takes nothing from a token's score with
itself and at least B from that with any token before it. Tokens after it the mask forbids. So a
score within ±B is heard from the token itself only, and a score within ±B that is raised by B(o)
also from the o tokens before. B, and rounding with it, grows like the number of tokens.
"""

from __future__ import annotations

from innerloop.errors import InputError
from innerloop.transformer.layout import Where


def own_position(
    bound: float, position: Where = "pos", one: Where = "one"
) -> dict[tuple[Where, Where], float]:
    """A gate by which, under a causal mask, tokens hear themselves alone, while |score| ≤ bound."""
    if not bound > 0:
        raise InputError(f"own_position needs a positive bound, got {bound}")
    return {(one, position): bound, (position, one): -bound}
