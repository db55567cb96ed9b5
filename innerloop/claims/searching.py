"""Look for violations of an inequality: structured families first, then local optimisation.

Families   multiples of I by powers of ten, I plus a nilpotent, rotations, rank one, nearly singular
           diagonals, random matrices; for each size in turn, tiny and huge n among them
Descent    L-BFGS on the margin in float64, from the worst of the families
Shrinking  the first violation is rounded as far as it stays one (`shrinking`)

    search_counterexample(margin, with_examples([{"d": 1, "L": 2}, {"d": 2, "L": 2}]), generator)

`margin(A, **size)` gives the margin, negative where the statement breaks, and the slack of its
hypotheses, negative where they are not met; both for a batch of matrices, differentiable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from innerloop.claims.cases import Case
from innerloop.claims.shrinking import shrink

Margin = Callable[..., tuple[Tensor, Tensor]]
Family = Callable[[int], Tensor]
"""A matrix for every size d."""
ROOM = 1e-3
"""Slack that the descent aims for, so that rounding does not leave the hypotheses."""


EXAMPLES = (10, 100, 10**4, 10**6, 10**8, 10**12, 10**24)
"""Numbers of examples that a search tries beside the smallest, d + 1."""


def with_examples(sizes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Pair each size, which has a `d`, with tiny and huge numbers n > d of examples."""
    return [{**size, "n": n} for size in sizes for n in _list_examples(size["d"])]


