"""The last token alone is the end of the whole forward pass, and other tokens run only if read."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from innerloop.constructions.lista_vm import ListaVMDecoder
from innerloop.errors import InputError
from innerloop.transformer import MLP, Attention, Block, Head, Layout, Transformer, signed
from innerloop.transformer.attention import Kind, Normalisation
from innerloop.transformer.model import _first_alone

LAYOUT = Layout(x=2, y=2, z=2)


def block(reads: str, writes: str, mlp: str | None = None) -> Block:
    """Heads from a register to another; an MLP that writes one."""
    head = Head(score={("x", "x"): 0.3}, value={(reads, writes): 0.5})
    attention = Attention.of(LAYOUT, signed(head), kind="relu", mask="causal", normalisation="1/i")
    if mlp is None:
        return Block(attention)
    free = MLP.free(LAYOUT.width, 4, generator=torch.Generator().manual_seed(1))
    places = list(LAYOUT[mlp].places)
    return Block(attention, MLP(free.inner, free.bias, free.outer[places], torch.tensor(places)))


def last_is_the_end(transformer: Transformer, tokens: torch.Tensor) -> None:
    found, whole = transformer.last(tokens), transformer(tokens)[..., -1:, :]
    torch.testing.assert_close(found, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "normalisation"), [("relu", "1/i"), ("linear", "1"), ("softmax", "1")]
)
@pytest.mark.parametrize("shape", [(9,), (2, 3, 9), (4, 1)])
def test_free_weights(kind: Kind, normalisation: Normalisation, shape: tuple[int, ...]) -> None:
    options: dict[str, Any] = {"kind": kind, "mask": "causal", "normalisation": normalisation}
    generator = torch.Generator().manual_seed(0)
    transformer = Transformer.free(
        LAYOUT, layers=3, heads=2, hidden=5, loops=2, scale=0.5, generator=generator, **options
    )
    assert _first_alone(transformer.blocks()) == 2, "all reads all"
    tokens = torch.randn(*shape, LAYOUT.width, generator=generator, dtype=torch.float64)
    last_is_the_end(transformer, tokens)


@pytest.mark.parametrize(
    ("blocks", "first"),
    [
        ([block("x", "y"), block("x", "y"), block("x", "y")], 0),
        ([block("x", "y"), block("y", "y"), block("x", "y")], 1),
        ([block("x", "y"), block("x", "y"), block("y", "y")], 2),
        ([block("z", "y"), block("y", "z"), block("x", "z")], 1),
        ([block("x", "y", mlp="x"), block("x", "y"), block("x", "y")], 1),
        ([block("z", "y"), block("x", "y", mlp="z"), block("x", "y")], 0),
        ([block("x", "x")], 0),
    ],
)
def test_others_run_only_as_far_as_they_are_read(blocks: list[Block], first: int) -> None:
    assert _first_alone(blocks) == first
    tokens = torch.randn(2, 7, LAYOUT.width, dtype=torch.float64)
    last_is_the_end(Transformer(LAYOUT, [[each] for each in blocks]), tokens)


def test_lista_vm_answers_its_query_alone() -> None:
    built = ListaVMDecoder(d=5, n=6, steps=4)
    transformer = built.transformer
    assert _first_alone(transformer.blocks()) == 0
    problem = built.distributions()[0].sample(3, generator=torch.Generator().manual_seed(0))
    last_is_the_end(transformer, built.prompt(problem))
    answer = built.decode(problem, transformer.last(built.prompt(problem)))
    torch.testing.assert_close(
        answer, built.decode(problem, transformer(built.prompt(problem)))[..., -1:]
    )


def test_a_layer_that_is_not_causal_is_refused() -> None:
    transformer = Transformer.free(LAYOUT, layers=2)
    with pytest.raises(InputError, match="tokens can be added to a causal layer"):
        transformer.last(torch.zeros(4, LAYOUT.width, dtype=torch.float64))
