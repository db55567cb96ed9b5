"""The command line: parses, calls, prints. Heavy imports wait until a command needs them."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperOption

from innerloop import __version__
from innerloop.errors import InputError
from innerloop.guard import run_guarded
from innerloop.limits import check_seed
from innerloop.output import print_error, print_json, print_text
from innerloop.results import VARIABLE, find_results
from innerloop.terminal import (
    print_certificates,
    print_outcomes,
    print_runs,
    print_verdict,
    progress_bar,
)

if TYPE_CHECKING:
    from innerloop.certification.certificate import Certificate
    from innerloop.ledger.checking import CheckOptions
    from innerloop.ledger.run import Outcome

app = typer.Typer(
    help="Finds the algorithm inside a transformer: builds and verifies transformers whose forward "
    "pass runs a known algorithm, trains others, and checks what the literature claims. Wherever a "
    "name is taken, module:attribute or file.py:attribute stands for something of your own: it is "
    "imported, which runs its code.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


Settings = Annotated[
    list[str] | None,
    typer.Option("-s", "--set", metavar="KEY=VALUE", help="Set a parameter; repeat for more."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Seed = Annotated[int, typer.Option(help="Seed of the random instances.", callback=check_seed)]
PresetName = Annotated[str, typer.Option(help="How much is run: quick, full or paper.")]
Workers = Annotated[
    int | None, typer.Option(help="Processes to run in; one for each core unless given.")
]
EngineName = Annotated[
    str, typer.Option("--engine", help="local, or dask:ADDRESS for a Dask cluster.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Run also what is stored.")]
Results = Annotated[
    Path | None,
    typer.Option(
        envvar=VARIABLE,
        help="The folder of results, with cells and runs below it; else that of the checkout, or "
        "of the user's data.",
    ),
]
Definition = Annotated[
    str | None,
    typer.Option(
        metavar="FILE:ATTRIBUTE",
        help="The construction or recipe that the file was made with, if it is your own; it is "
        "imported, which runs its code.",
    ),
]


def _print_version(asked: bool | None) -> None:
    if asked:
        print_text(f"innerloop {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool | None,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = None,
) -> None:
    del version  # its callback has done the work


@app.command("list")
def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="problems, algorithms, policies, constructions, recipes or claims; none: all."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List what there is: problems, algorithms, policies, constructions, recipes, claims."""
    from innerloop.catalogue.listing import list_members
    from innerloop.printing import print_members

    members = list_members(kind)
    print_json(members) if as_json else print_members(members)


