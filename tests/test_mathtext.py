"""Mathematics between dollars: what is read, what is refused and where, and both of its faces."""

from __future__ import annotations

import inspect
import re
from importlib.resources import files
from xml.etree import ElementTree

import pytest
from fontTools.ttLib import TTFont
from hypothesis import given
from hypothesis import strategies as st

from innerloop.claims.loading import load_claims
from innerloop.claims.sources import load_statements
from innerloop.constructions.base import Construction
from innerloop.mathtext import (
    MathError,
    check_text,
    iterate_texts,
    strip_dollars,
    to_html,
    to_plain,
    typeset_plain,
)
from innerloop.mathtext import symbols as s
from innerloop.mathtext.recognising import mark_mathematics
from innerloop.registry import load_members
from tools import make_math_font
from tools.docs.gallery import split_header

CORE = {
    *("math", "mi", "mn", "mo", "mrow", "msub", "msup", "msubsup", "msqrt", "mover", "mspace"),
    *("span", "wbr", "code"),
}


def parse(text: str) -> ElementTree.Element:
    """Parse the markup of text as XML, which browsers do not ask for and a test can."""
    return ElementTree.fromstring(f"<p>{to_html(text).replace('<wbr>', '<wbr/>')}</p>")


def read_shape(text: str) -> str:
    """Write the tree of one piece of mathematics in brackets: msub(x, i)."""

    def write(node: ElementTree.Element) -> str:
        inner = ", ".join(write(child) for child in node)
        name = "" if node.tag in ("mi", "mn", "mo") else node.tag
        return f"{name}({inner})" if inner else (node.text or node.tag)

    return " ".join(write(child) for math in parse(text).iter("math") for child in math)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("$x_i$", "msub(x, i)"),
        ("$x_iᵀv$", "msubsup(x, i, T) v"),
        ("$w_{i+1}$", "msub(w, mrow(i, +, 1))"),
        ("$β^(k−1)$", "msup(β, mrow((, k, −, 1, )))"),
        ("$A^½$", "msup(A, mrow(1, /, 2))"),
        ("$A^{−1/2}$", "msup(A, mrow(−, 1, /, 2))"),
        ("$Σ*⁻¹$", "msup(Σ, mrow(∗, −, 1))"),
        ("$∑_{i=1}^n x_i$", "msubsup(∑, mrow(i, =, 1), n) msub(x, i)"),
        ("$(1 − λ)^k$", "msup(mrow((, 1, −, λ, )), k)"),
        ("$√n$", "√ n"),
        ("$√(δ/π)$", "msqrt(mrow(δ, /, π))"),
        ("$‖x‖²$", "‖ x msup(‖, 2)"),
        ("$ŷ_n$", "msub(mover(y, ^), n)"),
        ("$λmax$", "msub(λ, max)"),
        ("$log n$", "log mspace n"),
        ("$dA$", "d A"),
        ("$g'$", "msup(g, ′)"),
        ("$10^6$", "msup(10, 6)"),
        ("$1,000 + x_{1,2}$", "1,000 + msub(x, mrow(1, ,, 2))"),
        ("$(2m)!!$", "( 2 m ) ! !"),
        ("$[0, 1)$", "[ 0 , 1 )"),
        ("$e^-x$", "msup(e, mrow(−, x))"),
    ],
)
def test_what_is_read(text: str, shape: str) -> None:
    check_text(text)
    assert read_shape(text) == shape


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("$(a + b$", "'(' is not closed, opened at character 1 of $(a + b$"),
        ("$x_{i+1$", "'{' is not closed, opened at character 3"),
        ("$a + b)$", "')' is not a mathematical character at character 6"),
        ("$a @ b$", "'@' is not a mathematical character at character 3"),
        ("$x_ y$", "a script needs a letter, a number or {…} at character 3"),
        ("$√ x$", "√ of nothing at character 1"),
        ("costs $5", "the dollar sign at character 7 has no closing dollar sign in 'costs $5'"),
        ("$" + "(" * 99 + "$", "more than 20 nested brackets"),
    ],
)
def test_an_error_says_what_is_wrong_and_where(text: str, message: str) -> None:
    with pytest.raises(MathError, match=re.escape(message)):
        check_text(text)
    assert to_plain(text) == text, "shown as it is: a page never fails for somebody's text"
    assert "<math" not in to_html(text)


