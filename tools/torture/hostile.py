"""Strings that try to run in a page, and the search for one that could."""

from __future__ import annotations

import random
import re
from html.parser import HTMLParser
from typing import Any

from tools.torture.attack import Defect

PAYLOADS = (
    *("<script>tortured()</script>", "</script><script>tortured()</script>", "<!--<script>"),
    *("<img src=x onerror=tortured()>", "<svg onload=tortured()>", '"><tortured>', "'><tortured>"),
    *('" onmouseover="tortured()', "' onfocus='tortured()' autofocus='", "`-tortured()-`"),
    *("javascript:tortured()", "</style><tortured>", "</title><tortured>", "-->", "]]><tortured>"),
    *('";tortured();"', "';tortured();'", '\\";tortured();//', "\\u003cscript>tortured()</script>"),
    *(
        "${tortured()}",
        "{{tortured()}}",
        "$tortured",
        "$$",
        "%(tortured)s",
        "&lt;script&gt;",
        "&#60;",
    ),
    *("\u2028tortured()\u2029", "\0<tortured>", "\x1b[31m", "<\tscript>tortured()", "<a href=//x>"),
    *("datum.x']; tortured(); //", "x[0].y", "x\\.y", "signal(tortured)", "toString", "__proto__"),
    *(
        "</textarea><tortured>",
        "<iframe srcdoc='<script>parent.tortured()</script>'>",
        "<base href=//x>",
    ),
)
"""Payloads that call `tortured`, make an element or attribute of that name, or end their
context.
"""


def make_hostile_text(chance: random.Random) -> str:
    """Make a hostile string from one or more payloads."""
    return chance.choice(("", "a ", "n")) + "".join(
        chance.sample(PAYLOADS, chance.choice((1, 1, 2)))
    )


def poison(tree: Any, chance: random.Random, share: float, untouched: frozenset[str]) -> Any:
    """Replace a share of the texts of a tree, keys too, except at and below `untouched` keys."""
    if isinstance(tree, str):
        return make_hostile_text(chance) if chance.random() < share else tree
    if isinstance(tree, list | tuple):
        return type(tree)(poison(part, chance, share, untouched) for part in tree)
    if isinstance(tree, dict):
        return {
            key: value if key in untouched else poison(value, chance, share, untouched)
            for key, value in tree.items()
        }
    return tree


MATHEMATICS = {
    *((tag,) for tag in ("math", "mi", "mn", "mo", "mrow", "msub", "msup", "msubsup", "msqrt")),
    *((tag,) for tag in ("mover", "mspace", "wbr", "span")),
    *(("mo", name) for name in ("form", "stretchy")),
    *(("mover", "accent"), ("mi", "mathvariant"), ("mspace", "width"), ("span", "class")),
}
"""The elements that text between dollar signs may become; no script can run in them."""


class Outline(HTMLParser):
    """The elements, attributes, links and scripts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.shapes: set[tuple[str, ...]] = set()
        self.links: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.shapes.add((tag,))
        self.shapes |= {(tag, name) for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action")]
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts[-1] += data


LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')


def check_page(text: str, harmless: Outline) -> None:
    """Find a hostile string that became an element, attribute, link or script instead of text."""
    outline = Outline(text)
    if new := outline.shapes - harmless.shapes - MATHEMATICS:
        raise Defect(f"a string became an element or attribute of a page: {sorted(new)[:3]}")
    if len(outline.scripts) != len(harmless.scripts):
        raise Defect("a string became a script of a page")
    for link in outline.links:
        if not link.startswith("#") and link not in harmless.links:
            raise Defect(f"a string became a link of a page: {link[:60]}")
    for script in outline.scripts:
        if "tortured" in LITERAL.sub('""', script):
            raise Defect("a string became code of a page's script")
        if any("<" in literal for literal in LITERAL.findall(script) if "tortured" in literal):
            raise Defect("a string stands in a script with a < that could end it")