def _list_examples(d: int) -> list[int]:
    return [d + 1, *(n for n in EXAMPLES if n > d + 1)]


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Where the margin was least, and whether that is a violation."""

    case: Case
    """The size, the matrix `A`, and the family from which it was found."""
    margin: float
    breaks: bool
    evaluations: int

    @property
    def summary(self) -> str:
        return f"searched from structured families and by L-BFGS, {self.evaluations} evaluations"


def diagonal(*entries: float) -> Family:
    """A diagonal with these entries, the last one repeated."""

    def build(d: int) -> Tensor:
        padded = [*entries, *[entries[-1]] * d]
        return torch.diag(torch.tensor(padded[:d], dtype=torch.float64))

    return build


def with_corner(scale: float, corner: float, turned: float = 0.0) -> Family:
    """A multiple of I, and an entry above the diagonal with its image below; at d = 1 neither."""

    def build(d: int) -> Tensor:
        M = scale * torch.eye(d, dtype=torch.float64)
        if d > 1:
            M[0, -1], M[-1, 0] = corner, turned
        return M

    return build


def list_families(
    d: int, generator: torch.Generator, *, symmetric: bool = False, random: int = 8
) -> Iterator[tuple[str, Tensor]]:
    """List structured d × d matrices in float64, by family."""
    eye = torch.eye(d, dtype=torch.float64)
    scales = [sign * 10.0**k for k in range(-4, 5) for sign in (1, -1)]
    yield "zero", 0 * eye
    yield from (("a multiple of the identity", scale * eye) for scale in (*scales, 0.5, 2.0))
    corner = eye[:1].mT @ eye[:1]
    yield from (("rank one", scale * corner) for scale in scales)
    yield from (("rank one beside the identity", eye + scale * corner) for scale in scales)
    for k in range(1, 9, 2):
        near = eye.clone()
        near[-1, -1] = 10.0**-k
        yield "nearly singular", near
    for k in range(random):
        drawn = torch.randn(d, d, generator=generator, dtype=torch.float64) * 10.0 ** (k % 4 - 1)
        yield "random", (drawn + drawn.mT) / 2 if symmetric else drawn
        yield "random near the identity", eye + ((drawn + drawn.mT) / 2 if symmetric else drawn)
    if symmetric or d == 1:
        return
    shift = torch.diag(torch.ones(d - 1, dtype=torch.float64), 1)
    yield from (("nilpotent", 10.0 ** (k / 2) * shift) for k in range(-4, 13))
    yield from (("the identity plus a nilpotent", eye + 10.0 ** (k / 2) * shift) for k in range(13))
    for angle in (0.1, math.pi / 4, math.pi / 2, math.pi):
        turn = eye.clone()
        turn[0, 0] = turn[1, 1] = math.cos(angle)
        turn[0, 1], turn[1, 0] = -math.sin(angle), math.sin(angle)
        yield from (("a rotation", scale * turn) for scale in (0.1, 1.0, 10.0))


def search_counterexample(
    margin: Margin,
    sizes: Sequence[Mapping[str, Any]],
    generator: torch.Generator,
    *,
    symmetric: bool = False,
    pool: Mapping[str, Family] | None = None,
    descents: int = 3,
    iterations: int = 60,
    rounding: float = 1e-9,
) -> SearchResult:
    """Search sizes in turn, each with a `d`, for a matrix that breaks a statement.

    Ends at the first size with a violation, so give the smallest first; the violation is shrunk.
    Without one, the case of least margin. `pool` has further matrices by name, from d: the hard
    instances of the source.
    """
    worst: SearchResult | None = None
    evaluations = 0
    for size in sizes:
        found, count = _search_size(margin, size, generator, symmetric, pool, descents, iterations)
        evaluations += count
        if found is None:
            continue
        name, A, least = found
        breaks = least < -rounding
        if breaks:
            A, least = _shrink_matrix(margin, A, size, rounding, symmetric)
        if worst is None or least < worst.margin or breaks:
            case = Case(**size, A=A, note=f"of the family: {name}")
            worst = SearchResult(case, least, breaks, evaluations)
        if breaks:
            return worst
    if worst is None:
        raise ValueError("no matrix meets the hypotheses: nothing was tried")
    return SearchResult(worst.case, worst.margin, False, evaluations)


def _shrink_matrix(
    margin: Margin, A: Tensor, size: Mapping[str, Any], rounding: float, symmetric: bool
) -> tuple[Tensor, float]:
    """Round a violation, of a symmetric matrix the upper half; the matrix and its margin."""

    def complete(A: Tensor) -> Tensor:
        return A.triu() + A.triu(1).mT if symmetric else A

    def breaks(A: Tensor) -> bool:
        value, slack = margin(complete(A)[None], **size)
        return bool(value < -rounding) and bool(slack >= 0)

    A = complete(shrink(A.triu() if symmetric else A, breaks))
    return A, float(margin(A[None], **size)[0].detach())


def _search_size(
    margin: Margin,
    size: Mapping[str, Any],
    generator: torch.Generator,
    symmetric: bool,
    pool: Mapping[str, Family] | None,
    descents: int,
    iterations: int,
) -> tuple[tuple[str, Tensor, float] | None, int]:
    """Try all families at one size, then descend from the worst; the least margin and the count."""
    d = size["d"]
    starts = list(list_families(d, generator, symmetric=symmetric))
    starts += [(name, build(d)) for name, build in (pool or {}).items()]
    if symmetric:
        starts = [(name, A) for name, A in starts if torch.equal(A, A.mT)]

    def objective(points: Tensor) -> Tensor:
        A = points.reshape(-1, d, d)
        A = (A + A.mT) / 2 if symmetric else A
        value, slack = margin(A, **size)
        return value + 1e3 * torch.relu(ROOM - slack) ** 2

    batch = torch.stack([A for _, A in starts])
    scores = objective(batch).detach().nan_to_num(nan=math.inf, posinf=math.inf)
    tried = [(name, A) for name, A in starts]
    evaluations = len(starts)
    seen: set[str] = set()
    for k in scores.argsort().tolist():
        name, A = starts[k]
        if len(seen) == descents or not math.isfinite(float(scores[k])):
            break
        if name in seen:
            continue  # one descent a family: the others would end in the same place
        seen.add(name)
        point, _, count = search_minimum(
            lambda point: objective(point)[0], A.reshape(1, -1), iterations=iterations
        )
        end = point.reshape(d, d)
        tried.append((name, (end + end.mT) / 2 if symmetric else end))
        evaluations += count
    value, slack = margin(torch.stack([A for _, A in tried]), **size)
    allowed = (
        torch.where(slack >= 0, value, math.inf).detach().nan_to_num(nan=math.inf, posinf=math.inf)
    )
    best = int(allowed.argmin())
    least = float(allowed[best])
    return ((*tried[best], least) if math.isfinite(least) else None), evaluations


def search_minimum(
    margin: Callable[[Tensor], Tensor],
    starts: Tensor,
    *,
    iterations: int = 200,
) -> tuple[Tensor, float, int]:
    """The point with the least margin that L-BFGS finds from each of the starts (rows).

    `margin` maps a float64 vector to a scalar that can be differentiated. Where it is not finite
    the search turns back. Returns the point, its margin, and how often the margin was evaluated.
    """
    from scipy.optimize import minimize

    evaluations = 0

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal evaluations
        evaluations += 1
        at = torch.tensor(point, dtype=torch.float64, requires_grad=True)
        value = margin(at)
        (slope,) = torch.autograd.grad(value, at)
        if not (bool(torch.isfinite(value)) and bool(torch.isfinite(slope).all())):
            return 1e300, np.zeros_like(point)
        return float(value.detach()), slope.numpy()

    best, least = starts[0], math.inf
    for start in starts:
        found = minimize(
            objective, start.numpy(), jac=True, method="L-BFGS-B", options={"maxiter": iterations}
        )
        if found.fun < least:
            best, least = torch.tensor(found.x, dtype=torch.float64), float(found.fun)
    return best, least, evaluations
