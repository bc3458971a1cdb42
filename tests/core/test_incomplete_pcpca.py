"""PCPCA of rows with missing values: the likelihood, its maximum, and what is refused."""

from __future__ import annotations

import pickle
import tracemalloc
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from contrast_core import PCPCA, ContrastByLabel, ContrastWarning, SecondMoments, load, save
from contrast_core.linalg import subspace_error
from contrast_core.probabilistic import _incomplete, _observed_likelihood
from contrast_core.probabilistic._incomplete import fit_incomplete, incomplete_rows
from contrast_core.rows import rows_of
from tests.core.test_contract import planted
from tests.core.test_odd_inputs import content

SAME = 1e-6  # of subspaces: two ways to one maximum end within the same small gradient


def with_gaps(values: Any, share: float, seed: int) -> Any:
    gone = np.random.default_rng(seed).random(values.shape) < share
    return np.where(gone, np.nan, values)


def gappy(
    share: float = 0.2, n: int = 160, m: int = 120, d: int = 12, seed: int = 0
) -> tuple[Any, Any]:
    X, Y = planted(n, m, d, seed)
    return with_gaps(X, share, seed + 1), with_gaps(Y, share, seed + 2)


def fit(X: Any, Y: Any, d: int = 2, gamma: Any = 0.1, **options: Any) -> PCPCA:
    return PCPCA(d, gamma=gamma).fit(X, background=Y, **options)


def prepared(X: Any, Y: Any, d: int = 2) -> Any:
    parts = [rows_of(X, "X", missing=True), rows_of(Y, "background", missing=True)]
    return incomplete_rows(parts, None, d)


def covariance(model: PCPCA) -> Any:
    return model.loadings_ @ model.loadings_.T + model.noise_variance_ * np.eye(
        len(model.loadings_)
    )


def density(rows: Any, mean: Any, covariance: Any) -> Any:
    """Log-density of what is observed of each row, one by one with dense matrices."""
    found = []
    for row in rows:
        o = ~np.isnan(row)
        normal = multivariate_normal(mean[o], covariance[np.ix_(o, o)]) if o.any() else None
        found.append(normal.logpdf(row[o]) if normal is not None else 0.0)
    return np.array(found)


def objective(X: Any, Y: Any, gamma: float, covariance: Any) -> float:
    x, y = (density(rows, np.nanmean(rows, axis=0), covariance).mean() for rows in (X, Y))
    return float(x - gamma * y)


def same_model(one: PCPCA, other: PCPCA, tolerance: float = SAME) -> None:
    assert subspace_error(one.components_, other.components_) < tolerance
    assert one.noise_variance_ == pytest.approx(other.noise_variance_, rel=tolerance)
    assert one.gamma_ == pytest.approx(other.gamma_, rel=1e-4)
    assert one.objective_ == pytest.approx(other.objective_, rel=1e-9)


@pytest.mark.parametrize("elements", [2**22, 64])
def test_likelihood_is_that_of_dense_matrices(
    elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_observed_likelihood, "ELEMENTS", elements)  # spans of 5 rows
    X, Y = gappy(0.4)
    X[:40] = np.where(np.arange(12) % 3, X[:40], np.nan)  # one pattern
    X[:40, 1] = 1.0
    data = prepared(X, Y, 3)
    rng = np.random.default_rng(0)
    loadings, log_noise, gamma = rng.normal(size=(12, 3)), 0.3, 0.7
    found = data.rows.likelihood(loadings, log_noise, gamma)
    model = loadings @ loadings.T + np.exp(log_noise) * np.eye(12)
    scaled = [(rows - np.nanmean(rows, axis=0)) / data.scale for rows in (X, Y)]
    x, y = (density(rows, np.zeros(12), model).mean() for rows in scaled)
    assert found.value == pytest.approx(x - gamma * y, rel=1e-12)
    assert sum(len(block.masks) for block in data.rows.blocks) < len(X) + len(Y)
    assert len(data.rows.blocks) == (1 if elements > 64 else 56)


