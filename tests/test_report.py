"""The report: one page, everything inlined, and its numbers those of what was measured."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
import subprocess
import sys
import time
import zlib
from base64 import b64decode
from dataclasses import asdict, replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import vl_convert
from PIL import Image
from report_samples import (
    certify,
    make_certificates,
    make_curves,
    make_data,
    make_figures,
    make_outcomes,
    make_regret,
)

from innerloop.certification.certificate import Certificate
from innerloop.claims.evidence import Axis, Figure
from innerloop.claims.loading import load_claims
from innerloop.ledger import checking
from innerloop.mathtext import check_text, iterate_texts, strip_dollars, to_html
from innerloop.report import export, page
from innerloop.report.charts import build_chart
from innerloop.report.claims import render_claims
from innerloop.report.drawing import Drawings
from innerloop.report.escaping import clean
from innerloop.report.figures import plot_step_deviations
from innerloop.report.findings import HEADINGS, list_findings, summarise
from innerloop.report.packing import Pack
from innerloop.report.page import draw_charts, render_page
from innerloop.report.shortening import shorten
from innerloop.report.text import format_sentence, typeset, typeset_later
from innerloop.report.theme import CONFIG, FONT, SERIES, VARIABLES
from innerloop.surveys import survey


class Page(HTMLParser):
    """Tags with their attributes, and the tables as rows of cells."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self.inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in {"td", "th"}:
            self.tables[-1][-1].append("")
        if tag in {"table", "td", "th", "small"}:
            self.inside = tag  # ends of cells may be left out, and their mathematics has tags

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside in {"td", "th"}:
            self.tables[-1][-1][-1] += data


@pytest.fixture
def measured_report(monkeypatch: pytest.MonkeyPatch) -> list[Certificate]:
    """Let `innerloop report` show samples in place of what it measures; test_survey measures."""
    certificates = certify()
    curves = itertools.groupby(make_curves(), key=lambda row: (row["kappa"], row["algorithm"]))
    parts = [list(curve) for _, curve in curves]
    monkeypatch.setattr(survey, "build_certificates", lambda _: iter(certificates))
    monkeypatch.setattr(survey, "measure_convergence", lambda _: iter(parts))
    monkeypatch.setattr(survey, "measure_regret", lambda _: iter([make_regret()]))
    monkeypatch.setattr(survey, "draw_diagrams", dict)  # `report_samples` draws
    return certificates


@pytest.fixture(autouse=True)
def few_claims(monkeypatch: pytest.MonkeyPatch) -> str:
    """Report two claims, a small one and one without a check; test_claims runs every claim."""
    ids = ["ahn2023.lemma-2", "yang2025.lin.theorem-6"]
    presets = {"quick": [{"trials": 3}], "full": [{"trials": 4}], "paper": [{"trials": 5}]}
    small = replace(load_claims()[ids[0]], presets=presets)
    monkeypatch.setattr(checking, "load_claims", lambda: {small.id: small})
    monkeypatch.setattr(checking, "select_claims", lambda words: list(ids))
    return small.id


@pytest.mark.usefixtures("measured_report")
def test_the_page_is_self_contained_and_says_what_was_measured(run, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    none = str(tmp_path / "runs")
    found = run("report", "-o", str(path), "--seed", "1", "--runs", none, "--json")
    assert found.code == 0
    printed = json.loads(found.out)
    assert printed["path"] == str(path)
    assert [claim["verdict"] for claim in printed["claims"]] == ["holds", "not yet checked"]
    assert "--seed 1" in printed["claims"][0]["command"]
    html = path.read_text("utf-8")
    parsed = Page()
    parsed.feed(html)
    for tag, attributes in parsed.tags:
        assert "src" not in attributes, f"<{tag}> loads {attributes['src']}"
        assert tag not in {"iframe", "img"}
        assert tag != "link" or attributes["href"] == "data:,", "nothing is fetched, no icon either"
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)
    assert "unsafe-eval" not in policy
    assert policy.count("sha256-") == 1
    assert "2 of 2 constructions certify." in html
    assert "Of 1 claim about transformers" in html

    (titles, *rows), (names, *costs) = [t for t in parsed.tables if t[0][0] == "construction"]
    per_step = {"step deviation": "step_deviation", "free deviation": "deviation"}
    per_step["free tolerance"] = "free_tolerance"
    for certificate, row in zip(printed["certificates"], rows, strict=True):
        cells = dict(zip(titles, row, strict=True))
        assert (cells["construction"], cells["law"]) == (certificate["name"], "holds")
        for name in ("layers", "heads", "width", "parameters"):
            assert cells[name] == f"{certificate[name]:,}"
        for name in ("operator_norm", "tolerance"):
            assert cells[name.replace("_", " ")] == f"{certificate[name]:.3g}"
        for title, name in per_step.items():
            assert cells[title] == f"{max(certificate[name]):.3g}"
    keys = ["layers", "heads", "width", "where"]
    assert names == ["construction", *keys, "error of a step", "the source prints"]
    assert [[cell.replace(" ", "") for cell in row] for row in costs] == [
        [
            cell.replace(" ", "")
            for cell in (c["name"], *map(c["cost"].get, keys), c["error"], c["cost"]["printed"])
        ]
        for c in printed["certificates"]
    ], "typeset"
    assert printed["convergence"] == make_curves()
    assert "11 of 12 with soft-lin-ucb" in html
    kept = list((Path(os.environ["INNERLOOP_RESULTS"]) / "figures").iterdir())
    assert len(kept) == 3, "deviation, layers and regret, to be found there the next time"


