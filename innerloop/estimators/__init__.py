"""scikit-learn estimators whose answers are forward passes of transformers that run an algorithm.

Fitting scales the data into the range that a construction is certified for and puts them into a
prompt; predicting is a forward pass, scaled back. May import `certification`, `recipes`, `solving`
and whatever they may import.
"""

from innerloop.estimators.clustering import TransformerGaussianMixture, TransformerKMeans
from innerloop.estimators.lasso import TransformerLasso
from innerloop.estimators.regressor import TransformerRegressor
from innerloop.estimators.spectral import TransformerPCA, TransformerSpectralClustering

__all__ = [
    "TransformerGaussianMixture",
    "TransformerKMeans",
    "TransformerLasso",
    "TransformerPCA",
    "TransformerRegressor",
    "TransformerSpectralClustering",
]
