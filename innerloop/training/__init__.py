"""Training: objectives, models of linear attention on Gram matrices, the loop, checkpoints.

Code that trains any model belongs here; which model is trained on which problem belongs in
`innerloop.recipes`. May import theory, problems, transformer and the foundation modules.
"""
