"""Draw the first picture: the line after each layer of a transformer that fits it."""

from __future__ import annotations

import torch

from innerloop import RegressionProblem, build
from tools.pictures.svg import Theme, box, line, page, text

STEPS, N = 13, 20
SHOWN = (0, 4, 6, 8, 13)
PANEL, GAP, LEFT, TOP = 172, 14, 20, 44
REACH = (2.4, 3.6)
"""The largest |x| and |y| of the panels."""


def draw(theme: Theme) -> str:
    """Draw the panels: the points, the lines after each step so far, and the error of the
    answer."""
    x, y = _sample_points()
    certificate, lines, goal = _fit(x, y)
    width = 2 * LEFT + len(SHOWN) * PANEL + (len(SHOWN) - 1) * GAP
    parts = [
        text(
            LEFT,
            28,
            "One forward pass. Every layer is one step of Newton’s iteration; "
            f"weights certified to {certificate:.0e}.",
            theme.quiet,
            size=14.5,
        )
    ]
    for number, step in enumerate(SHOWN):
        left = LEFT + number * (PANEL + GAP)
        parts += _draw_panel(theme, left, x, y, lines[: step + 1])
        off = float((lines[step] - goal).abs().max())
        name = "at the start" if step == 0 else f"after step {step}"
        middle = left + PANEL / 2
        parts.append(text(middle, TOP + PANEL + 20, name, theme.ink, bold=True, anchor="middle"))
        parts.append(
            text(middle, TOP + PANEL + 39, _say(off), theme.quiet, size=12.5, anchor="middle")
        )
    title = "A transformer fits a line through points, one step of Newton's iteration per layer"
    return page(width, TOP + PANEL + 54, theme, title, parts)


def _say(off: float) -> str:
    return f"off by {off:.2g}" if off > 1e-10 else "exact to rounding"


def _sample_points() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = 4.2 * torch.rand(N, generator=generator, dtype=torch.float64) - 2.1
    noise = torch.randn(N, generator=generator, dtype=torch.float64)
    return x, 0.2 + 1.25 * x + 0.5 * noise


def _fit(x: torch.Tensor, y: torch.Tensor) -> tuple[float, list[torch.Tensor], torch.Tensor]:
    """Build and run the transformer; return its tolerance, the line per step, and least squares."""
    alpha = 1 / float(torch.linalg.eigvalsh(_make_features(x).mT @ _make_features(x))[-1]) ** 2 / 32
    built = build("newton", d=2, n=N, steps=STEPS, alpha=alpha, instances=4)
    ends = torch.tensor([-REACH[0], REACH[0]], dtype=torch.float64)
    problem = RegressionProblem.from_arrays(_make_features(x), y, _make_features(ends))
    lines = [answer.squeeze() for answer in built.predictions(problem)]
    solved = torch.linalg.lstsq(_make_features(x), y[:, None], driver="gelsd").solution[:, 0]
    return built.certificate.tolerance, lines, _make_features(ends) @ solved


def _make_features(x: torch.Tensor) -> torch.Tensor:
    """Return 1 and x for every point: a line has two coefficients."""
    return torch.stack([torch.ones_like(x), x], dim=-1)


def _draw_panel(
    theme: Theme, left: float, x: torch.Tensor, y: torch.Tensor, lines: list[torch.Tensor]
) -> list[str]:
    def place(horizontal: float, vertical: float) -> tuple[float, float]:
        return (
            left + PANEL * (horizontal + REACH[0]) / (2 * REACH[0]),
            TOP + PANEL * (REACH[1] - vertical) / (2 * REACH[1]),
        )

    name = f"panel{left}"
    parts = [
        box(left, TOP, PANEL, PANEL, "none", theme.rule),
        f'<clipPath id="{name}"><rect x="{left}" y="{TOP}" width="{PANEL}" height="{PANEL}"/>'
        f'</clipPath><g clip-path="url(#{name})">',
    ]
    for number, ends in enumerate(lines, 1):
        low, high = ends.tolist()
        last = number == len(lines)
        drawn = line([place(-REACH[0], low), place(REACH[0], high)], theme.blue, 3 if last else 1)
        parts.append(drawn if last else f'<g opacity=".4">{drawn}</g>')
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        across, down = place(a, b)
        parts.append(f'<circle cx="{across:.1f}" cy="{down:.1f}" r="3.4" fill="{theme.ink}"/>')
    return [*parts, "</g>"]
