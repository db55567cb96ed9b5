"""Training: objectives, models of linear attention on Gram matrices, the loop, checkpoints.

This folder contains the code that trains any model. `innerloop.recipes` defines which model is
trained on which problems. This folder may import theory, problems, transformer and the foundation
modules.
"""
