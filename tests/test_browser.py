"""The report in a real browser: no errors, figures when a card opens, filters, links, phone, paper.

It needs Chromium (Debian's package `chromium`). Where INNERLOOP_BROWSER is `required`, as in
continuous integration, its absence is a failure; elsewhere the tests say that they were skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, Page
from report_samples import HOSTILE, make_data, make_figures, make_outcomes

from innerloop.report.page import render_page


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_page(make_data()), "utf-8")
    return path


class OpenedPage(NamedTuple):
    """A page, and the messages on its console so far."""

    view: Page
    messages: list[str]


@pytest.fixture(scope="module", params=[1280, 390], ids=["desktop", "phone"])
def opened_page(
    request: pytest.FixtureRequest, browser: Browser, report: Path
) -> Iterator[OpenedPage]:
    """Open the page without a network, once for each width; the phone is dark."""
    view = browser.new_page(
        viewport={"width": request.param, "height": 900},
        offline=True,
        color_scheme="dark" if request.param < 640 else "light",
    )
    messages: list[str] = []
    view.on("console", lambda message: messages.append(f"{message.type}: {message.text}"))
    view.on("pageerror", lambda error: messages.append(f"error: {error}"))
    view.on("dialog", lambda dialog: messages.append(f"dialog: {dialog.message}"))
    view.goto(report.as_uri())
    view.wait_for_selector("html[data-filled]", state="attached")
    yield OpenedPage(view, messages)
    view.close()


@pytest.fixture
def page(opened_page: OpenedPage) -> Iterator[Page]:
    """The page as it was opened; any message on its console fails the test."""
    view, messages = opened_page
    view.fill("#search", "")
    view.select_option("#source", "")
    view.click(".chip >> nth=0")
    view.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = false; })")
    yield view
    assert not messages


def open_everything(view: Page) -> None:
    """Open all that unfolds, and wait until it is drawn."""
    view.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    view.wait_for_selector("[data-svg], [data-m]", state="detached")
    view.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def test_every_figure_is_there_with_its_data(page: Page) -> None:
    open_everything(page)
    plots = page.evaluate(
        """[...document.querySelectorAll('.plot svg')].map((svg) => (svg.scrollIntoView(),
          [svg.getBoundingClientRect().width, svg.textContent,
           svg.querySelectorAll('path[stroke], path[fill]:not([fill="none"]), line').length]))"""
    )
    # The claims' figures, one again among the pictures, deviation, layers, regret, training,
    # and the diagram of a program.
    assert len(plots) == len(make_figures()) + 1 + 1 + 4 + 1
    for width, text, marks in plots:
        assert width > 150
        assert marks > 1, f"{text} shows no data"
        assert len(text) > 20, "titles and labels"
    words = " ".join(text for _, text, _ in plots)
    for wanted in (
        "lines",
        "examples n",
        "error",
        "p = 1",
        "level",
        HOSTILE,
        "entry",
        "Newton",
        "written",
    ):
        assert wanted in words
    assert "$p = 1$" not in words, "charts have no mathematics to typeset"
    assert words.count("level") == 1, "named once, not once for each row"


def test_mathematics_is_typeset_with_its_own_font(page: Page) -> None:
    card = page.locator("[id='ahn2023.lemma-2']")
    card.evaluate("(card) => { card.open = true; }")
    assert card.locator(".formula msub").first.text_content() == "bk+1"
    assert card.locator("[data-m]").count() == 0
    assert "$" not in card.locator(".formula").inner_text()
    assert page.evaluate("document.fonts.check('16px \"Innerloop Math\"')")
    family = card.locator("math").first.evaluate("(math) => getComputedStyle(math).fontFamily")
    assert family.startswith('"Innerloop Math"')


def test_colours_follow_the_reader_and_the_button(opened_page: OpenedPage, page: Page) -> None:
    light = "rgb(251, 250, 247)"
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    colours = """[getComputedStyle(document.body).backgroundColor,
      getComputedStyle(document.querySelector('#pictures text[fill*="--ink"]')).fill,
      getComputedStyle(document.querySelector('#pictures path[stroke*="--s1"]')).stroke]"""
    before = page.evaluate(colours)
    assert (before[0] == light) is not dark
    page.click("#theme")
    after = page.evaluate(colours)
    assert all(a != b for a, b in zip(before, after, strict=True)), "figures too"
    page.click("#theme")
    assert page.evaluate(colours) == before


def test_what_is_wider_than_the_window_scrolls_in_its_own_box(page: Page) -> None:
    open_everything(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    widths = page.evaluate(
        "[...document.querySelectorAll('dd')].map((dd) => dd.getBoundingClientRect().width)"
    )
    assert len(widths) >= 3
    assert min(widths) >= 60, "numbers stand beside their names however long these are"


def list_shown(view: Page) -> list[str]:
    return view.evaluate(
        "[...document.querySelectorAll('.claim')].filter((c) => c.offsetParent).map((c) => c.id)"
    )


def test_filter_and_search(page: Page) -> None:
    everything = [outcome.id for outcome in make_outcomes()]
    assert list_shown(page) == everything
    page.click(".chip[data-verdict='holds as corrected']")
    assert list_shown(page) == ["ahn2023.theorem-1"]
    assert page.inner_text("#count") == f"1 of {len(everything)} claims"
    page.click(".chip >> nth=0")
    page.select_option("#source", "yang2025")
    assert list_shown(page) == [id for id in everything if id.startswith("yang2025")]
    assert page.locator(".source:visible").count() == 1
    page.fill("#search", "LARGE machine")
    assert list_shown(page) == ["yang2025.fu.newton"]
    page.fill("#search", "nothing says this")
    assert not list_shown(page)
    assert page.is_visible("#none")


def test_a_link_opens_its_card_below_the_bar_also_where_a_filter_hides_it(page: Page) -> None:
    page.click(".chip[data-verdict='fails']")
    page.evaluate("location.hash = '#ahn2023.theorem-1'")
    card = page.locator("[id='ahn2023.theorem-1']")
    card.locator(".body").wait_for(state="visible")
    page.wait_for_timeout(50)
    top = card.evaluate("(card) => card.getBoundingClientRect().top")
    bar = page.evaluate("document.querySelector('.controls').getBoundingClientRect().bottom")
    assert max(bar, 0) <= top + 1
    assert top < 450
    page.evaluate("location.hash = ''")


def test_the_counts_at_the_top_are_those_of_the_claims(page: Page) -> None:
    counts = [
        text.split(" ", 1)
        for text in page.locator(".bar.big span").evaluate_all(
            "(spans) => spans.map((span) => span.title)"
        )
    ]
    assert {verdict: int(count) for count, verdict in counts} == dict.fromkeys(
        (
            *("holds", "holds as corrected", "fails", "undecided", "vacuous", "out of reach"),
            *("not yet checked", "broken"),
        ),
        1,
    )
    assert page.inner_text("h1").startswith("Of 6 claims")
    assert "1 holds as printed" in page.inner_text("h1")
    assert page.locator(".document").count() == 3
    chips = page.locator(".chip").all_inner_texts()
    assert len(chips) == len(counts) + 1
    links = page.locator(".document a[href^='https://arxiv.org']")
    assert links.count() == 2, "of two papers; the slides have no address"


def test_findings_are_pairs_and_lists_that_gather_what_is_in_the_cards(page: Page) -> None:
    first = page.locator(".finding").first
    assert first.locator("a[href='#liu2025.eq-4.3']").count() == 1, "what has no correction first"
    assert "No correction is known." in (first.text_content() or "")
    second = page.locator(".finding").nth(1)
    assert second.locator(".was").count() == second.locator(".now").count() == 1
    assert "Ahn et al. 2023" in (second.text_content() or "")
    assert page.locator(".finding:visible").count() == 6, "the others unfold"
    folds = page.locator("#findings .fold")
    titles = folds.locator("h3").all_inner_texts()
    starts = (
        "All statements of this kind 12",
        "Statements that are true",
        "Errata: a",
        "Errata: mis",
    )
    starts += ("Results about", "Undecided statements")
    assert [t[: len(s)] for t, s in zip(titles, starts, strict=True)] == list(starts)
    folds.nth(2).locator("summary").click()
    gathered = folds.nth(2).locator(".finding")
    gathered.first.wait_for()
    assert gathered.count() == 1
    assert "Liu et al. 2025" in (gathered.text_content() or "")
    assert "the proof" in (gathered.text_content() or "")
    folds.nth(0).locator("summary").click()
    folds.nth(0).locator(".finding").first.wait_for()
    assert folds.nth(0).locator(".finding").count() == 12
    assert folds.nth(0).locator("[data-m]").count() == 0, "copies are typeset too"


def test_text_is_text(page: Page) -> None:
    """What a claim says cannot become a part of the page."""
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1
    page.evaluate("document.getElementById('liu2025.eq-4.3').open = true")
    assert HOSTILE in page.inner_text("[id='liu2025.eq-4.3'] .example")


def test_a_long_table_says_that_it_is_cut(page: Page) -> None:
    page.evaluate("document.getElementById('ahn2023.lemma-2').open = true")
    table = page.locator("[id='ahn2023.lemma-2'] .table")
    table.locator("summary").click()
    assert "99 rows, the first 60 shown" in table.inner_text()
    assert table.locator("tbody tr").count() == 60


def test_readers_of_every_kind(opened_page: OpenedPage, page: Page) -> None:
    """The rules of axe-core: names, roles, contrast, order of headings."""
    from axe_playwright_python.sync_playwright import Axe

    open_everything(page)
    found = Axe().run(page)
    serious = [
        f"{v['id']}: {v['nodes'][0]['html'][:200]}"
        for v in found.response["violations"]
        if v["impact"] in ("serious", "critical")
    ]
    assert not serious


def test_it_prints_with_everything_on_paper(page: Page) -> None:
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.emulate_media(media="print")
    assert not page.is_visible(".controls")
    ink = page.evaluate("getComputedStyle(document.body).color")
    assert ink == "rgb(28, 27, 25)", "dark on white, also for who reads in the dark"
    assert page.locator("[data-svg], [data-m], [data-gather]").count() == 0
    assert len(page.pdf()) > 10_000
    page.emulate_media(media="screen")


def test_it_is_read_without_scripts(browser: Browser, report: Path) -> None:
    view = browser.new_context(java_script_enabled=False, offline=True).new_page()
    view.goto(report.as_uri())
    assert "Of 6 claims" in view.inner_text("h1")
    assert view.locator("#pictures svg").count() == 1, "error against layers"
    view.click("[id='ahn2023.lemma-2'] > summary")
    assert view.is_visible("[id='ahn2023.lemma-2'] .formula")
    assert "needs JavaScript" in view.inner_text("[id='ahn2023.lemma-2'] figure >> nth=0")
    typed = view.locator("[id='ahn2023.lemma-2'] [data-m]").all_inner_texts()
    assert "a = b_{k+1}" in typed, "mathematics is read as it was typed"
    view.context.close()
