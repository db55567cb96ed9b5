"""scikit-learn estimators whose predictions are forward passes of a transformer.

The transformer runs an algorithm in its layers. `fit` scales the data into the range for which the
construction is certified, and puts them into a prompt. `predict` runs the transformer and undoes
the scaling of its answers. This package may import `certification`, `recipes`, `solving` and the
packages that they may import.
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
