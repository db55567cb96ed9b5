"""Read linear Unicode mathematics and write MathML Core.

    row       atoms with their scripts, and operators
    scripts   _x  ^x  of one letter, number, name, (…) or {…}; also ₁ ² ᵀ ′, * after a letter, λmax
    atom      a number, a letter (with accents), a name of three or more letters, √x, √(…), brackets

Brackets must balance; half-open intervals may mix ( and [. Browsers print letters in italics, and
names and capital Greek letters upright. A long row becomes several elements, so that a line of text
can break before a relation or a sum, or after a comma.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from html import escape
from typing import NamedTuple

from innerloop.mathtext import symbols as s

LONG = {"relation": 6, "operator": 14, "comma": 14}
"""Least length of a row, in characters, before a break.

Rows break before relations and operators, and after commas.
"""

DEEPEST = 20
"""Largest depth of nested brackets; a text from a file could contain any number."""

_NUMBER = re.compile(r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:e[-−+]?\d+)?")
_NAME = re.compile(r"[A-Za-z]{2,}")
_EXTREME = re.compile(r"(?<=[α-ω])(?:max|min)(?![a-z])")
"""λmax is parsed like λ_max."""
_UPRIGHT_GREEK = re.compile("[Α-Ω]")


class MathError(ValueError):
    """A formula cannot be parsed; the message states the problem and its position."""


class Piece(NamedTuple):
    """A part of a row: its MathML, its kind and its length in characters."""

    html: str
    kind: str
    length: int


class Reader:
    """A parser that reads a formula from left to right."""

    def __init__(self, text: str) -> None:
        self.text = _decompose(text)
        self.at = 0
        self.depth = 0

    def fail(self, reason: str, at: int | None = None) -> MathError:
        place = self.at if at is None else at
        return MathError(f"{reason} at character {place + 1} of ${self.text}$")

    @property
    def next(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self) -> str:
        self.at += 1
        return self.text[self.at - 1]

    def read_row(self, closing: str = "") -> list[Piece]:
        """Read up to one of the closing characters, without consuming it, or to the end."""
        pieces: list[Piece] = []
        start = self.at - 1
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.fail(f"more than {DEEPEST} nested brackets")
        while self.next and self.next not in closing:
            if self.next == " ":
                self.at += 1
                continue
            piece = self.read_scripted(pieces)
            if _needs_space(pieces, piece):
                pieces.append(Piece('<mspace width=".17em"></mspace>', "space", 0))
            pieces.append(piece)
        if closing and not self.next:
            raise self.fail(f"{self.text[start]!r} is not closed, opened", start)
        self.depth -= 1
        return pieces

    def read_scripted(self, before: list[Piece]) -> Piece:
        """Read an atom or operator, and its scripts."""
        start = self.at
        base = self.read_atom(before)
        below: list[str] = []
        above: list[str] = []
        while self.next and base.kind not in ("operator", "relation", "comma"):
            c = self.next
            if c in s.PRIMES:
                above.append(f"<mo>{s.PRIMES[self.take()]}</mo>")
            elif c == "*" and base.kind in ("letter", "name", "close"):
                self.at += 1
                above.append("<mo>∗</mo>")
            elif base.kind == "letter" and (match := _EXTREME.match(self.text, self.at)):
                self.at = match.end()
                below.append(f"<mi>{match[0]}</mi>")
            elif c in "_^":
                self.at += 1
                (below if c == "_" else above).append(self.read_argument())
            elif c in s.SUPERSCRIPTS or c in s.SUBSCRIPTS:
                table, side = (
                    (s.SUPERSCRIPTS, above) if c in s.SUPERSCRIPTS else (s.SUBSCRIPTS, below)
                )
                run = ""
                while self.next and self.next in table:
                    run += table[self.take()]
                side.append(write_row(Reader(run).read_row()))
            else:
                break
        html = _attach(base.html, "".join(below), "".join(above))
        return Piece(html, base.kind, self.at - start)

    def read_argument(self) -> str:
        """Read the argument of a subscript or superscript sign."""
        c = self.next
        if c == "{":
            self.at += 1
            inner = self.read_row("}")
            self.at += 1
            return write_row(inner)
        if c and c in s.SIGNS | {"-"}:  # in x^−1, the exponent is −1
            self.at += 1
            number = self.read_argument()
            return f'<mo form="prefix">{s.REPLACED.get(c, c)}</mo>{number}'
        if not c or c in " _^" or c in s.CLOSING or c in s.RELATIONS | s.PUNCTUATION:
            raise self.fail("a script needs a letter, a number or {…}")
        return self.read_atom([]).html

    def read_atom(self, before: list[Piece]) -> Piece:
        """Read one number, name, root, bracket, bar or character."""
        start = self.at
        if match := _NUMBER.match(self.text, self.at):
            self.at = match.end()
            number = match[0].replace("-", "−")
            return Piece(f"<mn>{number}</mn>", "letter", len(number))
        match = _NAME.match(self.text, self.at)
        if match and (len(match[0]) > 2 or match[0] in s.SHORT_NAMES):
            self.at = match.end()
            kind = "function" if match[0] in s.FUNCTIONS else "name"
            return Piece(f"<mi>{match[0]}</mi>", kind, len(match[0]))
        c = self.take()
        if c == "√":
            return self.read_root(start)
        if c in s.OPENING:
            return self.read_brackets(c, start)
        if c in s.BARS:
            return self.read_bar(c, before)
        c = s.REPLACED.get(c, c)
        return _read_operator(c, before) or self.read_letter(c)

    def read_letter(self, c: str) -> Piece:
        """Read one letter with its accents, a symbol or a fraction."""
        if c in s.FRACTIONS:
            top, bottom = s.FRACTIONS[c].split("/")
            slash = _write_operator("/", "solid")
            return Piece(f"<mn>{top}</mn>{slash}<mn>{bottom}</mn>", "letter", 3)
        if not c.isalpha() and c not in s.SYMBOLS:
            raise self.fail(f"{c!r} is not a mathematical character", self.at - 1)
        if c in "…⋯⋮":
            return Piece(f"<mi>{c}</mi>", "name", 1)  # has a space before it, like a name
        upright = ' mathvariant="normal"' if _UPRIGHT_GREEK.match(c) else ""
        letter = f"<mi{upright}>{escape(c)}</mi>"
        while self.next and self.next in s.ACCENTS:
            accent = s.ACCENTS[self.take()]
            letter = f'<mover accent="true">{letter}<mo stretchy="false">{accent}</mo></mover>'
        return Piece(letter, "letter", 1)

    def read_root(self, start: int) -> Piece:
        if self.next in ("(", "{"):
            closing = ")" if self.take() == "(" else "}"
            inner = write_row(self.read_row(closing))
            self.at += 1
        elif not self.next or self.next == " ":
            raise self.fail("√ of nothing", start)
        else:  # a bar over one letter or number is not needed
            return Piece(f"<mi>√</mi>{self.read_atom([]).html}", "letter", self.at - start)
        return Piece(f"<msqrt>{_group(inner)}</msqrt>", "letter", self.at - start)

    def read_brackets(self, opening: str, start: int) -> Piece:
        """Read a bracket and its contents; an interval may have different brackets at its ends."""
        closing = s.CLOSING[s.OPENING.index(opening)]
        inner = self.read_row(")]" if opening in "([" else closing)
        end = self.take()
        html = _write_operator(opening, "open") + write_row(inner) + _write_operator(end, "close")
        return Piece(html, "close", self.at - start)

    def read_bar(self, c: str, before: list[Piece]) -> Piece:
        """Read | or ‖ as a relation (between spaces), or as an opening or closing bar."""
        spaced = self.text[self.at - 2 : self.at - 1] in ("", " ") and self.next in ("", " ")
        if spaced and before and before[-1].kind in ("letter", "close", "name"):
            return Piece(_write_operator(c, "infix"), "relation", 1)
        last = before[-1].kind if before else "open"
        opens = last in ("open", "relation", "operator", "comma", "sum", "slash", "function")
        opens = opens or not _count_open(c, before)
        kind = "open" if opens else "close"
        return Piece(_write_operator(c, kind), kind, 1)


def _read_operator(c: str, before: list[Piece]) -> Piece | None:
    """Read one operator; return None for a letter or a symbol."""
    if c in s.SUMS:
        return Piece(f"<mo>{c}</mo>", "sum", 1)
    if c in s.PUNCTUATION:
        return Piece(_write_operator(c, "comma"), "comma", 1)
    if c in "/!":
        return Piece(_write_operator(c, "solid"), "slash" if c == "/" else "close", 1)
    if c in s.RELATIONS:
        return Piece(_write_operator(c, "infix"), "relation", 1)
    if c in s.BINARY:
        last = before[-1].kind if before else "open"
        form = "prefix" if last in ("open", "relation", "operator", "comma") else "infix"
        return Piece(_write_operator(c, form), "operator", 1)
    return None


def _count_open(bar: str, before: list[Piece]) -> int:
    """Count the bars of a row that are still open."""
    bars = [piece for piece in before if f">{bar}</m" in piece.html]
    return sum(1 if piece.kind == "open" else -1 for piece in bars if piece.kind != "relation")


def write_row(pieces: list[Piece]) -> str:
    """Join the HTML of pieces, with no element around them."""
    return "".join(piece.html for piece in pieces)


@lru_cache(maxsize=4096)
def write_math(text: str) -> str:
    """Write a formula as one or more `math` elements; a line may break between them."""
    reader = Reader(text)
    rows: list[str] = [""]
    length = 0
    for piece in reader.read_row():
        breaks = piece.kind in ("relation", "operator") and piece.html.startswith("<mo>")
        html = piece.html
        if breaks and length > LONG[piece.kind]:
            rows.append("")
            length = 0
            html = html.replace("<mo>", '<mo form="infix">')  # at the beginning of its row
        rows[-1] += html
        length += piece.length
        if piece.kind == "comma" and length > LONG["comma"]:
            rows.append("")
            length = 0
    if rows == [""]:
        raise MathError("$ $ is empty: write a formula between the dollar signs")
    return "<wbr>".join(f"<math>{row}</math>" for row in rows if row)


def _decompose(text: str) -> str:
    """Split accented letters into letter and accent; other characters stay as they are."""
    parts = []
    for c in text:
        split = unicodedata.normalize("NFD", c)
        parts.append(split if len(split) > 1 and split[1] in s.ACCENTS else c)
    return "".join(parts)


def _needs_space(pieces: list[Piece], piece: Piece) -> bool:
    """Return whether a thin space separates the last piece and the next, as around names."""
    if not pieces or piece.kind not in ("letter", "function", "name", "sum"):
        return False
    last = pieces[-1].kind
    if last in ("function", "name"):
        return True
    return last in ("letter", "close") and piece.kind in ("function", "name")


def _attach(base: str, below: str, above: str) -> str:
    if not below and not above:
        return base
    base, below, above = (_group(row) for row in (base, below, above))
    if below and above:
        return f"<msubsup>{base}{below}{above}</msubsup>"
    if below:
        return f"<msub>{base}{below}</msub>"
    return f"<msup>{base}{above}</msup>"


def _group(row: str) -> str:
    """Group a row into one element, unless it already is one."""
    one = row.count("<") <= 2 or (row.startswith("<mover") and row.endswith("</mover>"))
    return row if one else f"<mrow>{row}</mrow>"


def _write_operator(c: str, role: str) -> str:
    """Write an operator, without attributes that a browser infers from its position."""
    escaped = escape(c)
    if role in ("open", "close", "solid"):
        return f"<mi>{escaped}</mi>"  # as operators, brackets would grow and a slash have spaces
    return f'<mo form="prefix">{escaped}</mo>' if role == "prefix" else f"<mo>{escaped}</mo>"
