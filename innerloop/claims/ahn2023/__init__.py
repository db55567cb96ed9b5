"""Claims of ahn2023, on linear attention as preconditioned gradient descent.

One module per theorem, lemma or figure; the other modules are helpers that several of them share.
They import the shared claim modules and the package's mathematics, never another source's claims.
"""

from innerloop.claims.sources import Source

SOURCE = Source(
    "Ahn, Cheng, Daneshmand, Sra",
    "Transformers learn to implement preconditioned gradient descent for in-context learning",
    2023,
)
