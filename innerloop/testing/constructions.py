"""Check the properties of every construction: its law, its declared cost, and its certificate.

Each property has its own function, so that a test suite can run and name them separately.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from innerloop.certification.building import build
from innerloop.certification.certificate import certify
from innerloop.certification.cost import check_cost
from innerloop.certification.law import iterate_cases, measure_deviations
from innerloop.constructions.base import Construction
from innerloop.errors import OutOfRangeError
from innerloop.problems.base import Distribution
from innerloop.testing.common import check_described, require

BATCHES = ((2, 3), ())
FEWEST_CASES = 5
"""The smallest number of cases within the documented limits of a construction."""


class CaseOutcome(NamedTuple):
    """The result of a case, with the deviation that breaks the law if there is one."""

    label: str
    broken: str
    tolerance: float


def check_construction(construction: Construction[Any, Any] | type[Construction[Any, Any]]) -> None:
    """Check a construction: its law, its cost, its certificate, and that every weight matters.

    Args:
        construction: A class or an object. A class is tested on its own cases and on those of its
            problem, in every precision that it declares. An object is tested with its parameters.

    Raises:
        AssertionError: A property does not hold. The message states the mistake and how to correct
            it.
    """
    check_described(construction)
    if not inspect.isclass(construction):
        certificate = build(construction).certificate
        return require(certificate.holds, f"{certificate.name}: {certificate.explain()}")
    cases = make_cases(construction)
    for dtype in construction.tolerances:
        check_law(construction, dtype, cases)
    check_declared_cost(construction, cases)
    return check_every_weight(construction)


class MadeCase(NamedTuple):
    """A case within the limits of a construction; its weights are built when they are first
    used."""

    parameters: dict[str, Any]
    construction: Construction[Any, Any]
    distribution: Distribution


def make_cases(kind: type[Construction[Any, Any]]) -> list[MadeCase]:
    """Make the cases that a construction accepts, so that several checks can share them."""
    made = list[MadeCase]()
    for case in iterate_cases(kind):
        with contextlib.suppress(OutOfRangeError):
            made.append(MadeCase(case.parameters, *case.make()))
    return made


def check_law(
    kind: type[Construction[Any, Any]],
    dtype: torch.dtype = torch.float64,
    cases: Sequence[MadeCase] | None = None,
) -> None:
    """Check the law of a construction on every case that it accepts."""
    outcomes = list(run_cases(kind, dtype, make_cases(kind) if cases is None else cases))
    broken = [f"{o.broken} > {o.tolerance:.0e}: {o.label}" for o in outcomes if o.broken]
    require(not broken, f"{kind.__name__} breaks its law:\n" + "\n".join(broken))
    if dtype != torch.float64:
        return
    require(
        kind.exact == (kind.error == "exact"),
        f"{kind.__name__}: `error` must be 'exact' or a formula, as `exact` says",
    )
    if kind.exact:
        loosest = max((o.tolerance for o in outcomes), default=0.0)
        require(loosest <= 1e-10, f"{kind.__name__} is exact: its tolerance is at most 1e-10")
    require(
        len(outcomes) >= FEWEST_CASES * len(BATCHES),
        f"{kind.__name__} ran only {len(outcomes)} of the cases, {FEWEST_CASES * len(BATCHES)} are "
        "needed: add some to its `cases`, or widen its limits",
    )


def run_cases(
    kind: type[Construction[Any, Any]], dtype: torch.dtype, cases: Sequence[MadeCase]
) -> Iterator[CaseOutcome]:
    """Run each case that a construction accepts and in which its state changes."""
    for (_, construction, distribution), batch in itertools.product(cases, BATCHES):
        generator = torch.Generator().manual_seed(3)
        try:
            problem = distribution.sample(*batch, generator=generator, dtype=dtype)
            transformer = construction.transformer
            if dtype != torch.float64:
                transformer = copy.deepcopy(transformer).to(dtype)
            deviations = measure_deviations(
                construction, transformer, problem.to(torch.float64), generator
            )
        except OutOfRangeError:
            continue
        # A case on which nothing happens, a label below the threshold say, tests nothing.
        if deviations.usage <= 1 and deviations.largest_move > 1e-4:
            lengths = {len(deviations.step), len(deviations.free)}
            require(
                lengths == {construction.steps},
                f"{kind.__name__}: {construction.steps} steps are requested, but {lengths} are "
                "built",
            )
            label = f"{construction.values()} on {distribution.values()}, batch {batch}"
            off = f"{max(deviations.step):.2e} a step, {max(deviations.free):.2e} running free"
            broken = f"{off}, {deviations.broken}" if deviations.broken else ""
            yield CaseOutcome(label, broken, construction.tolerance(dtype))


def check_declared_cost(
    kind: type[Construction[Any, Any]], cases: Sequence[MadeCase] | None = None
) -> None:
    """Compare the declared cost of a construction with its weights, at several sizes."""
    for parameters, construction, _ in make_cases(kind) if cases is None else cases:
        require(
            not (wrong := check_cost(construction, construction.transformer)),
            f"{kind.__name__} at {parameters}: {wrong}",
        )


def check_every_weight(kind: type[Construction[Any, Any]]) -> None:
    """Check that the certificate does not hold if any single tensor is multiplied by −3/2.

    The factor is negative, because normalisations hide a positive factor, and it is not −1, because
    squares hide a sign.
    """
    small = {"steps": kind.cap_value("steps", 2), "inner": 2}
    declared = kind.declared_types()
    parameters: dict[str, Any] = {key: small[key] for key in small if key in declared}
    built = build(kind, instances=4, **parameters)
    require(built.certificate.holds, f"{built.certificate.name}: {built.certificate.explain()}")
    survivors, seen = [], list[torch.Tensor]()
    mutant = copy.deepcopy(built.transformer)
    for place, weight in mutant.named_parameters():
        if not weight.any() or any(torch.equal(weight, other) for other in seen):
            continue  # the weight is 0, or equals a matrix of an earlier step
        seen.append(weight.clone())
        with torch.no_grad():
            weight.mul_(-1.5)
            # Try one instance first, which is cheaper, and then four.
            if all(certify(built.construction, mutant, instances=count).holds for count in (1, 4)):
                survivors.append(place)
            weight.copy_(seen[-1])
    require(
        not survivors, f"{kind.__name__}: the certificate does not detect changes of {survivors}"
    )
