"""Every problem class: selecting, converting, queries and prefixes, and what is refused."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor
from worlds import make_generator

from innerloop.errors import InputError
from innerloop.parameters import parameter
from innerloop.problems.base import Distribution
from innerloop.problems.gaussian_mixture import ClusteringProblem
from innerloop.problems.linear_bandit_games import BanditGameProblem
from innerloop.problems.linear_bandits import LinearBandits
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.problems.mixture_of_regressions import MixtureProblem
from innerloop.problems.network_regression import NetworkProblem, NetworkRegression
from innerloop.problems.principal_components import PCAProblem
from innerloop.problems.problem import Problem
from innerloop.problems.tabular_games import TabularGameProblem, TabularGames
from innerloop.registry import find_member, load_members

DISTRIBUTIONS = load_members("problems", Distribution)
OF_PROBLEMS = [kind for kind in DISTRIBUTIONS.values() if issubclass(kind.problem_type, Problem)]
CASES = [pytest.param(kind, case, id=kind.__name__) for kind in OF_PROBLEMS for case in kind.cases]
WITH_QUERIES = (RegressionProblem, MixtureProblem, NetworkProblem)


def test_all_problem_classes_are_drawn_here() -> None:
    assert {kind.problem_type for kind in OF_PROBLEMS} == {
        RegressionProblem,
        PCAProblem,
        ClusteringProblem,
        MixtureProblem,
        NetworkProblem,
        BanditGameProblem,
        TabularGameProblem,
    }


def name_tensors(problem: Problem) -> dict[str, Tensor]:
    """All tensors by name, without asking the problem."""
    named = {}
    for name, value in vars(problem).items():
        parts = enumerate(value) if isinstance(value, tuple) else [("", value)]
        named |= {f"{name}{j}": part for j, part in parts if isinstance(part, Tensor)}
    return named


def assert_tensors(problem: Problem, expected: dict[str, Tensor]) -> None:
    found = name_tensors(problem)
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert tensor.dtype == expected[name].dtype, name
        assert torch.equal(tensor, expected[name]), name


@pytest.mark.parametrize("distribution", DISTRIBUTIONS.values())
def test_the_problem_type_is_what_sample_gives(distribution: type[Distribution]) -> None:
    for case in distribution.cases:
        sample = distribution.from_values(case).sample(2, generator=make_generator())
        assert type(sample) is distribution.problem_type


def test_a_distribution_without_its_problem_type_is_named(tmp_path) -> None:
    file = tmp_path / "half.py"
    file.write_text(
        "from innerloop.problems.base import Distribution\n"
        "class Forgetful(Distribution):\n"
        "    source = 'nowhere'\n"
        "    def sample(self, *batch, generator=None, dtype=None): ...\n"
    )
    with pytest.raises(InputError, match="Forgetful lacks problem_type, cases"):
        find_member("problems", Distribution, f"{file}:Forgetful")


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_instances_are_selected_by_the_batch_dimensions(kind, case: dict) -> None:
    problem = kind.from_values(case).sample(3, 2, generator=make_generator())
    tensors = name_tensors(problem)
    assert (len(problem), problem.batch) == (3, (3, 2))
    mask = torch.tensor([True, False, True])
    places = [1, -1, (2, 1), slice(2), slice(None, None, 2), (slice(1, None), 1), (), (slice(9),)]
    for place in [*places, mask, torch.tensor([2, 0])]:
        expected = {name: tensor[place] for name, tensor in tensors.items()}
        assert_tensors(problem[place], expected)
        assert type(problem[place]) is kind.problem_type
    assert problem[1].batch == (2,)
    assert problem[0, 1].batch == ()
    assert [each.batch for each in problem] == [(2,)] * 3
    assert_tensors(list(problem)[2], {name: tensor[2] for name, tensor in tensors.items()})


@pytest.mark.parametrize("kind", OF_PROBLEMS)
def test_indices_out_of_range_name_the_batch(kind: type[Distribution]) -> None:
    problem = kind.from_values(kind.cases[0]).sample(3, 2, generator=make_generator())
    for index in (3, -4, (0, 2), (slice(None), 2), slice(None, None, -1)):
        with pytest.raises(InputError, match=r"^expected an index within .* \(3, 2\), got"):
            problem[index]
    with pytest.raises(InputError, match=r"one instance of a batch of dimensions \(3, 2\)"):
        problem[2:1]
    with pytest.raises(InputError, match=r"at most 2 indices .* dimensions \(3, 2\), got 3"):
        problem[0, 0, 0]
    for index in (None, True, "x", 1.0, ..., (0, None)):
        # The annotations would refuse these first; users run without them.
        with pytest.raises(InputError, match="expected a whole number or a slice as index, got"):
            inspect.unwrap(Problem.__getitem__)(problem, index)
    single = problem[0, 0]
    with pytest.raises(InputError, match=r"at most 0 indices .* dimensions \(\), got 1"):
        single[0]
    with pytest.raises(InputError, match=rf"a batch of {type(problem).__name__}, got a single"):
        len(single)


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_precision_and_device(kind, case: dict) -> None:
    problem = kind.from_values(case).sample(2, generator=make_generator())
    tensors = name_tensors(problem)
    for where in (torch.float32, torch.float64, "cpu", torch.device("cpu")):
        converted = {
            name: tensor.to(where) if tensor.is_floating_point() else tensor
            for name, tensor in tensors.items()
        }
        assert_tensors(problem.to(where), converted)
    seen = []
    copy = problem.map_tensors(lambda tensor: seen.append(tensor) or tensor.clone())
    assert [id(tensor) for tensor in seen] == [id(tensor) for tensor in tensors.values()]
    assert_tensors(copy, tensors)
    rest = [name for name, value in vars(problem).items() if isinstance(value, tuple)]
    assert all(len(vars(copy)[name]) == len(vars(problem)[name]) for name in rest)
    assert getattr(copy, "sizes", None) == getattr(problem, "sizes", None)


def test_a_device_takes_whole_numbers_along() -> None:
    problem = TabularGames().sample(2, generator=make_generator())
    moved: list[object] = []

    class Recorder:
        dtype = torch.int64

        def is_floating_point(self) -> bool:
            return False

        def to(self, where: object) -> Recorder:
            moved.append(where)
            return self

    def record(self: Problem, change: Callable[[Any], Any]) -> Problem:
        change(Recorder())
        return self

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Problem, "map_tensors", record)
        problem.to("cuda")
        problem.to(torch.float32)
    assert moved == ["cuda"]


@pytest.mark.parametrize(("kind", "case"), CASES)
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_queries_repeat_instances(kind, case: dict, batch: tuple[int, ...]) -> None:
    problem = kind.from_values(case).sample(*batch, generator=make_generator())
    if kind.problem_type not in WITH_QUERIES:
        with pytest.raises(InputError, match="a problem with labelled examples and queries, got"):
            problem.with_queries(torch.ones(*batch, 4, 2))
        return
    d = problem.x.shape[-1]
    queries = torch.randn(*batch, 4, d, dtype=torch.float64, generator=make_generator(1))
    found = problem.with_queries(queries)
    rows = batch[-1] if batch else 1
    assert found.batch == (*batch[:-1], 4 * rows)
    whole = problem if batch else problem.map_tensors(lambda tensor: tensor[None])
    fresh = queries if batch else queries[None]
    for lead in range(2) if len(batch) == 2 else [...]:
        for j in range(4 * rows):
            expected = {name: t[lead][j // 4] for name, t in name_tensors(whole).items()}
            query = fresh[lead][j // 4, j % 4]
            single = kind.problem_type is NetworkProblem
            expected["x_query"] = query if single else query[None]
            part = found[lead] if len(batch) == 2 else found
            assert_tensors(part[j], expected)
    with pytest.raises(InputError, match=rf"expected queries \(.*count, {d}\), got"):
        problem.with_queries(torch.ones(*batch, 4, d + 1, dtype=torch.float64))
    with pytest.raises(InputError, match=rf"expected queries \(.*count, {d}\), got"):
        problem.with_queries(torch.ones(7, *batch, 4, d, dtype=torch.float64))


@pytest.mark.parametrize(("kind", "case"), CASES)
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_prefixes_end_at_every_position(kind, case: dict, batch: tuple[int, ...]) -> None:
    problem = kind.from_values(case).sample(*batch, generator=make_generator())
    if kind.problem_type not in WITH_QUERIES:
        with pytest.raises(InputError, match="a problem with labelled examples and queries, got"):
            problem.prefixes()
        return
    network, tensors = kind.problem_type is NetworkProblem, name_tensors(problem)
    found = problem.prefixes()
    assert len(found) == problem.n
    for m, part in enumerate(found, start=1):
        query = problem.x[..., m : m + 1, :]
        if m == problem.n:
            query = problem.x_query[..., None, :] if network else problem.x_query[..., :1, :]
        changed = {
            "x": problem.x[..., :m, :],
            "y": problem.y[..., :m, :] if network else problem.y[..., :m],
            "x_query": query.squeeze(-2) if network else query,
        }
        assert_tensors(part, tensors | changed)


def test_several_queries_are_replaced_by_one_each() -> None:
    problem = LinearRegression(d=2, n=3, queries=5).sample(2, generator=make_generator())
    found = problem.with_queries(problem.x_query)
    assert found.x_query.shape == (10, 1, 2)
    torch.testing.assert_close(found.targets.reshape(2, 5), problem.targets)
    assert torch.equal(problem.prefixes()[-1].x_query, problem.x_query[:, :1])


def set_unchecked(problem: Problem, **change: Any) -> Any:
    """A problem whose shapes the annotations have not seen: users run without them."""
    made = object.__new__(type(problem))
    for name, value in {**vars(problem), **change}.items():
        object.__setattr__(made, name, value)
    return made


def first_tensor(value: Any) -> Tensor:
    return value[0] if isinstance(value, tuple) else value


def change_first(value: Any, change: Callable[[Tensor], Any]) -> Any:
    """Change a tensor, or the first of a tuple of tensors."""
    return (change(value[0]), *value[1:]) if isinstance(value, tuple) else change(value)


@pytest.mark.parametrize("kind", OF_PROBLEMS)
def test_bad_data_are_named_in_every_field(kind: type[Distribution]) -> None:
    problem = kind.from_values(kind.cases[0]).sample(3, generator=make_generator())
    names = [name for name, value in vars(problem).items() if value is not None and name != "sizes"]
    for name in names:
        value, shown = getattr(problem, name), name
        if isinstance(value, tuple):
            shown = rf"{name}\[0\]"
        tensor = first_tensor(value)

        def refuses(change: Callable[[Tensor], Any], says: str) -> None:
            changed = set_unchecked(problem, **{name: change_first(value, change)})  # noqa: B023
            with pytest.raises(InputError, match=says):
                changed.__post_init__()

        maker = f"{type(problem).__name__}.from_arrays"
        taker = maker if hasattr(problem, "from_arrays") else "torch.as_tensor"
        refuses(Tensor.tolist, rf"^{shown} must be a tensor, got list: {taker} takes arrays")
        for change in (lambda t: t[:2], lambda t: t.unsqueeze(0), lambda t: t.flatten()[0]):
            shape = re.escape(str(tuple(change(tensor).shape)))
            field = "weights" if shown != name else name
            refuses(change, rf"^expected .*{field} .*\(\*batch, .*; got .*{shown} {shape}")
        if name == "labels":
            continue
        if tensor.is_floating_point():
            refuses(torch.Tensor.long, rf"{shown} must hold floating-point|is torch.int64 but")
            if not isinstance(problem, TabularGameProblem):  # whose rewards are alone
                refuses(torch.Tensor.float, r"is torch\.float.. but .* is torch\.float..: convert")
            for bad in (torch.nan, torch.inf, -torch.inf):
                refuses(lambda t, bad=bad: torch.full_like(t, bad), f"{shown} must be finite, got")
        else:
            refuses(torch.Tensor.double, rf"^{shown} must be whole numbers, got torch.float64")
            refuses(torch.Tensor.bool, rf"^{shown} must be whole numbers, got torch.bool")
            refuses(lambda t: t + 99, rf"^{shown} must be in 0 … \d+, got \d+ … \d+")
    empty = {
        name: tuple(part[:0] for part in value) if isinstance(value, tuple) else value[:0]
        for name, value in vars(problem).items()
        if name in names
    }
    with pytest.raises(InputError, match=r"^need at least one .*; got .*\(0, "):
        set_unchecked(problem, **empty).__post_init__()


@pytest.mark.parametrize(
    ("kind", "name", "shape", "says"),
    [
        (RegressionProblem, "y", (3, 6), r"x \(\*batch, n, d\), y \(\*batch, n\), x_query "),
        (RegressionProblem, "x_query", (3, 1, 4), r"weights \(\*batch, d\) or None; got x \(3, 7"),
        (RegressionProblem, "weights", (3, 4), r"got .*weights \(3, 4\)$"),
        (PCAProblem, "start", (3, 1, 4), r"start \(\*batch, starts, d\), labels \(\*batch, n\) or"),
        (ClusteringProblem, "labels", (3, 14), r"got .*labels \(3, 14\)$"),
        (MixtureProblem, "start", (3, 2, 4), r"start \(\*batch, components, d\), betas \(\*batch"),
        (MixtureProblem, "betas", (3, 3, 3), r"got .*betas \(3, 3, 3\)$"),
        (NetworkProblem, "y", (3, 6, 1), r"weights from d to m.*got .*y \(3, 6, 1\)"),
        (NetworkProblem, "y", (3, 7, 2), r"weights from d to m.*got .*y \(3, 7, 2\)"),
        (NetworkProblem, "x_query", (3, 2), r"weights from d to m.*got .*x_query \(3, 2\)"),
        (BanditGameProblem, "noise", (3, 7, 3), r"noise \(\*batch, n, d\); got .*noise \(3, 7, 3"),
        (BanditGameProblem, "rewards", (3, 8), r"rewards \(\*batch, n\).*; got .*rewards \(3, 8\)"),
        (TabularGameProblem, "states", (3, 6, 4), r"got states \(3, 6, 4\), actions \(3, 6, 3\)"),
    ],
)
def test_sizes_agree_across_fields(kind: type, name: str, shape: tuple[int, ...], says) -> None:
    distribution = next(each for each in OF_PROBLEMS if each.problem_type is kind)
    problem = distribution.from_values(distribution.cases[0]).sample(3, generator=make_generator())
    changed = set_unchecked(problem, **{name: torch.ones(shape, dtype=torch.float64)})
    with pytest.raises(InputError, match=f"^expected .*{says}"):
        changed.__post_init__()


@dataclass(frozen=True, eq=False)
class ToyProblem(Problem):
    """Every kind of declaration at once."""

    pairs: Float[Tensor, "*batch n 2"]
    counts: Int[Tensor, "*batch n"]
    parts: tuple[Int[Tensor, "*batch _"], ...] | None = None
    label: str = "toy"


def toy(**change: Any) -> ToyProblem:
    parts = (torch.ones(3, 1).long(), torch.ones(3, 6).long())
    return ToyProblem(**{"pairs": torch.ones(3, 4, 2), "counts": parts[1][:, :4], **change})


def test_a_class_of_ones_own_is_checked_by_its_annotations() -> None:
    sizes = torch.ones(3, 1).long(), torch.ones(3, 6).long()
    assert toy(parts=sizes)[1:].parts[1].shape == (2, 6)  # pyright: ignore[reportOptionalSubscript]
    assert toy()[0].label == "toy"
    expected = r"expected pairs \(\*batch, n, 2\), counts \(\*batch, n\), "
    expected += r"parts \(\*batch, _\) each or None; got pairs \(3, 4, 3\), counts \(3, 4\)$"
    with pytest.raises(InputError, match=expected):
        toy(pairs=torch.ones(3, 4, 3))
    with pytest.raises(InputError, match="need at least one instance; got"):
        toy(pairs=torch.ones(3, 0, 2), counts=torch.ones(3, 0).long())
    with pytest.raises(InputError, match="parts must be a tuple of tensors, got list"):
        toy(parts=[torch.ones(3, 1)])
    with pytest.raises(InputError, match="counts must be a tensor, got NoneType"):
        toy(counts=None)

    @dataclass(frozen=True, eq=False)
    class Bare(Problem):
        x: Float[Tensor, "n d"]

    with pytest.raises(TypeError, match=r"shape of x must begin with \*batch, got 'n d'"):
        Bare(torch.ones(2, 2))


def test_the_former_name_of_from_arrays() -> None:
    with pytest.warns(
        DeprecationWarning, match=r"^RegressionProblem\.of is now RegressionProblem\.from_arrays$"
    ):
        problem = RegressionProblem.of([[1, 2], [3, 4]], [1, 2], x_query=[5, 6])
    assert problem.x_query.tolist() == [[5.0, 6.0]]
    with pytest.warns(DeprecationWarning, match=r"^PCAProblem\.of is now PCAProblem\.from_arrays$"):
        assert type(PCAProblem.of([[1.0, 2.0]], [1.0, 0.0])) is PCAProblem
    game = LinearBandits(sets=2).sample(3, generator=make_generator())
    history = game.build_history([], torch.zeros(3, 2).long(), torch.zeros(3, 2).double())
    with pytest.warns(DeprecationWarning, match="of is now BanditGameProblem.from_history"):
        assert BanditGameProblem.of(history).actions.shape == (3, 2)
    with pytest.raises(AttributeError, match="from_arrays"):
        TabularGameProblem.of()


def test_a_tuple_of_tensors_that_is_missing_is_named() -> None:
    problem = NetworkRegression().sample(2, generator=make_generator())
    with pytest.raises(InputError, match=r"^start must be a tuple of tensors, got NoneType"):
        set_unchecked(problem, start=None).__post_init__()
    set_unchecked(problem, teacher=None).__post_init__()


def test_a_replaced_field_is_checked_again() -> None:
    problem = LinearRegression(d=2, n=3).sample(2, generator=make_generator())
    with pytest.raises(InputError, match="y must be finite"):
        replace(problem, y=problem.y * torch.inf)


def test_members_are_frozen_dataclasses_decorated_or_not() -> None:
    class Plain(LinearRegression):
        shift: float = parameter(0.5, "a shift", least=0)

    @dataclass(frozen=True, kw_only=True, eq=False)
    class Decorated(LinearRegression):
        shift: float = parameter(0.5, "a shift", least=0)

    for kind in (Plain, Decorated):
        made = kind(d=3, shift=2)
        assert (made.d, made.shift) == (3, 2.0)
        assert replace(made, shift=1).shift == 1.0
        with pytest.raises(InputError, match="at least 0"):
            kind(shift=-1)
        with pytest.raises(TypeError):
            kind(3)  # pyright: ignore[reportCallIssue]
        for name in ("shift", "d", "other"):
            with pytest.raises(FrozenInstanceError, match=name):
                setattr(made, name, 4)
        with pytest.raises(FrozenInstanceError, match="shift"):
            delattr(made, "shift")
