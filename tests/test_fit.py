"""`innerloop fit` on a file: scores beside scikit-learn's, predictions, a figure, errors."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import sklearn.datasets
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split

datasets: Any = sklearn.datasets
pytestmark = pytest.mark.usefixtures("law_alone")
Run = Callable[..., Any]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The first columns of the diabetes data as CSV."""
    X, y = datasets.load_diabetes(return_X_y=True)
    path = tmp_path / "data.csv"
    lines = [
        ",".join(map(repr, [*map(float, x), float(t)])) for x, t in zip(X[:80, :4], y, strict=False)
    ]
    path.write_text("age,sex,bmi,bp,price\n" + "\n".join(lines) + "\n")
    return path


def test_fit_scores_predicts_and_draws(run: Run, data: Path, tmp_path: Path) -> None:
    out, figure = tmp_path / "out.csv", tmp_path / "figure.svg"
    done = run("fit", str(data), "--target", "price", "-o", str(out), "--figure", str(figure))
    assert done.code == 0, done.err
    X, y = datasets.load_diabetes(return_X_y=True)
    rows = np.arange(1, 81)
    parts: Any = train_test_split(X[:80, :4], y[:80], rows, test_size=0.25, random_state=0)
    expected = LinearRegression().fit(parts[0], parts[2])
    with out.open() as file:
        found = list(csv.DictReader(file))
    assert [int(row["row"]) for row in found] == list(parts[5])
    predicted = [float(row["prediction"]) for row in found]
    np.testing.assert_allclose(predicted, expected.predict(parts[1]), atol=1e-6)
    score = f"{expected.score(parts[1], parts[3]):.4f}"
    assert f"R² on 20 rows held out: {score} in " in done.out
    assert f"scikit-learn's LinearRegression {score}" in done.out
    assert figure.read_text().startswith("<svg")


def test_fit_prints_json_for_the_lasso(run: Run, data: Path) -> None:
    done = run("fit", str(data), "--target", "price", "--algorithm", "lasso", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["largest_difference"] < 0.5
    assert len(found["layers"]) == found["steps"] + 1
    assert found["features"] == ["age", "sex", "bmi", "bp"]


def test_parquet_gives_what_csv_gives(run: Run, data: Path, tmp_path: Path) -> None:
    """Whole numbers and numbers, by their columns' names; text is an error with its place."""
    frame, path = pandas.read_csv(data), tmp_path / "data.parquet"
    frame["ward"] = range(80)
    for file, write in ((data, frame.to_csv), (path, frame.to_parquet)):
        write(file, index=False)
    words = ("--target", "price", "--json")
    found = [json.loads(run("fit", str(file), *words).out) for file in (data, path)]
    assert found[0]["features"][-1] == "ward"
    assert found[0] == found[1]
    frame.assign(ward=["a"] * 80).to_parquet(path, index=False)
    done = run("fit", str(path), "--target", "price")
    assert done.code == 2
    assert "column 'ward' must hold numbers, row 1 has 'a'" in done.err
    path.write_bytes(b"no parquet")
    done = run("fit", str(path), "--target", "price")
    assert done.code == 2
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        (("0.", "cheap", 1), [], "column 'age' must hold numbers, row 1 has 'cheap"),
        (("\n-0", "\n,-0", 1), [], "has 6 cells, the header has 5"),
        (("price", "cost", 1), [], "no column in"),
        (("age", "bmi", 1), [], "has the column 'bmi' twice"),
        (("", "", 0), ["--algorithm", "newtn"], "did you mean 'newton'?"),
        (("", "", 0), ["--steps", "many"], "--steps must be a whole number or auto"),
        (("", "", 0), ["--test-share", "2"], "--test-share must be between 0 and 1"),
    ],
)
def test_fit_says_where_a_mistake_is(
    run: Run, data: Path, change: Any, words: list[str], message: str
) -> None:
    data.write_text(data.read_text().replace(*change))
    done = run("fit", str(data), "--target", "price", *words)
    assert done.code == 2
    assert message in done.err
    assert len(done.err.splitlines()) == 1


def test_fit_refuses_what_is_missing(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    assert "no file" in run("fit", str(path), "--target", "y").err
    path.write_text("x,y\n1,2\n3,\n5,6\n7,8\n")
    assert (
        "column 'y' must hold numbers, row 2 has nothing"
        in run("fit", str(path), "--target", "y").err
    )
    path.write_text("x,y\n1,2\nnan,3\n5,6\n7,8\n")
    assert "column 'x' has nan in row 2" in run("fit", str(path), "--target", "y").err
