"""Proposition 6: a small decoder turns the alternating prompt into the encoder's.

Printed    input H with columns (x_i; 0; p), (0; y_i; p), …, (x_{N+1}; 0; p), p = (0; ⌈i/2⌉; 1;
           (i+1) mod 2). A decoder of 2 layers, 3 heads per layer, hidden dimension 2 and ‖θ‖ ≤ 12
           gives H̃, whose display repeats H; rows {1, 2, …, D−1, D−2, D} and columns
           {2, 4, …, 2N, 2N+1} of H̃ are said to be the encoder's format. No proof, no weights
Tested     the display against the encoder's format; both readings of the rows; the built weights
           run as the slides define a decoder, D×D matrices and an MLP without bias, the norm by its
           definition with the balanced split of each score into Q and K
Reading    column 2i of H̃ is (x_i; y_i; p): a conversion, as its name says, and the encoder's format
           is in it. The display, which repeats H, and its rows are errata of print
Beyond     fewer heads than printed (2 and 1), half of the norm; two of the zero rows of p are used,
           so D ≥ d + 6, where the slides leave D open
Note       as displayed, H̃ = H, which a transformer with zero weights outputs. The bound is printed
           on ‖θ‖₂, which the slides do not define; their ‖θ‖_op is taken
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Erratum, Evidence, Part
from innerloop.claims.falsifying import change_column
from innerloop.claims.qliu2025.hard_instances import HARD_MATRICES
from innerloop.claims.qliu2025.slides import Layer, run_layers, weights_norm
from innerloop.claims.trials import Equality, Inequality, take_worst
from innerloop.constructions.format_conversion import FormatConversionConstruction
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.transformer import Block

LIMITS = {"layers": 2.0, "heads in a layer": 3.0, "hidden units": 2.0, "‖θ‖": 12.0}
LARGEST_D, SIZES = 5, (1, 2, 3, 5, 10, 20, 50, 100)


def printed_rows(D: int) -> list[int]:
    """The printed rows {1, 2, …, D−1, D−2, D}: all of them, D−1 before D−2."""
    return [*range(1, D - 2), D - 1, D - 2, D]


def proper_rows(D: int) -> list[int]:
    return [*range(1, D - 2), D - 1, D]


WORST = "the column where the sides differ most"
Rows = list[dict[str, Any]]


def judge_conversion(rows: Rows) -> Evidence:
    display = Equality("$H̃$ as displayed ($H$ again) holds the encoder's format", tolerance=1e-12)
    paired = Equality("column $2i$ of $H̃$ is $(x_i; y_i; p)$, the others as in $H$", tolerance=1e-9)
    listed = Equality("rows $1, 2, …, D−1, D−2, D$ of $H̃$ are the encoder's", tolerance=1e-12)
    kept = Equality("rows $1, …, D−3, D−1, D$ of $H̃$ are the encoder's", tolerance=1e-9)
    enough = Inequality("2 layers, 3 heads per layer, hidden dimension 2, $‖θ‖ ≤ 12$ suffice")
    table: dict[int, float] = {}
    for row in rows:
        case, H, out, wanted, encoder = (
            row[name] for name in ("case", "H", "out", "wanted", "encoder")
        )
        D = H.shape[1]
        shown = _restrict_stream(H, proper_rows(D))
        display.add(*take_worst(shown, encoder, 0), case.extend(note=WORST))
        table[case["N"]] = max(paired.add(out, wanted, case), table.get(case["N"], 0.0))
        full = _restrict_stream(wanted, printed_rows(D))
        padded = torch.cat([encoder, torch.zeros_like(encoder[:, :1])], dim=1)
        note = f"$D = {D}$, {D} rows for {D - 1} and a 0, {WORST}"
        listed.add(*take_worst(full, padded, 0), case.extend(note=note))
        kept.add(_restrict_stream(out, proper_rows(D)), encoder, case)
        for what, most in LIMITS.items():
            enough.add(row["counted"][what], most, case.extend(note=what))
    meant = "columns $(x_i; y_i; p)$, as the name of the proposition says"
    return Evidence(
        parts=[
            Part(printed=paired.check(), reading=meant),
            Part(printed=kept.check(), reading="all rows but that of ⌈i/2⌉"),
            Part(printed=enough.check(), reading="$‖θ‖₂$ is the $‖θ‖_op$ of the slides"),
        ],
        errata=[
            Erratum(
                where="Proposition 6, $H̃$", printed=display.check(), meant=meant, grade="print"
            ),
            Part(printed=listed.check(), corrected=kept.check()).as_erratum(
                "Proposition 6, the rows", "print"
            ),
        ],
        numbers={**rows[-1]["counted"], "largest N": max(table), "off there": table[max(table)]},
        table=[{"N": N, "largest deviation": table[N]} for N in sorted(table)],
    )


@claim(
    "qliu2025.proposition-6",
    "Two decoder layers with up to three heads, two hidden units and norm at most 12 turn the "
    "decoder's alternating prompt into one that contains the encoder's.",
    where="Proposition 6",
    kind="equality",
    hypotheses={"$D ≥ d + 6$": "ours: the slides leave $D$ open, two zero rows of $p$ are used"},
    quick={"trials": 200, "longest": 500},
    full={"trials": 2_000, "longest": 2_000},
    tiny={"trials": 12, "longest": 40},
    judge=judge_conversion,
    falsified={
        "an output that is the input": lambda rows: [{**row, "out": row["H"]} for row in rows],
        "an output without the encoder's flag": change_column(
            "out", lambda out: torch.cat([out[:, :-1], 0 * out[:, -1:]], dim=1)
        ),
        "a norm of 13": change_column("counted", lambda counted: {**counted, "‖θ‖": 13.0}),
    },
)
def proposition_6(generator: torch.Generator, *, trials: int, longest: int) -> Rows:
    problems = [RegressionProblem.from_arrays([[3.0]], [5.0], [7.0])]
    problems += [
        RegressionProblem.from_arrays(build(d), build(d).sum(-1), build(d)[0])
        for build in HARD_MATRICES.values()
        for d in (1, 2, 3)
    ]
    for trial in range(1, trials):
        N = longest if trial == trials - 1 else SIZES[trial // LARGEST_D % len(SIZES)]
        distribution = LinearRegression(d=1 + trial % LARGEST_D, n=N, noise=0.5)
        problems.append(distribution.sample(generator=generator))
    return [_convert(problem) for problem in problems]


def _convert(problem: RegressionProblem) -> dict[str, Any]:
    """Run the built decoder on a prompt, and make what it should output."""
    construction = FormatConversionConstruction(d=problem.d, n=problem.n)
    layers, D = _read_layers(construction.body(0)), construction.layout.width
    H = construction.prompt(problem)
    return {
        "case": Case(d=problem.d, N=problem.n),
        "H": H,
        "out": run_layers(layers, H.mT, causal=True).mT,
        "wanted": _pair_tokens(H, problem),
        "encoder": _encoder_prompt(problem, D),
        "counted": {**_count_resources(layers), "zero rows of p in use": D - problem.d - 4},
    }


def _pair_tokens(H: Tensor, problem: RegressionProblem) -> Tensor:
    out = H.clone()
    out[1::2, : problem.d] = problem.x
    return out


def _encoder_prompt(problem: RegressionProblem, D: int) -> Tensor:
    """The encoder's prompt with one row less than D: tokens × (D − 1)."""
    parts = problem.to_encoder_format()
    tokens = torch.zeros(problem.n + 1, D - 1, dtype=torch.float64)
    tokens[:, : problem.d], tokens[:, problem.d] = parts["x"], parts["y"]
    tokens[:, -2], tokens[:, -1] = parts["one"], parts["t"]
    return tokens


