"""A head: a bilinear score between registers, and a linear map from key registers to output ones.

For query token i and key token j a head computes

    s_ij  = Σ h_i[a]ᵀ S_ab h_j[b]          over the pairs (a, b) of `score` and of `gate`
    out_i = c_i Σ_j act(s_ij) · W_st h_j[s]  added to register t, over the pairs (s, t) of `value`

A weight is a number (a multiple of the identity) or a matrix that multiplies a column: S_ab has one
row per place of a and one column per place of b, W_st has one row per place of t. Heads are a
notation: `compile_heads` converts them to the stacked low-rank Q, K, V with which attention runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.errors import InputError
from innerloop.transformer.layout import Address, Layout, Location, format_location


@dataclass(frozen=True, eq=False)
class Split:
    """A score block in factored form, S = queryᵀ key; both factors have `rank` rows."""

    query: Tensor
    key: Tensor

    def __neg__(self) -> Split:
        return Split(-self.query, self.key)


Weight = float | Tensor
# The keys of a Mapping are invariant: plain names are listed separately for type checkers.
Blocks = Mapping[tuple[str, str], Weight] | Mapping[tuple[Location, Location], Weight]
Scores = (
    Mapping[tuple[str, str], Weight | Split] | Mapping[tuple[Location, Location], Weight | Split]
)


@dataclass(frozen=True, eq=False)
class Head:
    """An attention head.

    `gate` contains additional score terms; `make_signed_pair` does not change their sign.
    """

    score: Scores
    value: Blocks
    gate: Blocks = field(default_factory=dict)

    def describe(self) -> str:
        """Describe in one line which registers the head reads and writes."""
        terms = [*self.score.items(), *self.gate.items()]
        score = " + ".join(
            f"⟨{format_location(a)}, {format_weight(w)}{format_location(b)}⟩" for (a, b), w in terms
        )
        value = ", ".join(
            f"{format_weight(w)}{format_location(s)} → {format_location(t)}"
            for (s, t), w in self.value.items()
        )
        return f"score {score or '0'}; adds {value}"


def make_signed_pair(head: Head) -> list[Head]:
    """Return a pair of ReLU heads equivalent to a linear head: σ(s)·v + σ(−s)·(−v) = s·v.

    The gate is added to both scores. The pair is linear where the gate is 0, and outputs 0 where
    the gate is at most −|s|.
    """
    mirrored = replace(
        head,
        score={pair: -weight for pair, weight in head.score.items()},
        value={pair: -weight for pair, weight in head.value.items()},
    )
    return [head, mirrored]


def gate_keys(
    flag: Location, bound: float, one: Location = "one"
) -> dict[tuple[Location, Location], float]:
    """Return score terms that restrict a head to the keys with flag 1.

    They subtract `bound` from the scores of keys with flag 0. In a ReLU head, these keys then
    contribute nothing while |s| ≤ bound. In a softmax head, each of them has a weight of at most
    e^{−(bound − range of s)}. The registers that mark groups of tokens are such flags.

    Args:
        flag: The register with the flags, 0 or 1.
        bound: The number to subtract.
        one: A register that is 1 on every token.
    """
    return {(one, one): -bound, (one, flag): bound}


def sum_terms(*terms: Blocks) -> Blocks:
    """Add several gates (or scores); weights between the same registers are summed."""
    total: dict[tuple[Location, Location], Weight] = {}
    for blocks in terms:
        for pair, weight in blocks.items():
            total[pair] = total[pair] + weight if pair in total else weight
    return total


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """Heads as stacked tensors: s = ⟨Q h_i, K h_j⟩, and V h_j is added at the places `targets`.

    `explicit_split` states for each head whether its factors Q and K were specified by a `Split`.
    """

    query: Float[Tensor, "heads rank width"]
    key: Float[Tensor, "heads rank width"]
    value: Float[Tensor, "heads out width"]
    targets: Int[Tensor, " out"]
    explicit_split: tuple[bool, ...]


def compile_heads(layout: Layout, heads: Sequence[Head]) -> HeadWeights:
    """Convert heads to Q, K and V.

    For each score, the smaller one of Q and K only selects places, which needs no rounding.
    """
    if not heads:
        raise InputError("attention needs at least one head")
    factors = [_factorise_score(layout, head) for head in heads]
    rank = max(query.shape[0] for query, _ in factors)
    values = [_assemble_matrix(layout, {"value": _swap_pairs(head.value)}) for head in heads]
    targets = torch.cat([rows for rows, _, _ in values]).unique()
    if not len(targets):
        targets = torch.tensor([0])
    value = torch.zeros(len(heads), len(targets), layout.width, dtype=torch.float64)
    for m, (rows, columns, weights) in enumerate(values):
        value[m, torch.searchsorted(targets, rows)[:, None], columns] = weights
    return HeadWeights(
        query=torch.stack([_pad_rows(query, rank) for query, _ in factors]),
        key=torch.stack([_pad_rows(key, rank) for _, key in factors]),
        value=value,
        targets=targets,
        explicit_split=tuple(
            any(isinstance(w, Split) for w in head.score.values()) for head in heads
        ),
    )


def _factorise_score(layout: Layout, head: Head) -> tuple[Tensor, Tensor]:
    """Return Q and K of one head, (rank, width) each, whose product QᵀK is the score matrix."""
    whole = {pair: w for pair, w in head.score.items() if not isinstance(w, Split)}
    rows, columns, score = _assemble_matrix(layout, {"score": whole, "gate": head.gate})
    rank = min(len(rows), len(columns))
    query, key = (torch.zeros(rank, layout.width, dtype=torch.float64) for _ in range(2))
    if rank == len(rows):
        query[torch.arange(rank), rows] = 1.0
        key[:, columns] = score
    else:
        query[:, rows] = score.T
        key[torch.arange(rank), columns] = 1.0
    queries, keys = [query], [key]
    for (a, b), split in head.score.items():
        if isinstance(split, Split):
            queries.append(_place_factor(split.query, layout[a], layout.width))
            keys.append(_place_factor(split.key, layout[b], layout.width))
    return torch.cat(queries), torch.cat(keys)


def _assemble_matrix(layout: Layout, kinds: Mapping[str, Blocks]) -> tuple[Tensor, Tensor, Tensor]:
    """Sum blocks into a matrix; return the places of its nonzero rows and columns, and its entries.

    The full (width, width) matrix is mostly zero, so it is never formed.
    """
    terms = [
        (layout[row], layout[column], weight, what)
        for what, blocks in kinds.items()
        for (row, column), weight in blocks.items()
    ]
    rows = sorted({place for a, _, _, _ in terms for place in a.places})
    columns = sorted({place for _, b, _, _ in terms for place in b.places})
    row_of, column_of = ({place: k for k, place in enumerate(side)} for side in (rows, columns))
    matrix = np.zeros(
        (len(rows), len(columns))
    )  # NumPy, because blocks are small and a call of torch takes longer
    for a, b, weight, what in terms:
        i, j = [[row_of[place]] for place in a.places], [column_of[place] for place in b.places]
        matrix[i, j] += as_matrix(weight, a, b, what).numpy()
    used_rows, used_columns = matrix.any(axis=1), matrix.any(axis=0)
    first, second = (np.array(side, dtype=np.int64) for side in (rows, columns))
    used = (first[used_rows], second[used_columns], matrix[used_rows][:, used_columns])
    place_rows, place_columns, entries = map(torch.from_numpy, used)
    return place_rows, place_columns, entries


def as_matrix(weight: Weight, rows: Address, columns: Address, what: str) -> Tensor:
    """Convert a weight between two addresses to a matrix; a number multiplies the identity."""
    if not isinstance(weight, Tensor):
        if not math.isfinite(weight):
            raise InputError(f"{what} between {rows.label} and {columns.label} must be finite")
        if rows.size != columns.size:
            raise InputError(
                f"{what} between {rows.label} ({rows.size}) and {columns.label} ({columns.size}): "
                "a number needs equal sizes, give a matrix"
            )
        return float(weight) * torch.eye(rows.size, dtype=torch.float64)
    matrix = weight.detach().to("cpu", torch.float64)
    if not bool(torch.isfinite(matrix).all()):
        raise InputError(f"{what} between {rows.label} and {columns.label} must be finite")
    if matrix.shape != (rows.size, columns.size):
        raise InputError(
            f"{what} between {rows.label} and {columns.label} must be "
            f"{rows.size}×{columns.size}, got {'×'.join(map(str, matrix.shape))}"
        )
    return matrix


def _place_factor(factor: Tensor, address: Address, width: int) -> Tensor:
    if factor.ndim != 2 or factor.shape[1] != address.size:
        raise InputError(
            f"a factor on {address.label} needs {address.size} columns, got {tuple(factor.shape)}"
        )
    rows = torch.zeros(factor.shape[0], width, dtype=torch.float64)
    rows[:, list(address.places)] = factor.detach().to("cpu", torch.float64)
    return rows


def _pad_rows(rows: Tensor, rank: int) -> Tensor:
    padded = torch.zeros(max(rank, 1), rows.shape[1], dtype=torch.float64)
    padded[: len(rows)] = rows
    return padded


def _swap_pairs(value: Blocks) -> Blocks:
    """Swap the (source, target) pairs of value blocks: matrices have one row per target place."""
    return {(target, source): weight for (source, target), weight in value.items()}


def format_weight(weight: Weight | Split) -> str:
    """Format a weight as a factor in front of the register that it multiplies."""
    if isinstance(weight, Split):
        return f"{'×'.join(map(str, weight.query.T.shape))}·{'×'.join(map(str, weight.key.shape))} "
    if isinstance(weight, Tensor):
        return f"({'×'.join(map(str, weight.shape))} matrix) "
    return "" if weight == 1 else f"{weight:.4g} "
