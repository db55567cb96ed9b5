"""`innerloop identify`: the algorithm that each layer of a model runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from innerloop.commands.options import AsJson, Definition, Device, Seed, Settings
from innerloop.errors import InputError
from innerloop.output import print_json, print_text
from innerloop.terminal import print_verdict, progress_bar


def identify(
    model: Annotated[
        str,
        typer.Argument(
            help="A file of `build -o`, a run or a sweep of `train`, a construction or program by "
            "name, or module:attribute, which is imported and runs its code."
        ),
    ],
    problem: Annotated[
        str | None,
        typer.Option(
            help="The distribution of problems. A file of `build` or `train` contains it."
        ),
    ] = None,
    settings: Settings = None,
    candidate: Annotated[
        list[str] | None,
        typer.Option(
            help="Compare only with this algorithm or program; repeat the option for more."
        ),
    ] = None,
    definition: Definition = None,
    prompts: Annotated[
        int, typer.Option(min=2, help="Number of prompts for the scores of the candidates.")
    ] = 256,
    steps: Annotated[
        int, typer.Option(min=1, help="Largest number of steps of a candidate.")
    ] = 128,
    seed: Seed = 0,
    figure: Annotated[
        Path | None, typer.Option(help="Draw layer × step to this file: html, png or svg.")
    ] = None,
    inside: Annotated[
        bool,
        typer.Option(
            "--inside",
            help="Also search for the algorithm's state in the residual stream, and edit it.",
        ),
    ] = False,
    discriminate: Annotated[
        bool,
        typer.Option(
            "--discriminate",
            help="Run candidates with equal scores on problems on which they differ.",
        ),
    ] = False,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Identify the algorithm that each layer of a model runs, or report that none fits."""
    from innerloop.commands.identifying import identify_sweep
    from innerloop.devices import choose_device
    from innerloop.identification.identification import identify as run
    from innerloop.identification.loading import check_request, load_with_problems
    from innerloop.recipes.sweeps import is_sweep

    if figure is not None:
        from innerloop.files import check_writable
        from innerloop.report.export import check_format

        check_format(figure)
        check_writable(figure)
    choose_device(device)
    if ":" not in model and is_sweep(Path(model)):
        if any((problem, settings, figure, inside, discriminate)):
            raise InputError(
                "--problem, -s, --figure, --inside and --discriminate take one run of a sweep"
            )
        options_of_prompts = {
            "prompts": prompts,
            "steps": steps,
            "seed": seed,
            "algorithms": candidate,
        }
        return identify_sweep(Path(model), definition, as_json, device=device, **options_of_prompts)
    check_request(problem, settings or [], candidate or [])
    loaded, distribution = load_with_problems(model, definition, problem, settings or [])
    limits: dict[str, int] = {"prompts": prompts, "steps": steps, "seed": seed}
    with progress_bar("identifying") as progress:
        options: dict[str, Any] = {"algorithms": candidate, "device": device, **limits}
        identification = run(loaded, distribution, progress=progress, **options)
    about = {"model": model, "problem": distribution.values(), **limits, **identification.as_dict()}
    further, looked = [], None
    if inside:
        from innerloop.identification.inside.identified import inspect_identification

        looked = inspect_identification(
            identification, loaded, distribution, prompts=prompts, seed=seed
        )
        about["inside"], further = looked.as_dict(), [looked.text]
    if discriminate:
        from innerloop.identification.inside.identified import discriminate_ties

        ties = discriminate_ties(identification, loaded, distribution, seed=seed)
        about["discriminate"] = [each.as_dict() for each in ties]
        further += [each.text for each in ties] or [
            "no candidates have equal scores, so there is nothing to discriminate"
        ]
    if figure is not None:
        from innerloop.identification.drawing import collect_figure_rows
        from innerloop.report.export import write_chart
        from innerloop.report.identified import plot_identification

        rows = collect_figure_rows(identification, loaded, steps)
        chart = plot_identification(
            **rows, title=f"{model}: {identification.verdict}", inside=looked
        )
        write_chart(figure, chart.to_dict())
    if as_json:
        from innerloop.identification.drawing import measure_layers

        measures = measure_layers(identification, loaded)
        layers = zip(about["layers"], measures, strict=True)
        about["layers"] = [{**layer, "measures": each} for layer, each in layers]
        return print_json(about)
    print_verdict(about)
    for text in further:
        print_text(text)
    if figure is not None:
        print_text(f"figure written to {figure}")
    return None