def _restrict_stream(stream: Tensor, rows: Sequence[int]) -> Tensor:
    """Select columns {2, 4, …, 2N, 2N+1} and the given rows, counted from 1, of tokens × D."""
    columns = [*range(1, stream.shape[0], 2), stream.shape[0] - 1]
    return stream[columns][:, [row - 1 for row in rows]]


def _read_layers(blocks: list[Block]) -> list[Layer]:
    """The matrices of a decoder as the slides define it, Q and K of equal norm, no bias."""
    layers = []
    for block in blocks:
        attention, mlp = block.attention, block.mlp
        assert attention is not None
        scores = attention.score_matrices()
        left, root, right = torch.linalg.svd(scores)
        V, D = torch.zeros_like(scores), scores.shape[-1]
        V[:, attention.targets] = attention.value
        inner, outer = torch.zeros(0, D).to(V), torch.zeros(D, 0).to(V)
        if mlp is not None:
            assert not mlp.bias.any()
            assert not len(mlp.everywhere)
            inner, outer = mlp.inner, torch.zeros(D, len(mlp.inner)).to(V)
            outer[mlp.targets] = mlp.outer
        roots = root.sqrt()[..., None]
        layers.append(Layer(V, roots * left.mT, roots * right, inner, outer))
    return layers


def _count_resources(layers: list[Layer]) -> dict[str, float | int]:
    """Count layers, heads, hidden units and the norm, each as the slides define it."""
    return {
        "layers": len(layers),
        "heads in a layer": max(len(layer.V) for layer in layers),
        "hidden units": max(len(layer.W1) for layer in layers),
        "‖θ‖": float(weights_norm(layers)),
    }
