"""The commands of the command line, one file each: parse, call, print.

A command's arguments are the function's, and its docstring is its help. What a command needs beyond
output is imported when it runs, so that `innerloop --help` loads nothing heavy. May import every
folder; nothing but `cli.py`, which gathers the commands, may import this one.
"""
