"""Closed forms, without sampling: exact expectations, optimal weights, bounds.

This folder contains the quadrature rules and formulas that claims and training objectives use. It
contains no problems and no trained models, and imports only the foundation modules.
"""
