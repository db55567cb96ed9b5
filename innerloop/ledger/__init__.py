"""Runs claims, stores their results and reports them: cells, files, engines.

A cell is one claim at one preset with one seed and settings; the store keeps finished cells, the
engines run others. May import claims and everything below them; never surveys, report or cli.
"""
