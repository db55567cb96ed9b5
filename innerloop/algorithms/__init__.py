"""Reference algorithms in plain tensor code, one file per algorithm: state, step, prediction.

A new algorithm is one file with one subclass of `Algorithm`. Constructions are compared with it,
and so are models by `identify`. This folder may import `problems` and the general modules
(parameters, registry, errors), but never `transformer` or `constructions`.
"""
