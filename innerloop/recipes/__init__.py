"""Recipes: one training each, with its problem, model, start and settings."""
