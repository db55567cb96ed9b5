"""The costs that other candidates have reached, which decide how long a fit is worth continuing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.identification.candidates import Candidate
from innerloop.identification.fits import Fit, count_numbers
from innerloop.identification.shared import EXACT_COST, HOPELESS_COST
from innerloop.identification.stepwise import never

DOMINATED, MATCH_COST, STRIKES = 30.0, 1e-3, 2
"""A fit step after step ends at this many layers in a row whose cost is hopeless, or above that of
a match and this many times the least cost of another candidate."""
FAR_COST = 0.1
"""A candidate whose brief fit costs more at every layer does not become a match by a full one."""


def find_least_costs(fits: Sequence[Fit]) -> Float[Tensor, " layers"]:
    """Return the least cost of any candidate at each layer."""
    return torch.stack([fit.costs for fit in fits]).amin(dim=0)


def are_matched(fits: Sequence[Fit]) -> bool:
    """Return whether every layer is matched by some candidate."""
    return bool(fits) and float(find_least_costs(fits).max()) < MATCH_COST


def is_left_behind(fit: Fit, rivals: Sequence[Fit]) -> bool:
    """Return whether a candidate is far from every layer while others match each of them."""
    return are_matched(rivals) and float(fit.costs.min()) > FAR_COST


def is_settled(fit: Fit, rivals: Iterable[Fit]) -> bool:
    """Return whether a candidate with no more free numbers already fits every layer exactly."""
    exact = filter(is_exact, rivals)
    return any(count_numbers(rival) <= count_numbers(fit) for rival in exact)


def is_exact(fit: Fit) -> bool:
    """Return whether a candidate fits every layer up to rounding."""
    return float(fit.costs.max()) < EXACT_COST


def find_special_case(candidate: Candidate, rivals: Iterable[Fit]) -> Fit | None:
    """Return a candidate that fits every layer and is a special case of this one, or None.

    This candidate then fits every layer too. A solution without steps does not qualify: it has
    separate values for each layer, which no iteration has.
    """
    inside = (fit for fit in filter(is_exact, rivals) if fit.candidate.schedule != "exact")
    return next((fit for fit in inside if candidate.contains(fit.candidate)), None)


def make_surrender(rivals: Sequence[Fit], candidate: Candidate) -> Callable[[int, float], bool]:
    """Return the rule by which a fit of one step after another ends early: see `STRIKES`."""
    others = [fit for fit in rivals if fit.candidate is not candidate]
    least = find_least_costs(others).tolist() if others else None
    strikes = 0

    def surrender(layer: int, cost: float) -> bool:
        nonlocal strikes
        limit = HOPELESS_COST
        if least is not None:
            limit = min(limit, max(MATCH_COST, DOMINATED * least[layer]))
        strikes = strikes + 1 if not cost <= limit else 0
        return strikes >= STRIKES

    return surrender if rivals else never
