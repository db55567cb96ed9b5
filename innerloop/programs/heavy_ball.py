"""Heavy-ball momentum on least squares, in one block with one linear head per step.

Program    v ← β v − η ∇R(w),   w ← w + v,   R(w) = 1/(2n) Σᵢ (⟨w, xᵢ⟩ − yᵢ)²
Registers  every token holds w and v; a query answers ⟨w, x⟩
Agrees     with the algorithm `heavy-ball`, whose β (w − w_before) is this β v
Exact for  every n, d, number of queries, η and β, also one of each per step
"""

from typing import Any

from innerloop.language import Data, Number, State, dot, mean, program


@program(
    source="Polyak 1964, Some methods of speeding up the convergence, eq. (9)",
    x=Data("d"),
    y=Data(),
    w=State("d", shared=True),
    v=State("d", shared=True),
    eta=Number(0.1, "η, the step size", least=0),
    beta=Number(0.5, "β, the share of the last move that is kept", least=0, most=1),
)
def heavy_ball(me: Any, eta: Any, beta: Any) -> None:
    """Take a step of gradient descent that adds a multiple β of the previous change of the
    weights.
    """
    me.v = beta * me.v - eta * mean(lambda j: (dot(me.w, j.x) - j.y) * j.x)
    me.w = me.w + me.v
