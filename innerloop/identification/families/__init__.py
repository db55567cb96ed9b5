"""What a model answers on each kind of problem, as numbers that can be compared.

A family says what the answer to an instance is, which differences do not count (a permutation of
clusters, a sign), the truth where there is one, and the candidates' forms. Scores, resampling and
verdicts see answers as vectors alone, whatever the family. May import problems, algorithms and
policies; knows no model and no verdict.
"""
