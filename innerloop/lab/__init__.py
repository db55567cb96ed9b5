"""`innerloop lab`: an interactive page, its scenes, and a server for this machine only.

A scene is one file in `scenes/` (what is computed, from real weights) and one module of the same
name in `static/scenes/` (how it is drawn). Nothing here is needed by the rest of the package.
"""
