"""From the decoder's alternating prompt to the encoder's: two causal layers copy x to its y.

Algorithm  every even token 2m, which holds y_m, gets a copy of x_m from the token before it
Invariant  `x`, `y` hold the tokens; `pos` = m, `one`, `par` (1 on even tokens); `r`, `q` are 0
Proof      layer 1, on even i = 2m, writes 1/i Σ_j pos_j² = (m+1)(2m+1)/6 to r and 3/i Σ_j pos_j =
           3(m+1)/2 to q. In layer 2, the score of key j is 2m (pos_j − m + 1), which is linear in
           r, q, par: (4q/3 − 2par) pos_j + (−6r + 10q/3 − 4par). It is 2m at pos_j = m, where the
           value is x_m (and 0 on the even token itself), and at most 0 before; with the factor 1/i
           the sum is a copy of x_m. On odd tokens, par = 0 makes both layers add 0. The MLP erases
           r and q, which are never negative
Exact for  every d, one query, and n up to 2000 in float64, because scores of size n² cancel
Source     qliu2025.proposition-6; the slide prints the input again as the output
"""

from functools import cached_property

import torch
from torch import Tensor

from innerloop.algorithms.format_conversion import FormatConversion, Tokens
from innerloop.constructions.base import Cost
from innerloop.constructions.regression import RegressionConstruction
from innerloop.parameters import parameter
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.transformer import MLP, Attention, Block, Head, Layout, Units


def pairing_blocks(layout: Layout) -> list[Block]:
    """Return two decoder layers that pair x and y.

    They use the registers x, pos, one and par, and the scratch registers r and q, which are 0
    before and after.
    """

    def attention(*heads: Head) -> Attention:
        return Attention.from_heads(layout, heads, kind="relu", mask="causal", normalisation="1/i")

    squares = Head({("par", "pos"): 1.0}, {("pos", "r"): 1.0})
    sums = Head({("par", "one"): 1.0}, {("pos", "q"): 3.0})
    factor = {("q", "pos"): 4 / 3, ("par", "pos"): -2.0}
    constant = {("r", "one"): -6.0, ("q", "one"): 10 / 3, ("par", "one"): -4.0}
    copy = Head({**factor, **constant}, {("x", "x"): 1.0})
    eye, zeros = torch.eye(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    reads, writes = {"r": eye[:, :1], "q": eye[:, 1:]}, {"r": -eye[:1], "q": -eye[1:]}
    erase = Units(reads, zeros, writes, "r ← 0, q ← 0 (neither is ever negative)")
    last = Block(attention(copy), MLP.from_pieces(layout, [erase]))
    return [Block(attention(squares, sums)), last]


class FormatConversionConstruction(RegressionConstruction[Tokens]):
    """Pairing of examples, in two blocks with at most two heads and two hidden units; one step."""

    source = "Q. Liu 2025, Proposition 6"
    cost = Cost("2", "2", "d + 6", "2 layers, 3 heads, ‖θ‖ ≤ 12")
    one_query = True

    n: int = parameter(20, "examples of the certified problems", least=1, most=2_000)
    steps: int = parameter(1, "always 1", least=1, most=1)

    @cached_property
    def layout(self) -> Layout:
        return Layout(x=self.d, y=(), r=(), q=(), pos=(), one=(), par=())

    @cached_property
    def algorithm(self) -> FormatConversion:
        return FormatConversion()

    def prompt(self, problem: RegressionProblem) -> Tensor:
        return self.layout.make_tokens(**problem.to_decoder_format())

    def encode(self, problem: RegressionProblem, state: Tokens) -> Tensor:
        return self.layout.make_tokens(**problem.to_decoder_format() | state._asdict())

    def body(self, k: int) -> list[Block]:
        return pairing_blocks(self.layout)

    def decode(self, problem: RegressionProblem, stream: Tensor) -> Tensor:
        x, y = self.layout.read(stream, "x"), self.layout.read(stream, "y")
        return self.algorithm.predict(problem, Tokens(x, y))
