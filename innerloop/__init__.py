"""innerloop finds the algorithm inside a transformer.

    import innerloop
    built = innerloop.build("newton", d=5, n=20, steps=12)
    print(built.certificate.max_deviation)

Names load on first use, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from innerloop.claims.base import check as check
    from innerloop.constructions.certificate import Built as Built
    from innerloop.constructions.certificate import Certificate as Certificate
    from innerloop.constructions.certificate import build as build
    from innerloop.constructions.certificate import certify as certify
    from innerloop.constructions.certificate import verify as verify
    from innerloop.constructions.overview import show as show
    from innerloop.ledger.overview import listing as listing
    from innerloop.policies.rollout import rollout as rollout
    from innerloop.problems.bernoulli_bandits import BernoulliBandits as BernoulliBandits
    from innerloop.problems.gaussian_mixture import ClusteringProblem as ClusteringProblem
    from innerloop.problems.linear_bandit_games import BanditGame as BanditGame
    from innerloop.problems.linear_bandit_games import LinearBanditGames as LinearBanditGames
    from innerloop.problems.linear_bandits import LinearBandits as LinearBandits
    from innerloop.problems.linear_regression import LinearRegression as LinearRegression
    from innerloop.problems.linear_regression import RegressionProblem as RegressionProblem
    from innerloop.problems.mixture_of_regressions import (
        MixtureOfRegressions as MixtureOfRegressions,
    )
    from innerloop.problems.mixture_of_regressions import MixtureProblem as MixtureProblem
    from innerloop.problems.principal_components import PCAProblem as PCAProblem
    from innerloop.problems.river_swim import RiverSwim as RiverSwim
    from innerloop.problems.tabular_mdps import TabularMDPs as TabularMDPs
    from innerloop.recipes.base import train as train
    from innerloop.transformer.model import Transformer as Transformer

_HOMES = {
    "check": "claims.base",
    "train": "recipes.base",
    "Built": "constructions.certificate",
    "Certificate": "constructions.certificate",
    "build": "constructions.certificate",
    "certify": "constructions.certificate",
    "verify": "constructions.certificate",
    "listing": "ledger.overview",
    "show": "constructions.overview",
    "rollout": "policies.rollout",
    "BanditGame": "problems.linear_bandit_games",
    "BernoulliBandits": "problems.bernoulli_bandits",
    "ClusteringProblem": "problems.gaussian_mixture",
    "LinearBanditGames": "problems.linear_bandit_games",
    "LinearBandits": "problems.linear_bandits",
    "LinearRegression": "problems.linear_regression",
    "MixtureOfRegressions": "problems.mixture_of_regressions",
    "MixtureProblem": "problems.mixture_of_regressions",
    "PCAProblem": "problems.principal_components",
    "RegressionProblem": "problems.linear_regression",
    "RiverSwim": "problems.river_swim",
    "TabularMDPs": "problems.tabular_mdps",
    "Transformer": "transformer.model",
}

__all__ = [
    "BanditGame",
    "BernoulliBandits",
    "Built",
    "Certificate",
    "ClusteringProblem",
    "LinearBanditGames",
    "LinearBandits",
    "LinearRegression",
    "MixtureOfRegressions",
    "MixtureProblem",
    "PCAProblem",
    "RegressionProblem",
    "RiverSwim",
    "TabularMDPs",
    "Transformer",
    "build",
    "certify",
    "check",
    "listing",
    "rollout",
    "show",
    "train",
    "verify",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"innerloop.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'innerloop' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
