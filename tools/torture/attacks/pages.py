"""Hostile strings in every page: the report, and the figures of `identify`.

Names, statements, settings, paths and errors on a page are replaced by strings that would run if
they were not escaped. The page may contain them as text only. Some pages are opened in a browser,
which reports whether a script ran.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import innerloop
from innerloop.ledger.run import Outcome
from innerloop.recipes.runs import load_finished_runs
from innerloop.report import page
from innerloop.report.drawing import Drawings
from innerloop.report.export import write_chart
from innerloop.report.identified import plot_identification
from innerloop.surveys.data import ReportData
from tools.torture.attack import Attack, Defect, Unavailable, Verdict, refuse_or
from tools.torture.hostile import Outline, check_page, make_hostile_text, poison
from tools.torture.victims import CLAIMS, check_here, train_here

KEPT = frozenset(
    {"verdict", "matters", "mark", "scale", "field", "rows", "panel", "band", "preset"}
)
"""The keys whose texts are one of a few words, or name a column; columns are renamed separately."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class Harmless(NamedTuple):
    """The data of a report without hostile strings, and the outline of its page."""

    data: ReportData
    outline: Outline


def prepare(folder: Path) -> Harmless:
    """Measure what a small report shows."""
    outcomes = [o.as_dict() for o in check_here(folder / "cells", [])]
    stale = {"preset": "full", "made": "2026-01-01", "verdict": "holds", "changed": ["a module"]}
    outcomes[1]["stale"] = stale
    broken = Outcome("toy.broken", "broken", "quick", error="no", claim=CLAIMS["toy.one"])
    outcomes.append(broken.as_dict())
    train_here(folder / "runs" / "one")
    certificate = innerloop.build("newton", d=2, n=3, steps=2, instances=2).certificate
    data = ReportData(
        outcomes=outcomes,
        certificates=[certificate.as_dict()],
        convergence=[
            {"kappa": 1.0, "algorithm": "Newton", "layers": k, "error": 0.1**k} for k in (1, 2)
        ],
        convergence_setting="d = 2",
        regret=make_regret(),
        regret_setting="all of them",
        runs=list(load_finished_runs(folder / "runs")),
        damaged=[{"folder": "a/b", "reason": "it was cut short"}],
        command="innerloop report",
        made="2026-01-01",
        seconds=1.0,
    )
    return Harmless(data, Outline(render_report(data)))


def make_regret() -> list[dict[str, Any]]:
    """Make the rows of a game of two steps."""
    about = {"construction": "ucb", "unit": "step", "same": 3, "choices": 4}
    return [
        {**about, "player": player, "t": t, "regret": 1.0 * t, "low": 0.5, "high": 2.0 * t}
        for player in ("uniform", "policy", "transformer")
        for t in (1, 2)
    ]


class Undrawn(Drawings):
    """A replacement for the drawing engine, which has threads; it returns an empty figure.

    `attempt_figure` tests the engine.
    """

    def draw(self, spec: dict[str, Any]) -> str:
        return '<svg width="10" height="10"></svg>'


def render_report(data: ReportData, *, drawn: bool = False) -> str:
    """Render the report, optionally with its figures."""
    return page.render_page(data, drawings=Drawings() if drawn else Undrawn())


def poison_report(data: ReportData, chance: random.Random) -> ReportData:
    """Replace texts anywhere in a report's data, and columns of its figures and tables."""
    share = chance.choice((0.1, 0.5, 1.0))
    outcomes = poison(data.outcomes, chance, share, KEPT)
    for outcome in outcomes:
        evidence = outcome["evidence"] or {"figures": [], "table": [], "numbers": {}}
        for figure in evidence["figures"]:
            rename_column(figure, make_hostile_text(chance))
        evidence["table"] = [
            {make_hostile_text(chance): make_hostile_text(chance)} for _ in evidence["table"]
        ]
        evidence["numbers"] = {make_hostile_text(chance): v for v in evidence["numbers"].values()}
    runs = poison(data.runs, chance, share, KEPT)
    return replace(
        data,
        outcomes=outcomes,
        certificates=poison(data.certificates, chance, share, KEPT | {"deviation"}),
        convergence=poison(data.convergence, chance, share, KEPT),
        regret=poison(data.regret, chance, share, KEPT | {"player"}),
        runs=runs,
        damaged=[{"folder": make_hostile_text(chance), "reason": make_hostile_text(chance)}],
        **{
            name: make_hostile_text(chance)
            for name in ("convergence_setting", "regret_setting", "command", "made")
        },
    )


