"""`innerloop fit`: fit an estimator to a file of the user."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Any

import typer

from innerloop.commands.options import AsJson, Seed
from innerloop.errors import FileError, InputError, MissingLibraryError, unknown_name_error
from innerloop.output import print_json, print_text

MAX_LAYERS = 12
"""The largest number of layers in the table: the first, the last, and some between."""


def fit(
    data: Annotated[Path, typer.Argument(help="A CSV file with a header, or parquet.")],
    target: Annotated[str, typer.Option(help="Name of the column to predict.")],
    algorithm: Annotated[
        str, typer.Option(help="newton, relu-newton, gradient-descent, gd-plus-plus or lasso.")
    ] = "newton",
    alpha: Annotated[float, typer.Option(help="Penalty of the lasso.")] = 1.0,
    steps: Annotated[str, typer.Option(help="Steps of the algorithm, or auto.")] = "auto",
    test_share: Annotated[
        float, typer.Option(help="Share of the rows that are held out for testing.")
    ] = 0.25,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the predictions as CSV.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw the score of each layer: html, png, svg or pdf.")
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Fit a transformer to the rows of a file, and compare its scores with scikit-learn's.

    The table shows the score after each step of the forward pass.
    """
    from innerloop.estimators.report import fit_and_score

    if not 0 < test_share < 1:
        raise InputError(f"--test-share must be between 0 and 1, got {test_share}")
    if steps != "auto" and not steps.isdecimal():
        raise InputError(f"--steps must be a whole number or auto, got {steps!r}")
    names, columns = read_table(data)
    if target not in names:
        raise unknown_name_error(f"column in {data}", target, names)
    fitted = fit_and_score(
        names,
        columns,
        target,
        algorithm,
        alpha=alpha,
        steps=steps if steps == "auto" else int(steps),
        test_share=test_share,
        seed=seed,
    )
    if output is not None:
        _write_predictions(output, fitted)
    if figure is not None:
        _draw(figure, fitted)
    if as_json:
        return print_json(fitted)
    return _print(fitted, output, figure)


def read_table(path: Path) -> tuple[list[str], list[list[Any]]]:
    """Read the columns of a CSV or parquet file; cells of CSV are text."""
    if not path.is_file():
        raise FileError(f"no file {path}")
    if path.suffix.lower() in (".parquet", ".pq"):
        return _read_parquet(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{path} cannot be read as CSV: {error}") from None
    if len(rows) < 2:
        raise FileError(f"{path} must have a header and at least one row, got {len(rows)} lines")
    names = [name.strip() for name in rows[0]]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise FileError(f"{path} has the column {twice!r} twice")
    for number, row in enumerate(rows[1:], 1):
        if len(row) != len(names):
            raise FileError(
                f"{path}: row {number} has {len(row)} cells, the header has {len(names)}"
            )
    return names, [list(column) for column in zip(*rows[1:], strict=True)]


def _read_parquet(path: Path) -> tuple[list[str], list[list[Any]]]:
    """Read the names and the columns of a parquet file."""
    try:
        import pandas  # pyright: ignore[reportMissingImports]

        frame = pandas.read_parquet(path)
    except ImportError:
        raise MissingLibraryError(
            "parquet needs pandas and pyarrow: pip install pandas pyarrow"
        ) from None
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read as parquet: {error}") from None
    return [str(name) for name in frame.columns], [frame[n].tolist() for n in frame.columns]


def _write_predictions(path: Path, fitted: dict[str, Any]) -> None:
    """Write the predictions for the test rows as CSV, beside those of scikit-learn."""
    from innerloop.files import write_atomically
    from innerloop.links import resolve_links

    lines = [f"row,{fitted['target']},prediction,scikit_learn"]
    lines += [
        f"{p['row']},{p['actual']!r},{p['prediction']!r},{p['scikit_learn']!r}"
        for p in fitted["predictions"]
    ]
    write_atomically(resolve_links(path), ("\n".join(lines) + "\n").encode())


def _draw(path: Path, fitted: dict[str, Any]) -> None:
    """Draw the score after each step, with that of scikit-learn as a dashed line."""
    import altair as alt

    layers = [{"layer": k, "R²": max(score, -1.0)} for k, score in enumerate(fitted["layers"])]
    points = (
        alt.Chart(alt.Data(values=layers))
        .mark_line(point=True)
        .encode(x=alt.X("layer:Q", title="step"), y=alt.Y("R²:Q", title="R² on rows held out"))
    )
    line = (
        alt.Chart(alt.Data(values=[{"R²": fitted["scikit_learn_score"]}]))
        .mark_rule(strokeDash=[4, 4])
        .encode(y="R²:Q")
    )
    title = f"{fitted['target']} by {fitted['algorithm']}; dashed: scikit-learn"
    try:
        (points + line).properties(title=title, width=480, height=300).save(str(path))
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be written as a figure: {error}") from None


def _print(fitted: dict[str, Any], output: Path | None, figure: Path | None) -> None:
    """Print the score after each step, the final scores and the paths of written files."""
    from innerloop.terminal import print_table

    scores = fitted["layers"]
    last = len(scores) - 1
    layers = sorted({round(k * last / (MAX_LAYERS - 1)) for k in range(MAX_LAYERS)})
    rows = [[str(k), f"{scores[k]:.4f}"] for k in layers]
    sizes = f"{fitted['trained_on']} rows, {len(fitted['features'])} features"
    print_table(
        f"{fitted['target']} by {fitted['algorithm']} from {sizes}", ["step", "R² held out"], rows
    )
    for warning in fitted["warnings"]:
        print_text(warning)
    print_text(
        f"R² on {len(fitted['predictions'])} rows held out: {fitted['score']:.4f} in "
        f"{fitted['steps']} steps, scikit-learn's {fitted['scikit_learn']} "
        f"{fitted['scikit_learn_score']:.4f}"
    )
    print_text(f"certificate of {fitted['certificate']}: holds")
    for path in filter(None, (output, figure)):
        print_text(f"written to {path}")
