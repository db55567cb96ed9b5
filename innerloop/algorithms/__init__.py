"""Reference algorithms in plain tensor code, one file per algorithm: state, step, prediction.

A new algorithm is one file with one subclass of `Algorithm`; constructions must follow it and
`identify` compares models with it. May import `problems` and the small modules under everything,
never `transformer` or `constructions`.
"""
