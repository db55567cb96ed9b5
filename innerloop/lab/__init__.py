"""`innerloop lab`: an interactive page, its scenes, and a server for this machine only.

A scene consists of two files of the same name: one in `scenes/` runs a transformer, and one in
`static/scenes/` draws the result. The rest of the package does not use the lab.
"""
