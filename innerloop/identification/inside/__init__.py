"""Tests of the internal state of a model: whether its stream contains an algorithm's state.

    from innerloop.identification.inside.looking import look_inside
    print(look_inside(built, built.construction.algorithm))

streams.py and hooks.py read a model's stream and replace it. states.py and views.py define which
numbers of an algorithm's state a stream may contain. reading.py fits linear read-outs of them,
intervening.py changes them, and looking.py combines the comparisons of answers, state and
intervention.
"""