@pytest.mark.parametrize("elements", [2**22, 64])
def test_gradients_are_those_of_finite_differences(
    elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_observed_likelihood, "ELEMENTS", elements)
    rows = prepared(*gappy(0.4), 3).rows
    rng = np.random.default_rng(0)
    loadings, step = rng.normal(size=(12, 3)), 1e-6

    def moved(at: tuple[int, int], by: float) -> Any:
        other = loadings.copy()
        other[at] += by
        return other

    likelihood, ratio = rows.likelihood(loadings, 0.3, 0.7), rows.residual_ratio(loadings, 0.1)
    for at in [(0, 0), (3, 2), (11, 1)]:
        ahead, behind = moved(at, step), moved(at, -step)
        values = [rows.likelihood(W, 0.3, 0.7).value for W in (ahead, behind)]
        assert likelihood.by_loadings[at] == pytest.approx(-np.diff(values)[0] / (2 * step), 1e-6)
        values = [rows.residual_ratio(W, 0.1).value for W in (ahead, behind)]
        assert ratio.by_loadings[at] == pytest.approx(-np.diff(values)[0] / (2 * step), 1e-6)
    values = [rows.likelihood(loadings, 0.3 + by, 0.7).value for by in (step, -step)]
    assert likelihood.by_log_noise == pytest.approx(-np.diff(values)[0] / (2 * step), 1e-6)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.95])
def test_of_complete_data_it_is_the_closed_form(share: float) -> None:
    X, Y = planted(150, 110, 9)
    closed = PCPCA().fit(X, background=Y)
    closed = closed.at(share * closed.gamma_max_)
    data = prepared(X, Y)
    found = fit_incomplete(data, closed.gamma_, 2, 1000)
    assert found.objective == pytest.approx(closed.objective_, abs=1e-8)
    assert found.valid.end == pytest.approx(closed.gamma_max_, rel=1e-5)
    assert subspace_error(found.components, closed.components_) < 1e-5
    assert found.noise_variance == pytest.approx(closed.noise_variance_, rel=1e-6)
    np.testing.assert_allclose(found.foreground_variance, closed.foreground_variance_, rtol=1e-5)
    np.testing.assert_allclose(found.background_variance, closed.background_variance_, rtol=1e-5)
    np.testing.assert_allclose(found.start_objectives, closed.objective_, atol=1e-8)
    assert closed.objective_ == pytest.approx(objective(X, Y, closed.gamma_, covariance(closed)))
    assert closed.n_iter_ == 1
    assert closed.converged_


def test_the_fit_is_a_maximum_that_every_start_finds() -> None:
    X, Y = gappy(0.3)
    model = fit(X, Y)
    assert model.converged_
    assert 0 < model.n_iter_ < 200
    assert model.objective_ == pytest.approx(objective(X, Y, 0.1, covariance(model)), rel=1e-10)
    np.testing.assert_allclose(model.start_objectives_, model.objective_, rtol=1e-9)
    assert model.start_objectives_.shape == (6,)
    rng = np.random.default_rng(0)
    for _ in range(10):
        W = model.loadings_ + 0.01 * rng.normal(size=(12, 2))
        noise = model.noise_variance_ * (1 + 0.02 * rng.normal())
        assert objective(X, Y, 0.1, W @ W.T + noise * np.eye(12)) < model.objective_
    # Fisher's identity: expected variances satisfy what those of complete data do.
    np.testing.assert_allclose(
        model.foreground_variance_ - model.gamma_ * model.background_variance_,
        (1 - model.gamma_) * ((model.loadings_**2).sum(axis=0) + model.noise_variance_),
        rtol=1e-5,
    )


def test_few_missing_values_change_little_and_the_plant_is_found() -> None:
    X, Y = planted(1600, 1200)
    complete = PCPCA().fit(X, background=Y)
    X[3, 4] = np.nan
    model = PCPCA().fit(X, background=Y)
    assert model.gamma_ == pytest.approx(complete.gamma_, rel=2e-3)
    assert subspace_error(model.components_, complete.components_) < 0.02
    planted_axis = np.linalg.qr(np.random.default_rng(0).normal(size=(12, 12)))[0][:1]
    half = fit(with_gaps(X, 0.5, 1), with_gaps(Y, 0.5, 2), d=1, gamma=0.85)
    assert subspace_error(half.components_, planted_axis) < 0.2