@pytest.mark.usefixtures("measured_report")
def test_check_and_report_say_the_same(run, tmp_path: Path, few_claims: str) -> None:
    """Where a larger preset is stored both show that one, whichever of them ran last."""
    assert run("check", "--preset", "full", "--workers", "1").code == 0
    shown = []
    for words in (["check"], ["report", "-o", str(tmp_path / "r.html")], ["check"]):
        found = json.loads(run(*words, "--preset", "quick", "--json").out)
        claims = found["claims"] if words[0] == "report" else found
        shown.append([(c["id"], c["verdict"], c["preset"]) for c in claims])
    assert shown[0] == shown[1] == shown[2]
    assert shown[0][0] == (few_claims, "holds", "full")
    fresh = run("check", "--preset", "quick", "--fresh", "--json", "--workers", "1")
    assert json.loads(fresh.out)[0]["preset"] == "quick", "asked for anew, at this preset"


def test_one_object_goes_from_measuring_to_the_page(measured_report: list[Certificate]) -> None:
    shares: list[float] = []
    data = survey.measure_report(
        [], [], seed=2, command="a command", progress=lambda share, doing="": shares.append(share)
    )
    assert data.certificates == [certificate.as_dict() for certificate in measured_report]
    assert data.convergence == make_curves()
    assert data.regret == make_regret()
    assert len(shares) == len(measured_report) + 4 + 1
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] <= 1
    html = render_page(data)
    assert html == render_page(data, draw_charts(data))
    for words in ("a command", data.made, data.convergence_setting, data.regret_setting):
        assert escape(words) in html
    late = survey.measure_report([], [], start=time.perf_counter() - 1000)
    assert data.seconds < 1000 < late.seconds


def test_the_data_of_a_report_need_no_torch() -> None:
    code = "import sys, innerloop.surveys.data; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_a_construction_that_fails_is_told_everywhere(
    run, tmp_path: Path, monkeypatch, measured_report: list[Certificate]
) -> None:
    whole = measured_report
    spoiled = [replace(whole[0], holds=False, max_deviation=3.0), *whole[1:]]
    monkeypatch.setattr(survey, "build_certificates", lambda _: iter(spoiled))
    path = tmp_path / "report.html"
    found = run("report", "-o", str(path))
    assert found.code == 1
    assert f"these constructions break their law: {whole[0].name}" in found.err
    assert "BROKEN" in found.out
    html = path.read_text("utf-8")
    assert f"{len(whole) - 1} of {len(whole)} constructions certify." in html
    assert html.count('<td class="broken">broken') == 1


def test_what_was_found_as_plain_data() -> None:
    outcomes = [outcome.as_dict() for outcome in make_outcomes()]
    found = list_findings(outcomes)
    kinds = [finding["kind"] for finding in found]
    assert kinds == ["statement"] * 12 + ["vacuous", "step", "print", "beyond", "open"]
    assert found[0]["corrected"] == "", "what has no correction comes first"
    assert found[1]["corrected"] == "$a = b_{k+1}$"
    assert {"id", "source", "where", "claim", "printed", "counterexample"} <= found[0].keys()
    summary = summarise(outcomes)
    assert sum(summary["verdicts"].values()) == len(outcomes)
    assert summary["sources"][0]["short"] == "Ahn et al. 2023"
    assert summary["sources"][0]["links"]["arXiv:2306.00297"].startswith("https://arxiv.org/")
    totals = [sum(source["verdicts"].values()) for source in summary["sources"]]
    assert totals == [2, 2, 4]
    assert json.loads(json.dumps(summary)) == summary
    restated = [{**outcome, "restates": "other"} for outcome in outcomes]
    assert not list_findings(restated), "a restatement has the findings of its original"


