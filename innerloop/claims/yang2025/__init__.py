"""Claims of yang2025, slides that summarise six papers on transformers as algorithms.

One module per statement, named after the paper it comes from; the other modules are shared helpers.
They import the shared claim modules and the package's parts, never another source's claims.
"""

from innerloop.claims.sources import Source

SOURCE = Source(
    "H. Yang",
    "Approximation-theoretic view: transformers as implicit algorithm simulators (slides on "
    "six papers)",
    2025,
)
