"""Closed forms: exact expectations, optimal weights, bounds. What no sampling has touched."""
