"""Section 6: solvers of sparse recovery on the same examples, and pairwise comparisons of them.

A method's loss is E (ŷ − y)² at the query, on the same examples and queries for all. It has heavy
tails: a step that is too large for a rare X is repeated in every layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from innerloop.algorithms.fista import FISTA, FISTAState
from innerloop.algorithms.ista import ISTA
from innerloop.algorithms.lista_vm import ListaVM as Iteration
from innerloop.algorithms.regression import linear_prediction
from innerloop.claims.evidence import Check, Part
from innerloop.claims.figures import Axis, Figure
from innerloop.claims.recorded import load_recorded
from innerloop.models.lista_vm import ListaVM
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.problems.sparse_recovery import SparseRecovery
from innerloop.recipes.base import TrainedRun, train
from innerloop.recipes.sparse import OVERFLOW, LabelObjective, select_instances

Errors = Mapping[str, Tensor]
"""Squared errors of each method, example by example."""
Losses = Mapping[str, Sequence[float]]
"""Mean squared error of each method, and the standard error of that mean."""
Solve = Callable[[RegressionProblem, float], Tensor]
"""Map a problem and a penalty to the weights of every instance."""
GPT2 = "GPT-2"
PAPER = {"d": 20, "n": 10, "sparsity": 3, "blocks": 12}
SMALL = {"d": 6, "n": 4, "sparsity": 1, "blocks": 4}
EPOCHS = 10**6
"""Training epochs of the paper's transformers."""
PRINTED_LOSS = 0.68
"""Label loss of LISTA-VM in the paper, trained on many X (Appendix F)."""
PENALTIES = (0.1, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0)
LASSO_PENALTIES = (0.02, 0.05, 0.1, 0.2)
TUNING_EXAMPLES = 200
"""Number of examples used to choose a penalty."""
SETUP = {
    "$d = 20$, $N = 10$, $S = 3$, entries $N(0, 1)$, no noise": "Section 6, problem setup; smaller "
    "at the preset `quick`"
}
"""What every figure of the experiments presupposes."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of the problem, and the number of layers of every method."""

    d: int
    n: int
    sparsity: int
    blocks: int

    def distribution(self, **given: Any) -> SparseRecovery:
        return SparseRecovery(d=self.d, n=self.n, sparsity=self.sparsity, **given)

    def train(self, name: str, seed: int, steps: int, batch: int, **given: Any) -> TrainedRun:
        """Train a recipe at these sizes, evaluated only at its ends by default."""
        given = {"steps": steps, "batch": batch, "evaluate_every": steps, **given}
        return train(name, seed=seed, **asdict(self), **given)

    @property
    def is_printed(self) -> bool:
        """Whether these are the paper's sizes, at which its printed numbers apply."""
        return asdict(self) == PAPER


def solver_errors(trained: TrainedRun, problem: RegressionProblem) -> Tensor:
    """Squared error (ŷ − y)² of a learned solver."""
    given = problem.to(torch.float32)
    with torch.no_grad():
        return query_errors(problem, trained.model(given.x, given.y).double())


def query_errors(problem: RegressionProblem, found: Tensor) -> Tensor:
    """Squared error (⟨x, β̂⟩ − ⟨x, β⟩)² at the query."""
    errors = linear_prediction(problem, found) - problem.targets
    return cap_errors(errors.squeeze(-1).square())


