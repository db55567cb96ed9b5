"""The result of `solve`: arrays with one entry per problem, and which problems converged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from innerloop.errors import MissingLibraryError

MAX_NAMES = 10
"""The largest number of problems without convergence that a message names."""


@dataclass(frozen=True, eq=False)
class Solution:
    """The result of `solve`: arrays by name, whose first dimension is the problem.

    An array is an attribute or an item: `solution.coef` is `solution["coef"]`. Among them are:

    optimality   the optimality measure of each problem; `measure` says what it measures
    converged    whether the optimality measure of each problem is within the tolerance
    groups       the names of the problems: the values of the column `by`, or 0, 1, …

    Arrays are NumPy arrays, or tensors if the data were tensors. Arrays with an entry per row
    (cluster labels, responsibilities) are a list of arrays if the numbers of rows differ.
    """

    name: str
    measure: str
    groups: np.ndarray
    features: list[Any]
    arrays: dict[str, Any] = field(repr=False)

    def __getattr__(self, name: str) -> Any:
        arrays = self.__dict__.get("arrays", {})
        if name not in arrays:
            known = ", ".join(arrays)
            raise AttributeError(f"this solution has no {name!r} (it has: {known})")
        return arrays[name]

    def __getitem__(self, name: str) -> Any:
        return self.arrays[name]

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def failed(self) -> np.ndarray:
        """The names of the problems that did not converge, at one penalty of their path or more."""
        converged = np.asarray(self.arrays["converged"])
        return self.groups[~converged.reshape(len(self.groups), -1).all(axis=1)]

    def __repr__(self) -> str:
        shapes = ", ".join(
            f"{name} {tuple(values.shape)}"
            for name, values in self.arrays.items()
            if not isinstance(values, list)
        )
        return f"Solution({self.describe()}; {shapes})"

    def describe(self) -> str:
        """Describe in one line how many problems converged, and which did not."""
        failed = self.failed
        line = f"{self.name}: {len(self) - len(failed)} of {len(self)} problems converged"
        if len(failed):
            named = ", ".join(map(str, failed[:MAX_NAMES])) + (
                ", …" if len(failed) > MAX_NAMES else ""
            )
            worst = float(np.fmax.reduce(np.ravel(self.arrays["optimality"])))
            line += f"; not: {named} (largest {self.measure}: {worst:.2g})"
        return line

    def to_frame(self) -> Any:
        """Return a pandas data frame with one row per problem, indexed by its group.

        Each feature's weight is a column that is named after the feature; entries of other vectors
        are numbered columns. Arrays with an entry per row of the data are left out. With a path,
        there is one row for each problem and penalty.
        """
        try:
            import pandas  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise MissingLibraryError(
                "a data frame needs the pandas library: pip install pandas; "
                "without it, the arrays of the solution have the same numbers"
            ) from None
        count, columns = len(self), {}
        depth = np.asarray(self.arrays["converged"]).ndim
        for name, values in self.arrays.items():
            if isinstance(values, list) or name in ("labels", "responsibilities"):
                continue
            array = np.asarray(values)
            if array.ndim < depth:
                continue
            lead = array.shape[:depth]
            for place in np.ndindex(*array.shape[depth:]):
                column = array[(slice(None),) * depth + place].reshape(int(np.prod(lead)))
                columns[self._name_column(name, place)] = column
        if depth == 1:
            return pandas.DataFrame(columns, index=pandas.Index(self.groups, name="group"))
        length = np.asarray(self.arrays["converged"]).shape[1]
        pairs = [np.repeat(self.groups, length), np.tile(np.arange(length), count)]
        return pandas.DataFrame(
            columns, index=pandas.MultiIndex.from_arrays(pairs, names=["group", "place"])
        )

    def _name_column(self, name: str, place: tuple[int, ...]) -> str:
        """Return the name of a column, for example `coef_age`, `centers_0_age` or `weights_1`."""
        by_feature = name in ("coef", "components", "centers", "means", "mean") and place
        parts = [str(k) for k in (place[:-1] if by_feature else place)]
        return "_".join([name, *parts, *([self._label(place[-1])] if by_feature else [])])

    def _label(self, place: int) -> str:
        """Return a feature's label as text.

        If the labels 1 and "1" both occur, their text is the same: quotes then tell them apart.
        """
        label = self.features[place]
        same = [other for other in self.features if str(other) == str(label)]
        return str(label) if len(same) == 1 else repr(label)
