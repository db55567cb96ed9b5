"""Position gates: restrict a causal ReLU head to each token itself, or to the last few tokens.

With token i's own number in a register, the gate B(j − i) leaves a token's score with itself
unchanged and lowers the score with any earlier token by at least B; the mask forbids later tokens.
So a score within ±B acts only from the token to itself, and a score within ±B that is raised by
B·o also from the o tokens before. B, and with it rounding, grows like the number of tokens.
"""

from __future__ import annotations

from innerloop.errors import InputError
from innerloop.transformer.layout import Location


def gate_own_position(
    bound: float, position: Location = "pos", one: Location = "one"
) -> dict[tuple[Location, Location], float]:
    """Gate that restricts each token to itself, under a causal mask and while |score| ≤ bound."""
    if not bound > 0:
        raise InputError(f"gate_own_position needs a positive bound, got {bound}")
    return {(one, position): bound, (position, one): -bound}