def load_transformers(
    sizes: Sizes,
    restart: int,
    *,
    machines: Mapping[str, str] | None,
    epochs: int | None,
    support: int | None = None,
) -> dict[str, TrainedRun]:
    """Load recorded transformers by file name, or train Small TF and GPT-2 here as in the paper.

    Recorded GPT-2 needs its library installed. Training runs for `epochs` of 64 prompts; the paper
    prints no learning rate, 10⁻⁴ is that of Garg et al. Empty where neither `machines` nor
    `epochs` is given.
    """
    if machines is not None:
        return {name: load_recorded("sparse", file) for name, file in machines.items()}
    if epochs is None:
        return {}
    given = {"prefixes": False, "schedule": "constant", "learning_rate": 1e-4, "support": support}
    given |= {"evaluate_every": max(1, epochs // 100)}
    return {
        "Small TF": sizes.train("small-transformer", restart, epochs, 64, **given),
        GPT2: sizes.train("gpt2", restart, epochs, 64, width=256, heads=8, **given),
    }


def list_seeds(trained: Mapping[str, TrainedRun], ending: str = "") -> dict[str, int]:
    """List the seed of each transformer that took part."""
    return {f"{name}{ending}": each.seed for name, each in trained.items()}


def transformer_errors(trained: TrainedRun, problem: RegressionProblem) -> Tensor:
    """Squared error (ŷ − y)² of a transformer at every prefix: examples × (n + 1)."""
    objective = trained.recipe.build_objective()
    assert isinstance(objective, LabelObjective)
    with torch.no_grad():
        return cap_errors(objective.label_errors(trained.model, problem.to(torch.float32)))


def last_errors(trained: Mapping[str, TrainedRun], problem: RegressionProblem) -> dict[str, Tensor]:
    """Squared errors of transformers at the query, by name."""
    return {name: transformer_errors(each, problem)[:, -1] for name, each in trained.items()}


def cap_errors(errors: Tensor) -> Tensor:
    """Replace errors that overflow by the overflow threshold."""
    return errors.nan_to_num(OVERFLOW).clamp_max(OVERFLOW).double()


def classical_errors(
    tuning: RegressionProblem, problem: RegressionProblem, iterations: int
) -> dict[str, Tensor]:
    """Errors of ISTA and FISTA with `iterations` steps, and of the lasso solved to convergence.

    Each at the penalty that is best on the `tuning` examples.
    """
    few = select_instances(tuning, slice(TUNING_EXAMPLES))

    def best(solve: Solve, penalties: Sequence[float]) -> Tensor:
        at = min(penalties, key=lambda a: float(query_errors(few, solve(few, a)).mean()))
        return query_errors(problem, solve(problem, at))

    return {
        "ISTA": best(partial(_solve_iteratively, ISTA, iterations), PENALTIES),
        "FISTA": best(partial(_solve_iteratively, FISTA, iterations), PENALTIES),
        "lasso, solved": best(solve_lasso, LASSO_PENALTIES),
    }


def solve_lasso(problem: RegressionProblem, penalty: float) -> Tensor:
    """Solve argmin ½ ‖y − Xβ‖² + a ‖β‖₁ by scikit-learn, one problem after another."""
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


def _solve_iteratively(
    kind: type[ISTA | FISTA], iterations: int, problem: RegressionProblem, penalty: float
) -> Tensor:
    state = _run_algorithm(kind(torch.tensor(penalty, dtype=torch.float64)), problem, iterations)
    return state.weights if isinstance(state, FISTAState) else state


def _run_algorithm(algorithm: Any, problem: RegressionProblem, iterations: int) -> Any:
    state = algorithm.init(problem)
    for k in range(iterations):
        state = algorithm.step(problem, state, k)
    return state


def prefix_errors(trained: TrainedRun, problem: RegressionProblem) -> Tensor:
    """Squared error of a trained LISTA-VM given the first m examples: examples × (n + 1)."""
    model = trained.model
    assert isinstance(model, ListaVM)
    with torch.no_grad():
        matrices = model.matrices().double()
        iteration = Iteration(matrices, model.thresholds.double(), model.support)
        found = iteration.predict(problem, _run_algorithm(iteration, problem, model.layers))
    return cap_errors((found - torch.cat([problem.y, problem.targets], dim=-1)).square())


NEEDED = {
    "printed": "not decided either way, because the sizes are not the paper's",
    "trained": "not decided either way, because the training is far shorter than the paper's",
}
"""Why a check is left open. A result that we would excuse if it were negative does not count as
positive either."""
OUT_OF_REACH = (
    "What the source says of transformers needs GPT-2 and Small TF trained as in the paper, for "
    "$10^6$ steps of 64 instances: GPT-2 at the printed size alone takes about 1,038 core hours. "
    "The other parts are judged"
)
Moments = Sequence[float]
"""Two losses, their standard errors, and the covariance of the two means."""
Cell = dict[str, Any]


def leave_open(check: Check, cells: Sequence[Cell], needs: str = "trained") -> Check:
    """Leave a check undecided, whatever its outcome, if a cell lacks what the decision needs."""
    if all(cell[needs] for cell in cells):
        return check
    summary = f"{check.summary}; {NEEDED[needs]}"
    return replace(check, passed=None, summary=summary, counterexample="")


class Pair(NamedTuple):
    """A statement that the loss of `one` is at most `share` times that of `other`."""

    statement: str
    one: str
    other: str
    share: float = 1.0
    needs: str = ""
    """What it takes to decide it: the `printed` sizes, a model `trained` as printed, or neither."""
    both: bool = False
    """Whether the loss of `other` is at most `share` times that of `one`, too."""
    ours: str = ""


def compare_pairs(errors: Errors, pairs: Sequence[Pair]) -> list[list[float]]:
    """For every pair: both losses, their standard errors, and the covariance of the means."""
    found = []
    for pair in pairs:
        both = torch.stack([errors[pair.one], errors[pair.other]])
        spread = torch.cov(both) / both.shape[-1]
        deviations = spread.diagonal().sqrt().tolist()
        found.append([*both.mean(dim=-1).tolist(), *deviations, float(spread[0, 1])])
    return found


def judge_pair(pair: Pair, cells: Sequence[Cell], k: int) -> Part:
    """Judge pair k: it holds (or fails) where every restart says so by two standard errors."""
    restarts = [cell["pairs"][k] for cell in cells]
    margins = [_find_margins(pair, moments) for moments in restarts]
    wins = [all(margin > 2 for margin in each) for each in margins]
    losses = [any(margin < -2 for margin in each) for each in margins]
    passed = True if all(wins) else (False if all(losses) else None)
    sides = "; ".join(_compare_losses(pair, one, other) for one, other, *_ in restarts)
    summary = (
        f"holds in {sum(wins)} of {len(wins)} restarts by two standard errors over prompts: {sides}"
    )
    check = Check(
        statement=pair.statement,
        passed=passed,
        summary=summary,
        counterexample=sides if passed is False else "",
        ours=pair.ours,
    )
    check = leave_open(check, cells, pair.needs) if pair.needs else check
    return Part(printed=check, trainings=count_trainings(cells, pair.one, pair.other))


def _compare_losses(pair: Pair, one: float, other: float) -> str:
    """Write both sides of a pair: its limit as a product, and the other way round if that fails."""
    if pair.both and one < other:
        one, other = other, one
    limit = pair.share * other
    product = "" if pair.share == 1 else f"{pair.share:g} · {other:.3g} = "
    return f"{one:.3g} {'<' if one < limit else '>'} {product}{limit:.3g}"


def judge_losses(pair: Pair, cells: Sequence[Cell]) -> Part:
    """Judge a pair that was not measured as one, from the losses, whatever their covariance."""
    given = [
        {**cell, "pairs": [bound_moments(*(cell["losses"][name] for name in pair[1:3]))]}
        for cell in cells
    ]
    return judge_pair(pair, given, 0)


def bound_moments(one: Moments, other: Moments) -> list[float]:
    """Moments of two losses with the covariance that makes their difference least certain."""
    return [one[0], other[0], one[1], other[1], -one[1] * other[1]]


def describe_cut(cells: Sequence[Cell]) -> str:
    """Describe means to which few prompts at the cut contribute much.

    If m of N prompts are at the cut, the standard error of the mean is 10⁴√m/N.
    """
    found = []
    for k, cell in enumerate(cells):
        for name, (loss, error) in cell["losses"].items():
            square = (error * cell["examples"] / OVERFLOW) ** 2
            count = round(square)
            if 1 <= count < FEW_CUT and abs(square - count) < 0.01 * count:
                added = count * OVERFLOW / cell["examples"]
                found.append(
                    f"{name}, restart {k}: {count} of {cell['examples']:,} prompts at 10⁴ "
                    f"{'adds' if count == 1 else 'add'} {added:.2g} to the mean, "
                    f"{loss - added:.2f} without."
                )
    return " ".join(found)


FEW_CUT = 10
"""Fewer errors at the cut than this are told apart from a method that diverges."""


def count_trainings(cells: Sequence[Cell], *methods: str) -> int:
    """Count the trainings that all of these methods have: one recorded network may serve cells."""
    counts = [len(cells)]
    for method in methods:
        seeds = {cell.get("seeds", {}).get(method) for cell in cells}
        counts += [len(seeds)] if None not in seeds else []
    return min(counts)


def _find_margins(pair: Pair, moments: Moments) -> list[float]:
    """Compute how far a loss is below its limit, in standard errors; for `both`, on either side."""
    one, other, wide, other_wide, shared = moments
    sides = [(one, other, wide, other_wide), (other, one, other_wide, wide)]
    margins = []
    for low, high, a, b in sides[: 1 + pair.both]:
        variance = a**2 + (pair.share * b) ** 2 - 2 * pair.share * shared
        margins.append((pair.share * high - low) / max(variance, 1e-30) ** 0.5)
    return margins


def judge_pairs(pairs: Sequence[Pair], cells: Sequence[Cell]) -> list[Part]:
    return [judge_pair(pair, cells, k) for k, pair in enumerate(pairs)]


def set_ratio(ratio: float) -> Callable[[list[Cell]], list[Cell]]:
    """Make data of the paper's sizes and training, the first of a pair `ratio` times the second."""

    def change(cells: list[Cell]) -> list[Cell]:
        for cell in cells:
            cell.update(dict.fromkeys(NEEDED, True))
            cell["pairs"] = [
                [ratio * abs(other), abs(other), 0.001 * abs(other), 0.001 * abs(other), 0.0]
                for _, other, *_ in cell["pairs"]
            ]
        return cells

    return change


WORSE = {"the first of each pair ten times as bad as the second": set_ratio(10.0)}
"""Data that contradict every pair, since no `share` is above 2."""


def describe_training(trained: TrainedRun) -> str:
    """Describe what a reader must know of how a Small TF was trained."""
    given = trained.recipe.values()
    read = (
        ""
        if given["readout"] != "query"
        else " but for its read-out, which begins at the proof's $V$"
    )
    start = {
        "random": f"random weights{read}",
        "symmetric": "random weights that treat features alike",
        "construction": "the weights of Theorem 4.1",
        "near": "weights near those of Theorem 4.1",
    }[given["start"]]
    shared, steps = min(given["sharing"], given["steps"]), given["steps"]
    target = "β" if given["supervision"] == "weights" else "labels"
    return (
        f"Small TF begins at {start}; in {shared:,} of its {steps:,} steps gradients are averaged "
        f"over features; it is trained on {target}."
    )


def draw_losses(title: str, table: Sequence[dict[str, Any]], settings: str, caption: str) -> Figure:
    """Draw the loss of each method with its band, coloured by setting."""
    return Figure(
        title=title,
        rows=table,
        mark="point",
        x=Axis(field="loss", title="E (ŷ − y)² at the query", scale="log"),
        y=Axis(field="method", title="method", scale="category"),
        colour=Axis(field="setting", title=settings, scale="category"),
        band=("least", "largest"),
        caption=caption,
    )


def method_rows(groups: Mapping[str, str], restarts: Sequence[Losses]) -> list[dict[str, Any]]:
    """Table rows, one per method that took part: mean loss and the ends of its band."""
    return [
        {"method": name, "setting": group, **loss_band([each[name] for each in restarts])}
        for name, group in groups.items()
        if name in restarts[0]
    ]


def loss_band(restarts: Sequence[Sequence[float]]) -> dict[str, float]:
    """Mean loss over restarts with their least and largest; for one restart, ± 2 standard errors.

    A band ends at a tenth of the loss: what a logarithm cannot show is not drawn.
    """
    losses = [loss for loss, _ in restarts]
    mean = sum(losses) / len(losses)
    ends = min(losses), max(losses)
    if len(restarts) == 1:
        ((_, error),) = restarts
        ends = max(mean - 2 * error, mean / 10), mean + 2 * error
    return {"loss": mean, "least": ends[0], "largest": ends[1]}


def describe_bands(restarts: int, examples: int) -> str:
    """Describe what the bands of a figure are."""
    if restarts > 1:
        return f"Bands: the least and largest of {restarts} restarts."
    return f"Bands: two standard errors over {examples:,} prompts."


def mean_losses(errors: Errors) -> Losses:
    """Mean loss of each method and its standard error."""
    return {name: _mean(values) for name, values in errors.items()}


def mean_curve(errors: Tensor) -> list[list[float]]:
    """Mean loss and standard error at every prefix, from errors (examples × prefixes)."""
    return [_mean(column) for column in errors.unbind(dim=-1)]


def _mean(values: Tensor) -> list[float]:
    return [float(values.mean()), float(values.std()) / len(values) ** 0.5]


def curve_rows(
    restarts: Sequence[Mapping[str, Sequence[Sequence[float]]]], column: str, first: int
) -> list[dict[str, Any]]:
    """Figure rows, one per method (in `column`) and number of examples, starting at `first`."""
    return [
        {"n": n, column: name, **loss_band([each[name][n - first] for each in restarts])}
        for name in restarts[0]
        for n in range(first, first + len(restarts[0][name]))
    ]