def test_a_minus_sign_knows_its_place() -> None:
    forms = [mo.get("form") for mo in parse("$−x = −(−y) − z$").iter("mo") if mo.text == "−"]
    assert forms == ["prefix", "prefix", "prefix", None]
    bars = [mo.get("form") for mo in parse("$|x| − |−y − |−z|| − w$").iter("mo")]
    assert bars == [None, "prefix", None, "prefix", None], "after a bar that opens, or closes"
    inner = [mo.get("form") for mo in parse("$||−x| − y|$").iter("mo")]
    assert inner == ["prefix", None], "a bar within bars"
    norms = [mo.get("form") for mo in parse("$E‖−x‖² − 2‖−y‖$").iter("mo")]
    assert norms == ["prefix", None, "prefix"], "also after a letter or a number"
    assert [mo.get("form") for mo in parse("$P(a | b)$").iter("mo") if mo.text == "|"] == [None]


def test_the_terminal_has_what_was_typed() -> None:
    assert to_plain("From $16Ld4^L/√n$ on, $$5.") == "From 16Ld4^L/√n on, $5."
    assert strip_dollars({"$a$": ["$b$", 3]}) == {"a": ["b", 3]}


def test_sum_and_matrix_are_told_apart() -> None:
    matrix, total = parse("$Σ$"), parse("$∑$")
    assert matrix.find("math/mi") is not None
    assert total.find("math/mo") is not None


def test_a_long_row_may_break_and_a_comma_stays_with_what_it_follows() -> None:
    markup = to_html("$a + b + c + d + e + f = g + h + i + j + k$, $n ≥ 2$.")
    assert markup.count("<wbr>") == 1
    assert re.findall(r"<mi>([,.])</mi></math>", markup) == [",", "."]
    assert "</math>).</span>" in to_html("(so is $x$).")
    assert "<wbr>" not in to_html("$f(a + b + c + d + e + f + g + h)$"), "not within brackets"


@given(st.text(alphabet="ab1 `_^{}()[]|‖√Σ∑ᵀ²*−-=≤,.'\"<>&$é\u0302\u0000", max_size=24))
def test_any_text_gives_sound_markup_with_nothing_of_its_own(text: str) -> None:
    markup = f"{to_html(text)}{typeset_plain(text)}"
    markup = markup.replace("<wbr>", "<wbr/>").replace("\x00", "")
    for node in ElementTree.fromstring(f"<p>{markup}</p>").iter():
        assert node.tag in CORE | {"p"}
        assert set(node.attrib) <= {"form", "stretchy", "accent", "mathvariant", "width", "class"}


def test_every_statement_of_every_claim_is_read() -> None:
    """What claims find is read where they are checked; here, what they state."""
    for claim in load_claims().values():
        for text in iterate_texts([claim.statement, dict(claim.hypotheses)]):
            check_text(text)
            outside = re.sub(r"\$[^$]*\$", "", text)
            assert not re.search(r"[_^]\{|\^[½(]|[A-Za-z]_[A-Za-z0-9]", outside), text
    for brief in load_statements().values():
        check_text(brief)


