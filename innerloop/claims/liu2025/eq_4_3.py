"""(4.3), (C.2), (C.3): the MLP is a soft threshold on β and leaves the rest of a token alone.

Printed    MLP(h) = h + W₂ σ(W₁ h + b). W₁ stacks ±W_sub four times (W_sub the identity on β), W₂ is
           (−I, I, I, −I), b is −θ on β's entries of the third block and +θ on those of the fourth.
           "Therefore" the output is S_θ on β and the identity elsewhere (C.3). Section 4.3 has the
           same terms, −σ(x), σ(−x), σ(x − θ), −σ(−x + θ) and x
Tested     the printed weights on random tokens and on hard ones, θ from 0.01 to 3. The weights are
           what is asserted; that some weights do it, on which Theorem 4.1 rests, is true
Corrected  the last bias is −θ. Proof: x − σ(x) + σ(−x) = 0, and σ(x − θ) − σ(−x − θ) = S_θ(x) for
           θ ≥ 0; with +θ it is x − θ for every x, since σ(a) − σ(−a) = a: a shift, no threshold.
           No other weights of the five terms help: none of them has a kink at −θ
Wrong      the display (4.3), in the text at hand, perhaps by its conversion, puts S_θ around x and
           y too; read (C.3)
Beyond     the corrected weights are those of the construction `lista-vm`
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.figures import Figure, draw_lines
from innerloop.claims.liu2025.hard_instances import HARD_MATRICES
from innerloop.claims.liu2025.printed import apply_mlp, printed_units, soft_threshold
from innerloop.claims.trials import Equality
from innerloop.constructions.lista_vm import ListaVMConstruction

LARGEST_D, TOKENS = 6, 8


class Tokens(NamedTuple):
    """Tokens before the MLP, and after it with last bias +θ, with −θ, and in `lista-vm`."""

    h: Tensor
    printed: Tensor
    proper: Tensor
    built: Tensor
    theta: float
    case: Case


def combine_terms(x: Tensor, theta: float, last: float) -> Tensor:
    """The five terms of Section 4.3, with `last`·θ in the fourth."""
    return x - x.relu() + (-x).relu() + (x - theta).relu() - (last * theta - x).relu()


def judge_mlp(found: list[Tokens]) -> Evidence:
    whole = [
        Equality(
            f"(C.2) with last bias ${sign}θ$ gives (C.3): $S_θ$ on $β$, all else as it is",
            tolerance=1e-12,
        )
        for sign in "+−"
    ]
    display = Equality("(4.3) as displayed: $S_θ$ on $x$, $y$ and $β$", tolerance=1e-12)
    built = Equality("the MLP of the construction lista-vm gives (C.3)", tolerance=1e-12)
    for each in found:
        d, h = each.case["d"], each.h
        wanted, shown = h.clone(), h.clone()
        wanted[d + 1 : 2 * d + 1] = soft_threshold(h[d + 1 : 2 * d + 1], each.theta)
        shown[: 2 * d + 1] = soft_threshold(h[: 2 * d + 1], each.theta)
        for trial, out in zip(whole, (each.printed, each.proper), strict=True):
            trial.add(out, wanted, each.case)
        display.add(each.proper, shown, each.case)
        built.add(each.built, wanted, each.case)
    printed, proper = (trial.check() for trial in whole)
    return Evidence(
        parts=[Part(printed=printed, corrected=proper)],
        errata=[
            Part(printed=display.check(), corrected=proper).as_erratum(
                "(4.3) in the text at hand, perhaps of its conversion to text", grade="print"
            )
        ],
        beyond=[built.check()],
        figures=[_draw_figure()],
    )


@claim(
    "liu2025.eq-4.3",
    "The MLP with the weights (C.2) is a soft threshold on the entries of $β$ and the "
    "identity on all others.",
    where="Section 4.3, (4.3); Appendix C.1, (C.2) and (C.3)",
    kind="equality",
    hypotheses={"$θ ≥ 0$": "a soft threshold (Section 4.2)", "$σ$ is the ReLU": "Section 3.1"},
    quick={"trials": 600},
    full={"trials": 50_000},
    tiny={"trials": 40},
    judge=judge_mlp,
    falsified={
        "an MLP that changes nothing": lambda found: [
            each._replace(proper=each.h) for each in found
        ]
    },
)
def eq_4_3(generator: torch.Generator, *, trials: int) -> list[Tokens]:
    by_hand = torch.tensor([[0.5], [0.0], [0.0], [1.0]], dtype=torch.float64)
    found = [_apply(by_hand, 1.0, "$x = 1/2$, $y = β = 0$")]
    found += [_apply(build(2 * d + 2), 1.0) for build in HARD_MATRICES.values() for d in (1, 2)]
    for trial in range(1, trials):
        theta = float(10 ** (2.5 * torch.rand((), generator=generator, dtype=torch.float64) - 2))
        d = 1 + trial % LARGEST_D
        h = torch.randn(2 * d + 2, TOKENS, generator=generator, dtype=torch.float64)
        found.append(_apply(h, theta))
    return found


def _apply(h: Tensor, theta: float, note: str = "") -> Tokens:
    d = len(h) // 2 - 1
    plus, minus = (apply_mlp(h, printed_units(d, theta, last)) for last in (1.0, -1.0))
    (block,) = ListaVMConstruction(d=d, n=1, steps=1, threshold=theta).body(0)
    assert block.mlp is not None
    # Only d is a number that orders it: the one by hand comes first among equals.
    case = Case(d=d, θ=torch.tensor(theta), note=note)
    return Tokens(h, plus, minus, block.mlp(h.mT).mT, theta, case)


def _draw_figure() -> Figure:
    x = torch.linspace(-3, 3, 61, dtype=torch.float64)
    rows = [
        {"beta": float(a), "out": float(b), "weights": name}
        for name, last in (("printed, last bias +θ", 1.0), ("corrected, last bias −θ", -1.0))
        for a, b in zip(x, combine_terms(x, 1.0, last), strict=True)
    ]
    return draw_lines(
        "What the MLP makes of an entry of β, θ = 1",
        rows,
        "beta: entry of β before the MLP",
        "out: after the MLP",
        by="weights",
        caption="The printed bias shifts every entry by θ; the corrected one thresholds.",
    )
