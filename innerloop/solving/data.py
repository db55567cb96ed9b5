"""Read the caller's data, and divide them into padded batches.

Data are arrays, lists of problems with different numbers of rows, or a data frame with a column
that names the problem of each row. A batch ("chunk") holds problems of similar size; shorter
problems are padded with rows of weight 0, which have no effect. Sample weights and the
held-out rows of cross-validation are expressed by the same weights.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.arrays import as_tensor
from innerloop.errors import InputError, unknown_name_error
from innerloop.limits import find_memory_limit

CHUNK_BYTES = 1 << 26
"""Working memory of a chunk in bytes; larger chunks do not fit into caches and are not faster."""
LARGEST = 1e150
"""The largest absolute value of an entry of the data; squares of larger ones would overflow."""
WEIGHT_RANGE = 1e-150, 1e150
"""The range for the sum of a problem's weights."""
MAX_PADDING = 1.3
"""The largest ratio of the numbers of rows of two problems in a chunk."""


@dataclass(frozen=True, eq=False)
class Samples:
    """A batch of problems, padded to the same number of rows.

    If `weight` is None, every row has weight 1.
    """

    x: Float[Tensor, "problems n d"]
    y: Float[Tensor, "problems n"] | None
    weight: Float[Tensor, "problems n"] | None
    places: Int[Tensor, " problems"]
    """The positions of these problems among all problems of the caller."""

    @property
    def weights(self) -> Float[Tensor, "problems n"]:
        """The weight of every row; 1 if the caller passed no weights."""
        return self.x.new_ones(self.x.shape[:2]) if self.weight is None else self.weight

    @property
    def labels(self) -> Float[Tensor, "problems n"]:
        """The labels; without labels, an error is raised."""
        if self.y is None:
            raise InputError("this problem needs labels: pass y, or target= with a data frame")
        return self.y

    @property
    def totals(self) -> Float[Tensor, " problems"]:
        """The sum of each problem's weights, which takes the role of the number of rows."""
        return self.weights.sum(dim=-1)

    def average(self, values: Float[Tensor, "problems n *rest"]) -> Tensor:
        """Return the weighted average over the rows of each problem."""
        if self.weight is None:
            return values.mean(dim=1)
        weights = self.weight / self.totals.unsqueeze(-1)
        return torch.einsum("pn,pn...->p...", weights, values)

    def select(self, index: Tensor) -> Samples:
        """Return the problems at the indices."""
        y = None if self.y is None else self.y[index]
        weight = None if self.weight is None else self.weight[index]
        return Samples(self.x[index], y, weight, self.places[index])

    def to(self, device: Any) -> Samples:
        """Return the problems on another device."""
        parts = {name: getattr(self, name) for name in ("x", "y", "weight")}
        return replace(self, **{k: v if v is None else v.to(device) for k, v in parts.items()})


