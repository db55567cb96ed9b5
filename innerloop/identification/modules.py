"""Use any `nn.Module` as a model to identify, in its own prompt format, precision and device.

    found = identify(module, LinearRegression(d=5, n=20))                # the format is guessed
    found = identify(ModuleModel(module, format="tokens"), LinearRegression(d=5, n=20))

Formats, for n examples with d features; the query is the last token:
    function      module(X, y, x_query)
    tokens        n + 1 tokens [x, y] of d + 1 numbers, the query's y being 0
    flag          n + 1 tokens [x, y, flag] of d + 2 numbers, flag 1 at the query
    alternating   2n + 1 tokens x₁, (y₁, 0, …), x₂, … of d numbers
The format is guessed from the arguments of `forward` and from the width of the first linear layer.
The module is in `eval` mode while it runs; afterwards its mode is restored.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.arrays import as_tensor
from innerloop.errors import InputError
from innerloop.identification.models import ANSWER, Model, Predictions
from innerloop.problems.linear_regression import RegressionProblem

Prompt = Float[Tensor, "batch tokens width"]
ARGUMENTS = 3
"""X, y and x_query."""


def build_alternating_prompt(problem: RegressionProblem) -> Float[Tensor, "batch tokens d"]:
    """Build the prompt x₁, (y₁, 0, …), x₂, …, x_query of Garg et al. 2022, one vector per token."""
    labels = torch.zeros_like(problem.x)
    labels[..., 0] = problem.y
    pairs = torch.stack([problem.x, labels], dim=-2).flatten(-3, -2)
    return torch.cat([pairs, problem.x_query], dim=-2)


def build_token_prompt(problem: RegressionProblem) -> Prompt:
    """Build tokens [x, y]; the query comes last, with y = 0."""
    both = problem.to_encoder_format()
    return torch.cat([both["x"], both["y"].unsqueeze(-1)], dim=-1)


def build_flag_prompt(problem: RegressionProblem) -> Prompt:
    """Build tokens [x, y, flag]; the query comes last, with y = 0 and flag 1."""
    tokens = build_token_prompt(problem)
    flag = torch.zeros_like(tokens[..., :1])
    flag[..., problem.n :, :] = 1.0
    return torch.cat([tokens, flag], dim=-1)


PROMPTS: dict[str, tuple[Callable[[Any], Prompt], int]] = {
    "tokens": (build_token_prompt, 1),
    "flag": (build_flag_prompt, 2),
    "alternating": (build_alternating_prompt, 0),
}
"""The function that builds each format, and the number of entries of its tokens beyond d."""


@dataclass(frozen=True, eq=False)
class ModuleModel(Model):
    """A module as a model with one layer, its output; it is called once for each batch."""

    module: nn.Module
    format: str | None = None

    def __post_init__(self) -> None:
        if self.format not in (None, "function", *PROMPTS):
            raise InputError(f"no format called {self.format!r}: {describe_formats()}")

    @property
    def layers(self) -> list[str]:
        return ["output"]

    def check(self, problem: Any) -> None:
        if not hasattr(problem, "x_query"):
            raise InputError(
                f"a module is asked about examples and a query, got {type(problem).__name__}: "
                "write a function that calls it, or a Model with `layers` and `predict`"
            )
        self.find_format(problem)

    def find_format(self, problem: Any) -> str:
        """Return the format of the module's prompts, or raise an error that lists the formats."""
        return self.format or guess_format(self.module, problem.d)

    def predict(self, problem: Any) -> Predictions:
        kind = self.find_format(problem)
        problem = move_problem(problem, self.module)
        query = problem.x_query
        with evaluate_module(self.module):
            if kind == "function":
                given = (problem.x, problem.y, query.squeeze(-2))
            else:
                given = (PROMPTS[kind][0](problem),)
            output = self.module(*given)
        return _read_output(output, problem, kind).unsqueeze(0)


def guess_format(module: nn.Module, d: int) -> str:
    """Guess the format from the arguments of `forward` and the width of the first linear layer."""
    needed = [
        part
        for part in inspect.signature(module.forward).parameters.values()
        if part.default is part.empty
        and part.kind in (part.POSITIONAL_ONLY, part.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) == ARGUMENTS:
        return "function"
    width = _find_width(module)
    for name, (_, more) in PROMPTS.items():
        if width == d + more and len(needed) <= 1:
            return name
    found = (
        "no linear layer tells its input width" if width is None else f"it takes {width} numbers"
    )
    raise InputError(
        f"cannot guess the format of {type(module).__name__}'s prompts: {found} a token, "
        f"for d={d}; "
        f"choose one, as ModuleModel(module, format=…): {describe_formats()}"
    )


def describe_formats() -> str:
    """Describe the formats in one line."""
    return (
        "function (X, y, x_query), tokens [x, y] (d + 1 numbers), flag [x, y, flag] (d + 2), "
        "alternating x, y (d)"
    )


def _find_width(module: nn.Module) -> int | None:
    """Return the numbers per token that the first linear layer takes."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            return part.in_features
    return None


def _read_output(output: Any, problem: Any, kind: str) -> Float[Tensor, "batch 1"]:
    """Read the prediction from a module's output: a number per prompt, or one per token."""
    output = output[0] if isinstance(output, tuple | list) and output else output
    said, batch = as_tensor(output, ANSWER), len(problem.x)
    tokens = 2 * problem.n + 1 if kind == "alternating" else problem.n + 1
    shape = tuple(said.shape)
    if shape in ((batch,), (batch, 1)):
        return said.reshape(batch, 1)
    if shape in ((batch, tokens), (batch, tokens, 1)):
        return said.reshape(batch, tokens)[:, -1:]
    if kind in PROMPTS and shape == (batch, tokens, problem.d + PROMPTS[kind][1]):
        place = 0 if kind == "alternating" else problem.d
        return said[:, -1, place : place + 1]
    raise InputError(
        f"the model must return a prediction for each of the {batch} prompts, ({batch},), or for "
        f"each token, ({batch}, {tokens}) or ({batch}, {tokens}, 1); got {shape}"
    )


def move_problem(problem: Any, module: nn.Module) -> Any:
    """Move a problem to the precision and the device of a module."""
    first = next((p for p in module.parameters() if p.is_floating_point()), None)
    return problem if first is None else problem.to(first.dtype).to(first.device)


@contextmanager
def evaluate_module(module: nn.Module) -> Iterator[None]:
    """Put a module into `eval` mode without gradients; restore all modes afterwards."""
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, mode in modes.items():
            part.training = mode