def rename_column(figure: dict[str, Any], name: str) -> None:
    """Rename the column of a figure's first axis in its rows too."""
    old = figure["x"]["field"]
    figure["x"] = {**figure["x"], "field": name}
    figure["rows"] = [
        {name if key == old else key: value for key, value in row.items()} for row in figure["rows"]
    ]


def attempt_report(harmless: Harmless, chance: random.Random, folder: Path) -> Verdict:
    """Render a report full of hostile strings, and check the elements of the page."""

    def render() -> Verdict:
        check_page(render_report(poison_report(harmless.data, chance)), harmless.outline)
        return "survived"

    return refuse_or(render)


def prepare_figure(folder: Path) -> None:
    """Return None: the drawing engine has threads, so no process may have used it before a fork."""


def attempt_figure(prepared: None, chance: random.Random, folder: Path) -> Verdict:
    """Draw a figure of `identify` with a hostile title and candidates, as a file of any kind."""
    suffix = chance.choice((".html", ".svg", ".svg", ".png"))
    if suffix not in OUTLINES:
        OUTLINES[suffix] = Outline(draw_figure("title", ["ridge", "ista"], folder, suffix))
    names = [make_hostile_text(chance), f"{make_hostile_text(chance)} 2"]

    def draw() -> Verdict:
        title = make_hostile_text(chance)
        check_page(draw_figure(title, names, folder, suffix), OUTLINES[suffix])
        return "survived"

    return refuse_or(draw)


OUTLINES: dict[str, Outline] = {}
"""The outlines of harmless figures, by their format."""


def draw_figure(title: str, candidates: list[str], folder: Path, suffix: str) -> str:
    """Return the text of the file that `identify --figure` writes, or "" for an image."""
    scores = [
        {"candidate": name, "layer": 1, "step": k, "score": 0.5, "best": k == 1}
        for name in candidates
        for k in (1, 2)
    ]
    errors = [{"series": name, "at": 1, "error": 0.5} for name in ("model", *candidates)]
    chart = plot_identification(scores=scores, errors=errors, title=title)
    path = folder / f"figure{suffix}"
    write_chart(path, chart.to_dict())
    return "" if suffix == ".png" else path.read_text("utf-8")


def prepare_browser(folder: Path) -> Harmless:
    """Find a browser, and make the pages that it opens."""
    if not any(map(shutil.which, BROWSERS)):
        raise Unavailable(f"no browser on the path: {', '.join(BROWSERS)}")
    return prepare(folder)


def attempt_browser(harmless: Harmless, chance: random.Random, folder: Path) -> Verdict:
    """Open a hostile report, or a hostile figure, in a browser; no script in it may run."""
    from playwright.sync_api import sync_playwright

    path = folder / "page.html"
    if chance.random() < 0.7:
        text = render_report(poison_report(harmless.data, chance), drawn=True)
    else:
        names = [make_hostile_text(chance), f"{make_hostile_text(chance)} 2"]
        text = draw_figure(make_hostile_text(chance), names, folder, ".html")
    path.write_text(text, "utf-8")
    program = next(filter(None, map(shutil.which, BROWSERS)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        opened = browser.new_page()
        opened.add_init_script("window.tortured = () => { window.ran = true }")
        opened.goto(path.as_uri())
        opened.wait_for_timeout(500)
        ran = opened.evaluate("window.ran === true")
        browser.close()
    if ran:
        raise Defect("a string ran in a page")
    return "survived"


ATTACKS = (
    Attack("pages", 500, prepare, attempt_report, seconds=60.0, cost=0.6, sample=1),
    Attack("figures", 500, prepare_figure, attempt_figure, 60.0, 1, cost=0.5, limited=False),
    Attack("pages-in-a-browser", 60, prepare_browser, attempt_browser, 60.0, 0, 3.0, limited=False),
)
