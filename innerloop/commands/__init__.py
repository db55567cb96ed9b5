"""The commands of the command line, one file each.

The arguments of a command are those of its function, and its docstring is its help. A command
imports what it needs inside the function, so that `innerloop --help` starts quickly. This folder
may import every other folder; only `cli.py` imports this one.
"""
