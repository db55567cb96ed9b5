"""Runs claims and sweeps, and stores their results: cells, files, engines.

A cell is the unit of work: one claim at one preset, with one seed and settings. The store keeps the
results of finished cells, and an engine runs the others. May import claims and everything below
them; never surveys, report or cli.
"""
