"""Foreign code may change or store its arguments: no verdict changes.

Every kind of model, candidate and distribution is run twice: on the tensors that it is given, which
it edits, and with edits on its own copies. Both must be identified alike, to the last digit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.algorithms.regression import ExactModel
from innerloop.constructions.preconditioned_gradient_descent import (
    PreconditionedGradientDescentConstruction,
)
from innerloop.errors import InputError
from innerloop.identification.hooked import HookedModel
from innerloop.identification.identification import identify
from innerloop.identification.models import ConstructionModel, Model
from innerloop.identification.modules import build_alternating_prompt
from innerloop.identification.trained import TrainedModel
from innerloop.limits import is_out_of_memory
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.recipes.linear_regression import LinearRegressionRecipe

PROBLEMS = LinearRegression(d=2, n=5, noise=0.1)
QUICK: dict[str, Any] = {"prompts": 16, "steps": 3, "algorithms": ["averaging", "least-squares"]}
Take = Callable[[Tensor], Tensor]


def take_given(tensor: Tensor) -> Tensor:
    return tensor


def take_copy(tensor: Tensor) -> Tensor:
    return tensor.clone()


def average(x: Tensor, y: Tensor, query: Tensor) -> Tensor:
    return ((x * y.unsqueeze(-1)).mean(dim=1) * query).sum(dim=-1)


def take_problem(problem: RegressionProblem, take: Take) -> tuple[Tensor, Tensor, Tensor]:
    """Edit all tensors of a problem in place, also the truth, and return what a model reads."""
    x, y, query = (take(tensor) for tensor in (problem.x, problem.y, problem.x_query))
    y.clamp_(-0.5, 0.5)
    x /= 3
    query.add_(1)
    if problem.weights is not None:
        take(problem.weights).zero_()
    return x, y, query.squeeze(-2)


def make_function(take: Take) -> Any:
    def predict(x: Tensor, y: Tensor, query: Tensor) -> Tensor:
        x, y, query = take(x), take(y), take(query)
        y.clamp_(-0.5, 0.5)
        x /= 3
        query.add_(1)
        return average(x, y, query)

    return predict


def make_numpy_function(take: Take) -> Any:
    """Arrays that share memory with a tensor change it unseen by torch."""

    def predict(x: Tensor, y: Tensor, query: Tensor) -> Any:
        a, b, c = (take(tensor).numpy() for tensor in (x, y, query))
        b[b > 0.5] = 0.5
        a /= 3
        return (((a * b[..., None]).mean(axis=1) + 1) * c).sum(axis=-1)

    return predict


def make_view(take: Take) -> Any:
    """The answer is a view of an input, which is edited when the next one comes."""
    answers: list[Tensor] = []

    def predict(x: Tensor, y: Tensor, query: Tensor) -> Tensor:
        for answer in answers:
            answer.fill_(7)
        answers.append(take(y)[:, 1].mul_(2))
        return answers[-1] if take is take_given else answers[-1].clone()

    return predict


def make_keeper(take: Take) -> Any:
    """Inputs are kept, and edited later."""
    kept: list[Tensor] = []

    def predict(x: Tensor, y: Tensor, query: Tensor) -> Tensor:
        for tensor in kept:
            tensor.mul_(-3)
        kept.extend(map(take, (x, y, query)))
        return average(x, y, query) + 0.1

    return predict


def make_buffer(take: Take) -> Any:
    """One tensor holds every answer."""
    buffer = torch.zeros(64, dtype=torch.float64)

    def predict(x: Tensor, y: Tensor, query: Tensor) -> Tensor:
        answer = buffer[: len(x)]
        answer.copy_(average(x, y, query))
        return take(answer)

    return predict


@dataclass(frozen=True, eq=False)
class OwnModel(Model):
    """A model of somebody's own with two layers."""

    take: Take

    @property
    def layers(self) -> list[str]:
        return ["one", "two"]

    def predict(self, problem: RegressionProblem) -> Tensor:
        x, y, query = take_problem(problem, self.take)
        return torch.stack([average(x, y, query), average(x, y, query + 1)]).unsqueeze(-1)


class Blocks(nn.Module):
    """Layers that edit their input and the stream in place, as memory-saving code does."""

    def __init__(self, take: Take) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.take = take
        self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]).double()

    def forward(self, tokens: Tensor) -> Tensor | None:
        stream = self.take(tokens).relu_()
        for layer in self.layers:
            stream = self.take(layer(stream).sin())
            stream = self.take(stream)
        return stream


