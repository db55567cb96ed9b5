"""Transformers that act: a built transformer as a policy, and contests against the reference.

Environments and reference policies live in `problems` and `policies`; here transformers play.
May import `certification`, `constructions`, `policies` and what is below them.
"""