def test_the_font_has_every_character_and_a_name_of_its_own() -> None:
    font = TTFont(make_math_font.TARGET)
    known = font.getBestCmap() or {}
    assert not [c for c in make_math_font.list_characters() if ord(c) not in known]
    assert {ord(c) for c in s.SUMS | s.RELATIONS | s.BINARY} <= known.keys()
    assert "MATH" in font, "without it superscripts fly"
    names = {name.nameID: str(name) for name in font["name"].names}
    assert names[1] == "Innerloop Math"
    assert not [text for key, text in names.items() if key != 0 and "STIX" in text]
    licence = files("innerloop.mathtext").joinpath("math-font-OFL.txt").read_text("utf-8")
    assert "SIL OPEN FONT LICENSE Version 1.1" in licence
    assert names[0] in licence, "the copyright"
    assert make_math_font.TARGET.stat().st_size < 40_000


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("w ← w − η ∇R(w),   R(w) = Σᵢ xᵢ", "$w ← w − η ∇R(w)$,   $R(w) = ∑ᵢ xᵢ$"),
        ("register `x_i` holds Σ = M x.", "register `x_i` holds $Σ = M x$."),
        ("every n, d and A, a matrix", "every $n$, $d$ and $A$, a matrix"),
        ("A head with a = b on layer 2", "A head with $a = b$ on layer 2"),
        ("h + a − 2 is ≥ 0, γ's own", "$h + a − 2$ is ≥ 0, $γ$'s own"),
        ("γ_ik x_next (1 on even tokens)", "$γ_{ik} x_next$ (1 on even tokens)"),
        ("(there B' is x_m (and, as y, 0))", "(there $B'$ is $x_m$ (and, as $y$, 0))"),
        ("on (2N + 4)L, ((1 − q)^k) of log n", "on $(2N + 4)L$, $((1 − q)^k)$ of $log n$"),
        ("see (C.2), power_iteration.py, GD++", "see (C.2), power_iteration.py, GD++"),
        ("qliu2025.theorem-7, eq. (13), k-means", "qliu2025.theorem-7, eq. (13), k-means"),
        ("K = clusters, b = back_heads", "$K$ = clusters, $b$ = back_heads"),
        ("⟨x, y) is x", "⟨x, $y$) is $x$"),
        ("7kdA + dA", "$7k d A + dA$"),
        ("$n$ costs $5", "$n$ costs $5"),
    ],
)
def test_mathematics_without_dollars_is_recognised(text: str, marked: str) -> None:
    assert mark_mathematics(text) == marked


def test_code_and_markup_of_plain_text_are_text() -> None:
    shown = typeset_plain("`a<b`, <script> & x<y")
    assert shown == "<code>a&lt;b</code>, &lt;script&gt; &amp; " + to_html("$x<y$")


def list_header_lines() -> list[str]:
    """List what the gallery shows of every construction's header, and its costs."""
    lines = []
    for kind in load_members("constructions", Construction).values():
        header = inspect.getdoc(inspect.getmodule(kind)) or ""
        lines += [header.partition("\n\n")[0], *(body for _, body in split_header(header))]
        lines += [kind.cost.layers, kind.cost.heads, kind.cost.width, kind.cost.printed]
    return lines


def test_headers_of_constructions_are_typeset() -> None:
    """Nearly all lines with mathematics leave none of it as typed."""
    raw = re.compile(r"[α-ωϑΣ⟨⟩√∇ₐ-ₜ₀-₉ᵢⱼᵀ²³⁻]|[A-Za-z]_[a-z{]|\^")
    lines = [re.sub(r"`[^`]*`|\w+\.py|\w{3,}_\w{3,}", "", line) for line in list_header_lines()]
    mathematical = [line for line in lines if raw.search(line)]
    left = [
        line
        for line in mathematical
        if raw.search(re.sub(r"\$[^$]*\$", "", mark_mathematics(line)))
    ]
    assert len(mathematical) > 80
    assert len(left) <= len(mathematical) // 40, left
    names = {
        name for line in lines for name in re.findall("<mi>([a-z]{3,})</mi>", typeset_plain(line))
    }
    assert not names & {"the", "and", "every", "token", "holds", "with", "for", "that", "score"}
