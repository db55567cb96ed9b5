"""Render the page of a sweep: its best run, one figure, and a table with a row per run."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Literal

import altair as alt

from innerloop.report.drawing import Drawings
from innerloop.report.escaping import clean, escape, fill_template
from innerloop.report.packing import render_box
from innerloop.report.text import format_value
from innerloop.report.theme import INK, SERIES

MAX_ROWS, MAX_POINTS, MAX_MEASURES, MAX_LABEL = 2_000, 30, 6, 60
"""The largest numbers of runs, combinations in the figure, further columns, and characters."""


def render_sweep(survey: dict[str, Any], command: str) -> str:
    """Render a sweep, as `survey_sweep` describes it, as one page that needs no network."""
    survey = clean(survey)
    runs = survey["runs"]
    best = next((run for run in runs if run["folder"] == survey["best"]), None)
    points = _choose_points(runs)
    svg = Drawings().draw(plot_sweep(runs, points, survey["best"]).to_dict()) if points else ""
    combinations = len({label_point(run) for run in runs})
    omitted = f", the {len(points)} best of {combinations}" if len(points) < combinations else ""
    caption = (
        f"Left: the loss of every run during the training. Right: the final loss of finished "
        f"runs, a dot per seed, for each combination of settings{omitted}. The best run is ringed."
    )
    settings = ", ".join(f"{name}={value}" for name, value in survey["settings"].items())
    return fill_template(
        "sweep.html",
        style=_load_style(),
        headline=escape(_write_headline(best)),
        lead=escape(_write_lead(survey["recipe"], best, runs)),
        settings=escape(f"Settings of all runs: {settings or 'the defaults'}."),
        figure=render_box(svg, "The loss of every run, and at its end") if svg else "",
        caption=escape(caption if svg else "No run has a loss yet: there is nothing to draw."),
        intro=escape(_introduce_table(runs)),
        table=_render_table(runs[:MAX_ROWS], list(survey["grid"]), survey["best"]),
        footer=escape(f"Made by {command}. The folder has these rows as sweep.csv."),
    )


def _load_style() -> str:
    """Load the report's style sheet without the font for formulas, which runs do not need."""
    return files("innerloop.report").joinpath("report.css").read_text("utf-8").replace("$font", "")


def label_point(run: dict[str, Any]) -> str:
    """Label a run by its own settings: `learning_rate=0.001, blocks=2`."""
    parts = [f"{name}={value}"[:MAX_LABEL] for name, value in run["point"].items()]
    return ", ".join(parts) or "all settings shared"


def plot_sweep(runs: list[dict[str, Any]], points: list[str], best: str | None) -> alt.HConcatChart:
    """Plot the loss of runs against the step, and the final loss of each combination."""
    selected = [run for run in runs if label_point(run) in points]
    about = {run["folder"]: {"run": run["folder"], "point": label_point(run)} for run in selected}
    curves = [
        {**about[run["folder"]], "step": row["step"], "loss": row["loss"]}
        for run in selected
        for row in run["history"]
    ]
    ends = [
        {**about[run["folder"]], "seed": run["seed"], "loss": run["loss"], "best": best}
        for run in selected
        if run["state"] == "finished"
    ]
    colour = alt.Color("point:N", legend=None, sort=points)
    scale = _choose_scale([row["loss"] for row in (*curves, *ends)])
    lines = (
        alt.Chart(alt.Data(values=curves))
        .mark_line(strokeWidth=1.4, opacity=0.8)
        .encode(
            alt.X("step:Q", title="step of the optimiser", axis=alt.Axis(tickCount=5)),
            alt.Y("loss:Q", title="loss").scale(type=scale, zero=False),
            colour,
            alt.Detail("run:N"),
        )
        .properties(width=330, height=max(200, 16 * len(points)))
    )
    base = alt.Chart(alt.Data(values=ends)).encode(
        alt.X("loss:Q", title="loss at the end", axis=alt.Axis(tickCount=5)).scale(
            type=_choose_scale([row["loss"] for row in ends]), zero=False
        ),
        alt.Y("point:N", title=None, sort=points, axis=alt.Axis(labelLimit=320)),
    )
    ring = base.mark_point(size=190, color=INK, strokeWidth=1.6).transform_filter(
        "datum.run === datum.best"
    )
    dots = base.mark_point(filled=True, size=48, opacity=0.9).encode(colour)
    right = alt.layer(dots, ring).properties(width=330, height=max(200, 16 * len(points)))
    return alt.hconcat(lines, right, spacing=40).configure_range(category=list(SERIES))


