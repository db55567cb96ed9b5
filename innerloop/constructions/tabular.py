"""Parts of programs for tabular planning: copies by position, cells, sums, maxima, look-ahead.

Tokens know their number `i` with its square `i2`, their episode `e` and a mark `p`. What is
multiplied inside a token is the score of a ReLU head that sees the token itself alone; it is never
negative, so that one head does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from torch import Tensor

from innerloop.language import dot, own_total, piecewise, relu, stack, total


def copy_before(me: Any, back: int, name: str) -> Any:
    """The register of the token `back` places before: score 1 − (i − back − j)², else at most 0."""
    mine = 1 - back**2 - me.i2 + 2 * back * me.i
    return total(
        lambda j: relu(mine + 2 * me.i * j.i - 2 * back * j.i - j.i2) * j[name], over="causal"
    )


def mark_cells(sides: Sequence[Any], amount: Any = 1) -> Any:
    """A table with the amount, up to 1, in the cell that one-hot registers select, else 0."""
    first, *others = sides
    if not others:
        return stack([entry + amount for entry in first])
    return stack([mark_cells(others, amount + entry) for entry in first])


def sum_earlier(me: Any, name: str) -> Any:
    """The sum over the tokens of earlier episodes: σ(e − e_j) − σ(e − e_j − 1) is 1 for these."""
    return total(lambda j: (relu(me.e - j.e) - relu(me.e - j.e - 1)) * j[name], over="causal")


def estimate_tables(me: Any, own: Any) -> tuple[Any, Any]:
    """Average rewards plus the bonus, and frequencies of transitions, of the episodes before."""
    me.was, me.did, me.had = (
        copy_before(me, 1, "s"),
        copy_before(me, 1, "a"),
        copy_before(me, 2, "s"),
    )
    me.visit = relu(mark_cells([me.h, me.was, me.a], -2))
    me.pay = relu(mark_cells([me.h, me.was, me.a], me.r - 3))
    me.move = relu(mark_cells([list(me.h)[1:], me.had, me.did, me.s], -3))
    me.visits, me.earned, me.moves = (sum_earlier(me, name) for name in ("visit", "pay", "move"))
    inverse, bonus = own.tables
    me.inverse = piecewise(me.visits, inverse, own.visits)
    rewards, moved = {}, {}
    for h, s, a in product(range(own.horizon), range(own.d), range(own.arms)):
        rewards[h, s, a] = share(me, own, (h, s, a), "earned")
        if h < own.steps:
            moved[h, s, a] = share(me, own, (h, s, a), "moves")
    paid, went = (arrange(cells, own) for cells in (rewards, moved))
    return paid + piecewise(me.visits, bonus, own.visits), went


def keep(own: Any, most: Any, summand: Callable[[Any], Any]) -> Any:
    """A sum over this token alone, for scores up to `most`."""
    return own_total(summand, "p", most, own.gap, over="causal")


def share(me: Any, own: Any, cell: tuple[int, int, int], name: str) -> Any:
    """An entry of a table over the number of visits of its cell."""
    h, s, a = cell
    return keep(own, 1, lambda j: relu(j.inverse[h][s][a]) * j[name][h][s][a])


def arrange(cells: dict[tuple[int, int, int], Any], own: Any) -> Any:
    """Stack values of cells (step, state, action) as a table; `own` has the sizes."""
    steps = 1 + max(h for h, _, _ in cells)
    return stack(
        [
            stack([stack([cells[h, s, a] for a in range(own.arms)]) for s in range(own.d)])
            for h in range(steps)
        ]
    )


def follow_table(values: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the function with these values at 0, 1, 2, …, linear between them."""

    def follow(x: Tensor) -> Tensor:
        low = x.floor().clamp(0, len(values) - 2)
        first = values[low.long()]
        return first + (x - low) * (values[low.long() + 1] - first)

    return follow


def find_best(me: Any, own: Any, columns: Sequence[Any]) -> Any:
    """The largest of each row of a table, given by its columns: a tree of maxima by heads."""
    left = [stack(list(column)) for column in columns]
    while len(left) > 1:
        pairs = zip(left[0::2], left[1::2], strict=False)
        left = [compare_by_heads(me, own, y, x) for x, y in pairs] + left[len(left) // 2 * 2 :]
    return left[0]


def compare_by_heads(me: Any, own: Any, larger: Any, smaller: Any) -> Any:
    """x + σ(y − x), entry by entry, the second by heads that see the token itself."""
    me.excess = larger - smaller
    found = [keep(own, own.max_value, lambda j, s=s: relu(j.excess[s])) for s in range(own.d)]
    return smaller + stack(found)


def look_ahead(me: Any, own: Any, h: int, top: Any = 0, sign: int = 1) -> Any:
    """Σ P̂_h(s') σ(top ± best(s')): the expected value of the next state."""

    def weigh(s: int) -> Any:
        def value(j: Any) -> Any:
            return stack([stack([j.P[h][u][a][s] for a in range(own.arms)]) for u in range(own.d)])

        return keep(own, own.max_value, lambda j: relu(top + sign * j.best[s]) * value(j))

    return sum((weigh(s) for s in range(1, own.d)), weigh(0))


def cap(most: int, value: Any) -> Any:
    """min(most, value), entry by entry."""
    return most - relu(most - value)


def replace_row(table: Any, h: int, row: Any) -> Any:
    """A table with another row h."""
    return stack([row if k == h else old for k, old in enumerate(table)])


def choose_state(me: Any, own: Any, a: int) -> Any:
    """Q of this token's step and state for action a; 0 where there is no state."""
    columns = [stack([row[a] for row in table]) for table in me.Q]
    found = [
        keep(own, own.max_value, lambda j, h=h: relu(dot(columns[h], j.s)) * j.h[h])
        for h in range(own.horizon)
    ]
    return sum(found[1:], found[0])
