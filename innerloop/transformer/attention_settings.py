"""Names of the kinds, masks and normalisations of attention, and their valid combinations."""

from __future__ import annotations

from typing import Literal, get_args

from innerloop.errors import InputError

Kind = Literal["linear", "relu", "softmax"]
Mask = Literal["all", "context", "causal"]
Normalisation = Literal["1/n", "1/N", "1/i", "1"]
Order = Literal["scores", "gram"]


def choose_normalisation(kind: Kind) -> Normalisation:
    """Choose the normalisation if a paper does not state one: 1 for softmax, else 1/n."""
    return "1" if kind == "softmax" else "1/n"


def check_setting(kind: object, mask: object, normalisation: object) -> None:
    """Raise `InputError` for an unknown kind, mask or normalisation, or an invalid combination."""
    for name, value, allowed in (
        ("kind", kind, get_args(Kind)),
        ("mask", mask, get_args(Mask)),
        ("normalisation", normalisation, get_args(Normalisation)),
    ):
        if value not in allowed:
            raise InputError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
    if normalisation == "1/i" and mask != "causal":
        raise InputError(f"normalisation 1/i needs the causal mask, got mask {mask!r}")
    if kind == "softmax" and normalisation != "1":
        raise InputError(
            f"softmax is normalised by itself: expected normalisation '1', got {normalisation!r}"
        )
