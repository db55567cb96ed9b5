"""`innerloop play`: compare the regret of a transformer with that of reference policies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from innerloop.commands.options import AsJson, Definition, Seed, Settings
from innerloop.output import print_json, print_text
from innerloop.terminal import print_table, progress_bar


def play(
    run: Annotated[
        str,
        typer.Argument(help="A run of `train`, or a file of `build`, that acts in an environment."),
    ],
    environment: Annotated[
        str | None,
        typer.Option(help="Distribution of environments; by default, that of the training."),
    ] = None,
    settings: Settings = None,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Number of steps of a game; by default, that of the training."),
    ] = None,
    games: Annotated[int, typer.Option(min=2, help="Number of environments.")] = 200,
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="A reference policy; repeat the option for more. All suitable policies by default."
        ),
    ] = None,
    definition: Definition = None,
    seed: Seed = 0,
    figure: Annotated[
        Path | None, typer.Option(help="Draw the regret to this file: html, png or svg.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play games, and compare the regret with that of reference policies.

    All policies play in the same environments with the same random numbers.
    """
    import torch

    from innerloop.playing.comparison import choose_references, list_regret_rows, play_players
    from innerloop.playing.loading import load_player, select_environments
    from innerloop.playing.trained import TrainedPolicy
    from innerloop.problems.mdp import TabularMDP

    if figure is not None:
        from innerloop.files import check_writable
        from innerloop.report.export import check_format

        check_format(figure)
        check_writable(figure)
    player, own, length = load_player(run, definition)
    length = steps or length
    distribution = select_environments(own, environment, settings or [])
    drawn = distribution.sample(games, generator=torch.Generator().manual_seed(seed))
    players = {player.name: player, **choose_references(against, drawn)}
    if isinstance(player, TrainedPolicy) and not against:
        players |= {f"{player.recipe.teacher.name}, its teacher": player.recipe.teacher}
    with progress_bar("playing") as progress:
        played = play_players(players, drawn, length, seed=seed, progress=progress)
    rows = list_regret_rows(played)
    if figure is not None:
        from innerloop.report.export import write_chart
        from innerloop.report.regret import plot_players

        unit = "episode" if isinstance(drawn, TabularMDP) else "step"
        chart = plot_players(rows, title=f"{run}: {games} games", unit=unit)
        write_chart(figure, chart.to_dict())
    if as_json:
        about = {"run": run, "environment": distribution.values(), "games": games, "seed": seed}
        return print_json({**about, "steps": length, "regret": rows})
    last = {row["player"]: row for row in rows}
    cells = [
        [name, f"{row['regret']:.4g}", f"{row['low']:.4g} … {row['high']:.4g}"]
        for name, row in sorted(last.items(), key=lambda item: item[1]["regret"])
    ]
    print_table(f"regret after {length} steps", ["player", "mean", "95 %"], cells)
    if figure is not None:
        print_text(f"figure written to {figure}")
    return None
