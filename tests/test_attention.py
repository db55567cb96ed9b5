"""Attention against the sums of its definition, written out in NumPy token by token."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import innerloop.transformer.attention as attention_module
from innerloop.errors import InputError
from innerloop.transformer import (
    Attention,
    Block,
    Head,
    Layout,
    Split,
    gate_keys,
    make_signed_pair,
    sum_terms,
)
from innerloop.transformer.head import compile_heads

KINDS = ["linear", "relu", "softmax"]
MASKS = ["all", "context", "causal"]
NORMALISATIONS = ["1/n", "1/N", "1/i", "1"]
LAYOUT = Layout(x=3, y=(), beta=2, one=())


def make_random_heads(seed: int) -> list[Head]:
    generator = torch.Generator().manual_seed(seed)

    def draw_matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator, dtype=torch.float64)

    return [
        Head(
            {("x", "x"): draw_matrix(3, 3), ("one", "y"): -1.5}, {("x", "beta"): draw_matrix(2, 3)}
        ),
        Head({("beta", "x"): draw_matrix(2, 3)}, {("y", "y"): 2.0, ("x", "x"): draw_matrix(3, 3)}),
        Head({("y", "beta"): draw_matrix(1, 2)}, {("one", "y"): 1.0}, gate=gate_keys("one", 0.5)),
    ]


def attend_by_definition(
    heads: list[Head], stream: np.ndarray, context: int, kind: str, mask: str, normalisation: str
) -> np.ndarray:
    """out_i = h_i + c_i Σ_m Σ_j act(s_ij) V h_j, one token of one batch at a time."""
    places = {name: list(LAYOUT[name].places) for name in LAYOUT.registers}

    def as_matrix(weight: object, rows: str, columns: str) -> np.ndarray:
        size = len(places[rows]), len(places[columns])
        return weight.numpy() if isinstance(weight, torch.Tensor) else float(weight) * np.eye(*size)  # pyright: ignore[reportArgumentType]

    out = stream.copy()
    tokens = len(stream)
    for head, i in itertools.product(heads, range(tokens)):
        keys = {"all": range(tokens), "context": range(context), "causal": range(i + 1)}[mask]
        scores = []
        for j in keys:
            terms = [*head.score.items(), *head.gate.items()]
            scores.append(
                sum(
                    stream[i, places[a]] @ as_matrix(w, a, b) @ stream[j, places[b]]  # pyright: ignore[reportArgumentType]
                    for (a, b), w in terms
                )
            )
        scores = np.array(scores)
        weights = {
            "linear": lambda s: s,
            "relu": lambda s: np.maximum(s, 0),
            "softmax": lambda s: np.exp(s - s.max()) / np.exp(s - s.max()).sum(),
        }[kind](scores)
        count = {"1/n": context, "1/N": tokens, "1/i": i + 1, "1": 1}[normalisation]
        for weight, j in zip(weights, keys, strict=True):
            for (source, target), w in head.value.items():
                update = as_matrix(w, target, source) @ stream[j, places[source]]  # pyright: ignore[reportArgumentType]
                out[i, places[target]] += weight * update / count  # pyright: ignore[reportArgumentType]
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("context", [4, 6])
def test_attention_is_its_definition(kind, mask, normalisation, context: int) -> None:
    heads = make_random_heads(seed=5)
    if (normalisation == "1/i" and mask != "causal") or (
        kind == "softmax" and normalisation != "1"
    ):
        with pytest.raises(InputError, match=r"causal mask|normalised by itself"):
            Attention.from_heads(LAYOUT, heads, kind=kind, mask=mask, normalisation=normalisation)
        return
    attention = Attention.from_heads(
        LAYOUT, heads, kind=kind, mask=mask, normalisation=normalisation
    )
    stream = torch.randn(2, 3, 6, LAYOUT.width, dtype=torch.float64)
    out = attention(stream, context)
    for a, b in itertools.product(range(2), range(3)):
        expected = attend_by_definition(
            heads, stream[a, b].numpy(), context, kind, mask, normalisation
        )
        np.testing.assert_allclose(out[a, b].numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("chunk", [1, 500, 1 << 18])
def test_skipping_zeros_and_chunking_scores_change_nothing(
    kind, mask, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without gradients, zero weights are skipped and scores computed in chunks: same result.

    With gradients every weight and all scores are used, which gives the expected output.
    """
    monkeypatch.setattr(attention_module, "_SCORES_PER_CHUNK", chunk)
    monkeypatch.setattr(attention_module, "_MIN_PACKING_COST", 0)
    wide = Layout(x=3, y=(), beta=2, one=(), spare=20)
    attention = Attention.from_heads(
        wide, make_random_heads(seed=5), kind=kind, mask=mask, normalisation="1"
    )
    dense = Attention.with_random_weights(
        wide.width, 2, kind=kind, mask=mask, normalisation="1", rank=3
    )
    for layer, batch in itertools.product((attention, dense), ((), (3,), (2, 0), (2, 2))):
        for tokens in (1, 64, 65, 150):
            stream = torch.randn(*batch, tokens, wide.width, dtype=torch.float64)
            context = max(1, tokens - 1)
            expected = layer(stream.clone().requires_grad_(), context, "scores").detach()
            before = stream.clone()
            with torch.no_grad():
                found = layer(stream, context, "scores")
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-11)
            assert torch.equal(stream, before)


