"""Certificates: measured evidence that a transformer runs its algorithm.

A transformer is built, compared with its reference algorithm step by step, and certified or
refused. May import constructions and everything below them; never recipes, claims or reports.
"""
