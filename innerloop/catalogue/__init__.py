"""What there is, and what each member consists of: the data behind `list` and `show`.

Covers every kind of member, from problems to claims, of this package and of others. May import
every folder that defines members; computes nothing beyond building what it shows.
"""