def test_order_scale_shift_and_empty_rows_change_nothing() -> None:
    X, Y = gappy(0.3)
    model, rng = fit(X, Y), np.random.default_rng(0)
    same_model(fit(rng.permutation(X), rng.permutation(Y)), model)
    empty = np.full((7, 12), np.nan)
    same_model(fit(np.vstack([empty, X]), np.vstack([Y, empty])), model)
    same_model(fit(np.vstack([X, X]), np.vstack([Y, Y, Y])), model)
    shift = 1e6 * np.arange(12.0)
    shifted = fit(X + shift, Y - shift)
    np.testing.assert_allclose(shifted.mean_, model.mean_ + shift, rtol=1e-12)
    assert subspace_error(shifted.components_, model.components_) < SAME
    order = rng.permutation(12)
    assert (
        subspace_error(
            fit(X[:, order], Y[:, order]).components_[:, order.argsort()], model.components_
        )
        < SAME
    )
    for scale in (1e-100, 1e-3, 1e100):
        scaled = fit(scale * X, scale * Y)
        assert subspace_error(scaled.components_, model.components_) < SAME
        np.testing.assert_allclose(scaled.noise_variance_ / scale**2, model.noise_variance_, 1e-6)
        assert scaled.gamma_max_ == pytest.approx(model.gamma_max_, rel=1e-4)
        assert scaled.score(scale * X) == pytest.approx(
            model.score(X) - np.log(scale) * np.mean((~np.isnan(X)).sum(axis=1)), rel=1e-9
        )


def test_weights_count_rows_and_backgrounds_are_mixed() -> None:
    X, Y = gappy(0.3)
    times_x, times_y = np.arange(160) % 3, np.arange(120) % 2 + 1
    repeated = fit(np.repeat(X, times_x, axis=0), np.repeat(Y, times_y, axis=0))
    weighted = fit(X, Y, sample_weight=times_x, background_weight=times_y)
    same_model(weighted, repeated)
    both = fit(X, [Y[:50], Y[50:]], background_mix=[50, 70])
    x, y = X, [Y[:50] - np.nanmean(Y[:50], axis=0), Y[50:] - np.nanmean(Y[50:], axis=0)]
    same_model(both, fit(x, np.vstack(y)))
    means = [np.nanmean(part, axis=0) for part in (Y[:50], Y[50:])]
    np.testing.assert_allclose(both.background_mean_, (50 * means[0] + 70 * means[1]) / 120)
    np.testing.assert_allclose(both.mean_, np.nanmean(X, axis=0))


def test_rows_with_gaps_after_a_complete_fit() -> None:
    X, Y = planted()
    model = fit(X, Y)
    gaps = with_gaps(X, 0.3, 0)
    expected = density(gaps, model.mean_, covariance(model))
    np.testing.assert_allclose(model.score_samples(gaps), expected, rtol=1e-9)
    complete = ~np.isnan(gaps).any(axis=1)
    np.testing.assert_allclose(model.transform(gaps)[complete], model.transform(X)[complete])
    errors = [
        np.abs(filled - X)[np.isnan(gaps)].mean() for filled in (model.impute(gaps), model.mean_)
    ]
    assert errors[0] < 0.7 * errors[1]


