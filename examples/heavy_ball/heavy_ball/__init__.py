"""Gradient descent with momentum (Polyak 1964), for innerloop."""
