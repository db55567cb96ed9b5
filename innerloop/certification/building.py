"""Build a transformer with its certificate, or read one from a file and certify it again."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from innerloop.certification.certificate import Certificate, certify, check_instances
from innerloop.constructions.base import Construction, iterate_streams, read_prediction
from innerloop.devices import choose_device, default_to_cpu, require_precision
from innerloop.errors import FileError, InputError, OutOfRangeError
from innerloop.limits import check_seed
from innerloop.links import resolve_links
from innerloop.progress import Progress
from innerloop.registry import make_member
from innerloop.transformer import Trace, Transformer
from innerloop.transformer.file import load

Precision = Literal["float64", "float32"]


@dataclass(frozen=True, eq=False)
class BuiltTransformer:
    """A construction, its transformer, and the certificate that compares the two."""

    construction: Construction
    transformer: Transformer
    certificate: Certificate

    def predict(self, problem: Any) -> Tensor:
        """Return the transformer's answers; raise an error if data are out of range or diverge."""
        last = deque(iterate_streams(self.construction, self.transformer, problem), maxlen=1).pop()
        return read_prediction(self.construction, self.transformer, problem, last)

    def predictions(self, problem: Any) -> Iterator[Tensor]:
        """Return the answers after 0, 1, …, all steps."""
        for stream in iterate_streams(self.construction, self.transformer, problem):
            yield read_prediction(self.construction, self.transformer, problem, stream)

    def trace(self, problem: Any) -> Trace:
        """Return the stream after every block, with registers by name."""
        self.construction.check(problem)
        prompt = self.construction.prompt(problem)
        return self.transformer.trace(prompt, self.construction.context_length(problem))

    def save(self, path: str | Path) -> None:
        """Write weights, construction and certificate settings to a safetensors file."""
        certificate = self.certificate
        about = {
            "construction": certificate.name,
            "settings": certificate.settings,
            "instances": certificate.instances,
            "seed": certificate.seed,
            "certificate": certificate.as_dict(),
            **self.construction.describe_origin(),
        }
        self.transformer.save(path, about)


def build(
    construction: str | Construction[Any, Any] | type[Construction[Any, Any]],
    /,
    *,
    instances: int = 64,
    seed: int = 0,
    dtype: Precision | torch.dtype = "float64",
    device: str | torch.device | None = None,
    progress: Progress | None = None,
    **parameters: Any,
) -> BuiltTransformer:
    """Build the transformer that runs a construction's algorithm, with its certificate.

    Args:
        construction: A name, `module:attribute` or `file.py:attribute` (which is imported, and so
            runs), a class, or an object with its parameters set.
        instances: Random instances to certify on.
        seed: Seed of the random instances.
        dtype: "float64", or "float32" if the construction declares a tolerance for it.
        device: Device to which the transformer is moved at the end. It is built and certified on
            the CPU.
        progress: Function that is called with the completed share of the work, from 0 to 1.
        **parameters: Parameters of the construction, such as `d`, `n` and `steps`; `innerloop show
            NAME` lists them.

    Returns:
        The construction, its transformer and the certificate. If the transformer does not run the
        algorithm, `certificate.holds` is False and `certificate.explain()` describes the first
        deviation.

    Raises:
        InputError: The construction or a parameter does not exist.
        OutOfRangeError: A parameter is beyond the range that the construction declares.

    Example:
        >>> import innerloop
        >>> built = innerloop.build("newton", d=2, n=6, steps=3, instances=2)
        >>> built.certificate.layers, built.certificate.holds
        (5, True)
    """
    check_instances(instances)
    seed, where = check_seed(seed), choose_device(device)
    with default_to_cpu():
        made = make_member("constructions", Construction, construction, parameters)
        transformer = copy.deepcopy(made.transformer).to(resolve_dtype(dtype))
        require_precision(where, list(transformer.parameters()))
        certificate = certify(made, transformer, instances, seed, progress)
    return BuiltTransformer(made, transformer.to(where), certificate)


def verify(
    path: str | Path,
    *,
    construction: str | Construction[Any, Any] | type[Construction[Any, Any]] | None = None,
    instances: int = 64,
    seed: int = 0,
    progress: Progress | None = None,
) -> BuiltTransformer:
    """Read a file that `BuiltTransformer.save` wrote and recompute its certificate.

    The certificate in the file is ignored: the arguments decide how thoroughly the weights are
    tested. A file names its construction, but it can never cause code to be loaded.

    Args:
        path: The safetensors file.
        construction: The construction of the file, if it is neither part of this package nor
            registered: a class, an object, `module:attribute` or `file.py:attribute`.
        instances: Number of random instances to certify on.
        seed: Seed of the random instances.
        progress: Function that is called with the completed share of the work, from 0 to 1.

    Returns:
        An object like that of `build`, with the weights of the file.

    Raises:
        FileError: The file cannot be read, was changed, or is of another kind.

    Example:
        ```python
        innerloop.build("newton", d=5).save("newton.safetensors")
        assert innerloop.verify("newton.safetensors").certificate.holds
        ```
    """
    check_instances(instances)
    seed = check_seed(seed)
    transformer, about = load(resolve_links(Path(path)))
    made = restore_construction(Path(path), about, construction)
    made.check_origin(Path(path), about)
    if not all(type(about.get(name)) is int for name in ("instances", "seed")):
        raise FileError(f"{path} does not say what it holds: construction, settings, seed, size")
    if transformer.layout != made.layout or transformer.steps != made.steps:
        raise FileError(f"{path} has other registers or steps than {made.name} with its settings")
    certificate = certify(made, transformer, instances, seed, progress)
    return BuiltTransformer(made, transformer, certificate)


def restore_construction(
    path: Path,
    about: dict[str, Any],
    definition: str | Construction[Any, Any] | type[Construction[Any, Any]] | None = None,
) -> Construction[Any, Any]:
    """Make the construction that a file describes.

    `definition` is its class or the object itself; None stands for the class that the file names.
    """
    if "construction" not in about:
        raise FileError(f"{path} does not name a construction: it cannot be verified without one")
    name, settings = about["construction"], about.get("settings")
    if not isinstance(name, str) or not isinstance(settings, dict):
        raise FileError(f"{path} does not say what it holds: construction, settings, seed, size")
    if isinstance(definition, Construction):
        return definition
    if definition is None and ":" in name:
        raise FileError(
            f"{path} was built from {name!r}, a user-defined construction: pass it, as "
            f"--definition {name} or construction=… (it will be imported and run)"
        )
    try:
        return make_member("constructions", Construction, definition or name, settings)
    except InputError as error:
        raise FileError(f"{path} cannot be held against its construction: {error}") from None


def resolve_dtype(name: str | torch.dtype) -> torch.dtype:
    """Resolve a precision by its name."""
    known = {"float64": torch.float64, "float32": torch.float32}
    dtype = known.get(name) if isinstance(name, str) else name
    if dtype is None or dtype not in known.values():
        raise OutOfRangeError(f"dtype must be float64 or float32, got {name}")
    return dtype
