"""Draw charts as SVG for light and dark pages."""

from __future__ import annotations

from typing import Any

THEMES = {
    "light": {"ink": "#1b1b1b", "faint": "#d9d9d9"},
    "dark": {"ink": "#e6e6e6", "faint": "#3a3f4b"},
}
COLOURS = {
    "light": ["#2f5fd0", "#b4560f", "#2a7d4f", "#8a3fa0", "#6b6b6b"],
    "dark": ["#8fb0ff", "#f0a35e", "#6fd19b", "#d59be8", "#b0b0b0"],
}
"""Pairs of colours that colour-blind readers can distinguish; they also differ in lightness."""


def is_chart(value: Any) -> bool:
    """Return whether a value is an altair chart or a figure of the package."""
    return (hasattr(value, "to_dict") and hasattr(value, "save")) or _is_figure(value)


def _is_figure(value: Any) -> bool:
    return type(value).__name__ == "Figure" and hasattr(value, "rows")


def draw_chart(chart: Any) -> dict[str, str]:
    """Draw a chart as SVG, once for each theme."""
    import vl_convert

    if _is_figure(chart):
        from dataclasses import asdict

        from innerloop.report.charts import build_chart

        chart = build_chart(asdict(chart))
    specification = chart.to_dict()
    if specification.get("width") == "container":
        specification["width"] = 560
    return {
        theme: vl_convert.vegalite_to_svg(specification, config=_make_config(theme))
        for theme in THEMES
    }


def _make_config(theme: str) -> dict[str, Any]:
    ink, faint = THEMES[theme]["ink"], THEMES[theme]["faint"]
    text = {"labelColor": ink, "titleColor": ink, "labelFontSize": 12, "titleFontSize": 12}
    return {
        "background": None,
        "font": "sans-serif",
        "axis": {**text, "gridColor": faint, "domainColor": ink, "tickColor": ink},
        "legend": {**text, "orient": "top", "symbolType": "stroke", "labelLimit": 400},
        "header": text,
        "title": {"color": ink, "fontSize": 13, "anchor": "start"},
        "view": {"stroke": faint},
        "range": {"category": COLOURS[theme]},
        "mark": {"color": COLOURS[theme][0]},
        "text": {"color": ink},
        "rule": {"color": ink},
    }
