"""Layouts: registers, addresses of their parts, tokens, and what is refused."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from innerloop.errors import InputError
from innerloop.transformer import Layout, join

SHAPES = st.dictionaries(
    st.sampled_from(["x", "y", "beta", "W1", "one"]),
    st.one_of(st.integers(1, 4), st.just(()), st.tuples(st.integers(1, 3), st.integers(1, 3))),
    min_size=1,
)


@given(shapes=SHAPES, batch=st.lists(st.integers(1, 3), max_size=2), n=st.integers(1, 4))
def test_reading_returns_the_written_values(shapes: dict, batch: list[int], n: int) -> None:
    layout = Layout(**shapes)
    values = {
        name: torch.randn(*batch, n, *shape, dtype=torch.float64)
        for name, shape in layout.registers.items()
    }
    stream = layout.make_tokens(**values)
    assert stream.shape == (*batch, n, layout.width)
    for name, value in values.items():
        assert torch.equal(layout.read(stream, name), value)


def test_missing_registers_are_zero_and_numbers_fill_every_token() -> None:
    layout = Layout(x=2, y=(), one=())
    stream = layout.make_tokens(x=torch.ones(3, 4, 2), one=1.0)
    assert torch.equal(layout.read(stream, "one"), torch.ones(3, 4))
    assert not layout.read(stream, "y").any()


@pytest.mark.parametrize("batch", [(), (5,), (1,), (2, 3)])
@pytest.mark.parametrize("n", [1, 4])
def test_a_register_of_length_one_takes_values_with_or_without_its_axis(
    batch: tuple[int, ...], n: int
) -> None:
    layout = Layout(x=3, y=1)
    x, y = torch.randn(*batch, n, 3), torch.randn(*batch, n)
    without_axis, with_axis = (
        layout.make_tokens(x=x, y=y),
        layout.make_tokens(x=x, y=y.unsqueeze(-1)),
    )
    assert torch.equal(without_axis, with_axis)
    assert torch.equal(layout.read(without_axis, "y"), y.unsqueeze(-1))


def test_an_address_is_a_part_of_a_register() -> None:
    layout = Layout(x=2, W=(3, 4))
    stream = torch.arange(28.0).reshape(2, 14)
    column = layout["W"][:, 1]
    assert column.label == "W[:, 1]"
    assert column.shape == (3,)
    assert torch.equal(layout.read(stream, column), layout.read(stream, "W")[..., 1])
    assert torch.equal(layout.read(stream, column[1:]), layout.read(stream, "W")[:, 1:, 1])
    assert layout.read(stream, layout["W"][2, 3]).shape == (2,)


def test_integers_take_the_precision_of_the_other_registers() -> None:
    layout = Layout(pos=(), x=2)
    stream = layout.make_tokens(pos=torch.arange(3), x=torch.full((3, 2), 0.5, dtype=torch.float64))
    assert stream.dtype == torch.float64
    assert stream.tolist() == [[0, 0.5, 0.5], [1, 0.5, 0.5], [2, 0.5, 0.5]]


def test_groups_of_tokens_are_joined_over_batches() -> None:
    layout = Layout(x=2, data=(), centroid=())
    data = layout.make_tokens(x=torch.randn(5, 4, 2), data=1.0)
    centroids = layout.make_tokens(x=torch.randn(3, 2), centroid=1.0)
    stream = join(data, centroids)
    assert stream.shape == (5, 7, 4)
    assert torch.equal(layout.read(stream, "data")[0], torch.tensor([1.0] * 4 + [0.0] * 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Layout(x=0), "at least 1"),
        (lambda: Layout(x=2)["y"], "did you mean 'x'"),
        (lambda: Layout(x=2).make_tokens(x=torch.ones(4, 3)), "must have shape .*got"),
        (lambda: Layout(x=2).make_tokens(x=torch.ones(2)), "must have shape .*got"),
        (lambda: Layout(x=2, y=()).make_tokens(x=torch.ones(4, 2), y=torch.ones(5)), "disagree"),
        (lambda: Layout(x=2).make_tokens(x=torch.full((4, 2), torch.nan)), "x must be finite"),
        (
            lambda: Layout(x=2, y=()).make_tokens(x=torch.ones(1, 2), y=torch.inf),
            "y must be finite",
        ),
        (lambda: Layout(x=2).make_tokens(x=1.0), "floating-point tensor"),
        (lambda: Layout(i=()).make_tokens(i=torch.arange(3)), "floating-point tensor"),
        (
            lambda: Layout(x=2, y=()).make_tokens(x=torch.ones(1, 2), y=torch.ones(1).double()),
            "one prec",
        ),
        (lambda: Layout(x=2)["x"][[0, 0]], "each of them once"),
        (lambda: Layout(x=2)["x"][2:], "must select places"),
        (lambda: join(torch.ones(2, 3), torch.ones(2, 4)), "one layout"),
        (lambda: Layout(x=2).read(torch.ones(4, 3), "x"), "width 2"),
        (lambda: Layout(W=(2, 2))["W"][5], "no such part"),
        (lambda: Layout(x=2)[Layout(x=9)["x"]], "another layout"),
    ],
)
def test_mistakes_are_named(call, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def test_places_may_have_a_further_name() -> None:
    """That of what they hold for a while: it is read, but is no register."""
    layout = Layout(x=2, scratch=3)
    layout.name_places("u", [3, 4], (2,))
    layout.name_places("u", [2, 3], (2,))
    layout.name_places("x", [4], ())
    assert layout["u"].places == (3, 4)
    assert layout[layout["u"][1]].places == (4,)
    assert layout["x"].places == (0, 1)
    assert list(layout.registers) == ["x", "scratch"]
    stream = torch.arange(10.0).reshape(2, 5)
    assert layout.read(stream, "u").tolist() == [[3.0, 4.0], [8.0, 9.0]]