def test_figures_are_drawn_once_and_found_again(tmp_path: Path, monkeypatch) -> None:
    spec = {"mark": "line", "width": "container", "data": {"values": [{"a": 1}, {"a": 2}]}}
    spec["encoding"] = {"x": {"field": "a", "type": "quantitative"}}
    first = Drawings(tmp_path / "figures")
    svg = first.draw(spec)
    assert svg.startswith("<svg")
    assert not re.search(r"\.\d\d", re.sub(r">[^<]*<", "><", svg)), "a tenth of a pixel is enough"
    assert "var(--s1)" in svg
    assert not [colour for colour in VARIABLES if colour in svg]
    monkeypatch.setattr("vl_convert.vegalite_to_svg", lambda *_, **__: pytest.fail("drawn again"))
    again = Drawings(tmp_path / "figures")
    assert again.draw(spec) == svg
    again.tidy()
    assert len(list((tmp_path / "figures").iterdir())) == 1
    Drawings(tmp_path / "figures").tidy()
    assert not list((tmp_path / "figures").iterdir()), "what no page uses is removed"


def test_a_figure_that_is_damaged_on_disk_is_drawn_again(tmp_path: Path) -> None:
    spec = {"mark": "point", "data": {"values": [{}]}}
    svg = Drawings(tmp_path).draw(spec)
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(b"no figure")
    assert Drawings(tmp_path).draw(spec) == svg
    (tmp_path / "file").touch()
    assert Drawings(tmp_path / "file" / "x").draw(spec) == svg, "costs time, not the page"


@pytest.mark.parametrize(
    "hostile",
    [
        "<script>f()</script>",
        '<g onclick="f()"/>',
        '<a href="javascript:f()"><text>a</text></a>',
        '<image href="http://example.org/a.png"/>',
        '<g style="background: url(http://example.org)"/>',
        '<h:p xmlns:h="http://www.w3.org/1999/xhtml">a</h:p>',
        "<foreignObject/>",
        "<!-- a -->",
        "<text>&nothing;</text>",
        "<g>",
        "<text>" + "a" * (16 * 2**20) + "</text>",
    ],
)
def test_a_stored_figure_with_more_than_shapes_and_text_is_drawn_again(
    tmp_path: Path, hostile: str
) -> None:
    """Whoever gives a folder of results away may have written it."""
    spec = {"mark": "point", "data": {"values": [{}]}}
    svg = Drawings(tmp_path).draw(spec)
    (stored,) = tmp_path.iterdir()
    stored.write_bytes(zlib.compress(svg.replace("</svg>", f"{hostile}</svg>").encode()))
    assert Drawings(tmp_path).draw(spec) == svg


def test_figures_and_formulas_are_packed_in_one_piece() -> None:
    pack = Pack()
    plots = [pack.render_plot(svg, "title") for svg in ("<svg>a</svg>", "<svg>\nb</svg>") * 2]
    assert [re.findall('data-svg="(.*?)"', plot) for plot in plots] == [["0"], ["1"]] * 2
    markup = typeset_later("so $n$ < $‖x_{i+1} − y‖² ≤ 1$, or ($‖x_{i+1} − y‖² ≤ 1$).")
    shown = pack.shorten(f"<p>{markup}</p><div><table><tr><td>1</td></tr></table></div>")
    assert shown == (
        "<p>so <math><mi>n</mi></math> &lt; "
        '<i data-m="2">‖x_{i+1} − y‖² ≤ 1,</i> or '
        '(<span class="nb"><i data-m="3">‖x_{i+1} − y‖² ≤ 1</i>).</span><div>'
        "<table><tr><td>1</table></div>"
    )
    parts = zlib.decompress(b64decode(pack.render()), wbits=-15).decode().split("\n")
    assert parts[:2] == ["<svg>a</svg>", "<svg> b</svg>"]
    assert parts[2] == to_html("$‖x_{i+1} − y‖² ≤ 1$,")
    assert parts[3] == to_html("$‖x_{i+1} − y‖² ≤ 1$")


