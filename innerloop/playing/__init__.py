"""Built and trained transformers as policies, and comparisons with reference policies.

Environments are defined in `problems`, and reference policies in `policies`. This folder may import
`recipes`, `certification`, `constructions`, `policies` and everything that these may import.
"""
