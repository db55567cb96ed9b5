"""Accelerated gradient descent on ridge regressions, for every prefix of the examples at once.

Program    u ← v − η/(d i) ((G + λI) v − b),   v ← u + β (u − u_before),   i = 2m + 1 for the prefix
           of m examples, G = Σ x xᵀ and b = Σ y x over it, u = v = 0 at the start. The largest
           curvature of a prefix is about d i/2 at most, for rows of variance 1: hence η/d
Registers  odd token 2m + 1 holds u (`behind`) and v (`ahead`) of its prefix; `first` is 1 on the
           first token, so that its mean over a prefix is 1/i
Agrees     with the recursion of the algorithms that share `accelerated_ridge`, written in NumPy
Exact for  every n, d, η, λ and β, also one of each per step, and |⟨v, x⟩| ≤ bound. The answer
           ⟨u, x⟩ is computed from the output stream
"""

from typing import Any

from innerloop.language import Bound, Data, Number, State, dot, mean, program


@program(
    prompt="prefixes",
    source="Nesterov 2004, section 2.2, with constant momentum",
    x=Data("d"),
    y=Data(),
    odd=Data(),
    first=Data(),
    ahead=State("d"),
    behind=State("d"),
    eta=Number(2.0, "η, the step size times d", least=0),
    ridge=Number(1.0, "λ, the ridge", least=0),
    beta=Number(0.5, "β, the momentum", least=0, most=1),
    bound=Bound(1e3, "the largest |⟨v, x⟩| allowed"),
)
def accelerated_ridge(me: Any, d: int, eta: Any, ridge: Any, beta: Any, bound: Any) -> None:
    """Take a step of Nesterov's method with constant momentum on the normal equations of every
    prefix.
    """
    # The gradient G v − b of the prefix, divided by i. An odd token m reads the pair tokens before
    # it, which contain both x and y: `where` is 0 for the pairs of odd tokens.
    pull = mean(
        lambda j: (dot(me.ahead, j.x) - me.odd * j.y) * j.x,
        over="causal",
        where=lambda j: 1 - me.odd * j.odd,
        reach=bound,
    )
    # The first token alone has first = 1: the mean over i tokens is v / i, the penalty without λ.
    decay = mean(lambda j: me.ahead * j.first, over="causal")
    moved = me.ahead - eta / d * (pull + ridge * decay)
    me.ahead = moved + beta * (moved - me.behind)
    me.behind = moved


@accelerated_ridge.readout
def _(me: Any) -> Any:
    return dot(me.behind, me.x)
