"""Nesterov's momentum on least squares, in one block with one linear head per step.

Program    w ← v − η ∇R(v) from v = w + β (w − w_before),   R(w) = 1/(2n) Σᵢ (⟨w, xᵢ⟩ − yᵢ)²
Registers  every token holds w and w_before; a query answers ⟨w, x⟩
Agrees     with the algorithm `nesterov`
Exact for  every n, d, number of queries, η and β, also one of each per step
"""

from typing import Any

from innerloop.language import Data, Number, State, dot, mean, program


@program(
    source="Nesterov 2004, Introductory lectures on convex optimization, (2.2.20)",
    x=Data("d"),
    y=Data(),
    w=State("d", shared=True),
    before=State("d", shared=True),
    eta=Number(0.1, "η, the step size", least=0),
    beta=Number(0.5, "β, how far it moves on before it takes the gradient", least=0, most=1),
)
def nesterov(me: Any, eta: Any, beta: Any) -> None:
    """Take a step of gradient descent from a point ahead of the weights."""
    ahead = me.w + beta * (me.w - me.before)
    me.before = me.w
    me.w = ahead - eta * mean(lambda j: (dot(ahead, j.x) - j.y) * j.x)
