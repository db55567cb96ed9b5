"""Arrays: what NumPy users have is taken at every door, the rest is refused in one line."""

from __future__ import annotations

import array
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import strict
import torch
from torch import Tensor

from innerloop.arrays import as_tensor
from innerloop.errors import InputError
from innerloop.identification.identification import identify
from innerloop.problems.bernoulli_bandits import BernoulliBandit, BernoulliBandits
from innerloop.problems.gaussian_mixture import ClusteringProblem
from innerloop.problems.linear_bandits import LinearBandit, LinearBandits
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.problems.mdp import TabularMDP
from innerloop.problems.mixture_of_regressions import MixtureProblem
from innerloop.problems.network_regression import NetworkProblem
from innerloop.problems.principal_components import PCAProblem
from innerloop.problems.sparse_recovery import SparseRecovery
from innerloop.transformer import Layout


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run without the checks of annotations, as users do."""
    monkeypatch.setattr(strict, "MOST", 0)


ROWS = [[2.0, 1.0], [1.0, 3.0]]
GRID = np.array(ROWS)


class Frame:
    """A table as pandas has it: no array, but `__array__` makes one."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(ROWS, dtype=dtype)


def read_only() -> Any:
    grid = GRID.copy()
    grid.flags.writeable = False
    return grid


TAKEN: dict[str, Any] = {
    "lists": ROWS,
    "tuples": tuple(map(tuple, ROWS)),
    "whole numbers": [[2, 1], [1, 3]],
    "an array": GRID,
    "negative strides": GRID[::-1, ::-1][::-1, ::-1][::1],
    "reversed": np.array(ROWS[::-1])[::-1],
    "not contiguous": np.repeat(np.repeat(GRID, 2, 0), 3, 1)[::2, ::3],
    "Fortran order": np.asfortranarray(GRID),
    "read-only": read_only(),
    "big-endian": GRID.astype(">f8"),
    "big-endian whole numbers": GRID.astype(">i4"),
    "float16": GRID.astype(np.float16),
    "float32": GRID.astype(np.float32),
    "long double": GRID.astype(np.longdouble),
    "uint8": GRID.astype(np.uint8),
    "uint64": GRID.astype(np.uint64),
    "nothing masked": np.ma.masked_array(GRID, mask=False),
    "a list of arrays": [GRID[0], GRID[1]],
    "a list of tensors": [torch.tensor(row) for row in ROWS],
    "lists of scalar tensors": [[torch.tensor(entry) for entry in row] for row in ROWS],
    "tensors beside lists": [torch.tensor(ROWS[0], dtype=torch.float64), ROWS[1]],
    "lists of NumPy numbers": [[np.float32(2), np.int8(1)], [np.float64(1), 3]],
    "lists of array.array": [array.array("d", row) for row in ROWS],
    "an object with __array__": Frame(),
    "a tensor": torch.tensor(ROWS, dtype=torch.float64),
    "a float32 tensor": torch.tensor(ROWS),
    "a half tensor": torch.tensor(ROWS).half(),
    "a bfloat16 tensor": torch.tensor(ROWS).bfloat16(),
    "an int tensor": torch.tensor(ROWS).to(torch.int16),
    "a transposed tensor": torch.tensor(ROWS).mT.contiguous().mT,
    "an expanded tensor": torch.tensor(ROWS).expand(1, 2, 2)[0],
    "a tensor with gradient": torch.tensor(ROWS, requires_grad=True),
}


def sparse(layout: str) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that CSR is in beta
        return getattr(torch.tensor(ROWS), layout)()


def make_quantised() -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that it is deprecated
        return torch.quantize_per_tensor(torch.tensor(ROWS), 0.1, 0, torch.qint8)


def make_nested() -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that it is a prototype
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(1)])


def nest(depth: int) -> Any:
    value: Any = 1.0
    for _ in range(depth):
        value = [value]
    return value


def contain_itself() -> Any:
    value: list[Any] = []
    value += [value, value]
    return value


