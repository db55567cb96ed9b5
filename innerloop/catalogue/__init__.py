"""List all members and describe each of them, for the commands `list` and `show`.

The list contains members of every kind, of this package and of other packages. To describe a
member, this folder builds it and computes nothing else. It may import every folder that defines
members.
"""
