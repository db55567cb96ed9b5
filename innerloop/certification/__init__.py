"""Certificates: measured evidence that a transformer runs its algorithm.

A transformer is compared with its reference algorithm step by step. If every step agrees, its
certificate holds. May import constructions and everything below them; never recipes, claims or
reports.
"""
