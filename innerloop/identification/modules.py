"""Use any `nn.Module` as a model to identify, in its own prompt format, precision and device.

    result = identify(module, LinearRegression(d=5, n=20))               # the format is guessed
    result = identify(ModuleModel(module, format="tokens"), LinearRegression(d=5, n=20))

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


def build_arguments(problem: RegressionProblem) -> tuple[Tensor, Tensor, Tensor]:
    """Build the arguments X, y and x_query of a module that is a function of the three."""
    return problem.x, problem.y, problem.x_query.squeeze(-2)


FORMATS: dict[str, Callable[[Any], Any]] = {
    "function": build_arguments,
    "tokens": build_token_prompt,
    "flag": build_flag_prompt,
    "alternating": build_alternating_prompt,
}
"""The function that builds a module's input in each format."""
EXTRA_NUMBERS = {"tokens": 1, "flag": 2, "alternating": 0}
"""The numbers that the tokens of a format have beyond d."""


@dataclass(frozen=True, eq=False)
class ModuleModel(Model):
    """A module as a model with one layer, its output; it is called once for each batch."""

    module: nn.Module
    format: str | None = None

    def __post_init__(self) -> None:
        if self.format is not None:
            check_format(self.format)

    @property
    def layers(self) -> list[str]:
        return ["output"]

    def check(self, problem: Any) -> None:
        if not hasattr(problem, "x_query"):
            raise InputError(
                f"a module answers examples and a query, got {type(problem).__name__}: "
                "write a function that calls it, or a Model with `layers` and `predict`"
            )
        self.find_format(problem)

    def find_format(self, problem: Any) -> str:
        """Return the format of the module's prompts, or raise an error that lists the formats."""
        return self.format or guess_format(self.module, problem.d)

    def predict(self, problem: Any) -> Predictions:
        kind = self.find_format(problem)
        problem = move_problem(problem, self.module)
        with evaluate_module(self.module):
            output = call_module(self.module, FORMATS[kind](problem))
        return read_output(output, problem, kind).unsqueeze(0)


def call_module(module: nn.Module, inputs: Any) -> Any:
    """Call a module with a dictionary of arguments, a tuple of arguments, or one argument."""
    if isinstance(inputs, dict):
        return module(**inputs)
    return module(*inputs) if isinstance(inputs, tuple) else module(inputs)


def check_format(name: str) -> None:
    """Raise an error for a format that does not exist."""
    if name not in FORMATS:
        raise InputError(f"no format called {name!r}: {describe_formats()}")


def guess_format(module: nn.Module, d: int, default: str | None = None) -> str:
    """Guess the format from the arguments of `forward` and the width of the first linear layer.

    `default` is the format of a module without a linear layer, which is an error without it.
    """
    needed = [
        part
        for part in inspect.signature(module.forward).parameters.values()
        if part.default is part.empty
        and part.kind in (part.POSITIONAL_ONLY, part.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) == ARGUMENTS:
        return "function"
    width = _find_width(module)
    if width is None and default is not None:
        return default
    for name, more in EXTRA_NUMBERS.items():
        if width == d + more and len(needed) <= 1:
            return name
    reason = (
        "it has no linear layer that states the width of a token"
        if width is None
        else f"it takes {width} numbers a token"
    )
    raise InputError(
        f"cannot guess the format of {type(module).__name__}'s prompts: {reason}, for d={d}; "
        "choose one, as ModuleModel(module, format=…) or HookedModel.fit(…, prompt=…): "
        f"{describe_formats()}"
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


def read_output(output: Any, problem: Any, kind: str) -> Float[Tensor, "batch 1"]:
    """Read the prediction from a module's output: a number per prompt, or one per token."""
    batch = len(problem.x)
    tokens = 2 * problem.n + 1 if kind == "alternating" else problem.n + 1
    output = take_first(output)
    answers = as_tensor(output, ANSWER)
    read = read_predictions(answers, batch, tokens)
    if read is not None:
        return read
    shape = tuple(answers.shape)
    if kind in EXTRA_NUMBERS and shape == (batch, tokens, problem.d + EXTRA_NUMBERS[kind]):
        place = 0 if kind == "alternating" else problem.d
        return answers[:, -1, place : place + 1]
    raise InputError(
        f"the model must return a prediction for each of the {batch} prompts, ({batch},), or for "
        f"each token, ({batch}, {tokens}) or ({batch}, {tokens}, 1); got {shape}"
    )


def read_predictions(
    answers: Tensor, batch: int, tokens: int | None
) -> Float[Tensor, "batch 1"] | None:
    """Read a number per prompt, or that of the last token; None for another shape."""
    shape = tuple(answers.shape)
    if shape in ((batch,), (batch, 1)):
        return answers.reshape(batch, 1)
    if tokens is not None and shape in ((batch, tokens), (batch, tokens, 1)):
        return answers.reshape(batch, tokens)[:, -1:]
    return None


def take_first(output: Any) -> Any:
    """Return the first of several outputs, or the output itself."""
    return output[0] if isinstance(output, tuple | list) and output else output


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