def _choose_points(runs: list[dict[str, Any]]) -> list[str]:
    """Choose the combinations to draw, in the order of the sweep; if there are many, the best."""
    least: dict[str, float] = {}
    for run in runs:
        values = [row["loss"] for row in run["history"][-1:]]
        values += [run["loss"]] if run["loss"] is not None else []
        if values:
            label = label_point(run)
            least[label] = min(*values, least.get(label, values[0]))
    chosen = set(sorted(least, key=lambda label: least[label])[:MAX_POINTS])
    return [label for label in least if label in chosen]


def _choose_scale(values: list[float]) -> Literal["log", "linear"]:
    """Choose the scale of an axis: logarithmic for positive values that span a factor of three."""
    return "log" if values and min(values) > 0 and max(values) > 3 * min(values) else "linear"


def _write_headline(best: dict[str, Any] | None) -> str:
    if best is None:
        return "No run is finished"
    return f"Best run: {label_point(best)}, seed {best['seed']}"


def _write_lead(recipe: str, best: dict[str, Any] | None, runs: list[dict[str, Any]]) -> str:
    ended = f"{recipe}, " if best is None else f"{recipe}, loss {best['loss']:.4g} at the end, "
    return f"{ended}{_count_states(runs)}."


def _count_states(runs: list[dict[str, Any]]) -> str:
    """Count the runs by state: `4 runs: 3 finished, 1 damaged`."""
    states = dict.fromkeys(run["state"] for run in runs)
    counts = [f"{sum(run['state'] == state for run in runs)} {state}" for state in states]
    return f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}: {', '.join(counts)}"


def _introduce_table(runs: list[dict[str, Any]]) -> str:
    rest = len(runs) - MAX_ROWS
    left = f" The first {MAX_ROWS} of {len(runs)} are shown." if rest > 0 else ""
    return f"A row per run, in the order of the sweep; the best is marked.{left}"


def _render_table(runs: list[dict[str, Any]], grid: list[str], best: str | None) -> str:
    """Render the table of a sweep, with one row per run."""
    measures = dict.fromkeys(name for run in runs for name in run["measures"])
    further = list(measures)[:MAX_MEASURES]
    heads = [*grid, "seed", "state", "step", "loss", *further]
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    rows = "".join(_render_row(run, grid, further, run["folder"] == best) for run in runs)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _render_row(run: dict[str, Any], grid: list[str], measures: list[str], best: bool) -> str:
    """Render the row of a run in the table of a sweep."""
    point = "".join(f"<td>{_write_cell(run['point'].get(name))}</td>" for name in grid)
    state = escape(f"{run['state']}, the best" if best else run["state"])
    if run["remark"]:
        state += f"<small>{escape(run['remark'])}</small>"
    kind = ' class="broken"' if run["state"] in ("damaged", "diverged") else ' class="state"'
    numbers = "".join(
        f'<td class="number">{_write_cell(value)}</td>'
        for value in (run["step"], run["loss"], *(run["measures"].get(name) for name in measures))
    )
    mark = ' class="best"' if best else ""
    seed = f'<td class="number">{run["seed"]}</td>'
    return f"<tr{mark}>{point}{seed}<td{kind}>{state}</td>{numbers}</tr>"


def _write_cell(value: Any) -> str:
    return escape(format_value(value)[:MAX_LABEL])
