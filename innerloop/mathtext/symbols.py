"""Tables of mathematical characters: the kind of each, and how it is typeset.

A character that is in none of these tables raises an error with the character and its position.
"""

from __future__ import annotations

SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱᵀᵏᵗᵈᴸᴷᵐᵖ", "0123456789+−=()niTktdLKmp", strict=True))
SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ᵢⱼₖₙₜₘₗₓ", "0123456789+−=()ijkntmlx", strict=True))
"""Small characters, and the characters that they are small forms of."""

FRACTIONS = {"½": "1/2", "¼": "1/4", "¾": "3/4", "⅓": "1/3", "⅔": "2/3", "⅛": "1/8"}

ACCENTS = {"\u0302": "^", "\u0303": "~", "\u0304": "¯", "\u0305": "¯", "\u0307": "˙"}
"""Combining characters, and the operator that MathML puts over the letter."""

OPENING, CLOSING = "([{⟨⌊⌈", ")]}⟩⌋⌉"
BARS = "|‖"
"""Opening or closing bars, or relations between spaces; the position determines which."""

RELATIONS = frozenset("=≠<>≤≥≪≫≈≃≅≡∼∝≺≻≼≽∈∉∋⊂⊆⊃⊇⊥∥→←↔↦⇒⇔:≍≲≳↑↓")
BINARY = frozenset("+−±∓×·∘⊗⊕⊙∪∩∖∧∨÷∗⋅")
"""Operators; after a relation, an opening bracket or nothing a sign such as − is a prefix."""

SIGNS = frozenset("+−±∓")
SYMBOLS = frozenset("∞∅ℓℝℕℤℂ𝔼ℙ𝕊𝟙𝒩ℋ𝒟ℱℒ⊤…⋯⋮ħ°%∇∂∀∃¬")
"""Symbols that stand where a letter may."""

SUMS = frozenset("∑∏∫⋃⋂")
"""Large operators; the matrix is Σ, the sum is ∑, and they are different characters."""

PUNCTUATION = frozenset(",;.?")
PRIMES = {"′": "′", "'": "′", "″": "″"}

SHORT_NAMES = frozenset({"tr", "ln", "KL", "GD", "EM", "TF", "TV", "LS"})
"""Names of two letters; any other two letters are a product, any three or more are a name."""

FUNCTIONS = frozenset(
    {
        *("tr", "ln", "log", "exp", "sin", "cos", "tan", "min", "max", "sup", "inf", "lim", "det"),
        *("rank", "diag", "sign", "span", "dim", "argmin", "argmax", "vec", "Var", "Cov", "arg"),
        *("sgn", "poly"),
    }
)
"""Functions, which have a space before an argument without brackets: log n."""

REPLACED = {"-": "−", "*": "∗", "~": "∼"}
"""Characters on a keyboard, and the mathematical characters that replace them."""
