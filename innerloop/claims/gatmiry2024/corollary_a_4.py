"""Corollary A.4: the loss of a looped transformer with A and u, in closed form.

Printed    L(A, u) = E tr((I − A^½ΣA^½)^{2L}) + E‖Σ_i uᵀΣA(I − ΣA)^{L−1−i}Σ^½‖², Σ = (1/n) XXᵀ; in
           the proof tr((I − Σ^½AΣ^½)^{2L}) = tr((I − A^½ΣA^½)^{2L})
Tested     as lemma-A.3, with one positive definite A for all loops: A^½ asks for that
Correction E tr(Σ*⁻¹(I − ΣA)^LΣ*(I − AΣ)^L) + E‖Σ_i uᵀΣA(I − ΣA)^{L−1−i}Σ*^½‖². The printed trace is
           the first of these where A is a multiple of Σ*⁻¹, and the printed second term never is
Note       for A that is not symmetric tr((I − ΣA)^{2L}) has no lower bound: the loss has, 0
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Check, Evidence, Part
from innerloop.claims.gatmiry2024 import losses
from innerloop.claims.gatmiry2024.losses import (
    CORRECTED_FORM,
    Case,
    Form,
    closed_form,
    measure_loss,
    trace_form,
)
from innerloop.claims.prompts import draw_normal
from innerloop.claims.trials import Equality


@claim(
    "gatmiry2024.corollary-A.4",
    "The loss of a looped transformer is an expected trace of a power of the sample covariance "
    "between roots of A, and a term in u.",
    where="Appendix A.1, Corollary A.4 and its proof",
    kind="equality",
    quick={"trials": 50},
    full={"trials": 1000},
    tiny={"trials": 5},
    falsified={
        "Σ*^½ and Σ*^{−½} change places": {"corrected": closed_form("law", swapped=True)},
        "the proof's root on one side only": {"inside": lambda root, S: root @ S},
    },
)
def corollary_a_4(
    generator: torch.Generator,
    *,
    trials: int,
    corrected: Form = CORRECTED_FORM,
    inside: Callable[[Tensor, Tensor], Tensor] = lambda root, S: root @ S @ root,
) -> Evidence:
    statement = "L = E tr((I − A^½ΣA^½)^{2L}) + E‖Σ_i uᵀΣA(I − ΣA)^{L−1−i}Σ^½‖²"
    printed = Equality(statement, tolerance=1e-8)
    statement = "L = E tr(Σ*⁻¹(I − ΣA)^LΣ*(I − AΣ)^L) + E‖Σ_i uᵀΣA(I − ΣA)^{L−1−i}Σ*^½‖²"
    right = Equality(statement, tolerance=1e-8)
    cases = losses.smallest_cases(flat=False)
    cases += [losses.draw_case(generator, k, shared=True) for k in range(trials)]
    losses.compare_forms(cases, [(printed, trace_form), (right, corrected)])
    parts = [
        Part(printed=printed.check(), corrected=right.check()),
        Part(printed=_roots(generator, trials, inside)),
    ]
    return Evidence(parts=parts, numbers=losses.describe_sizes())


def _roots(
    generator: torch.Generator, trials: int, inside: Callable[[Tensor, Tensor], Tensor]
) -> Check:
    """Check the proof's two traces, for positive definite matrices."""
    trial = Equality("tr((I − Σ^½AΣ^½)^{2L}) = tr((I − A^½ΣA^½)^{2L})")
    for k in range(trials):
        d, L = 1 + k % 5, 1 + k % 4
        A, S = (_positive(generator, d) for _ in range(2))
        one, other = _root(S) @ A @ _root(S), inside(_root(A), S)
        traces = [
            torch.linalg.matrix_power(torch.eye(d, dtype=torch.float64) - M, 2 * L).trace()
            for M in (one, other)
        ]
        trial.add(traces[0], traces[1], size=(d, L), about=f"d = {d}, L = {L}")
    return trial.check()


def _positive(generator: torch.Generator, d: int) -> Tensor:
    half = draw_normal(generator, d, d + 1)
    return half @ half.mT / (d + 1)


def _root(A: Tensor) -> Tensor:
    values, U = torch.linalg.eigh(A)
    return U * values.clamp(min=0).sqrt() @ U.mT


def relative_difference(case: Case) -> float:
    """Distance of the printed form from the loss, relative to the loss."""
    X, mass = case.context()
    loss = float(measure_loss(case))
    return abs(float(trace_form(case, X.mT @ X / case.n) @ mass) - loss) / loss
