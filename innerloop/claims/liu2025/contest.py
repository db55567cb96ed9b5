"""Section 6: solvers of sparse recovery on the same examples, and which of two is better.

A method's loss is E (ŷ − y)² at the query, on the same examples and queries for all. It has heavy
tails: a step that is too large for a rare X is repeated in every layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from innerloop.algorithms.fista import FISTA, Accelerated
from innerloop.algorithms.ista import ISTA
from innerloop.algorithms.lista_vm import ListaVM as Iteration
from innerloop.algorithms.regression import linear_prediction
from innerloop.claims.evidence import Check, Part
from innerloop.claims.recorded import has_results, recorded
from innerloop.models.lista_vm import ListaVM
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.problems.sparse_recovery import SparseRecovery
from innerloop.recipes.base import Trained, train
from innerloop.recipes.sparse import OVERFLOW, Labels, chosen

Errors = Mapping[str, Tensor]
"""Squared errors of each method, example by example."""
Losses = Mapping[str, Sequence[float]]
"""Of each method the mean of its squared errors, and the standard error of that."""
Solve = Callable[[RegressionProblem, float], Tensor]
"""Weights of every instance at a penalty."""
GPT2 = "GPT-2"
EPOCHS = 10**6
"""Of transformers in the paper."""
PRINTED = 0.68
"""Label loss of LISTA-VM in the paper, trained on many X (Appendix F)."""
PENALTIES = (0.1, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0)
LASSO = (0.02, 0.05, 0.1, 0.2)
TUNING = 200
"""Examples that choose a penalty."""


@dataclass(frozen=True)
class Sizes:
    """The problem, and the layers of every method."""

    d: int
    n: int
    sparsity: int
    blocks: int

    def problems(self, **given: Any) -> SparseRecovery:
        return SparseRecovery(d=self.d, n=self.n, sparsity=self.sparsity, **given)

    def train(self, name: str, seed: int, steps: int, batch: int, **given: Any) -> Trained:
        """A recipe at these sizes, evaluated at its ends unless told otherwise."""
        sizes = {"d": self.d, "n": self.n, "sparsity": self.sparsity, "blocks": self.blocks}
        given = {"steps": steps, "batch": batch, "evaluate_every": steps, **given}
        return train(name, seed=seed, **sizes, **given)

    @property
    def printed(self) -> bool:
        """Whether these are the paper's, to which its numbers belong."""
        return (self.d, self.n, self.sparsity, self.blocks) == (20, 10, 3, 12)


def recovered(trained: Trained, problem: RegressionProblem) -> Tensor:
    """(ŷ − y)² of a learned solver."""
    given = problem.to(torch.float32)
    with torch.no_grad():
        return missed(problem, trained.model(given.x, given.y).double())


def missed(problem: RegressionProblem, found: Tensor) -> Tensor:
    """(⟨x, β̂⟩ − ⟨x, β⟩)² at the query."""
    errors = linear_prediction(problem, found) - problem.targets
    return bounded(errors.squeeze(-1).square())


