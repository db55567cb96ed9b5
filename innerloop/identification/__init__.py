"""Which algorithm does a transformer run? Its layers × candidate algorithms → a verdict.

    import innerloop
    found = innerloop.identify(model, distribution)  # a Model, what `build` gives, or a function
    print(found.verdict, found.layers[0].algorithm, found.layers[0].score)

Models, how candidates are fitted and scored, and the verdict belong here. May import everything up
to `recipes`; knows no claim and draws nothing.
"""
