"""The documentation, built: strictly, with its tutorials run, and nothing loaded from outside."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser, Page

from innerloop.constructions.base import Construction
from innerloop.registry import load_members
from tools.docs import hooks, stage, tutorials

ROOT = Path(__file__).parent.parent
NOTHING = tutorials.Run([], 0.0)
TUTORIALS = sorted(
    path.stem for path in (ROOT / "docs" / "tutorials").glob("*.md") if path.stem != "index"
)
SOURCES = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\s(?:src|srcset)=[\"']?([^\"' >]+)"
    r"|<link\b(?=[^>]*rel=[\"']?(?:stylesheet|icon|preload|preconnect|manifest))[^>]*?"
    r"href=[\"']?([^\"' >]+)"
    r"|url\([\"']?([^\"')]+)|@import [\"']([^\"']+)"
)


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site with its tutorials at tiny settings; a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "INNERLOOP_DOCS": "tiny", "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def list_outside_sources(text: str) -> list[str]:
    """List what a page or style would load from another host."""
    found = ["".join(groups) for groups in SOURCES.findall(text)]
    return [source for source in found if re.match(r"(?:https?:)?//", source)]


def test_an_outside_source_is_found() -> None:
    page = (
        '<script src="https://a.example/x.js"></script><link rel="stylesheet" href="//b.example/y">'
        '<img src=https://c.example/z><a href="https://d.example"></a><img src="own.png">'
    )
    style = '@import "https://e.example/f"; a { background: url(https://g.example/h) }'
    assert len(list_outside_sources(page)) == 3
    assert len(list_outside_sources(style)) == 2


def test_nothing_is_loaded_from_outside(site: Path) -> None:
    paths = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(paths) > 50
    for path in paths:
        assert not list_outside_sources(path.read_text("utf-8")), path


def test_there_is_a_page_for_every_construction_and_command(site: Path) -> None:
    for name in load_members("constructions", Construction):
        page = (site / "gallery" / f"{name}.html").read_text("utf-8")
        assert '<dl class="law">' in page
        assert page.count('class="drawing"') >= 1
    commands = (site / "command-line.html").read_text("utf-8")
    for name in ("build", "check", "lab", "identify"):
        assert f'id="{name}"' in commands


@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_has_output_and_a_notebook(site: Path, name: str) -> None:
    page = (site / "tutorials" / f"{name}.html").read_text("utf-8")
    assert 'class="output"' in page
    assert "# tiny" not in page
    book = json.loads((site / "tutorials" / f"{name}.ipynb").read_text("utf-8"))
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    codes = ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]
    assert codes
    for code in codes:
        if not code.startswith(("%%writefile", "!")):
            ast.parse(code)
        assert "# tiny" not in code
    identifiers = [cell["id"] for cell in book["cells"]]
    assert len(identifiers) == len(set(identifiers))


def test_a_tutorial_that_breaks_is_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        tutorials.run("# Title\n\n```python\n1 / 0\n```\n", tiny=True)


def test_a_tutorial_shows_what_it_prints_and_its_last_value() -> None:
    text = (
        "# Title\n\nWords.\n\n```python\nnumber = 7  # tiny: 2\nprint('hello')\nnumber + 1\n```\n"
        '\n```python title="page_part.py"\nname = "mine"\n```\n'
        "\n```python\nfrom page_part import name\n"
        "print(name)\n```\n"
    )
    run = tutorials.run(text, tiny=True)
    assert [output["text"] for output in run.outputs] == ["hello\n3", "", "mine"]
    page, figures = tutorials.render_page(text, "title", run)
    assert "number = 7\n" in page
    assert "hello\n3" in page
    assert not figures


def test_pages_are_written_for_builders_without_hooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Zensical builds: every page of the navigation is a file, complete as it is."""
    pages = {"index.md": "# Gallery\n", "newton.md": "---\ntitle: newton\n---\n# newton\n\n$x_i$\n"}
    monkeypatch.setattr("tools.docs.gallery.make_gallery", lambda: pages)
    monkeypatch.setattr(hooks, "_run_all", lambda sources: dict.fromkeys(sources, NOTHING))
    monkeypatch.setattr("tools.docs.tutorials.render_page", lambda text, *_: (text, {}))
    monkeypatch.setattr("tools.docs.tutorials.make_notebook", lambda *_: "{}")
    stage.stage(tmp_path)
    settings = yaml.safe_load((tmp_path / "mkdocs.yml").read_text("utf-8"))
    assert "hooks" not in settings
    listed = [
        page
        for entry in settings["nav"]
        for value in entry.values()
        for page in ([value] if isinstance(value, str) else value)
    ]
    assert len(listed) > 40
    for page in listed:
        text = (tmp_path / "docs" / page).read_text("utf-8")
        assert "{weights}" not in text
    assert "<msub><mi>x</mi><mi>i</mi></msub>" in (tmp_path / "docs/gallery/newton.md").read_text()
    assert (tmp_path / "docs" / "stylesheets" / "math.woff2").exists()


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """The site, served on this machine."""
    handler = functools.partial(QuietHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def open_page(browser: Browser, url: str, width: int) -> tuple[Page, list[str], list[str]]:
    """Open a page: with the requests that it makes, and the errors of its scripts."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    requests: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(url)
    return page, requests, errors


@pytest.mark.parametrize("width", [1280, 390])
def test_the_first_page_runs_a_transformer(browser: Browser, address: str, width: int) -> None:
    page, requests, errors = open_page(browser, f"{address}/index.html", width)
    said = page.locator("#scene .said")
    assert "off by rounding" in said.inner_text()
    page.locator("#step").fill("3")
    before = said.inner_text()
    assert "step 3 of 16" in before
    point = page.locator("#scene circle").first
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    assert box
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y - 60, steps=4)
    page.mouse.up()
    assert said.inner_text() != before
    page.locator("#scene select").select_option("looped-gradient-descent")
    page.locator("#step").fill("16")
    assert "rounding" not in said.inner_text()
    page.locator("#scene circle").first.focus()
    count = page.locator("#scene circle").count()
    page.keyboard.press("Delete")
    assert page.locator("#scene circle").count() == count - 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert requests
    assert all(url.startswith((address, "data:", "blob:")) for url in requests)
    assert not errors
    page.close()