def draw_pixels(svg: str) -> np.ndarray:
    """Draw a figure with the light colours and the font of the page."""
    for colour, name in VARIABLES.items():
        svg = svg.replace(f"var({name})", colour)
    svg = svg.replace("<svg ", f'<svg font-family="{FONT}" ', 1)
    image = Image.open(io.BytesIO(vl_convert.svg_to_png(svg, scale=1))).convert("RGBA")
    return np.asarray(image).astype(int)


@pytest.mark.parametrize("number", range(len(make_figures())))
def test_a_shortened_figure_looks_as_before(number: int) -> None:
    figure = clean(strip_dollars(asdict(make_figures()[number])))
    spec = build_chart(figure).to_dict()
    spec["width"] = 300 if spec.get("width") == "container" else spec.get("width")
    svg = vl_convert.vegalite_to_svg(spec, config=CONFIG)
    shorter = shorten(svg)
    assert len(shorter) < len(svg) / 2
    before, after = draw_pixels(svg), draw_pixels(shorter)
    assert before.shape == after.shape
    least = 1e-2 if figure["mark"] == "heat" else 1e-3  # cells reach over each other
    assert (np.abs(before - after).max(axis=-1) > 60).mean() < least


def test_what_is_not_seen_is_left_out_and_text_is_not_touched() -> None:
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg"><g class="a"><g><path d="M0,0h9v9h-9Z"/></g></g>'
        f'<text x="1.2345" opacity="1" font-family="{FONT}">{SERIES[0]} 1.2345</text>'
        '<line transform="translate(1,2)" x2="0" y2="5" stroke="#111111"/>'
        '<line transform="translate(3,2)" x2="4" y2="0" stroke="#111111"/>'
        '<path transform="translate(5,6)" d="M2,0A2,2,0,1,1,-2,0A2,2,0,1,1,2,0" fill="#222222" '
        'stroke-dasharray="4,2"/>'
        '<path d="M1,1h9" stroke="#111111" opacity="0.5"/>'
        '<path d="M2,1h9" stroke="#111111" opacity="0.5"/><path d="M1,1" opacity="0"/></svg>'
    )
    assert shorten(svg) == (
        f'<svg xmlns="http://www.w3.org/2000/svg"><text x="1.2">{SERIES[0]} 1.2345</text>'
        '<path d="M1,2v5M3,2h4" stroke="#111111"/>'
        '<path d="M5,6h0" stroke="#222222" stroke-width="4" stroke-linecap="round"/>'
        '<path d="M1,1h9" stroke="#111111" opacity="0.5"/>'
        '<path d="M2,1h9" stroke="#111111" opacity="0.5"/></svg>'
    ), "what shines through is not joined"


def test_a_sentence_begins_with_a_capital_letter_and_a_symbol_with_its_own() -> None:
    assert format_sentence("the loss falls") == "The loss falls."
    assert format_sentence("$n ≥ 2$: it holds") == "$n ≥ 2$: it holds."
    assert format_sentence("δ′ = 1") == "δ′ = 1."
    assert format_sentence("a k-layer network") == "A k-layer network."
    assert format_sentence("a + b holds") == "a + b holds."
    assert format_sentence("tr A = 0") == "tr A = 0."
    assert typeset("a < $b$ & costs") == "a &lt; <math><mi>b</mi></math> &amp; costs"


def test_a_claim_says_its_versions_where_they_are_not_those_of_the_page() -> None:
    outcome = {**make_outcomes()[0].as_dict(), "versions": {"torch": "0.0.7"}}
    assert "torch 0.0.7" in render_claims([outcome], {}, {"torch": "0.0.8"})
    assert "torch" not in render_claims([outcome], {}, {"torch": "0.0.7"})


def test_a_restatement_has_a_card_that_leads_to_the_check() -> None:
    outcomes = [outcome.as_dict() for outcome in make_outcomes()]
    outcomes[0]["restates"] = "ahn2023.theorem-1"
    html = render_page(make_data(outcomes=outcomes))
    card = re.search(r'<details class="claim[^>]*id="ahn2023.lemma-2".*?</details>', html, re.S)
    assert card
    assert '<a href="#ahn2023.theorem-1">' in card[0]
    assert "data-svg" not in card[0]


