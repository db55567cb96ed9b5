"""Theorem 12: a transformer of 2H + 8 layers runs soft UCB-VI on tabular problems, exactly.

Printed    a transformer with L = 2H + 8 layers can exactly implement soft UCB-VI for tabular
           decision processes of H steps. The slides print no weights, no width and no form of the
           bonus, nor whether the number A of actions matters
Tested     two built transformers, `ucb-vi` and `packed-ucb-vi`, which packs two levels of each
           maximum into a block, against soft UCB-VI written out: the log-odds of every action at
           every step of every episode, planned from the episodes before it, in drawn games and in
           the hard ones of this source. Then their layers are counted
Parts      up to 8 actions: built for 6 sizes, and counted for every H up to 200 by the formula of
           the built ones. More actions: built and exact where 2H + 8 layers are enough for our
           construction, undecided where they are not, because a construction that needs more layers
           refutes no existence
Ours       the form of the bonus, c H √(ln(SAT/δ)/N), H where N = 0: the slides print none
Beyond     with up to 2 actions H + 3 layers are enough, with up to 8 actions 2H + 2, for every H
Open       more actions when H is not small. We build a maximum of A numbers as a tree of ⌈log₂ A⌉
           levels, and two blocks a step hold three levels beside the cut at H. A comparison of all
           pairs in a fixed number of layers selects by step functions, which continuous layers
           cannot compute, and one softmax is not exact. Products of attention do not help: take the
           derivative in each direction x at a point where all values are equal. It turns σ(u)v into
           a linear form in σ(u') or u' and v', so that m layers of ReLU with products that compute
           the maximum there give m layers without products. Networks of ReLUs need at most ⌈log₃(A
           − 2)⌉ + 1 layers (Bakaev et al. 2025, arXiv 2505.14338: three for 11 numbers, not built
           here). Whether a number of layers that does not grow with A is enough is an open problem.
           It is enough where rewards are from a finite set: there are finitely many tables, and one
           wide MLP can represent any function of them
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Check, Evidence, Figure, Part
from innerloop.claims.falsifying import Rows, change_column
from innerloop.claims.figures import draw_lines
from innerloop.claims.trials import Equality, Inequality
from innerloop.claims.yang2025.hard_instances import list_hard_episodes
from innerloop.constructions.packed_ucb_vi import PackedUCBVIConstruction, count_layers
from innerloop.constructions.ucb_vi import UCBVIConstruction
from innerloop.problems.tabular_games import TabularGameProblem, TabularGames

MANY = ((1, 9, 2, 24), (1, 17, 2, 30))
"""Sizes with more actions, for which the built layers are within the printed count."""
SIZES = ((2, 2, 3, 12), (3, 1, 2, 6), (1, 8, 2, 24), (2, 3, 3, 14), (2, 4, 2, 16), (1, 2, 6, 10))
"""States, actions, steps per episode, episodes."""
BUILT = ((UCBVIConstruction, 0.05), (PackedUCBVIConstruction, 0.05), (PackedUCBVIConstruction, 0.0))
"""Constructions, each with the weight of its bonus."""
FEW, TEMPERATURE, LONGEST = 8, 0.2, 200


def printed_layers(horizon: int) -> int:
    return 2 * horizon + 8


def judge_planning(rows: Rows) -> Evidence:
    exact = Equality("the log-odds are those of soft UCB-VI, at every step", tolerance=1e-9)
    enough = Inequality(f"$2H + 8$ layers are enough for up to {FEW} actions")
    few = [row for row in rows if row["case"]["A"] <= FEW]
    for row in few:
        if "told" in row:
            exact.add(row["told"], row["wanted"], row["case"])
        else:
            enough.add(row["layers"], printed_layers(row["case"]["H"]), row["case"])
    told = [row for row in few if "told" in row]
    counted = sum("layers" in row and "built" in row for row in few)
    count = enough.check()
    count = replace(
        count,
        summary=f"{count.summary}; {counted} on built networks, the others by their formula",
    )
    return Evidence(
        parts=[
            Part(printed=exact.check()),
            Part(printed=count),
            Part(printed=check_many_actions([row for row in rows if row["case"]["A"] > FEW])),
        ],
        numbers={
            "layers, up to 2 actions": "H + 3",
            "layers, up to 8 actions": "2H + 2",
            "layers, A actions": "4 + (H − 1)(1 + ⌈(⌈log₂ A⌉ − 1)/2⌉)",
            "log-odds compared": sum(row["told"].numel() for row in told),
            "share of values below H": sum(row["below"] for row in told) / len(told),
        },
        table=[
            {"A": A, "H": H, "built": count_layers(H, A), "printed": printed_layers(H)}
            for A in (2, 8, 32, 128)
            for H in (2, 4, 7, 20)
        ],
        figures=[_figure()],
    )


@claim(
    "yang2025.lin.theorem-12",
    "A transformer of $2H + 8$ layers runs soft UCB-VI on tabular decision processes of "
    "$H$ steps, exactly.",
    where="Third paper (Lin et al. 2023), Theorem 12",
    kind="equality",
    hypotheses={
        "tabular decision processes of $H$ steps": "the slides",
        "the form of the bonus": "ours: the slides print none",
    },
    decided_by="open mathematics: a construction of the exact maximum of $A$ numbers in a number "
    "of ReLU layers that does not grow with $A$, or a proof that there is none",
    quick={"sizes": 6, "games": 20},
    full={"sizes": 6, "games": 200},
    tiny={"sizes": 2, "games": 4},
    judge=judge_planning,
    falsified={
        "log-odds of uniform play": change_column("told", torch.zeros_like),
        "twice the layers and eight more": change_column("layers", lambda count: 2 * count + 8),
    },
)
def lin_theorem_12(generator: torch.Generator, *, sizes: int, games: int) -> Rows:
    rows: Rows = []
    for S, A, H, n in (*SIZES[:sizes], *MANY):
        game = TabularGames(states=S, arms=A, horizon=H, episodes=n).sample(
            games, generator=generator
        )
        hard = list_hard_episodes(S, A, H, n)
        for kind, bonus in BUILT:
            built = kind(d=S, arms=A, steps=H - 1, n=n, bonus=bonus, temperature=TEMPERATURE)
            case = Case(S=S, A=A, H=H, episodes=n, note=kind.__name__)
            for name, each in (("drawn", game), *hard):
                values = built.decode(each, built.transformer(built.prompt(each)))
                rows.append(
                    {
                        "case": case.extend(note=name),
                        "told": (values / TEMPERATURE).log_softmax(dim=-1),
                        "wanted": soft_ucb_vi(each, float(built.algorithm.width)),
                        "below": float((values < H - 1e-9).double().mean()),
                    }
                )
            if kind is PackedUCBVIConstruction:
                layers = built.transformer.count()["layers"]
                rows.append({"case": case, "layers": layers, "built": True})
    for H in range(2, LONGEST + 1):
        for A in (*range(1, FEW + 1), 9, 32, 128):
            case = Case(H=H, A=A, note="by the formula")
            rows.append({"case": case, "layers": count_layers(H, A)})
    return rows


def soft_ucb_vi(game: TabularGameProblem, width: float) -> Tensor:
    """Log-odds of soft UCB-VI at every step, planned from the episodes before it."""
    (S, A), H = game.sizes, game.horizon
    s, a = one_hot(game.states, S).double(), one_hot(game.actions, A).double()
    tried = torch.einsum("behs,beha->behsa", s, a)
    moved = torch.einsum("behsa,beht->behsat", tried[:, :, :-1], s[:, :, 1:])
    rows = []
    for episode in range(game.episodes):
        N = tried[:, :episode].sum(dim=1)
        earned = (tried * game.rewards[..., None, None])[:, :episode].sum(dim=1)
        went = moved[:, :episode].sum(dim=1)
        some = N.clamp_min(1)
        reward = earned / some + torch.where(N > 0, width / some.sqrt(), float(H))
        plan = [reward[:, -1].clamp_max(float(H))]
        for h in reversed(range(H - 1)):
            best = plan[0].amax(dim=-1)[:, None, None]
            later = (went[:, h] / some[:, h, ..., None] * best).sum(-1)
            plan.insert(0, (reward[:, h] + later).clamp_max(float(H)))
        values = torch.stack(plan, dim=1)
        rows.append(torch.einsum("bhsa,bhs->bha", values, s[:, episode]))
    return (torch.stack(rows, dim=1) / TEMPERATURE).log_softmax(dim=-1)


def check_many_actions(rows: Rows) -> Check:
    """Check larger numbers of actions; undecided if some need more layers than are printed."""
    statement = f"$2H + 8$ layers are enough, exactly, for more than {FEW} actions"
    exact = Equality(statement, tolerance=1e-9)
    beyond = 0
    for row in rows:
        if "told" in row:
            exact.add(row["told"], row["wanted"], row["case"])
        else:
            beyond += row["layers"] > printed_layers(row["case"]["H"])
    found = exact.check()
    if beyond == 0 or not found.passed:
        return found
    fits = ", ".join(f"$A ≤ {count_fitting(h)}$ at $H = {h}$" for h in (2, 3, 4, 7, LONGEST))
    return replace(
        found,
        passed=None,
        summary=f"built and exact for 9 and 17 actions at $H = 2$ ({found.summary}); the built "
        f"layers are enough for {fits}, but $H = {LONGEST}$ and $A = 128$ take "
        f"{count_layers(LONGEST, 128)} of them, where {printed_layers(LONGEST)} are printed; a "
        "construction that needs more layers refutes no existence",
    )


def count_fitting(horizon: int) -> int:
    """The largest power of two of actions whose built layers fit."""
    levels = 1
    while count_layers(horizon, 2 ** (levels + 1)) <= printed_layers(horizon):
        levels += 1
    return 2**levels


def _figure() -> Figure:
    horizons = range(2, 31)
    curves: dict[str, Callable[[int], int]] = {"printed, 2H + 8": printed_layers}
    for A in (2, 8, 32, 128):
        curves[f"built, {A} actions"] = partial(count_layers, actions=A)
    return draw_lines(
        "Layers that run UCB-VI exactly",
        [
            {"H": H, "layers": curve(H), "transformer": name}
            for name, curve in curves.items()
            for H in horizons
        ],
        "H: steps H of an episode",
        "layers",
        "transformer",
        caption="Up to eight actions the built transformers stay below the printed count.",
    )
