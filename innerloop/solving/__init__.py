"""Solve many small problems of one kind at once, in batches and to a known accuracy.

Each kind of problem has one file. Its solver takes a padded batch with row weights, and returns
arrays with an optimality measure for each problem. `solve.py` reads the caller's data, divides them
into chunks and joins the answers. This package may import `algorithms`, `problems`, the terminal's
progress bar and the small modules that every package may import.
"""
