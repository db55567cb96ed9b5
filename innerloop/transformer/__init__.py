"""The machine: a transformer whose residual stream has named registers.

It knows no problem and no algorithm.
"""

from innerloop.transformer.attention import Attention as Attention
from innerloop.transformer.cache import Cache as Cache
from innerloop.transformer.head import Head as Head
from innerloop.transformer.head import Split as Split
from innerloop.transformer.head import keys_where as keys_where
from innerloop.transformer.head import signed as signed
from innerloop.transformer.head import summed as summed
from innerloop.transformer.layout import Address as Address
from innerloop.transformer.layout import Layout as Layout
from innerloop.transformer.layout import join as join
from innerloop.transformer.marks import marks as marks
from innerloop.transformer.marks import own_token as own_token
from innerloop.transformer.mlp import MLP as MLP
from innerloop.transformer.model import Block as Block
from innerloop.transformer.model import Transformer as Transformer
from innerloop.transformer.pieces import Elementwise as Elementwise
from innerloop.transformer.pieces import Units as Units
from innerloop.transformer.pieces import affine as affine
from innerloop.transformer.pieces import clear as clear
from innerloop.transformer.pieces import clip as clip
from innerloop.transformer.pieces import gate as gate
from innerloop.transformer.pieces import piecewise_linear as piecewise_linear
from innerloop.transformer.pieces import soft_threshold as soft_threshold
from innerloop.transformer.trace import Trace as Trace
