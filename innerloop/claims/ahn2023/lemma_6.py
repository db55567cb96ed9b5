"""Lemma 6: the least of each component of the loss of one layer, isotropic data.

Printed    x ~ N(0, I), w* ~ N(0, I), f_j(X) = E[(⟨C, X⟩ + w*_j)²]: a global minimum is
           X_j = −E_{d+1,j} / ((n−1)/n + (d+2)/n). Proof: f_j is convex, its gradient is
           2E[⟨C, X⟩ C] + 2E[w*_j C], with C displayed with the corner y where (15) has y²
Tested     the gradient's formula over all prompts of a product rule that is exact for it; that it
           vanishes at X_j, there with either corner, and by exact moments up to d = 8, n = 10⁴;
           f_j(X_j) against matrices far and near and the ends of searches
Correction the corner of C is y²
Beyond     the least value is (d+1)/(n+d+1): without examples enough for d features nothing is told
Note       that X_j is unique (step 3 of the proof of Theorem 1) is false: see theorem-1
"""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.claims.ahn2023 import components
from innerloop.claims.ahn2023.contexts import unit_matrix
from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.theory.single_layer import SingleLayerLoss


def printed_minimiser(lam: Tensor, n: int, j: int, offset: int = 2) -> Tensor:
    """The minimiser X_j of Lemma 6; λ = 1 is used only for its length d."""
    d = len(lam)
    return -unit_matrix(j, d) / ((n - 1) / n + (d + offset) / n)


@claim(
    "ahn2023.lemma-6",
    "Each component of one layer's loss on isotropic data is least at a multiple of one unit "
    "matrix.",
    where="Appendix A.2, Lemma 6",
    kind="equality",
    quick={"shortest": 8, "trials": 160},
    full={"shortest": 8, "trials": 8000},
    tiny={"shortest": 5, "trials": 16},
    falsified={
        "d + 1 in place of d + 2": {"stated": lambda lam, n, j: printed_minimiser(lam, n, j, 1)},
        "the sign": {"stated": lambda lam, n, j: -printed_minimiser(lam, n, j)},
        "half of the gradient": {"slope": lambda p, X, j: components.printed_slope(p, X, j) / 2},
        "the corner |y|": {"square": lambda x, y: components.printed_display(x, y.abs())},
    },
)
def lemma_6(
    generator: torch.Generator,
    *,
    shortest: int,
    trials: int,
    stated: components.StatedMinimiser = printed_minimiser,
    slope: components.Slope = components.printed_slope,
    square: components.Display = components.squared_display,
) -> Evidence:
    prompts = components.enumerate_contexts(generator, True, shortest)
    cases = components.draw_spectra(generator, True, trials)
    parts = [
        Part(printed=components.check_gradients(prompts, slope)),
        components.check_displays(prompts, square),
        Part(printed=components.check_stationary(prompts, cases, stated)),
        Part(printed=components.check_minimal(generator, cases, stated)),
    ]
    rows = []
    for d, n in ((1, 1), (5, 1), (5, 5), (5, 20), (5, 100), (20, 20)):
        layer = SingleLayerLoss(torch.eye(d, dtype=torch.float64), n)
        X = printed_minimiser(torch.ones(d, dtype=torch.float64), n, 0)
        told = {"X_j": float(X[d, 0]), "f_j(X_j)": float(components.loss(layer, X, 0))}
        rows.append({"d": d, "n": n, **told, "(d+1)/(n+d+1)": (d + 1) / (n + d + 1)})
    return Evidence(parts=parts, table=rows)
