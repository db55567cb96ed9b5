"""Transformers that run an algorithm, written as weights with the proof beside them.

A new construction is one file with one subclass of `Construction`; `certify` measures whether the
weights run the algorithm. May import `algorithms`, `problems`, `policies`, `transformer` and the
small modules under everything.
"""
