"""The public names of innerloop, listed once: types for editors, homes for the lazy loader."""

from innerloop.algorithms.base import Algorithm as Algorithm
from innerloop.algorithms.base import hyperparameter as hyperparameter
from innerloop.catalogue.listing import list_members as list_members
from innerloop.catalogue.showing import show as show
from innerloop.certification.building import BuiltTransformer as BuiltTransformer
from innerloop.certification.building import build as build
from innerloop.certification.building import verify as verify
from innerloop.certification.certificate import Certificate as Certificate
from innerloop.certification.certificate import certify as certify
from innerloop.certification.compiling import compile as compile  # noqa: A004
from innerloop.certification.compiling import exact as exact
from innerloop.claims.base import Claim as Claim
from innerloop.claims.base import claim as claim
from innerloop.claims.cases import Case as Case
from innerloop.claims.evidence import Axis as Axis
from innerloop.claims.evidence import Check as Check
from innerloop.claims.evidence import Erratum as Erratum
from innerloop.claims.evidence import Evidence as Evidence
from innerloop.claims.evidence import Figure as Figure
from innerloop.claims.evidence import Part as Part
from innerloop.claims.loading import check as check
from innerloop.claims.sources import Source as Source
from innerloop.constructions.base import Construction as Construction
from innerloop.constructions.base import Cost as Cost
from innerloop.errors import FileError as FileError
from innerloop.errors import InputError as InputError
from innerloop.errors import MissingLibraryError as MissingLibraryError
from innerloop.errors import OutOfRangeError as OutOfRangeError
from innerloop.estimators.clustering import (
    TransformerGaussianMixture as TransformerGaussianMixture,
)
from innerloop.estimators.clustering import TransformerKMeans as TransformerKMeans
from innerloop.estimators.lasso import TransformerLasso as TransformerLasso
from innerloop.estimators.regressor import TransformerRegressor as TransformerRegressor
from innerloop.estimators.spectral import TransformerPCA as TransformerPCA
from innerloop.estimators.spectral import (
    TransformerSpectralClustering as TransformerSpectralClustering,
)
from innerloop.identification.conclusion import Identification as Identification
from innerloop.identification.hooked import HookedModel as HookedModel
from innerloop.identification.hugging_face import wrap_gpt2 as wrap_gpt2
from innerloop.identification.identification import identify as identify
from innerloop.identification.models import FunctionModel as FunctionModel
from innerloop.identification.models import Model as Model
from innerloop.identification.modules import ModuleModel as ModuleModel
from innerloop.ledger.sweeping import sweep as sweep
from innerloop.parameters import parameter as parameter
from innerloop.playing.player import TransformerPolicy as TransformerPolicy
from innerloop.policies.base import Policy as Policy
from innerloop.policies.bernoulli_thompson import BernoulliThompsonPolicy as BernoulliThompsonPolicy
from innerloop.policies.empirical_average import EmpiricalAveragePolicy as EmpiricalAveragePolicy
from innerloop.policies.lin_ucb import LinUCBPolicy as LinUCBPolicy
from innerloop.policies.linear_thompson import LinearThompsonPolicy as LinearThompsonPolicy
from innerloop.policies.optimal import OptimalPolicy as OptimalPolicy
from innerloop.policies.rollout import rollout as rollout
from innerloop.policies.ucb import UCBPolicy as UCBPolicy
from innerloop.policies.ucb_vi import UCBVIPolicy as UCBVIPolicy
from innerloop.policies.uniform import UniformPolicy as UniformPolicy
from innerloop.problems.base import Distribution as Distribution
from innerloop.problems.bernoulli_bandits import BernoulliBandit as BernoulliBandit
from innerloop.problems.bernoulli_bandits import BernoulliBandits as BernoulliBandits
from innerloop.problems.binary_mixture import BinaryMixture as BinaryMixture
from innerloop.problems.environment import Environment as Environment
from innerloop.problems.gaussian_mixture import ClusteringProblem as ClusteringProblem
from innerloop.problems.gaussian_mixture import GaussianMixture as GaussianMixture
from innerloop.problems.linear_bandit_games import BanditGameProblem as BanditGameProblem
from innerloop.problems.linear_bandit_games import LinearBanditGames as LinearBanditGames
from innerloop.problems.linear_bandits import LinearBandit as LinearBandit
from innerloop.problems.linear_bandits import LinearBandits as LinearBandits
from innerloop.problems.linear_regression import LinearRegression as LinearRegression
from innerloop.problems.linear_regression import RegressionProblem as RegressionProblem
from innerloop.problems.mdp import TabularMDP as TabularMDP
from innerloop.problems.mixture_of_regressions import MixtureOfRegressions as MixtureOfRegressions
from innerloop.problems.mixture_of_regressions import MixtureProblem as MixtureProblem
from innerloop.problems.network_regression import NetworkProblem as NetworkProblem
from innerloop.problems.network_regression import NetworkRegression as NetworkRegression
from innerloop.problems.principal_components import PCAProblem as PCAProblem
from innerloop.problems.principal_components import PrincipalComponents as PrincipalComponents
from innerloop.problems.problem import Problem as Problem
from innerloop.problems.river_swim import RiverSwim as RiverSwim
from innerloop.problems.sparse_recovery import SparseRecovery as SparseRecovery
from innerloop.problems.tabular_games import TabularGameProblem as TabularGameProblem
from innerloop.problems.tabular_games import TabularGames as TabularGames
from innerloop.problems.tabular_mdps import TabularMDPs as TabularMDPs
from innerloop.recipes.base import Recipe as Recipe
from innerloop.recipes.base import TrainedRun as TrainedRun
from innerloop.recipes.base import train as train
from innerloop.recipes.sweeps import SweepResult as SweepResult
from innerloop.solving.solution import Solution as Solution
from innerloop.solving.solve import solve as solve
from innerloop.transformer.model import Transformer as Transformer

__version__: str

def find_home(name: str) -> str: ...