def test_a_point_has_its_band_along_x_where_y_is_a_category_and_a_long_title_is_broken() -> None:
    rows = [{"name": "one", "loss": 2.0, "low": 1.0, "high": 4.0, "kind": "so"}]
    figure = Figure(
        title="A title that is too long for one line of a phone, n = 20",
        rows=rows,
        x=Axis(field="loss", title="loss"),
        y=Axis(field="name", title="method", scale="category"),
        colour=Axis(field="kind", title="kind"),
        band=("low", "high"),
        mark="point",
    )
    chart = build_chart(asdict(figure)).to_dict()
    assert chart["title"]["text"] == [
        "A title that is too long for one line of a",
        "phone, n\u00a0=\u00a020",
    ]
    band, points = chart["layer"]
    assert band["mark"]["type"] == "rule"
    assert (band["encoding"]["x"]["field"], band["encoding"]["x2"]["field"]) == ("low", "high")
    assert band["encoding"]["y"]["field"] == "name"
    assert points["encoding"]["color"]["legend"]["symbolType"] == "circle"
    lined = build_chart(asdict(replace(figure, mark="line", y=Axis(field="loss", title="loss"))))
    area, line = lined.to_dict()["layer"]
    assert area["mark"]["type"] == "area"
    assert line["encoding"]["color"]["legend"]["symbolType"] == "stroke"


def test_figures_as_files(tmp_path: Path) -> None:
    """Each chart of the page as PNG, SVG and CSV, and the numbers of the CSV are the page's."""
    folder = tmp_path / "figures"
    export.make_figure_folder(folder)
    spec = plot_step_deviations(make_certificates()).to_dict()
    wide = {"mark": "point", "width": "container", "data": {"values": [{"a": 1, "b": 0.1}]}}
    wide["encoding"] = {"x": {"field": "a", "type": "quantitative"}}
    charts = {
        "deviation": page.Chart(spec, spec["data"]["values"]),
        "wide": page.Chart(wide, [{"a": 1, "b": 0.1}, {"a": 2, "c": "x,y"}]),
    }
    shares: list[float] = []
    export.write_figures(folder, charts, lambda share, doing="": shares.append(share))
    assert shares == [0.5, 1.0]
    names = {f"{name}.{kind}" for name in charts for kind in ("png", "svg", "csv")}
    assert {path.name for path in folder.iterdir()} == names
    assert (folder / "deviation.png").read_bytes().startswith(b"\x89PNG")
    drawn = (folder / "deviation.svg").read_text("utf-8")
    for words in ("relative deviation", ">step<", "running free", "gd-plus-plus"):
        assert words in drawn
    assert f'width="{export.PRINTED_WIDTH}' not in drawn
    assert (folder / "wide.csv").read_text("utf-8") == 'a,b,c\n1,0.1,\n2,,"x,y"\n'
    lines = (folder / "deviation.csv").read_text("utf-8").splitlines()
    rows = list(csv.DictReader(lines))
    assert [float(row["deviation"]) for row in rows] == [
        row["deviation"] for row in charts["deviation"].rows
    ]


def test_a_folder_for_figures_that_cannot_be(run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = run("report", "-o", str(tmp_path / "x.html"), "--figures", str(tmp_path / "file" / "x"))
    assert found.code == 2
    assert "cannot write figures to" in found.err
    assert not (tmp_path / "x.html").exists()


def test_the_recorded_verdicts_are_about_the_claims_that_are_here() -> None:
    """`tools/record_verdicts.py` writes them; a statement that changed is to be checked again."""
    recorded = json.loads((Path(__file__).parents[1] / "results" / "verdicts.json").read_bytes())
    claims = load_claims()
    for id, entry in recorded["claims"].items():
        if entry["verdict"] != "not yet checked":
            assert claims[id].statement == entry["statement"], id
    assert sum(recorded["verdicts"].values()) == len(recorded["claims"])
    assert {finding["kind"] for finding in recorded["findings"]} <= set(HEADINGS)
    for text in iterate_texts(recorded["findings"]):
        check_text(text)


def test_a_figure_that_cannot_be_drawn_costs_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise ValueError("conversion failed: <b>")

    monkeypatch.setattr("innerloop.report.drawing.vl_convert.vegalite_to_svg", refuse)
    text = Drawings().draw({"mark": "point"})
    assert "cannot be drawn: conversion failed: &lt;b&gt;" in text
    assert text.startswith("<svg")
    assert "<b>" not in text
