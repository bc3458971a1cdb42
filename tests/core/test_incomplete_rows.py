"""Tests of rows with missing values, for every latent variable model that accepts them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from contrast_core import CLVM, PCPCA, ContrastWarning, load, save
from contrast_core.linalg import subspace_error
from tests.core.kinds import KINDS
from tests.core.samples import gappy
from tests.core.test_odd_inputs import content

MODELS: dict[str, Any] = {
    "PCPCA": PCPCA(gamma=0.1),
    "CLVM": CLVM(tol=1e-6),
    "CLVM, robust to rows": CLVM(tol=1e-6, robust="rows"),
    "CLVM, robust to entries": CLVM(tol=1e-6, robust="entries"),
}
EACH_MODEL = pytest.mark.parametrize("name", MODELS)
NAMES = list("abcdefgh")


def fit(name: str, X: Any, Y: Any, **parameters: Any) -> Any:
    return clone(MODELS[name]).set_params(**parameters).fit(X, background=Y)


def methods(model: Any) -> list[str]:
    """Return the names of the methods of a model that accept missing values."""
    normal = getattr(model, "tails_", "normal") == "normal"
    return ["transform", "score_samples", *(["impute"] if normal else [])]


CONTAINERS: dict[str, Any] = {
    "float16": lambda v: v.astype("f2"),
    "view": lambda v: np.repeat(np.repeat(v, 2, axis=0), 2, axis=1)[::2, ::2],
    "masked": lambda v: np.ma.masked_array(np.nan_to_num(v, nan=3), np.isnan(v)),
    "masked integers": lambda v: np.ma.masked_array(np.nan_to_num(v).astype(int), np.isnan(v)),
    "frame": lambda v: pd.DataFrame(v, columns=NAMES),
    "frame with NA": lambda v: pd.DataFrame(v).astype("Int64"),
    "list": lambda v: v.tolist(),
}


@pytest.mark.parametrize(
    ("name", "container"),
    [
        *(("PCPCA", container) for container in CONTAINERS),
        *(
            (name, container)
            for name in MODELS
            for container in ("masked", "frame", "view")
            if name != "PCPCA"
        ),
    ],
)
def test_missing_values_of_any_kind_give_the_same_result(name: str, container: str) -> None:
    X, Y = (np.rint(8 * rows) for rows in gappy())
    expected = fit(name, X, Y)
    x, y = CONTAINERS[container](X), CONTAINERS[container](Y)
    before = content(x)
    model = fit(name, x, y)
    assert content(x) == before
    for method in methods(model):
        found = getattr(model, method)(x)
        np.testing.assert_allclose(found, getattr(expected, method)(X), rtol=1e-6, atol=1e-6)
    if container == "frame":
        assert list(model.feature_names_in_) == NAMES
        with pytest.raises(ValueError, match="another order"):
            fit(name, x, y[NAMES[::-1]])


@EACH_MODEL
def test_scale_shift_order_constants_and_empty_rows_do_not_change_the_fit(name: str) -> None:
    X, Y = gappy()
    X.flags.writeable = Y.flags.writeable = False
    model, rng = fit(name, X, Y), np.random.default_rng(0)
    n_values = (~np.isnan(X)).sum()

    def assert_same(other: Any) -> None:
        assert subspace_error(other.components_[:, :8], model.components_) < 1e-4

    shift, empty, order = 1e5 * np.arange(8.0), np.full((7, 8), np.nan), rng.permutation(8)
    shifted = fit(name, X + shift, Y - shift)
    assert_same(shifted)
    np.testing.assert_allclose(shifted.mean_, model.mean_ + shift, rtol=1e-9, atol=1e-5)
    for scale in (1e-80, 1e-3, 1e80):
        scaled = fit(name, scale * X, scale * Y)
        assert_same(scaled)
        assert scaled.noise_variance_ / scale**2 == pytest.approx(model.noise_variance_, rel=1e-4)
        expected = model.score_samples(X).sum() - n_values * np.log(scale)
        assert scaled.score_samples(scale * X).sum() == pytest.approx(expected, rel=1e-6)
    assert_same(fit(name, rng.permutation(X), rng.permutation(Y)))
    assert_same(fit(name, np.vstack([empty, X]), np.vstack([Y, empty])))
    turned = fit(name, X[:, order], Y[:, order]).components_[:, order.argsort()]
    assert subspace_error(turned, model.components_) < 1e-4
    if name != "PCPCA":
        constant = fit(name, np.c_[X, np.full(60, 7.0)], np.c_[Y, np.full(50, 7.0)])
        assert_same(constant)
        assert not constant.selected_[8]
        assert constant.mean_[8] == 7.0


@EACH_MODEL
def test_pickled_and_saved_models_give_the_same_results(name: str, tmp_path: Path) -> None:
    X, Y = gappy()
    model = fit(name, X, Y)
    save(model, tmp_path / "model")
    for other in (model, pickle.loads(pickle.dumps(model)), load(tmp_path / "model")):
        for method in methods(model):
            np.testing.assert_array_equal(getattr(other, method)(X), getattr(model, method)(X))
        if name == "PCPCA":
            for call in (lambda other=other: other.at(0.0), other.path):
                with pytest.raises(ValueError, match="fitted to incomplete data"):
                    call()
            with pytest.raises(AttributeError, match="background_variances_ needs the moments"):
                _ = other.background_variances_


@EACH_MODEL
def test_a_second_fit_keeps_nothing_of_the_first(name: str) -> None:
    X, Y = gappy()
    complete = np.nan_to_num(X), np.nan_to_num(Y)
    model = fit(name, *complete).fit(X, background=Y)
    assert not hasattr(model, "foreground_moments_")
    if name in ("PCPCA", "CLVM"):
        moments = fit(name, *complete)
        model.fit(moments.foreground_moments_, background=moments.background_moments_)
        assert hasattr(model, "foreground_moments_")
        assert not hasattr(model, "start_objectives_")
        model.fit(X, background=Y)
    before = vars(model).copy()
    with pytest.raises(ValueError, match="never observes"):
        model.fit(np.where(np.arange(8) == 3, np.nan, X), background=Y)
    assert all(vars(model)[key] is value for key, value in before.items())


INFINITE = np.array(gappy()[0])
INFINITE[0, 0] = np.inf
FRAMES = [pd.DataFrame(rows, columns=NAMES) for rows in gappy()]
FRAMES[1][["b", "f"]] = np.nan
BAD: dict[str, tuple[Any, str]] = {
    "a feature never observed": (
        lambda X, Y: (np.where(np.arange(8) == 3, np.nan, X), Y),
        r"X never observes 1 of its features \(3\)",
    ),
    "named features never observed": (lambda X, Y: FRAMES, r"2 of its features \('b', 'f'\)"),
    "one row": (
        lambda X, Y: (np.where(np.arange(60)[:, None] > 0, np.nan, np.ones(8)), Y),
        r"X has 1 row\(s\) with a value",
    ),
    "infinite": (
        lambda X, Y: (INFINITE, Y),
        r"inf first met in feature 0\); finite values, or NaN",
    ),
    "constant": (
        lambda X, Y: (np.where(np.isnan(X), np.nan, 1.0), np.where(np.isnan(Y), np.nan, 1.0)),
        r"0 feature\(s\) vary|background is constant",
    ),
    "sparse": (lambda X, Y: (sp.csr_array(X), Y), r"takes missing values .* in memory"),
}


@pytest.mark.parametrize("kind", BAD)
@EACH_MODEL
def test_bad_rows_are_refused(name: str, kind: str) -> None:
    make, message = BAD[kind]
    with pytest.raises(ValueError, match=message):
        fit(name, *make(*gappy()))


@EACH_MODEL
def test_bad_new_rows_are_refused_and_too_few_iterations_cause_a_warning(name: str) -> None:
    X, Y = gappy()
    model = fit(name, X, Y)
    for method in methods(model):
        with pytest.raises(ValueError, match="inf first met in feature 0"):
            getattr(model, method)(INFINITE)
    with pytest.raises(ValueError, match="NaN"):
        model.transform(sp.csr_matrix(X))
    if name != "CLVM, robust to entries":
        with pytest.raises(ValueError, match="NaN"):
            model.denoise(X)
    with pytest.warns(ContrastWarning, match="max_iter=3"):
        short = fit(name, X, Y, max_iter=3)
    assert not short.converged_


@EACH_MODEL
def test_new_rows_may_be_lazy_but_fitted_rows_with_gaps_may_not(name: str, tmp_path: Path) -> None:
    X, Y = gappy()
    model = fit(name, X, Y)
    lazy, stored = KINDS["dask"](X, tmp_path), KINDS["HDF5"](X, tmp_path)
    refusal: Any = (ValueError, r"NaN .* takes missing values .* in memory")
    if "robust" in name:
        refusal = (TypeError, "X is not an array, DataFrame or sparse matrix in memory")
    for method in methods(model):
        found = getattr(model, method)
        np.testing.assert_allclose(found(lazy).compute(), found(X), atol=1e-7)
        np.testing.assert_allclose(found(stored), found(X), atol=1e-12)
    for rows in (lazy, stored):
        with pytest.raises(refusal[0], match=refusal[1]):
            fit(name, rows, Y)
    # One dataset may be of any kind if the other one is in memory and has the missing values. A
    # robust fit needs both datasets in memory.
    complete = np.nan_to_num(Y)
    backgrounds = [sp.csr_matrix(complete)]
    if "robust" not in name:
        backgrounds.append(KINDS["dask"](complete, tmp_path))
    expected = fit(name, X, complete).components_
    for background in backgrounds:
        assert subspace_error(fit(name, X, background).components_, expected) < 1e-6
