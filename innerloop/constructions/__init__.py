"""Transformers that run an algorithm: their weights, with a proof.

A new construction is one file with one subclass of `Construction`; `certify` measures whether the
weights run the algorithm. Most constructions are programs of `innerloop.language`, which imports
only `base` and `regression` from this folder. This folder may import `algorithms`, `problems`,
`policies`, `transformer`, `language` and the general modules (parameters, registry, errors).
"""
