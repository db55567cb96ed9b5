"""Mathematics in prose: linear Unicode between dollar signs, typeset on pages as MathML.

    "From a loss of $16L d 4^L/√n$ on, $‖∇L‖² ≥ L^{(2L−1)/L}/16$."

`to_html` returns HTML for a page. `to_plain` returns the text for a terminal, which is the source
without its dollar signs. `check_text` raises `MathError` for a formula that the grammar (see
`parsing`) does not allow. Two dollar signs in a row stand for one. `typeset_plain` recognises
formulas in text without dollar signs. This folder imports nothing else from the package.
"""

from innerloop.mathtext.parsing import MathError
from innerloop.mathtext.prose import check_text, iterate_texts, strip_dollars, to_html, to_plain
from innerloop.mathtext.recognising import typeset_plain

__all__ = [
    "MathError",
    "check_text",
    "iterate_texts",
    "strip_dollars",
    "to_html",
    "to_plain",
    "typeset_plain",
]
