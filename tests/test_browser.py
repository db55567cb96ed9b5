"""The report in a real browser: no errors, every chart drawn, filter and search, also on a phone.

It needs Chromium (Debian's package `chromium`). Where INNERLOOP_BROWSER is `required`, as in
continuous integration, its absence is a failure; elsewhere the tests say that they were skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, Page

import innerloop
from innerloop.claims.evidence import Axis, Check, Erratum, Evidence, Figure, Part, misprint
from innerloop.claims.loading import load_claims
from innerloop.ledger.run import Outcome
from innerloop.recipes.base import train
from innerloop.recipes.runs import load_finished_runs
from innerloop.report.page import render_page
from innerloop.surveys import survey
from innerloop.surveys.data import ReportData

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script> & $broken"


def make_figures() -> list[Figure]:
    """Make one figure of every kind."""
    rows = [
        {"x": x, "y": (1 + x) ** p, "low": 0.9 * x, "high": 1.1 * x, "power": f"p = {p}"}
        for p in (1, 2)
        for x in range(1, 9)
    ]
    x, y = Axis(field="x", title="examples n"), Axis(field="y", title="error")
    colour = Axis(field="power", title="power")
    logs = [Axis(field=a.field, title=a.title, scale="log") for a in (x, y)]
    return [
        Figure(title="lines", rows=rows, x=x, y=y, colour=colour, band=("low", "high")),
        Figure(title="logs", rows=rows, x=logs[0], y=logs[1], colour=colour, rules={"level": 9.0}),
        Figure(title="panels", rows=rows, x=x, y=y, panel="power", mark="point"),
        Figure(
            title=HOSTILE,
            rows=[{"name": name, "y": k} for k, name in enumerate(("one", "two"), 1)],
            x=Axis(field="name", title="which", scale="category"),
            y=y,
            mark="bar",
        ),
        Figure(
            title="a title that is too long for one line of a phone, d = 20",
            rows=[
                {"name": name, "y": k, "low": k / 2, "high": 2 * k, "kind": "so"}
                for k, name in enumerate(("one", "two"), 1)
            ],
            x=y,
            y=Axis(field="name", title="which", scale="category"),
            colour=Axis(field="kind", title="kind"),
            band=("low", "high"),
            mark="point",
        ),
        Figure(
            title="heat",
            rows=[{"i": i, "j": j, "y": i - j + 0.1} for i in range(4) for j in range(4)],
            x=Axis(field="i", title="column"),
            y=Axis(field="j", title="row"),
            colour=Axis(field="y", title="entry"),
            mark="heat",
        ),
    ]


def make_outcomes() -> list[Outcome]:
    """Make outcomes of every verdict, with real ids and text that would break a careless page."""
    held = Check(statement="a = b", passed=True, summary="12 cases")
    failed = Check(statement=HOSTILE, passed=False, summary="3 of 12", counterexample=HOSTILE)
    unknown = Check(statement="a ≤ b", passed=None, summary="2 cases")
    found = {
        "ahn2023.lemma-2": Evidence(
            parts=[Part(printed=held)],
            figures=make_figures(),
            numbers={"size": 3, HOSTILE: 1e-9, "a number whose name is long: " + "so " * 40: 0.5},
            table=[{"n": n, "error": 1 / n} for n in range(1, 100)],
        ),
        "ahn2023.theorem-1": Evidence(parts=[Part(printed=failed, corrected=held)]),
        "liu2025.eq-4.3": Evidence(parts=[Part(printed=failed)]),
        "liu2025.lemma-1": Evidence(
            parts=[Part(printed=held, vacuous="n ≥ 2 is never met", trainings=1)],
            errata=[
                misprint("(3)", HOSTILE, HOSTILE, HOSTILE),
                Erratum(where="the proof", printed=failed, corrected=held),
            ],
            beyond=[held],
        ),
        "yang2025.fu.rates": Evidence(parts=[Part(printed=unknown)]),
        "yang2025.fu.newton": Evidence(out_of_reach="no machine is large enough"),
    }
    checked = [
        Outcome(id, "checked", "quick", found[id], 1.5, "2026-01-01 00:00 UTC", {"torch": "2"})
        if id in found
        else Outcome(id, "not yet checked")
        for id in (*found, "yang2025.he.gmm")
    ]
    broken = Outcome("yang2025.lin.theorem-12", "broken", "quick", error=f"RuntimeError: {HOSTILE}")
    return sorted(
        [*checked, broken],
        key=lambda outcome: (
            list(load_claims()).index(outcome.id) if outcome.id in load_claims() else 999
        ),
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows_of_claims = [outcome.as_dict() for outcome in make_outcomes()]
    names = ("gd-plus-plus", "newton")
    certificates = [innerloop.build(name, instances=2).certificate.as_dict() for name in names]
    rows = next(iter(survey.measure_convergence()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(survey, "ENVIRONMENTS", 4)
        regret = next(iter(survey.measure_regret()))
    folder = tmp_path_factory.mktemp("runs")
    for seed in range(2):
        run = folder / f"seed-{seed}"
        train("linear-attention", seed=seed, folder=run, d=2, batch=50, steps=20, evaluate_every=5)
    runs = list(load_finished_runs(folder))
    data = ReportData(
        outcomes=rows_of_claims,
        certificates=certificates,
        convergence=rows,
        convergence_setting="a setting",
        regret=regret,
        regret_setting="some games",
        runs=runs,
        command="innerloop report",
        made="today",
        seconds=1.0,
    )
    html = render_page(data)
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html, "utf-8")
    return path


class OpenedPage(NamedTuple):
    """A page, and the messages on its console so far."""

    view: Page
    messages: list[str]


@pytest.fixture(scope="module", params=[1280, 390], ids=["desktop", "phone"])
def opened_page(
    request: pytest.FixtureRequest, browser: Browser, report: Path
) -> Iterator[OpenedPage]:
    """Open the page without a network, once for each width: to draw its charts takes long."""
    view = browser.new_page(viewport={"width": request.param, "height": 900}, offline=True)
    messages: list[str] = []
    view.on("console", lambda message: messages.append(f"{message.type}: {message.text}"))
    view.on("pageerror", lambda error: messages.append(f"error: {error}"))
    view.on("dialog", lambda dialog: messages.append(f"dialog: {dialog.message}"))
    view.goto(report.as_uri())
    view.wait_for_function(
        "document.querySelectorAll('.chart svg').length === Object.keys(charts).length"
    )
    yield OpenedPage(view, messages)
    view.close()


@pytest.fixture
def page(opened_page: OpenedPage) -> Iterator[Page]:
    """The page as it was opened; any message on its console fails the test."""
    view, messages = opened_page
    view.fill("#search", "")
    for name in ("#verdict", "#source"):
        view.select_option(name, "")
    view.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = false; })")
    yield view
    assert not messages


def test_every_chart_is_drawn(page: Page) -> None:
    charts = page.evaluate(
        """Object.keys(charts).map((name) => {
            const place = document.getElementById(name), drawn = place.querySelector("svg");
            return [name, drawn.getBoundingClientRect().width, drawn.textContent,
                    drawn.querySelectorAll("[aria-roledescription$=mark]").length,
                    drawn.querySelectorAll(".mark-line path, .mark-symbol path, .mark-rect path")
                      .length];
        })"""
    )
    assert len(charts) == len(make_figures()) + 4
    for name, width, text, _, marks in charts:
        assert width > 150, name
        assert marks > 1, f"{name} shows no data"
        assert len(text) > 20, f"{name} has no titles and labels"
    words = " ".join(text for _, _, text, _, _ in charts)
    for wanted in ("lines", "examples n", "error", "p = 1", "level", HOSTILE, "entry"):
        assert wanted in words


def test_what_is_wider_than_the_window_scrolls_in_its_own_box(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_numbers_stand_beside_their_names_however_long_these_are(page: Page) -> None:
    widths = page.evaluate(
        "[...document.querySelectorAll('dd')].map((dd) => dd.getBoundingClientRect().width)"
    )
    assert len(widths) >= 3
    assert min(widths) >= 60


def test_a_level_is_named_once(page: Page) -> None:
    """Words drawn over themselves, once for each row, cannot be read."""
    found = page.evaluate(
        """[...document.querySelectorAll('.chart')].map((chart) =>
          [...chart.querySelectorAll('.mark-text text')].filter((t) =>
            t.textContent === 'level' && t.closest('.role-mark')).length)"""
    )
    assert max(found) == 1


def list_shown(view: Page) -> list[str]:
    return view.evaluate(
        "[...document.querySelectorAll('.claim')].filter((c) => c.offsetParent).map((c) => c.id)"
    )


def test_filter_and_search(page: Page) -> None:
    everything = [outcome.id for outcome in make_outcomes()]
    assert list_shown(page) == everything
    page.select_option("#verdict", "holds as corrected")
    assert list_shown(page) == ["ahn2023.theorem-1"]
    assert page.inner_text("#count") == f"1 of {len(everything)} claims"
    page.select_option("#verdict", "")
    page.select_option("#source", "yang2025")
    assert list_shown(page) == [id for id in everything if id.startswith("yang2025")]
    assert page.locator(".source:visible").count() == 1
    page.fill("#search", "LARGE machine")
    assert list_shown(page) == ["yang2025.fu.newton"]
    page.fill("#search", "nothing says this")
    assert not list_shown(page)
    assert page.is_visible("#none")
    page.fill("#search", "")
    page.select_option("#source", "")
    assert list_shown(page) == everything


def test_the_counts_at_the_top_are_those_of_the_claims(page: Page) -> None:
    tiles = [text.split(" ", maxsplit=1) for text in page.locator(".tile").all_inner_texts()]
    assert {verdict: int(count) for count, verdict in tiles} == {
        "holds": 1,
        "holds as corrected": 1,
        "fails": 1,
        "undecided": 1,
        "vacuous": 1,
        "out of reach": 1,
        "not yet checked": 1,
        "broken": 1,
    }
    cells = page.locator("table.verdicts tbody tr").all()
    assert len(cells) == 3
    assert page.locator(".claim .badge").count() == sum(int(count) for count, _ in tiles)


def test_what_does_not_hold_as_printed_is_found_most_consequential_first(page: Page) -> None:
    found = page.locator("#found ~ ol li a").all_inner_texts()
    assert found == ["ahn2023.theorem-1", "liu2025.eq-4.3", *["liu2025.lemma-1"] * 4]
    titles = page.locator("#found ~ h3").all_inner_texts()[:5]
    starts = (
        "Statements that do not",
        "Statements that are true",
        "Errata: a",
        "Errata: the",
        "Bey",
    )
    assert all(title.startswith(start) for title, start in zip(titles, starts, strict=True))
    texts = page.locator("#found ~ ol li").all_inner_texts()
    assert "No correction is known." in texts[1]
    assert "Corrected, and it holds: a = b." in texts[0], "a symbol keeps its case"


def test_text_is_text(page: Page) -> None:
    """What a claim says cannot become a part of the page."""
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 3
    assert HOSTILE in page.inner_text("[id='liu2025.eq-4.3'] pre")


def test_a_long_table_says_that_it_is_cut(page: Page) -> None:
    table = page.locator("[id='ahn2023.lemma-2'] details")
    table.locator("summary").click()
    assert "99 rows, the first 60 shown" in table.inner_text()
    assert table.locator("tbody tr").count() == 60


def test_it_prints_with_everything_on_paper(browser: Browser, report: Path) -> None:
    view = browser.new_page(offline=True)
    view.goto(report.as_uri())
    view.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert view.locator("details:not([open])").count() == 0
    view.emulate_media(media="print")
    assert not view.is_visible(".controls")
    assert len(view.pdf()) > 10_000
    view.close()
