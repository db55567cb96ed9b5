"""The figure of a verdict shows what was found inside, where that was asked for."""

from __future__ import annotations

import json
from pathlib import Path


def test_the_figure_shows_what_is_inside(run, tmp_path: Path) -> None:
    file, figure = tmp_path / "weights.safetensors", tmp_path / "figure.svg"
    assert run("build", "newton", "-s", "d=2", "-s", "steps=2", "-o", str(file)).code == 0
    words = ["--inside", "--discriminate", "--candidate", "newton", "--prompts", "16", "--json"]
    looked = run("identify", str(file), *words, "--figure", str(figure))
    assert looked.code == 0
    told = json.loads(looked.out)
    assert told["discriminate"] == []
    assert told["inside"]["verdict"].endswith("agree at every layer")
    assert all(layer["intervention"]["effect"] > 0.99 for layer in told["inside"]["layers"])
    drawn = figure.read_text("utf-8")
    assert "intervention" in drawn
    assert "random directions" in drawn