@app.command()
def show(
    name: Annotated[
        str,
        typer.Argument(
            help="Any member; kind/name where several kinds share the name; or module:attribute, "
            "which is imported and runs its code."
        ),
    ],
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Show what a member is made of, of whatever kind, and what can be set."""
    from innerloop.catalogue.showing import find_parameters
    from innerloop.catalogue.showing import show as describe
    from innerloop.parameters import parse_settings
    from innerloop.printing import print_description

    owner = find_parameters(name)
    if owner is None and settings:
        raise InputError(f"{name} has no parameters that -s could set")
    shown = describe(name, **(parse_settings(owner, settings or []) if owner else {}))
    print_json(shown) if as_json else print_description(shown)


@app.command()
def build(
    name: Annotated[str, typer.Argument(help="A construction; see `innerloop list`.")],
    settings: Settings = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the weights to this file.")
    ] = None,
    instances: Annotated[int, typer.Option(help="Random instances to certify on.")] = 64,
    seed: Seed = 0,
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    as_json: AsJson = False,
) -> None:
    """Build a transformer and certify it; exit 1 where the law is broken."""
    from innerloop.certification.building import build as make
    from innerloop.certification.building import resolve_dtype
    from innerloop.constructions.base import Construction
    from innerloop.files import check_writable

    values = _parse_parameters("constructions", Construction, name, settings)
    if output is not None:
        check_writable(output)
    options = {"instances": instances, "seed": seed, "dtype": resolve_dtype(dtype)}
    with progress_bar("certifying") as progress:
        built = make(name, progress=progress, **options, **values)
    if output is not None:
        built.save(output)
    _finish_certificate(built.certificate, as_json, f"written to {output}" if output else None)


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(help="A file that `build -o` wrote.")],
    definition: Definition = None,
    instances: Annotated[int, typer.Option(help="Random instances to verify on.")] = 64,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Recompute a file's certificate from its weights; exit 1 where the law is broken.

    How hard it is tested is decided here, never by the file.
    """
    from innerloop.certification.building import verify as check

    with progress_bar("verifying") as progress:
        built = check(
            file, construction=definition, instances=instances, seed=seed, progress=progress
        )
    _finish_certificate(built.certificate, as_json, None)


@app.command()
def train(
    name: Annotated[str, typer.Argument(help="A recipe; see `innerloop list recipes`.")],
    settings: Settings = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The folder of the run; else below the results."),
    ] = None,
    seed: Seed = 0,
    seeds: Annotated[int, typer.Option(help="Runs, each with a seed one higher.")] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what was stopped; else begin.")
    ] = False,
    threads: Annotated[
        int, typer.Option(help="Threads to train with; another number gives other weights.")
    ] = 1,
    results: Results = None,
    as_json: AsJson = False,
) -> None:
    """Train a model by a recipe; stopped or killed, `--resume` goes on as if nothing happened."""
    from innerloop.recipes.base import Recipe, list_seeds, train_seeds
    from innerloop.recipes.runs import note_run
    from innerloop.registry import make_member
    from innerloop.training.environment import check_threads

    seed_range, threads = list_seeds(seed, seeds), check_threads(threads)
    values = _parse_parameters("recipes", Recipe, name, settings)
    recipe = make_member("recipes", Recipe, name, values)
    runs = find_results(results) / "runs"
    folder = recipe.name_folder(runs) if output is None else output
    with progress_bar("training") as progress:
        try:
            note_run(runs, folder)
        except InputError as error:
            progress.notice(f"a report will not know of this run: {error}")
        try:
            trained = train_seeds(
                recipe,
                seed_range,
                folder,
                resume=resume,
                threads=threads,
                progress=progress,
                notice=progress.notice,
            )
        except KeyboardInterrupt:
            print_error(f"stopped, saved in {folder}; --resume goes on")
            raise SystemExit(130) from None
    if as_json:
        return print_json([run.as_dict() for run in trained])
    print_runs(name, [run.as_dict() for run in trained])
    return print_text(f"written to {folder}")


