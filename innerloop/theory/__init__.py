"""Closed forms, without sampling: exact expectations, optimal weights, bounds.

Quadrature rules and formulas that claims and training objectives compare with or build on belong
here; no problems and no trained models. Imports only the foundation modules.
"""
