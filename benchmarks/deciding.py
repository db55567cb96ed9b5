"""Compare the time of sampling training games with that of a training step; time a long game.

The games are linear bandits with the sizes of the paper (d = 5, ten actions, 200 steps). They are
labelled with the actions of LinUCB or with the best action. A training samples its pool of games in
one batch, so the time per game is measured for 1,000 games at once. For comparison, games are also
sampled in batches of 32, and one environment after another as public code does. A training step is
the forward and backward pass of the recipe's GPT-2 on 32 games. The long game is played by the
recorded network in 200 environments for 200 steps. All times are CPU times on one thread.
"""

from __future__ import annotations

import sys
import time

import torch
from common import median_seconds, record

from innerloop.claims.recorded import load_recorded
from innerloop.playing.trained import TrainedPolicy
from innerloop.policies.rollout import rollout
from innerloop.recipes.linear_bandits import LinearBanditsRecipe

POOL, BATCH, ROUNDS = 1000, 32, 3
SHARE, SECONDS = 0.1, 120
"""The limits: sampling a batch takes at most this share of a step, and the game these seconds."""


def time_drawing(recipe: LinearBanditsRecipe, count: int) -> float:
    """Measure CPU seconds per game if `count` games are sampled together."""
    generator = torch.Generator().manual_seed(0)
    work = lambda: recipe.draw_games(count, generator)  # noqa: E731
    return median_seconds(work, ROUNDS, time.process_time) / count


def time_step(recipe: LinearBanditsRecipe) -> float:
    """Measure CPU seconds of a training step on a batch."""
    model = recipe.build_model(torch.Generator().manual_seed(0))
    objective, optimizer = recipe.build_objective(), torch.optim.Adam(model.parameters())
    games = recipe.draw_games(BATCH, torch.Generator().manual_seed(0))

    def step() -> None:
        optimizer.zero_grad()
        objective.loss(model, games).backward()
        optimizer.step()

    return median_seconds(step, ROUNDS, time.process_time)


def main() -> None:
    start = time.perf_counter()
    torch.set_num_threads(1)
    rows = {}
    for setup in ("distillation", "decision"):
        recipe = LinearBanditsRecipe(setup=setup, batch=BATCH)
        step = time_step(recipe)
        times = {
            "pool": BATCH * time_drawing(recipe, POOL),
            "fresh": BATCH * time_drawing(recipe, BATCH),
            "one_by_one": BATCH * time_drawing(recipe, 2 if setup == "decision" else 1),
        }
        rows[setup] = {"step": step, **times, "share": times["pool"] / step}
        summary = ", ".join(f"{name} {1e3 * seconds:.0f} ms" for name, seconds in times.items())
        print(f"{setup}: a step {1e3 * step:.0f} ms; drawing {BATCH} games: {summary}", flush=True)
    run = load_recorded("decisions", "distilled-200")
    policy = TrainedPolicy.from_run(run.recipe, run.model)
    bandits = policy.recipe.build_distribution().sample(
        200, generator=torch.Generator().manual_seed(0)
    )
    begin = time.process_time()
    rollout(policy, bandits, 200, 0)
    played = time.process_time() - begin
    print(f"200 environments, 200 steps of GPT-2: {played:.1f} s")
    record(
        "deciding",
        start,
        {"pool": POOL, "batch": BATCH, "rounds": ROUNDS},
        {"processor_seconds": rows, "play_200_by_200": played},
    )
    if played > SECONDS or any(row["share"] > SHARE for row in rows.values()):
        sys.exit("the claim does not hold in this run")


if __name__ == "__main__":
    main()
