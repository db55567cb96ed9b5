"""The command line: parses, calls, prints. Heavy imports wait until a command needs them."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from innerloop import __version__
from innerloop.errors import InputError, unknown
from innerloop.terminal import (
    print_certificates,
    print_json,
    print_outcomes,
    print_table,
    print_verdict,
    progress_bar,
    short,
)

if TYPE_CHECKING:
    from innerloop.ledger.run import Outcome

app = typer.Typer(
    help="Finds the algorithm inside a transformer: builds and verifies transformers whose forward "
    "pass runs a known algorithm, trains others, and checks what the literature claims.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

Settings = Annotated[
    list[str] | None,
    typer.Option("-s", "--set", metavar="KEY=VALUE", help="Set a parameter; repeat for more."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Seed = Annotated[int, typer.Option(help="Seed of the random instances.")]
PresetName = Annotated[str, typer.Option(help="How much is run: quick, full or paper.")]
Workers = Annotated[
    int | None, typer.Option(help="Processes to run in; one for each core unless given.")
]
EngineName = Annotated[
    str, typer.Option("--engine", help="local, or dask:ADDRESS for a Dask cluster.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Run also what is stored.")]
RESULTS = Path("results/cells")
RUNS = Path("results/runs")
Results = Annotated[
    Path, typer.Option(envvar="INNERLOOP_RESULTS", help="The folder of finished results.")
]


def _version(asked: bool | None) -> None:
    if asked:
        print(f"innerloop {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool | None,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = None,
) -> None:
    del version  # its callback has done the work


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """What there is: problems, algorithms, policies, constructions, recipes, claims."""
    from innerloop.ledger.overview import listing

    found = listing()
    if as_json:
        return print_json(found)
    for kind, members in found.items():
        cost = ["layers", "heads", "width", "where", "error"] if kind == "constructions" else []
        columns = ["name", "description", *cost, "source"]
        print_table(kind, columns, [[short(member[c], 300) for c in columns] for member in members])
    return None


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
    from innerloop.constructions.certificate import build as make
    from innerloop.constructions.certificate import precision
    from innerloop.files import check_writable

    values = _chosen(name, settings)
    if output is not None:
        check_writable(output)
    with progress_bar("certifying") as progress:
        built = make(
            name,
            instances=instances,
            seed=seed,
            dtype=precision(dtype),
            progress=progress,
            **values,
        )
    if output is not None:
        built.save(output)
    _finish(built.certificate, as_json, f"written to {output}" if output else None)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A construction or recipe; see `innerloop list`.")],
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """A construction's registers and what each of its blocks does; a recipe's settings."""
    from innerloop.constructions.base import Construction
    from innerloop.constructions.overview import show as describe
    from innerloop.parameters import parse
    from innerloop.recipes.base import Recipe
    from innerloop.recipes.overview import show as describe_recipe
    from innerloop.registry import members

    recipes = members("recipes", Recipe)
    constructions = members("constructions", Construction)
    if name in recipes:
        shown = describe_recipe(name, **parse(recipes[name], settings or []))
    elif name in constructions:
        shown = describe(name, **parse(constructions[name], settings or []))
    else:
        raise unknown("construction or recipe", name, [*recipes, *constructions])
    if as_json:
        return print_json(shown)
    precision = f"Precision  {shown['precisions']}\n" if "precisions" in shown else ""
    print(f"{shown['header']}\n{precision}")
    settings_ = shown["settings"].items()
    rows = [[key, short(part["value"]), part["help"]] for key, part in settings_]
    print_table("parameters (-s name=value)", ["name", "value", "meaning"], rows)
    if name in recipes:
        return print(f"{shown['parameters']} weights are trained")
    registers = [[r["name"], str(tuple(r["shape"])), r["places"]] for r in shown["registers"]]
    print_table(f"registers (width {shown['width']})", ["name", "shape", "places"], registers)
    cost = shown["cost"]
    where = f" ({cost['where']})" if cost["where"] else ""
    print(
        f"cost of k steps: {cost['layers']} layers, {cost['heads']} heads, "
        f"width {cost['width']}{where}"
    )
    print(f"the source prints: {cost['printed']}")
    print(f"error of a step: {shown['error']}\n")
    loops = f", looped {shown['loops']} times" if shown["loops"] > 1 else ""
    print(f"blocks ({shown['layers']} layers{loops})")
    for part in shown["blocks"]:
        print(f"  {part['section']}, block {part['block']}")
        for line in part["does"]:
            print(f"    {line}")
    return None


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(help="A file that `build -o` wrote.")],
    as_json: AsJson = False,
) -> None:
    """Recompute a file's certificate from its weights; exit 1 where the law is broken."""
    from innerloop.constructions.certificate import verify as check

    with progress_bar("verifying") as progress:
        built = check(file, progress=progress)
    _finish(built.certificate, as_json, None)


