"""MLP pieces against the functions they claim to be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from innerloop.errors import InputError
from innerloop.transformer import (
    MLP,
    Layout,
    Units,
    affine,
    clear,
    clip,
    gate,
    piecewise_linear,
    soft_threshold,
)
from innerloop.transformer.pieces import sum_hinges

LAYOUT = Layout(x=3, z=(), out=3, s=(), one=())
NUMBERS = st.floats(-5, 5, allow_nan=False).filter(lambda v: v == 0 or abs(v) > 1e-100)


def make_stream(x: list[float], z: float = 1.0) -> torch.Tensor:
    values = torch.tensor([x], dtype=torch.float64)
    return LAYOUT.make_tokens(
        x=values, z=z, out=torch.tensor([[7.0, 8.0, 9.0]]).to(values), one=1.0
    )


def run_pieces(pieces: list, stream: torch.Tensor, register: str) -> np.ndarray:
    """Run an MLP of these pieces and read one register of the first token."""
    return LAYOUT.read(MLP.from_pieces(LAYOUT, pieces)(stream), register)[0].numpy()


@given(x=st.lists(NUMBERS, min_size=3, max_size=3), theta=st.floats(0, 3))
def test_soft_threshold(x: list[float], theta: float) -> None:
    found = run_pieces([soft_threshold("x", theta)], make_stream(x), "x")
    expected = np.sign(x) * np.maximum(np.abs(x) - theta, 0)
    np.testing.assert_allclose(found, expected, atol=1e-14)
    assert np.all(found[np.abs(x) <= theta] == 0), "inside the threshold it is exactly zero"


@given(x=st.lists(NUMBERS, min_size=3, max_size=3), bound=st.floats(0, 6))
def test_clip(x: list[float], bound: float) -> None:
    found = run_pieces([clip("x", bound)], make_stream(x), "x")
    np.testing.assert_allclose(found, np.clip(x, -bound, bound), atol=1e-14)
    inside = np.abs(x) <= bound
    assert np.all(found[inside] == np.array(x)[inside]), "inside the bound nothing changes"


@given(
    x=st.lists(st.floats(-4, 4), min_size=3, max_size=3),
    knots=st.lists(st.integers(-30, 30), min_size=2, max_size=9, unique=True),
    seed=st.integers(0, 99),
)
def test_piecewise_linear_is_interpolation(x: list[float], knots: list[int], seed: int) -> None:
    places = np.sort(np.array(knots)) / 10.0
    heights = np.random.default_rng(seed).normal(size=len(places))
    piece = piecewise_linear("x", "out", torch.tensor(heights), torch.tensor(places))
    found = run_pieces([clear("out"), piece], make_stream(x), "out")
    np.testing.assert_allclose(found, np.interp(x, places, heights), atol=1e-11)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_geometric_knots_have_the_declared_relative_error(power: float) -> None:
    """Interpolating x^{−p} on knots of ratio r has relative error p(p+1)(ln r)²/8."""
    errors, ratios = [], (1.2, 1.1, 1.05)
    for ratio in ratios:
        count = int(np.log(1e4) / np.log(ratio)) + 1
        knots = 1e-2 * ratio ** torch.arange(count, dtype=torch.float64)
        piece = piecewise_linear("x", "out", lambda t: t**-power, knots)
        x = torch.linspace(0.02, 50, 30_000, dtype=torch.float64).reshape(-1, 3)
        stream = LAYOUT.make_tokens(x=x)
        found = LAYOUT.read(MLP.from_pieces(LAYOUT, [piece])(stream), "out")
        errors.append(float(((found - x**-power) / x**-power).abs().max()))
    predicted = [power * (power + 1) * np.log(ratio) ** 2 / 8 for ratio in ratios]
    np.testing.assert_allclose(errors, predicted, rtol=0.12)


def test_hinges_start_from_the_end_with_less_cancellation() -> None:
    """Hinges from the end with larger values would cancel 1e9 against 1e9 and lose six digits."""
    knots = 10.0 ** torch.linspace(-6, 6, 241, dtype=torch.float64)
    for exponent in (-1.5, 1.5):
        piece = piecewise_linear("x", "out", lambda t, p=exponent: t**p, knots)
        stream = LAYOUT.make_tokens(x=knots[:240].reshape(-1, 3))
        found = LAYOUT.read(MLP.from_pieces(LAYOUT, [piece])(stream), "out").flatten()
        torch.testing.assert_close(found, knots[:240] ** exponent, rtol=1e-10, atol=0)


@given(x=st.lists(NUMBERS, min_size=3, max_size=3), z=st.sampled_from([0.0, 1.0]))
def test_gate(x: list[float], z: float) -> None:
    found = run_pieces([clear("out"), gate("z", "x", "out", 5.0)], make_stream(x, z), "out")
    np.testing.assert_allclose(found, z * np.array(x), atol=1e-14)


def test_affine_clear_and_several_pieces_in_one_mlp() -> None:
    matrix = torch.randn(3, 3, dtype=torch.float64)
    x = [0.3, -2.0, 5.0]
    pieces = [affine("x", "out", matrix, bias=torch.tensor([1.0, 2.0, 3.0])), clear("x")]
    stream = make_stream(x)
    np.testing.assert_allclose(
        run_pieces(pieces, stream, "out"), [8.0, 10.0, 12.0] + matrix.numpy() @ x, rtol=1e-14
    )
    assert not run_pieces(pieces, stream, "x").any(), "both pieces read the input, not each other"


def test_a_piece_used_twice_shares_no_weights() -> None:
    piece = soft_threshold("x", 0.5)
    first, second = MLP.from_pieces(LAYOUT, [piece]), MLP.from_pieces(LAYOUT, [piece])
    next(first.parameters()).data.zero_()
    next(first.everywhere[0].parameters()).data.zero_()
    stream = make_stream([1.0, 2.0, 3.0])
    assert LAYOUT.read(second(stream), "x").tolist() == [[0.5, 1.5, 2.5]]


def test_units_compute_any_hidden_layer() -> None:
    reads = {"x": torch.tensor([[1.0, -1.0, 0.0]]), "one": torch.tensor([[0.5]])}
    piece = Units(reads, torch.tensor([0.25]), {"s": torch.tensor([[2.0]])})
    found = run_pieces([piece], make_stream([3.0, 1.0, 9.0]), "s")
    assert found == pytest.approx(2 * max(3 - 1 + 0.5 + 0.25, 0))


def test_hidden_units_and_norms_count_every_entry() -> None:
    mlp = MLP.from_pieces(LAYOUT, [soft_threshold("x", 0.5), affine("x", "out")])
    assert mlp.hidden == 4 * 3 + 2 * 3
    stored = sum(parameter.numel() for parameter in mlp.parameters())
    assert stored == 6 * LAYOUT.width + 6 + 3 * 6 + 3 * 4, "element-wise units are stored once"
    first = np.concatenate([np.kron(np.eye(3), [[1.0], [-1], [1], [-1]]), np.eye(3), -np.eye(3)])
    bias = np.array([0, 0, -0.5, -0.5] * 3 + [0] * 6)
    first = np.concatenate([first, bias[:, None]], axis=1)
    assert mlp.operator_norms()[0] == pytest.approx(np.linalg.norm(first, 2), rel=1e-12)
    second = np.block(
        [
            [np.kron(np.eye(3), [[-1.0, 1, 1, -1]]), np.zeros((3, 6))],
            [np.zeros((3, 12)), np.eye(3), -np.eye(3)],
        ]
    )
    assert mlp.operator_norms()[1] == pytest.approx(np.linalg.norm(second, 2), rel=1e-12)


def test_norms_of_a_piece_from_one_register_to_another() -> None:
    piece = piecewise_linear("x", "out", torch.tensor([0.0, 3.0, -1.0]), torch.arange(3.0))
    mlp = MLP.from_pieces(LAYOUT, [piece, soft_threshold("x", 0.5)])
    first, second = [], []
    for slope, bias, weight, target in (
        *zip([0.0, 1, 1, 1], [1.0, 0, -1, -2], [0.0, 3, -7, 4], ["out"] * 4, strict=True),
        *zip([1.0, -1, 1, -1], [0.0, 0, -0.5, -0.5], [-1.0, 1, 1, -1], ["x"] * 4, strict=True),
    ):
        for entry in range(3):
            read, write = np.zeros(LAYOUT.width + 1), np.zeros(LAYOUT.width)
            read[LAYOUT["x"].places[entry]], read[-1] = slope, bias
            write[LAYOUT[target].places[entry]] = weight
            first.append(read)
            second.append(write)
    stream = torch.randn(4, LAYOUT.width, dtype=torch.float64)
    hidden = np.maximum(stream.numpy() @ np.array(first)[:, :-1].T + np.array(first)[:, -1], 0)
    np.testing.assert_allclose(mlp(stream).numpy(), stream.numpy() + hidden @ np.array(second))
    norms = [np.linalg.norm(np.array(matrix), 2) for matrix in (first, second)]
    assert mlp.operator_norms() == pytest.approx(norms, rel=1e-12)


def test_units_on_overlapping_places_add_up() -> None:
    reads = {"x": torch.tensor([[1.0, 0, 0]]), LAYOUT["x"][0]: torch.tensor([[2.0]])}
    piece = Units(reads, torch.zeros(1), {"s": torch.ones(1, 1)})
    assert run_pieces([piece], make_stream([1.0, 0, 0]), "s") == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MLP.from_pieces(LAYOUT, []), "at least one piece"),
        (lambda: soft_threshold("x", -1.0), "at least 0"),
        (lambda: soft_threshold("x", float("nan")), "at least 0"),
        (lambda: MLP.from_pieces(LAYOUT, [affine("x", "s")]), "equal sizes"),
        (lambda: MLP.from_pieces(LAYOUT, [gate("x", "x", "out", 1.0)]), "one flag"),
        (lambda: MLP.from_pieces(LAYOUT, [gate("z", "z", "s", 1.0)]), "one flag"),
        (lambda: gate("z", "x", "out", -1.0), "bound must be positive"),
        (lambda: MLP.from_pieces(LAYOUT, [affine("x", "out", bias=torch.ones(2))]), "bias must be"),
        (lambda: piecewise_linear("x", "x", torch.sqrt, torch.tensor([1.0, 0.0])), "increasing"),
        (lambda: piecewise_linear("x", "x", torch.sqrt, torch.tensor([-1.0, 0.0])), "finite"),
        (
            lambda: MLP.from_pieces(
                LAYOUT, [piecewise_linear("x", "s", torch.sin, torch.arange(3.0))]
            ),
            "equal sizes",
        ),
        (
            lambda: MLP.from_pieces(
                LAYOUT, [Units({"x": torch.ones(1, 2)}, torch.ones(1), {"s": torch.ones(1, 1)})]
            ),
            "1×3 weights",
        ),
    ],
)
def test_mistakes_are_named(call, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


@given(seed=st.integers(0, 50), units=st.integers(1, 60))
def test_sum_hinges_agrees_with_its_definition(seed: int, units: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    slope, bias, weight, entries = draw(units), draw(units), draw(units), draw(3, 4)
    slope[::5] = 0.0
    entries[0, 0] = -bias[1 % units] / slope[1 % units] if slope[1 % units] else 0.0
    found = sum_hinges(entries, slope, bias, weight)
    expected = (entries.unsqueeze(-1) * slope + bias).relu() @ weight
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
