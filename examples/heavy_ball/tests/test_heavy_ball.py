"""Test the members of this package with the functions of `innerloop.testing`."""

from heavy_ball.algorithm import HeavyBall
from heavy_ball.claims import rate
from heavy_ball.construction import HeavyBallConstruction
from heavy_ball.recipe import HeavyBallRecipe

from innerloop.testing import check_algorithm, check_claim, check_construction, check_recipe


def test_the_algorithm() -> None:
    check_algorithm(HeavyBall)


def test_the_construction() -> None:
    check_construction(HeavyBallConstruction)


def test_the_recipe() -> None:
    check_recipe(HeavyBallRecipe)


def test_the_claim() -> None:
    check_claim(rate)
