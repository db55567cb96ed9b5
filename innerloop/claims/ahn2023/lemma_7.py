"""Lemma 7: the least of each component of the loss of one layer, diagonal covariance.

Printed    x ~ N(0, Λ), w* ~ N(0, I), f_j(X) = E[(⟨C, X⟩ + w*_j)²]: a global minimum is
           X_j = −E_{d+1,j} / ((n+1)/n λ_j + (1/n) Σ_k λ_k). Proof as for Lemma 6
Tested     as Lemma 6, with λ from 0 to 2.2 (some exactly 0), d up to 8, n up to 10⁴; at λ = 1
           against Lemma 6
Correction the corner of C, displayed as y, is y²
Beyond     for a dense Σ f_j is least at −e_{d+1} (((n+1)/n Σ + tr(Σ)/n I)⁻¹ e_j)ᵀ, not at the
           printed form with λ_j = Σ_jj: told as numbers
Note       that X_j is unique (end of the proof) is false: see theorem-1
"""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.claims.ahn2023 import components, lemma_6
from innerloop.claims.ahn2023.contexts import unit_matrix
from innerloop.claims.base import claim
from innerloop.claims.evidence import Check, Evidence, Part
from innerloop.claims.prompts import draw_covariance, draw_integer
from innerloop.claims.trials import Equality
from innerloop.theory.single_layer import SingleLayerLoss


def printed_minimiser(lam: Tensor, n: int, j: int, share: int = 1, trace: float = 1.0) -> Tensor:
    """The minimiser X_j of Lemma 7."""
    return -unit_matrix(j, len(lam)) / ((n + share) / n * lam[j] + trace * lam.sum() / n)


@claim(
    "ahn2023.lemma-7",
    "Each component of one layer's loss with a diagonal covariance is least at a multiple of one "
    "unit matrix.",
    where="Appendix A.3, Lemma 7",
    kind="equality",
    quick={"shortest": 8, "trials": 160},
    full={"shortest": 8, "trials": 8000},
    tiny={"shortest": 5, "trials": 16},
    falsified={
        "n − 1 in place of n + 1": {"stated": lambda lam, n, j: printed_minimiser(lam, n, j, -1)},
        "half the trace": {"stated": lambda lam, n, j: printed_minimiser(lam, n, j, 1, 0.5)},
        "half of the gradient": {"slope": lambda p, X, j: components.printed_slope(p, X, j) / 2},
        "the corner |y|": {"square": lambda x, y: components.printed_display(x, y.abs())},
    },
)
def lemma_7(
    generator: torch.Generator,
    *,
    shortest: int,
    trials: int,
    stated: components.StatedMinimiser = printed_minimiser,
    slope: components.Slope = components.printed_slope,
    square: components.Display = components.squared_display,
) -> Evidence:
    prompts = components.enumerate_contexts(generator, False, shortest)
    cases = components.draw_spectra(generator, False, trials)
    parts = [
        Part(printed=components.check_gradients(prompts, slope)),
        components.check_displays(prompts, square),
        Part(printed=components.check_stationary(prompts, cases, stated)),
        Part(printed=components.check_minimal(generator, cases, stated)),
        Part(printed=_alike(stated)),
    ]
    return Evidence(parts=parts, numbers=_dense(generator, trials))


def _alike(stated: components.StatedMinimiser) -> Check:
    trial = Equality("at λ = 1 the X_j of Lemma 7 is that of Lemma 6")
    for d in range(1, 9):
        for n in (1, 2, 10, 1000):
            lam = torch.ones(d, dtype=torch.float64)
            left, right = stated(lam, n, d - 1), lemma_6.printed_minimiser(lam, n, d - 1)
            trial.add(left, right, size=(d, n), about=f"d = {d}, n = {n}")
    return trial.check()


def _dense(generator: torch.Generator, trials: int) -> dict[str, float]:
    """Largest entry of ∇f_j for dense Σ: at the form for any Σ, and at λ_j = Σ_jj."""
    far = [0.0, 0.0]
    for k in range(trials):
        d, n = 2 + k % 5, draw_integer(generator, 1, 50)
        layer = SingleLayerLoss(draw_covariance(generator, d, 10.0), n)
        row = layer.optimum()[1][:d, 0]
        X = torch.zeros(d + 1, d + 1, dtype=torch.float64)
        X[d, :d] = row
        first = torch.eye(d, dtype=torch.float64)[0]
        for i, at in enumerate((X, printed_minimiser(layer.covariance.diagonal(), n, 0))):
            slope = 2 * layer.second_moment(at) + 2 * layer.linear_moment(first)
            far[i] = max(far[i], float(slope.abs().max()))
    return {
        "dense Σ, largest ∇f_j at −e_{d+1}(((n+1)/n Σ + tr(Σ)/n I)⁻¹e_j)ᵀ": far[0],
        "dense Σ, largest ∇f_j at the printed X_j with λ_j = Σ_jj": far[1],
    }
