"""Fit an estimator to a table for `innerloop fit`, and compare it with scikit-learn's."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from sklearn.linear_model import Lasso, LinearRegression
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split

from innerloop.errors import InputError, unknown_name_error
from innerloop.estimators.lasso import TransformerLasso
from innerloop.estimators.regressor import CONSTRUCTIONS, TransformerRegressor


def fit_and_score(
    names: list[str],
    columns: list[list[Any]],
    target: str,
    algorithm: str,
    *,
    alpha: float = 1.0,
    steps: int | str = "auto",
    test_share: float = 0.25,
    seed: int = 0,
) -> dict[str, Any]:
    """Fit an estimator to a random part of a table's rows, and score it on the other rows.

    Return the R² of the transformer after every step, that of scikit-learn, and all predictions.
    """
    if algorithm not in (*CONSTRUCTIONS, "lasso"):
        raise unknown_name_error("algorithm", algorithm, [*CONSTRUCTIONS, "lasso"])
    table = {name: read_cells(cells, name) for name, cells in zip(names, columns, strict=True)}
    y = table.pop(target)
    if not table:
        raise InputError(f"there is no column besides {target!r} to predict it from")
    X, rows = np.column_stack(list(table.values())), np.arange(1, len(y) + 1)
    if len(y) < 4:
        raise InputError(f"need at least 4 rows to train and to score, got {len(y)}")
    parts: Any = train_test_split(X, y, rows, test_size=test_share, random_state=seed)
    x_train, x_test, y_train, y_test, _, places = parts
    if len(y_test) < 2:
        raise InputError(f"a share of {test_share:g} leaves {len(y_test)} row to score: use more")
    model: Any
    reference: Any
    if algorithm == "lasso":
        model = TransformerLasso(alpha, steps=steps)
        reference = Lasso(alpha, tol=1e-8, max_iter=100_000)
    else:
        model, reference = TransformerRegressor(algorithm, steps=steps), LinearRegression()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x_train, y_train)
        reference.fit(x_train, y_train)
    predicted, expected = model.predict(x_test), reference.predict(x_test)
    return {
        "target": target,
        "features": list(table),
        "algorithm": algorithm,
        "steps": model.steps_,
        "trained_on": len(y_train),
        "score": float(r2_score(y_test, predicted)),
        "scikit_learn": type(reference).__name__,
        "scikit_learn_score": float(r2_score(y_test, expected)),
        "layers": [float(r2_score(y_test, each)) for each in _list_layers(model, x_test)],
        "largest_difference": float(np.abs(predicted - expected).max()),
        "certificate": model.certificate_.name,
        "warnings": [str(each.message) for each in caught],
        "predictions": [
            {"row": int(r), "actual": float(a), "prediction": float(p), "scikit_learn": float(e)}
            for r, a, p, e in zip(places, y_test, predicted, expected, strict=True)
        ],
    }


def _list_layers(model: Any, X: np.ndarray) -> list[np.ndarray]:
    """Return the predictions after every step."""
    if isinstance(model, TransformerRegressor):
        return list(model.staged_predict(X))
    return [model.centre(X) @ weights + model._shift for weights in model.layers_]


def read_cells(cells: list[Any], name: str) -> np.ndarray:
    """Read a column of numbers; an error names the column and the row, counted from 1."""
    values = np.empty(len(cells))
    for row, cell in enumerate(cells, 1):
        try:
            value = float(cell)
        except (TypeError, ValueError, OverflowError):
            content = "nothing" if cell in (None, "") else repr(str(cell)[:50])
            raise InputError(
                f"column {name!r} must hold numbers, row {row} has {content}: "
                "fill it, drop the row, or drop the column"
            ) from None
        if not math.isfinite(value):
            raise InputError(f"column {name!r} has {value} in row {row}: fill it or drop the row")
        values[row - 1] = value
    return values
