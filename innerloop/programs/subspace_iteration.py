"""Subspace iteration for principal components, V ← orth(A V), by Gram and Schmidt's method.

Program    u ← A vᵢ − Σ_{l<i} ⟨q_l, A vᵢ⟩ q_l,   qᵢ ← u g (3 − s g²)/2,   s = ‖u‖², g ≈ s^{−1/2} on
           knots: one of Newton's steps makes the knots' error e in g an error of 3/2 e² in length
Registers  every token holds the vectors v; the first token answers
Agrees     with the algorithm `subspace-iteration`, and for one component with the power method
Exact for  the built n, d, components, and s within the knots, with these straight lines. On m
           geometric knots of ratio r the inverse root is off by a factor e ≈ (3/32) ln² r at most
"""

from typing import Any

from innerloop.language import (
    Bound,
    Count,
    Data,
    State,
    dot,
    geometric_knots,
    mean,
    piecewise,
    program,
    stack,
)


@program(
    prompt="components",
    source="Golub and Van Loan 2013, Matrix computations, section 8.2.4",
    x=Data("d"),
    v=State("c", "d", shared=True),
    least=Bound(1e-4, "the least ‖u‖² allowed", least=1e-12),
    most=Bound(1e2, "the largest ‖u‖² allowed"),
    knots=Count(400, "knots of the inverse root", least=2),
)
def subspace_iteration(me: Any, c: int, least: Any, most: Any, knots: int) -> None:
    """Multiply all components by the covariance, then make them orthonormal."""
    places = geometric_knots(least, most, knots)
    images = [mean(lambda j, i=i: dot(me.v[i], j.x) * j.x) for i in range(c)]
    vectors: list[Any] = []
    for image in images:
        me.u = image
        for vector in vectors:
            me.u = me.u - dot(vector, image) * vector
        me.s = dot(me.u, me.u)
        me.g = piecewise(me.s, lambda s: s**-0.5, places)
        # t = g² s. A mean over the tokens makes a product of values that all tokens have in common.
        me.t = mean(lambda j: (me.g * j.g) * j.s)
        me.q = mean(lambda j: (1.5 * me.g - 0.5 * (me.t * j.g)) * j.u)
        vectors.append(me.q)
    me.v = stack(vectors)


@subspace_iteration.answer
def _(me: Any) -> Any:
    return me.v
