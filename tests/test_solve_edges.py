"""Hard data for `solve`: what scikit-learn's users expect of each, or an error that says where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest
from sklearn.linear_model import Lasso, LinearRegression, Ridge

from innerloop import InputError, MissingLibraryError, solve

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


def test_a_frame_without_pandas_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(MissingLibraryError, match="pip install pandas"):
        solve("ridge", X, Y).to_frame()
