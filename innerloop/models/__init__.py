"""Trainable networks: LISTA and its variants, GPT-2, LSTM, a transformer with a read-out.

A file holds one network and its forward pass; how it is trained belongs in `innerloop.recipes`. May
import transformer and the foundation modules.
"""
