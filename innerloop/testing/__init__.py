"""Test your own members with the tests that the members of this package pass.

    from innerloop.testing import check_construction

    def test_heavy_ball():
        check_construction(HeavyBallConstruction)

If a test fails, the function raises an AssertionError that states the mistake and how to correct
it. The functions need no test framework. This folder may import everything except the command line.
"""

from innerloop.testing.algorithms import check_algorithm as check_algorithm
from innerloop.testing.claims import check_claim as check_claim
from innerloop.testing.constructions import check_construction as check_construction
from innerloop.testing.policies import check_policy as check_policy
from innerloop.testing.problems import check_problem as check_problem
from innerloop.testing.recipes import check_recipe as check_recipe
