"""Hooks of MkDocs: folders in the navigation, and pages that are made when the site is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.utils import meta


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace every folder of the navigation by its pages."""
    folder = Path(config.docs_dir)
    config.nav = [_expand(entry, folder) for entry in config.nav or []]
    return config


def _expand(entry: dict[str, Any], folder: Path) -> dict[str, Any]:
    ((title, value),) = entry.items()
    if not isinstance(value, str) or not value.endswith("/"):
        return entry
    return {title: [f"{value}{name}" for name in list_pages(folder / value)]}


def list_pages(folder: Path) -> list[str]:
    """List the pages of a folder: its index, those with an `order`, the others by name."""

    def key(path: Path) -> tuple[bool, float, str]:
        _, header = meta.get_data(path.read_text("utf-8"))
        return path.name != "index.md", float(header.get("order", "inf")), path.name

    return [path.name for path in sorted(folder.glob("*.md"), key=key)]
