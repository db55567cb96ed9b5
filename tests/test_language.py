"""The language: programs compile to certified weights, and agree with the package's constructions.

Programs of this file are written in other words in `innerloop/constructions`, whose weights are
those that were written by hand once (test_program_weights.py); both must agree.
"""

from __future__ import annotations

import copy
import json
import random
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import innerloop
from innerloop.constructions.gd_plus_plus import GDPlusPlusConstruction
from innerloop.constructions.lista_vm import ListaVMConstruction
from innerloop.constructions.lloyd import LloydConstruction
from innerloop.constructions.newton import NewtonConstruction
from innerloop.constructions.preconditioned_gradient_descent import (
    PreconditionedGradientDescentConstruction,
)
from innerloop.errors import FileError, InputError, OutOfRangeError
from innerloop.language import (
    Bound,
    Data,
    Matrices,
    Number,
    State,
    dot,
    gate,
    mean,
    own_total,
    piecewise,
    program,
    relu,
    soft_threshold,
    softmax,
    total,
)
from innerloop.language.algebra import reduce_rank, solve
from innerloop.language.compiler import Compiled
from innerloop.language.construction import ProgramConstruction
from innerloop.language.drawing import make_rational_marks
from innerloop.language.exactness import check_exactly
from innerloop.language.explaining import describe_blocks, explain_program
from innerloop.language.knots import Knots
from innerloop.language.plan import PlannedBlock
from innerloop.language.rational import run_blocks, to_fractions
from innerloop.problems.gaussian_mixture import GaussianMixture
from innerloop.problems.linear_regression import LinearRegression
from innerloop.problems.sparse_recovery import SparseRecovery
from innerloop.registry import make_member
from innerloop.transformer import make_marks
from innerloop.transformer.marks import find_gap

pytestmark = pytest.mark.usefixtures("law_alone")


@program(x=Data("d"), y=State(), A=Matrices())
def residual_descent(me: Any, A: Any) -> None:
    me.y = me.y - mean(lambda j: dot(me.x, A @ j.x) * j.y)


@residual_descent.answer
def _(me: Any) -> Any:
    return -me.y


@program(x=State("d"), y=State(), A=Matrices(), B=Matrices(scale=0.5, seed=2))
def gd_plus_plus(me: Any, A: Any, B: Any) -> None:
    x = me.x - B @ mean(lambda j: dot(me.x, A @ j.x) * j.x)
    me.y = me.y - mean(lambda j: dot(me.x, A @ j.x) * j.y)
    me.x = x


@gd_plus_plus.answer
def _(me: Any) -> Any:
    return -me.y


@program(x=Data("d"), y=Data(), m=State("d"), alpha=Number(2.0**-14))
def newton(me: Any) -> None:
    me.m = 2 * me.m - total(lambda j: dot(me.m, j.x) * j.m)


@newton.init
def _(me: Any, alpha: Any) -> None:
    me.m = alpha * total(lambda j: dot(me.x, j.x) * j.x)


@newton.answer
def _(me: Any) -> Any:
    return total(lambda j: dot(me.m, j.x) * j.y)


@program(
    prompt="prefixes",
    x=Data("d"),
    y=Data(),
    odd=Data(),
    beta=State("d"),
    M=Matrices(),
    theta=Number(0.0625, least=0),
    bound=Bound(1000.0),
)
def lista_vm(me: Any, M: Any, theta: Any, bound: Any) -> None:
    pull = mean(
        lambda j: (dot(me.beta, j.x) - me.odd * j.y) * j.x,
        over="causal",
        where=lambda j: 1 - me.odd * j.odd,
        reach=bound,
    )
    me.beta = soft_threshold(me.beta - M @ pull, theta)


@lista_vm.readout
def _(me: Any) -> Any:
    return dot(me.beta, me.x)


