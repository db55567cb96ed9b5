"""Network prompts: n tokens with x and y, a query, and the weights of a network in every token.

Registers  `x` (d), `y` (m, 0 on the query), `t` (1 on the n context tokens, 0 on the query),
           `query` (1 − t), and where to start, `V1` (K, d), `V2` (K, K), … `VN` (m, K)
Sizes      d features, n context tokens, K units of each hidden layer, m outputs
Answer     m numbers, at the query
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping

from torch import Tensor

from innerloop.errors import OutOfRangeError
from innerloop.language.construction import ProgramConstruction, Registers
from innerloop.language.prompts.base import Draw, Prompt
from innerloop.parameters import parameter
from innerloop.problems.network_regression import (
    NetworkProblem,
    NetworkRegression,
    network_shapes,
)


class NetworkPrompt(Prompt):
    """The encoder's prompt of a regression by networks of a given number of layers."""

    name = "networks"
    problem_type = NetworkProblem
    size_names = ("d", "n", "K", "m")
    answer_dims = ("m",)

    def __init__(self, layers: int = 2) -> None:
        sides = ["d", *["K"] * (layers - 1), "m"]
        weights = {f"V{j}": (sides[j], sides[j - 1]) for j in range(1, layers + 1)}
        self.layers = layers
        self.offers = {"x": ("d",), "y": ("m",), "t": (), "query": (), **weights}  # pyright: ignore[reportAttributeAccessIssue]

    def find_sizes(self, problem: NetworkProblem) -> dict[str, int]:
        (width, d), (outputs, _) = problem.shapes[0], problem.shapes[-1]
        return {"d": d, "n": problem.n, "K": width, "m": outputs}

    def fill_registers(self, problem: NetworkProblem) -> Registers:
        filled = problem.to_encoder_format()
        weights = {f"V{j}": matrix.unsqueeze(-3) for j, matrix in enumerate(problem.start, 1)}
        filled["query"] = 1 - filled["t"]
        return {**{name: filled[name] for name in ("x", "y", "t", "query")}, **weights}

    def count_context(self, tokens: int, sizes: Mapping[str, int]) -> int:
        return tokens - 1

    def select_answer(self, problem: NetworkProblem, answer: Tensor) -> Tensor:
        return answer[..., -1, :]

    def draw_problem(self, sizes: Mapping[str, int], draw: Draw) -> NetworkProblem:
        d, n, m = (sizes[letter] for letter in ("d", "n", "m"))
        shapes = network_shapes(d, sizes["K"], self.layers, m)
        return NetworkProblem(draw(n, d), draw(n, m), draw(d), tuple(draw(*s) for s in shapes))


class NetworkProgram(ProgramConstruction, ABC):
    """A program on network prompts."""

    d: int = parameter(3, "features", least=1, most=64)
    n: int = parameter(12, "context examples; the weights depend on n", least=1, most=10_000)
    width: int = parameter(4, "K, units of each hidden layer", least=1, most=64)
    outputs: int = parameter(1, "m, outputs of the network", least=1, most=64)

    @property
    def sizes(self) -> dict[str, int]:
        return {"d": self.d, "n": self.n, "K": self.width, "m": self.outputs}

    @property
    def layer_count(self) -> int:
        """The number N of layers of the network."""
        prompt = self.definition.prompt
        assert isinstance(prompt, NetworkPrompt)
        return prompt.layers

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """The numbers of rows and columns of V_1 … V_N."""
        return network_shapes(self.d, self.width, self.layer_count, self.outputs)

    def distributions(self) -> list[NetworkRegression]:
        sizes = {name: getattr(self, name) for name in ("d", "n", "width", "outputs")}
        return [NetworkRegression(**sizes, layers=self.layer_count, noise=0.3)]

    def accept(self, problem: NetworkProblem) -> None:
        if problem.shapes != self.shapes:
            raise OutOfRangeError(
                f"{self.name} was built for weights {format_shapes(self.shapes)}, "
                f"got {format_shapes(problem.shapes)}"
            )
        super().accept(problem)


def format_shapes(shapes: list[tuple[int, int]]) -> str:
    """Format the sizes of matrices: 4×3, 1×4."""
    return ", ".join(f"{rows}×{columns}" for rows, columns in shapes)
