"""The pictures of the README and the guide are what the code draws."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tools.identify_recorded import GROUPS, RESULTS, digest_weights
from tools.pictures import layers
from tools.pictures.__main__ import DIGESTS, DRAWINGS, FOLDER
from tools.pictures.svg import THEMES

ROOT = Path(__file__).parent.parent


def test_every_picture_was_drawn_by_the_code_that_is_here() -> None:
    digests = json.loads(DIGESTS.read_text("utf-8"))
    assert digests == {name: drawing.digest() for name, drawing in DRAWINGS.items()}, (
        "run `make pictures` and look at them"
    )


@pytest.mark.parametrize("name", ["hero", "train", "check", *layers.FAMILIES])
def test_cheap_pictures_are_drawn_again(name: str) -> None:
    drawn = DRAWINGS[name].draw(THEMES["light"])
    assert drawn == (FOLDER / f"{name}-light.svg").read_text("utf-8")


def test_readme_and_guide_show_every_picture_light_and_dark() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
    texts = "\n".join(path.read_text("utf-8") for path in pages)
    shown = set(re.findall(r'pictures/([\w.-]+)"', texts))
    assert {f"{name}-{theme}.svg" for name in DRAWINGS for theme in THEMES} <= shown
    for name in shown:
        assert (FOLDER / name).is_file()
        assert (FOLDER / name).stat().st_size < 200_000


def test_every_recorded_network_was_identified_as_it_is() -> None:
    for group in GROUPS:
        entries = json.loads((RESULTS / "identified" / f"{group}.json").read_text("utf-8"))
        paths = sorted((RESULTS / group).glob("*.safetensors"))
        assert sorted(entries) == sorted(path.stem for path in paths)
        for path in paths:
            entry = entries[path.stem]
            assert entry["weights_sha256"] == digest_weights(path), f"identify {path.stem} again"
            assert entry["verdict"]