HOLDERS: dict[str, Any] = {
    "float32": lambda v: v.astype("f4"),
    "float16": lambda v: v.astype("f2"),
    "longdouble": lambda v: v.astype("longdouble"),
    "Fortran order": np.asfortranarray,
    "view": lambda v: np.repeat(np.repeat(v, 2, axis=0), 2, axis=1)[::2, ::2],
    "masked": lambda v: np.ma.masked_array(np.nan_to_num(v, nan=3), np.isnan(v)),
    "masked integers": lambda v: np.ma.masked_array(np.nan_to_num(v).astype(int), np.isnan(v)),
    "frame": lambda v: pd.DataFrame(v, columns=list("abcdefghijkl")),
    "frame with NA": lambda v: pd.DataFrame(v).astype("Int64"),
    "None among objects": lambda v: np.where(np.isnan(v), None, v.astype(object)),
    "list": lambda v: v.tolist(),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_missing_values_of_any_kind_are_the_same(holder: str) -> None:
    X, Y = (np.rint(8 * values) for values in gappy(0.3))
    expected = fit(X, Y)
    x, y = HOLDERS[holder](X), HOLDERS[holder](Y)
    before = content(x)
    model = fit(x, y)
    assert content(x) == before
    np.testing.assert_array_equal(model.components_, expected.components_)
    for method in ("transform", "score_samples", "impute"):
        found = getattr(model, method)(x)
        np.testing.assert_allclose(found, getattr(expected, method)(X), rtol=1e-9, atol=1e-9)
    if holder == "frame":
        assert list(model.feature_names_in_) == list("abcdefghijkl")
        with pytest.raises(ValueError, match="another order"):
            fit(x, y[list("bacdefghijkl")])
        named = model.set_output(transform="pandas").transform(x)
        assert list(named.columns) == ["pcpca0", "pcpca1"]


def test_read_only_rows_are_left_as_they_are() -> None:
    X, Y = gappy()
    X.flags.writeable = Y.flags.writeable = False
    model = fit(X, Y)
    model.impute(X)[:] = 0
    model.impute(X, n_draws=2, random_state=0)


def test_where_missing_values_cannot_be_it_is_said() -> None:
    dask_array = pytest.importorskip("dask.array")
    X, Y = gappy()
    complete = planted()
    model = fit(*complete)
    for x in (sp.csr_matrix(X), dask_array.from_array(X, chunks=(40, 12))):
        with pytest.raises(ValueError, match=r"PCPCA takes missing values .* in memory"):
            fit(x, Y)
    with pytest.raises(ValueError, match=r"background contains NaN or inf .* in memory"):
        fit(complete[0], dask_array.from_array(Y, chunks=(40, 12)))
    # One dataset may be of any kind where the other one, in memory, has the gaps.
    same_model(fit(X, sp.csr_matrix(complete[1])), fit(X, complete[1]))
    same_model(fit(X, dask_array.from_array(complete[1], chunks=(40, 12))), fit(X, complete[1]))
    lazy = dask_array.from_array(X, chunks=(40, 12))
    for method in (model.transform, model.score_samples, model.impute):
        np.testing.assert_allclose(method(lazy).compute(), method(X))
    with pytest.raises(TypeError, match="X is sparse, and what it does not store is zero"):
        model.impute(sp.csr_matrix(complete[0]))
    with pytest.raises(ValueError, match="NaN"):
        model.transform(sp.csr_matrix(X))
    with pytest.raises(ValueError, match="NaN"):
        model.denoise(X)
    X[0, 0] = np.inf
    with pytest.raises(ValueError, match=r"inf first met in feature 0\); finite values, or NaN"):
        fit(X, Y)
    with pytest.raises(ValueError, match=r"inf first met in feature 0"):
        model.impute(X)


def test_stored_rows_with_gaps_are_read_in_blocks_but_not_fitted(tmp_path: Any) -> None:
    h5py = pytest.importorskip("h5py")
    X, Y = gappy()
    model = fit(X, Y)
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        stored = file.create_dataset("X", data=X)
        for method in (model.transform, model.score_samples, model.impute):
            np.testing.assert_array_equal(method(stored), method(X))
        with pytest.raises(ValueError, match=r"NaN .* PCPCA takes missing values .* in memory"):
            fit(stored, Y)


@pytest.mark.slow
def test_tensors_hold_no_missing_values() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    X, Y = gappy()
    with pytest.raises(ValueError, match=r"NaN first met .* PCPCA takes missing values"):
        fit(torch.tensor(X), torch.tensor(Y))
    model = fit(*planted())
    with pytest.raises(ValueError, match="NaN"):
        model.transform(torch.tensor(X))
    with pytest.raises(TypeError, match="X is a tensor"):
        model.impute(torch.tensor(X))


GAPPY = gappy()
NEVER = np.where(np.arange(12) == 3, np.nan, GAPPY[0])
FRAMES = [pd.DataFrame(rows, columns=[f"protein {i}" for i in range(12)]) for rows in GAPPY]
FRAMES[1][["protein 1", "protein 5"]] = np.nan
LABELS = {"within": np.arange(160) % 4, "background_within": np.arange(120) % 4}


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ((NEVER, GAPPY[1]), {}, r"X never observes 1 of its features \(3\)"),
        (FRAMES, {}, r"2 of its features \('protein 1', 'protein 5'\)"),
        (
            (np.where(np.arange(160)[:, None] > 0, np.nan, np.ones(12)), GAPPY[1]),
            {},
            r"X has 1 row\(s\) with a value that is not missing",
        ),
        (GAPPY, LABELS, "X has missing values, with which within="),
        (GAPPY, {"gamma": -0.1}, "is out of range"),
        (GAPPY, {"gamma": np.nan}, "is out of range"),
        ((np.where(np.isnan(GAPPY[0]), np.nan, 1.0), GAPPY[1]), {}, "no more than n_components=2"),
        (GAPPY, {"d": 12}, "leaves no direction for the noise"),
    ],
)
def test_what_cannot_be_fitted_is_refused(data: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(*data, **options)


def test_the_limits_of_parameters_are_named() -> None:
    X, Y = GAPPY
    end = fit(X, 3 * Y).gamma_max_
    with pytest.raises(ValueError, match=rf"below {end:.9g} .*where the noise variance is pos"):
        fit(X, 3 * Y, gamma=1.001 * end)
    with pytest.raises(ValueError, match="max_iter=0 is out of range"):
        PCPCA(max_iter=0).fit(X, background=Y)


def test_a_feature_observed_less_in_the_foreground_ends_the_range() -> None:
    X, Y = planted()
    X[16:, 5] = np.nan  # observed in a tenth of the foreground's rows
    model = PCPCA().fit(X, background=Y)
    assert model.gamma_max_ == pytest.approx(0.1)
    with pytest.raises(ValueError, match=r"below 0\.1 .*feature 5 is observed in 0\.1 of the fore"):
        fit(X, Y, gamma=0.11)
    assert fit(X, Y, gamma=0.09).converged_
    X, Y = planted()
    Y[16:, 5] = np.nan  # the other way round it ends nothing
    with pytest.raises(ValueError, match=r"below 1 \(gamma_max_\), where the weights .* cancel"):
        fit(10 * X, Y, gamma=1.1)


def test_a_likelihood_without_a_maximum_is_refused() -> None:
    # Each of two features alone is observed as often in both datasets, one or the other twice as
    # often in the background: nothing tells before the fit.
    rng = np.random.default_rng(0)
    X, Y = 3 * rng.normal(size=(60, 8)), rng.normal(size=(60, 8))
    X[30:, :2] = np.nan
    Y[30:, 0] = np.nan
    Y[:30, 1] = np.nan
    assert fit(X, Y, gamma=0.4).converged_
    with pytest.raises(ValueError, match="no maximum, for the loadings grow for ever"):
        fit(X, Y, gamma=0.9)


@pytest.mark.slow
def test_noise_that_runs_to_zero_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = gappy(0.6)
    Y *= 3
    end = fit(X, Y, gamma=0.05).gamma_max_
    # What a search that misses the least ratio lets through, the fit itself refuses.
    monkeypatch.setattr(_incomplete, "_least_ratio", lambda rows, start, d: 3 * end)
    with pytest.raises(ValueError, match="no maximum, for the noise variance runs to zero"):
        fit(X, Y, gamma=1.3 * end)


def test_the_automatic_contrast_is_a_stated_share_of_the_range() -> None:
    for share in (0.1, 0.3, 0.6):
        X, Y = gappy(share, n=300, m=300)
        model = PCPCA().fit(X, background=Y)
        seen = [~np.isnan(rows) for rows in (X, Y)]
        observed = np.mean([each[each.any(axis=1)].mean() for each in seen])
        assert model.gamma_ == pytest.approx(0.9 * observed * model.gamma_max_)
        assert model.converged_
        assert model.strength_ == model.gamma_


def test_without_convergence_there_is_a_warning() -> None:
    X, Y = gappy()
    with pytest.warns(ContrastWarning, match="did not converge in 3 iterations.*max_iter=3"):
        model = PCPCA(gamma=0.1, max_iter=3).fit(X, background=Y)
    assert not model.converged_
    assert model.n_iter_ == 3


def test_a_second_fit_forgets_the_first() -> None:
    X, Y = gappy()
    complete = planted()
    model = fit(*complete, within=np.arange(160) % 4, background_within=np.arange(120) % 4)
    model.fit(X, background=Y)
    assert not hasattr(model, "foreground_moments_")
    assert not hasattr(model, "within_labels_")
    model.fit(complete[0], background=complete[1])
    assert not hasattr(model, "start_objectives_")
    assert model.at(0.0).gamma_ == 0
    model.fit(X, background=Y)
    with pytest.raises(ValueError, match="out of range"):
        model.set_params(gamma=0.99).fit(X, background=Y)
    assert model.gamma_ == 0.1


def test_models_of_incomplete_data_are_copied_and_saved(tmp_path: Any) -> None:
    X, Y = gappy()
    model = fit(X, Y)
    save(model, tmp_path / "model")
    for other in (model, pickle.loads(pickle.dumps(model)), load(tmp_path / "model")):
        np.testing.assert_array_equal(other.impute(X), model.impute(X))
        assert other.objective_ == model.objective_
        for call in (lambda other=other: other.at(0.0), other.path):
            with pytest.raises(ValueError, match="fitted to incomplete data"):
                call()
        with pytest.raises(AttributeError, match="background_variances_ needs the moments"):
            _ = other.background_variances_
    assert clone(model).get_params() == {"n_components": 2, "gamma": 0.1, "max_iter": 1000}


def test_pipelines_and_labels_let_missing_values_through() -> None:
    import sklearn

    X, Y = gappy()
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), PCPCA(gamma=0.1), transform_input=["background"])
        scores = pipeline.fit_transform(X, background=Y)
    mean, sd = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
    expected = fit((X - mean) / sd, (Y - mean) / sd).transform((X - mean) / sd)
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    both = np.vstack([X, Y])
    labelled = ContrastByLabel(PCPCA(gamma=0.1)).fit(both, np.repeat([1, 0], [160, 120]))
    np.testing.assert_array_equal(labelled.transform(X), fit(X, Y).transform(X))
    np.testing.assert_array_equal(
        PCPCA(gamma=0.1).fit_transform(X, background=Y), fit(X, Y).transform(X)
    )


