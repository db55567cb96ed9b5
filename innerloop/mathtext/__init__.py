"""Mathematics in prose: linear Unicode between dollar signs, typeset on pages as MathML.

    "From a loss of $16L d 4^L/√n$ on, $‖∇L‖² ≥ L^{(2L−1)/L}/16$."

`to_html` gives a page's markup, `to_plain` a terminal's text, which is what was typed without the
dollars. `check_text` raises `MathError` at what the grammar (`parsing`) does not have. Two dollars
are one dollar. `typeset_plain` is for text without dollars, in which it recognises mathematics.
Under everything: imports nothing of the package.
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
