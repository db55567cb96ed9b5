"""A small report with data of every kind, which is written by hand and not measured."""

from __future__ import annotations

from functools import cache
from typing import Any

import innerloop
from innerloop.certification.certificate import Certificate
from innerloop.claims.evidence import Axis, Check, Erratum, Evidence, Figure, Part, misprint
from innerloop.claims.loading import load_claims
from innerloop.ledger.run import Outcome
from innerloop.surveys.data import ReportData
from innerloop.surveys.survey import draw_diagrams

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script> & $broken"


def make_figures() -> list[Figure]:
    """Make one figure of every kind."""
    rows = [
        {"x": x, "y": (1 + x) ** p, "low": 0.9 * x, "high": 1.1 * x, "power": f"$p = {p}$"}
        for p in (1, 2)
        for x in range(1, 9)
    ]
    x, y = Axis(field="x", title="examples n"), Axis(field="y", title="error")
    colour = Axis(field="power", title="power")
    logs = [Axis(field=a.field, title=a.title, scale="log") for a in (x, y)]
    return [
        Figure(title="lines", rows=rows, x=x, y=y, colour=colour, band=("low", "high")),
        Figure(title="logs", rows=rows, x=logs[0], y=logs[1], colour=colour, rules={"level": 9.0}),
        Figure(title="panels", rows=rows, x=x, y=y, panel="power", mark="point"),
        Figure(
            title=HOSTILE,
            rows=[{"name": name, "y": k} for k, name in enumerate(("one", "two"), 1)],
            x=Axis(field="name", title="which", scale="category"),
            y=y,
            mark="bar",
        ),
        Figure(
            title="a title that is too long for one line of a phone, d = 20",
            rows=[
                {"name": name, "y": k, "low": k / 2, "high": 2 * k, "kind": "so"}
                for k, name in enumerate(("one", "two"), 1)
            ],
            x=y,
            y=Axis(field="name", title="which", scale="category"),
            colour=Axis(field="kind", title="kind"),
            band=("low", "high"),
            mark="point",
        ),
        Figure(
            title="heat",
            rows=[{"i": i, "j": j, "y": i - j + 0.1} for i in range(4) for j in range(4)],
            x=Axis(field="i", title="column"),
            y=Axis(field="j", title="row"),
            colour=Axis(field="y", title="entry"),
            mark="heat",
        ),
    ]


def make_outcomes() -> list[Outcome]:
    """Make outcomes of every verdict, with real ids and with text that must be escaped."""
    held = Check(statement="$a = b_{k+1}$", passed=True, summary="12 cases, $n ≥ 2$")
    failed = Check(statement=HOSTILE, passed=False, summary="3 of 12", counterexample=HOSTILE)
    unknown = Check(statement="$a ≤ b$", passed=None, summary="2 cases")
    figure = make_figures()[0]
    found = {
        "ahn2023.lemma-2": Evidence(
            parts=[Part(printed=held)],
            figures=make_figures(),
            numbers={"size": 3, HOSTILE: 1e-9, "a number whose name is long: " + "so " * 40: 0.5},
            table=[{"n": n, "error": 1 / n} for n in range(1, 100)],
        ),
        "ahn2023.theorem-1": Evidence(
            parts=[Part(printed=failed, corrected=held)] * 11, figures=[figure]
        ),
        "liu2025.eq-4.3": Evidence(parts=[Part(printed=failed)]),
        "liu2025.lemma-1": Evidence(
            parts=[Part(printed=held, vacuous="$n ≥ 2$ is never met", trainings=1)],
            errata=[
                misprint("(3)", HOSTILE, HOSTILE, HOSTILE),
                Erratum(where="the proof", printed=failed, corrected=held),
            ],
            beyond=[held],
        ),
        "yang2025.fu.rates": Evidence(parts=[Part(printed=unknown)]),
        "yang2025.fu.newton": Evidence(out_of_reach="no machine is large enough"),
    }
    checked = [
        Outcome(id, "checked", "quick", found[id], 1.5, "2026-01-01 00:00 UTC", {"torch": "2"})
        if id in found
        else Outcome(id, "not yet checked")
        for id in (*found, "yang2025.he.gmm")
    ]
    broken = Outcome("yang2025.lin.theorem-12", "broken", "quick", error=f"RuntimeError: {HOSTILE}")
    order = list(load_claims())
    return sorted([*checked, broken], key=lambda outcome: order.index(outcome.id))


def make_curves() -> list[dict[str, Any]]:
    return [
        {"kappa": kappa, "algorithm": name, "layers": k, "error": rate**k}
        for kappa in (1.0, 100.0)
        for name, rate in (("gradient descent", 0.9), ("Newton", 0.3))
        for k in range(1, 12)
    ]


def make_regret() -> list[dict[str, Any]]:
    return [
        {
            **{"construction": "soft-lin-ucb", "unit": "step", "same": 11, "choices": 12},
            **{"player": player, "t": t, "regret": t * rate, "low": 0.0, "high": 2.0 * t * rate},
        }
        for player, rate in (("uniform", 1.0), ("policy", 0.5), ("transformer", 0.5))
        for t in range(1, 7)
    ]


def make_run(seed: int) -> dict[str, Any]:
    history = [{"step": 5 * k, "loss": 1 / (1 + k + seed)} for k in range(5)]
    return {
        **{"recipe": "linear-attention", "folder": f"runs/seed-{seed}", "seconds": 2.0},
        **{"command": f"innerloop train linear-attention --seed {seed}", "history": history},
        "final": history[-1],
    }


@cache
def certify() -> list[Certificate]:
    """Build and certify two constructions on two instances each."""
    names = ("gd-plus-plus", "newton")
    return [innerloop.build(name, d=2, instances=2).certificate for name in names]


def make_certificates() -> list[dict[str, Any]]:
    return [certificate.as_dict() for certificate in certify()]


def make_data(**changes: Any) -> ReportData:
    """Make the data of a report with entries of every kind."""
    given: dict[str, Any] = {
        "outcomes": [outcome.as_dict() for outcome in make_outcomes()],
        "certificates": make_certificates(),
        "convergence": make_curves(),
        "convergence_setting": "a setting",
        "regret": make_regret(),
        "regret_setting": "some games",
        "runs": [make_run(0), make_run(1)],
        "command": "innerloop report",
        "made": "today",
        "seconds": 1.0,
        "diagrams": {"chebyshev": draw_diagrams()["chebyshev"]},
    }
    return ReportData(**{**given, **changes})
