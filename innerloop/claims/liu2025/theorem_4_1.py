"""Theorem 4.1 (Theorem C.1): every odd token of every layer carries LISTA-VM's iterate.

Printed    there are parameters such that for all layers k and prefixes n, with M^(k) = γ^(k) M^V,
           β_{2n+1} ← S_θ(β_{2n+1} − 1/(2n+1) M X_nᵀ (X_n β_{2n+1} − y_n))                    (4.4)
           Appendix C gives the parameters: four heads (C.1) with M₁^Q = −I, M₁^V = γM^V, …, B from
           the bounds on x and β*, and the MLP (C.2)
Tested     the built transformer `lista-vm`, and the printed weights run as Definitions 3.1 and 3.2
           have them: each layer's step from what the stream held before it, at every odd token.
           M dense and asymmetric, anisotropic x, hard x, n < d and n > d, with and without noise
Wrong      the last bias of (C.2): −θ (liu2025.eq-4.3, with proof). The first line of (C.12) divides
           only the term in XᵀXβ by i; its second line is right, by Definition 3.1
Beyond     n = 0, the first token, which has seen no label: its β stays 0
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part, misprint
from innerloop.claims.liu2025 import printed
from innerloop.claims.liu2025.hard_instances import Examples, list_hard_examples
from innerloop.claims.liu2025.printed import soft_threshold
from innerloop.claims.prompts import draw_integer, draw_normal
from innerloop.claims.trials import Equality
from innerloop.constructions.lista_vm import ListaVMConstruction
from innerloop.problems.linear_regression import RegressionProblem

LARGEST_D, LARGEST_N, LAYERS = 6, 9, 4


class Step(NamedTuple):
    """One layer at one odd token: β after it, and what (4.4) makes of the β before it."""

    after: Tensor
    wanted: Tensor
    undivided: Tensor
    """What the first line of (C.12) makes of it."""
    case: Case


class Instance(NamedTuple):
    X: Tensor
    y: Tensor
    query: Tensor
    matrices: Tensor
    thetas: Tensor
    bound: float
    note: str = ""


Data = dict[str, list[Step]]
"""Steps of the construction (`built`), of the printed weights, and of those with last bias −θ."""


def judge_layers(data: Data) -> Evidence:
    line = "{} give (4.4), every layer $k$ and prefix $n$"
    forms = {
        "built": line.format("some parameters"),
        "printed": line.format("the parameters (C.1) and (C.2)"),
        "mended": line.format("(C.1) and (C.2) with last bias $−θ$"),
    }
    trials = {name: Equality(form, tolerance=1e-10) for name, form in forms.items()}
    undivided = Equality(
        "first line of (C.12): the term in $y$ is not divided by $i$", tolerance=1e-10
    )
    first = Equality("$n = 0$: the first token, which has seen no label, keeps $β = 0$")
    for name, steps in data.items():
        for step in steps:
            if step.case["n"] == 0:
                if name == "built":
                    first.add(step.after, torch.zeros_like(step.after), step.case)
                continue
            trials[name].add(step.after, step.wanted, step.case)
            if name == "mended":
                undivided.add(step.after, step.undivided, step.case)
    built, literal, mended = (trials[name].check() for name in forms)
    return Evidence(
        parts=[Part(printed=built)],
        errata=[
            Part(printed=literal, corrected=mended).as_erratum("Appendix C.1, $b^(k)$ in (C.2)"),
            Part(printed=undivided.check(), corrected=mended).as_erratum(
                "proof, the first line of (C.12)", grade="print"
            ),
            misprint(
                "Section 4.3 and Appendix D, where $β$ is addressed",
                "rows $d+1 … 2d+1$ of a token are its $β$",
                "rows $d+2 … 2d+1$, as in Theorem C.1",
                "$d = 1$: rows 2 and 3 are $y$ and $β$, two numbers for one",
            ),
            misprint(
                "(C.5), (C.6), (C.8), (C.10) and (C.13)",
                "the key's $x$ has the query's index $i$; an even token has label 0 and flag 1",
                "the index $j$; an even token has its label and flag 0",
                "(C.4): token 2 is $(x_1, y_1, β_2, 0)$",
            ),
        ],
        beyond=[first.check()],
    )


@claim(
    "liu2025.theorem-4.1",
    "A decoder with four heads and an MLP in each layer can run LISTA-VM: after layer $k$, "
    "odd token $2n+1$ carries the k-th iterate of the first $n$ examples, for every $n$.",
    where="Section 4.3, Theorem 4.1; Appendix C.1 and C.2, Theorem C.1",
    kind="equality",
    hypotheses={"$‖x‖ ≤ b_x$, $‖β*‖₁ ≤ b_β$": "Assumption 1, which $B$ is made from"},
    quick={"trials": 120},
    full={"trials": 10_000},
    tiny={"trials": 10},
    judge=judge_layers,
    falsified={
        "layers that are a hundredth off": lambda data: {
            name: [step._replace(after=step.after + 0.01) for step in steps]
            for name, steps in data.items()
        }
    },
)
def theorem_4_1(generator: torch.Generator, *, trials: int) -> Data:
    instances = [_smallest(), *map(_repeat_examples, list_hard_examples(1, 2, 3))]
    instances += [_draw_instance(generator, trial) for trial in range(1, trials)]
    runs = {"built": _run_construction, "printed": partial(_run_printed, last=1.0)}
    runs["mended"] = partial(_run_printed, last=-1.0)
    return {name: [step for each in instances for step in run(each)] for name, run in runs.items()}


def _run_construction(instance: Instance) -> list[Step]:
    """Run the construction, each step from its own stream; θ is the same for all layers."""
    (n, d), layers = instance.X.shape, len(instance.thetas)
    problem = RegressionProblem.from_arrays(instance.X, instance.y, instance.query)
    built = ListaVMConstruction(
        d=d,
        n=n,
        steps=layers,
        threshold=float(instance.thetas[0]),
        preconditioners=instance.matrices,
        bound=1e6,
    )
    trace = built.transformer.trace(built.prompt(problem))
    instance, steps = instance._replace(thetas=instance.thetas[:1].expand(layers)), []
    for k in range(layers):
        before, after = (trace[k + j]["beta"][0::2].mT for j in (0, 1))
        steps += _list_steps(instance, k, before, after)
    return steps


def _run_printed(instance: Instance, last: float) -> list[Step]:
    """Run the weights of Appendix C, the last bias being `last`·θ."""
    H, steps = printed.printed_prompt(instance.X, instance.y, instance.query), []
    for k, theta in enumerate(instance.thetas.tolist()):
        after = printed.run_layer(H, instance.matrices[k], theta, instance.bound, last)
        steps += _list_steps(instance, k, printed.read_beta(H), printed.read_beta(after))
        H = after
    return steps


def _list_steps(instance: Instance, k: int, before: Tensor, after: Tensor) -> list[Step]:
    """List layer k at every odd token: columns n = 0 … N are the prefixes."""
    N, d = instance.X.shape
    M, theta, steps = instance.matrices[k], float(instance.thetas[k]), []
    for n in range(N + 1):
        X, y, beta = instance.X[:n], instance.y[:n], before[:, n]
        wanted = printed.take_step(M, X, y, beta, theta)
        moved = beta - M @ X.mT @ X @ beta / (2 * n + 1) + M @ X.mT @ y
        case = Case(d=d, N=N, layer=k + 1, n=n, θ=torch.tensor(theta), note=instance.note)
        steps.append(Step(after[:, n], wanted, soft_threshold(moved, theta), case))
    return steps


def _smallest() -> Instance:
    """An instance with d = N = 1, one layer, small whole numbers, to check by hand."""
    one = torch.ones(1, 1, dtype=torch.float64)
    note = "$x = 1$, $y = 2$, $M = 1$, $β = 0$ before"
    return Instance(one, 2 * one[0], one[0], one[None], one[0], 100.0, note)


def _repeat_examples(given: Examples) -> Instance:
    """Run three layers of the same M and θ = 0.01 on hard examples."""
    matrices, thetas = given.M.expand(3, -1, -1), torch.full((3,), 0.01, dtype=torch.float64)
    return Instance(given.X, given.X @ given.star, given.X[0], matrices, thetas, given.bound)


def _draw_instance(generator: torch.Generator, trial: int) -> Instance:
    normal = partial(draw_normal, generator)
    d = 1 + trial % LARGEST_D
    N, layers = draw_integer(generator, 1, LARGEST_N), draw_integer(generator, 1, LAYERS)
    scales = torch.linspace(0.5, 2.0, d, dtype=torch.float64)
    X, query = normal(N, d) * scales, normal(d) * scales
    star = normal(d) * (torch.rand(d, generator=generator) < 0.5)
    y = X @ star + (0.3 * normal(N) if trial % 2 else 0.0)
    top = float(torch.linalg.matrix_norm(X, 2)) ** 2 / (2 * N + 1)
    matrices = normal(layers, d, d) / (top * d**0.5)
    thetas = 0.3 * torch.rand(layers, generator=generator, dtype=torch.float64)
    # The printed bound: B ≥ b_β b_x + b_x √d (b_β + C_β^K).
    b_x, b_beta = float(torch.cat([X, query[None]]).norm(dim=1).max()), float(star.abs().sum())
    norm = float(torch.linalg.matrix_norm(matrices, 2).max())
    grown = (1 + b_x**2 * d * norm + b_beta * b_x * norm) ** layers
    bound = b_beta * b_x + b_x * d**0.5 * (b_beta + grown)
    return Instance(X, y, query, matrices, thetas, bound)