@app.command()
def identify(
    model: Annotated[
        str,
        typer.Argument(
            help="A file of `build -o`, a run of `train`, or module:attribute, which is imported "
            "and runs its code."
        ),
    ],
    problem: Annotated[
        str | None, typer.Option(help="The problems it is for; a file knows its own.")
    ] = None,
    settings: Settings = None,
    candidate: Annotated[
        list[str] | None,
        typer.Option(help="Compare with this algorithm only; repeat for more."),
    ] = None,
    definition: Definition = None,
    prompts: Annotated[int, typer.Option(min=2, help="Prompts that score the candidates.")] = 256,
    steps: Annotated[int, typer.Option(min=1, help="Steps of a candidate to look at.")] = 64,
    seed: Seed = 0,
    figure: Annotated[
        Path | None, typer.Option(help="Draw layer × step to this file: html, png or svg.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say which algorithm each layer of a model runs, how surely, or that none fits."""
    from innerloop.identification.identification import identify as run
    from innerloop.identification.loading import check_request, load_model, select_distribution

    if figure is not None:
        from innerloop.files import check_writable
        from innerloop.report.export import check_format

        check_format(figure)
        check_writable(figure)
    check_request(problem, settings or [], candidate or [])
    loaded = load_model(model, definition)
    distribution = select_distribution(loaded, problem, settings or [])
    limits = {"prompts": prompts, "steps": steps, "seed": seed}
    with progress_bar("identifying") as progress:
        found = run(loaded, distribution, algorithms=candidate, progress=progress, **limits)
    about = {"model": model, "problem": distribution.values(), **limits, **found.as_dict()}
    if figure is not None:
        from innerloop.identification.drawing import collect_figure_rows
        from innerloop.report.export import write_chart
        from innerloop.report.identified import plot_identification

        rows = collect_figure_rows(found, loaded, steps)
        chart = plot_identification(**rows, title=f"{model}: {found.verdict}")
        write_chart(figure, chart.to_dict())
    if as_json:
        from innerloop.identification.drawing import measure_layers

        measures = measure_layers(found, loaded)
        layers = zip(about["layers"], measures, strict=True)
        about["layers"] = [{**layer, "measures": each} for layer, each in layers]
        return print_json(about)
    print_verdict(about)
    if figure is not None:
        print_text(f"figure written to {figure}")
    return None


@app.command()
def check(
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID …]",
            help="Claims, or how their ids begin; none: all; or module:attribute, which is "
            "imported and runs its code.",
        ),
    ] = None,
    preset: PresetName = "quick",
    workers: Workers = None,
    engine: EngineName = "local",
    fresh: Fresh = False,
    seed: Seed = 0,
    results: Results = None,
    as_json: AsJson = False,
) -> None:
    """Put what the literature claims to the test; exit 1 where a check itself broke."""
    options = {"preset": preset, "workers": workers, "engine": engine, "fresh": fresh, "seed": seed}
    chosen = _choose_options(results, **options)
    checked, unwritten = _check_claims(ids or [], chosen, fuller=False)
    outcomes = [outcome.as_dict() for outcome in checked]
    print_json(outcomes) if as_json else print_outcomes(outcomes)
    _finish_check(checked, unwritten)
    if missing := [outcome for outcome in checked if outcome.state == "unavailable"]:
        raise InputError(f"{missing[0].id} cannot be checked here: {missing[0].error}")


