"""Parts of programs for tabular planning: estimates from cells, maxima, look-ahead.

A product of two values of a token is computed by a ReLU head that attends only to the token itself.
One factor is its score. The score is never negative, so one head suffices.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from typing import Any

import torch

from innerloop.language import dot, piecewise, relu, stack
from innerloop.language.prompts.planning import copy_before, keep, sum_earlier


def mark_cells(sides: Sequence[Any], amount: Any = 1) -> Any:
    """Return a table with `amount` (≤ 1) in the cell that one-hot registers select, else 0."""
    first, *others = sides
    if not others:
        return stack([entry + amount for entry in first])
    return stack([mark_cells(others, amount + entry) for entry in first])


def estimate_tables(me: Any, own: Any) -> tuple[Any, Any]:
    """Return average rewards plus bonus, and transition frequencies, of the earlier episodes."""
    copied = (1, "s"), (1, "a"), (2, "s")
    me.was, me.did, me.had = (copy_before(me, back, name) for back, name in copied)
    me.visit = relu(mark_cells([me.h, me.was, me.a], -2))
    me.pay = relu(mark_cells([me.h, me.was, me.a], me.r - 3))
    me.move = relu(mark_cells([list(me.h)[1:], me.had, me.did, me.s], -3))
    me.visits, me.earned, me.moves = (sum_earlier(me, name) for name in ("visit", "pay", "move"))
    counts = torch.arange(max(own.n, 2), dtype=torch.float64)
    some, never = counts.clamp_min(1), counts == 0
    bonus = torch.where(never, 2.0 * own.horizon, own.algorithm.width / some.sqrt())
    me.inverse = look_up(me.visits, torch.where(never, 0.0, 1 / some))

    def share(name: str, h: int) -> Any:
        """Return a table of step h, each entry divided by the number of visits of its cell."""
        return stack([stack([cell(name, h, s, a) for a in range(own.arms)]) for s in range(own.d)])

    def cell(name: str, h: int, s: int, a: int) -> Any:
        return keep(own, 1, lambda j: relu(j.inverse[h][s][a]) * j[name][h][s][a])

    paid = stack([share("earned", h) for h in range(own.horizon)])
    went = stack([share("moves", h) for h in range(own.steps)])
    return paid + look_up(me.visits, bonus), went


def look_up(x: Any, values: torch.Tensor) -> Any:
    """Return, entry by entry, the linear interpolation of the values at 0, 1, 2, …"""

    def follow(at: torch.Tensor) -> torch.Tensor:
        low = at.long().clamp_max(len(values) - 2)
        return values[low] + (at - low) * (values[low + 1] - values[low])

    return piecewise(x, follow, list(range(len(values))))


def list_columns(table: Any) -> list[Any]:
    """Return the columns of a table."""
    return [stack(column) for column in zip(*table, strict=True)]


def halve(left: list[Any], compare: Callable[[Any, Any], Any]) -> list[Any]:
    """Return one level of a tree of maxima: the larger of each pair, computed by `compare`."""
    pairs = zip(left[0::2], left[1::2], strict=False)
    return [compare(x, y) for x, y in pairs] + left[len(left) // 2 * 2 :]


def find_best(me: Any, own: Any, left: list[Any], *further: Callable[[Any, Any], Any]) -> Any:
    """Return the entry-by-entry maximum by a tree.

    Its levels are computed by heads and by the functions `further`, in rotation.
    """

    def compare_by_heads(x: Any, y: Any) -> Any:
        me.excess = y - x
        excesses = [
            keep(own, own.max_value, lambda j, s=s: relu(j.excess[s])) for s in range(own.d)
        ]
        return x + stack(excesses)

    levels = cycle([compare_by_heads, *further])
    while len(left) > 1:
        left = halve(left, next(levels))
    return left[0]


def look_ahead(own: Any, h: int, top: Any = 0, sign: int = 1) -> Any:
    """Return Σ P̂_h(s') σ(top ± best(s')), the expected value of the next state."""

    def weigh(j: Any, s: int) -> Any:
        return relu(top + sign * j.best[s]) * stack([list_columns(rows)[s] for rows in j.P[h]])

    return sum(keep(own, own.max_value, partial(weigh, s=s)) for s in range(own.d))


def replace_row(table: Any, h: int, row: Any) -> Any:
    """Return the table with row h replaced."""
    return stack([row if k == h else old for k, old in enumerate(table)])


def read_values(me: Any, own: Any) -> Any:
    """Return Q of this token's step and state for each action; 0 if the token has no state."""
    columns = [list_columns(table) for table in me.Q]

    def read(h: int, a: int) -> Any:
        return keep(own, own.max_value, lambda j: relu(dot(columns[h][a], j.s)) * j.h[h])

    return stack([sum(read(h, a) for h in range(own.horizon)) for a in range(own.arms)])