@program(
    prompt="points",
    x=Data("d"),
    id=Data("K"),
    data=Data(),
    centroid=Data(),
    mu=State("d"),
    sharpness=Number(1e6),
    focus=Number(60.0),
    bound=Bound(30.0),
)
def lloyd(me: Any, d: int, sharpness: Any, focus: Any, bound: Any) -> None:
    product = d * bound * bound
    me.square = own_total(lambda j: 0.5 * relu(dot(me.mu, j.mu)), "id", product)
    me.share = shares(me, sharpness, product)
    middle = softmax(
        lambda j: focus * dot(me.id, j.share),
        lambda j: j.x,
        where=lambda j: j.data,
        reach=2 * focus + 50,
    )
    me.mu = gate(me.centroid, middle, bound)


def shares(me: Any, sharpness: Any, product: Any) -> Any:
    return softmax(
        lambda j: sharpness * (dot(me.x, j.mu) - j.square),
        lambda j: j.id,
        where=lambda j: j.centroid,
        reach=3 * sharpness * product + 50,
    )


@lloyd.answer
def _(me: Any, d: int, sharpness: Any, bound: Any) -> Any:
    product = d * bound * bound
    me.square = own_total(lambda j: 0.5 * relu(dot(me.mu, j.mu)), "id", product)
    return shares(me, sharpness, product)


def predict_all(built: Any, problem: Any) -> torch.Tensor:
    """The answers after every step."""
    return torch.stack(list(built.predictions(problem)))


@pytest.mark.parametrize(
    ("kind", "by_hand", "renamed"),
    [
        (residual_descent, PreconditionedGradientDescentConstruction, {"A": "preconditioners"}),
        (gd_plus_plus, GDPlusPlusConstruction, {"A": "preconditioners", "B": "transforms"}),
        (newton, NewtonConstruction, {"alpha": "alpha"}),
    ],
)
def test_compiled_regression_is_what_was_written_by_hand(
    kind: Any, by_hand: Any, renamed: dict[str, str]
) -> None:
    """The same answers, and the same blocks, heads and width."""
    made = kind(d=3, n=6, steps=3)
    settings = {new: getattr(made.algorithm, old) for old, new in renamed.items()}
    if "alpha" in settings:
        settings = {"alpha": made.alpha}
    one, other = (
        innerloop.build(made, instances=4),
        innerloop.build(by_hand, d=3, n=6, steps=3, instances=4, **settings),
    )
    assert one.certificate.holds
    problem = LinearRegression(d=3, n=6, queries=2).sample(5)
    assert torch.allclose(predict_all(one, problem), predict_all(other, problem), atol=1e-12)
    for name in ("layers", "heads", "width", "hidden"):
        assert getattr(one.certificate, name) == getattr(other.certificate, name)


def test_compiled_lista_vm_needs_two_heads_of_the_four() -> None:
    made = lista_vm(d=4, n=5, steps=3)
    one = innerloop.build(made, instances=6)
    other = innerloop.build(
        ListaVMConstruction(d=4, n=5, steps=3, preconditioners=made.algorithm.M, threshold=0.0625),
        instances=2,
    )
    assert one.certificate.holds
    problem = SparseRecovery(d=4, n=5, sparsity=2, noise=0.1).sample(4)
    assert torch.allclose(predict_all(one, problem), predict_all(other, problem), atol=1e-12)
    assert (one.certificate.heads, other.certificate.heads) == (2, 4)
    assert one.certificate.layers == other.certificate.layers
    assert one.certificate.width == other.certificate.width


def test_compiled_lloyd_is_the_construction() -> None:
    sizes = {"d": 2, "n": 12, "clusters": 3, "steps": 3}
    one = innerloop.build(lloyd(**sizes), instances=4)
    other = innerloop.build(LloydConstruction(**sizes, sharpness=1e6, margin=1e-4), instances=2)
    assert one.certificate.holds
    generator = torch.Generator().manual_seed(5)
    problem = GaussianMixture(d=2, n=12, clusters=3).sample(3, generator=generator)
    assert torch.allclose(predict_all(one, problem), predict_all(other, problem), atol=1e-9)
    counts = lloyd(**sizes).compiled.count()
    assert (counts["blocks"], counts["heads"]) == (3, 1)
    assert one.certificate.width == other.certificate.width


