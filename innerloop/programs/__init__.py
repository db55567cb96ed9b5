"""Algorithms as programs of `innerloop.language`, one file each: what `list programs` shows.

A file has a header (what is computed, how, exact or not, source) and a step of a few lines. May
import the language alone; nothing but the catalogue and the registry knows of it.
"""
