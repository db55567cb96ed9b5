"""Constructions that became programs have the same weights as before.

Claims state their heads and layers, recipes start from them, and files of them were saved. The
digests were computed with the hand-written versions, before they went.
"""

from __future__ import annotations

import hashlib

import pytest

from innerloop.constructions.base import Construction
from innerloop.registry import load_members
from innerloop.transformer import Transformer

SIZES = ({"d": 3, "n": 7, "steps": 3}, {})
DIGESTS = {
    "gd-plus-plus": ("b3acb036d2e1d1e6", "af9db6e47a2ad6d4"),
    "lista-vm": ("93ee1e4c59a921fd", "90458f9905bfebd8"),
    "looped-gradient-descent": ("9e29da654dc3065f", "377d074f7c6e9841"),
    "newton": ("858df85e8689fd1f", "98a6db1aad42b974"),
    "preconditioned-gradient-descent": ("a49d8bd53131c6fe", "51601897b81b0bf4"),
    "relu-newton": ("4e0a1247566a5db5", "650fd90fe136d04d"),
}
"""Digests of the weights at `SIZES`."""


def digest_weights(transformer: Transformer) -> str:
    digest = hashlib.sha256()
    for name, weight in transformer.state_dict().items():
        digest.update(name.encode() + str(tuple(weight.shape)).encode())
        digest.update(weight.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


@pytest.mark.parametrize("name", DIGESTS)
def test_weights_are_those_that_were_written_by_hand(name: str) -> None:
    kind = load_members("constructions", Construction)[name]
    found = tuple(digest_weights(kind.from_values(dict(sizes)).transformer) for sizes in SIZES)
    assert found == DIGESTS[name]
