"""Gradient descent on Huber's loss, in one block with four ReLU heads per step.

Program    w ← w − (η/n) Σᵢ min(max(⟨w, xᵢ⟩ − yᵢ, −δ), δ) xᵢ
Registers  every token holds w; a query answers ⟨w, x⟩
Agrees     with the algorithm `huber-descent`
Exact for  every n, d, number of queries, η and δ, also one of each per step: the clipped residual
           is a sum of scores, r − relu(r − δ) + relu(−r − δ)
"""

from typing import Any

from innerloop.language import Data, Number, State, clip, dot, mean, program


@program(
    source="Huber 1964, Robust estimation of a location parameter",
    x=Data("d"),
    y=Data(),
    w=State("d", shared=True),
    eta=Number(0.2, "η, the step size", least=0),
    delta=Number(1.0, "δ, the most that a residual counts", least=0),
)
def huber_descent(me: Any, eta: Any, delta: Any) -> None:
    """Take a step of gradient descent with residuals clipped to [−δ, δ]."""
    me.w = me.w - eta * mean(lambda j: clip(dot(me.w, j.x) - j.y, delta) * j.x)
