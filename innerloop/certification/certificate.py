"""Certificates: what a construction costs, and how far its weights are from the algorithm."""

from __future__ import annotations

import copy
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from innerloop.certification.cost import check_cost
from innerloop.certification.coverage import Unreached, format_ranges
from innerloop.certification.exactness import compare_for_certificate
from innerloop.certification.law import Deviations
from innerloop.certification.measuring import measure_all, measure_instances
from innerloop.certification.shrink import list_sizes, shrink
from innerloop.constructions.base import Construction
from innerloop.errors import InputError
from innerloop.limits import check_seed, format_number
from innerloop.progress import Progress
from innerloop.provenance import collect_versions, spell_command
from innerloop.registry import make_member
from innerloop.transformer import Transformer

MAX_INSTANCES = 100_000
"""Largest number of instances, which are all drawn at once."""
LEAST_MOVE = 100
"""The state must change by at least this many tolerances in some step. Otherwise a transformer that
does nothing would pass."""


@dataclass(frozen=True)
class Certificate:
    """The measured evidence that a transformer runs its algorithm.

    redrawn_instances  number of instances that were replaced, because the law does not cover them:
                       they were beyond the declared range, or at a tie
    further_instances  number of additional instances at the ends of the declared range
    unreached          weights in which a small error might not be noticed, as ranges of indices in
                       each flattened tensor, such as `3,7-19`; None if this was not measured. A
                       small error is a thousandth of the weight. If the algorithm makes a hard
                       choice (the nearest mean, the best action), such an error matters only near a
                       tie, so the weights before the choice are listed here: see `coverage`
    unreached_weights  number of the listed weights that are not 0
    faint_weights      number of these in which an error as large as the weight is still noticed
    unreached_zeros    number of the listed weights that are 0; most of them multiply registers that
                       are 0 on every problem
    approximation      for programs that approximate functions by straight lines between knots: the
                       largest `bound` on the error in a step, and the largest error `measured`;
                       None for other constructions
    exactness          for programs, the result of `innerloop exact` at small sizes: a `status`
                       (proof, points, differs, none) and a `text`; see `exactness`
    """

    name: str
    source: str
    settings: dict[str, Any]
    exact: bool
    error: str
    dtype: str
    layers: int
    heads: int
    width: int
    hidden: int
    parameters: int
    cost: dict[str, str]
    operator_norm: float
    step_deviation: tuple[float, ...]
    deviation: tuple[float, ...]
    max_deviation: float
    tolerance: float
    free_tolerance: tuple[float, ...]
    range_used: float
    holds: bool
    broken: str
    instances: int
    further_instances: int
    redrawn_instances: int
    unreached: dict[str, str] | None
    unreached_weights: int | None
    faint_weights: int | None
    unreached_zeros: int | None
    seed: int
    versions: dict[str, str]
    command: str
    seconds: float = field(compare=False)
    exactness: dict[str, Any] | None = None
    approximation: dict[str, float] | None = None

    def explain(self) -> str:
        """Describe in one line why the certificate does not hold."""
        if self.range_used > 1:
            return f"the data reach {self.range_used:.3g} times the declared range"
        if self.broken.startswith(("cost", "exact arithmetic", "knots")):
            return self.broken
        step, free = max(self.step_deviation), max(self.deviation)
        if math.isinf(step):
            return f"a step diverges; first {self.broken}"
        drift = "diverges" if math.isinf(free) else f"by {free:.3g}"
        return (
            f"a step deviates by {step:.3g} (allowed {self.tolerance:.3g}), "
            f"running free {drift} (allowed {max(self.free_tolerance):.3g}); first {self.broken}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the certificate as plain data for JSON."""
        return asdict(self)


def certify(
    given: str | Construction[Any, Any] | type[Construction[Any, Any]],
    transformer: Transformer | None = None,
    instances: int = 64,
    seed: int = 0,
    progress: Progress | None = None,
) -> Certificate:
    """Compare every step of a transformer with its construction's algorithm on random instances.

    Args:
        given: The construction: a name, `module:attribute`, a class or an object.
        transformer: The transformer to certify; by default, the construction's own.
        instances: Number of random instances to certify on.
        seed: Seed of the random instances.
        progress: Function that is called with the completed share of the work, from 0 to 1.

    Returns:
        The certificate. If a step deviates, `holds` is False and `explain()` describes where.

    Raises:
        InputError: The state of the algorithm hardly changes on these instances, so a transformer
            that does nothing would pass.
    """
    construction = make_member("constructions", Construction, given, {})
    transformer = construction.transformer if transformer is None else transformer
    check_instances(instances)
    seed = check_seed(seed)
    start = time.perf_counter()
    dtype = next(transformer.parameters()).dtype
    tolerance = construction.tolerance(dtype)
    counter = _count_steps(construction, transformer, progress)
    measurement = measure_all(construction, transformer, instances, seed, counter)
    measured = measurement.deviations
    if measured.largest_move < LEAST_MOVE * tolerance:
        raise InputError(
            f"{construction.name} moves by {measured.largest_move:.1e} in its largest step, which "
            f"a tolerance of {tolerance:.0e} cannot tell from standing still: use larger steps"
        )
    unchanged = _has_own_weights(construction, transformer)
    broken = _describe_break(construction, transformer, measured, unchanged, seed)
    exactness = compare_for_certificate(construction, unchanged, broken, seed)
    if exactness["status"] == "differs":
        broken = f"exact arithmetic: {exactness['text']}"
    lines = measurement.approximation
    if lines is not None and lines["excess"] > 0:
        broken = f"knots: a step is off by {lines['excess']:.3g} more than their propagated bound"
    return Certificate(
        name=construction.name,
        source=construction.source,
        settings=construction.values(),
        exact=construction.exact,
        error=construction.error
        if lines is None or not construction.exact
        else f"straight lines, {lines['bound']:.2g}",
        dtype=str(dtype).removeprefix("torch."),
        **transformer.count(),
        cost=construction.cost._asdict(),
        operator_norm=transformer.operator_norm(),
        step_deviation=measured.step,
        deviation=measured.free,
        max_deviation=measured.largest,
        tolerance=tolerance,
        free_tolerance=measured.limit,
        range_used=measured.usage,
        holds=not broken and measured.usage <= 1,
        broken=broken,
        instances=instances,
        further_instances=measurement.further,
        redrawn_instances=measurement.redrawn,
        **_describe_unreached(transformer, measurement.unreached),
        seed=seed,
        versions=collect_versions(),
        command=_format_command(construction, dtype, instances, seed),
        seconds=time.perf_counter() - start,
        exactness=exactness,
        approximation=lines,
    )


def _describe_unreached(transformer: Transformer, unreached: Unreached | None) -> dict[str, Any]:
    """Return the fields of a certificate about weights in which errors are not noticed."""
    counts = ("unreached_weights", "faint_weights", "unreached_zeros")
    if unreached is None:
        return dict.fromkeys(("unreached", *counts))
    nonzero = {name: weight != 0 for name, weight in transformer.named_parameters()}
    weights, even_large, zeros = (
        sum(int((mask & where(nonzero[name])).sum()) for name, mask in masks.items())
        for masks, where in (
            (unreached.small, Tensor.bool),
            (unreached.large, Tensor.bool),
            (unreached.small, Tensor.logical_not),
        )
    )
    ranges = {
        name: format_ranges(mask) for name, mask in unreached.small.items() if bool(mask.any())
    }
    return {
        "unreached": ranges,
        **dict(zip(counts, (weights, weights - even_large, zeros), strict=True)),
    }


def check_instances(instances: Any) -> None:
    """Raise an error unless the number of instances is an integer in the allowed range."""
    if type(instances) is not int or not 1 <= instances <= MAX_INSTANCES:
        text = format_number(instances) if type(instances) is int else repr(instances)
        raise InputError(
            f"instances must be a whole number of at least 1 and at most {MAX_INSTANCES:,}, "
            f"got {text}"
        )


def _count_steps(
    construction: Construction[Any, Any], transformer: Transformer, progress: Progress | None
) -> Callable[[], object] | None:
    """Return a function to call after each step; it passes the completed share to `progress`."""
    if progress is None:
        return None
    done, total = itertools.count(1), len(construction.distributions()) * transformer.steps
    return lambda: progress(next(done) / total)


def _describe_break(
    construction: Construction[Any, Any],
    transformer: Transformer,
    measured: Deviations,
    unchanged: bool,
    seed: int,
) -> str:
    """Describe the first deviation from the algorithm or from the declared cost; empty if none."""
    broken = measured.broken
    if broken and measured.usage <= 1 and unchanged:
        broken += _find_smallest_break(construction, transformer, seed)
    return "; ".join(filter(None, (broken, check_cost(construction, transformer))))


def _find_smallest_break(
    construction: Construction[Any, Any], transformer: Transformer, seed: int
) -> str:
    """Describe the smallest version of a construction that deviates on a single instance."""
    dtype = next(transformer.parameters()).dtype

    def breaks(smaller: Construction[Any, Any]) -> bool:
        weights = copy.deepcopy(smaller.transformer).to(dtype)
        measured, _, _ = measure_instances(smaller, weights, 1, seed)
        moves = measured.largest_move >= LEAST_MOVE * smaller.tolerance(dtype)
        return bool(measured.broken) and measured.usage <= 1 and moves

    smallest = shrink(construction, breaks)
    if smallest is construction:
        return ""
    sizes = " ".join(f"-s {name}={getattr(smallest, name)}" for name in list_sizes(smallest))
    return f"; smallest found: {sizes} --instances 1 --seed {seed}"


def _has_own_weights(construction: Construction[Any, Any], transformer: Transformer) -> bool:
    """Return whether a transformer has the construction's own weights, up to its precision."""
    expected, theirs = construction.transformer, transformer.state_dict()
    return (
        expected.loops == transformer.loops
        and expected.state_dict().keys() == theirs.keys()
        and all(
            torch.equal(value.to(theirs[name].dtype), theirs[name])
            for name, value in expected.state_dict().items()
        )
        and _list_kinds(expected) == _list_kinds(transformer)
    )


def _list_kinds(transformer: Transformer) -> list[tuple[str, ...]]:
    """List kind, mask and normalisation of all attention layers."""
    layers = [block.attention for block in transformer.blocks() if block.attention is not None]
    return [(layer.kind, layer.mask, layer.normalisation) for layer in layers]


def _format_command(
    construction: Construction[Any, Any], dtype: torch.dtype, instances: int, seed: int
) -> str:
    """Return the command line that reproduces the certificate."""
    defaults = {name: f.default for name, f in construction.__dataclass_fields__.items()}
    options = {"dtype": str(dtype).removeprefix("torch.")} if dtype != torch.float64 else {}
    options |= {"instances": str(instances), "seed": str(seed)}
    return spell_command("build", construction.name, construction.values(), defaults, options)
