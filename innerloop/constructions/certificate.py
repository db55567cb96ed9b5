"""Certificates: what a construction costs, and how far its weights are from the algorithm.

`build` makes the weights and certifies them, `verify` recomputes the certificate from a file.
"""

from __future__ import annotations

import copy
import functools
import itertools
import operator
import platform
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from innerloop.constructions.base import Construction, answer, streams
from innerloop.constructions.law import Deviations, deviations
from innerloop.errors import FileError, InputError, OutOfRange
from innerloop.registry import find
from innerloop.transformer import Trace, Transformer
from innerloop.transformer.file import load

Precision = Literal["float64", "float32"]
Progress = Callable[[float], object]


@dataclass(frozen=True)
class Certificate:
    """The measured evidence that a transformer runs its algorithm."""

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
    seed: int
    versions: dict[str, str]
    command: str
    seconds: float = field(compare=False)

    def as_dict(self) -> dict[str, Any]:
        """The certificate as JSON can hold it."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Built:
    """A construction, its transformer, and the certificate that ties them."""

    construction: Construction
    transformer: Transformer
    certificate: Certificate

    def predict(self, problem: Any) -> Tensor:
        """The transformer's answers; out-of-range data and divergence are errors, not numbers."""
        last = deque(streams(self.construction, self.transformer, problem), maxlen=1).pop()
        return answer(self.construction, self.transformer, problem, last)

    def predictions(self, problem: Any) -> Iterator[Tensor]:
        """The answers after 0, 1, …, all steps."""
        for stream in streams(self.construction, self.transformer, problem):
            yield answer(self.construction, self.transformer, problem, stream)

    def trace(self, problem: Any) -> Trace:
        """The stream after every block, with registers by name."""
        self.construction.check(problem)
        prompt = self.construction.prompt(problem)
        return self.transformer.trace(prompt, self.construction.context(problem))

    def save(self, path: str | Path) -> None:
        """Write weights, construction and certificate settings to a safetensors file."""
        certificate = self.certificate
        about = {
            "construction": certificate.name,
            "settings": certificate.settings,
            "instances": certificate.instances,
            "seed": certificate.seed,
            "certificate": certificate.as_dict(),
        }
        self.transformer.save(path, about)


def build(
    name: str,
    *,
    instances: int = 64,
    seed: int = 0,
    dtype: Precision | torch.dtype = "float64",
    progress: Progress | None = None,
    **parameters: Any,
) -> Built:
    """The transformer that runs the algorithm of construction `name`, with its certificate.

    `progress` is called with the share of the certification that is done.
    """
    construction = find("constructions", Construction, name).made(parameters)
    transformer = copy.deepcopy(construction.transformer).to(precision(dtype))
    certificate = certify(construction, transformer, instances, seed, progress)
    return Built(construction, transformer, certificate)


def verify(path: str | Path, *, progress: Progress | None = None) -> Built:
    """Read a file that `Built.save` wrote and recompute its certificate from its weights."""
    transformer, about = load(Path(path))
    if "construction" not in about:
        raise FileError(f"{path} names no construction: there is no law to hold it against")
    name, settings, instances, seed = (
        about.get(key) for key in ("construction", "settings", "instances", "seed")
    )
    if not (
        isinstance(name, str)
        and isinstance(settings, dict)
        and type(instances) is int
        and type(seed) is int
    ):
        raise FileError(f"{path} does not say what it holds: construction, settings, seed, size")
    construction = find("constructions", Construction, name).made(settings)
    if transformer.layout != construction.layout or transformer.steps != construction.steps:
        raise FileError(f"{path} has other registers or steps than {name} with its settings")
    certificate = certify(construction, transformer, instances, seed, progress)
    return Built(construction, transformer, certificate)


def certify(
    construction: Construction,
    transformer: Transformer,
    instances: int = 64,
    seed: int = 0,
    progress: Progress | None = None,
) -> Certificate:
    """Measure the law on random instances; a certificate that does not hold says so."""
    for what, value, least in (("instances", instances, 1), ("seed", seed, 0)):
        if type(value) is not int or not least <= value < 2**63:
            raise InputError(f"{what} must be a whole number from {least} on, got {value!r}")
    start = time.perf_counter()
    dtype = next(transformer.parameters()).dtype
    tolerance = construction.tolerance(dtype)
    found = _measured(construction, transformer, instances, seed, progress)
    if found.moved < 100 * tolerance:
        raise InputError(
            f"{construction.name} moves by {found.moved:.1e} in its largest step, too little to be "
            f"told from standing still at a tolerance of {tolerance:.0e}: use larger steps"
        )
    return Certificate(
        name=construction.name,
        source=construction.source,
        settings=construction.values(),
        exact=construction.exact,
        error=construction.error,
        dtype=str(dtype).removeprefix("torch."),
        **transformer.count(),
        cost=construction.cost._asdict(),
        operator_norm=transformer.operator_norm(),
        step_deviation=found.step,
        deviation=found.free,
        max_deviation=found.largest,
        tolerance=tolerance,
        free_tolerance=found.limit,
        range_used=found.usage,
        holds=not found.broken and found.usage <= 1,
        broken=found.broken,
        instances=instances,
        seed=seed,
        versions=versions(),
        command=_command(construction, dtype, instances, seed),
        seconds=time.perf_counter() - start,
    )


def _measured(
    construction: Construction,
    transformer: Transformer,
    instances: int,
    seed: int,
    progress: Progress | None,
) -> Deviations:
    """The deviations over all distributions that the construction names, instances dealt out."""
    dtype = next(transformer.parameters()).dtype
    generator = torch.Generator().manual_seed(seed)
    distributions = construction.distributions()
    done, total = itertools.count(1), len(distributions) * transformer.steps
    found = []

    def stepped() -> None:
        if progress is not None:
            progress(next(done) / total)

    for k, distribution in enumerate(distributions):
        share = len(range(k, instances, len(distributions)))
        if share:
            # Drawn in the transformer's precision, so that both sides see the very same data.
            problem = distribution.sample(share, generator=generator, dtype=dtype)
            with torch.no_grad():
                problem = problem.to(torch.float64)
                found.append(deviations(construction, transformer, problem, generator, stepped))
    return functools.reduce(operator.or_, found)


def precision(name: str | torch.dtype) -> torch.dtype:
    """The dtype of a name, or itself."""
    known = {"float64": torch.float64, "float32": torch.float32}
    dtype = known.get(name) if isinstance(name, str) else name
    if dtype is None or dtype not in known.values():
        raise OutOfRange(f"dtype must be float64 or float32, got {name}")
    return dtype


def versions() -> dict[str, str]:
    """The versions that a result depends on."""
    packages = {name: version(name) for name in ("innerloop", "torch", "numpy")}
    return {**packages, "python": platform.python_version()}


def _command(construction: Construction, dtype: torch.dtype, instances: int, seed: int) -> str:
    """The command line that makes this certificate again."""
    defaults = {name: f.default for name, f in construction.__dataclass_fields__.items()}
    words = [f"innerloop build {construction.name}"]
    for name, value in construction.values().items():
        if value != defaults[name]:
            text = str(value).replace(" ", "")
            words.append(f"-s '{name}={text}'" if isinstance(value, list) else f"-s {name}={text}")
    words += [f"--dtype {str(dtype).removeprefix('torch.')}"] if dtype != torch.float64 else []
    return " ".join([*words, f"--instances {instances} --seed {seed}"])