def test_moments_are_complete_and_other_methods_say_so() -> None:
    X, _ = gappy()
    with pytest.raises(ValueError, match="NaN"):
        SecondMoments.from_data(X)
    masked = np.ma.masked_invalid(X)
    with pytest.raises(TypeError, match="PCPCA takes them for missing"):
        SecondMoments.from_data(masked)


@pytest.mark.slow
def test_wide_rows_need_no_matrix_of_features() -> None:
    rng = np.random.default_rng(0)
    n_features = 4000
    signal = rng.normal(size=(40, 1)) * 6 @ rng.normal(size=(1, n_features)) / 60
    X = with_gaps(signal + 0.1 * rng.normal(size=(40, n_features)), 0.2, 1)
    Y = with_gaps(0.1 * rng.normal(size=(30, n_features)), 0.2, 2)
    tracemalloc.start()
    model = PCPCA(1, gamma=0.2).fit(X, background=Y)
    filled = model.impute(X, return_std=True)[0]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n_features**2 * 8 / 4
    gone = np.isnan(X)
    assert np.corrcoef(filled[gone], signal[gone])[0, 1] > 0.9


def test_starts_differ_enough_to_find_the_better_of_two_maxima() -> None:
    """The closed forms and starts with much noise all reach the lower one."""
    rng = np.random.default_rng(17)
    X, Y = rng.normal(size=(15, 3)) @ rng.normal(size=(3, 3)), rng.normal(size=(15, 3))
    for rows in (X, Y):
        rows[rng.random(rows.shape) < 0.4] = np.nan
    model = PCPCA().fit(X, background=Y)
    assert model.objective_ > np.median(model.start_objectives_) + 0.4
    # Data this small have several maxima: there are more starts than the six of larger data.
    assert model.start_objectives_.shape == (34,)
