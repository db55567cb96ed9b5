"""A language for steps of algorithms, and its compiler to transformers.

One step is written as mathematics about one token and the others, in ordinary Python; the passes
trace, schedule, placement and emission, each a file, make the blocks, and the interpreter is the
reference that they are held against. May import constructions, certification and all below them.

    @program(x=Data("d"), y=Data(), w=State("d", shared=True), v=State("d", shared=True))
    def heavy_ball(me, eta=0.1, beta=0.5):
        me.v = beta * me.v - eta * mean(lambda j: (dot(me.w, j.x) - j.y) * j.x)
        me.w = me.w + me.v
"""

from innerloop.language.primitives import clip as clip
from innerloop.language.primitives import closed as closed
from innerloop.language.primitives import dot as dot
from innerloop.language.primitives import entry_sum as entry_sum
from innerloop.language.primitives import gate as gate
from innerloop.language.primitives import geometric_knots as geometric_knots
from innerloop.language.primitives import hinges as hinges
from innerloop.language.primitives import matvec as matvec
from innerloop.language.primitives import mean as mean
from innerloop.language.primitives import outer as outer
from innerloop.language.primitives import own_total as own_total
from innerloop.language.primitives import piecewise as piecewise
from innerloop.language.primitives import relu as relu
from innerloop.language.primitives import soft_threshold as soft_threshold
from innerloop.language.primitives import softmax as softmax
from innerloop.language.primitives import stack as stack
from innerloop.language.primitives import total as total
from innerloop.language.primitives import transposed as transposed
from innerloop.language.program import program as program
from innerloop.language.types import Bound as Bound
from innerloop.language.types import Count as Count
from innerloop.language.types import Data as Data
from innerloop.language.types import Matrices as Matrices
from innerloop.language.types import Number as Number
from innerloop.language.types import State as State
