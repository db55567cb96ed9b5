"""What is inside a model, not only what comes out: an algorithm's state in its stream.

    from innerloop.identification.inside.looking import look_inside
    print(look_inside(built, built.construction.algorithm))

streams.py and hooks.py read a model's stream and replace it, states.py and views.py say which
numbers a stream may hold of an algorithm's state, reading.py fits linear read-outs of them,
intervening.py moves them, and looking.py puts answers, state and intervention side by side.
"""
