"""Draw the report page and its figures from plain data.

This folder contains charts, HTML and the export of figures. It computes no results, and it imports
neither torch nor NumPy. It may import `surveys.data`, which defines the data of a report, and the
small modules `errors`, `files` and `progress`.
"""
