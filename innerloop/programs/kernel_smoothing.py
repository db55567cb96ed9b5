"""Kernel smoothing, the labels' mean weighted by a softmax of products, in one softmax head.

Program    f ← Σᵢ softmaxᵢ(κ ⟨x, xᵢ⟩) yᵢ; every step computes the same
Registers  every token holds f, its own estimate; a query answers f
Agrees     with the algorithm `kernel-smoothing` by products
Exact for  every n, d, number of queries and κ, to rounding: softmax has no rational values
"""

from typing import Any

from innerloop.language import Data, Number, State, dot, program, softmax


@program(
    source="Nadaraya 1964, Watson 1964; attention as in Vaswani et al. 2017",
    x=Data("d"),
    y=Data(),
    f=State(),
    sharpness=Number(1.0, "κ, how much nearer examples weigh more", least=0),
)
def kernel_smoothing(me: Any, sharpness: Any) -> None:
    """Average the labels by softmax attention from each token to the examples."""
    me.f = softmax(lambda j: sharpness * dot(me.x, j.x), lambda j: j.y, over="context")


@kernel_smoothing.answer
def _(me: Any) -> Any:
    return me.f
