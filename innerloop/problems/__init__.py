"""Problems to solve: distributions of random instances, one file each, and environments to play in.

The folder says what an instance holds and how it is drawn, not how it is solved. It imports only
`innerloop.errors` and `innerloop.parameters`.
"""
