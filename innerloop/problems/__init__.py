"""Problems to solve: distributions of random instances, one file each, and environments.

This folder defines the contents of instances and how they are drawn, not how they are solved. It
imports only `innerloop.errors` and `innerloop.parameters`.
"""
