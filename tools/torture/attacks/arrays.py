"""Bad arrays: every function that takes data receives arrays that users have by mistake.

Either the result has finite numbers, or an error explains the reason in one line. A warning is not
enough in either case.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import innerloop
from tools.torture.attack import Attack, Defect, Verdict, refuse_or

D, N = 2, 4
MAX_GROWTH = 1e13
"""No correct answer is larger than all of its data by more than this factor."""
SPOILED: list[Any] = []
"""The bad arrays of the current try."""


def prepare(folder: Path) -> dict[str, Any]:
    """Build the constructions whose predictions on bad arrays are computed."""
    small: dict[str, Any] = {"d": D, "n": N, "instances": 4}
    return {
        "newton": innerloop.build("newton", steps=3, **small),
        "pca": innerloop.build("pca", d=D, n=N, components=1, steps=2, instances=4),
        "em": innerloop.build("em", d=D, n=N, clusters=2, steps=1, instances=4),
    }


def attempt(built: dict[str, Any], chance: random.Random, folder: Path) -> Verdict:
    """Pass bad arrays to one function of the package, and check its result."""
    rng = np.random.default_rng(chance.getrandbits(32))
    take = chance.choice(WAYS)

    SPOILED.clear()

    def call() -> Verdict:
        check_finite(take(built, chance, rng))
        check_nothing_lost()
        return "survived"

    return refuse_or(call)


def attack_regression(built: dict[str, Any], chance: random.Random, rng: Any) -> Any:
    """Make a regression problem of bad arrays; return its data and Newton's predictions."""
    arrays = [rng.normal(size=shape) for shape in ((N, D), (N,), (1, D))]
    problem = innerloop.RegressionProblem.from_arrays(*spoil_some(arrays, chance, rng))
    return [problem.x, problem.y, predict(built["newton"], problem)]


def attack_tensors(built: dict[str, Any], chance: random.Random, rng: Any) -> Any:
    """Make a regression problem of bad tensors by its constructor; return Newton's predictions."""
    arrays = [torch.from_numpy(rng.normal(size=shape)) for shape in ((N, D), (N,), (1, D))]
    problem = innerloop.RegressionProblem(*spoil_some(arrays, chance, rng))
    return [predict(built["newton"], problem)]


def attack_points(built: dict[str, Any], chance: random.Random, rng: Any) -> Any:
    """Make a problem of bad points, for principal components or clusters; return predictions."""
    if chance.random() < 0.5:
        arrays = [rng.normal(size=(N, D)), rng.normal(size=(1, D))]
        pca = innerloop.PCAProblem.from_arrays(*spoil_some(arrays, chance, rng))
        return [predict(built["pca"], pca)]
    arrays = [rng.normal(size=(N, D)), rng.normal(size=(2, D))]
    points = innerloop.ClusteringProblem.from_arrays(*spoil_some(arrays, chance, rng))
    return [predict(built["em"], points)]


def predict(built: Any, problem: Any) -> Tensor:
    """Return predictions; treat numbers that are far larger than the data as divergence, not an
    answer.
    """
    answer = built.predict(problem).detach()
    largest = float(built.construction.prompt(problem).detach().abs().max())
    if float(answer.abs().max()) > MAX_GROWTH * max(1.0, largest):
        raise Defect("a prediction diverged and was passed on")
    return answer


def attack_distribution(built: dict[str, Any], chance: random.Random, rng: Any) -> Any:
    """Make a distribution with a bad covariance, spectrum or weights; return a sample."""
    square = rng.normal(size=(D, D))
    good = {
        "covariance": square @ square.T + np.eye(D),
        "spectrum": np.ones(D),
        "weights": rng.normal(size=D),
    }
    name = chance.choice(sorted(good))
    values = {name: spoil(good[name], chance, rng)}
    drawn = innerloop.LinearRegression(d=D, n=N, **values).sample(2)
    return [drawn.x, drawn.y]


def attack_preconditioner(built: dict[str, Any], chance: random.Random, rng: Any) -> Any:
    """Build a construction with bad preconditioners; return its largest deviation."""
    matrix = spoil(0.1 * np.eye(D), chance, rng)
    made = innerloop.build(
        "preconditioned-gradient-descent", d=D, n=N, steps=2, instances=2, preconditioners=matrix
    )
    return [made.certificate.max_deviation]


def attack_model(built: dict[str, Any], chance: random.Random, rng: Any) -> Any:
    """Identify a function whose predictions are bad, in the same way at every call."""
    way = chance.random()

    def answer(x: Tensor, y: Tensor, query: Tensor) -> Any:
        answers = ((x * y[..., None]).mean(1) * query).sum(-1)
        return spoil(answers.numpy(), random.Random(way), rng)

    problem = innerloop.LinearRegression(d=D, n=N)
    options: dict[str, Any] = {"algorithms": ["gradient-descent"], "prompts": 8, "steps": 2}
    result = innerloop.identify(answer, problem, **options)
    return [layer.score for layer in result.layers]


WAYS = (
    *(attack_regression,) * 6,
    *(attack_tensors,) * 6,
    *(attack_points,) * 3,
    *(attack_distribution,) * 3,
    attack_preconditioner,
    attack_model,
)


