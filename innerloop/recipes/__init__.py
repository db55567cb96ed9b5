"""Recipes: one file per named training, with its problems, model, initial weights and settings.

Abstract bases, running a recipe, and loading finished runs belong here too. May import models,
training, certification and everything below them; never identification, claims or reports.
"""
