"""Which numbers a stream may hold of a state, and on which tokens.

itself      the whole tensor, on every token, on the last one, or in the mean over tokens
rows        row r of the tensor on the r-th of some tokens: means on centroid tokens, one vector per
            prefix of the examples, a column of a matrix on each of the first tokens; or on each
            token of the r-th of as many equal runs: what was known before an episode of a game
applied     the tensor times a token's x: ⟨w, x⟩, or M x of Newton's iteration
residuals   y − ⟨w, x⟩ on the tokens of examples, −⟨w, x⟩ on those of queries

Linear read-outs see the last three where the first is a product with the prompt. Tokens are those
of the encoder's prompt (an example each), of the decoder's (x and y in turn), or ends of a prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

Kind = Literal["itself", "rows", "applied", "residuals"]
Values = Float[Tensor, "batch places size"]
MAX_SIZE = 1024
"""Numbers that one read-out gives at most."""


@dataclass(frozen=True)
class Place:
    """Some tokens of a prompt, or the mean over all of them."""

    name: str
    tokens: slice | None

    def read(self, stream: Float[Tensor, "batch tokens width"]) -> Values:
        if self.tokens is None:
            return stream.mean(dim=1, keepdim=True)
        return stream[:, self.tokens]

    def add(self, stream: Float[Tensor, "batch tokens width"], change: Values) -> Tensor:
        """Add a change at these tokens; one of the mean is added to every token."""
        if self.tokens is None:
            return stream + change
        moved = stream.clone()
        moved[:, self.tokens] += change
        return moved


EVERY, LAST = Place("every token", slice(None)), Place("the last token", slice(-1, None))
MEAN = Place("the mean over tokens", None)


@dataclass(frozen=True)
class View:
    """What tokens may hold of a tensor of the state."""

    field: str
    kind: Kind
    place: Place
    repeats: int = 1
    """Tokens in turn that hold the same row."""
    form: int = 0
    """Which of the tensor's forms: 0 is the tensor itself."""

    @property
    def text(self) -> str:
        what = {"itself": self.field, "rows": f"rows of {self.field}"}
        product = {"applied": f"{self.field} · x", "residuals": f"residuals of {self.field}"}
        restated = ", restated," if self.form else ""
        return f"{(what | product)[self.kind]}{restated} on {self.place.name}"

    def compute(self, problem: Any, value: Tensor, tokens: int) -> Values:
        """Compute the values that the stream of a prompt contains if it stores the state `value`.

        itself     the state, at every token of the place
        rows       one row of the state at each token
        applied    the product of the state with the row of x at each token
        residuals  the label minus this product
        """
        batch = len(value)
        if self.kind == "itself":
            places = 1 if self.place.tokens is None else len(range(tokens)[self.place.tokens])
            return value.reshape(batch, 1, -1).expand(-1, places, -1)
        if self.kind == "rows":
            rows = value.reshape(batch, value.shape[1], -1)
            return rows.repeat_interleave(self.repeats, dim=1)
        assert self.place.tokens is not None
        rows = stack_rows(problem)[:, : len(range(tokens)[self.place.tokens])]
        product = rows @ value.reshape(batch, -1, value.shape[-1]).mT
        if self.kind == "applied":
            return product
        label = rows.new_zeros(rows.shape[:2])
        label[:, : problem.n] = problem.y
        return label.unsqueeze(-1) - product


def list_views(problem: Any, name: str, value: Tensor, tokens: int) -> list[View]:
    """List the views of a tensor of the state that fit into a prompt of this length."""
    shape, found = tuple(value.shape[1:]), []
    size = value[0].numel()
    if size <= MAX_SIZE:
        found += [View(name, "itself", place) for place in (EVERY, LAST, MEAN)]
    count = value.shape[1] if value.ndim > 1 else 0
    if (value.ndim > 2 or count == tokens) and size <= MAX_SIZE * count:
        first = getattr(problem, "n", 0) if hasattr(problem, "x_query") else 0
        found += [View(name, "rows", place) for place in _list_places(count, tokens, first)]
        run = tokens // count
        if run > 1 and tokens == run * count and count > 1:
            place = Place(f"each of {run} tokens in turn", slice(None))
            found.append(View(name, "rows", place, run))
    rows = stack_rows(problem) if hasattr(problem, "x") else None
    if rows is None or rows.ndim != 3 or shape not in ((rows.shape[-1],), (rows.shape[-1],) * 2):
        return found
    places = _list_places(rows.shape[1], tokens)
    if hasattr(problem, "x_query"):  # the tokens that hold y have no token for the query
        places = [p for p in places if p.name in ("each token", "every second token")]
    labelled = len(shape) == 1 and hasattr(problem, "y") and problem.y.ndim == 2
    kinds: list[Kind] = ["applied", "residuals"] if labelled else ["applied"]
    return found + [View(name, kind, place) for kind in kinds for place in places]


def stack_rows(problem: Any) -> Tensor:
    """Return x of the examples and of the queries, in the order of their tokens."""
    if not hasattr(problem, "x_query") or problem.x_query.ndim != problem.x.ndim:
        return problem.x
    return torch.cat([problem.x, problem.x_query], dim=-2)


def _list_places(rows: int, tokens: int, after: int = 0) -> list[Place]:
    """List the ways to put `rows` rows on tokens, one each; `after` tokens of examples, if any."""
    if rows == tokens:
        return [Place("each token", slice(None))]
    places = []
    if tokens in (2 * rows - 1, 2 * rows):
        places.append(Place("every second token", slice(0, None, 2)))
    if tokens == 2 * rows:
        places.append(Place("every second token from the second", slice(1, None, 2)))
    if after and after + rows < tokens:
        places.append(Place(f"{rows} tokens after the examples", slice(after, after + rows)))
    if rows < tokens:
        places.append(Place(f"the first {rows} tokens", slice(0, rows)))
        places.append(Place(f"the last {rows} tokens", slice(tokens - rows, None)))
    return places
