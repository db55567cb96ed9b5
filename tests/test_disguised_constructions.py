"""Disguises change every number of the stream and no answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from innerloop.constructions.base import Construction
from innerloop.constructions.em import EMConstruction
from innerloop.constructions.lista_vm import ListaVMConstruction
from innerloop.constructions.newton import NewtonConstruction
from innerloop.constructions.relu_gradient_descent import ReLUGradientDescentConstruction
from innerloop.errors import InputError
from innerloop.identification.inside.streams import BuiltStreams
from innerloop.transformer.disguises import (
    change_basis,
    draw_permutation,
    draw_rotation,
    split_heads,
)

CONSTRUCTIONS = [
    NewtonConstruction(d=3, n=8, steps=3),
    ReLUGradientDescentConstruction(d=2, n=5, steps=3),
    ListaVMConstruction(d=3, n=4, steps=2),
    EMConstruction(d=2, n=9, clusters=2, steps=2, knots=40),
]


@pytest.mark.parametrize("construction", CONSTRUCTIONS, ids=lambda each: each.name)
@pytest.mark.parametrize("draw_basis", [draw_rotation, draw_permutation])
def test_a_disguised_transformer_answers_as_the_plain_one(
    construction: Construction, draw_basis: Callable[..., Tensor]
) -> None:
    generator = torch.Generator().manual_seed(0)
    plain = construction.transformer
    basis = draw_basis(plain.layout.width, generator, dead=3)
    problem = construction.distributions()[0].sample(3, generator=generator)
    disguised = BuiltStreams(
        construction, change_basis(split_heads(plain, generator), basis), basis
    )
    expected = BuiltStreams(construction, plain)
    assert torch.allclose(disguised.predict(problem), expected.predict(problem), atol=1e-9)
    for before, after in zip(
        expected.read_streams(problem), disguised.read_streams(problem), strict=True
    ):
        assert torch.allclose(after @ basis, before, atol=1e-9)
        assert after.shape[-1] == before.shape[-1] + 3


def test_a_rotation_leaves_no_register_in_its_place() -> None:
    generator = torch.Generator().manual_seed(0)
    construction = NewtonConstruction(d=3, n=8, steps=1)
    basis = draw_rotation(construction.layout.width, generator)
    rotated = change_basis(construction.transformer, basis)
    attention = rotated.blocks()[0].attention
    assert attention is not None
    assert bool((attention.value != 0).all())


def test_splitting_heads_doubles_them() -> None:
    construction = ReLUGradientDescentConstruction(d=2, n=5, steps=2)
    split = split_heads(construction.transformer, torch.Generator().manual_seed(0))
    assert split.count()["heads"] == 2 * construction.transformer.count()["heads"]


def test_what_is_no_basis_is_refused() -> None:
    transformer = NewtonConstruction(d=2, n=4, steps=1).transformer
    with pytest.raises(InputError, match="at least 6"):
        change_basis(transformer, torch.eye(5, dtype=torch.float64))
    with pytest.raises(InputError, match="orthonormal"):
        change_basis(transformer, 2 * torch.eye(6, dtype=torch.float64))
