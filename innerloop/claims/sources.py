"""The documents that the claims are from."""

from __future__ import annotations

from typing import NamedTuple


class Source(NamedTuple):
    """A document, as it is quoted."""

    authors: str
    title: str
    year: int

    def __str__(self) -> str:
        return f"{self.authors} ({self.year}), {self.title}"


SOURCES = {
    "ahn2023": Source(
        "Ahn, Cheng, Daneshmand, Sra",
        "Transformers learn to implement preconditioned gradient descent for in-context learning",
        2023,
    ),
    "gatmiry2024": Source(
        "Gatmiry, Saunshi, Reddi, Jegelka, Kumar",
        "Can looped transformers learn to implement multi-step gradient descent for in-context "
        "learning?",
        2024,
    ),
    "liu2025": Source(
        "Liu, Zhou, Shen, Yang",
        "On the learn-to-optimize capabilities of transformers in in-context sparse recovery",
        2025,
    ),
    "qliu2025": Source("Q. Liu", "How transformers perform PCA and sparse recovery (slides)", 2025),
    "yang2025": Source(
        "H. Yang",
        "Approximation-theoretic view: transformers as implicit algorithm simulators (slides on "
        "six papers)",
        2025,
    ),
}
