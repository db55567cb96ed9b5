"""Hard data for `solve`: what scikit-learn's users expect of each, or an error that says where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest
import torch
from sklearn.linear_model import Lasso, LinearRegression, Ridge

from innerloop import InputError, MissingLibraryError, solve
from innerloop.solving.solve import find_finite

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(3, 20, 4)), RNG.normal(size=(3, 20))
LINEAR = ["least-squares", "ridge", "lasso", "elastic-net", "nnls", "huber"]


def test_constant_columns_get_no_weight() -> None:
    x = X.copy()
    x[:, :, 2] = 5.0
    for name in LINEAR:
        extra: dict[str, Any] = {"fit_intercept": True} if name == "nnls" else {}
        found = solve(name, x, Y, **extra)
        np.testing.assert_allclose(found.coef[:, 2], 0.0, atol=1e-8)
        assert found.converged.all()


def test_collinear_features_and_fewer_rows_than_features() -> None:
    x = np.concatenate([X, X[..., :1] + X[..., 1:2]], axis=-1)
    for rows in (slice(None), slice(0, 3)):
        for name, model in (("least-squares", LinearRegression()), ("ridge", Ridge(1e-3))):
            extra: dict[str, Any] = {} if name == "least-squares" else {"penalty": 1e-3}
            found = solve(name, x[:, rows], Y[:, rows], **extra)
            for k in range(3):
                model.fit(x[k, rows], Y[k, rows])
                np.testing.assert_allclose(found.coef[k], model.coef_, atol=1e-6)
        found = solve("lasso", x[:, rows], Y[:, rows], penalty=0.05)
        for k in range(3):
            lasso = Lasso(0.05, tol=1e-10, max_iter=100_000).fit(x[k, rows], Y[k, rows])
            fitted = x[k, rows] @ found.coef[k] + found.intercept[k]
            np.testing.assert_allclose(fitted, lasso.predict(x[k, rows]), atol=1e-3)


def test_one_example_is_predicted_by_its_label() -> None:
    for name in ("least-squares", "ridge", "lasso", "elastic-net", "huber"):
        found = solve(name, X[:, :1], Y[:, :1])
        np.testing.assert_allclose(found.coef, 0.0, atol=1e-12)
        np.testing.assert_allclose(found.intercept, Y[:, 0])
    with pytest.raises(InputError, match="PCA needs at least 2 rows"):
        solve("pca", X[:, :1])
    with pytest.raises(InputError, match="at least 8 rows, one per cluster; got one with 1"):
        solve("k-means", X[:, :1])


def test_huge_scales_change_nothing_but_the_scale() -> None:
    scales = np.array([1e-8, 1.0, 1e8, 1e4])
    for name in ("least-squares", "nnls"):
        plain, scaled = solve(name, X, Y), solve(name, X * scales, Y * 1e6)
        np.testing.assert_allclose(scaled.coef * scales / 1e6, plain.coef, atol=1e-9)
        assert scaled.converged.all()
    plain, scaled = solve("lasso", X, Y, penalty=0.1), solve("lasso", X * 1e6, Y, penalty=1e5)
    np.testing.assert_allclose(scaled.coef * 1e6, plain.coef, atol=1e-6)


def test_a_nan_is_found_in_its_place() -> None:
    x = X.copy()
    x[1, 7, 2] = np.nan
    with pytest.raises(InputError, match="X of problem 1 contains nan at row 7, feature 2"):
        solve("lasso", x, Y)
    y = Y.copy()
    y[2, 3] = np.inf
    with pytest.raises(InputError, match="y of problem 2 contains inf at row 3"):
        solve("lasso", X, y)


def test_strings_shapes_and_unknown_words_are_refused() -> None:
    with pytest.raises(InputError, match="X must hold real numbers, got text"):
        solve("lasso", np.array([[["a"]]]), Y)
    with pytest.raises(InputError, match=r"y must be \(3, 20\) for this X, got \(3, 19\)"):
        solve("lasso", X, Y[:, 1:])
    with pytest.raises(InputError, match="did you mean 'lasso'"):
        solve("lass", X, Y)
    with pytest.raises(InputError, match="did you mean 'max_steps'"):
        solve("lasso", X, Y, max_step=3)
    with pytest.raises(InputError, match="lasso needs labels"):
        solve("lasso", X)
    with pytest.raises(InputError, match="pca takes no labels"):
        solve("pca", X, Y)
    with pytest.raises(InputError, match="penalty must be at least 0, got -1"):
        solve("lasso", X, Y, penalty=-1)
    with pytest.raises(InputError, match="cv=30 folds need at least 30 rows"):
        solve("lasso", X, Y, cv=30)
    with pytest.raises(InputError, match="the same features"):
        solve("lasso", [(X[0], Y[0]), (X[1][:, :2], Y[1])])


def test_frames_by_group() -> None:
    frame = pandas.DataFrame(X.reshape(60, 4), columns=list("abcd"))
    frame["shop"] = ["north"] * 25 + ["south"] * 10 + ["east"] * 25
    frame["price"] = Y.reshape(60)
    found = solve("lasso", frame, by="shop", target="price", penalty=0.05, tolerance=1e-12)
    assert list(found.groups) == ["east", "north", "south"]
    shown = found.to_frame()
    for shop, rows in frame.groupby("shop"):
        model = Lasso(0.05, tol=1e-12).fit(rows[list("abcd")].to_numpy(), rows["price"].to_numpy())
        expected = [shown.loc[shop, f"coef_{name}"] for name in "abcd"]
        np.testing.assert_allclose(expected, model.coef_, atol=1e-6)
    frame.loc[3, "b"] = np.nan
    with pytest.raises(InputError, match="column 'b' has nan in row 3"):
        solve("lasso", frame, by="shop", target="price")
    frame["b"] = ["many"] * 60
    with pytest.raises(InputError, match="column 'b' must hold numbers, row 0 has 'many'"):
        solve("lasso", frame, by="shop", target="price")
    with pytest.raises(InputError, match="did you mean 'shop'"):
        solve("lasso", frame, by="shp", target="price")


def test_labels_of_columns_are_used_as_they_are() -> None:
    frame = pandas.DataFrame(np.column_stack([X[0], Y[0]]))
    numbered = solve("least-squares", frame, target=4)
    np.testing.assert_allclose(numbered.coef[0], LinearRegression().fit(X[0], Y[0]).coef_)
    with pytest.raises(InputError, match=r"label '4' \(a str\); there is 4 \(a int\)"):
        solve("least-squares", frame, target="4")
    frame.columns = pandas.Index([1, "1", 2, 3, "y"], dtype=object)
    both = solve("least-squares", frame, target="y")
    np.testing.assert_allclose(both.coef, numbered.coef)
    assert list(both.to_frame().filter(like="coef").columns) == [
        "coef_1",
        "coef_'1'",
        "coef_2",
        "coef_3",
    ]
    frame.columns = ["a", "b", "a", "c", "y"]
    with pytest.raises(InputError, match="two columns called 'a'"):
        solve("least-squares", frame, target="y")
    frame.columns = pandas.MultiIndex.from_product([["a"], list("bcdef")])
    with pytest.raises(InputError, match="several levels"):
        solve("least-squares", frame, target=("a", "b"))
    dated = pandas.DataFrame({"t": pandas.to_datetime(["2020-01-01", "2021-01-01"]), "y": [1, 2.0]})
    with pytest.raises(InputError, match="column 't' must hold numbers, got datetime64"):
        solve("least-squares", dated, target="y")
    huge = pandas.DataFrame({"x": [10**400, 1], "y": [1.0, 2.0]}, dtype=object)
    with pytest.raises(InputError, match="column 'x' has inf in row 0"):
        solve("least-squares", huge, target="y")


def test_groups_of_different_types_stay_apart_and_missing_ones_are_refused() -> None:
    x = np.tile(np.arange(5.0), 2)
    frame = pandas.DataFrame({"key": [1] * 5 + ["1"] * 5, "x": x, "y": x * np.repeat([3, -3], 5)})
    found = solve("least-squares", frame, by="key", target="y")
    assert list(found.groups) == [1, "1"]
    np.testing.assert_allclose(found.coef[:, 0], [3.0, -3.0])
    for missing in (pandas.NA, pandas.NaT, None, float("nan")):
        frame["key"] = pandas.Series(["a"] * 3 + [missing] + ["b"] * 6, dtype=object)
        with pytest.raises(InputError, match="column 'key' has no group in row 3: drop"):
            solve("least-squares", frame, by="key", target="y")
    frame["key"] = pandas.to_datetime(["2020-01-01", None] * 5)
    with pytest.raises(InputError, match="column 'key' has no group in row 1: drop"):
        solve("least-squares", frame, by="key", target="y")


def test_columns_of_large_offset_are_used_and_rounding_is_left_out() -> None:
    moments = 1.6e15 + 2.0 * np.arange(20.0)
    x = np.stack([moments, X[0, :, 0], np.full(20, 0.1)], axis=1)
    y = 0.3 * (moments - 1.6e15) + X[0, :, 0]
    for name in ("least-squares", "ridge", "lasso", "huber"):
        extra: dict[str, Any] = {} if name == "least-squares" else {"penalty": 1e-9}
        found = solve(name, x, y, **extra)
        np.testing.assert_allclose(found.coef[0], [0.3, 1.0, 0.0], atol=1e-5)
        assert found.converged.all()
    variances = solve("pca", x[:, :1]).explained_variance
    np.testing.assert_allclose(variances, [[np.var(2.0 * np.arange(20), ddof=1)]])


def test_columns_of_very_different_scales_are_all_used_where_rows_are_solved() -> None:
    x = np.column_stack([X[0], X[0, :, 0] + X[0, :, 1]]) * [1e-9, 1e9, 1.0, 1e5, 1.0]
    found = solve("least-squares", x, Y[0])
    expected = LinearRegression().fit(X[0], Y[0]).predict(X[0])
    np.testing.assert_allclose(x @ found.coef[0] + found.intercept[0], expected, atol=1e-6)
    assert found.converged.all()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("k-means", {"clusters": 2, "start": np.full((2, 4), np.nan)}, "start must hold finite"),
        ("gaussian-mixture", {"clusters": 2, "start": np.full((2, 4), 1e200)}, "start must hold"),
        ("gaussian-mixture", {"start_weights": [2.0]}, "start_weights must be at least 0 and sum"),
        ("ridge", {"penalty": np.inf}, "penalty must be a finite number, got inf"),
        ("ridge", {"penalty": 10**400}, "penalty must be a number"),
        ("lasso", {"path": [0.1, np.nan]}, "a list of them that are finite"),
        ("lasso", {"max_steps": "a"}, "max_steps must be a whole number, got 'a'"),
        ("lasso", {"device": "meta"}, "device='meta' holds no numbers"),
        ("lasso", {"device": "nowhere"}, "device='nowhere' cannot be used here"),
        ("lasso", {"tolerance": np.nan}, "tolerance must be a finite number at least 0"),
        ("lasso", {"algorithm": 5}, "algorithm must be a name or a folder, got 5"),
        ("lasso", {"fit_intercept": "no"}, "fit_intercept must be True or False"),
        ("huber", {"epsilon": np.inf}, "epsilon must be a finite number"),
    ],
)
def test_options_that_no_solver_can_use_are_refused(name: str, options: Any, message: str) -> None:
    labels = () if name in ("k-means", "gaussian-mixture") else (Y,)
    with pytest.raises(InputError, match=message):
        solve(name, X, *labels, **options)


@pytest.mark.parametrize("name", [*LINEAR, "k-means"])
def test_weights_and_entries_beyond_the_range_are_refused(name: str) -> None:
    extra: dict[str, Any] = {"clusters": 2} if name == "k-means" else {}
    labels = () if name == "k-means" else (Y,)
    for size, shown in ((1e308, "inf|1e.308"), (1e-310, "2e-309"), (1e-320, "2e-319")):
        weight = np.full(Y.shape, size)
        with pytest.raises(InputError, match=f"sample_weight of problem 0 .*({shown})"):
            solve(name, X, *labels, sample_weight=weight, **extra)
    for size in (1e308, -1e308, 1e155):
        with pytest.raises(InputError, match=r"X of problem 0 contains .* at most 1e\+150"):
            solve(name, np.sign(X) * size, *labels, **extra)
    with pytest.raises(InputError, match="feature 0 of problem 0 has no entry larger than"):
        solve(name, X * 1e-170, *labels, **extra)


def test_an_answer_that_is_not_finite_has_not_converged() -> None:
    """Whatever a solver reports of it."""
    answers = {
        "coef": torch.tensor([[1.0, 2.0], [torch.inf, 0.0]]),
        "optimality": torch.zeros(2),
        "converged": torch.tensor([True, True]),
    }
    assert find_finite(answers).tolist() == [True, False]


def test_a_frame_without_pandas_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(MissingLibraryError, match="pip install pandas"):
        solve("ridge", X, Y).to_frame()
