"""Gradient descent for logistic regression, in two blocks per step.

Program    w ← w − (η/n) Σᵢ (s(⟨w, xᵢ⟩) − yᵢ) xᵢ,   s(z) = 1/(1 + e^{−z}) on knots; y in [0, 1]
Registers  every token holds w; a query answers ⟨w, x⟩, the logarithm of its odds
Exact for  every n as built, d, η and |⟨w, x⟩| ≤ bound, with s linear between m knots: that is off
           by at most h²/8 · max|s''| = h²/83 for knots h = 2 bound/(m − 1) apart
"""

from typing import Any

import torch

from innerloop.language import Bound, Count, Data, Number, State, dot, mean, piecewise, program
from innerloop.problems.logistic_regression import LogisticRegression


@program(
    source="Cox 1958, The regression analysis of binary sequences; by gradient descent",
    problems=LogisticRegression,
    x=Data("d"),
    y=Data(),
    w=State("d", shared=True),
    eta=Number(0.5, "η, the step size", least=0),
    bound=Bound(40.0, "the largest |⟨w, x⟩| allowed"),
    knots=Count(801, "knots of the logistic function", least=2),
)
def logistic_descent(me: Any, eta: Any, bound: Any, knots: int) -> None:
    """Take a step of gradient descent on the logistic loss."""
    places = torch.linspace(-float(bound), float(bound), knots, dtype=torch.float64)
    me.odds = dot(me.w, me.x)
    me.chance = piecewise(me.odds, torch.sigmoid, places)
    me.w = me.w - eta * mean(lambda j: (j.chance - j.y) * j.x)
