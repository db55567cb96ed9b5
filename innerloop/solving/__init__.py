"""Many small problems at once: one file per kind of problem, solved in batches to a known accuracy.

Every solver takes a padded batch with row weights and returns arrays with an optimality measure
for each problem; `solve.py` reads the caller's data, cuts them into chunks and puts the answers
together. May import `algorithms`, `problems`, the terminal's progress bar and the small modules
under everything.
"""
