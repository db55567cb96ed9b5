"""Figure 1a: which methods solve sparse recovery on an unseen X, and which only on their own.

Printed    varying X: GPT-2 < Small TF < LISTA-VM < FISTA, ISTA < LISTA, LISTA-CP, ALISTA trained on
           one X; on that X all of these come near Small TF; trained on many X, LISTA and LISTA-CP
           are still much worse than LISTA-VM. d = 20, S = 3, N = 10, K = 12, no noise
Tested     all on the same examples, each trained here but for the transformers, which are recorded
           ones from random weights, trained on β and not on labels; penalties at their best on
           other examples. `full`: Small TF of under 1 % of the paper's steps, beside it one that
           was trained from near the construction of Theorem 4.1; GPT-2 of 6 layers and width 64,
           where the paper's has 12 and 256, with a query read-out, 3 % of the paper's steps.
           Without its recorded ones the package trains Small TF from the construction of Theorem
           4.1 for the trained LISTA-VM, and no GPT-2. That a LISTA on its own X comes near Small TF
           counts where Small TF has what the paper prints of it, that it is better than LISTA-VM.
           LISTA-VM sees some X stretched in training: without that it is better on most prompts
           (0.43 at the paper's sizes, with it 0.48), and beyond any bound on a rare one
Beyond     ALISTA's W is a small solve for each X: then it needs no X of its own, and is the best of
           the learned iterations on varying X. The lasso, solved, is better than all with K layers.
           With fewer examples than it was trained for, LISTA-VM diverges: its steps are too large.
           Small TF, trained with 10, goes on to 20: in `full` its curve is decided by one of 4,000
           prompts that runs away from its first example on, and adds 2.5 to every mean (without it
           0.41 at n = 10 and 0.09 at 20); of the 20,000 prompts of the first figure none does
           LISTA-CP and ALISTA of one X diverge on others; errors are cut at 10⁴, so that their
           losses are lower bounds
Theory     Theorem 5.1 speaks from N_0 = 20,471 examples on (δ = 0.1, z = ±1): not of these n
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Evidence, Figure
from innerloop.claims.liu2025.contest import (
    EPOCHS,
    GPT2,
    SHORT_TRAINING,
    Pair,
    Sizes,
    classical_errors,
    compare_pairs,
    curve_rows,
    describe_bands,
    judge_pairs,
    load_transformers,
    mean_curve,
    mean_losses,
    method_rows,
    prefix_errors,
    solver_errors,
    transformer_errors,
)
from innerloop.models.lista_vm import ListaVM
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.recipes.base import TrainedRun
from innerloop.recipes.sparse import select_instances
from innerloop.theory import sparse

VARYING, FIXED, MANY = "varying X", "its own X", "trained on many X"
STARTS = {
    "random": "from random weights",
    "symmetric": "from random weights that treat features alike",
    "construction": "from the construction",
    "near": "from near the construction",
}
NEAR = "Small TF (from near the construction)"
GROUPS = {
    GPT2: VARYING,
    "Small TF": VARYING,
    NEAR: VARYING,
    "LISTA-VM": VARYING,
    "ALISTA, W for each X": VARYING,
    "lasso, solved": VARYING,
    "FISTA": VARYING,
    "ISTA": VARYING,
    **dict.fromkeys(("LISTA", "LISTA-CP", "ALISTA"), VARYING),
    **{f"{name} on its X": FIXED for name in ("LISTA", "LISTA-CP", "ALISTA", "Small TF")},
    **{f"{name}, meta-trained": MANY for name in ("LISTA", "LISTA-CP")},
}
SOLVERS = {"LISTA": "lista", "LISTA-CP": "lista-cp", "ALISTA": "alista"}


ABOVE = Pair("varying X: GPT-2 < Small TF", GPT2, "Small TF", excuse=SHORT_TRAINING)
"""The pair added where GPT-2 takes part."""
PAIRS = [
    Pair("varying X: Small TF < LISTA-VM", "Small TF", "LISTA-VM", excuse=SHORT_TRAINING),
    Pair("varying X: LISTA-VM < FISTA", "LISTA-VM", "FISTA"),
    Pair("varying X: LISTA-VM < ISTA", "LISTA-VM", "ISTA"),
    *(
        Pair(f"varying X: {plain} < {name} of one X", plain, name)
        for plain in ("ISTA", "FISTA")
        for name in SOLVERS
    ),
    *(
        Pair(
            f"own X: {name} at most twice Small TF",
            f"{name} on its X",
            "Small TF on its X",
            2.0,
            hollow=SHORT_TRAINING,
        )
        for name in SOLVERS
    ),
    *(
        Pair(f"{name} of many X: over twice LISTA-VM", "LISTA-VM", f"{name}, meta-trained", 0.5)
        for name in ("LISTA", "LISTA-CP")
    ),
]


def conclude(found: list[dict[str, Any]]) -> Evidence:
    first = found[0]
    start = f"Small TF ({STARTS[first['start']]})"

    def named(told: str) -> str:
        return told if NEAR in told else told.replace("Small TF", start, 1)

    def renamed(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**row, "method": named(row["method"])} for row in table]

    table = renamed(method_rows(GROUPS, [cell["losses"] for cell in found]))
    curves = renamed(curve_rows([cell["curves"] for cell in found], "method", 1))
    pairs = [*PAIRS, *([ABOVE] if GPT2 in first["losses"] else [])]
    pairs = [pair._replace(statement=named(pair.statement)) for pair in pairs]
    parts = judge_pairs(pairs, found)
    if parts[0].verdict == "holds":
        parts = judge_pairs([pair._replace(hollow="") for pair in pairs], found)
    n, told = first["sizes"]["n"], describe_bands(len(found), first["examples"])
    title = "d = {d}, S = {sparsity}, n = {n}, K = {blocks}".format(**first["sizes"])
    return Evidence(
        parts=parts,
        numbers={"N_0 at d = 20, S = 3, from which on Theorem 5.1 speaks": N_0},
        table=table,
        figures=[
            Figure(
                title=f"Label loss of each method, {title}",
                rows=table,
                mark="point",
                x=Axis(field="loss", title="E (ŷ − y)² at the query", scale="log"),
                y=Axis(field="method", title="method", scale="category"),
                colour=Axis(field="setting", title="setting", scale="category"),
                band=("least", "largest"),
                caption=f"{told} A squared error counts as at most 10⁴: a mean near that is one of "
                "methods that diverge, and would be larger.",
            ),
            Figure(
                title=f"Prompts of other lengths than in training, {title}",
                rows=curves,
                x=Axis(field="n", title="examples in the prompt"),
                y=Axis(field="loss", title="E (ŷ − y)²", scale="log"),
                colour=Axis(field="method", title="method", scale="category"),
                band=("least", "largest"),
                caption=f"{describe_bands(len(found), first['drawn'])} "
                f"What learns was trained with {n} examples, recorded transformers "
                "also with fewer; GPT-2 has positions for no more. LISTA and LISTA-CP have "
                "matrices for one n and no other. Theorem 5.1 bounds the loss from "
                f"n = {N_0:,} on, far to the right.",
            ),
        ],
    )


EXAMPLES = 4000
"""Most prompts of other lengths: a lasso is solved for each length."""
N_0 = int(sparse.least_examples(3, 20, 0.1, 0.25)) + 1
PAPER = {"d": 20, "n": 10, "sparsity": 3, "blocks": 12}
MACHINES = {"Small TF": "small-transformer", NEAR: "small-transformer-near", GPT2: "gpt2"}
SMALL = {"d": 6, "n": 4, "sparsity": 1, "blocks": 4}


@claim(
    "liu2025.figure-1a",
    "On varying X a transformer beats LISTA-VM, that beats FISTA and ISTA, and these beat what was "
    "trained on one X; on its own X each LISTA comes near the transformer.",
    where="Section 6, Figure 1a",
    kind="ordering",
    quick=[
        {**SMALL, "steps": 200, "batch": 128, "examples": 2000, "restart": k}
        | {"machines": {"Small TF": f"quick-small-transformer-{k}", GPT2: f"quick-gpt2-{k}"}}
        for k in range(2)
    ],
    full={**PAPER, "steps": 1500, "batch": 512, "examples": 20_000, "restart": 0}
    | {"machines": MACHINES},
    paper=[
        {**PAPER, "steps": 17_000, "batch": 1000, "examples": 20_000, "restart": k}
        | {"epochs": EPOCHS}
        for k in range(3)
    ],
    tiny={"d": 3, "n": 2, "sparsity": 1, "blocks": 2, "steps": 20, "batch": 32, "examples": 200}
    | {"restart": 0},
    conclude=conclude,
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
    machines: Mapping[str, str] | None = None,
    epochs: int | None = None,
    share: float = 1.0,
    excused: bool = True,
) -> dict[str, Any]:
    sizes = Sizes(d, n, sparsity, blocks)
    tuning, problem, own = (
        sizes.distribution(fixed=fixed).sample(examples, generator=generator)
        for fixed in (None, None, restart)
    )
    drawn = min(examples, EXAMPLES)
    longer = replace(sizes, n=2 * n).distribution().sample(2, drawn, generator=generator)

    def learned(name: str, **given: Any) -> Any:
        return sizes.train(name, restart, steps, batch, **given)

    iteration, adapted = learned("lista-vm-learned"), learned("alista")
    taking_part = load_transformers(sizes, restart, machines=machines, epochs=epochs)
    if not taking_part:
        taking_part = {"Small TF": train_from_construction(sizes, iteration, restart, steps)}
    errors = {
        **{name: transformer_errors(each, problem)[:, -1] for name, each in taking_part.items()},
        "Small TF on its X": transformer_errors(taking_part["Small TF"], own)[:, -1],
        "LISTA-VM": solver_errors(iteration, problem),
        "ALISTA, W for each X": solver_errors(adapted, problem),
        **classical_errors(tuning, problem, blocks),
    }
    for name, recipe in SOLVERS.items():
        solver = learned(recipe, fixed=restart)
        errors[name] = solver_errors(solver, problem)
        errors[f"{name} on its X"] = solver_errors(solver, own)
        if name != "ALISTA":
            errors[f"{name}, meta-trained"] = solver_errors(learned(recipe), problem)
    pairs = [*PAIRS, *([ABOVE] if GPT2 in errors else [])]
    return {
        "sizes": {"d": d, "n": n, "sparsity": sparsity, "blocks": blocks},
        "examples": examples,
        "drawn": drawn,
        "start": taking_part["Small TF"].recipe.values()["start"],
        "losses": mean_losses(errors),
        "pairs": compare_pairs(errors, pairs, share),
        "excused": excused and (epochs or 0) < EPOCHS,
        "curves": _curves(
            taking_part, iteration, adapted, blocks, *(select_instances(longer, k) for k in (0, 1))
        ),
    }


def _curves(
    taking_part: Mapping[str, TrainedRun],
    iteration: TrainedRun,
    adapted: TrainedRun,
    blocks: int,
    tuning: RegressionProblem,
    problem: RegressionProblem,
) -> dict[str, list[list[float]]]:
    """Loss at other prompt lengths than the one trained on; penalties are chosen anew."""

    def cut(given: RegressionProblem, m: int) -> RegressionProblem:
        return RegressionProblem(given.x[:, :m], given.y[:, :m], given.x_query, given.weights)

    # GPT-2 has positions for as many examples as it was trained with.
    given = {
        name: cut(problem, problem.n // 2) if name == GPT2 else problem for name in taking_part
    }
    curves = {
        **{
            name: mean_curve(transformer_errors(each, given[name])[:, 1:])
            for name, each in taking_part.items()
        },
        "LISTA-VM": mean_curve(prefix_errors(iteration, problem)[:, 1:]),
    }
    for m in range(1, problem.n + 1):
        found = classical_errors(cut(tuning, m), cut(problem, m), blocks)
        if m <= problem.d:  # with more, its W is none
            found["ALISTA, W for each X"] = solver_errors(adapted, cut(problem, m))
        for name, (loss, error) in mean_losses(found).items():
            curves.setdefault(name, []).append([loss, error])
    return curves


def train_from_construction(
    sizes: Sizes, iteration: TrainedRun, restart: int, steps: int, **given: Any
) -> TrainedRun:
    """Train Small TF further from the weights that run a trained LISTA-VM (its M = γI)."""
    model = iteration.model
    assert isinstance(model, ListaVM)
    start = {
        "start": "construction",
        "gammas": model.steps.detach().double(),
        "thetas": model.thresholds.detach().double(),
    }
    given = {"learning_rate": 4e-4, "warmup": steps // 10, "prefixes": False, **given}
    return sizes.train("small-transformer", restart, steps, 64, **start, **given)
