"""Algorithms as programs of `innerloop.language`, one file each, as `list programs` lists them.

A file has a header (the computation, its method, whether it is exact, and the source) and a step of
a few lines. It may import the language only; only the catalogue and the registry know of it.
"""
