"""Claims of gatmiry2024, on looped linear attention as multi-step gradient descent.

One module per theorem, lemma or figure; the other modules are helpers that several of them share.
They import the shared claim modules and the package's mathematics, never another source's claims.
"""

from innerloop.claims.sources import Source

SOURCE = Source(
    "Gatmiry, Saunshi, Reddi, Jegelka, Kumar",
    "Can looped transformers learn to implement multi-step gradient descent for in-context "
    "learning?",
    2024,
)
