"""The commands of the command line, one file each.

The arguments and the docstring of a command's function define its arguments and its help. The
function itself contains its imports, so that `innerloop --help` starts quickly. This folder may
import every other folder; only `cli.py` imports this one.
"""
