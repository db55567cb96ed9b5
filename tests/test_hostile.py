"""Hostile text wherever text reaches a page or a figure: all of it is shown, none of it runs."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser

import innerloop
from innerloop.errors import FileError
from innerloop.report import certificates, claims, export, findings, page, pictures, summary
from innerloop.report.escaping import clean, escape, inline_json
from innerloop.report.identified import plot_identification
from innerloop.report.page import draw_charts, render_page
from innerloop.surveys.data import ReportData

ATTACK = (
    "<img src=x onerror=ran.push(0)>\"'></script><script>ran.push(1)</script>"
    "<!--<script>--> &lt;b&gt; $bundle ${x} \\u003c \x1b[2J \x00 \udcff \ufffe \u2028 \U000e0001"
)
TEXTS = """
    folder command reason damaged made setting games version names statement where
    kind error stale-made stale-changed printed summary counterexample corrected caption out
    number cell column construction certified cost report-command claim-command
    short citation link brief errata-where reading reading-name vacuous hypothesis origin label
    meant ours
"""
"""The places of the page that show text."""
DRAWN = ["title", "axis", "rule", "series", "panel", "curve", "player", "recipe", "run-folder"]
"""The places that charts show, broken into lines or cut to the room there is."""


def attack(place: str) -> str:
    return f"{place}{ATTACK}"


def make_figure(**rest: Any) -> dict[str, Any]:
    field = attack("field")
    rows = [
        {field: k, "y": k + 1.0, "who": attack("series"), "panel": attack("panel")}
        for k in range(1, 5)
    ]
    return {
        **{"title": attack("title"), "rows": rows, "mark": "line", "band": None, "panel": None},
        "x": {"field": field, "title": attack("axis"), "scale": "linear"},
        "y": {"field": "y", "title": attack("axis"), "scale": "log"},
        "colour": {"field": "who", "title": attack("colour"), "scale": "linear"},
        **{"rules": {attack("rule"): 2.0}, "caption": attack("caption"), **rest},
    }


def make_reference() -> dict[str, Any]:
    links = {attack("link"): f"https://{ATTACK}", "bad": "javascript:ran.push(3)"}
    return {"short": attack("short"), "citation": attack("citation"), "links": links}


def make_outcomes() -> list[dict[str, Any]]:
    def check(passed: bool, statement: str) -> dict[str, Any]:
        texts = {name: attack(name) for name in ("summary", "counterexample", "ours")}
        return {"statement": attack(statement), "passed": passed, **texts}

    failed = {"printed": check(False, "printed"), "corrected": check(True, "corrected")}
    failed["weaker"] = check(True, "weaker")
    part = {**failed, "reading": attack("reading"), "vacuous": attack("vacuous"), "trainings": 1}
    part["other_readings"] = {attack("reading-name"): check(False, "other")}
    erratum = {**failed, "where": attack("errata-where"), "meant": attack("meant")}
    evidence = {
        "parts": [part],
        "errata": [{**erratum, "grade": "step"}, {**erratum, "grade": "print"}],
        "beyond": [check(True, "beyond")],
        "numbers": {attack("number"): 1.0},
        "table": [{attack("column"): attack("cell")}],
        "figures": [make_figure(), make_figure(panel="panel", mark="point", colour=None)],
        "missing": attack("missing"),
        "out_of_reach": attack("out"),
    }
    names = ("source", "statement", "where", "kind", "made", "decided_by")
    texts = {name: attack(name) for name in names}
    stale: dict[str, Any] = {"preset": "quick", "verdict": "holds", "made": attack("stale-made")}
    stale["changed"] = [attack("stale-changed")]
    first = {
        **{**texts, "id": "toy.one", "verdict": "fails", "preset": "quick", "seconds": 1.0},
        **{"versions": {"torch": attack("version")}, "command": attack("claim-command")},
        **{"evidence": evidence, "error": "", "stale": stale, "label": attack("label")},
        **{"hypotheses": {attack("hypothesis"): attack("origin")}, "restates": ""},
        **{"brief": attack("brief"), "reference": make_reference()},
    }
    error = {"evidence": None, "error": attack("error"), "stale": None}
    other = {"id": attack("own."), "verdict": attack("unknown"), "restates": attack("restated")}
    return [first, {**first, "id": "toy.two", "verdict": "undecided"}, {**first, **error, **other}]


def make_data() -> ReportData:
    certificate = innerloop.build("newton", d=2, steps=2, instances=2).certificate.as_dict()
    cost = {name: attack("cost") for name in certificate["cost"]}
    regret = [
        {"construction": attack("player"), "unit": attack("unit"), "same": 1, "choices": 2}
        | {"player": player, "t": t, "regret": t, "low": 0.0, "high": 2.0 * t}
        for player in ("uniform", "policy", "transformer")
        for t in (1, 2, 3)
    ]
    run = {"recipe": attack("recipe"), "folder": attack("run-folder"), "seconds": 1.0}
    run |= {"command": attack("command"), "final": {"step": 4, "loss": 0.5}}
    run |= {"history": [{"step": k, "loss": 1.0 / (1 + k)} for k in range(5)]}
    return ReportData(
        outcomes=make_outcomes(),
        certificates=[
            {**certificate, "name": attack("construction"), "source": attack("certified")}
            | {"cost": cost, "versions": {attack("names"): "1"}, "error": attack("error")}
        ],
        convergence=[
            {"kappa": 1.0, "algorithm": attack("curve"), "layers": k, "error": 1.0 / k}
            for k in range(1, 5)
        ],
        convergence_setting=attack("setting"),
        regret=regret,
        regret_setting=attack("games"),
        runs=[run, {**run, "folder": attack("folder"), "recipe": "plain"}],
        command=attack("report-command"),
        made=attack("made"),
        seconds=1.0,
        damaged=[{"folder": attack("damaged"), "reason": attack("reason")}],
    )


@pytest.fixture(scope="module")
def data() -> ReportData:
    return make_data()


def open_page(browser: Browser, path: Path, charts: int = 0) -> tuple[dict[str, Any], list[str]]:
    """Open a page and collect what it shows, what ran, and what its console says.

    A page of Vega is ready when it has drawn its charts, the report when all are inflated.
    """
    view = browser.new_page(offline=True)
    view.add_init_script("window.ran = []")
    messages: list[str] = []
    view.on("console", lambda message: messages.append(message.text))
    view.on("pageerror", lambda error: messages.append(str(error)))
    view.goto(path.as_uri())
    if charts:
        view.wait_for_function(
            "n => document.querySelectorAll('svg.marks').length === n", arg=charts, timeout=8000
        )
    else:
        view.wait_for_selector("html[data-filled]", state="attached")
        view.evaluate("dispatchEvent(new Event('beforeprint'))")  # everything is drawn
    found = view.evaluate(
        """() => {
          const texts = {html: "", svg: ""};
          const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
          while (walk.nextNode()) {
            const parent = walk.currentNode.parentElement;
            if (parent.tagName !== "SCRIPT")
              texts[parent.closest("svg") ? "svg" : "html"] += walk.currentNode.data;
          }
          const links = [...document.links].map((link) => link.href).join(" ");
          return {...texts, links, ran: window.ran, images: document.images.length,
                  scripts: document.scripts.length};
        }"""
    )
    view.close()
    return found, messages


def remove_spaces(text: str) -> str:
    return re.sub(r"\s+", "", text)


def test_one_page_with_hostile_text_everywhere(
    browser: Browser, data: ReportData, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    charts = draw_charts(data)
    path.write_bytes(render_page(data, charts).encode())
    found, messages = open_page(browser, path)
    assert not messages
    assert (found["ran"], found["images"], found["scripts"]) == ([], 0, 1)
    assert "javascript:" not in found["links"]
    hidden = [place for place in TEXTS.split() if clean(attack(place))[1:] not in found["html"]]
    assert not hidden, "escaped, and shown whole"
    drawn = remove_spaces(found["svg"])
    assert not [place for place in DRAWN if f"{place}<imgsrc=x" not in drawn]
    assert "damaged and cannot be drawn" not in found["svg"]


def test_what_was_not_escaped_would_not_run_either(
    browser: Browser, data: ReportData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page allows its own scripts and no others."""
    for module in (page, claims, summary, pictures, findings, certificates):
        for name in ("escape", "typeset"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, lambda value: clean(str(value)))
    path = tmp_path / "report.html"
    plain = replace(data, outcomes=[], runs=[])
    path.write_bytes(render_page(plain).encode())
    found, messages = open_page(browser, path)
    assert found["images"] > 5, "this page is a broken one"
    assert found["ran"] == []
    assert any("Content Security Policy" in text for text in messages)


