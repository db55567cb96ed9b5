"""The report page and its figures, drawn from plain data.

Charts, HTML and figure files belong here. It draws what it is given and computes nothing: torch and
NumPy are not imported. May import `surveys.data` for the data it takes, and the small modules
`errors`, `files` and `progress`.
"""