@app.command()
def train(
    name: Annotated[str, typer.Argument(help="A recipe; see `innerloop list`.")],
    settings: Settings = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The folder of the run; else under results/runs."),
    ] = None,
    seed: Seed = 0,
    seeds: Annotated[int, typer.Option(help="Runs, each with a seed one higher.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what was stopped.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a model by a recipe; stopped or killed, `--resume` goes on as if nothing happened."""
    from innerloop.parameters import parse
    from innerloop.recipes.base import Recipe, begun
    from innerloop.recipes.base import train as run
    from innerloop.registry import find

    kind = find("recipes", Recipe, name)
    recipe = kind.made(parse(kind, settings or []))
    if seeds < 1:
        raise InputError(f"seeds must be at least 1, got {seeds}")
    parent = recipe.folder(RUNS) if output is None else output
    wanted = [(number, parent / f"seed-{number}") for number in range(seed, seed + seeds)]
    found = []
    with progress_bar("training") as progress:
        for done, (number, folder) in enumerate(wanted):
            go_on = resume and (seeds == 1 or begun(folder))

            def told(share: float, doing: str, done: int = done, number: int = number) -> None:
                progress((done + share) / seeds, f"seed {number}, {doing}")

            try:
                found.append(
                    run(
                        recipe,
                        seed=number,
                        folder=folder,
                        resume=go_on,
                        progress=told,
                        notice=progress.notice,
                    )
                )
            except KeyboardInterrupt:
                print(f"innerloop: stopped, saved in {folder}; --resume goes on", file=sys.stderr)
                raise SystemExit(130) from None
    if as_json:
        return print_json([trained.as_dict() for trained in found])
    rows = [
        [str(t.seed), str(t.step), t.ended, f"{t.seconds:.1f}", f"{t.final['loss']:.4g}"]
        for t in found
    ]
    print_table(f"{name}, trained", ["seed", "steps", "ended by", "seconds", "loss"], rows)
    others = {k: v for k, v in found[-1].final.items() if k not in ("step", "seconds", "loss")}
    if len(found) == 1:
        print_table("at the end", ["", ""], [[k, f"{v:.4g}"] for k, v in others.items()])
    print(f"written to {parent}")
    return None


@app.command()
def identify(
    model: Annotated[
        str, typer.Argument(help="A file of `build -o`, a run of `train`, or module:attribute.")
    ],
    problem: Annotated[
        str | None, typer.Option(help="The problems it is for; a file knows its own.")
    ] = None,
    settings: Settings = None,
    candidate: Annotated[
        list[str] | None, typer.Option(help="Compare with this algorithm only; repeat for more.")
    ] = None,
    prompts: Annotated[int, typer.Option(help="Prompts that score the candidates.")] = 256,
    steps: Annotated[int, typer.Option(help="Steps of a candidate that are looked at.")] = 64,
    seed: Seed = 0,
    figure: Annotated[
        Path | None, typer.Option(help="Draw layer × step to this file: html, png or svg.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say which algorithm each layer of a model runs, how surely, or that none fits."""
    from innerloop.files import check_writable
    from innerloop.identify.drawing import drawing, measured
    from innerloop.identify.identification import identify as run
    from innerloop.identify.loading import chosen, loaded
    from innerloop.report.export import check_kind, write_chart
    from innerloop.report.identified import identified

    if figure is not None:
        check_kind(figure)
        check_writable(figure)
    seen = loaded(model)
    distribution = chosen(seen, problem, settings or [])
    limits = {"prompts": prompts, "steps": steps, "seed": seed}
    with progress_bar("identifying") as progress:
        found = run(seen, distribution, algorithms=candidate, progress=progress, **limits)
    told = {"model": model, "problem": distribution.values(), **limits, **found.as_dict()}
    for layer, measures in zip(told["layers"], measured(found, seen), strict=True):
        layer["measures"] = measures
    if figure is not None:
        chart = identified(**drawing(found, seen, steps), title=f"{model}: {found.verdict}")
        write_chart(figure, chart.to_dict())
    if as_json:
        return print_json(told)
    print_verdict(told)
    if figure is not None:
        print(f"figure written to {figure}")
    return None


@app.command()
def check(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID …]", help="Claims, or how their ids begin; none: all."),
    ] = None,
    preset: PresetName = "quick",
    workers: Workers = None,
    engine: EngineName = "local",
    fresh: Fresh = False,
    seed: Seed = 0,
    results: Results = RESULTS,
    as_json: AsJson = False,
) -> None:
    """Put what the literature claims to the test; exit 1 where a check itself broke."""
    from innerloop.claims.base import chosen

    found, unwritten = _checked(
        chosen(ids or []), preset, workers, engine, fresh, seed, results, fuller=False
    )
    if as_json:
        print_json([outcome.as_dict() for outcome in found])
    else:
        print_outcomes([outcome.as_dict() for outcome in found])
    _finish_check(found, unwritten)


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
    results: Results = RESULTS,
    runs: Annotated[Path, typer.Option(help="The folder of trained runs.")] = RUNS,
    as_json: AsJson = False,
) -> None:
    """Check every claim, certify every construction, and write one self-contained page.

    What is stored is not run again, and where a larger preset is stored, that is shown. Exit 1
    where a check itself broke or a construction fails.
    """
    import time

    from innerloop.claims.base import chosen
    from innerloop.constructions import survey
    from innerloop.constructions.base import Construction
    from innerloop.files import check_writable, write_atomically
    from innerloop.recipes.runs import finished
    from innerloop.registry import members
    from innerloop.report.export import make_folder, write_figures
    from innerloop.report.page import drawn, page

    check_writable(output)
    if figures is not None:
        make_folder(figures)
    trained = list(finished(runs))
    start = time.perf_counter()
    checked, unwritten = _checked(
        chosen([]), preset, workers, engine, fresh, seed, results, fuller=True
    )
    outcomes = [outcome.as_dict() for outcome in checked]
    total = len(members("constructions", Construction)) + survey.contenders()
    total += len(survey.players())
    with progress_bar("certifying") as progress:
        parts = itertools.chain(
            survey.certificates(seed), survey.convergence(seed), survey.regret(seed)
        )
        found = []
        for part in parts:
            found.append(part)
            progress(len(found) / total)
    certificates = [part.as_dict() for part in found if not isinstance(part, list)]
    rows = [row for part in found if isinstance(part, list) for row in part]
    curves = [row for row in rows if "player" not in row]
    played = [row for row in rows if "player" in row]
    charts = drawn(outcomes, certificates, curves, played, trained)
    html = page(
        outcomes,
        certificates,
        charts,
        trained,
        setting=survey.convergence_setting(),
        played=survey.regret_setting(),
        command=f"innerloop report -o {output} --preset {preset} --seed {seed}",
        made=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        seconds=time.perf_counter() - start,
    )
    write_atomically(output, html.encode())
    if figures is not None:
        with progress_bar("drawing") as progress:
            write_figures(figures, charts, progress)
    if as_json:
        told = {"path": str(output), "claims": outcomes, "certificates": certificates}
        print_json({**told, "convergence": curves, "regret": played})
    else:
        print_outcomes(outcomes)
        print_certificates(certificates)
        print(f"report written to {output}")
    if failed := [c["name"] for c in certificates if not c["holds"]]:
        print(f"innerloop: the law is broken by {', '.join(failed)}", file=sys.stderr)
        raise typer.Exit(1)
    _finish_check(checked, unwritten)


def _checked(
    ids: list[str],
    preset: str,
    workers: int | None,
    engine: str,
    fresh: bool,
    seed: int,
    results: Path,
    *,
    fuller: bool,
) -> tuple[list[Outcome], list[str]]:
    """The outcomes of claims, and why finished ones could not be stored."""
    from innerloop.claims.base import PRESETS
    from innerloop.ledger.engines import engine_of
    from innerloop.ledger.run import Run
    from innerloop.ledger.store import Store

    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    if seed < 0:
        raise InputError(f"seed must be at least 0, got {seed}")
    if results.exists() and not results.is_dir():
        raise InputError(f"cannot store results in {results}: it is not a folder")
    with progress_bar("checking") as progress:
        run = Run(
            Store(results, progress.notice),
            engine_of(engine, workers),
            seed=seed,
            fresh=fresh,
            progress=progress,
            notice=progress.notice,
        )
        try:
            return run.check(ids, preset, fuller=fuller), run.unwritten
        except KeyboardInterrupt:
            print(
                "innerloop: stopped; what is finished is stored, the same command goes on",
                file=sys.stderr,
            )
            raise SystemExit(130) from None


def _finish_check(found: list[Outcome], unwritten: list[str]) -> None:
    """Exit 1 where a check itself broke, 2 where results could not be kept."""
    if broken := [outcome.id for outcome in found if outcome.state == "broken"]:
        print(f"innerloop: these checks broke: {', '.join(broken)}", file=sys.stderr)
        raise typer.Exit(1)
    if unwritten:
        raise InputError(f"{len(unwritten)} results could not be kept: {unwritten[0]}")


def _chosen(name: str, settings: list[str] | None) -> dict[str, Any]:
    """The `-s key=value` words as parameters of construction `name`."""
    from innerloop.constructions.base import Construction
    from innerloop.parameters import parse
    from innerloop.registry import find

    return parse(find("constructions", Construction, name), settings or [])


def _finish(certificate: Any, as_json: bool, note: str | None) -> None:
    """Print a certificate; exit 1 if it does not hold."""
    if as_json:
        print_json(certificate.as_dict())
    else:
        print_certificates([certificate.as_dict()])
        if note:
            print(note)
    if certificate.holds:
        return
    reason = (
        f"a step deviates by {max(certificate.step_deviation):.3g} "
        f"(allowed {certificate.tolerance:.3g}), running free by {max(certificate.deviation):.3g} "
        f"(allowed {max(certificate.free_tolerance):.3g}); first {certificate.broken}"
        if certificate.range_used <= 1
        else f"the data reach {certificate.range_used:.3g} times the declared range"
    )
    print(f"innerloop: {certificate.name} breaks the law: {reason}", file=sys.stderr)
    raise typer.Exit(1)


def _stop(message: str) -> NoReturn:
    print(f"innerloop: {message}", file=sys.stderr)
    raise SystemExit(2)


def main() -> None:
    """Run the command line; a user's mistake is one line on standard error and exit code 2."""
    # One thread unless asked otherwise: the matrices are small, on a busy machine more threads wait
    # for each other, and numbers are the same whatever the machine.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        app()
    except InputError as error:
        _stop(str(error))
    except MemoryError:
        _stop("out of memory: choose smaller parameters")
    except RuntimeError as error:
        if "alloc" not in str(error):
            raise
        _stop("out of memory: choose smaller parameters")
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(1) from None
