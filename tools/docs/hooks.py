"""Hooks of MkDocs: build the navigation, run the tutorials, and generate pages from the code.

With INNERLOOP_DOCS=tiny, as in the tests, tutorials run with tiny settings in this process.
"""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import meta

from innerloop import mathtext
from innerloop.mathtext.parsing import write_math
from tools.docs import api, commands, findings, gallery, tutorials, weights

_MATHEMATICS = re.compile(
    r"(?P<code>^ *(?P<fence>```+).*?^ *(?P=fence)$|`[^`\n]*`|^    .*$|<script.*?</script>)"
    r"|\$(?P<math>[^\s$](?:[^$\n]*[^\s$])?)\$(?!\d)",
    flags=re.M | re.S,
)
FONT = Path(mathtext.__file__).parent
FONT_FILES = ("math.woff2", "math-font-OFL.txt")
made: dict[str, str] = {}
"""Generated pages and files by their path."""
_tutorials: dict[str, str] = {}
"""The Markdown of each tutorial with its output, by path."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Generate pages from the code, and replace every folder of the navigation by its pages."""
    made.clear()
    made["command-line.md"] = commands.make_page()
    made["findings.md"] = findings.make_page()
    for folder, pages in (("gallery", gallery.make_gallery()), ("api", api.make_pages())):
        made.update({f"{folder}/{name}": text for name, text in pages.items()})
    folder = Path(config.docs_dir)
    config.nav = [_expand(entry, folder) for entry in config.nav or []]
    return config


def _expand(entry: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Replace a folder in the navigation by its pages."""
    ((title, value),) = entry.items()
    if not isinstance(value, str) or not value.endswith("/"):
        return entry
    pages = {path.name: path.read_text("utf-8") for path in (folder / value).glob("*.md")}
    names = [name for name in made if name.startswith(value) and name.endswith(".md")]
    pages |= {name.removeprefix(value): made[name] for name in names}
    return {title: [f"{value}{name}" for name in sort_pages(pages)]}


def sort_pages(pages: dict[str, str]) -> list[str]:
    """Sort pages: the index, those with an `order` in their header, the others by name."""

    def key(name: str) -> tuple[bool, float, str]:
        _, header = meta.get_data(pages[name])
        return name != "index.md", float(header.get("order", "inf")), name

    return sorted(pages, key=key)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Run the tutorials; add their notebooks and figures, and the pages made from the code."""
    run_tutorials(Path(config.docs_dir) / "tutorials")
    for name in FONT_FILES:
        path = FONT / name
        files.append(File.generated(config, f"stylesheets/{name}", abs_src_path=str(path)))
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    return files


def run_tutorials(folder: Path) -> None:
    """Run every tutorial of a folder, and return its page, its notebook and its figures."""
    sources = {
        path.stem: path.read_text("utf-8")
        for path in sorted(folder.glob("*.md"))
        if path.name != "index.md"
    }
    for name, run in _run_all(sources).items():
        text, _ = meta.get_data(sources[name])
        page, figures = tutorials.render_page(text, name, run)
        _tutorials[f"tutorials/{name}.md"] = page
        notebook = {f"{name}.ipynb": tutorials.make_notebook(text, run)}
        for file, content in {**figures, **notebook}.items():
            made[f"tutorials/{file}"] = content


def _run_all(sources: dict[str, str]) -> dict[str, tutorials.Run]:
    """Run all tutorials, two at a time; with tiny settings, one after another."""
    if os.environ.get("INNERLOOP_DOCS") == "tiny":
        return {name: tutorials.run(text, tiny=True) for name, text in sources.items()}
    with ThreadPoolExecutor(2) as pool:  # each waits for a process of its own
        return dict(zip(sources, pool.map(tutorials.run, sources.values()), strict=True))


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Insert the outputs of a tutorial below its cells, and the weights into the scene."""
    if page.file.src_uri in _tutorials:
        page.meta["hide"] = ["toc"]  # room for lines of code
    return complete_page(page.file.src_uri, markdown)


def complete_page(path: str, markdown: str) -> str:
    """Complete the Markdown of a page: outputs of a tutorial, weights of the scene, mathematics."""
    markdown = _tutorials.get(path, markdown)
    if "{weights}" in markdown:
        markdown = markdown.replace("{weights}", json.dumps(weights.export_scene()))
    return typeset(markdown)


def typeset(markdown: str) -> str:
    """Write mathematics between dollars as MathML, outside of code."""

    def write(match: re.Match[str]) -> str:
        # A span: Markdown takes `math` at the beginning of a line for a block.
        return match[0] if match["code"] else f"<span>{write_math(match['math'])}</span>"

    return _MATHEMATICS.sub(write, markdown)