def transformers(
    sizes: Sizes,
    restart: int,
    *,
    machines: Mapping[str, str] | None,
    epochs: int | None,
    support: int | None = None,
) -> dict[str, Trained]:
    """Recorded ones by their files' names (GPT-2 where its library is installed); or Small TF and
    GPT-2 trained here as in the paper, for so many epochs of 64 prompts (it prints no learning
    rate: 10⁻⁴ is that of Garg et al.). None where neither is said, or where a package without its
    results was installed."""
    if machines is not None and has_results("sparse"):
        return {
            name: recorded("sparse", file)
            for name, file in machines.items()
            if name != GPT2 or find_spec("transformers")
        }
    if epochs is None:
        return {}
    given = {"prefixes": False, "schedule": "constant", "learning_rate": 1e-4, "support": support}
    given |= {"evaluate_every": max(1, epochs // 100)}
    return {
        "Small TF": sizes.train("small-transformer", restart, epochs, 64, **given),
        GPT2: sizes.train("gpt2", restart, epochs, 64, width=256, heads=8, **given),
    }


def answered(trained: Trained, problem: RegressionProblem) -> Tensor:
    """(ŷ − y)² of a transformer at every prefix: examples × (n + 1)."""
    objective = trained.recipe.objective()
    assert isinstance(objective, Labels)
    with torch.no_grad():
        return bounded(objective.errors(trained.model, problem.to(torch.float32)))


def bounded(errors: Tensor) -> Tensor:
    """Errors that overflow count as the first that does."""
    return errors.nan_to_num(OVERFLOW).clamp_max(OVERFLOW).double()


def classical(
    tuning: RegressionProblem, problem: RegressionProblem, iterations: int
) -> dict[str, Tensor]:
    """ISTA and FISTA of as many iterations as others have layers, and the lasso solved to the end.

    Each at the penalty that is best on the `tuning` examples.
    """
    few = chosen(tuning, slice(TUNING))

    def best(solve: Solve, penalties: Sequence[float]) -> Tensor:
        at = min(penalties, key=lambda a: float(missed(few, solve(few, a)).mean()))
        return missed(problem, solve(problem, at))

    return {
        "ISTA": best(partial(_iterated, ISTA, iterations), PENALTIES),
        "FISTA": best(partial(_iterated, FISTA, iterations), PENALTIES),
        "lasso, solved": best(lasso, LASSO),
    }


def lasso(problem: RegressionProblem, penalty: float) -> Tensor:
    """argmin ½ ‖y − Xβ‖² + a ‖β‖₁ by scikit-learn, one problem after another."""
    import sklearn
    from sklearn.linear_model import Lasso

    solver = Lasso(alpha=penalty / problem.n, fit_intercept=False, max_iter=100_000)
    found = torch.zeros(len(problem.x), problem.d, dtype=torch.float64)
    # Its checks of what comes in take longer than such a small problem.
    with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):
        for k, (x, y) in enumerate(zip(problem.x.numpy(), problem.y.numpy(), strict=True)):
            solver.fit(np.asfortranarray(x), y, check_input=False)
            found[k] = torch.from_numpy(solver.coef_)
    return found


def _iterated(
    kind: type[ISTA | FISTA], iterations: int, problem: RegressionProblem, penalty: float
) -> Tensor:
    state = _run(kind(torch.tensor(penalty, dtype=torch.float64)), problem, iterations)
    return state.weights if isinstance(state, Accelerated) else state


def _run(algorithm: Any, problem: RegressionProblem, iterations: int) -> Any:
    state = algorithm.init(problem)
    for k in range(iterations):
        state = algorithm.step(problem, state, k)
    return state


def prefixes(trained: Trained, problem: RegressionProblem) -> Tensor:
    """(ŷ − y)² of a trained LISTA-VM given the first m examples: examples × (n + 1)."""
    model = trained.model
    assert isinstance(model, ListaVM)
    with torch.no_grad():
        matrices = model.matrices().double()
        iteration = Iteration(matrices, model.thresholds.double(), model.support)
        found = iteration.predict(problem, _run(iteration, problem, model.layers))
    return bounded((found - torch.cat([problem.y, problem.targets], dim=-1)).square())


SHORT = "trained for far fewer steps than the paper's 10⁶"
SIZES = "the number is of the paper's sizes, these are others"


class Pair(NamedTuple):
    """A statement: the loss of one is at most `share` times that of the other."""

    statement: str
    one: str
    other: str
    share: float = 1.0
    excuse: str = ""
    """Why losing says nothing here: a training shorter than the paper's, or other sizes."""
    hollow: str = ""
    """Why winning says nothing here: what is beaten was trained for less than in the paper."""


def compared(errors: Errors, pairs: Sequence[Pair], share: float = 1.0) -> list[list[float]]:
    """Of every pair: both losses, what the one has too much, and the standard error of that."""
    found = []
    for pair in pairs:
        one, other = errors[pair.one], errors[pair.other]
        excess = one - share * pair.share * other
        error = float(excess.std()) / len(excess) ** 0.5
        found.append([float(one.mean()), float(other.mean()), float(excess.mean()), error])
    return found


def judged(pair: Pair, restarts: Sequence[Sequence[float]]) -> Part:
    """It holds where every restart says so by two standard errors, and fails likewise."""
    wins = [excess < -2 * error for _, _, excess, error in restarts]
    losses = [excess > 2 * error for _, _, excess, error in restarts]
    passed = True if all(wins) else (False if all(losses) else None)
    told = "; ".join(
        f"{one:.3g} against {other:.3g} (difference ± {error:.1g})"
        for one, other, _, error in restarts
    )
    summary = f"{sum(wins)} of {len(wins)} restarts by two standard errors, losses {told}"
    if passed is False and pair.excuse:
        passed, summary = None, f"{summary}; {pair.excuse}"
    elif passed and pair.hollow:
        passed, summary = None, f"{summary}; {pair.hollow}"
    check = Check(
        statement=pair.statement,
        passed=passed,
        summary=summary,
        counterexample=told if passed is False else "",
    )
    return Part(printed=check, matters="result")


def judgements(pairs: Sequence[Pair], cells: Sequence[Mapping[str, Any]]) -> list[Part]:
    """A part for every pair, from the cells of a claim; of a falsified one nothing is excused."""
    bare = [pair if cells[0]["excused"] else pair._replace(excuse="", hollow="") for pair in pairs]
    return [judged(pair, [cell["pairs"][k] for cell in cells]) for k, pair in enumerate(bare)]


def rows(groups: Mapping[str, str], restarts: Sequence[Losses]) -> list[dict[str, Any]]:
    """A row for each method that took part: its mean loss, and the ends of its band."""
    return [
        {"method": name, "setting": group, **banded([each[name] for each in restarts])}
        for name, group in groups.items()
        if name in restarts[0]
    ]


def banded(restarts: Sequence[Sequence[float]]) -> dict[str, float]:
    """The mean loss of restarts and their least and largest; of one, two standard errors about it.

    A band ends at a tenth of the loss: what a logarithm cannot show is not drawn.
    """
    losses = [loss for loss, _ in restarts]
    mean = sum(losses) / len(losses)
    ends = min(losses), max(losses)
    if len(restarts) == 1:
        ((_, error),) = restarts
        ends = max(mean - 2 * error, mean / 10), mean + 2 * error
    return {"loss": mean, "least": ends[0], "largest": ends[1]}


def bands(restarts: int, examples: int) -> str:
    """What the bands of a figure are."""
    if restarts > 1:
        return f"Bands: the least and largest of {restarts} restarts."
    return f"Bands: two standard errors over {examples:,} prompts."


def losses(errors: Errors) -> Losses:
    """The mean of each method and its standard error."""
    return {name: _mean(values) for name, values in errors.items()}


def curve(errors: Tensor) -> list[list[float]]:
    """The same for every prefix: examples × prefixes."""
    return [_mean(column) for column in errors.unbind(dim=-1)]


def _mean(values: Tensor) -> list[float]:
    return [float(values.mean()), float(values.std()) / len(values) ** 0.5]


def curve_rows(
    restarts: Sequence[Mapping[str, Sequence[Sequence[float]]]], column: str, first: int
) -> list[dict[str, Any]]:
    """A row for each method, named in `column`, and each number of examples, from `first` on."""
    return [
        {"n": n, column: name, **banded([each[name][n - first] for each in restarts])}
        for name in restarts[0]
        for n in range(first, first + len(restarts[0][name]))
    ]
