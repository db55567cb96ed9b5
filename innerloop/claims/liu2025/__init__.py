"""Claims of liu2025, on transformers as learned optimisers for sparse recovery.

One module per theorem, lemma or figure; the other modules are helpers that several of them share.
They import the shared claim modules and the package's parts, never another source's claims.
"""

from innerloop.claims.sources import Source

SOURCE = Source(
    "Liu, Zhou, Shen, Yang",
    "On the learn-to-optimize capabilities of transformers in in-context sparse recovery",
    2025,
)
