"""The cache: running token by token gives the same numbers as the whole forward pass."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import innerloop
from innerloop.errors import InputError
from innerloop.transformer import MLP, Attention, Block, Layout, Transformer
from innerloop.transformer.attention import Kind, Mask, Normalisation
from innerloop.transformer.cache import Rows

LAYOUT = Layout(x=3, y=(), z=2)
SETTINGS: list[tuple[Kind, Normalisation]] = [
    ("relu", "1/i"),
    ("relu", "1"),
    ("linear", "1/i"),
    ("linear", "1"),
    ("softmax", "1"),
]


def make_transformer(
    kind: Kind, normalisation: Normalisation, seed: int, mask: Mask = "causal"
) -> Transformer:
    """A random transformer with prologue, looped body and epilogue; some blocks have MLPs."""
    generator = torch.Generator().manual_seed(seed)

    def make_block(attends: bool = True, hidden: int = 0) -> Block:
        attention = Attention.with_random_weights(
            LAYOUT.width,
            heads=2,
            kind=kind,
            mask=mask,
            normalisation=normalisation,
            rank=2,
            scale=0.15,  # small: the output of unnormalised linear layers multiplies up
            generator=generator,
        )
        mlp = (
            MLP.with_random_weights(LAYOUT.width, hidden, scale=0.5, generator=generator)
            if hidden
            else None
        )
        return Block(attention if attends else None, mlp)

    body = [[make_block(), make_block(attends=False, hidden=5)], [make_block(hidden=4)]]
    return Transformer(
        LAYOUT,
        body,
        prologue=[make_block(hidden=3)],
        epilogue=[make_block(), make_block()],
        loops=2,
    )


def run_in_pieces(transformer: Transformer, tokens: torch.Tensor, cuts: list[int]) -> torch.Tensor:
    """Compute the output piece by piece: the tokens are cut before these positions."""
    cache, parts = transformer.new_cache(), []
    for start, end in pairwise([0, *cuts, tokens.shape[-2]]):
        part, cache = transformer.extend(cache, tokens[..., start:end, :])
        parts.append(part)
    assert cache.tokens == tokens.shape[-2]
    return torch.cat(parts, dim=-2)


@pytest.mark.parametrize(("kind", "normalisation"), SETTINGS)
@pytest.mark.parametrize("batch", [(), (4,), (2, 3)])
def test_every_prefix_agrees_with_the_whole_forward_pass(
    kind: Kind, normalisation: Normalisation, batch: tuple[int, ...]
) -> None:
    transformer = make_transformer(kind, normalisation, 0)
    tokens = torch.randn(*batch, 40, LAYOUT.width, dtype=torch.float64)
    cache = transformer.new_cache()
    for i in range(40):
        last, cache = transformer.extend(cache, tokens[..., i : i + 1, :])
        whole = transformer(tokens[..., : i + 1, :])[..., -1:, :]
        torch.testing.assert_close(last, whole, rtol=1e-12, atol=1e-12)


@given(
    setting=st.sampled_from(SETTINGS),
    cuts=st.lists(st.integers(0, 70), max_size=6).map(sorted),
    seed=st.integers(0, 99),
)
def test_any_pieces_agree_with_the_whole_forward_pass(
    setting: tuple[Kind, Normalisation], cuts: list[int], seed: int
) -> None:
    """Pieces may be single tokens, many tokens, more than a store has room for, or empty."""
    transformer = make_transformer(*setting, seed)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randn(2, 70, LAYOUT.width, dtype=torch.float64, generator=generator)
    found = run_in_pieces(transformer, tokens, cuts)
    torch.testing.assert_close(found, transformer(tokens), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("kind", "normalisation"), SETTINGS)
def test_pieces_agree_with_the_whole_in_float32(kind: Kind, normalisation: Normalisation) -> None:
    transformer = make_transformer(kind, normalisation, 1).to(torch.float32)
    tokens = torch.randn(3, 20, LAYOUT.width)
    found = run_in_pieces(transformer, tokens, list(range(1, 20)))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, transformer(tokens), rtol=1e-4, atol=1e-5)


def test_a_causal_construction_runs_token_by_token() -> None:
    built = innerloop.build("lista-vm", d=6, n=9, instances=4)
    problem = built.construction.distributions()[0].sample(5)
    prompt = built.construction.prompt(problem)
    found = run_in_pieces(built.transformer, prompt, list(range(1, prompt.shape[-2])))
    torch.testing.assert_close(found, built.transformer(prompt), rtol=1e-12, atol=1e-12)
    answer = built.construction.decode(problem, found)
    torch.testing.assert_close(answer, built.predict(problem), rtol=1e-12, atol=1e-12)


def test_two_continuations_of_one_cache_are_independent() -> None:
    """Two continuations of one cache neither overwrite nor see each other."""
    transformer = make_transformer("relu", "1/i", 2)
    past, one, other = (torch.randn(3, n, LAYOUT.width, dtype=torch.float64) for n in (4, 3, 3))
    _, cache = transformer.extend(transformer.new_cache(), past)
    first, after = transformer.extend(cache, one)
    second, _ = transformer.extend(cache, other)
    for future, found in ((one, first), (other, second)):
        whole = transformer(torch.cat([past, future], dim=-2))[..., 4:, :]
        torch.testing.assert_close(found, whole, rtol=1e-12, atol=1e-12)
    more, _ = transformer.extend(after, other)
    whole = transformer(torch.cat([past, one, other], dim=-2))[..., 7:, :]
    torch.testing.assert_close(more, whole, rtol=1e-12, atol=1e-12)


def test_a_repeated_cache_takes_many_continuations_at_once() -> None:
    transformer = make_transformer("relu", "1/i", 2)
    past = torch.randn(3, 5, LAYOUT.width, dtype=torch.float64)
    futures = torch.randn(4, 3, 2, LAYOUT.width, dtype=torch.float64)
    _, cache = transformer.extend(transformer.new_cache(), past)
    found, after = transformer.extend(cache.repeat(4), futures)
    more, _ = transformer.extend(after, futures)
    whole = torch.cat([past.expand(4, *past.shape), futures, futures], dim=-2)
    expected = transformer(whole)[..., 5:, :]
    torch.testing.assert_close(torch.cat([found, more], -2), expected, rtol=1e-12, atol=1e-12)
    alone, _ = transformer.extend(cache, futures[1])
    torch.testing.assert_close(alone, found[1], rtol=1e-12, atol=1e-12)
    first, _ = transformer.extend(transformer.new_cache().repeat(4), futures)
    torch.testing.assert_close(first, transformer(futures), rtol=1e-12, atol=1e-12)


def test_rows_grow_in_place_and_reserve_at_most_twice_their_number() -> None:
    rows, stores = Rows(), set()
    for k in range(1000):
        rows = rows.extend(torch.full((2, 1, 3), float(k)))
        assert rows.store is not None
        stores.add(id(rows.store))
        assert rows.store.rows.shape[-2] <= max(16, 2 * rows.length)
    assert len(stores) <= 8, "a new store only when the old one is full"
    expected = torch.arange(1000.0)[:, None].expand(2, 1000, 3)
    assert torch.equal(rows.tensor, expected)


def test_a_store_is_used_to_its_last_row() -> None:
    rows = Rows().extend(torch.zeros(1, 3))
    first = rows.store
    assert first is not None
    for _ in range(first.rows.shape[-2] - 1):
        rows = rows.extend(torch.ones(1, 3))
        assert rows.store is first
    assert rows.extend(torch.ones(1, 3)).store is not first


@pytest.mark.parametrize(
    ("mask", "normalisation"), [("all", "1"), ("context", "1/n"), ("causal", "1/N")]
)
def test_layers_that_look_ahead_are_refused(mask: Mask, normalisation: Normalisation) -> None:
    transformer = make_transformer("relu", normalisation, 0, mask)
    tokens = torch.zeros(2, LAYOUT.width, dtype=torch.float64)
    with pytest.raises(InputError, match=rf"causal layer.*mask '{mask}'.*run all"):
        transformer.extend(transformer.new_cache(), tokens)


def test_mistakes_are_named() -> None:
    transformer = make_transformer("relu", "1", 0)
    tokens = torch.zeros(2, 3, LAYOUT.width, dtype=torch.float64)
    _, cache = transformer.extend(transformer.new_cache(), tokens)
    with pytest.raises(InputError, match=r"batch dimensions \(2,\), the new ones \(\)"):
        transformer.extend(cache, tokens[0])
    with pytest.raises(InputError, match="finite"):
        transformer.extend(cache, tokens / 0)
    with pytest.raises(InputError, match="tokens must have shape"):
        transformer.extend(cache, tokens[..., :2])
    different = Transformer.with_random_weights(LAYOUT, layers=1, mask="causal")
    with pytest.raises(InputError, match="another transformer"):
        different.extend(cache, tokens)
