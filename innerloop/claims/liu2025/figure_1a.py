"""Figure 1a: what solves sparse recovery on an X it has not seen, and what only on its own.

Printed    varying X: GPT-2 < Small TF < LISTA-VM < FISTA, ISTA < LISTA, LISTA-CP, ALISTA trained on
           one X; on that X all of these come near Small TF; trained on many X, LISTA and LISTA-CP
           are still much worse than LISTA-VM. d = 20, S = 3, N = 10, K = 12, no noise
Tested     all on the same examples, each trained here; penalties at their best on other examples.
           Small TF in `quick` starts at the construction of Theorem 4.1 for the trained LISTA-VM;
           in `full` it is a recorded one from random weights, under 1 % of the paper's steps: that
           a LISTA on its own X comes near it is then a weak statement, they are far better; and
           beside it one that was trained from near the construction. GPT-2 is left out (recipe
           `gpt2`)
Beyond     ALISTA's W is a small solve for each X: then it needs no X of its own, and is the best of
           the learned iterations on varying X. The lasso, solved, is better than all with K layers.
           With fewer examples than it was trained for, LISTA-VM diverges: its steps are too large.
           So they are for a rare X: in the recorded `full` one of 4,000 counts 10⁴ and with it
           decides LISTA-VM's mean, 2.9 where other samples have 0.44, so nothing can be told of it
           LISTA-CP and ALISTA of one X diverge on others; errors are cut at 10⁴, so that their
           losses are lower bounds
Theory     Theorem 5.1 speaks from N_0 = 20,471 examples on (δ = 0.1, z = ±1): not of these n
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Evidence, Figure
from innerloop.claims.liu2025.contest import (
    SHORT,
    Pair,
    Sizes,
    answered,
    classical,
    compared,
    judgements,
    means,
    prefixes,
    recovered,
    rows,
)
from innerloop.claims.recorded import recorded
from innerloop.models.lista_vm import ListaVM
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.recipes.base import Trained
from innerloop.theory import sparse

VARYING, FIXED, MANY = "varying X", "its own X", "trained on many X"
STARTS = {
    "random": "from random weights",
    "symmetric": "from random weights that treat features alike",
    "construction": "from the construction",
    "near": "from near the construction",
}
GROUPS = {
    "Small TF": VARYING,
    "LISTA-VM": VARYING,
    "ALISTA, W for each X": VARYING,
    "lasso, solved": VARYING,
    "FISTA": VARYING,
    "ISTA": VARYING,
    **dict.fromkeys(("LISTA", "LISTA-CP", "ALISTA"), VARYING),
    **{f"{name} on its X": FIXED for name in ("LISTA", "LISTA-CP", "ALISTA", "Small TF")},
    **{f"{name}, meta-trained": MANY for name in ("LISTA", "LISTA-CP")},
}
NEAR = "Small TF (from near the construction)"
SOLVERS = {"LISTA": "lista", "LISTA-CP": "lista-cp", "ALISTA": "alista"}


PAIRS = [
    Pair("varying X: Small TF < LISTA-VM", "Small TF", "LISTA-VM", excuse=SHORT),
    Pair("varying X: LISTA-VM < FISTA", "LISTA-VM", "FISTA"),
    Pair("varying X: LISTA-VM < ISTA", "LISTA-VM", "ISTA"),
    *(Pair(f"varying X: ISTA, FISTA < {name} of one X", "ISTA", name) for name in SOLVERS),
    *(
        Pair(
            f"own X: {name} at most twice Small TF",
            f"{name} on its X",
            "Small TF on its X",
            2.0,
            hollow=SHORT,
        )
        for name in SOLVERS
    ),
    *(
        Pair(f"{name} of many X: over twice LISTA-VM", "LISTA-VM", f"{name}, meta-trained", 0.5)
        for name in ("LISTA", "LISTA-CP")
    ),
]


def concluded(found: list[dict[str, Any]]) -> Evidence:
    start = f"Small TF ({STARTS[found[0]['start']]})"

    def named(told: str) -> str:
        return told.replace("Small TF", start, 1)

    groups = {**GROUPS, **({NEAR: VARYING} if NEAR in found[0]["losses"] else {})}
    table = rows(groups, [cell["losses"] for cell in found])
    table = [
        {**row, "method": row["method"] if row["method"] == NEAR else named(row["method"])}
        for row in table
    ]
    curves = [
        {**row, "method": named(row["method"])} for row in _curves([c["curves"] for c in found])
    ]
    pairs = [pair._replace(statement=named(pair.statement)) for pair in PAIRS]
    sizes = found[0]["sizes"]
    title = "d = {d}, S = {sparsity}, n = {n}, K = {blocks}".format(**sizes)
    return Evidence(
        parts=judgements(pairs, found),
        numbers={"N_0 at d = 20, S = 3, from which on Theorem 5.1 speaks": N_0},
        table=table,
        figures=[
            Figure(
                title=f"Label loss of each method, {title}",
                rows=table,
                mark="point",
                x=Axis(field="loss", title="E (ŷ − y)² at the query", scale="log"),
                y=Axis(field="method", title="method", scale="category"),
                colour=Axis(field="setting", title="tested on", scale="category"),
                caption="A squared error counts as at most 10⁴: a mean near that is one of methods "
                "that diverge, and would be larger.",
            ),
            Figure(
                title=f"Fewer examples than in training, {title}",
                rows=curves,
                x=Axis(field="n", title="examples in the prompt"),
                y=Axis(field="loss", title="E (ŷ − y)²", scale="log"),
                colour=Axis(field="method", title="method", scale="category"),
                band=("least", "largest"),
                caption="Bands: restarts. LISTA and LISTA-CP have matrices for one n and no other.",
            ),
        ],
    )


N_0 = int(sparse.least_examples(3, 20, 0.1, 0.25)) + 1
PAPER = {"d": 20, "n": 10, "sparsity": 3, "blocks": 12}
SMALL = {"d": 6, "n": 4, "sparsity": 1, "blocks": 3}


@claim(
    "liu2025.figure-1a",
    "On varying X a transformer beats LISTA-VM, that beats FISTA and ISTA, and these beat what was "
    "trained on one X; on its own X each LISTA comes near the transformer.",
    where="Section 6, Figure 1a",
    kind="ordering",
    quick=[{**SMALL, "steps": 150, "batch": 128, "examples": 1000, "restart": k} for k in range(2)],
    full={**PAPER, "steps": 1500, "batch": 512, "examples": 4000, "restart": 0}
    | {"machine": "small-transformer", "near": "small-transformer-near"},
    paper=[
        {**PAPER, "steps": 17_000, "batch": 1000, "examples": 20_000, "restart": k}
        for k in range(3)
    ],
    tiny={"d": 3, "n": 2, "sparsity": 1, "blocks": 2, "steps": 20, "batch": 32, "examples": 200}
    | {"restart": 0},
    conclude=concluded,
    falsified={"a million times better": {"share": 1e-6, "excused": False}},
)
def figure_1a(
    generator: torch.Generator,
    *,
    d: int,
    n: int,
    sparsity: int,
    blocks: int,
    steps: int,
    batch: int,
    examples: int,
    restart: int,
    machine: str | None = None,
    near: str | None = None,
    share: float = 1.0,
    excused: bool = True,
) -> dict[str, Any]:
    sizes = Sizes(d, n, sparsity, blocks)
    tuning, problem, own = (
        sizes.problems(fixed=fixed).sample(examples, generator=generator)
        for fixed in (None, None, restart)
    )

    def learned(name: str, **given: Any) -> Any:
        return sizes.train(name, restart, steps, batch, **given)

    iteration = learned("lista-vm-learned")
    transformer = (
        built(sizes, iteration, restart, steps) if machine is None else recorded("sparse", machine)
    )
    errors = {
        "Small TF": answered(transformer, problem)[:, -1],
        "LISTA-VM": recovered(iteration, problem),
        "ALISTA, W for each X": recovered(learned("alista"), problem),
        **classical(tuning, problem, blocks),
    }
    for name, recipe in SOLVERS.items():
        solver = learned(recipe, fixed=restart)
        errors[name] = recovered(solver, problem)
        errors[f"{name} on its X"] = recovered(solver, own)
        if name != "ALISTA":
            errors[f"{name}, meta-trained"] = recovered(learned(recipe), problem)
    if near is not None:
        errors[NEAR] = answered(recorded("sparse", near), problem)[:, -1]
    errors["Small TF on its X"] = answered(transformer, own)[:, -1]
    curves = {"Small TF": answered(transformer, problem), "LISTA-VM": prefixes(iteration, problem)}
    return {
        "sizes": {"d": d, "n": n, "sparsity": sparsity, "blocks": blocks},
        "start": transformer.recipe.values()["start"],
        "losses": means(errors),
        "pairs": compared(errors, PAIRS, share),
        "excused": excused,
        "curves": {
            **{name: found.mean(dim=0)[1:].tolist() for name, found in curves.items()},
            **_classical_curves(tuning, problem, blocks),
        },
    }


def built(sizes: Sizes, iteration: Trained, restart: int, steps: int, **given: Any) -> Trained:
    """Small TF from the weights that run a trained LISTA-VM (M = γI of it), trained further."""
    model = iteration.model
    assert isinstance(model, ListaVM)
    start = {
        "start": "construction",
        "gammas": model.steps.detach().double(),
        "thetas": model.thresholds.detach().double(),
    }
    given = {"learning_rate": 4e-4, "warmup": steps // 10, "prefixes": False, **given}
    return sizes.train("small-transformer", restart, steps, 64, **start, **given)


def _classical_curves(
    tuning: RegressionProblem, problem: RegressionProblem, blocks: int
) -> dict[str, list[float]]:
    """The loss at each prompt length, penalties chosen for it."""

    def cut(given: RegressionProblem, m: int) -> RegressionProblem:
        return RegressionProblem(given.x[:, :m], given.y[:, :m], given.x_query, given.weights)

    curves: dict[str, list[float]] = {}
    for m in range(1, problem.n + 1):
        for name, found in classical(cut(tuning, m), cut(problem, m), blocks).items():
            curves.setdefault(name, []).append(float(found.mean()))
    return curves


def _curves(found: list[dict[str, list[float]]]) -> list[dict[str, Any]]:
    curves = []
    for name in found[0]:
        all = torch.tensor([each[name] for each in found], dtype=torch.float64)
        ends: list[Tensor] = [all.mean(dim=0), all.amin(dim=0), all.amax(dim=0)]
        for m, values in enumerate(torch.stack(ends, dim=1).tolist(), 1):
            loss, least, largest = values
            curves.append(
                {"n": m, "loss": loss, "least": least, "largest": largest, "method": name}
            )
    return curves