def test_constructions_are_compared_with_their_programs_exactly() -> None:
    """In rational arithmetic, which the compiled plan of another program may share."""
    assert innerloop.exact("newton", d=2, n=3, points=2).degree == 3
    made = newton(d=2, n=3, steps=1)
    by_hand = NewtonConstruction(d=2, n=3, steps=1, alpha=made.alpha)
    problem = LinearRegression(d=2, n=3).sample(1)[0]
    problem = problem.map_tensors(lambda tensor: (4 * tensor).round())
    algorithm = made.algorithm
    states = list(algorithm.states(problem, 1))
    stream = to_fractions(by_hand.prompt(problem))
    for blocks, state in ((by_hand.prologue(), states[0]), (by_hand.body(0), states[1])):
        stream = run_blocks(blocks, stream, 3)
        found = stream[:, list(by_hand.layout["m"].places)].astype(float)
        assert np.allclose(found, state.m.numpy(), rtol=1e-12, atol=0)
    plan = made.compiled.steps[0]
    assert plan.blocks[0].heads[0].value == {
        (("m", i), ("m", i)): Fraction(-1, 2) for i in range(2)
    }, "the compiler finds Newton's −½ by itself"


@pytest.mark.parametrize(
    "name", ["gd-plus-plus", "lista-vm-linear", "network-gradient-descent", "spectral-clustering"]
)
def test_constructions_that_became_programs_are_exact(name: str) -> None:
    fewer = {"spectral-clustering": {"knots": 40}, "network-gradient-descent": {"width": 2}}
    found = innerloop.exact(name, points=2, d=2, n=3, **fewer.get(name, {}))
    assert found.equal, found.difference


def test_marks_are_compared_as_corners_of_the_24_cell_and_more_are_refused() -> None:
    found = innerloop.exact("mixture-of-two-regressions", knots=10, points=2)
    assert found.equal, found.text
    assert found.lines == 1
    with pytest.raises(InputError, match="the marks 'p' are points on circles"):
        innerloop.exact("mixture-of-two-regressions", knots=10, n=25, points=1)


@pytest.mark.parametrize("count", [1, 4, 8, 10, 17, 24])
def test_rational_marks_are_as_far_apart_as_those_on_circles(count: int) -> None:
    marks = torch.nn.functional.pad(make_marks(count), (0, 0, 0, 2))
    found = make_rational_marks(marks, random.Random(count))
    products = found @ found.mT - torch.diag((marks.abs().sum(-1) > 0).double())
    assert bool((products <= 1 - find_gap(count)).all())
    assert torch.equal(products.diagonal(), torch.zeros(count + 2, dtype=torch.float64))


def test_relu_attention_computes_the_same() -> None:
    problem = LinearRegression(d=3, n=6, queries=2).sample(4)
    linear, rectified = (
        innerloop.compile(newton, d=3, n=6, steps=3, attention=kind, instances=4).predict(problem)
        for kind in ("linear", "relu")
    )
    assert torch.allclose(linear, rectified, atol=1e-12)


@program(x=Data("d"), y=Data(), w=State("d", shared=True))
def bend(me: Any) -> None:
    """Knots, as many units as are stored once for all entries, between two sums."""
    me.bent = piecewise(dot(me.w, me.x), lambda x: x * x.abs(), torch.linspace(-2.0, 3.0, 16))
    me.w = me.w - mean(lambda j: (j.bent - j.y) * j.x)


