"""Gradient descent on ridge regression, in one block with one linear head per step.

Program    w ← w − η (∇R(w) + λ w),   R(w) = 1/(2n) Σᵢ (⟨w, xᵢ⟩ − yᵢ)²
Registers  every token holds w; a query answers ⟨w, x⟩
Agrees     with the algorithm `gradient-descent-with-weight-decay`
Exact for  every n, d, number of queries, η and λ, also one of each per step
"""

from typing import Any

from innerloop.language import Data, Number, State, dot, mean, program


@program(
    source="Hanson and Pratt 1988; the gradient of Hoerl and Kennard's ridge, 1970",
    x=Data("d"),
    y=Data(),
    w=State("d", shared=True),
    eta=Number(0.2, "η, the step size", least=0),
    decay=Number(0.1, "λ, the penalty on the squared length of w", least=0),
)
def gradient_descent_with_weight_decay(me: Any, eta: Any, decay: Any) -> None:
    """Take a step of gradient descent with weight decay."""
    me.w = me.w - eta * (mean(lambda j: (dot(me.w, j.x) - j.y) * j.x) + decay * me.w)
