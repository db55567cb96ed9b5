"""With marks, a head attends to its own token only and multiplies two of its registers."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from innerloop.errors import InputError
from innerloop.transformer import (
    Attention,
    Head,
    Layout,
    gate_own_token,
    make_marks,
    make_signed_pair,
)
from innerloop.transformer.marks import MARK_SIZE

LAYOUT = Layout(x=2, y=(), out=2, p=MARK_SIZE, one=())


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 10, 50, 101])
def test_marks_are_unit_vectors_at_least_the_declared_distance_apart(n: int) -> None:
    products = make_marks(n) @ make_marks(n).mT
    torch.testing.assert_close(products.diagonal(), torch.ones(n).double(), rtol=0, atol=1e-15)
    gate = gate_own_token(1.0, n)
    scores = gate["p", "p"] * products + gate["one", "one"]
    others = scores[~torch.eye(n, dtype=torch.bool)]
    assert bool((others <= -1 + 1e-12).all())
    if n > 4:
        assert float(others.max()) == pytest.approx(-1.0), "the gate is no stronger than needed"


@pytest.mark.parametrize("n", [1, 2, 7, 60, 1000])
def test_products_inside_a_token_are_exact_up_to_the_bound(n: int) -> None:
    x, y = torch.randn(n, 2).double(), 5 * torch.randn(n).double()
    bound = float(y.abs().max())
    stream = LAYOUT.make_tokens(x=x, y=y, p=make_marks(n), one=1.0)

    def measure_error(gate_bound: float) -> torch.Tensor:
        head = Head({("y", "one"): 1.0}, {("x", "out"): 1.0}, gate=gate_own_token(gate_bound, n))
        attention = Attention.from_heads(
            LAYOUT, make_signed_pair(head), kind="relu", mask="all", normalisation="1"
        )
        return LAYOUT.read(attention(stream, n), "out") - y.unsqueeze(-1) * x

    assert float(measure_error(bound).abs().max()) < 2e-15 * bound * (n + 10)
    if n > 4:
        assert float(measure_error(bound / 4).abs().max()) > 0.01, (
            "beyond the bound other tokens are attended to"
        )


def test_tokens_without_a_mark_are_left_alone() -> None:
    x, p = torch.randn(5, 2).double(), make_marks(5)
    p[3:] = 0
    stream = LAYOUT.make_tokens(x=x, y=2.0, p=p, one=1.0)
    head = Head({("y", "one"): 1.0}, {("x", "out"): 1.0}, gate=gate_own_token(2.0, 5))
    attention = Attention.from_heads(
        LAYOUT, make_signed_pair(head), kind="relu", mask="all", normalisation="1"
    )
    out = LAYOUT.read(attention(stream, 5), "out")
    torch.testing.assert_close(out[:3], 2 * x[:3])
    assert not out[3:].any()


def test_the_gates_strength_grows_linearly_with_n() -> None:
    strengths = [gate_own_token(1.0, n)["p", "p"] for n in (100, 400, 1600, 6400)]
    slopes = [math.log(b / a, 4) for a, b in itertools.pairwise(strengths)]
    assert slopes == pytest.approx([1.0] * 3, abs=0.02)


def test_mistakes_are_named() -> None:
    for bound, n in ((0.0, 3), (1.0, 0)):
        with pytest.raises(InputError, match="positive bound and at least one token"):
            gate_own_token(bound, n)
