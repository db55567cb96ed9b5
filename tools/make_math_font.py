"""Make the font of typeset mathematics: the part of STIX Two Math that innerloop's grammar needs.

    python tools/make_math_font.py stix-two-math.woff2       writes innerloop/mathtext/math.woff2

The font is the one of the npm package `@fontsource/stix-two-math` or of any release of STIX Two
Math with a MATH table. Its licence, the SIL Open Font License, is included
(`innerloop/mathtext/math-font-OFL.txt`). The licence requires another name for a changed font, so
the new font has its own name. `tests/test_mathtext.py` checks that it has every character of the
grammar. This script needs fonttools and brotli.
"""

from __future__ import annotations

import argparse
import string
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fontTools import subset
from fontTools.ttLib import TTFont

from innerloop.mathtext import symbols

TARGET = Path(__file__).parents[1] / "innerloop" / "mathtext" / "math.woff2"
NAME = "Innerloop Math"
GREEK = "αβγδεζηθικλμνξοπρςστυφχψωϑϕϵϱ" + "ΓΔΘΛΞΠΣΦΨΩ"
KEPT_NAMES = (0, 13, 14)
"""The entries of the name table that stay unchanged: copyright, licence and its address."""


def list_characters() -> set[str]:
    """List every character that a browser draws for mathematics of the grammar."""
    tables: Iterable[Iterable[str]] = (
        *(symbols.OPENING, symbols.CLOSING, symbols.BARS, symbols.RELATIONS, symbols.BINARY),
        *(symbols.SYMBOLS, symbols.SUMS, symbols.PUNCTUATION, symbols.PRIMES.values()),
        *(symbols.ACCENTS.values(), symbols.REPLACED.values(), string.digits, "/!√ \u00a0"),
    )
    letters = string.ascii_letters + GREEK + "∇∂"
    slanted = {slant(letter) for letter in letters}
    return {c for table in tables for c in table} | set(letters) | slanted


def slant(letter: str) -> str:
    """Return the mathematical italic of a letter, which browsers draw for a single letter."""
    if letter == "h":
        return "\N{PLANCK CONSTANT}"
    for first, last, start in (("A", "Z", 0x1D434), ("a", "z", 0x1D44E), ("α", "ω", 0x1D6FC)):
        if first <= letter <= last:
            return chr(start + ord(letter) - ord(first))
    others = dict(zip("ϵϑϕϱ∇∂", "𝜖𝜗𝜙𝜚𝛻𝜕", strict=True))
    return others.get(letter, letter)


def make_font(source: Path, target: Path) -> None:
    """Write a font with only these characters, under a new name."""
    options: Any = subset.Options()
    options.flavor = "woff2"
    options.layout_features = ["ssty"]  # smaller letters in scripts
    options.name_IDs = list(KEPT_NAMES)
    options.notdef_outline = True
    options.hinting = False
    font: Any = TTFont(source)
    worker = subset.Subsetter(options)
    worker.populate(text="".join(list_characters()))
    worker.subset(font)
    names = {1: NAME, 2: "Regular", 3: f"{NAME}, a part of another font", 4: NAME}
    for place, text in {**names, 6: NAME.replace(" ", "")}.items():
        font["name"].setName(text, place, 3, 1, 0x409)
    if "CFF " in font:
        inner = font["CFF "].cff
        inner.fontNames = [NAME.replace(" ", "")]
        inner.topDictIndex[0].FullName = inner.topDictIndex[0].FamilyName = NAME
    font["head"].modified = font["head"].created  # the same file every time
    font.recalcTimestamp = False
    subset.save_font(font, target, options)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source", type=Path, help="STIX Two Math, as OTF, TTF, WOFF or WOFF2")
    parser.add_argument("-o", "--output", type=Path, default=TARGET)
    options = parser.parse_args()
    make_font(options.source, options.output)
    print(f"{options.output}: {options.output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
