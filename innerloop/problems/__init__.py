"""Problems to solve: distributions of random instances, one file each, and environments.

The folder defines what an instance contains and how it is drawn, not how it is solved. It imports
only `innerloop.errors` and `innerloop.parameters`.
"""
