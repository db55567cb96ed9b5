"""A language for steps of algorithms, and its compiler to transformers.

The author writes one step as mathematics about one token and the other tokens, in ordinary Python.
The compiler has four passes, one file each: trace, schedule, placement and emission. They produce
the transformer's blocks. The interpreter evaluates the same step on arrays and is the reference
that the blocks are compared with. This folder may import the base classes of constructions and
everything below them.

    @program(x=Data("d"), y=Data(), w=State("d", shared=True), v=State("d", shared=True))
    def heavy_ball(me, eta=0.1, beta=0.5):
        me.v = beta * me.v - eta * mean(lambda j: (dot(me.w, j.x) - j.y) * j.x)
        me.w = me.w + me.v
"""

from innerloop.language.primitives import (
    clip,
    closed,
    dot,
    entry_sum,
    gate,
    geometric_knots,
    hinges,
    matvec,
    mean,
    outer,
    own_total,
    piecewise,
    relu,
    soft_threshold,
    softmax,
    stack,
    total,
    transposed,
)
from innerloop.language.program import define, program
from innerloop.language.types import Bound, Count, Data, Matrices, Number, State

__all__ = [
    "Bound",
    "Count",
    "Data",
    "Matrices",
    "Number",
    "State",
    "clip",
    "closed",
    "define",
    "dot",
    "entry_sum",
    "gate",
    "geometric_knots",
    "hinges",
    "matvec",
    "mean",
    "outer",
    "own_total",
    "piecewise",
    "program",
    "relu",
    "soft_threshold",
    "softmax",
    "stack",
    "total",
    "transposed",
]  # `import *` is for programs: the names of files stay out
