"""Reference policies: how to choose actions in an environment, one file each, and rollouts of them.

A policy keeps a state, gives probabilities of the actions and learns from each step; training and
constructions belong elsewhere. It imports `innerloop.problems`, `innerloop.parameters`,
`innerloop.registry` and `innerloop.errors`.
"""