@app.command()
def report(
    output: Annotated[Path, typer.Option("-o", "--output", help="The page to write.")] = Path(
        "report.html"
    ),
    figures: Annotated[
        Path | None, typer.Option(help="Also write each figure to this folder: PNG, SVG, CSV.")
    ] = None,
    preset: PresetName = "quick",
    workers: Workers = None,
    engine: EngineName = "local",
    fresh: Fresh = False,
    seed: Seed = 0,
    results: Results = None,
    runs: Annotated[
        Path | None, typer.Option(help="The folder of trained runs; else that of the results.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check every claim, certify every construction, and write one self-contained page.

    What is stored is not run again, and where a larger preset is stored, that is shown. Exit 1
    where a check itself broke or a construction fails.
    """
    import time

    from innerloop.files import check_writable, write_atomically
    from innerloop.recipes.runs import load_finished_runs
    from innerloop.report.export import make_folder, write_figures
    from innerloop.report.page import draw_charts, render_page
    from innerloop.surveys.survey import measure_report

    options = {"preset": preset, "workers": workers, "engine": engine, "fresh": fresh, "seed": seed}
    chosen = _choose_options(results, **options)
    check_writable(output)
    if figures is not None:
        make_folder(figures)
    damaged: list[dict[str, str]] = []

    def note_damage(place: str, reason: str) -> None:
        damaged.append({"folder": place, "reason": reason})
        print_error(f"the run in {place!r} cannot be shown: {reason}")

    finished_runs = list(
        load_finished_runs(runs or find_results(results) / "runs", notice=note_damage)
    )
    start = time.perf_counter()
    checked, unwritten = _check_claims([], chosen, fuller=True)
    with progress_bar("certifying") as progress:
        data = measure_report(
            [outcome.as_dict() for outcome in checked],
            finished_runs,
            damaged=damaged,
            seed=seed,
            command=f"innerloop report -o {output} --preset {preset} --seed {seed}",
            progress=progress,
            start=start,
        )
    charts = draw_charts(data)
    write_atomically(output, render_page(data, charts).encode())
    if figures is not None:
        with progress_bar("drawing") as progress:
            write_figures(figures, charts, progress)
    if as_json:
        print_json({"path": str(output), **data.as_dict()})
    else:
        print_outcomes(data.outcomes)
        print_certificates(data.certificates)
        print_text(f"report written to {output}")
    if failed := [c["name"] for c in data.certificates if not c["holds"]]:
        print_error(f"the law is broken by {', '.join(failed)}")
        raise typer.Exit(1)
    _finish_check(checked, unwritten)


def _choose_options(results: Path | None, **options: Any) -> CheckOptions:
    """Choose how claims are checked; refuse what does not exist before anything is loaded."""
    from innerloop.ledger.checking import CheckOptions
    from innerloop.ledger.engines import parse_engine

    chosen = CheckOptions(results=find_results(results), **options)
    chosen.check_preset()
    parse_engine(chosen.engine, chosen.workers)
    return chosen


def _check_claims(
    words: list[str], chosen: CheckOptions, *, fuller: bool
) -> tuple[list[Outcome], list[str]]:
    """Check claims with a progress bar; an interrupt says how to go on."""
    from innerloop.ledger.checking import check_claims

    with progress_bar("checking") as progress:
        try:
            return check_claims(
                words, chosen, progress=progress, notice=progress.notice, fuller=fuller
            )
        except KeyboardInterrupt:
            print_error("stopped; what is finished is stored, the same command goes on")
            raise SystemExit(130) from None


def _finish_check(outcomes: list[Outcome], unwritten: list[str]) -> None:
    """Exit 1 where a check itself broke, 2 where the engine was lost or results were not kept."""
    if broken := [outcome.id for outcome in outcomes if outcome.state == "broken"]:
        print_error(f"these checks broke: {', '.join(broken)}")
        raise typer.Exit(1)
    if lost := next((outcome for outcome in outcomes if outcome.lost), None):
        raise InputError(lost.error)
    if unwritten:
        raise InputError(f"{len(unwritten)} results could not be kept: {unwritten[0]}")


def _parse_parameters(
    kind: str, base: type, name: str, settings: list[str] | None
) -> dict[str, Any]:
    """Parse `-s key=value` words by what a member declares."""
    from innerloop.parameters import parse_settings
    from innerloop.registry import find_class

    return parse_settings(find_class(kind, base, name), settings or [])


def _finish_certificate(certificate: Certificate, as_json: bool, note: str | None) -> None:
    """Print a certificate; exit 1 if it does not hold."""
    if as_json:
        print_json(certificate.as_dict())
    else:
        print_certificates([certificate.as_dict()])
        if note:
            print_text(note)
    if not certificate.holds:
        print_error(f"{certificate.name} breaks the law: {certificate.explain()}")
        raise typer.Exit(1)


def _print_warning(message: Warning | str, category: type[Warning], *place: Any, **_: Any) -> None:
    """Print a warning of this package as one line; others as Python does."""
    if category.__module__.startswith("innerloop."):
        print_error(str(message))
    else:
        with contextlib.suppress(OSError):  # nobody can be told
            sys.stderr.write(warnings.formatwarning(message, category, *place[:2]))


class StrictCommand(TyperCommand):
    """A command that refuses an option given twice, and empty words, instead of ignoring them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not all(args):
            raise InputError("a word of the command is empty: is a shell variable not set?")
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        for option in order:
            single = isinstance(option, TyperOption) and not (option.multiple or option.is_flag)
            if single and order.count(option) > 1:
                raise InputError(f"{option.opts[-1]} is given twice")
        return super().parse_args(ctx, args)


for _command in app.registered_commands:
    _command.cls = StrictCommand


def main() -> NoReturn:
    """Run the command line; a user's mistake is one line on standard error and exit code 2."""
    # One thread unless asked otherwise: the matrices are small, on a busy machine more threads wait
    # for each other, and numbers are the same whatever the machine.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    warnings.showwarning = _print_warning
    raise SystemExit(run_guarded(lambda: app(standalone_mode=False, prog_name="innerloop")))
