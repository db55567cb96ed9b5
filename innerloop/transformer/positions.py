"""Position gates: restrict a causal ReLU head to each token itself, or to the last few tokens.

A register contains the number i of token i. The gate B(j − i) leaves the score of a token with
itself unchanged and lowers its score with any earlier token by at least B; the mask excludes later
tokens. So with scores within ±B, a token attends only to itself. If B·o is added to such scores, it
also attends to the o tokens before it. The gate, and with it the rounding error, is proportional to
the number of tokens.
"""

from __future__ import annotations

from innerloop.errors import InputError
from innerloop.transformer.layout import Location


def gate_own_position(
    bound: float, position: Location = "pos", one: Location = "one"
) -> dict[tuple[Location, Location], float]:
    """Return a gate that restricts causal attention to the token itself, for |score| ≤ bound."""
    if not bound > 0:
        raise InputError(f"gate_own_position needs a positive bound, got {bound}")
    return {(one, position): bound, (position, one): -bound}
