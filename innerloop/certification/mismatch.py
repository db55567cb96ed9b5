"""Describe where a stream or a prediction deviates most, with the expected and the actual value.

Tokens, entries and instances are counted from 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from innerloop.transformer import Layout


def relative_errors(value: Tensor, reference: Tensor) -> Tensor:
    """Return |value − reference| / max(1, |reference|) of every entry, and infinity for NaN."""
    errors = (value.to(reference) - reference).abs() / reference.abs().clamp_min(1.0)
    return errors.nan_to_num(nan=torch.inf, posinf=torch.inf)


def describe_stream_mismatch(layout: Layout, stream: Tensor, exact: Tensor, where: Tensor) -> str:
    """Describe the largest difference between a stream and the exact one.

    An example is `register y: expected 0.5, found 0.7 (token 2, entry 1 of instance 0)`. `where` is
    a mask (tokens, width) of the entries to compare.
    """
    if stream.shape != exact.shape:
        return f"stream: {_describe_shapes(stream, exact)}"
    *batch, token, column = _find_largest(relative_errors(stream, exact).masked_fill(~where, -1.0))
    name = next(name for name in layout.registers if column in layout[name].places)
    register = layout[name]
    position = torch.tensor(register.places.index(column))
    entry = [int(k) for k in torch.unravel_index(position, register.shape)]
    place = (*batch, token, column)
    words = [f"token {token}", _name_index("entry", entry)]
    return f"register {name}: {_describe_values(exact[place], stream[place], words, batch)}"


def describe_prediction_mismatch(prediction: Tensor, answer: Tensor, batch_dims: int) -> str:
    """Describe the largest difference between a prediction and the algorithm's answer.

    An example is `expected 0.5, found 0.7 (entry 1 of instance 0)`.
    """
    if prediction.shape != answer.shape:
        return _describe_shapes(prediction, answer)
    place = _find_largest(relative_errors(prediction, answer))
    words = [_name_index("entry", place[batch_dims:])]
    return _describe_values(answer[place], prediction[place], words, place[:batch_dims])


def _find_largest(errors: Tensor) -> tuple[int, ...]:
    return tuple(int(k) for k in torch.unravel_index(errors.argmax(), errors.shape))


def _name_index(name: str, index: Sequence[int]) -> str:
    """Return `entry 1` for a vector, `entry (0, 1)` for a matrix, and "" for a scalar."""
    if not index:
        return ""
    return f"{name} {index[0] if len(index) == 1 else tuple(index)}"


def _describe_values(
    expected: Tensor, computed: Tensor, words: Sequence[str], batch: Sequence[int]
) -> str:
    """Format both numbers with as many digits as distinguish them, at least three."""
    a, b = float(expected), float(computed)
    digits = next((d for d in range(3, 17) if f"{a:.{d}g}" != f"{b:.{d}g}"), 17)
    parts = (", ".join(filter(None, words)), _name_index("instance", batch))
    place = " of ".join(filter(None, parts))
    return f"expected {a:.{digits}g}, found {b:.{digits}g}" + (f" ({place})" if place else "")


def _describe_shapes(value: Tensor, reference: Tensor) -> str:
    return f"expected shape {tuple(reference.shape)}, found {tuple(value.shape)}"
