"""Figure 1a: which methods solve sparse recovery on an unseen X, and which only on their own.

Printed    varying X: GPT-2 < Small TF < LISTA-VM < FISTA, ISTA < LISTA, LISTA-CP, ALISTA trained on
           one X; on that X all of these are comparable with Small TF; trained on many X, LISTA and
           LISTA-CP are still much higher than LISTA-VM. d = 20, S = 3, N = 10, K = 12, no noise
Tested     all methods on the same examples. Each is trained here, except the transformers, which
           are recorded; penalties are best on other examples. Statements about transformers stay
           undecided, whatever their outcome, unless these are trained as in the paper
           (`paper`). At `full` Small TF has less than 1 % of the paper's steps, its query read-out
           begins at the proof's V, most steps average gradients over features, and its loss is on
           β; GPT-2 has 6 layers, width 64 and 3 % of the steps, where the paper has 12 layers and
           width 256. There are three trainings of each at `full`, but one of GPT-2. Without
           recorded networks the package trains Small TF from the construction of Theorem 4.1
Reading    LISTA-VM as the paper trains it, which ends around 0.68 (Figure 3): that is below FISTA,
           0.83 to 0.86, as the 0.48 of our training is. A learning rate with which LISTA-VM ends
           at 0.95 (figure-3) is therefore not the paper's
Ours       "comparable" is within a factor of 2, either way, "much higher" twice as high. LISTA-VM
           begins at Chebyshev's steps and sees some X stretched in training; the paper prints
           neither start nor learning rate
Beyond     ALISTA's W is a small solve for each X: then it needs no X of its own, and is the best of
           the learned iterations on varying X. The lasso, solved, is better than all with K layers.
           With fewer examples than it was trained for, LISTA-VM diverges: its steps are too large.
           Squared errors are cut at 10⁴. LISTA-CP and ALISTA of one X diverge on most others:
           their losses are lower bounds. Small TF of seeds 1 and 2 is at the cut on one of 20,000
           prompts, which adds 0.5 to its mean of 0.92 and 0.99: without that prompt it is 0.42 and
           0.49. The same holds on the X of LISTA (0.44, 0.47 without), and for the one from near
           the construction of seed 1 (0.93). Theorem 5.1 does not apply: Assumption 1 excludes
           Gaussian x, and for entries ±1, δ = 0.1 and c = 1/4 N_0 would be 20,471
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence
from innerloop.claims.figures import draw_lines
from innerloop.claims.liu2025 import contest
from innerloop.claims.liu2025.contest import GPT2, Pair, Sizes
from innerloop.claims.recorded import name_trainings
from innerloop.models.lista_vm import ListaVM
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.recipes.base import TrainedRun
from innerloop.recipes.sparse import select_instances
from innerloop.theory import sparse

VARYING, FIXED, MANY = "varying X", "its own X", "trained on many X"
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


ABOVE = Pair("varying $X$: GPT-2 < Small TF", GPT2, "Small TF", needs="trained")
"""The pair added where GPT-2 takes part."""
PAIRS = [
    Pair("varying $X$: Small TF < LISTA-VM", "Small TF", "LISTA-VM", needs="trained"),
    Pair("varying $X$: LISTA-VM < FISTA", "LISTA-VM", "FISTA"),
    Pair("varying $X$: LISTA-VM < ISTA", "LISTA-VM", "ISTA"),
    *(
        Pair(f"varying $X$: {plain} < {name} of one $X$", plain, name)
        for plain in ("ISTA", "FISTA")
        for name in SOLVERS
    ),
    *(
        Pair(
            f"own $X$: {name} is comparable with Small TF",
            f"{name} on its X",
            "Small TF on its X",
        )._replace(share=2.0, both=True, needs="trained", ours="within a factor of 2, either way")
        for name in SOLVERS
    ),
    *(
        Pair(
            f"{name} of many $X$: much higher than LISTA-VM", "LISTA-VM", f"{name}, meta-trained"
        )._replace(share=0.5, ours="twice as high")
        for name in ("LISTA", "LISTA-CP")
    ),
]


def select_pairs(taking_part: Collection[str]) -> list[Pair]:
    return [*PAIRS, *([ABOVE] if GPT2 in taking_part else [])]


def judge_methods(found: list[dict[str, Any]]) -> Evidence:
    first = found[0]
    table = contest.method_rows(GROUPS, [cell["losses"] for cell in found])
    n, told = first["sizes"]["n"], contest.describe_bands(len(found), first["examples"])
    title = "d = {d}, S = {sparsity}, n = {n}, K = {blocks}".format(**first["sizes"])
    trained = (
        f"{first['training']} LISTA-VM begins at Chebyshev's steps and sees some $X$ "
        "stretched: the paper does not print its start."
    )
    return Evidence(
        parts=contest.judge_pairs(select_pairs(first["losses"]), found),
        numbers={"N_0 of Theorem 5.1 for d = 20, S = 3, entries ±1, δ = 0.1, c = 1/4": N_0},
        table=table,
        figures=[
            contest.draw_losses(
                f"Label loss of each method, {title}",
                table,
                "setting",
                f"{told} {trained} Squared errors are cut at 10⁴: a mean near that is a lower "
                "bound of a method that diverges. " + contest.describe_cut(found),
            ),
            draw_lines(
                f"Prompts of other lengths than in training, {title}",
                contest.curve_rows([cell["curves"] for cell in found], "method", 1),
                "n: examples in the prompt",
                "loss: E (ŷ − y)²",
                by="method",
                log="y",
                band=("least", "largest"),
                caption=f"{contest.describe_bands(len(found), first['drawn'])} {trained} "
                f"What learns was trained with {n} examples, recorded transformers "
                "also with fewer; GPT-2 has positions for no more. LISTA and LISTA-CP have "
                "matrices for one n and no other. Theorem 5.1 does not apply to Gaussian x, which "
                f"Assumption 1 excludes; for entries ±1 it begins at n = {N_0:,}.",
            ),
        ],
    )


SHARE_OF_LENGTHS = 5
"""One prompt in this many is also tried at other lengths: a lasso is solved for each length."""
N_0 = int(sparse.least_examples(3, 20, 0.1, 0.25)) + 1
RECORDED = ["small-transformer", "small-transformer-near"]


@claim(
    "liu2025.figure-1a",
    "On varying $X$ a transformer beats LISTA-VM, that beats FISTA and ISTA, and these "
    "beat what was trained on one $X$; on its own $X$ each LISTA comes near the "
    "transformer.",
    where="Section 6, Figure 1a",
    kind="ordering",
    hypotheses=contest.SETUP,
    out_of_reach=contest.OUT_OF_REACH,
    quick=[
        {**contest.SMALL, "steps": 200, "batch": 128, "examples": 2000, "restart": k}
        | {"machines": {"Small TF": f"quick-small-transformer-{k}", GPT2: f"quick-gpt2-{k}"}}
        for k in range(2)
    ],
    full=[
        {**contest.PAPER, "steps": 1500, "batch": 512, "examples": 20_000, "restart": k}
        | {"machines": {"Small TF": small, NEAR: near, GPT2: "gpt2"}}
        for k, (small, near) in enumerate(name_trainings(RECORDED, 3))
    ],
    paper=[
        {**contest.PAPER, "steps": 17_000, "batch": 1000, "examples": 20_000, "restart": k}
        | {"epochs": contest.EPOCHS}
        for k in range(3)
    ],
    tiny={"d": 3, "n": 2, "sparsity": 1, "blocks": 2, "steps": 20, "batch": 32, "examples": 200}
    | {"restart": 0},
    conclude=judge_methods,
    falsified=contest.WORSE
    | {"the first of each pair a tenth of the second": contest.set_ratio(0.1)},
)
def figure_1a(
    generator: torch.Generator,
    *,
    steps: int,
    batch: int,
    examples: int,
    restart: int,
    machines: Mapping[str, str] | None = None,
    epochs: int | None = None,
    **given: int,
) -> dict[str, Any]:
    sizes = Sizes(**given)
    taking_part = contest.load_transformers(sizes, restart, machines=machines, epochs=epochs)
    tuning, problem, own = (
        sizes.distribution(fixed=fixed).sample(examples, generator=generator)
        for fixed in (None, None, restart)
    )
    drawn = examples // SHARE_OF_LENGTHS
    longer = replace(sizes, n=2 * sizes.n).distribution().sample(2, drawn, generator=generator)

    def learned(name: str, **given: Any) -> Any:
        return sizes.train(name, restart, steps, batch, **given)

    iteration, adapted = learned("lista-vm-learned"), learned("alista")
    if not taking_part:
        taking_part = {"Small TF": train_from_construction(sizes, iteration, restart, steps)}
    errors = {
        **contest.last_errors(taking_part, problem),
        "Small TF on its X": contest.transformer_errors(taking_part["Small TF"], own)[:, -1],
        "LISTA-VM": contest.solver_errors(iteration, problem),
        "ALISTA, W for each X": contest.solver_errors(adapted, problem),
        **contest.classical_errors(tuning, problem, sizes.blocks),
    }
    for name, recipe in SOLVERS.items():
        solver = learned(recipe, fixed=restart)
        errors[name] = contest.solver_errors(solver, problem)
        errors[f"{name} on its X"] = contest.solver_errors(solver, own)
        if name != "ALISTA":
            errors[f"{name}, meta-trained"] = contest.solver_errors(learned(recipe), problem)
    return {
        "sizes": given,
        "examples": examples,
        "drawn": drawn,
        "training": contest.describe_training(taking_part["Small TF"]),
        "seeds": contest.list_seeds(taking_part),
        "losses": contest.mean_losses(errors),
        "pairs": contest.compare_pairs(errors, select_pairs(errors)),
        "printed": sizes.is_printed,
        "trained": sizes.is_printed and (epochs or 0) >= contest.EPOCHS,
        "curves": _curves(
            taking_part,
            iteration,
            adapted,
            sizes.blocks,
            *(select_instances(longer, k) for k in (0, 1)),
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
            name: contest.mean_curve(contest.transformer_errors(each, given[name])[:, 1:])
            for name, each in taking_part.items()
        },
        "LISTA-VM": contest.mean_curve(contest.prefix_errors(iteration, problem)[:, 1:]),
    }
    for m in range(1, problem.n + 1):
        found = contest.classical_errors(cut(tuning, m), cut(problem, m), blocks)
        if m <= problem.d:  # with more, its W is none
            found["ALISTA, W for each X"] = contest.solver_errors(adapted, cut(problem, m))
        for name, (loss, error) in contest.mean_losses(found).items():
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
