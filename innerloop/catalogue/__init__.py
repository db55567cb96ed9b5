"""List all members and describe each of them: the data of `list` and `show`.

Covers every kind of member, from problems to claims, of this package and of others. May import
every folder that defines members; computes nothing beyond building what it shows.
"""
