"""Claims of qliu2025, slides on PCA and sparse recovery by transformers.

One module per statement; `deflation`, `deflation_runs`, `exact_classes`, `slides` and
`theorem_7_errata` are helpers. `theorem_7` has the claim of yang2025 on the same theorem too.
They import the shared claim modules and the
package's parts, never another source's claims.
"""

from innerloop.claims.sources import Source

SOURCE = Source("Q. Liu", "How transformers perform PCA and sparse recovery (slides)", 2025)
