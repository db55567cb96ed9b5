"""Reference policies, which choose actions in an environment, one file each, and their rollouts.

A policy has a state, returns probabilities of the actions, and updates its state after each step.
Training and constructions belong elsewhere. This folder imports `innerloop.problems`,
`innerloop.parameters`, `innerloop.registry` and `innerloop.errors`.
"""
