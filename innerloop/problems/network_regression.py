"""In-context regression by a network: n examples (x, y), a query, and initial weights.

    f(x) = p_N,   p_0 = x,   p_j = σ(V_j p_{j−1})      σ the ReLU, on the output too; no biases

V_1 is K×d, V_2 … V_{N−1} are K×K, and V_N is m×K. A teacher of the same shape gives the labels,
y = f(x) + noise; rows x are N(0, I). Teacher and initial weights are independent, and an entry of
V_j is N(0, 2/columns) in both. Initial weights of 0 would be a stationary point.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.arrays import as_tensor
from innerloop.errors import InputError
from innerloop.parameters import parameter
from innerloop.problems.base import Distribution, normal_sampler
from innerloop.problems.problem import Problem

NetworkWeights = tuple[Float[Tensor, "*batch _ _"], ...]
"""V_1 … V_N, each of shape (*batch, rows, columns)."""


def activations(weights: NetworkWeights, rows: Float[Tensor, "*batch n d"]) -> list[Tensor]:
    """Return p_0 … p_N of every row: p_0 is the row itself, p_N the output of the network."""
    layers = [rows]
    for matrix in weights:
        layers.append((layers[-1] @ matrix.mT).relu())
    return layers


def network_shapes(d: int, width: int, layers: int, outputs: int) -> list[tuple[int, int]]:
    """Return the numbers of rows and columns of V_1 … V_N."""
    sizes = [d, *[width] * (layers - 1), outputs]
    return [(rows, columns) for columns, rows in pairwise(sizes)]


@dataclass(frozen=True, eq=False)
class NetworkProblem(Problem):
    """A batch of instances: examples, a query, initial weights, and the teacher's if known."""

    contents: ClassVar[str] = "instance, example, feature and unit"

    x: Float[Tensor, "*batch n d"]
    y: Float[Tensor, "*batch n m"]
    x_query: Float[Tensor, "*batch d"]
    start: NetworkWeights
    teacher: NetworkWeights | None = None

    @classmethod
    def from_arrays(
        cls, x: Any, y: Any, x_query: Any, start: Any, teacher: Any = None
    ) -> NetworkProblem:
        """Return a problem made from tensors, NumPy arrays or lists.

        A single output may omit its axis. Tensors keep their precision, except that half precision
        becomes float32. Everything else becomes float64.
        """
        x, y = as_tensor(x, "x"), as_tensor(y, "y")
        y = y.unsqueeze(-1) if y.ndim == x.ndim - 1 else y
        for name, network in (("start", start), ("teacher", () if teacher is None else teacher)):
            if not isinstance(network, list | tuple):
                raise InputError(f"{name} must be a list of matrices, got {type(network).__name__}")

        def convert(name: str, network: Any) -> NetworkWeights:
            return tuple(as_tensor(part, f"{name}[{j}]") for j, part in enumerate(network))

        truth = None if teacher is None else convert("teacher", teacher)
        return cls(x, y, as_tensor(x_query, "x_query"), convert("start", start), truth)

    @classmethod
    def _describe_shapes(cls) -> str:
        return (
            "x (*batch, n, d), y (*batch, n, m), x_query (*batch, d), and weights from d to m, "
            "(*batch, K, d), (*batch, K, K), …, (*batch, m, K)"
        )

    def _sizes_agree(self) -> bool:
        networks = [self.start, *([self.teacher] if self.teacher else [])]
        return all(map(self._network_fits, networks))

    def _network_fits(self, network: tuple[Tensor, ...]) -> bool:
        """Return whether the sizes of consecutive matrices match, from d inputs to m outputs."""
        columns = [matrix.shape[-1] for matrix in network]
        rows = [matrix.shape[-2] for matrix in network]
        return bool(network) and [*columns, self.y.shape[-1]] == [self.x.shape[-1], *rows]

    @property
    def n(self) -> int:
        return self.x.shape[-2]

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """The numbers of rows and columns of V_1 … V_N."""
        return [(matrix.shape[-2], matrix.shape[-1]) for matrix in self.start]

    @property
    def targets(self) -> Float[Tensor, "*batch m"]:
        """The noiseless output of the teacher at the query."""
        if self.teacher is None:
            raise InputError(
                "expected a problem with a teacher, from which targets are computed, got one "
                "without: pass teacher"
            )
        return activations(self.teacher, self.x_query.unsqueeze(-2))[-1].squeeze(-2)

    def to_encoder_format(self) -> dict[str, Tensor]:
        """Return the data registers of a prompt with x and y in one token, the query last.

        They are `x`, `y` (0 on the query), `one` (always 1), and `t` (1 on examples, 0 on the
        query).
        """
        t = torch.cat([self.y.new_ones(self.n), self.y.new_zeros(1)])
        return {
            "x": torch.cat([self.x, self.x_query.unsqueeze(-2)], dim=-2),
            "y": torch.cat([self.y, torch.zeros_like(self.y[..., :1, :])], dim=-2),
            "one": torch.ones_like(t),
            "t": t,
        }


class NetworkRegression(Distribution):
    """A distribution over `NetworkProblem`s."""

    source: ClassVar[str] = "Yang 2025, second paper (Wu et al. 2024)"
    problem_type: ClassVar[type[Any]] = NetworkProblem
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"d": 3, "n": 7, "layers": 2, "width": 4, "noise": 0.1},
        {"d": 2, "n": 9, "layers": 3, "width": 3},
        {"d": 4, "n": 5, "layers": 4, "width": 5, "noise": 0.3},
        {"d": 1, "n": 6, "layers": 2, "width": 3},
        {"d": 3, "n": 1, "layers": 2, "width": 4},
        {"d": 5, "n": 8, "layers": 2, "width": 1, "noise": 0.5},
        {"d": 2, "n": 30, "layers": 3, "width": 4, "outputs": 2},
        {"d": 3, "n": 4, "layers": 3, "width": 2, "outputs": 5},
    )

    d: int = parameter(3, "features", least=1, most=4096)
    n: int = parameter(12, "context examples", least=1, most=1_000_000)
    layers: int = parameter(3, "N, layers of the network", least=1, most=100)
    width: int = parameter(4, "K, units of each hidden layer", least=1, most=4096)
    outputs: int = parameter(1, "m, outputs of the network", least=1, most=4096)
    noise: float = parameter(0.0, "standard deviation of the labels' noise", least=0)

    def sample(
        self,
        *batch: int,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> NetworkProblem:
        """Draw a batch of instances, in float64 so that every precision sees the same data."""
        normal = normal_sampler(batch, generator)
        shapes = network_shapes(self.d, self.width, self.layers, self.outputs)

        def network() -> NetworkWeights:
            return tuple((2 / columns) ** 0.5 * normal(rows, columns) for rows, columns in shapes)

        x, x_query = normal(self.n, self.d), normal(self.d)
        teacher = network()
        y = activations(teacher, x)[-1] + self.noise * normal(self.n, self.outputs)
        return NetworkProblem(x, y, x_query, network(), teacher).to(dtype)
