"""Theorem A.1: the labels after t layers of linear attention with a row u in P, in closed form.

Printed    Z ← Z − (1/n) P Z M (ZᵀQZ), Q = diag(A^(t), 0), P = [0 0; u^(t)ᵀ 1] (11), the label row
           of Z is y^(t) on the context and −y_q^(t) on the query. With Σ = (1/n) XXᵀ,
           y^(t)ᵀ = w*ᵀ∏_{i<t}(I − ΣA^(i))X + Σ_{i<t} u^(i)ᵀΣA^(i)∏_{i<j<t}(I − ΣA^(j))X (12) and
           y_q^(t) = y_q − w*ᵀ∏ x_q − Σ … x_q (13), ∏ from left to right. In the proof
           y^(t+1) = y^(t) − (1/n) y^(t)ᵀXᵀA^(t)X, y_q^(t+1) = y_q^(t) − (1/n) y^(t)ᵀXᵀQx_q, XXᵀ = Σ
Tested     layers run on tokens, A^(t) dense and not symmetric, own u and A in each layer, then one
           for all, and u = 0; every t up to 6, t = 0 among them
Readings   ∏ the other way round fails as soon as two A^(i) do not commute; Σ = XXᵀ fails for n > 1;
           with layer t taking A^(t), t from 1 as in (3), A^(0) would be no layer's
Correction u enters with the other sign, −Σ … in (12) and +Σ … in (13); the steps are
           y^(t+1) = y^(t) − (1/n)(u^(t)ᵀX + y^(t)ᵀ)XᵀA^(t)X and, as y_q is minus the label,
           y_q^(t+1) = y_q^(t) + (1/n)(u^(t)ᵀX + y^(t)ᵀ)XᵀA^(t)x_q; XXᵀ = nΣ
Beyond     the loss is not harmed: w* is symmetric, so that the square's cross term is 0 for either
           sign of u
Note       the update in the proof, P M Z A Zᵀ, multiplies matrices that do not fit; (2) and (3) are
           meant
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.gatmiry2024.layers import (
    LARGEST_D,
    LARGEST_N,
    LAYERS,
    Attention,
    Form,
    Stack,
    run_layers,
)
from innerloop.claims.prompts import attention, unmasked_attention
from innerloop.claims.trials import Equality

PRINTED, CORRECTED = Form(1.0), Form(-1.0)


@claim(
    "gatmiry2024.theorem-A.1",
    "The labels of context and query after t layers of linear attention with parameters A and u of "
    "their own, as products of I − ΣA and a sum over u.",
    where="Appendix A.1, Theorem A.1, (11) to (13)",
    kind="equality",
    quick={"trials": 300},
    full={"trials": 20_000},
    tiny={"trials": 20},
    falsified={
        "the sign as printed": {"form": PRINTED},
        "the product from right to left": {"form": Form(-1.0, left_to_right=False)},
        "Σ without 1/n": {"form": Form(-1.0, averaged=False)},
        "no u in the steps": {"share": 0.0},
        "Aᵀ for A": {"turned": True},
        "the query is a key": {"attend": unmasked_attention},
        "XXᵀ = (n + 1)Σ": {"ends": 1},
    },
)
def theorem_a_1(
    generator: torch.Generator,
    *,
    trials: int,
    form: Form = CORRECTED,
    share: float = 1.0,
    turned: bool = False,
    attend: Attention = attention,
    ends: int = 0,
) -> Evidence:
    forms = {name: Equality(statement) for name, statement in STATEMENTS.items()}
    cases = [Stack.smallest()]
    for k in range(trials):
        cases.append(Stack.draw(generator, 1 + k % LARGEST_D, kind=k % 3))
    apart = 0.0
    for case in cases:
        told = case._replace(A=case.A.mT) if turned else case
        rows = run_layers(case, attend)
        _check_closed_forms(forms, told, rows, form)
        _steps(forms, told, rows, share)
        n = len(case.X)
        S = case.X.mT @ case.X / n
        case.add(forms["Σ"], case.X.mT @ case.X, S, 0)
        case.add(forms["Σ, corrected"], case.X.mT @ case.X, (n + ends) * S, 0)
        apart = max(apart, _cross(case))
    check = {name: trial.check() for name, trial in forms.items()}
    pairs = ("12", "13", "step of y", "step of y_q", "Σ")
    parts = [
        Part(
            printed=check[name],
            corrected=check[f"{name}, corrected"],
            matters="step" if name in ("12", "13") else "print",
        )
        for name in pairs
    ]
    parts.insert(2, Part(printed=check["u = 0"]))
    numbers = {
        "largest d": LARGEST_D,
        "largest n": LARGEST_N,
        "most layers": LAYERS,
        "(13) with u and −u: largest relative difference of the error², averaged over ±w*": apart,
    }
    return Evidence(parts=parts, numbers=numbers)


STATEMENTS = {
    "12": "(12): y^(t)ᵀ = w*ᵀ∏(I − ΣA)X + Σ_i u^(i)ᵀΣA^(i)∏(I − ΣA)X",
    "12, corrected": "y^(t)ᵀ = w*ᵀ∏(I − ΣA)X − Σ_i u^(i)ᵀΣA^(i)∏(I − ΣA)X",
    "13": "(13): y_q^(t) = y_q − w*ᵀ∏(I − ΣA)x_q − Σ_i u^(i)ᵀΣA^(i)∏(I − ΣA)x_q",
    "13, corrected": "y_q^(t) = y_q − w*ᵀ∏(I − ΣA)x_q + Σ_i u^(i)ᵀΣA^(i)∏(I − ΣA)x_q",
    "u = 0": "(12) and (13) at u = 0",
    "step of y": "proof: y^(t+1)ᵀ = y^(t)ᵀ − (1/n) y^(t)ᵀXᵀA^(t)X",
    "step of y, corrected": "y^(t+1)ᵀ = y^(t)ᵀ − (1/n)(u^(t)ᵀX + y^(t)ᵀ)XᵀA^(t)X",
    "step of y_q": "proof: y_q^(t+1) = y_q^(t) − (1/n) y^(t)ᵀXᵀA^(t)x_q",
    "step of y_q, corrected": "y_q^(t+1) = y_q^(t) + (1/n)(u^(t)ᵀX + y^(t)ᵀ)XᵀA^(t)x_q",
    "Σ": "proof: XXᵀ = Σ",
    "Σ, corrected": "XXᵀ = nΣ",
}


def _check_closed_forms(
    forms: dict[str, Equality], case: Stack, rows: list[Tensor], form: Form
) -> None:
    """Check (12) and (13) at every t, as printed and as corrected."""
    n = len(case.X)
    for t, row in enumerate(rows):
        label = case.query @ case.star
        for suffix, tried in (("", PRINTED), (", corrected", form)):
            stated = tried.row(case, t)
            case.add(forms[f"12{suffix}"], row[:n], case.X @ stated, t)
            case.add(forms[f"13{suffix}"], -row[n], label - stated @ case.query, t)
        if case.plain:
            stated = form.row(case, t)
            right = torch.cat([case.X @ stated, (case.query @ stated - label)[None]])
            case.add(forms["u = 0"], row, right, t)


def _steps(forms: dict[str, Equality], case: Stack, rows: list[Tensor], share: float) -> None:
    """Check the proof's two recursions from one layer to the next."""
    n = len(case.X)
    for t, (before, after) in enumerate(pairwise(rows)):
        y, A = before[:n], case.A[t]
        alone = y @ case.X @ A / n
        moved = (share * (case.X @ case.u[t]) + y) @ case.X @ A / n
        case.add(forms["step of y"], after[:n], y - case.X @ alone, t + 1)
        case.add(forms["step of y, corrected"], after[:n], y - case.X @ moved, t + 1)
        case.add(forms["step of y_q"], -after[n], -before[n] - alone @ case.query, t + 1)
        case.add(forms["step of y_q, corrected"], -after[n], -before[n] + moved @ case.query, t + 1)


def _cross(case: Stack) -> float:
    """Relative change of the squared query error, averaged over ±w*, when u changes sign."""
    t = len(case.A)
    found = []
    for sign in (1.0, -1.0):
        both = (case, case._replace(star=-case.star))
        found.append(sum((Form(sign).row(c, t) @ c.query) ** 2 for c in both))
    return float(abs(found[0] - found[1]) / max(abs(found[0]), 1e-300))
