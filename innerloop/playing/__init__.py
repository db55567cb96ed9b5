"""Players: built and trained transformers as policies, and contests against the references.

Environments and reference policies live in `problems` and `policies`; here transformers play.
May import `recipes`, `certification`, `constructions`, `policies` and what is below them.
"""
