"""Recognise formulas in plain text without dollar signs, such as headers of constructions.

    mark_mathematics("the head adds −(1/n) Σᵢ xᵢ to `y` of token j")
    "the head adds $−(1/n) ∑ᵢ xᵢ$ to `y` of token $j$"

`typeset_plain` returns HTML for a page; terminals print such texts unchanged. Characters that may
not be a formula, and formulas that cannot be parsed, remain text. A formula ends before a word,
after a comma and at the end of a sentence; a single number is text. In these texts, Σ means both a
sum and a covariance matrix: it is a sum if an index or a space follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from innerloop.mathtext import symbols as s
from innerloop.mathtext.parsing import MathError, write_math
from innerloop.mathtext.prose import to_html

_CODE = re.compile(r"(`[^`]*`)")
_WORD = re.compile(r"\S+")
_OPERATORS = (s.RELATIONS | s.BINARY | {"/", "-", "*", "~", "|", "…"}) - {":"}
_SMALL = "".join({**s.SUPERSCRIPTS, **s.SUBSCRIPTS, **s.PRIMES, **s.ACCENTS}) + "ᵉ"
_SIGN = re.compile(
    f"[{re.escape(''.join((s.RELATIONS | s.BINARY) - {':'}))}{re.escape(_SMALL)}"
    r"α-ωϑΑ-Ω∑∏∫⋃⋂√‖|⟨⟩⌊⌋⌈⌉^∞ℓℝ∇∂′ŵŷẑÕ]|(?<=\w)_(?=[\w{])"
)
"""A character that occurs only in formulas, or an index."""
_FUNCTIONS = s.FUNCTIONS | {"tanh", "artanh", "Proj"}
_CALL = re.compile(rf"(?:[A-Za-z]|{'|'.join(sorted(_FUNCTIONS))})[(\[{{]|\w+[)\]][\w(\[^]|a[)\]]")
"""The beginning of f(x), log(x) and, between spaces that are inside brackets, of 1)(2 and a)."""
_PRODUCT = re.compile(r"\d+(?:\.\d+)?[A-Za-z]{1,3}|[\dA-Za-z]{1,3}/[\dA-Za-z]{1,3}|\d+/\S+")
_LETTERS = re.compile("[a-zA-Z]?[a-z]?[A-Z]{1,2}|[a-zA-Z][a-z]")
_NUMBER = re.compile(r"\d[\d.,]*(?:e[-−]?\d+)?")
_REFERENCE = re.compile(
    r"[A-Z]\.\d|<.*>|.*\.py|.*[a-z]{3}\.[a-z]|.*[A-Za-z]{3,}/|.*\+\+|[A-Za-z]{3,}\d|[a-z]{3,}_[a-z]{3,}"
)
"""Words that are not formulas: numbers of theorems, tags, files, claims, settings, GD++."""
_SHORT_WORDS = re.compile("an|as|at|be|by|do|he|if|in|is|it|no|of|on|or|so|to|up|us|we", re.I)
_BEFORE, _AFTER = "([{“\"'", '.,;:!?)]}”"'
_PAIRS = {")": "(", "]": "[", "}": "{", "⟩": "⟨", "⌉": "⌈", "⌋": "⌊"}


def typeset_plain(text: str) -> str:
    """Convert plain text to HTML, with formulas typeset and text in backticks as code."""
    parts = _CODE.split(mark_mathematics(text))
    parts[::2] = [to_html(part) for part in parts[::2]]
    parts[1::2] = [f"<code>{escape(part[1:-1], quote=False)}</code>" for part in parts[1::2]]
    return "".join(parts)


def mark_mathematics(text: str) -> str:
    """Put dollar signs around the formulas of a text, unless it already contains dollar signs."""
    if "$" in text:
        return text
    parts = _CODE.split(text)
    parts[::2] = ["".join(_mark_runs(part)) for part in parts[::2]]
    return "".join(parts)


def _mark_runs(text: str) -> Iterator[str]:
    words = list(_WORD.finditer(text))
    kinds = [_classify(words, k) for k in range(len(words))]
    at = k = 0
    while k < len(words):
        run = _find_run(text, words, kinds, k) if kinds[k] != "word" else None
        if run is None:
            k += 1
            continue
        start, end, k = run
        yield f"{text[at:start]}${_normalise(text[start:end])}$"
        at = end
    yield text[at:]


def _find_run(
    text: str, words: list[re.Match[str]], kinds: list[str], first: int
) -> tuple[int, int, int] | None:
    """Find the longest formula that starts at a word: its ends, and the index of the next word."""
    last = first
    while last + 1 < len(words) and kinds[last + 1] != "word":
        source = text[words[first].start() : words[last].end()]
        if source[-1] in ",.;:?" and _count_open(source) <= 0:
            break
        last += 1
    for end in range(last, first - 1, -1):
        if "mathematics" not in kinds[first : end + 1]:
            return None
        start, stop = _trim(text, words[first].start(), words[end].end())
        try:
            write_math(_normalise(text[start:stop]))
        except MathError:
            continue
        return start, stop, end + 1
    return None


def _classify(words: list[re.Match[str]], k: int) -> str:
    """Classify words as prose, formulas, operators or numbers."""
    word = words[k][0]
    core = word.lstrip(_BEFORE).rstrip(_AFTER).removesuffix("'s").removesuffix("’s")
    if not core:
        return "operator" if set(word) <= set("()[]{}.,;:") else "word"
    if _is_operator(core):
        return "operator"
    if _NUMBER.fullmatch(core):
        return "number"
    if _REFERENCE.match(core):
        return "word"
    return "mathematics" if _is_mathematics(words, k, core) else "word"


def _is_mathematics(words: list[re.Match[str]], k: int, core: str) -> bool:
    word = words[k][0]
    beside = [words[j][0] for j in (k - 1, k + 1) if 0 <= j < len(words)]
    has_sign = any(map(_is_operator, beside))
    if _CALL.match(word.lstrip(_BEFORE)) or _PRODUCT.fullmatch(core):
        return True
    if core in ("a", "A", "I"):  # the article "a", unless it is part of a sum
        begins = k == 0 or words[k - 1][0].endswith((".", ":"))
        return has_sign or (core == "A" and not begins)
    if core in s.FUNCTIONS and word.endswith(core):
        return k + 1 < len(words) and _classify(words, k + 1) == "mathematics"
    if has_sign and _LETTERS.fullmatch(core):  # a product, as in k + kT
        return not _SHORT_WORDS.fullmatch(core)
    return len(core) == 1 or bool(_SIGN.search(core))


def _is_operator(word: str) -> bool:
    return all(c in _OPERATORS for c in word)


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    """Shorten a range of text to a formula: drop punctuation, single brackets, a final operator."""
    while start < end:
        source = text[start:end]
        last = source[-1]
        lone = last in _PAIRS and source.count(_PAIRS[last]) < source.count(last)
        if source.endswith(("'s", "’s")):
            end -= 2
        elif lone or last in '.,;:?!"” ' or (last in _OPERATORS - {"|"} and len(source) > 1):
            end -= 1
        elif source[0] in '"“ ' or (source[0] in "([{" and _count_open(source) > 0):
            start += 1
        else:
            break
    return start, end


def _count_open(text: str) -> int:
    """Count the brackets that are still open at the end of a text."""
    return sum((c in _PAIRS.values()) - (c in _PAIRS) for c in text)


def _normalise(text: str) -> str:
    """Expand abbreviations of headers to the grammar: x_ij, Σ for a sum, kdA for a product."""
    text = re.sub(r"_([A-Za-zα-ω]{2}|[A-Za-z]')(?![A-Za-z'])", r"_{\1}", text)
    text = re.sub(r"Σ(?=[_ᵢⱼₖₙₜₘₗ]| +[^\s=≤≥<>≈+−·×)\]])", "∑", text)
    text = re.sub(r"(?<![A-Za-z_])([a-z])([a-z])([A-Z])(?![A-Za-z])", r"\1 \2 \3", text)
    return re.sub(r" {2,}", " ", text.replace("ᵉ", "^e"))