class Liar:
    """Its `__array__` fails."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise OSError("the disk\nis gone")


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "float8": (lambda: torch.tensor(ROWS).to(torch.float8_e4m3fn), "torch.float8_e4m3fn: convert"),
    "sparse": (lambda: sparse("to_sparse"), "a sparse tensor: convert it with .to_dense()"),
    "sparse rows": (lambda: sparse("to_sparse_csr"), "a sparse tensor: convert"),
    "meta": (lambda: torch.tensor(ROWS, device="meta"), "a tensor without data"),
    "quantised": (make_quantised, "quantised tensor: convert it with .dequantize()"),
    "nested": (make_nested, "a nested tensor"),
    "complex tensor": (lambda: torch.tensor(ROWS, dtype=torch.complex64), "complex numbers"),
    "complex array": (lambda: GRID + 0j, "complex numbers"),
    "complex entry": (lambda: [[1.0, 2.0], [1.0, 3j]], "complex numbers"),
    "a list of complex tensors": (lambda: [torch.tensor([1j, 1])] * 2, "complex numbers"),
    "masked": (lambda: np.ma.masked_array(GRID, mask=np.eye(2, dtype=bool)), "2 masked entries"),
    "a list of masked arrays": (
        lambda: [np.ma.masked_array(GRID[0], mask=[False, True]), GRID[1]],
        "1 masked entries",
    ),
    "a masked entry": (lambda: [[1.0, np.ma.masked], [1.0, 2.0]], "1 masked entries"),
    "objects": (lambda: np.array([[1, None], [2, 3]]), "objects"),
    "None": (lambda: None, "NoneType"),
    "a dictionary": (lambda: {"x": 1}, "dict"),
    "text": (lambda: "1, 2", "text"),
    "texts": (lambda: [["1", "2"], ["3", "4"]], "text"),
    "bytes": (lambda: np.array([[b"1"]]), "text"),
    "dates": (lambda: np.array([["2020-01-01"]], dtype="datetime64[D]"), "datetime64"),
    "records": (lambda: np.zeros(2, dtype=[("a", "f8")]), "void"),
    "rows of different lengths": (lambda: [[1.0, 2.0], [3.0]], "rows of one length"),
    "tensors of different lengths": (
        lambda: [torch.ones(2), torch.ones(3)],
        "rows of one length",
    ),
    "a huge whole number": (lambda: [[10**400, 1], [1, 1]], "objects"),
    "nested a hundred deep": (lambda: nest(100), "nested more than"),
    "nested ten thousand deep": (lambda: nest(10_000), "nested more than"),
    "a list in itself": (contain_itself, "nested more than"),
    "what fails itself": (Liar, "OSError: the disk"),
}


@pytest.mark.parametrize("kind", TAKEN)
def test_what_numpy_users_have_is_taken(kind: str) -> None:
    taken = as_tensor(TAKEN[kind])
    assert taken.tolist() == ROWS
    assert taken.dtype in (torch.float32, torch.float64)


def test_tensors_keep_their_precision_and_arrays_are_copied() -> None:
    single, double = torch.ones(2), torch.ones(2, dtype=torch.float64)
    assert as_tensor(single) is single
    assert as_tensor(double) is double
    assert as_tensor([single, single]).dtype == torch.float32
    assert as_tensor(single.half()).dtype == torch.float32
    assert as_tensor(np.ones(2, dtype=np.float32)).dtype == torch.float64
    assert as_tensor([True, False]).tolist() == as_tensor(torch.tensor([True, False])).tolist()
    grid = GRID.copy()
    taken = as_tensor(grid)
    grid[:] = 7
    assert taken.tolist() == ROWS


PROBLEM = LinearRegression(d=2, n=2).sample(generator=torch.Generator().manual_seed(0))
PROBLEMS = LinearRegression(d=2, n=5)


def answer(value: Any) -> Any:
    return identify(lambda X, y, q: value, PROBLEMS, prompts=2, algorithms=["averaging"])


DOORS: dict[str, Callable[[Any], Any]] = {
    "as_tensor": as_tensor,
    "x": lambda value: RegressionProblem.from_arrays(value, [1, 2], [1, 2]),
    "y": lambda value: RegressionProblem.from_arrays(ROWS, value, [1, 2]),
    "weights": lambda value: RegressionProblem.from_arrays(ROWS, [1, 2], [1, 2], weights=value),
    "start": lambda value: PCAProblem.from_arrays(ROWS, value),
    "centres": lambda value: ClusteringProblem.from_arrays(ROWS, value),
    "betas": lambda value: MixtureProblem.from_arrays(ROWS, [1, 2], [1, 2], ROWS, value),
    "network": lambda value: NetworkProblem.from_arrays(ROWS, [1, 2], [1, 2], [value]),
    "covariance": lambda value: LinearRegression(d=2, covariance=value),
    "spectrum": lambda value: LinearRegression(d=2, spectrum=value),
    "variances": lambda value: SparseRecovery(d=2, sparsity=1, variances=value),
    "prior": lambda value: LinearBandits(d=2, prior=value),
    "chances": lambda value: BernoulliBandits(arms=2, chances=value),
    "with_queries": PROBLEM.with_queries,
    "make_tokens": lambda value: Layout(x=2).make_tokens(x=value),
    "beside others": lambda value: Layout(x=2, y=2).make_tokens(x=torch.ones(2, 2), y=value),
    "identify": answer,
}
PARAMETERS = ("covariance", "spectrum", "variances", "chances", "prior")
DIRECT: dict[str, Callable[[Any], Any]] = {
    "problem": lambda value: RegressionProblem(value, PROBLEM.y, PROBLEM.x_query),
    "linear bandit": lambda value: LinearBandit(value, PROBLEM.y),
    "Bernoulli bandit": BernoulliBandit,
    "decision process": lambda value: TabularMDP(value, value, value),
}


@pytest.mark.parametrize("door", DOORS)
def test_the_rest_is_refused_in_one_line(door: str) -> None:
    for kind, (make, message) in REFUSED.items():
        value = make()
        if value is None and door in ("weights", "betas"):
            continue
        if isinstance(value, str | None) and door in PARAMETERS:
            continue  # which may be words, or left out
        with pytest.raises(InputError) as refused:
            DOORS[door](value)
        said = str(refused.value)
        assert message in said, f"{kind} at {door}: {said}"
        assert "\n" not in said
        assert len(said) < 300


@pytest.mark.parametrize("door", DIRECT)
def test_tensors_of_other_kinds_are_refused_in_one_line(door: str) -> None:
    for make, message in REFUSED.values():
        value = make()
        if isinstance(value, Tensor):
            with pytest.raises(InputError) as refused:
                DIRECT[door](value)
            assert message in str(refused.value)
            assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", TAKEN)
def test_every_door_takes_them(kind: str) -> None:
    value: Any = TAKEN[kind]
    assert (
        RegressionProblem.from_arrays(value, value[0], value[1]).x.tolist() == ROWS
        if (not isinstance(value, Frame))
        else RegressionProblem.from_arrays(ROWS, [1, 2], value).x_query.tolist() == ROWS
    )
    covariance = LinearRegression.from_values({"d": 2, "covariance": value}).covariance
    assert covariance is not None
    assert covariance.dtype == torch.float64
    assert covariance.tolist() == ROWS
    dtype = value.dtype if torch.is_tensor(value) else as_tensor(value).dtype
    ones = torch.ones(2, dtype=dtype if dtype.is_floating_point else torch.float64)
    assert Layout(x=2, y=()).make_tokens(x=value, y=ones)[:, :2].tolist() == ROWS
    queries = PROBLEM.with_queries(value).x_query
    assert queries.squeeze(-2).tolist() == ROWS
    assert answer_shape(value) == (1, 2, 2)


def answer_shape(value: Any) -> tuple[int, ...]:
    from innerloop.identification.models import FunctionModel, predict_layers

    problem = PROBLEMS.sample(2, generator=torch.Generator().manual_seed(0))
    return tuple(predict_layers(FunctionModel(lambda X, y, q: value), problem).shape)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused(value: float) -> None:
    bad = GRID.copy()
    bad[1, 0] = value
    for door in ("x", "start", "betas", "covariance", "make_tokens"):
        with pytest.raises(InputError, match=r"must be finite, got .*NaN"):
            DOORS[door](bad)


@pytest.mark.parametrize("door", [name for name in DOORS if name != "as_tensor"])
def test_empty_arrays_are_refused(door: str) -> None:
    for empty in ([], np.zeros((0, 2)), torch.zeros(2, 0), [[], []]):
        with pytest.raises(InputError) as refused:
            DOORS[door](empty)
        assert "\n" not in str(refused.value)


def test_parameters_are_copies() -> None:
    given = torch.tensor(ROWS, dtype=torch.float64)
    distribution = LinearRegression(d=2, covariance=given)
    given.zero_()
    assert distribution.covariance is not None
    assert distribution.covariance.tolist() == ROWS


def test_scalars_in_place_of_queries_and_starts_are_refused_in_one_line() -> None:
    with pytest.raises(InputError, match="expected x"):
        RegressionProblem.from_arrays([1.0, 2.0], 3.0, 4.0)
    with pytest.raises(InputError, match="expected x"):
        PCAProblem.from_arrays([1.0, 2.0], 3.0)