def test_vmap_over_weights_and_forward_derivatives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_module, "_MIN_PACKING_COST", 0)
    attention = Attention.with_random_weights(
        6, 2, kind="relu", mask="causal", normalisation="1", rank=3
    )
    attention.requires_grad_(False)
    stream = torch.randn(70, 6, dtype=torch.float64)
    for name in ("query", "key", "value"):
        several = torch.randn(4, *getattr(attention, name).shape, dtype=torch.float64)

        def run_attention(weight: torch.Tensor, name: str = name) -> torch.Tensor:
            return torch.func.functional_call(attention, {name: weight}, (stream, 69))

        expected = torch.stack([run_attention(weight) for weight in several])
        torch.testing.assert_close(torch.func.vmap(run_attention)(several), expected)
        columns = torch.func.jacfwd(run_attention)(several[0])
        torch.testing.assert_close(columns, torch.func.jacrev(run_attention)(several[0]))


@given(tokens=st.integers(1, 200), seed=st.integers(0, 99), mask=st.sampled_from(MASKS))
def test_both_orders_of_computing_linear_attention_agree(tokens: int, seed: int, mask) -> None:
    normalisation = "1/i" if mask == "causal" else "1/n"
    attention = Attention.from_heads(
        LAYOUT, make_random_heads(seed), mask=mask, normalisation=normalisation
    )
    generator = torch.Generator().manual_seed(seed)
    stream = torch.randn(2, tokens, LAYOUT.width, dtype=torch.float64, generator=generator)
    context = max(1, tokens - 1)
    scores, gram = (attention(stream, context, order) for order in ("scores", "gram"))
    torch.testing.assert_close(scores, gram, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(attention(stream, context), gram, rtol=1e-10, atol=1e-10)


def test_the_future_does_not_reach_the_past_in_either_order() -> None:
    """A huge late token leaves earlier outputs equal bit for bit, rounding included."""
    attention = Attention.from_heads(
        LAYOUT, make_random_heads(3), mask="causal", normalisation="1/i"
    )
    stream = torch.randn(200, LAYOUT.width, dtype=torch.float64)
    later = stream.clone()
    later[127] *= 1e8
    for order in ("scores", "gram"):
        before, after = attention(stream, 199, order), attention(later, 199, order)
        assert torch.equal(before[:127], after[:127])
        assert not torch.equal(before[127:], after[127:])


def test_one_token_is_enough_where_the_context_is_not_used() -> None:
    stream = torch.randn(1, LAYOUT.width, dtype=torch.float64)
    causal = Attention.from_heads(LAYOUT, make_random_heads(3), mask="causal", normalisation="1/i")
    assert causal(stream, 0).shape == stream.shape
    with pytest.raises(InputError, match="at least one context token"):
        Attention.from_heads(LAYOUT, make_random_heads(3))(stream, 0)


def test_terms_of_gates_are_summed() -> None:
    one = {("one", "one"): -1.0, ("one", "y"): 2.0}
    assert sum_terms(one, gate_keys("one", 3.0), one) == {("one", "one"): 1.0, ("one", "y"): 4.0}


def test_the_cheaper_order_is_chosen() -> None:
    for mask in ("all", "causal"):
        attention = Attention.from_heads(LAYOUT, make_random_heads(0), mask=mask, normalisation="1")
        assert attention.choose_order(3, 3) == "scores"
        assert attention.choose_order(10_000, 10_000) == "gram"
    one = Attention.from_heads(LAYOUT, [Head({("x", "x"): 1.0}, {("x", "x"): 1.0})])
    # rank 3, 3 outputs: (tokens + keys)·9 against tokens·keys·6, equal at 3 tokens and keys
    assert one.choose_order(3, 3) == "scores"
    assert one.choose_order(4, 3) == "gram"
    assert one.choose_order(3, 2) == "scores"


def test_many_tokens_are_attended_to_without_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("n×n scores were computed")

    monkeypatch.setattr(Attention, "_attention_weights", refuse)
    for mask in ("context", "causal"):
        attention = Attention.from_heads(LAYOUT, make_random_heads(0), mask=mask, normalisation="1")
        attention(torch.randn(3000, LAYOUT.width, dtype=torch.float64), 2999)


def test_a_signed_pair_is_one_linear_head() -> None:
    head = make_random_heads(1)[0]
    stream = torch.randn(4, 7, LAYOUT.width, dtype=torch.float64)
    linear = Attention.from_heads(LAYOUT, [head], kind="linear", mask="all", normalisation="1/N")
    pair = Attention.from_heads(
        LAYOUT, make_signed_pair(head), kind="relu", mask="all", normalisation="1/N"
    )
    torch.testing.assert_close(pair(stream, 6), linear(stream, 6), rtol=1e-13, atol=1e-13)


def test_a_gated_pair_is_silent_on_keys_outside_the_group() -> None:
    layout = Layout(x=2, out=2, one=(), flag=())
    head = Head({("x", "x"): 1.0}, {("x", "out"): 1.0}, gate=gate_keys("flag", 100.0))
    x = torch.randn(6, 2, dtype=torch.float64)
    flag = torch.tensor([1.0, 0, 1, 1, 0, 1], dtype=torch.float64)
    stream = layout.make_tokens(x=x, one=1.0, flag=flag)
    attention = Attention.from_heads(
        layout, make_signed_pair(head), kind="relu", mask="all", normalisation="1"
    )
    inside = x[flag == 1]
    expected = (x @ inside.T) @ inside
    torch.testing.assert_close(layout.read(attention(stream, 6), "out"), expected)


def test_softmax_over_a_group_of_keys() -> None:
    layout = Layout(x=2, out=2, one=(), flag=())
    head = Head({("x", "x"): 1.0}, {("x", "out"): 1.0}, gate=gate_keys("flag", 1e4))
    x = torch.randn(5, 2, dtype=torch.float64)
    flag = torch.tensor([1.0, 0, 1, 0, 0], dtype=torch.float64)
    attention = Attention.from_heads(layout, [head], kind="softmax", mask="all", normalisation="1")
    out = layout.read(attention(layout.make_tokens(x=x, one=1.0, flag=flag), 4), "out")
    inside = x[flag == 1]
    # The gate's 1e4 costs four digits of the score; 1e-10 is its rounding, not a loose test.
    torch.testing.assert_close(out, (x @ inside.T).softmax(-1) @ inside, rtol=0, atol=1e-10)


def test_compiling_rounds_nothing_and_keeps_the_smaller_rank() -> None:
    matrix = torch.randn(3, 3, dtype=torch.float64)
    weights = compile_heads(
        LAYOUT, [Head({("x", "x"): matrix, ("one", "y"): 0.1}, {("x", "x"): 1.0})]
    )
    score = weights.query[0].T @ weights.key[0]
    assert torch.equal(score[:3, :3], matrix)
    assert weights.query.shape[1] == 4
    low = compile_heads(LAYOUT, [Head({("y", "x"): matrix[:1]}, {("x", "x"): 1.0})])
    assert low.query.shape[1] == 1


def test_blocks_on_overlapping_places_add_up() -> None:
    x = LAYOUT["x"]
    head = Head({("x", "x"): 1.0, (x[0], x[0]): 5.0}, {("x", "x"): 2.0, (x[1], x[0]): 7.0})
    weights = compile_heads(LAYOUT, [head])
    score = weights.query[0].T @ weights.key[0]
    assert score[:3, :3].tolist() == [[6, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert weights.value[0, :, :3].tolist() == [[2, 7, 0], [0, 2, 0], [0, 0, 2]]


def test_operator_norm_of_a_head() -> None:
    a = torch.randn(3, 3, dtype=torch.float64)
    v = torch.randn(2, 3, dtype=torch.float64)
    heads = [Head({("x", "x"): a}, {("x", "beta"): v}), Head({("y", "y"): 4.0}, {("y", "y"): 0.5})]
    block = Block(Attention.from_heads(LAYOUT, heads))
    spectral = [float(np.linalg.norm(m.numpy(), 2)) for m in (a, v)]
    assert block.operator_norm() == pytest.approx(
        max(math.sqrt(spectral[0]), 2.0) + spectral[1] + 0.5, rel=1e-12
    )


@given(seed=st.integers(0, 99), rank=st.integers(1, 9), heads=st.integers(1, 4))
def test_operator_norms_are_those_of_the_whole_matrices(seed: int, rank: int, heads: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    random = Attention.with_random_weights(7, heads, rank=rank, generator=generator).requires_grad_(
        False
    )
    random.value[:, ::2], random.value[0, :, 1:], random.key[:, -1] = 0, 0, 0
    random.explicit_split = tuple(m % 2 == seed % 2 for m in range(heads))
    for attention in (random, Attention.from_heads(LAYOUT, make_random_heads(seed))):
        queries, keys, values = (
            torch.linalg.svdvals(part)[:, 0].tolist()
            for part in (attention.query, attention.key, attention.value)
        )
        whole = torch.linalg.svdvals(attention.score_matrices())[:, 0].sqrt().tolist()
        largest = [
            max(q, k) if explicit else balanced
            for q, k, balanced, explicit in zip(
                queries, keys, whole, attention.explicit_split, strict=True
            )
        ]
        found = attention.operator_norms()
        assert found == pytest.approx((max(largest), sum(values)), rel=1e-12)


def test_an_explicit_split_decides_the_norm_and_does_not_change_the_scores() -> None:
    q, k = torch.randn(2, 3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    split = Attention.from_heads(LAYOUT, [Head({("x", "x"): Split(q, k)}, {("x", "x"): 1.0})])
    whole = Attention.from_heads(LAYOUT, [Head({("x", "x"): q.T @ k}, {("x", "x"): 1.0})])
    torch.testing.assert_close(split.score_matrices(), whole.score_matrices())
    for a, b in ((q, k), (3 * q, k), (q, 3 * k)):
        head = Head({("x", "x"): Split(a, b), ("y", "y"): 1e-3}, {("x", "x"): 1.0})
        norm = max(float(np.linalg.norm(m.numpy(), 2)) for m in (a, b))
        assert Attention.from_heads(LAYOUT, [head]).operator_norms()[0] == pytest.approx(
            norm, rel=1e-3
        )
    norm = max(float(np.linalg.norm(m.numpy(), 2)) for m in (q, k))
    assert split.operator_norms()[0] == pytest.approx(norm, rel=1e-12)
    assert whole.operator_norms()[0] <= norm
    pair = make_signed_pair(Head({("x", "x"): Split(q, k)}, {("x", "x"): 1.0}))
    stream = torch.randn(5, LAYOUT.width, dtype=torch.float64)
    relu = Attention.from_heads(LAYOUT, pair, kind="relu")
    torch.testing.assert_close(relu(stream, 4), split(stream, 4))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compile_heads(LAYOUT, []), "at least one head"),
        (lambda: compile_heads(LAYOUT, [Head({("x", "x"): float("nan")}, {})]), "must be finite"),
        (
            lambda: compile_heads(LAYOUT, [Head({("y", "y"): torch.ones(1, 1) / 0}, {})]),
            "be finite",
        ),
        (lambda: Attention.with_random_weights(4, 2, rank=0), "rank must be at least 1"),
        (lambda: compile_heads(LAYOUT, [Head({("x", "y"): 1.0}, {})]), "equal sizes"),
        (lambda: compile_heads(LAYOUT, [Head({("x", "x"): torch.ones(3, 2)}, {})]), "3×3, got 3×2"),
        (lambda: compile_heads(LAYOUT, [Head({("x", "z"): 1.0}, {})]), "no register called 'z'"),
        (
            lambda: compile_heads(LAYOUT, [Head({}, {("x", "beta"): torch.ones(3, 2)})]),
            "2×3, got 3×2",
        ),
        (
            lambda: compile_heads(
                LAYOUT, [Head({("x", "x"): Split(torch.ones(1, 2), torch.ones(1, 3))}, {})]
            ),
            "needs 3 columns",
        ),
    ],
)
def test_mistakes_are_named(call, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize("kind", ["linear", "relu"])
@pytest.mark.parametrize("mask", MASKS)
def test_folded_heads_compute_the_same_output_and_gradient(kind, mask) -> None:
    """With gradients, heads of full rank compute scores from QᵀK; without, from Q and K."""
    normalisation = "1/i" if mask == "causal" else "1/n"
    generator = torch.Generator().manual_seed(3)
    attention = Attention.with_random_weights(
        4, 3, kind=kind, mask=mask, normalisation=normalisation, generator=generator
    )
    stream = torch.randn(2, 5, 4, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        expected = attention(stream, 4, "scores")
    torch.testing.assert_close(attention(stream, 4, "scores").detach(), expected)
    weights = (attention.query, attention.key, attention.value)

    def run(stream: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        named: dict[str, torch.Tensor] = dict(zip(("query", "key", "value"), weights, strict=True))
        return torch.func.functional_call(attention, named, (stream, 4, "scores"))

    assert torch.autograd.gradcheck(run, (stream.requires_grad_(), *weights))
