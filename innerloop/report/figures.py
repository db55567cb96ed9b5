"""Plot deviations, convergence, trainings and regret as altair charts for the report."""

from __future__ import annotations

from typing import Any

import altair as alt

from innerloop.report.theme import BAD, INK, QUIET, SERIES
from innerloop.surveys.data import Rows

FLOOR = 1e-17
"""The value at which a log axis draws an exact zero."""


def plot_step_deviations(certificates: list[dict[str, Any]]) -> alt.FacetChart:
    """Plot each construction's deviation from its reference per step, with its tolerance."""
    rows: Rows = []
    for certificate in certificates:
        steps = len(certificate["deviation"])
        for series, key, limits in (
            ("running free", "deviation", certificate["free_tolerance"]),
            ("from the exact state", "step_deviation", [certificate["tolerance"]] * steps),
        ):
            rows += [
                {
                    "construction": certificate["name"],
                    "series": series,
                    "step": step,
                    "deviation": max(deviation, FLOOR),
                    "tolerance": limit,
                }
                for step, deviation, limit in zip(
                    range(1, steps + 1), certificate[key], limits, strict=True
                )
            ]
    y = alt.Y("deviation:Q", title="relative deviation", axis=alt.Axis(format=".0e", tickCount=6))
    top = max((max(row["deviation"], row["tolerance"]) for row in rows), default=1.0)
    y = y.scale(type="log", domain=[FLOOR, 10 * top])
    base = alt.Chart(alt.Data(values=rows)).encode(
        alt.X(
            "step:Q",
            title="step",
            axis=alt.Axis(format="d", labelExpr="datum.value % 1 ? '' : datum.label"),
        )
    )
    legend = alt.Legend(orient="top", symbolType="stroke")
    lines = base.mark_line(point=True).encode(
        y,
        alt.Color("series:N", title=None, legend=legend),
        alt.StrokeDash("series:N", title=None, legend=legend),
        tooltip=["construction:N", "series:N", "step:Q", "deviation:Q"],
    )
    limit = base.mark_line(color=BAD, strokeDash=[2, 3]).encode(
        alt.Y("tolerance:Q"), detail="series:N"
    )
    return (
        alt.layer(limit, lines)
        .properties(width=260, height=160)
        .facet(alt.Facet("construction:N", title=None), columns=3)
        .resolve_scale(x="independent")
        .properties(title="Deviation of transformers from their algorithms (dotted red: tolerance)")
    )


def plot_error_against_layers(rows: Rows) -> alt.FacetChart:
    """Plot prediction error of built transformers against layers, a panel per condition number."""
    labelled = [
        {
            **row,
            "error": max(row["error"], FLOOR),
            "problem": f"condition number κ = {row['kappa']:g}",
        }
        for row in rows
    ]
    algorithms = list(dict.fromkeys(row["algorithm"] for row in rows))
    legend = alt.Legend(orient="top", columns=2, symbolType="stroke", labelLimit=300)
    line = (
        alt.Chart(alt.Data(values=labelled))
        .mark_line()
        .encode(
            alt.X(
                "layers:Q", title="layers", axis=alt.Axis(values=[1, 10, 100, 1000], format="d")
            ).scale(type="log", nice=False),
            alt.Y("error:Q", title="relative prediction error", axis=alt.Axis(format=".0e")).scale(
                type="log", domain=[FLOOR, 2]
            ),
            alt.Color("algorithm:N", title=None, sort=algorithms, legend=legend),
            tooltip=["algorithm:N", "layers:Q", "error:Q"],
        )
        .properties(width=400, height=320)
    )
    return line.facet(alt.Facet("problem:N", title=None), columns=2).properties(
        title="Prediction error after each layer of built transformers"
    )


def plot_training_curves(runs: list[dict[str, Any]]) -> alt.Chart:
    """Plot the evaluated loss of runs of one recipe against the step, one line per run."""
    rows = [
        {"run": run["folder"], "step": row["step"], "loss": row["loss"]}
        for run in runs
        for row in run["history"]
    ]
    scale = "log" if all(row["loss"] > 0 for row in rows) else "linear"
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_line(point=alt.OverlayMarkDef(size=20))
        .encode(
            alt.X("step:Q", title="step of the optimiser"),
            alt.Y("loss:Q", title="evaluated loss").scale(type=scale),
            alt.Color("run:N", title="run", legend=alt.Legend(orient="top", labelLimit=300)),
            tooltip=["run:N", "step:Q", alt.Tooltip("loss:Q", format=".4~g")],
        )
        .properties(width="container", height=300, title=f"{runs[0]['recipe']}, trained")
    )


def plot_regret(rows: Rows) -> alt.ConcatChart:
    """Plot mean cumulative regret against time, one panel per construction.

    The transformer's line is dashed, so that the policy's line is visible below it.
    """
    units = {row["construction"]: row["unit"] for row in rows}
    return alt.concat(
        *(_plot_regret_panel(name, unit) for name, unit in units.items()),
        data=alt.Data(values=rows),
        columns=4,
    ).properties(title="Regret of transformers that run a policy, and of the policies themselves")


def _plot_regret_panel(name: str, unit: str) -> alt.LayerChart | alt.FacetChart:
    players = ["uniform", "policy", "transformer"]
    legend = alt.Legend(orient="top", symbolType="stroke", symbolOpacity=1, symbolSize=500)
    colours = alt.Scale(domain=players, range=[QUIET, SERIES[1], INK])
    dashes = alt.Scale(domain=players, range=[[1, 0], [1, 0], [6, 5]])
    base = (
        alt.Chart()
        .transform_filter(alt.FieldEqualPredicate(field="construction", equal=name))
        .encode(
            alt.X("t:Q", title=f"{unit} t", axis=alt.Axis(tickMinStep=1, format="d")),
            alt.Color("player:N", title=None, scale=colours, legend=legend),
        )
    )
    title = "mean cumulative regret (reward)"
    band = base.mark_area(opacity=0.18).encode(alt.Y("low:Q", title=title), alt.Y2("high:Q"))
    lines = [
        base.mark_line(strokeWidth=width)
        .transform_filter(alt.datum.player == player)
        .encode(
            alt.Y("regret:Q", title=title),
            alt.StrokeDash("player:N", title=None, scale=dashes, legend=legend),
            tooltip=["construction:N", "player:N", "t:Q", "regret:Q", "low:Q", "high:Q"],
        )
        for player, width in zip(players, (2, 5, 2), strict=True)
    ]
    return alt.layer(band, *lines).properties(width=270, height=240, title=name)
