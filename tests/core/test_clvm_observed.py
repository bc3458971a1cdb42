"""CLVM of rows with missing values, and with robust noise: the estimator around the weighted EM."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.metrics import silhouette_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from contrast_core import CLVM, ContrastWarning, SecondMoments, load, save
from contrast_core.datasets import load_mouse_protein
from contrast_core.linalg import subspace_error
from contrast_core.rows import rows_of
from tests.core.test_clvm import generated

ROBUST = [None, "rows", "entries"]


def holes(rows: Any, share: float = 0.2, seed: int = 0) -> Any:
    return np.where(np.random.default_rng(seed).random(rows.shape) < share, np.nan, rows)


def gappy(n: int = 60, m: int = 50, d: int = 8) -> tuple[Any, Any]:
    X, Y, _, _ = generated(n, m, d)
    return holes(X), holes(Y, seed=1)


def fit(X: Any, Y: Any, **options: Any) -> CLVM:
    return CLVM(**({"n_shared": 2, "n_salient": 2, "tol": 1e-6} | options)).fit(X, background=Y)


@pytest.mark.parametrize("robust", ROBUST)
def test_the_likelihood_is_that_of_its_rows_and_never_falls(robust: Any) -> None:
    X, Y = gappy()
    model = fit(X, Y, robust=robust)
    values = model.log_likelihoods_
    assert model.converged_
    assert model.n_iter_ == len(values) - 1 > 5
    assert np.diff(values).min() > -1e-12 * abs(values[-1])
    of_rows = model.score_samples(X).sum() + model.score_samples(Y, dataset="background").sum()
    assert of_rows == pytest.approx(values[-1], rel=1e-8)
    assert model.score(X) == pytest.approx(model.score_samples(X).mean())
    assert not hasattr(model, "foreground_moments_")
    assert (model.contrast_index_ > 0).all()


def test_few_missing_values_change_little() -> None:
    X, Y, _, _ = generated(400, 300, 10)
    complete = fit(X, Y)
    X[3, 4] = np.nan
    model = fit(X, Y)
    assert subspace_error(model.components_, complete.components_) < 0.01
    assert model.noise_variance_ == pytest.approx(complete.noise_variance_, rel=1e-3)
    assert model.fit(complete.foreground_moments_, background=complete.background_moments_)
    assert hasattr(model, "foreground_moments_")


def test_scores_of_entries_are_where_weights_and_means_agree() -> None:
    X, Y = gappy(80, 60, 12)
    X[:5, 3] += 30
    model = fit(X, Y, robust="entries")
    loadings = np.hstack([model.shared_loadings_, model.salient_loadings_])
    noise = model.noise_variance_
    latent = np.hstack([model.transform_shared(X), model.transform(X)])
    for row, z in zip(X, latent, strict=True):
        o = ~np.isnan(row)
        L, left = loadings[o], (row - model.mean_)[o]
        covariance, weights = np.eye(4), np.ones(o.sum())
        for _ in range(500):
            precision = np.linalg.inv(np.eye(4) + (L.T * weights) @ L / noise)
            covariance = precision
            mean = precision @ (L.T * weights) @ left / noise
            around = (left - L @ mean) ** 2 + np.einsum("dk,kl,dl->d", L, covariance, L)
            weights = 5 / (4 + around / noise)
        np.testing.assert_allclose(z, mean, atol=1e-6)
    np.testing.assert_allclose(model.transform(X[7:9]), latent[7:9, 2:], atol=1e-7)
    np.testing.assert_allclose(model.transform(np.full((1, 12), np.nan)), 0)
    dense = np.nan_to_num(X)
    np.testing.assert_allclose(model.transform(sp.csr_array(dense)), model.transform(dense))
    for call in (
        lambda: model.denoise(dense),
        lambda: model.inverse_transform(latent[:, 2:]),
        lambda: model.linear_map_,
        lambda: model.projection_,
    ):
        with pytest.raises(AttributeError, match="weighs every value of a row"):
            call()
    with pytest.raises(ValueError, match="within is given"):
        model.transform(dense, within=np.arange(80) % 2)


@pytest.mark.parametrize("tails", ["entries", "rows"])
def test_outliers_of_its_kind_hardly_move_the_subspace(tails: Any) -> None:
    rng = np.random.default_rng(0)
    S, W = 1.5 * rng.normal(size=(2, 40)), rng.normal(size=(2, 40))
    X = rng.normal(size=(400, 2)) @ S + rng.normal(size=(400, 2)) @ W + rng.normal(size=(400, 40))
    Y = rng.normal(size=(400, 2)) @ S + rng.normal(size=(400, 40))
    clean = CLVM().fit(X, background=Y).components_
    if tails == "rows":
        X[:20] += 15 * rng.normal(size=(20, 40))
    else:
        for rows in (X, Y):
            bad = rng.random(rows.shape) < 0.05
            rows[bad] += 20 * rng.normal(size=bad.sum())
    robust = CLVM(robust=tails).fit(X, background=Y)
    assert subspace_error(robust.components_, clean) <= 0.08
    assert subspace_error(CLVM().fit(X, background=Y).components_, clean) >= 0.25
    if tails == "rows":
        assert robust.denoise(X).shape == X.shape
        np.testing.assert_allclose(
            robust.inverse_transform(robust.transform(X)), robust.denoise(X), atol=1e-6
        )


@pytest.mark.parametrize("robust", ROBUST)
def test_scale_shift_order_constants_and_empty_rows_change_nothing(robust: Any) -> None:
    X, Y = gappy()
    model, rng = fit(X, Y, robust=robust), np.random.default_rng(0)
    shift = 1e5 * np.arange(8.0)
    shifted = fit(X + shift, Y - shift, robust=robust)
    assert subspace_error(shifted.components_, model.components_) < 1e-4
    np.testing.assert_allclose(shifted.mean_, model.mean_ + shift, rtol=1e-9, atol=1e-5)
    for scale in (1e-80, 1e-3, 1e80):
        scaled = fit(scale * X, scale * Y, robust=robust)
        assert subspace_error(scaled.components_, model.components_) < 1e-4
        assert scaled.noise_variance_ / scale**2 == pytest.approx(model.noise_variance_, rel=1e-4)
        n_values = (~np.isnan(X)).sum() + (~np.isnan(Y)).sum()
        expected = model.log_likelihoods_[-1] - n_values * np.log(scale)
        assert scaled.log_likelihoods_[-1] == pytest.approx(expected, rel=1e-6)
    order = fit(rng.permutation(X), rng.permutation(Y), robust=robust)
    assert subspace_error(order.components_, model.components_) < 1e-4
    empty = np.full((7, 8), np.nan)
    more = fit(np.vstack([empty, X]), np.vstack([Y, empty]), robust=robust)
    assert subspace_error(more.components_, model.components_) < 1e-4
    constant = fit(np.c_[X, np.full(60, 7.0)], np.c_[Y, np.full(50, 7.0)], robust=robust)
    assert subspace_error(constant.components_[:, :8], model.components_) < 1e-4
    assert not constant.selected_[8]
    assert constant.mean_[8] == 7.0


@pytest.mark.parametrize("robust", ROBUST)
@pytest.mark.parametrize(("k", "t"), [(0, 2), (2, 0), (1, 1)])
def test_either_kind_of_latent_variables_may_be_absent(robust: Any, k: int, t: int) -> None:
    X, Y = gappy()
    model = fit(X, Y, n_shared=k, n_salient=t, robust=robust, n_init=2, random_state=0)
    assert model.transform(X).shape == (60, t)
    assert model.transform_shared(X).shape == (60, k)
    assert model.transform_shared(Y, dataset="background").shape == (50, k)
    of_rows = model.score_samples(X).sum() + model.score_samples(Y, dataset="background").sum()
    assert of_rows == pytest.approx(model.log_likelihoods_[-1], rel=1e-6)
    assert model.components_.shape == (t, 8)


@pytest.mark.parametrize("robust", ROBUST)
def test_holders_of_missing_values(robust: Any) -> None:
    X, Y = (np.rint(8 * rows) for rows in gappy())
    expected = fit(X, Y, robust=robust)
    scores = expected.transform(X)
    for make in (
        lambda v: v.astype("f4"),
        np.asfortranarray,
        lambda v: np.ma.masked_array(np.nan_to_num(v, nan=3).astype(int), np.isnan(v)),
        lambda v: pd.DataFrame(v, columns=list("abcdefgh")),
        lambda v: np.repeat(v, 2, axis=0)[::2],
    ):
        x, y = make(X), make(Y)
        model = fit(x, y, robust=robust)
        np.testing.assert_allclose(model.transform(x), scores, atol=1e-6)
        np.testing.assert_allclose(model.score_samples(x), expected.score_samples(X), rtol=1e-6)
    x = X.copy()
    x.flags.writeable = False
    fit(x, Y, robust=robust)
    np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize("robust", ROBUST)
def test_clone_pickle_and_file(robust: Any, tmp_path: Any) -> None:
    X, Y = gappy()
    model = fit(X, Y, robust=robust)
    assert clone(model).robust == robust
    save(model, tmp_path / "model")
    for again in (pickle.loads(pickle.dumps(model)), load(tmp_path / "model")):
        np.testing.assert_array_equal(again.transform(X), model.transform(X))
        np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))
        assert again.tails_ == model.tails_


@pytest.mark.parametrize("robust", ROBUST)
def test_samples_have_its_quartiles(robust: Any) -> None:
    X, Y = gappy(200, 150)
    model = fit(X, Y, robust=robust)
    drawn = model.sample_foreground(40_000, add_noise=True, random_state=0)
    assert drawn.shape == (40_000, 8)
    spread = np.subtract(*np.quantile(drawn, [0.75, 0.25], axis=0))
    data = np.subtract(*np.nanquantile(X, [0.75, 0.25], axis=0))
    np.testing.assert_allclose(spread, data, rtol=0.35)


def test_what_does_not_combine_is_refused_by_name() -> None:
    X, Y = gappy()
    full = np.nan_to_num(X), np.nan_to_num(Y)
    labels: Any = {"within": np.arange(60) % 2, "background_within": np.arange(50) % 2}
    for data, robust, what in ((gappy(), None, "missing values"), (full, "rows", "robust='rows'")):
        for fitted, name in [
            (labels, "within"),
            ({"sample_weight": np.ones(60)}, "sample_weight"),
            ({"background_weight": np.ones(50)}, "background_weight"),
        ]:
            with pytest.raises(ValueError, match=f"does not combine {what}.* with {name}: "):
                CLVM(robust=robust).fit(data[0], background=data[1], **fitted)
        with pytest.raises(ValueError, match=r"horseshoe.* needs inference='vi'"):
            CLVM(robust=robust, sparsity="horseshoe").fit(data[0], background=data[1])
        with pytest.raises(ValueError, match="with several backgrounds: stack"):
            CLVM(robust=robust).fit(data[0], background=[data[1], data[1]])
    moments = [SecondMoments.from_data(rows) for rows in full]
    with pytest.raises(TypeError, match="weighs rows, which moments do not hold"):
        CLVM(robust="entries").fit(moments[0], background=moments[1])
    with pytest.raises(ValueError, match="robust='cells'"):
        CLVM(robust="cells").fit(*full[:1], background=full[1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs background"):
        CLVM(robust="rows").fit(X, background=None)  # type: ignore[arg-type]


def test_the_advice_to_stack_backgrounds_says_that_it_is_not_the_default_mixture() -> None:
    X, Y, _, _ = generated(80, 60, 8)
    Z = 3 * generated(80, 20, 8, seed=1)[1]
    advice = "stack them, each about its own mean.*by their numbers of rows, not equally"
    with pytest.raises(ValueError, match=advice):
        fit(np.where(np.arange(8) == X.argmax(), np.nan, X), [Y, Z], robust="rows")
    stacked = fit(X, np.vstack([Y - Y.mean(axis=0), Z - Z.mean(axis=0)]))
    by_rows = CLVM().fit(X, background=[Y, Z], background_mix=[60, 20])
    equal = CLVM().fit(X, background=[Y, Z])
    assert stacked.noise_variance_ == pytest.approx(by_rows.noise_variance_, rel=1e-6)
    assert stacked.noise_variance_ != pytest.approx(equal.noise_variance_, rel=0.05)


@pytest.mark.parametrize("robust", ROBUST)
def test_bad_data_are_refused(robust: Any) -> None:
    X, Y = gappy()
    never = X.copy()
    never[:, 3] = np.nan
    with pytest.raises(ValueError, match=r"X never observes 1 of its features \(3\)"):
        fit(never, Y, robust=robust)
    empty = np.full_like(X, np.nan)
    empty[0] = 1.0
    with pytest.raises(ValueError, match=r"X has 1 row\(s\) with a value"):
        fit(empty, Y, robust=robust)
    infinite = X.copy()
    infinite[0, 0] = np.inf
    with pytest.raises(ValueError, match="inf first met in feature 0"):
        fit(infinite, Y, robust=robust)
    with pytest.raises(ValueError, match="inf first met"):
        fit(X, Y, robust=robust).transform(infinite)
    with pytest.raises(ValueError, match="0 feature\\(s\\) vary"):
        fit(np.where(np.isnan(X), np.nan, 1.0), np.where(np.isnan(Y), np.nan, 1.0), robust=robust)
    with pytest.raises(ValueError, match=r"CLVM takes missing values .* in memory"):
        fit(sp.csr_array(X), Y, robust=robust)
    exact = np.random.default_rng(0).normal(size=(60, 2)) @ np.ones((2, 8)).cumsum(axis=1)
    exact[0, 0] = np.nan
    with pytest.raises(ValueError, match="nothing is left to estimate the noise"):
        fit(exact, exact[::-1][:50], robust=robust)
    with pytest.warns(ContrastWarning, match="max_iter=3"):
        assert not fit(X, Y, robust=robust, max_iter=3).converged_


def test_what_has_no_maximum_is_refused_and_no_end_is_taken_for_one() -> None:
    rng = np.random.default_rng(0)
    counts = np.log1p(rng.poisson(0.15, size=(270, 30)))  # most values of most features agree
    with pytest.raises(ValueError, match="or another `robust`"):
        fit(counts[:150], counts[150:], robust="entries")
    X, Y = gappy()
    X[0, 0] = 1e12
    for robust in ("entries", "rows"):
        found = fit(X, Y, robust=robust)
        assert found.converged_
        assert found.noise_variance_ < 10
    X[0, 0] = 1e8  # where an extrapolated step is beyond double precision
    with pytest.warns(ContrastWarning, match="still rises"):
        assert fit(X, Y, max_iter=300).noise_variance_ < 10


def test_lazy_rows_and_tensors() -> None:
    dask_array = pytest.importorskip("dask.array")
    X, Y = gappy()
    full = np.nan_to_num(X), np.nan_to_num(Y)
    lazy = dask_array.from_array(X, chunks=(20, 8))
    for robust in ROBUST:
        model = fit(X, Y, robust=robust)
        for method in (model.transform, model.transform_shared, model.score_samples):
            np.testing.assert_allclose(method(lazy).compute(), method(X), atol=1e-7)
    with pytest.raises(TypeError, match="X is not an array, DataFrame or sparse matrix in memory"):
        fit(dask_array.from_array(full[0], chunks=(20, 8)), full[1], robust="rows")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with pytest.raises(TypeError, match="X is not an array"):
        fit(torch.tensor(full[0]), torch.tensor(full[1]), robust="entries")
    for call in (model.transform, model.score_samples):
        with pytest.raises(TypeError, match="tensor"):
            call(torch.tensor(full[0]))
    same = fit(sp.csr_array(full[0]), full[1], robust="entries")
    np.testing.assert_allclose(same.components_, fit(*full, robust="entries").components_)


class WithBackground(CLVM):
    """For scikit-learn's own checks, which know no background: shrunken, reversed rows of X."""

    def fit(self, X: Any, y: object = None, *, background: Any = None) -> Any:
        rows = rows_of(X, missing=True)
        return super().fit(X, background=rows.load(check=False)[::-1] * 0.5)

    def fit_transform(self, X: Any, y: object = None) -> Any:
        return self.fit(X).transform(X)


@pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")
@parametrize_with_checks([WithBackground(n_shared=0, n_salient=1, robust="rows")])
def test_scikit_learn_contract(estimator: Any, check: Any) -> None:
    check(estimator)


def test_mouse_with_half_removed_is_as_the_whole() -> None:
    mice = load_mouse_protein(raw=True)
    data = [holes(rows, 0.5) for rows in (mice.foreground, mice.background)]
    X, Y = ((rows - np.nanmean(rows, axis=0)) / np.nanstd(rows, axis=0) for rows in data)
    scores = CLVM(robust="entries").fit(X, background=Y).transform(X)
    assert silhouette_score(scores / scores.std(axis=0), mice.labels) > 0.33