@dataclass(frozen=True, eq=False)
class Problems:
    """All problems of a call: rows, labels and weights of each, with their names (`groups`)."""

    x: Sequence[Tensor] | Tensor
    y: Sequence[Tensor] | Tensor | None
    weight: Sequence[Tensor] | Tensor | None
    groups: np.ndarray
    features: list[Any]
    """The labels of the data frame's feature columns, or x0, x1, …"""
    positions: list[np.ndarray] | None = None
    """For each group, the positions of its rows in the data frame, in ascending order."""

    def __len__(self) -> int:
        return len(self.x)

    @property
    def sizes(self) -> list[int]:
        """The number of rows of each problem."""
        if isinstance(self.x, Tensor):
            return [self.x.shape[1]] * len(self.x)
        return [len(part) for part in self.x]

    def iterate_chunks(self, numbers_per_row: int, numbers: int) -> Iterator[Samples]:
        """Yield batches of problems that fit into memory, ordered by size to need little padding.

        A solver holds `numbers_per_row` numbers for each row, and `numbers` for each problem.
        """
        room = min(CHUNK_BYTES, find_memory_limit() // 4) // 8
        if isinstance(self.x, Tensor):
            count = max(1, room // (self.x.shape[1] * numbers_per_row + numbers))
            for places in torch.arange(len(self)).split(count):
                yield self._pad(places)
            return
        sizes = torch.tensor(self.sizes)
        order, start = torch.argsort(sizes, stable=True), 0
        while start < len(order):
            least, stop = int(sizes[order[start]]), start + 1
            while stop < len(order):
                largest = int(sizes[order[stop]])
                cost = (stop + 1 - start) * (largest * numbers_per_row + numbers)
                if largest > MAX_PADDING * least + 2 or cost > room:
                    break
                stop += 1
            yield self._pad(order[start:stop])
            start = stop

    def _pad(self, places: Int[Tensor, " chosen"]) -> Samples:
        """Return the problems at some positions as one batch, padded with rows of weight 0."""
        if isinstance(self.x, Tensor):
            assert not isinstance(self.y, Sequence)
            assert not isinstance(self.weight, Sequence)
            contiguous = slice(int(places[0]), int(places[-1]) + 1)
            y = None if self.y is None else self.y[contiguous]
            weight = None if self.weight is None else self.weight[contiguous]
            return Samples(self.x[contiguous], y, weight, places)
        rows = [self.x[k] for k in places.tolist()]
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        y = None
        if self.y is not None:
            labels = [self.y[k] for k in places.tolist()]
            y = torch.nn.utils.rnn.pad_sequence(labels, batch_first=True)
        weights = [
            part.new_ones(len(part)) if self.weight is None else self.weight[k]
            for k, part in zip(places.tolist(), rows, strict=True)
        ]
        weight = torch.nn.utils.rnn.pad_sequence(weights, batch_first=True)
        ragged = self.weight is not None or len({len(part) for part in rows}) > 1
        return Samples(padded, y, weight if ragged else None, places)


def read_problems(X: Any, y: Any, by: Any, target: Any, weight: Any) -> Problems:
    """Read problems from an array (problems, n, d), a list of arrays or pairs, or a data frame."""
    if hasattr(X, "columns"):
        if y is not None or weight is not None:
            raise InputError("with a data frame, name the labels' column by target=, not y=")
        return _read_frame(X, by, target)
    if by is not None or target is not None:
        kind = type(X).__name__
        raise InputError(f"by= and target= name columns of a data frame, got a {kind}")
    if _is_list_of_problems(X):
        return _read_list(list(X), y, weight)
    x = _read_array(X, "X")
    if x.ndim == 2:
        x = x.unsqueeze(0)
        y, weight = (None if part is None else [part] for part in (y, weight))
    if x.ndim != 3 or 0 in x.shape:
        raise InputError(
            f"X must be (problems, n, d) with at least one of each, got {tuple(x.shape)}"
        )
    labels, weights = (
        None if part is None else _read_array(part, name).to(x.device)
        for part, name in ((y, "y"), (weight, "sample_weight"))
    )
    for part, name in ((labels, "y"), (weights, "sample_weight")):
        if part is not None and part.shape != x.shape[:2]:
            expected = tuple(x.shape[:2])
            raise InputError(f"{name} must be {expected} for this X, got {tuple(part.shape)}")
    problems = Problems(x, labels, weights, np.arange(len(x)), _number_features(x.shape[-1]))
    _check_finite(problems)
    return problems


def _read_array(value: Any, name: str) -> Tensor:
    """Return an array as a tensor of float64, without copying a NumPy array of that type."""
    if type(value) is np.ndarray and value.dtype == np.float64 and value.flags.writeable:
        return torch.from_numpy(np.ascontiguousarray(value))
    return as_tensor(value, name).double()


def _is_list_of_problems(X: Any) -> bool:
    """Return whether a list holds several problems, rather than the rows of one problem."""
    if not isinstance(X, list | tuple) or not X:
        return False
    if _is_pair(X[0]):
        return True
    try:
        return np.ndim(X[0]) == 2
    except ValueError:  # rows of different lengths: the later reading raises a precise error
        return True


def _is_pair(part: Any) -> bool:
    return isinstance(part, tuple) and len(part) == 2 and np.ndim(part[1]) == 1


def _read_list(parts: list[Any], y: Any, weight: Any) -> Problems:
    """Read a list of problems: pairs (X, y), or arrays X with a list of labels `y`."""
    if all(map(_is_pair, parts)):
        if y is not None:
            raise InputError("pairs (X, y) contain the labels: leave y out")
        parts, y = [pair[0] for pair in parts], [pair[1] for pair in parts]
    x = [_read_rows(part, k) for k, part in enumerate(parts)]
    if len({part.shape[1] for part in x}) > 1:
        sizes = sorted({part.shape[1] for part in x})
        raise InputError(f"all problems must have the same features, got {sizes} features")
    lists: list[Any] = []
    for entries, name in ((y, "y"), (weight, "sample_weight")):
        if entries is None:
            lists.append(None)
            continue
        if len(entries) != len(x):
            raise InputError(
                f"{name} must have {len(x)} parts, one per problem; got {len(entries)}"
            )
        lists.append(
            [
                as_tensor(part, f"{name} of problem {k}").double().reshape(-1)
                for k, part in enumerate(entries)
            ]
        )
        for k, (rows, part) in enumerate(zip(x, lists[-1], strict=True)):
            if len(rows) != len(part):
                raise InputError(
                    f"{name} of problem {k} must have {len(rows)} entries, got {len(part)}"
                )
    if len({part.shape for part in x}) == 1:
        x = torch.stack(x)
        lists = [None if part is None else torch.stack(part) for part in lists]
    labels, weights = lists
    problems = Problems(x, labels, weights, np.arange(len(x)), _number_features(x[0].shape[1]))
    _check_finite(problems)
    return problems


def _read_rows(part: Any, k: int) -> Tensor:
    rows = as_tensor(part, f"X of problem {k}").double()
    if rows.ndim != 2 or 0 in rows.shape:
        raise InputError(f"X of problem {k} must be (n, d), got shape {tuple(rows.shape)}")
    return rows


def _read_frame(frame: Any, by: Any, target: Any) -> Problems:
    """Read one problem for each value of the column `by` of a data frame.

    Every column other than `by` and `target` is a feature.
    """
    labels = _read_labels(frame)
    roles = [_find_column(labels, role, name) for role, name in (("by", by), ("target", target))]
    places = [k for k in range(len(labels)) if k not in roles]
    if not places or not len(frame):
        raise InputError("the data frame must have at least one row and one feature")
    columns = [_get_column(frame, k) for k in range(len(labels))]
    x = np.stack([read_column(columns[k], labels[k]) for k in places], axis=1)
    y = None if roles[1] is None else read_column(columns[roles[1]], labels[roles[1]])
    if roles[0] is None:
        groups, members = np.array([0]), np.zeros(len(x), dtype=int)
    else:
        groups, members = _find_groups(np.asarray(columns[roles[0]]), by)
    positions = [np.flatnonzero(members == k) for k in range(len(groups))]
    rows = [torch.from_numpy(x[where]) for where in positions]
    answers = None if y is None else [torch.from_numpy(y[where]) for where in positions]
    return Problems(rows, answers, None, groups, [labels[k] for k in places], positions)


def _read_labels(frame: Any) -> list[Any]:
    """Return the labels of a frame's columns.

    Raise an error if a label occurs twice, or if the labels have several levels.
    """
    if getattr(frame.columns, "nlevels", 1) > 1:
        raise InputError(
            "the data frame has column labels of several levels (a MultiIndex): flatten them, as "
            "by frame.columns = ['_'.join(map(str, label)) for label in frame.columns]"
        )
    labels = list(frame.columns)
    seen: set[Any] = set()
    for label in labels:
        if label in seen:
            raise InputError(f"the data frame has two columns called {label!r}: rename one")
        seen.add(label)
    return labels


def _find_column(labels: list[Any], role: str, name: Any) -> int | None:
    """Return the position of the column with a label; 1 and "1" are different labels."""
    if name is None or name in labels:
        return None if name is None else labels.index(name)
    for label in labels:
        if str(label) == str(name):
            raise InputError(
                f"no column for {role}= has the label {name!r} (a {type(name).__name__}); "
                f"there is {label!r} (a {type(label).__name__})"
            )
    raise unknown_name_error(f"column for {role}=", str(name), map(str, labels))


def _get_column(frame: Any, place: int) -> Any:
    return frame.iloc[:, place] if hasattr(frame, "iloc") else frame[frame.columns[place]]


def _find_groups(values: np.ndarray, by: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values, sorted, and the position of each row's value among them."""
    if values.dtype.kind in "mM":
        missing = np.isnat(values)
    else:
        missing = np.array([_is_missing(value) for value in values.tolist()])
    if missing.any():
        row = int(missing.argmax())
        raise InputError(f"column {by!r} has no group in row {row}: drop the row or fill it")
    try:
        groups, places = np.unique(values, return_inverse=True)
        return groups, places
    except TypeError:  # values of several types have no order; 1 and "1" are different groups
        pass
    try:
        known = set(values.tolist())
    except TypeError:
        raise InputError(f"column {by!r} must hold values that can be compared") from None
    ordered = sorted(known, key=lambda value: (type(value).__name__, str(value)))
    groups = np.empty(len(ordered), dtype=object)
    groups[:] = ordered
    place_of = {value: place for place, value in enumerate(ordered)}
    return groups, np.array([place_of[value] for value in values.tolist()])


def _is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, or pandas' NaT or NA."""
    try:
        return value is None or bool(operator.ne(value, value))
    except (TypeError, ValueError):  # pandas.NA is neither equal to itself nor different
        return not isinstance(value, np.ndarray)


def read_column(column: Any, name: Any) -> np.ndarray:
    """Read a column of numbers; an error names the column and the first row without a number."""
    values = np.asarray(column)
    if values.dtype.kind in "mM":
        raise InputError(
            f"column {name!r} must hold numbers, got {values.dtype}: convert it, as by "
            "(column - column.min()) / pandas.Timedelta('1s'), or drop the column"
        )
    if values.dtype.kind not in "buif":
        values = np.array([_parse_number(v, name, row) for row, v in enumerate(values.tolist())])
    values = values.astype(np.float64)
    fine = np.abs(values) <= LARGEST  # false for NaN
    if not fine.all():
        row = int((~fine).argmax())
        remedy = _describe_remedy(float(values[row]))
        raise InputError(f"column {name!r} has {values[row]} in row {row}: {remedy}")
    return values


def _describe_remedy(value: float) -> str:
    if math.isfinite(value):
        return f"entries are at most {LARGEST:g}, scale the data"
    return "drop the row or fill it"


def _parse_number(value: Any, name: Any, row: int) -> float:
    if value is None:
        return float("nan")
    if isinstance(value, int | float | np.number) and not isinstance(value, np.complexfloating):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    raise InputError(
        f"column {name!r} must hold numbers, row {row} has {str(value)[:50]!r}: encode it or drop "
        "the column"
    )


def _number_features(count: int) -> list[str]:
    return [f"x{k}" for k in range(count)]


def _check_finite(problems: Problems) -> None:
    """Raise an error at NaN, infinity, numbers whose squares overflow, and invalid weights."""
    named = {"X": problems.x, "y": problems.y, "sample_weight": problems.weight}
    for name, parts in named.items():
        if parts is None or (isinstance(parts, Tensor) and _is_in_range(parts)):
            continue
        for k, part in enumerate(parts):
            if not _is_in_range(part):
                bad = ~(part.abs() <= LARGEST)
                row, *column = (int(place) for place in bad.nonzero()[0])
                place = f"row {row}" + (f", feature {column[0]}" if column else "")
                value = float(part[(row, *column)])
                raise InputError(
                    f"{name} of problem {problems.groups[k]} contains {value} at {place}: "
                    f"{_describe_remedy(value)}"
                )
    if problems.weight is None:
        return
    for k, part in enumerate(problems.weight):
        if bool((part < 0).any()) or not bool((part > 0).any()):
            raise InputError(
                f"sample_weight of problem {problems.groups[k]} must be at least 0, and not all 0"
            )
        total = float(part.sum())
        if not WEIGHT_RANGE[0] <= total <= WEIGHT_RANGE[1]:
            raise InputError(
                f"sample_weight of problem {problems.groups[k]} sums to {total:.3g}, expected "
                f"{WEIGHT_RANGE[0]:g} to {WEIGHT_RANGE[1]:g}: divide all weights by their largest"
            )


def _is_in_range(part: Tensor) -> bool:
    """Return whether all entries are finite and at most `LARGEST`, in one pass over them."""
    least, largest = torch.aminmax(part)
    return bool((least >= -LARGEST) & (largest <= LARGEST))