def plot_hostile() -> dict[str, Any]:
    scores = [
        {"candidate": attack("candidate"), "layer": 1, "step": k, "score": 0.5, "best": k == 1}
        for k in (1, 2)
    ]
    errors = [
        {"series": name, "at": k, "error": 1.0 / k}
        for name in (attack("model"), attack("candidate"))
        for k in (1, 2)
    ]
    return plot_identification(scores, errors, attack("title")).to_dict()


def test_the_figure_of_identify(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "figure.html"
    export.write_chart(path, plot_hostile())
    found, messages = open_page(browser, path, 1)
    assert not messages
    assert (found["ran"], found["images"], found["scripts"]) == ([], 0, 2)
    drawn = remove_spaces(found["svg"])
    assert remove_spaces(clean(attack("title"))) in drawn
    assert remove_spaces(clean(attack("candidate"))) in drawn


def test_figures_as_files(data: ReportData, tmp_path: Path) -> None:
    """Well-formed SVG with nothing in it that runs, and names that stay in the folder."""
    folder = tmp_path / "figures"
    export.make_figure_folder(folder)
    far = replace(data, runs=[{**data.runs[0], "recipe": f"../../{'x' * 300}"}])
    charts = {name: chart for name, chart in draw_charts(far).items() if "-" in name} | {
        "identified": page.Chart(plot_hostile(), [])
    }
    export.write_figures(folder, charts)
    assert {path.parent for path in tmp_path.rglob("*.*")} == {folder}
    assert len(list(folder.iterdir())) == 3 * len(charts)
    for path in folder.glob("*.svg"):
        root = ElementTree.fromstring(path.read_bytes())
        for node in root.iter():
            tag = node.tag.rpartition("}")[2]
            assert tag in {"svg", "g", "path", "text", "tspan", "rect", "defs", "clipPath"} | {
                *("line", "linearGradient", "stop", "title")
            }, f"{path.name} has <{tag}>"
            assert not [name for name in node.attrib if name.startswith("on") or "href" in name]


def test_text_stays_text() -> None:
    assert escape('<a href="x">\'') == "&lt;a href=&quot;x&quot;&gt;&#x27;"
    assert escape(3) == "3"
    assert clean({"a\x00": ["\x1b[2J", ("\udcff", 2, None)]}) == {"a␀": ["␛[2J", ["�", 2, None]]}
    assert clean("tab\t line\n é κ 😀") == "tab\t line\n é κ 😀"
    assert "<" not in inline_json({"</script>": "<!--"})


def test_names_of_files_that_are_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"figure-\xff.html")
    export.write_chart(path, {"mark": "point", "title": str(path), "data": {"values": []}})
    assert rb"figure-\ufffd.html" in path.read_bytes()


def test_a_figure_that_cannot_be_converted_is_one_line(tmp_path: Path, monkeypatch) -> None:
    def refuse(spec: dict[str, Any]) -> bytes:
        raise ValueError("conversion failed:\n  the image is too wide")

    monkeypatch.setitem(export.ENCODERS, ".png", refuse)
    with pytest.raises(FileError, match=r"conversion failed: the image is too wide; a figure as"):
        export.write_chart(tmp_path / "f.png", {"mark": "point"})
    assert not list(tmp_path.iterdir())