def list_weights(block: PlannedBlock) -> Any:
    """Yield the name of every weight of a block, and what it is an item of: (holder, key)."""
    for h, head in enumerate(block.heads):
        for name, side in zip(("score", "value"), head, strict=True):
            yield from ((f"{name} {h} of {key}", side, key) for key in side)
    for u, unit in enumerate(block.units):
        yield from ((f"unit {u} reads {key}", unit.reads, key) for key in unit.reads)
        yield from ((f"unit {u} writes {key}", unit.writes, key) for key in unit.writes)
    for each in block.hinges:
        for name, numbers in zip(("slope", "bias", "weight"), each.net, strict=True):
            yield from ((f"{name} of hinge {i}", numbers, i) for i in range(len(numbers)))


def list_mutants(compiled: Compiled, part: str) -> Any:
    """Yield what is wrong and compiled plans with that: a weight off by a thousandth, or 0."""

    def copy_block(number: int) -> tuple[Compiled, PlannedBlock]:
        mutant = copy.deepcopy(compiled)
        return mutant, mutant.plans[part].blocks[number]

    for number, block in enumerate(compiled.plans[part].blocks):
        for index, (what, holder, key) in enumerate(list_weights(block)):
            for factor in (Fraction(1001, 1000), 0) if holder[key] else ():
                mutant, changed = copy_block(number)
                _, again, _ = list(list_weights(changed))[index]
                again[key] *= factor
                yield f"{what} times {float(factor):g}", mutant
        for index, unit in enumerate(block.units):
            mutant, changed = copy_block(number)
            changed.units[index] = unit._replace(bias=unit.bias + Fraction(1, 1000))
            yield f"bias of unit {index}", mutant
        for kind in ("heads", "units", "hinges"):
            for index in range(len(getattr(block, kind))):
                mutant, changed = copy_block(number)
                del getattr(changed, kind)[index]
                yield f"{kind} without {index}", mutant
        for name, values in (
            ("mask", ("all", "causal", "context")),
            ("normalisation", ("1", "1/N")),
        ):
            for value in values:
                if block.heads and getattr(block, name) != value:
                    mutant, changed = copy_block(number)
                    setattr(changed, name, value)
                    yield f"{name} {value}", mutant


GATE = "(('odd', 0), ('odd', 0))"
SURVIVORS = {
    newton: [],
    # A gate a thousandth stronger is closed to the same tokens.
    lista_vm: [f"score {h} of {GATE} times 1.001" for h in (0, 1)],
    # The last hinge is silent up to the last knot, where the range ends.
    bend: [
        "slope of hinge 16 times 0",
        "bias of hinge 16 times 1.001",
        "weight of hinge 16 times 1.001",
        "weight of hinge 16 times 0",
    ],
}


@pytest.mark.parametrize("kind", SURVIVORS)
def test_every_mutant_is_caught_exactly(kind: Any) -> None:
    """Each weight, head, unit, mask and normalisation, made wrong: the exact comparison differs."""
    made = kind(d=1 if kind is bend else 2, n=2, steps=1)
    many = 24 if kind is bend else 8
    whole = check_exactly(made, points=many)
    assert whole.equal
    assert not whole.one_sided, "each is seen active and silent, or proved to have one sign"
    survivors = [
        what
        for what, mutant in list_mutants(made.compiled, "step 1")
        if all(check_exactly(made, points=p, compiled=mutant).equal for p in (1, 4, many))
    ]
    assert survivors == SURVIVORS[kind]


def test_a_weight_off_by_a_millionth_breaks_the_certificate() -> None:
    built = innerloop.compile(residual_descent, d=2, n=4, steps=2, instances=4)
    mutant = copy.deepcopy(built.transformer)
    with torch.no_grad():
        next(iter(mutant.body.parameters())).mul_(1 + 1e-6)
    assert not innerloop.certify(built.construction, mutant, instances=4).holds


