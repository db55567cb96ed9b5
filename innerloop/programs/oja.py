"""Oja's rule, averaged over the points, in three blocks per step.

Program    v ← v + η (A v − ⟨v, A v⟩ v) for each component,   A = (1/n) Σᵢ xᵢ xᵢᵀ
Registers  every token holds the vectors v; the first token answers
Agrees     with the formula in NumPy, and ends at a leading eigenvector of A. The algorithm `oja`
           takes the points one after another and normalises by a root: another rule
Exact for  every n, d, number of components and η, also one per step. Each component runs alone
"""

from typing import Any

from innerloop.language import Data, Number, State, dot, mean, program, stack


@program(
    prompt="components",
    source="Oja 1982, A simplified neuron model as a principal component analyzer, eq. (3)",
    x=Data("d"),
    v=State("c", "d", shared=True),
    eta=Number(0.5, "η, the step size", least=0),
)
def oja(me: Any, c: int, eta: Any) -> None:
    """Take a step towards the points' covariance times v, minus the part that would lengthen v."""
    vectors = []
    for i in range(c):
        image = mean(lambda j, i=i: dot(me.v[i], j.x) * j.x)
        shrink = dot(me.v[i], image)
        vectors.append(me.v[i] + eta * (image - shrink * me.v[i]))
    me.v = stack(vectors)


@oja.answer
def _(me: Any) -> Any:
    return me.v
