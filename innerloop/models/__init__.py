"""Trainable networks: LISTA and its variants, GPT-2, LSTM, a transformer with a read-out.

Each file contains one network and its forward pass. The training of a network is defined in
`innerloop.recipes`. This folder may import `transformer` and the foundation modules.
"""
