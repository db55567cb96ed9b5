"""ISTA for the lasso with a fixed step size, in one block with one linear head per step.

Program    w ← S_{ηα}( w − η ∇R(w) ),   R(w) = 1/(2n) Σᵢ (⟨w, xᵢ⟩ − yᵢ)²,   S the soft threshold
Registers  every token holds w; a query answers ⟨w, x⟩
Agrees     at its fixed point with the lasso of penalty α (scikit-learn's). The algorithm `ista` has
           a step size of its own for each instance, which weights cannot know
Exact for  every n, d, number of queries, η and α, also one of each per step
"""

from typing import Any

from innerloop.language import Data, Number, State, dot, mean, program, soft_threshold


@program(
    source="Daubechies, Defrise and De Mol 2004, An iterative thresholding algorithm, eq. (2.5)",
    x=Data("d"),
    y=Data(),
    w=State("d", shared=True),
    eta=Number(0.2, "η, the step size", least=0),
    penalty=Number(0.1, "α, the penalty on Σ|w|", least=0),
)
def ista(me: Any, eta: Any, penalty: Any) -> None:
    """Take a gradient step, then apply a soft threshold."""
    moved = me.w - eta * mean(lambda j: (dot(me.w, j.x) - j.y) * j.x)
    me.w = soft_threshold(moved, eta * penalty)