def test_numbers_are_declared_parameters() -> None:
    made = lista_vm(d=2, n=3, steps=2, theta=torch.tensor([0.5, 0.25]))
    assert [made.numbers_at(k)["theta"] for k in (0, 1)] == [Fraction(1, 2), Fraction(1, 4)]
    assert not made.looped
    with pytest.raises(InputError, match="theta must be at least 0, got -1"):
        lista_vm(theta=-1.0)
    with pytest.raises(InputError, match="theta must be one number or 8"):
        lista_vm(theta=torch.tensor([0.5, 0.25]))
    with pytest.raises(InputError, match="no parameter called 'thet'; did you mean 'theta'"):
        innerloop.compile(lista_vm, thet=0.1)
    assert newton().numbers_at(0)["alpha"] == Fraction(1, 2**14)


def test_a_range_is_checked_when_a_prompt_is_run() -> None:
    built = innerloop.compile(lista_vm, d=3, n=4, steps=2, bound=2.0, instances=2)
    problem = SparseRecovery(d=3, n=4, sparsity=2).sample(2)
    with pytest.raises(OutOfRangeError, match="times the range"):
        built.predict(problem.map_tensors(lambda tensor: 100 * tensor))


def test_the_compiler_says_what_it_needed_and_saved() -> None:
    explained = explain_program(newton(d=3, n=4))
    step = explained["parts"][1]
    assert (step["blocks"], step["critical_path"], step["heads"]) == (1, 1, 1)
    assert explained["saved"]["in place"] == {"blocks": 0, "heads": 0, "hidden": 6, "width": 2}
    assert "me.m = 2 * me.m" in explained["program"]["text"]


FILE = """
from innerloop.language import *

@program(x=Data("d"), y=Data(), w=State("d", shared=True), v=State("d", shared=True))
def heavy_ball(me, eta=0.1, beta=0.5):
    me.v = beta * me.v - eta * mean(lambda j: (dot(me.w, j.x) - j.y) * j.x)
    me.w = me.w + me.v
"""


def test_the_error_of_knots_is_measured() -> None:
    """Against the bound h²/8 · max|f″|, which a parabola meets everywhere."""
    knots = torch.linspace(-1.0, 3.0, 9, dtype=torch.float64)
    assert abs(float(Knots(lambda x: x**2, knots).errors.max()) - 0.5**2 / 4) < 1e-12
    made = make_member("programs", ProgramConstruction, "logistic-descent", {})
    step = explain_program(made)["parts"][0]
    ((line, error, _),) = [tuple(each.values()) for each in step["knots"]]
    assert line > 0
    assert 0.9 * 0.1**2 / 83.2 < error < 0.1**2 / 83.1


