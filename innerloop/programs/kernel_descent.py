"""Kernel regression by gradient descent in function space, in one block with one ReLU head.

Program    f ← f − (η/n) Σᵢ k(·, xᵢ) (f(xᵢ) − yᵢ),   k(x, z) = relu(⟨x, z⟩)
Registers  `y` holds yᵢ − f(xᵢ) on context tokens and −f(x) on queries
Agrees     with (I − ηK/n)^k y computed with NumPy
Exact for  every n, d, number of queries and η, also one per step
"""

from typing import Any

from innerloop.language import Data, Number, State, dot, mean, program, relu


@program(
    source="Cheng et al. 2024, Transformers implement functional gradient descent, section 3",
    x=Data("d"),
    y=State(),
    eta=Number(0.2, "η, the step size", least=0),
)
def kernel_descent(me: Any, eta: Any) -> None:
    """Change each token's residual by the other tokens' residuals, weighted by the kernel."""
    me.y = me.y - eta * mean(lambda j: relu(dot(me.x, j.x)) * j.y)


@kernel_descent.answer
def _(me: Any) -> Any:
    return -me.y
