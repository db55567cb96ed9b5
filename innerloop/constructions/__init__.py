"""Transformers that run an algorithm, written as weights with the proof beside them.

A new construction is one file with one subclass of `Construction`; `certify` measures whether the
weights run the algorithm. Most are programs of `innerloop.language`, which imports `base` and
`regression` alone. May import `algorithms`, `problems`, `policies`, `transformer`, `language` and
the small modules under everything.
"""
