"""(4.3), (C.2), (C.3): the MLP is a soft threshold on β and leaves the rest of a token alone.

Printed    MLP(h) = h + W₂ σ(W₁ h + b). W₁ stacks ±W_sub four times (W_sub the identity on β), W₂ is
           (−I, I, I, −I), b is −θ on β's entries of the third block and +θ on those of the fourth.
           Section 4.3 names the same terms: −σ(x), σ(−x), σ(x − θ), −σ(−x + θ) and x. The outcome
           is said to be S_θ on β and the identity elsewhere (C.3); the display (4.3), as the text
           at hand has it, puts S_θ around x and y too
Tested     the printed weights on random tokens, θ from 0.01 to 3; each form of the outcome
Correction the last bias is −θ: σ(x − θ) − σ(−x − θ) is S_θ. With +θ the terms are x − θ for every
           x, since σ(a) − σ(−a) = a: a shift, and no threshold. And (C.3), not the display (4.3)
Beyond     the corrected weights are those of the construction `lista-vm`, held to the same test
"""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Evidence, Figure, Part
from innerloop.claims.liu2025.printed import Units, apply_mlp, printed_units, soft_threshold
from innerloop.claims.trials import Equality
from innerloop.constructions.lista_vm import ListaVMConstruction

LARGEST_D, TOKENS = 6, 8


def terms(x: Tensor, theta: float, last: float) -> Tensor:
    """The five terms of Section 4.3, with `last`·θ in the fourth."""
    return x - x.relu() + (-x).relu() + (x - theta).relu() - (last * theta - x).relu()


@claim(
    "liu2025.eq-4.3",
    "The MLP with the weights (C.2) is a soft threshold on the entries of β and the identity on "
    "all others.",
    where="Section 4.3, (4.3); Appendix C.1, (C.2) and (C.3)",
    kind="equality",
    quick={"trials": 1_000},
    full={"trials": 50_000},
    tiny={"trials": 40},
    falsified={
        "no threshold on the negative side": {"corrected": 0.0},
        "the units write one row further down": {"down": 1},
    },
)
def eq_4_3(
    generator: torch.Generator, *, trials: int, corrected: float = -1.0, down: int = 0
) -> Evidence:
    scalar = _pair("x − σ(x) + σ(−x) + σ(x − θ) − σ({}x {} θ) = S_θ(x)")
    weights = _pair("(C.2) with last bias {1}θ gives S_θ on β")
    rest = Equality("(C.2) leaves x, y and the flag as they are", tolerance=1e-12)
    display = Equality("(4.3) as displayed: S_θ on x, y and β", tolerance=1e-12)
    proper = Equality("(C.3): S_θ on β alone", tolerance=1e-12)
    shift = 0.0
    for trial in range(trials):
        d = 1 + trial % LARGEST_D
        theta = float(10 ** (2.5 * torch.rand((), generator=generator, dtype=torch.float64) - 2))
        h = torch.randn(2 * d + 2, TOKENS, generator=generator, dtype=torch.float64)
        if trial == 0:  # The smallest case, for a reader to check by hand.
            theta, h = 1.0, torch.tensor([[0.5], [0.0], [0.0], [1.0]], dtype=torch.float64)
        size, about = (d, theta != 1.0, trial), f"d = {d}, θ = {theta:g}"
        beta, top = h[d + 1 : 2 * d + 1], h[: d + 1]
        wanted = soft_threshold(beta, theta)
        for k, last in enumerate((1.0, corrected)):
            out = apply_mlp(h, _shift_output(printed_units(d, theta, last), down))
            found = out[d + 1 : 2 * d + 1]
            first = [f"{float(part[0, 0]):.3g}" for part in (beta, wanted, found)]
            told = f"{about}, β = {first[0]}: S_θ(β) = {first[1]}, found {first[2]}"
            scalar[k].add(terms(beta, theta, last), wanted, size=size, about=told)
            weights[k].add(found, wanted, size=size, about=told)
            if last == 1.0:
                shift = max(shift, float((found - (beta - theta)).abs().max()))
                others = torch.cat([out[: d + 1], out[-1:]])
                rest.add(others, torch.cat([top, h[-1:]]), size=size, about=about)
        out = apply_mlp(h, _shift_output(printed_units(d, theta, corrected), down))
        told = torch.cat([soft_threshold(top, theta), wanted, h[-1:]])
        x = f"{about}, x = {float(h[0, 0]):.3g} becomes {float(told[0, 0]):.3g}"
        display.add(out, told, size=size, about=x)
        proper.add(out, torch.cat([top, wanted, h[-1:]]), size=size, about=about)
        if trial < LARGEST_D:
            weights[1].add(
                _apply_construction(d, theta, h), wanted, size=size, about=f"{about}, lista-vm"
            )
    return Evidence(
        parts=[
            Part(printed=scalar[0].check(), corrected=scalar[1].check()),
            Part(printed=weights[0].check(), corrected=weights[1].check()),
            Part(printed=rest.check()),
            Part(printed=display.check(), corrected=proper.check(), matters="print"),
        ],
        numbers={
            "largest difference between the printed MLP and the shift β − θ": shift,
            "share of cases in which the printed MLP is off": weights[0].violations / trials,
        },
        figures=[_figure()],
    )


def _pair(statement: str) -> tuple[Equality, Equality]:
    """Trials of the printed form and of the corrected one."""
    printed, corrected = statement.format("−", "+"), statement.format("−", "−")
    return Equality(printed, tolerance=1e-12), Equality(corrected, tolerance=1e-12)


def _shift_output(weights: Units, down: int) -> Units:
    """Units that write `down` rows further down."""
    return weights._replace(outer=weights.outer.roll(down, 0))


def _apply_construction(d: int, theta: float, h: Tensor) -> Tensor:
    """β after the construction's MLP, whose registers are in the paper's order."""
    (block,) = ListaVMConstruction(d=d, n=1, steps=1, threshold=theta).body(0)
    assert block.mlp is not None
    return block.mlp(h.mT).mT[d + 1 : 2 * d + 1]


def _figure() -> Figure:
    x = torch.linspace(-3, 3, 61, dtype=torch.float64)
    curves = {
        "printed, last bias +θ": terms(x, 1.0, 1.0),
        "corrected, last bias −θ": terms(x, 1.0, -1.0),
    }
    rows = [
        {"beta": float(a), "out": float(b), "weights": name}
        for name, values in curves.items()
        for a, b in zip(x, values, strict=True)
    ]
    return Figure(
        title="What the MLP makes of an entry of β, θ = 1",
        rows=rows,
        x=Axis(field="beta", title="entry of β before the MLP"),
        y=Axis(field="out", title="after the MLP"),
        colour=Axis(field="weights", title="weights", scale="category"),
        caption="The printed bias shifts every entry by θ; the corrected one thresholds.",
    )