class Residual(Blocks):
    """The output of a layer is the stream itself, to which the next layer adds in place."""

    def __init__(self, take: Take) -> None:
        super().__init__(take)
        self.layers = nn.ModuleList([Adder(take, 0), Adder(take, 1)])

    def forward(self, tokens: Tensor) -> None:
        stream = self.take(tokens)
        for layer in self.layers:
            stream = layer(stream)
        if self.take is take_given:
            stream.zero_()


class Adder(nn.Module):
    def __init__(self, take: Take, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.take, self.mix = take, nn.Linear(2, 2).double()

    def forward(self, stream: Tensor) -> Tensor:
        stream = self.take(stream)
        stream += self.mix(stream).cumsum(dim=1).tanh()
        return stream


def make_hooked(take: Take) -> Any:
    return HookedModel.fit(Blocks(take), PROBLEMS, prompts=40)


def make_residual(take: Take) -> Any:
    return HookedModel.fit(Residual(take), PROBLEMS, prompts=40, everywhere=True)


def make_prompt_editor(take: Take) -> Any:
    def prompt(problem: RegressionProblem) -> Tensor:
        x, y, query = take_problem(problem, take)
        return build_alternating_prompt(RegressionProblem(x, y, query.unsqueeze(-2)))

    return HookedModel.fit(Blocks(take_given), PROBLEMS, prompt, prompts=40)


def make_construction(take: Take) -> Any:
    class Own(PreconditionedGradientDescentConstruction):
        def prompt(self, problem: RegressionProblem) -> Tensor:
            x, y, query = take_problem(problem, take)
            return super().prompt(RegressionProblem(x, y, query.unsqueeze(-2)))

    construction = Own(d=2, n=5, steps=2)
    return ConstructionModel(construction, construction.transformer)


def make_trained(take: Take) -> Any:
    class Own(LinearRegressionRecipe):
        def predict_layers(self, model: nn.Module, problem: RegressionProblem) -> Tensor:
            x, y, query = take_problem(problem, take)
            changed = RegressionProblem(x, y, query.unsqueeze(-2))
            return super().predict_layers(model, changed)

    recipe = Own(d=2, n=5, blocks=2)
    model = recipe.build_model(torch.Generator().manual_seed(0)).double()
    return TrainedModel(recipe, model)


MODELS = [
    *(make_function, make_numpy_function, make_view, make_keeper, make_buffer, OwnModel),
    *(make_hooked, make_residual, make_prompt_editor, make_construction, make_trained),
]


def describe(found: Any) -> str:
    return json.dumps([found.as_dict(), found.score_table.scores.tolist()])


@pytest.mark.parametrize("make", MODELS)
def test_a_model_may_edit_what_it_gets(make: Callable[[Take], Any]) -> None:
    apart, together = (identify(make(take), PROBLEMS, **QUICK) for take in (take_copy, take_given))
    assert describe(together) == describe(apart)


def test_measures_and_figures_see_what_the_verdict_saw() -> None:
    rows = []
    for take in (take_copy, take_given):
        model = OwnModel(take)
        tables = identify(model, PROBLEMS, **QUICK).compute_tables(model, 2)
        rows.append(
            {name: {k: t.tolist() for k, t in each.items()} for name, each in tables.items()}
        )
    assert repr(rows[0]) == repr(rows[1])


@dataclass(frozen=True, eq=False)
class OwnDescent(GradientDescent):
    """Gradient descent that edits its state in place."""

    special_case_of: ClassVar[tuple[str, ...]] = ()

    def step(self, problem: RegressionProblem, state: Tensor, k: int) -> Tensor:
        new = super().step(problem, state, k)
        return new if new.requires_grad else state.copy_(new)


@dataclass(frozen=True, eq=False)
class Descent(Model):
    """Two layers of gradient descent, with a step size for each."""

    @property
    def layers(self) -> list[str]:
        return ["one", "two"]

    def predict(self, problem: RegressionProblem) -> Tensor:
        descent = GradientDescent(torch.tensor([0.2, 0.7], dtype=torch.float64))
        states = list(descent.states(problem, 2))[1:]
        return torch.stack([descent.predict(problem, state) for state in states])


class Spoiler(ExactModel):
    """A solution that spoils the problem once it has answered."""

    source: ClassVar[str] = "nobody"

    def init(self, problem: RegressionProblem) -> Tensor:
        return problem.x_query.squeeze(-2).clone()

    def predict(self, problem: RegressionProblem, state: Tensor) -> Tensor:
        answer = super().predict(problem, state)
        for tensor in (problem.x, problem.y, problem.x_query, problem.weights):
            assert tensor is not None
            tensor.fill_(3)
        return answer

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[Any]:
        problem.y.zero_()
        return [cls()]


def test_a_candidate_may_edit_its_state() -> None:
    edited, plain = (
        identify(Descent(), PROBLEMS, **{**QUICK, "algorithms": [kind]})
        for kind in (OwnDescent, GradientDescent)
    )
    assert edited.score_table.scores.tolist() == plain.score_table.scores.tolist()
    assert edited.schedule == plain.schedule == "per step"


def test_a_candidate_may_edit_the_problem() -> None:
    model, names = OwnModel(take_copy), ["gradient-descent", "least-squares"]
    alone = identify(model, PROBLEMS, **{**QUICK, "algorithms": names})
    beside = identify(model, PROBLEMS, **{**QUICK, "algorithms": [Spoiler, *names]})
    own = [k for k, match in enumerate(beside.matches) if match.candidate.name in names]
    assert beside.score_table.scores[own].tolist() == alone.score_table.scores.tolist()
    assert beside.errors == alone.errors


@dataclass(frozen=True, kw_only=True, eq=False)
class Reused(LinearRegression):
    """Problems that are drawn into the same memory again and again."""

    def sample(self, *batch: int, **rest: Any) -> RegressionProblem:
        drawn = super().sample(*batch, **rest)
        for name, tensor in vars(drawn).items():
            MEMORY.setdefault(name, torch.zeros(64, *tensor.shape[1:], dtype=torch.float64))
            MEMORY[name][: len(tensor)] = tensor
        return RegressionProblem(**{k: v[: len(drawn.x)] for k, v in MEMORY.items()})


MEMORY: dict[str, Tensor] = {}


def test_a_distribution_may_draw_into_the_same_memory() -> None:
    reused, some = Reused(d=2, n=5, noise=0.1), {**QUICK, "algorithms": ["ridge"]}
    found = [identify(make_function(take_copy), each, **some) for each in (PROBLEMS, reused)]
    assert describe(found[0]) == describe(found[1])


OWN = """
def predict(X, y, query, copy=False):
    if copy:
        X, y, query = X.clone(), y.clone(), query.clone()
    y.clamp_(-0.5, 0.5)
    X /= 3
    return ((X * y[..., None]).mean(dim=1) * query.add_(1)).sum(dim=-1)

def careful(X, y, query):
    return predict(X, y, query, copy=True)

def fails(X, y, query):
    raise RuntimeError("no seat could be allocated\\nin row 3")
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_function_on_the_command_line_may_edit_what_it_gets(run: Any, own: Path) -> None:
    words = ["--problem", "linear-regression", "-s", "d=2", "-s", "n=5", "--prompts", "16"]
    words += ["--candidate", "gradient-descent", "--candidate", "averaging", "--json"]
    found = [json.loads(run("identify", f"own.py:{f}", *words).out) for f in ("predict", "careful")]
    assert {**found[0], "model": ""} == {**found[1], "model": ""}


def test_a_model_that_fails_is_not_out_of_memory(run: Any, own: Path) -> None:
    words = ["--problem", "linear-regression", "-s", "d=2", "-s", "n=5", "--prompts", "16"]
    failed = run("identify", "own.py:fails", *words)
    assert failed.code == 2
    message = "own.py, line 13: RuntimeError: no seat could be allocated"
    assert failed.err == f"innerloop: the model failed: {message}\n"


def test_what_a_model_raises_stays_the_cause() -> None:
    def predict(x: Tensor, y: Tensor, query: Tensor) -> Tensor:
        raise KeyError("lost")

    with pytest.raises(InputError, match=r"the model failed: .*KeyError: 'lost'") as failed:
        identify(predict, PROBLEMS, **QUICK)
    assert isinstance(failed.value.__cause__, KeyError)


def test_a_model_that_takes_all_memory_says_so() -> None:
    def predict(x: Tensor, y: Tensor, query: Tensor) -> Tensor:
        return torch.empty(10**15)

    with pytest.raises(RuntimeError) as failed:
        identify(predict, PROBLEMS, **QUICK)
    assert is_out_of_memory(failed.value)
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("no seat could be allocated"))
