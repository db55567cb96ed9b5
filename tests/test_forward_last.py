"""`forward_last` equals the end of the forward pass and computes other tokens only as needed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from innerloop.constructions.lista_vm import ListaVMConstruction
from innerloop.errors import InputError
from innerloop.transformer import MLP, Attention, Block, Head, Layout, Transformer, make_signed_pair
from innerloop.transformer.attention import Kind, Normalisation
from innerloop.transformer.model import _first_independent_block

LAYOUT = Layout(x=2, y=2, z=2)


def make_block(reads: str, writes: str, mlp: str | None = None) -> Block:
    """A block whose heads read one register and write another; its MLP, if any, writes `mlp`."""
    head = Head(score={("x", "x"): 0.3}, value={(reads, writes): 0.5})
    attention = Attention.from_heads(
        LAYOUT, make_signed_pair(head), kind="relu", mask="causal", normalisation="1/i"
    )
    if mlp is None:
        return Block(attention)
    random = MLP.with_random_weights(LAYOUT.width, 4, generator=torch.Generator().manual_seed(1))
    places = list(LAYOUT[mlp].places)
    return Block(
        attention, MLP(random.inner, random.bias, random.outer[places], torch.tensor(places))
    )


def check_last_token(transformer: Transformer, tokens: torch.Tensor) -> None:
    last, whole = transformer.forward_last(tokens), transformer(tokens)[..., -1:, :]
    torch.testing.assert_close(last, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "normalisation"), [("relu", "1/i"), ("linear", "1"), ("softmax", "1")]
)
@pytest.mark.parametrize("shape", [(9,), (2, 3, 9), (4, 1)])
def test_the_last_token_of_random_transformers(
    kind: Kind, normalisation: Normalisation, shape: tuple[int, ...]
) -> None:
    options: dict[str, Any] = {"kind": kind, "mask": "causal", "normalisation": normalisation}
    generator = torch.Generator().manual_seed(0)
    transformer = Transformer.with_random_weights(
        LAYOUT, layers=3, heads=2, hidden=5, loops=2, scale=0.5, generator=generator, **options
    )
    assert _first_independent_block(transformer.blocks()) == 2, "random weights read every register"
    tokens = torch.randn(*shape, LAYOUT.width, generator=generator, dtype=torch.float64)
    check_last_token(transformer, tokens)


@pytest.mark.parametrize(
    ("blocks", "first"),
    [
        ([make_block("x", "y"), make_block("x", "y"), make_block("x", "y")], 0),
        ([make_block("x", "y"), make_block("y", "y"), make_block("x", "y")], 1),
        ([make_block("x", "y"), make_block("x", "y"), make_block("y", "y")], 2),
        ([make_block("z", "y"), make_block("y", "z"), make_block("x", "z")], 1),
        ([make_block("x", "y", mlp="x"), make_block("x", "y"), make_block("x", "y")], 1),
        ([make_block("z", "y"), make_block("x", "y", mlp="z"), make_block("x", "y")], 0),
        ([make_block("x", "x")], 0),
    ],
)
def test_other_tokens_run_only_as_long_as_they_are_read(blocks: list[Block], first: int) -> None:
    assert _first_independent_block(blocks) == first
    tokens = torch.randn(2, 7, LAYOUT.width, dtype=torch.float64)
    check_last_token(Transformer(LAYOUT, [[block] for block in blocks]), tokens)


def test_lista_vm_needs_only_its_query_token_to_run() -> None:
    built = ListaVMConstruction(d=5, n=6, steps=4)
    transformer = built.transformer
    assert _first_independent_block(transformer.blocks()) == 0
    problem = built.distributions()[0].sample(3, generator=torch.Generator().manual_seed(0))
    check_last_token(transformer, built.prompt(problem))
    answer = built.decode(problem, transformer.forward_last(built.prompt(problem)))
    torch.testing.assert_close(
        answer, built.decode(problem, transformer(built.prompt(problem)))[..., -1:]
    )


def test_a_layer_that_is_not_causal_is_refused() -> None:
    transformer = Transformer.with_random_weights(LAYOUT, layers=2)
    with pytest.raises(InputError, match="tokens can be added to a causal layer"):
        transformer.forward_last(torch.zeros(4, LAYOUT.width, dtype=torch.float64))


def test_what_was_found_from_weights_is_found_again_when_they_change() -> None:
    """However they change: by an optimiser, or behind its back; also in precision."""
    generator = torch.Generator().manual_seed(0)
    transformer = Transformer(LAYOUT, [[make_block("x", "y")], [make_block("x", "z", "z")]])
    tokens = torch.randn(2, 7, LAYOUT.width, generator=generator, dtype=torch.float64)
    check_last_token(transformer, tokens)
    assert _first_independent_block(transformer.blocks()) == 0
    attention = transformer.blocks()[1].attention
    assert attention is not None
    attention.value.data[..., list(LAYOUT["y"].places)] = 0.7
    assert _first_independent_block(transformer.blocks()) == 1
    check_last_token(transformer, tokens)
    with torch.no_grad():
        attention.key.mul_(-2.0)
    check_last_token(transformer, tokens)
    transformer.float()
    last, whole = (run(tokens.float()) for run in (transformer.forward_last, transformer))
    torch.testing.assert_close(last, whole[..., -1:, :], rtol=1e-4, atol=1e-5)
