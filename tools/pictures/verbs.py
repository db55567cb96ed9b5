"""One small picture for each verb: build, train, identify, check."""

from __future__ import annotations

import csv
from pathlib import Path

import torch

import innerloop
from tools.pictures.svg import Theme, box, curve, line, page, text

ROOT = Path(__file__).parents[2]
WIDTH, HEIGHT = 300, 170
AREA = (46.0, 34.0, 236.0, 96.0)
CANDIDATES = ["gradient-descent", "ridge", "newton"]


def draw_build(theme: Theme) -> str:
    """Draw the error of two built transformers, step by step."""
    problems = innerloop.LinearRegression(d=5, n=40, kappa=100.0)
    problem = problems.sample(64, generator=torch.Generator().manual_seed(0))
    parts = [text(14, 22, "built: error, step by step", theme.ink, bold=True)]
    for name, colour, dash, words, at in (
        ("newton", theme.blue, "", "Newton", (196.0, 104.0)),
        ("looped-gradient-descent", theme.orange, "6 4", "gradient descent", (180.0, 46.0)),
    ):
        built = innerloop.build(name, d=5, n=40, steps=25, kappa=100.0, instances=4)
        errors = [float((a - problem.targets).abs().max()) for a in built.predictions(problem)]
        places = curve([max(e, 1e-12) for e in errors], AREA, log=True, low=1e-12, high=1e3)
        parts.append(line(places, colour, 2.5, dash))
        parts.append(text(*at, words, colour, size=12))
    axes = _axes(theme, "25 steps", 1e3)
    return page(WIDTH, HEIGHT, theme, "Error of a forward pass", [*parts, *axes])


def draw_train(theme: Theme) -> str:
    """Draw the loss of a recorded training of GPT-2."""
    path = ROOT / "results" / "regression" / "gpt2.csv"
    rows = list(csv.DictReader(path.read_text("utf-8").splitlines()))
    losses = [float(row["loss"]) for row in rows]
    parts = [
        text(14, 22, "trained: GPT-2’s loss", theme.ink, bold=True),
        line(curve(losses, AREA, log=True, low=0.01, high=10.0), theme.blue, 2.5),
        text(AREA[0] + 8, 124, f"from {losses[0]:.1f} to {losses[-1]:.3f}", theme.quiet, size=12),
    ]
    steps = f"{int(rows[-1]['step']):,} steps of the optimiser"
    axes = _axes(theme, steps, 10, 0.01)
    return page(WIDTH, HEIGHT, theme, "Loss of a training", [*parts, *axes])


def draw_identify(theme: Theme) -> str:
    """Draw the error of each candidate on the answers of each layer of a trained network."""
    run = innerloop.train("linear-attention", d=3, blocks=2, batch=2000, steps=300)
    identification = innerloop.identify(run, algorithms=CANDIDATES)
    parts = [text(14, 22, "identified: what candidates miss", theme.ink, bold=True)]
    for number, layer in enumerate(identification.layers):
        top = 36 + 62 * number
        parts.append(text(14, top + 10, f"layer {layer.layer}", theme.quiet, size=12))
        best: dict[str, float] = {}
        for near in layer.near:
            name = near.candidate.partition(" (")[0]
            best[name] = max(best.get(name, 0.0), near.share)
        for place, name in enumerate(CANDIDATES):
            missed = (1 - min(best.get(name, 0.0), 1.0)) ** 0.5
            y = top + 16 * place
            wins = name == CANDIDATES[0]
            colour = theme.blue if wins else theme.orange
            words = f"{100 * missed:.1f} %"
            parts.append(text(166, y + 10, name, theme.ink, size=11, bold=wins, anchor="end"))
            parts.append(box(172, y, 1 + 240 * missed, 11, colour))
            parts.append(text(179 + 240 * missed, y + 10, words, theme.ink, size=11, bold=wins))
    return page(WIDTH, HEIGHT, theme, "Which algorithm two trained layers run", parts)


def draw_check(theme: Theme) -> str:
    """Draw a printed formula beside its correction: an MLP that should be the soft threshold."""
    threshold, reach = 1.0, 3.0
    inputs = [reach * (2 * k / 60 - 1) for k in range(61)]

    def relu(value: float) -> float:
        return max(value, 0.0)

    printed = [relu(v - threshold) - relu(-v + threshold) for v in inputs]
    corrected = [relu(v - threshold) - relu(-v - threshold) for v in inputs]
    area = (24.0, 34.0, 252.0, 110.0)
    places = [curve(values, area, low=-4.0, high=2.5) for values in (printed, corrected)]
    parts = [
        text(14, 22, "checked: printed and corrected", theme.ink, bold=True),
        line(places[0], theme.orange, 2.5, "6 4"),
        line(places[1], theme.blue, 2.5),
        text(112, 128, "as printed, bias +θ", theme.orange, size=12),
        text(34, 66, "corrected, bias −θ", theme.blue, size=12),
        text(14, 161, "liu2025.eq-4.3: is it the soft threshold?", theme.quiet, size=12),
    ]
    return page(WIDTH, HEIGHT, theme, "A printed formula and its correction", parts)


def _axes(theme: Theme, label: str, high: float = 10, low: float = 1e-12) -> list[str]:
    left, top, width, height = AREA
    return [
        line([(left, top), (left, top + height), (left + width, top + height)], theme.rule, 1),
        text(left - 6, top + 8, f"{high:g}", theme.quiet, size=11, anchor="end"),
        text(left - 6, top + height, f"{low:g}", theme.quiet, size=11, anchor="end"),
        text(left + width, top + height + 18, label, theme.quiet, size=12, anchor="end"),
    ]
