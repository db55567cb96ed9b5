"""Theorem 12: a transformer of 2H + 8 layers runs soft UCB-VI on tabular problems, exactly.

Printed    a transformer with L = 2H + 8 layers can exactly implement soft UCB-VI for tabular
           decision processes of H steps. The slides give no weights, no width, and no form of the
           bonus, nor do they say whether the number A of actions matters
Tested     two built transformers, `ucb-vi` and one that packs two levels of each maximum into a
           block, against soft UCB-VI written out: the log-odds of every action at every step of
           every episode, by what the episodes before it showed. Then the layers they need
Beyond     with up to 2 actions H + 3 layers do, with up to 8 actions 2H + 2, for every H
Open       more actions: a maximum of A numbers is built as a tree of ⌈log₂ A⌉ levels, of which two
           blocks a step hold three. Nothing found fits A > 8 into 2H + 8 layers for every H, and no
           construction that needs more can refute that there is one. Where rewards are from a
           finite set there is: finitely many tables, and one wide MLP can hold any function of them
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Check, Evidence, Figure, Part
from innerloop.claims.trials import Equality, Inequality
from innerloop.claims.yang2025.packed_planning import PackedUCBVI, count_layers
from innerloop.constructions.ucb_vi import UCBVIConstruction
from innerloop.problems.tabular_games import TabularGameProblem, TabularGames

SIZES = ((2, 2, 3, 12), (3, 1, 2, 6), (1, 8, 2, 24), (2, 3, 3, 14), (2, 4, 2, 16), (1, 2, 6, 10))
"""States, actions, steps per episode, episodes."""
FEW, TEMPERATURE, LONGEST = 8, 0.2, 200
Value = Callable[[Tensor], Tensor]
Cut = Callable[[Tensor, int], Tensor]


def best_value(q: Tensor) -> Tensor:
    return q.amax(dim=-1)


def average_value(q: Tensor) -> Tensor:
    return q.mean(dim=-1)


def clip_values(q: Tensor, horizon: int) -> Tensor:
    return q.clamp_max(float(horizon))


def keep_values(q: Tensor, horizon: int) -> Tensor:
    return q


def printed_layers(horizon: int) -> int:
    return 2 * horizon + 8


def fewer_layers(horizon: int) -> int:
    return horizon + 2


@claim(
    "yang2025.lin.theorem-12",
    "A transformer of 2H + 8 layers runs soft UCB-VI on tabular decision processes of H steps, "
    "exactly.",
    where="Third paper (Lin et al. 2023), Theorem 12",
    kind="equality",
    quick={"sizes": 6, "games": 20},
    full={"sizes": 6, "games": 200},
    tiny={"sizes": 2, "games": 4},
    falsified={
        "the average action for the best": {"value": average_value},
        "values are not cut off at H": {"most": keep_values},
        "H + 2 layers": {"count": fewer_layers},
    },
)
def lin_theorem_12(
    generator: torch.Generator,
    *,
    sizes: int,
    games: int,
    value: Value = best_value,
    most: Cut = clip_values,
    count: Callable[[int], int] = printed_layers,
) -> Evidence:
    exact = Equality("the log-odds are those of soft UCB-VI, at every step", tolerance=1e-9)
    enough = Inequality(f"2H + 8 layers are enough for up to {FEW} actions")
    below, compared = [], 0
    for S, A, H, n in SIZES[:sizes]:
        game = TabularGames(states=S, arms=A, horizon=H, episodes=n).sample(
            games, generator=generator
        )
        for kind, bonus in ((UCBVIConstruction, 0.05), (PackedUCBVI, 0.05), (PackedUCBVI, 0.0)):
            built = kind(d=S, arms=A, steps=H - 1, n=n, bonus=bonus, temperature=TEMPERATURE)
            stream = built.transformer(built.prompt(game))
            wanted = soft_ucb_vi(game, float(built.algorithm.width), value, most)
            told = (built.decode(game, stream) / TEMPERATURE).log_softmax(dim=-1)
            compared += told.numel()
            about = f"{kind.__name__}, S = {S}, A = {A}, H = {H}, {n} episodes"
            exact.add(told, wanted, size=(S * A * H * n,), about=about)
            found = built.transformer.count()["layers"]
            if kind is PackedUCBVI:
                if found != count_layers(H, A):
                    expected = count_layers(H, A)
                    raise ValueError(f"{about}: built {found} layers, the formula gives {expected}")
                enough.add(found, count(H), size=(H, A), about=f"built, H = {H}, A = {A}")
                below.append(float((built.decode(game, stream) < H - 1e-9).double().mean()))
    for H in range(2, LONGEST + 1):
        for A in range(1, FEW + 1):
            enough.add(count_layers(H, A), count(H), size=(H, A), about=f"H = {H}, A = {A}")
    return Evidence(
        parts=[Part(printed=exact.check()), Part(printed=enough.check()), Part(printed=_open())],
        numbers={
            "layers, up to 2 actions": "H + 3",
            "layers, up to 8 actions": "2H + 2",
            "layers, A actions": "4 + (H − 1)(1 + ⌈(⌈log₂ A⌉ − 1)/2⌉)",
            "log-odds compared": compared,
            "share of values below H": sum(below) / len(below),
        },
        table=[
            {"A": A, "H": H, "built": count_layers(H, A), "printed": printed_layers(H)}
            for A in (2, 8, 32, 128)
            for H in (2, 4, 7, 20)
        ],
        figures=[_figure()],
    )


def soft_ucb_vi(game: TabularGameProblem, width: float, value: Value, most: Cut) -> Tensor:
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
        plan = [most(reward[:, -1], H)]
        for h in reversed(range(H - 1)):
            later = (went[:, h] / some[:, h, ..., None] * value(plan[0])[:, None, None]).sum(-1)
            plan.insert(0, most(reward[:, h] + later, H))
        values = torch.stack(plan, dim=1)
        rows.append(torch.einsum("bhsa,bhs->bha", values, s[:, episode]))
    return (torch.stack(rows, dim=1) / TEMPERATURE).log_softmax(dim=-1)


def _open() -> Check:
    fits = partial(_most_actions, limit=printed_layers)
    told = ", ".join(f"A ≤ {fits(H)} at H = {H}" for H in (2, 3, 4, 7))
    return Check(
        statement="2H + 8 layers are enough for every number of actions",
        passed=None,
        summary=f"what is built fits for {told}, and A ≤ {fits(LONGEST)} at any H up to {LONGEST}; "
        "a construction that needs more refutes nothing, and no proof either way is known here",
    )


def _most_actions(horizon: int, limit: Callable[[int], int]) -> int:
    """The largest power of two of actions whose built layers fit."""
    levels = 1
    while count_layers(horizon, 2 ** (levels + 1)) <= limit(horizon):
        levels += 1
    return 2**levels


def _figure() -> Figure:
    horizons = range(2, 31)
    curves: dict[str, Callable[[int], int]] = {"printed, 2H + 8": printed_layers}
    for A in (2, 8, 32, 128):
        curves[f"built, {A} actions"] = partial(count_layers, actions=A)
    return Figure(
        title="Layers that run UCB-VI exactly",
        rows=[
            {"H": H, "layers": curve(H), "transformer": name}
            for name, curve in curves.items()
            for H in horizons
        ],
        x=Axis(field="H", title="steps H of an episode"),
        y=Axis(field="layers", title="layers"),
        colour=Axis(field="transformer", title="transformer", scale="category"),
        caption="Up to eight actions the built transformers stay below the printed count.",
    )
