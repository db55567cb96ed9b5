"""Recipes: one file per named training, with its problems, model, initial weights and settings.

This folder also contains the base classes of recipes, and the code that runs a recipe and loads
finished runs. It may import models, training, certification and everything that these may import,
but never identification, claims or reports.
"""
