"""Transformers whose residual stream has named registers: layouts, heads, MLP pieces, blocks.

This folder defines, runs, traces and saves such transformers. Problems, algorithms and
constructions are defined elsewhere. It imports only `innerloop.errors` and `innerloop.sealed`.
"""

from innerloop.deprecation import make_renaming_getattr
from innerloop.transformer.attention import Attention as Attention
from innerloop.transformer.cache import Cache as Cache
from innerloop.transformer.head import Head as Head
from innerloop.transformer.head import Split as Split
from innerloop.transformer.head import gate_keys as gate_keys
from innerloop.transformer.head import make_signed_pair as make_signed_pair
from innerloop.transformer.head import sum_terms as sum_terms
from innerloop.transformer.layout import Address as Address
from innerloop.transformer.layout import Layout as Layout
from innerloop.transformer.layout import join as join
from innerloop.transformer.marks import gate_own_token as gate_own_token
from innerloop.transformer.marks import make_marks as make_marks
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

__getattr__ = make_renaming_getattr(
    __name__,
    {
        "keys_where": "gate_keys",
        "own_token": "gate_own_token",
        "signed": "make_signed_pair",
        "summed": "sum_terms",
    },
    globals(),
)
