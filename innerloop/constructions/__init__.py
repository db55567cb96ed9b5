"""Transformers that run an algorithm: their weights, with a proof.

A new construction is one file with one subclass of `Construction`; `certify` measures whether the
weights run the algorithm. Most constructions are programs of `innerloop.language`, which imports
only `base` and `regression` from this folder. This folder may import `algorithms`, `problems`,
`policies`, `transformer`, `language` and the general modules (parameters, registry, errors).

The headers use these terms:

    score        ⟨Q h_i, K h_j⟩ of a query token i and a key token j
    value        the vector V h_j that a head adds for key j, multiplied by the score
    under 1/i    the sum over keys is divided by i, the number of tokens so far (also 1/n, 1/N)
    signed pair  two ReLU heads that act as a linear one: σ(s)·v − σ(−s)·v = s·v
    gate         a term of the score that is 0 on some keys, and so low on others that they add 0
    mark         a register that distinguishes tokens, for gates: see `innerloop.transformer.marks`
    knots        the points between which an MLP interpolates a function linearly
    scratch      places for temporary values, which are 0 between steps
    built n      the parameter n with which a construction was made
    prompt       the input tokens, or the registers that hold the data in them
"""