def test_a_users_own_file(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled, saved with its text, verified with the file alone, shown, and identified."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "step.py").write_text(FILE)
    name, words = "step.py:heavy_ball", ["-s", "d=3", "-s", "n=8", "-s", "steps=3"]
    built = run("compile", name, *words, "-o", "w.safetensors", "--figure", "f.svg")
    assert built.code == 0, built.err
    assert "step 1: 1 block (critical path 1)" in built.out
    assert "<svg" in (tmp_path / "f.svg").read_text("utf-8")
    refused = run("verify", "w.safetensors")
    assert refused.code == 2
    assert "--definition step.py:heavy_ball" in refused.err
    assert run("verify", "w.safetensors", "--definition", name, "--instances", "4").code == 0
    exact = run("exact", name, "--json")
    assert exact.code == 0
    assert json.loads(exact.out)["equal"]
    candidates = ["--candidate", "heavy-ball", "--candidate", f"{name}.reference"]
    few = ["--prompts", "8", "--steps", "4", "--json"]
    found = run("identify", "w.safetensors", "--definition", name, *candidates, *few)
    assert found.code == 0, found.err
    assert "heavy" in json.loads(found.out)["verdict"]
    (tmp_path / "other.py").write_text(FILE.replace("me.w + me.v", "me.w + 1 * me.v"))
    with pytest.raises(FileError, match=r"another text of other\.py:heavy_ball"):
        innerloop.verify(tmp_path / "w.safetensors", construction="other.py:heavy_ball")
    assert run("compile", "format-conversion").code == 2


def test_the_reference_is_batched_and_differentiable() -> None:
    made = newton(d=2, n=5)
    problem = LinearRegression(d=2, n=5, queries=2).sample(2, 3)
    alpha = torch.full((1, 2, 3), made.alpha, dtype=torch.float64, requires_grad=True)
    algorithm = made.reference(alpha=alpha)
    *_, state = algorithm.states(problem, 2)
    answer = algorithm.predict(problem, state)
    assert answer.shape == (2, 3, 2)
    single = made.algorithm
    *_, one = single.states(problem[1, 2], 2)
    assert torch.allclose(single.predict(problem[1, 2], one), answer[1, 2])
    (gradient,) = torch.autograd.grad(answer.sum(), alpha)
    assert bool((gradient != 0).all())


def test_exact_linear_algebra_agrees_with_numpy() -> None:
    generator = np.random.default_rng(0)
    for rank in (1, 2, 3):
        left, right = generator.integers(-3, 4, (5, rank)), generator.integers(-3, 4, (rank, 4))
        matrix = left @ right
        rows = [({i: Fraction(1)}, _sparse(row)) for i, row in enumerate(matrix)]
        few = reduce_rank([pair for pair in rows if pair[1]])
        assert len(few) == np.linalg.matrix_rank(matrix)
        total = sum(np.outer(_dense(a, 5), _dense(b, 4)) for a, b in few)
        assert (np.asarray(total) == matrix).all()
    p = generator.integers(-3, 4, (3, 3))
    q = p @ generator.integers(-3, 4, (3, 2))
    found = solve(zip(map(_sparse, p), map(_sparse, q), strict=True))
    assert found is not None
    x = np.array([_dense(found.get(i, {}), 2) for i in range(3)])
    assert (p @ x == q).all()
    assert solve([({0: Fraction(1)}, {}), ({0: Fraction(1)}, {0: Fraction(1)})]) is None


def _sparse(row: Any) -> dict[int, Fraction]:
    return {i: Fraction(int(c)) for i, c in enumerate(row) if c}


def _dense(row: dict[int, Fraction], size: int) -> Any:
    return np.array([row.get(i, Fraction(0)) for i in range(size)], dtype=object)


def test_programs_are_constructions() -> None:
    assert issubclass(newton, ProgramConstruction)
    assert innerloop.list_members("programs")["programs"]
    shown = innerloop.show("program/heavy-ball", d=2)
    assert shown["kind"] == "program"
    assert [part["part"] for part in shown["parts"]] == ["step 1", "read-out"]


def test_the_programs_of_the_page_compile_exactly(tmp_path: Path) -> None:
    page = Path(innerloop.__file__).parent.parent / "docs" / "guide" / "language.md"
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), flags=re.M | re.S)
    path = tmp_path / "page.py"
    path.write_text("\n".join(blocks))
    names = re.findall(r"@program.*\ndef (\w+)", path.read_text())
    assert len(names) == 11
    for name in names:
        assert innerloop.exact(f"{path}:{name}", points=1, d=2, n=2).equal


def test_only_lines_of_the_program_are_told() -> None:
    """An answer that the prompt supplies has no line, whoever asks for the weights."""

    @program(x=Data("d"), y=Data(), w=State("d", shared=True))
    def descend(me, eta=0.1):
        me.w = me.w - eta * mean(lambda j: (dot(me.w, j.x) - j.y) * j.x)

    made = descend(d=2, n=3, steps=2)
    plans = made.compiled.plans
    told = {
        name: [line for block in plan.blocks for line in block.lines]
        for name, plan in plans.items()
    }
    assert [line.text for line in told["step 1"]] == [
        "me.w = me.w - eta * mean(lambda j: (dot(me.w, j.x) - j.y) * j.x)"
    ]
    assert told["read-out"] == []
    step, answer = describe_blocks(made)
    assert step.startswith("step 1: 1 block (critical path 1), up to 1 head, ")
    assert answer.endswith("no line of the program")
