"""Plot the regret of several players, each as a line with a 95 % band."""

from __future__ import annotations

import altair as alt

from innerloop.surveys.data import Rows


def plot_players(rows: Rows, *, title: str, unit: str = "step") -> alt.LayerChart | alt.FacetChart:
    """Plot mean cumulative regret against the step; the first player's line is thick.

    `unit` names the unit of time: a step, or an episode of a decision process.
    """
    players = list(dict.fromkeys(row["player"] for row in rows))
    base = alt.Chart(alt.Data(values=rows)).encode(
        alt.X("t:Q", title=unit, axis=alt.Axis(tickMinStep=1, format="d")),
        alt.Color(
            "player:N",
            title=None,
            sort=players,
            scale=alt.Scale(scheme="tableau20" if len(players) > 10 else "tableau10"),
            legend=alt.Legend(orient="right", symbolType="stroke", symbolOpacity=1, labelLimit=300),
        ),
    )
    label = "mean cumulative regret (reward)"
    band = base.mark_area(opacity=0.15).encode(alt.Y("low:Q", title=label), alt.Y2("high:Q"))
    thick = alt.condition(alt.datum.player == players[0], alt.value(4), alt.value(1.5))
    lines = base.mark_line().encode(
        alt.Y("regret:Q", title=label),
        strokeWidth=thick,
        tooltip=["player:N", "t:Q", "regret:Q", "low:Q", "high:Q"],
    )
    return alt.layer(band, lines).properties(width=520, height=340, title=title)