def spoil_some(arrays: list[Any], chance: random.Random, rng: Any) -> list[Any]:
    """Make one or more of some arrays bad."""
    bad = {chance.randrange(len(arrays)), *(k for k in range(len(arrays)) if chance.random() < 0.2)}
    return [spoil(a, chance, rng) if k in bad else a for k, a in enumerate(arrays)]


def spoil(array: Any, chance: random.Random, rng: Any) -> Any:
    """Make an array bad: change its type, its numbers or its shape."""
    value = np.array(array, dtype=np.float64)
    made = chance.choice((change_kind, change_numbers, change_shape))(value, chance, rng)
    SPOILED.append(made)
    return made


def change_kind(value: np.ndarray, chance: random.Random, rng: Any) -> Any:
    """Return the same numbers in another type of container."""
    tensor, kind = torch.from_numpy(value.copy()), chance.choice(KINDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the data of this attack
        return kind(value, tensor)


KINDS: tuple[Callable[[np.ndarray, Tensor], Any], ...] = (
    lambda v, t: t.to(torch.float8_e4m3fn),
    lambda v, t: t.to(torch.float8_e5m2),
    lambda v, t: t.to_sparse(),
    lambda v, t: t.to("meta"),
    lambda v, t: t.half(),
    lambda v, t: t.bfloat16(),
    lambda v, t: t.float(),
    lambda v, t: t.to(torch.complex128),
    lambda v, t: t.int(),
    lambda v, t: t.bool(),
    lambda v, t: t.requires_grad_(),
    lambda v, t: list(t),
    lambda v, t: t.tolist(),
    lambda v, t: tuple(v),
    lambda v, t: v + 1j,
    lambda v, t: v[::-1],
    lambda v, t: np.asfortranarray(v),
    lambda v, t: v.astype(">f8"),
    lambda v, t: v.astype(np.float16),
    lambda v, t: v.astype(np.longdouble),
    lambda v, t: v.astype(object),
    lambda v, t: v.astype(str),
    lambda v, t: v.astype("datetime64[s]"),
    lambda v, t: np.ma.masked_array(v, mask=v > 0),
    lambda v, t: np.broadcast_to(v, v.shape),
    lambda v, t: np.asmatrix(np.atleast_2d(v)),
    lambda v, t: v.tobytes(),
    lambda v, t: memoryview(v.tobytes()).cast("d"),
    lambda v, t: iter(v.tolist()),
    lambda v, t: {"x": 1},
    lambda v, t: {1.0, 2.0},
    lambda v, t: "1 2 3",
    lambda v, t: None,
    lambda v, t: object,
    lambda v, t: np.float64(1.5),
    lambda v, t: 10**400,
    lambda v, t: True,
    lambda v, t: torch.nested.nested_tensor([torch.ones(2)]),
    lambda v, t: torch.nn.Parameter(t),
    lambda v, t: torch.quantize_per_tensor(t.float(), 0.1, 0, torch.quint8),
)


def change_numbers(value: np.ndarray, chance: random.Random, rng: Any) -> Any:
    """Return an array with numbers that are not finite, huge, tiny or all equal."""
    wild = (np.nan, np.inf, -np.inf, 1e308, 1e200, 1e154, 1e100, 1e30, 1e-30, 5e-324, 0.0, -1.0)
    number = chance.choice(wild)
    if chance.random() < 0.5:
        value[...] = number
    elif value.size:
        value.flat[chance.randrange(value.size)] = number
    return torch.from_numpy(value) if chance.random() < 0.5 else value


def change_shape(value: np.ndarray, chance: random.Random, rng: Any) -> Any:
    """Return another shape: transposed, empty, with missing or extra axes, ragged, or deeply
    nested.
    """
    nested: Any = 1.0
    for _ in range(chance.choice((2, 33, 65, 100, 2000))):
        nested = [nested]
    shape = tuple(chance.randint(0, 4) for _ in range(chance.randint(0, 5)))
    others = (value.T, value[None], value[0], value[:0], np.concatenate([value, value]))
    return chance.choice((*others, [[1.0], [1.0, 2.0]], nested, rng.normal(size=shape)))


def check_finite(results: Any) -> None:
    """Check that all numbers of a result are finite."""
    for result in results:
        tensor = torch.as_tensor(result)
        if tensor.is_complex() or not bool(torch.isfinite(tensor).all()):
            raise Defect("numbers that are not finite, or not real, were passed on")


def check_nothing_lost() -> None:
    """Check that no array was accepted whose numbers lose information when they are converted."""
    for array in SPOILED:
        if isinstance(array, Tensor):
            complex_, masked = array.is_complex() and bool(array.imag.any()), False
        else:
            complex_ = isinstance(array, np.ndarray) and array.dtype.kind == "c"
            masked = isinstance(array, np.ma.MaskedArray) and bool(np.ma.getmaskarray(array).any())
        if complex_ or masked:
            raise Defect(f"{'imaginary parts' if complex_ else 'a mask'} went unnoticed")


ATTACKS = (Attack("arrays", 50_000, prepare, attempt, sample=80),)
