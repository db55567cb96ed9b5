"""Write the documentation as plain files, for builders that run no hooks, such as Zensical.

    python -m tools.docs.stage FOLDER && cd FOLDER && zensical build

The folder then contains `docs`, with the pages that the hooks generate, and a `mkdocs.yml` without
hooks.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import yaml
from mkdocs.config import load_config
from mkdocs.utils import meta

from tools.docs import hooks

ROOT = Path(__file__).parents[2]


def stage(folder: Path) -> None:
    """Write configuration and pages to a folder."""
    config = hooks.on_config(load_config(str(ROOT / "mkdocs.yml")))
    docs = folder / "docs"
    shutil.copytree(ROOT / "docs", docs, dirs_exist_ok=True)
    (docs / "command-line.txt").unlink()  # the introduction of a page that is made
    hooks.run_tutorials(docs / "tutorials")
    for name, content in hooks.made.items():
        path = docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "utf-8")
    for name in hooks.FONT_FILES:
        shutil.copy(hooks.FONT / name, docs / "stylesheets" / name)
    for path in docs.rglob("*.md"):
        text = path.read_text("utf-8")
        body, header = meta.get_data(text)
        header |= {"hide": ["toc"]} if path.parent.name == "tutorials" else {}
        head = f"---\n{yaml.safe_dump(header)}---\n" if header else ""
        path.write_text(
            head + hooks.complete_page(path.relative_to(docs).as_posix(), body), "utf-8"
        )
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    settings = {name: value for name, value in settings.items() if name not in NO_HOOKS}
    plugins = [{"mkdocstrings": {"handlers": {"python": find_handler(settings["plugins"])}}}]
    settings |= {"nav": config.nav, "plugins": ["search", *plugins]}
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(settings, sort_keys=False), "utf-8")


NO_HOOKS = ("hooks", "strict", "validation", "exclude_docs")
"""Settings that only the hooks use, or that other builders do not support."""


def find_handler(plugins: list[dict]) -> dict:
    """Return the settings of mkdocstrings, with the place of the package."""
    (handler,) = (each["mkdocstrings"] for each in plugins if "mkdocstrings" in each)
    return {**handler["handlers"]["python"], "paths": [str(ROOT)]}


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
