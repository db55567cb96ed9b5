"""Render each claim as a card that can be opened, with verdict, checks, figures and command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from innerloop.report.escaping import escape
from innerloop.report.text import format_sentence, format_value, typeset, typeset_later
from innerloop.report.verdicts import (
    SIGNS,
    Outcomes,
    count_verdicts,
    group_sources,
    name_class,
)

MAX_LINES = 60
"""The largest number of rows of a table; the title of a longer table states that it is cut."""

Plots = dict[str, str]
"""Markup of each figure, by its name."""


def render_claims(
    outcomes: Outcomes, plots: Plots, versions: Mapping[str, str] | None = None
) -> str:
    """Render every claim by source; a result made with other `versions` is labelled with them."""
    return "".join(
        f'<section class="source" id="source-{escape(key)}" data-source="{escape(key)}" '
        f'data-short="{escape(members[0]["reference"]["short"])}">'
        f"<h3>{escape(members[0]['reference']['short'])} <small>{len(members)}</small></h3>"
        f"{''.join(_render_card(outcome, plots, versions) for outcome in members)}</section>"
        for key, members in group_sources(outcomes)
    )


def render_chips(outcomes: Outcomes) -> str:
    """Render the buttons that filter claims by verdict."""
    counts = {"": len(outcomes), **count_verdicts(outcomes)}
    return "".join(
        f'<button type="button" class="chip {name_class(verdict)}" '
        f'data-verdict="{escape(verdict)}" aria-pressed="{"false" if verdict else "true"}">'
        f"{SIGNS.get(verdict, '')} {escape(verdict or 'all')} {count}</button>"
        for verdict, count in counts.items()
    )


def render_options(outcomes: Outcomes) -> str:
    """Render the options of the menu of sources."""
    return "".join(
        f'<option value="{escape(key)}">{escape(members[0]["reference"]["short"])}</option>'
        for key, members in group_sources(outcomes)
    )


def collect_figures(outcomes: Outcomes) -> dict[str, dict[str, Any]]:
    """Collect the figures of all claims, by the name of their page element and their files."""
    return {
        name_figure(outcome["id"], k): figure
        for outcome in outcomes
        if outcome["evidence"] and not outcome["restates"]
        for k, figure in enumerate(outcome["evidence"]["figures"], 1)
    }


def name_figure(id: str, number: int) -> str:
    return f"{id.replace('.', '-')}-{number}"


def _render_card(outcome: dict[str, Any], plots: Plots, versions: Mapping[str, str] | None) -> str:
    """Render a claim as a card whose details can be opened."""
    verdict, id = outcome["verdict"], escape(outcome["id"])
    brief = outcome["brief"] or outcome["statement"]
    statement = typeset_later(format_sentence(outcome["statement"]))
    body = _render_origin(outcome)
    if not outcome["restates"]:
        body += _render_stale(outcome) + _render_details(outcome, plots, versions)
    return (
        f'<details class="claim {name_class(verdict)}" id="{id}" '
        f'data-verdict="{escape(verdict)}"><summary>'
        f'<span class="sign" aria-hidden="true">{SIGNS.get(verdict, "·")}</span>'
        f'<span class="what"><b>{typeset(format_sentence(brief)[:-1])}</b> '
        f'<span class="where">{escape(outcome["where"] or outcome["id"])}</span></span>'
        f'<span class="tag">{escape(outcome["label"])}</span></summary>'
        f'<div class="body"><p class="said">{statement}</p>{body}</div></details>'
    )


def _render_origin(outcome: dict[str, Any]) -> str:
    """Render the claim that a restatement repeats, and the hypotheses of the statement."""
    text = ""
    if id := escape(outcome["restates"]):
        text += f'<p class="quiet">Restates <a href="#{id}">{id}</a>, which shows the check.</p>'
    if hypotheses := outcome["hypotheses"]:
        words = "; ".join(
            f"{typeset_later(name)} ({typeset_later(at)})" for name, at in hypotheses.items()
        )
        text += f'<p class="quiet">Hypotheses: {words}.</p>'
    return text


def _render_stale(outcome: dict[str, Any]) -> str:
    """Render a notice that older code computed a stored result, with the modules that changed."""
    stale = outcome["stale"]
    if not stale:
        return ""
    changed = ", ".join(f"<code>{escape(name)}</code>" for name in stale["changed"])
    return (
        f'<details class="stale"><summary>An older result at {escape(stale["preset"])} is not used '
        f"({escape(stale['verdict'])}, {escape(stale['made'])}).</summary><p>It was computed by "
        f"older code. Modules that changed since: {changed}. <code>innerloop check "
        f"{escape(outcome['id'])} --preset {escape(stale['preset'])}</code> computes it again."
        "</p></details>"
    )


def _render_details(
    outcome: dict[str, Any], plots: Plots, versions: Mapping[str, str] | None
) -> str:
    """Render the content of a card: checks, errata, figures, numbers and command."""
    evidence, verdict = outcome["evidence"], outcome["verdict"]
    if evidence is None:
        return f"<pre>{escape(outcome['error'])}</pre>" if outcome["error"] else ""
    parts = "".join(_render_part(part) for part in evidence["parts"])
    parts += "".join(_render_erratum(erratum) for erratum in evidence["errata"])
    parts += "".join(_render_beyond(check) for check in evidence["beyond"])
    texts = [evidence["out_of_reach"], evidence["missing"]]
    reason = "".join(f"<p>{typeset_later(format_sentence(text))}</p>" for text in texts if text)
    if outcome["decided_by"]:
        subject = "The claim" if verdict == "undecided" else "The correction"
        text = typeset_later(outcome["decided_by"])
        reason += f"<p>{subject} would be decided by: {text}.</p>"
    numbers = "".join(
        f"<div><dt>{typeset_later(name)}</dt><dd>{typeset_later(format_value(value))}</dd></div>"
        for name, value in evidence["numbers"].items()
    )
    figures = "".join(
        f"<figure>{plots.get(name_figure(outcome['id'], k), '')}"
        f"<figcaption>{typeset_later(figure['caption'])}</figcaption></figure>"
        for k, figure in enumerate(evidence["figures"], 1)
    )
    return (
        f'{parts}{reason}<div class="figures">{figures}</div>'
        + (f"<dl>{numbers}</dl>" if numbers else "")
        + _render_table(evidence["table"])
        + _render_command(outcome, versions)
    )


def _render_command(outcome: dict[str, Any], versions: Mapping[str, str] | None) -> str:
    """Render the command that checks a claim again, and the origin of its result."""
    other = {} if outcome["versions"] == versions else outcome["versions"]
    origin = [
        *(outcome["id"], outcome["kind"], f"preset {outcome['preset']}"),
        *(f"{outcome['seconds']:.1f} s", outcome["made"]),
        *(f"{name} {version}" for name, version in other.items()),
    ]
    return (
        f'<p class="run"><code>{escape(outcome["command"])}</code></p>'
        f'<p class="quiet">{escape(" · ".join(map(str, origin)))}</p>'
    )


def _render_part(part: dict[str, Any]) -> str:
    """Render a part of a claim: its printed form, its correction and its readings."""
    forms = _render_check("As printed", part["printed"])
    if part["corrected"]:
        forms += _render_check("Corrected", part["corrected"])
    if part["weaker"]:
        forms += _render_check("Weaker, and true", part["weaker"])
    for name, check in part["other_readings"].items():
        forms += _render_check(f"Another reading, {typeset_later(name)}", check)
    notes = [f"Reading: {part['reading']}"] if part["reading"] else []
    notes += [f"Vacuous: {part['vacuous']}"] if part["vacuous"] else []
    text = "".join(f'<p class="quiet">{typeset_later(format_sentence(note))}</p>' for note in notes)
    kind = ' data-kind="statement"' if part["printed"]["passed"] is False else ""
    return f'<div class="part"{kind}>{forms}</div>{text}'


def _render_erratum(erratum: dict[str, Any]) -> str:
    """Render an erratum with its place, its printed form and its correction."""
    title = f"Erratum ({escape(erratum['grade'])}), {typeset_later(erratum['where'])}"
    forms = _render_check(title, erratum["printed"])
    if erratum["corrected"]:
        forms += _render_check("Corrected", erratum["corrected"])
    if erratum["meant"]:
        forms += f'<p class="now meant">{typeset_later(format_sentence(erratum["meant"]))}</p>'
    kind = escape(erratum["grade"]) if erratum["printed"]["passed"] is False else ""
    return f'<div class="part" data-kind="{kind}">{forms}</div>'


def _render_beyond(check: dict[str, Any]) -> str:
    form = _render_check("Beyond the source", check)
    return f'<div class="part" data-kind="beyond">{form}</div>'


def _render_check(title: str, check: dict[str, Any]) -> str:
    """Render a check: the statement, its outcome, its summary and its counterexample."""
    outcome = {True: "holds", False: "fails", None: "undecided"}[check["passed"]]
    example = typeset_later(check["counterexample"])
    label = '<span class="label">smallest counterexample</span>'
    example_line = f'<p class="example">{label}{example}</p>' if example else ""
    ours = f" Threshold of ours: {check['ours']}." if check["ours"] else ""
    *lines, last = check["summary"].split("\n")
    sentences = [*map(format_sentence, lines), format_sentence(last) + ours]
    summary = "<br>".join(map(typeset_later, sentences))
    return (
        f'<div class="form {outcome}"><h4>{title}: <b>{outcome}</b></h4>'
        f'<p class="formula">{typeset_later(check["statement"])}</p>'
        f'<p class="quiet">{summary}</p>{example_line}</div>'
    )


def _render_table(rows: list[dict[str, Any]]) -> str:
    """Render rows of numbers as a table that can be opened."""
    if not rows:
        return ""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{typeset_later(name)}</th>" for name in columns)
    lines = "".join(
        "<tr>"
        + "".join(f"<td>{typeset_later(format_value(row.get(name)))}</td>" for name in columns)
        + "</tr>"
        for row in rows[:MAX_LINES]
    )
    cut = f", the first {MAX_LINES} shown" if len(rows) > MAX_LINES else ""
    return (
        f'<details class="table"><summary>Table ({len(rows)} rows{cut})</summary>'
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div></details>"
    )
