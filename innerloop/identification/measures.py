"""Measures of how alike two predictors are on the same examples, each with its formula.

m are the model's predictions after each of its layers, c a candidate's after each of its steps,
t the truth; E is the mean over prompts. Every function takes all layers and all steps at once and
returns a table, layers × steps. All but `squared_distance` and `loss` stay the same when
predictions and truth are rescaled together.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

LayerPredictions = Float[Tensor, "layers batch outputs"]
StepPredictions = Float[Tensor, "steps batch outputs"]
Truth = Float[Tensor, "batch outputs"]
Table = Float[Tensor, "layers steps"]

ROUNDING = 1e-9
"""Errors below this share of the truth are those of rounding."""
FLOOR = 1e-4
"""Differences below this share of the truth's power are ignored."""


def squared_distance(model: LayerPredictions, candidate: StepPredictions) -> Table:
    """Return E ‖m − c‖², or ∞ if a candidate has diverged (von Oswald et al. 2022)."""
    return torch.stack([_power(layer - candidate) for layer in model])


def loss(predictions: LayerPredictions, truth: Truth) -> Float[Tensor, " layers"]:
    """Return E ‖m − t‖²."""
    return _power(predictions - truth)


def scale(model: LayerPredictions, truth: Truth | None) -> Float[Tensor, " layers"]:
    """Return min(E ‖m‖², E ‖m − t‖²), the model's power or its error, whichever is smaller.

    It is at least FLOOR · E ‖t‖². Without a truth, it is E ‖m‖², and at least FLOOR times that of
    the last layer.
    """
    done = _power(model)
    if truth is None:
        return torch.maximum(done, FLOOR * done[-1]).clamp_min(1e-300)
    return torch.minimum(done, loss(model, truth)).clamp_min(
        max(FLOOR * float(_power(truth)), 1e-300)
    )


def score(model: LayerPredictions, candidate: StepPredictions, truth: Truth | None) -> Table:
    """Return 1 − E ‖m − c‖² / `scale`: the explained share of the model's power or errors."""
    return 1 - squared_distance(model, candidate) / scale(model, truth).unsqueeze(-1)


def share(model: LayerPredictions, candidate: StepPredictions) -> Table:
    """Return 1 − E ‖m − c‖² / E ‖m‖²: the share of the model's answers that the candidate
    explains.
    """
    return 1 - squared_distance(model, candidate) / _power(model).clamp_min(1e-300).unsqueeze(-1)


def pooled_similarity(model: LayerPredictions, candidate: StepPredictions, truth: Truth) -> Table:
    """Return E ⟨m − t, c − t⟩ / √(E ‖m − t‖² E ‖c − t‖²): the cosine of errors over all prompts.

    An error that is 0 up to rounding has the cosine 0 with all others.
    """
    m, c = (model - truth).flatten(1), (candidate - truth).flatten(1)
    limit = ROUNDING * float(truth.square().sum()) ** 0.5 + 1e-300
    lengths = [each.norm(dim=-1, keepdim=True) for each in (m, c)]
    units = [
        torch.where((length > limit) & torch.isfinite(length), each / length, 0.0)
        for each, length in zip((m, c), lengths, strict=True)
    ]
    return units[0] @ units[1].mT


def error_similarity(
    model: Float[Tensor, "layers batch positions"],
    candidate: Float[Tensor, "steps batch positions"],
    truth: Float[Tensor, "batch positions"],
) -> Table:
    """Return E cos(m − t, c − t), of vectors over the positions of a prompt (SimE of Fu et al.
    2023).
    """
    return _cosine(model - truth, candidate - truth)


def weight_similarity(
    model: Float[Tensor, "layers batch queries"],
    candidate: Float[Tensor, "steps batch queries"],
    queries: Float[Tensor, "batch queries d"],
) -> Table:
    """Return E cos(ŵ_m, ŵ_c) of the induced weights (SimW of Fu et al. 2023).

    They are ŵ = argmin_w Σ_q (⟨w, x_q⟩ − prediction_q)² over fresh queries of each prompt.
    """
    return _cosine(induced_weights(model, queries), induced_weights(candidate, queries))


def induced_weights(
    predictions: Float[Tensor, "layers batch queries"], queries: Float[Tensor, "batch queries d"]
) -> Float[Tensor, "layers batch d"]:
    """Return argmin_w Σ_q (⟨w, x_q⟩ − prediction_q)², prompt by prompt."""
    inverse = torch.linalg.pinv(queries)
    return (inverse @ predictions.unsqueeze(-1)).squeeze(-1)


def sensitivity(
    ahead: Float[Tensor, "layers batch d"], behind: Float[Tensor, "layers batch d"], step: float
) -> Float[Tensor, "layers batch d"]:
    """Return ∂ prediction / ∂ x_query by central differences of predictions at x + h eⱼ and x −
    h eⱼ.
    """
    return (ahead - behind) / (2 * step)


def sensitivity_cosine(
    model: Float[Tensor, "layers batch d"], candidate: Float[Tensor, "steps batch d"]
) -> Table:
    """Return E cos(∂m/∂x_query, ∂c/∂x_query) (von Oswald et al. 2022)."""
    return _cosine(model, candidate)


def sensitivity_distance(
    model: Float[Tensor, "layers batch d"], candidate: Float[Tensor, "steps batch d"]
) -> Table:
    """Return E ‖∂m/∂x_query − ∂c/∂x_query‖ / E ‖∂m/∂x_query‖.

    Von Oswald et al. 2022 do not divide.
    """
    apart = torch.stack([(layer - candidate).norm(dim=-1).mean(dim=-1) for layer in model])
    return apart / model.norm(dim=-1).mean(dim=-1).unsqueeze(-1)


def _power(values: Float[Tensor, "*k batch outputs"]) -> Float[Tensor, "*k"]:
    """E ‖·‖², which is ∞ rather than NaN where something diverged."""
    return values.square().sum(dim=-1).mean(dim=-1).nan_to_num(torch.inf, torch.inf)


def _cosine(a: Float[Tensor, "layers batch k"], b: Float[Tensor, "steps batch k"]) -> Table:
    """E cos(a, b) over the batch; a vector that is 0 or diverged is at a right angle to all."""
    return torch.einsum("lbk,sbk->ls", _unit(a), _unit(b)) / a.shape[1]


def _unit(vectors: Float[Tensor, "k batch d"]) -> Float[Tensor, "k batch d"]:
    length = vectors.norm(dim=-1, keepdim=True)
    return torch.where((length > 0) & torch.isfinite(length), vectors / length, 0.0)
