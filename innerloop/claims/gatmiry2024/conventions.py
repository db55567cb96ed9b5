"""Settings that gatmiry2024 does not print, and those with which all of its figures are tested.

Not printed  the number n of examples in Figures 2 to 4 and its values in Figure 1; the numbers of
             loops, of which the text names 1, 2 and 5; how the distance of A from the identity is
             measured; batch, learning rate and number of steps; the prompts that a loss is averaged
             over. Section 5 prints d = 10, Σ* = I, and "We use the codebase and experimental setup
             from Ahn et al."
Code         that public code (github.com/chengxiang/LinearTransformer) has d = 5, n = 20, and
             2, 4, …, 20 where n varies. Losses are means over 20,000 fresh prompts. Its "distance
             to identity" is ‖M − mI‖_F/‖M‖_F, m the mean of M's diagonal: the distance to the
             nearest multiple of I
Used here    n        20, as in that code, and 100, where n is large compared with d (section 5.2);
                      in Figure 1, 2 to 20, as in that code
             distance to the nearest multiple of I, as in that code, and to I, as the captions say
             loops    2 to 5: from the fewest that are a loop to the most that the text names
             loss     the mean over 20,000 fresh prompts
Decision     a statement holds or fails only if all of these settings agree; otherwise it is not
             decidable from the source
Ours         "converges to the identity" is a distance of at most a tenth
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import Tensor

from innerloop.claims.evidence import Part
from innerloop.claims.gatmiry2024.trained import Run
from innerloop.claims.readings import decide_together
from innerloop.claims.trials import Inequality

SIZES = (20, 100)
LOOPS = (2, 3, 4, 5)
PROMPTS = 20_000
NEAR = 0.1
OURS = "the identity is reached within a distance of a tenth"
READING = "all settings that the words allow decide together; the source prints none of them"
HYPOTHESES = {
    "$n = 20$ and $n = 100$": "ours: the code that the source uses has 20, at $d = 5$",
    "2 to 5 loops": "ours: the text names 1, 2 and 5",
}

DISTANCES: Mapping[str, Callable[[Run], Tensor]] = {
    "distance to the nearest multiple of $I$": Run.nearest_multiple_distance,
    "distance to $I$": Run.identity_distance,
}
"""Distances of A from the identity, by record and training."""


def judge_distance(statement: str, groups: Mapping[str, list[Run]]) -> Part:
    """Judge whether A ends near the identity, in every group of runs and by both distances."""
    readings = {}
    for name, runs in groups.items():
        for measure, distance in DISTANCES.items():
            trial = Inequality(f"{name}: the {measure} is at most a tenth")
            for run in runs:
                for far in distance(run)[-1].tolist():
                    trial.add(far, NEAR, run.case)
            readings[f"{name}, {measure}"] = trial.check()
    return Part(
        printed=replace(decide_together(statement, readings), ours=OURS),
        reading=READING,
        other_readings=readings,
        trainings=min(run.seeds for runs in groups.values() for run in runs),
    )


def group_by_size(runs: list[Run]) -> dict[str, list[Run]]:
    """Group runs by their number n of examples."""
    return {f"$n = {n}$": [run for run in runs if run.n == n] for n in sorted({r.n for r in runs})}
