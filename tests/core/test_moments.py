"""SecondMoments: the one thing that reads data."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from contrast_core import SecondMoments
from contrast_core.rows import rows_of

EPS = np.finfo(np.float64).eps


@pytest.fixture
def rows() -> Any:
    rng = np.random.default_rng(0)
    return rng.normal(size=(500, 7)) @ rng.normal(size=(7, 7)) + rng.normal(size=7) * 10


def assert_same(a: SecondMoments, b: SecondMoments, rtol: float = 1e-12) -> None:
    assert a.n_samples == b.n_samples
    scale = np.abs(b.covariance).max()
    np.testing.assert_allclose(a.covariance, b.covariance, rtol=0, atol=rtol * scale)
    np.testing.assert_allclose(a.mean, b.mean, rtol=1e-12)


def test_it_is_the_covariance_divided_by_n(rows: Any) -> None:
    moments = SecondMoments.from_data(rows)
    assert moments.n_samples == 500
    assert moments.n_features == 7
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0))
    np.testing.assert_allclose(moments.covariance, np.cov(rows.T, bias=True), rtol=1e-12)
    np.testing.assert_array_equal(moments.covariance, moments.covariance.T)
    assert moments.total_variance == pytest.approx(rows.var(axis=0).sum())


def test_many_small_chunks_agree_with_one(rows: Any) -> None:
    whole = SecondMoments.from_data(rows)
    for data in (rows, sp.csr_array(rows)):
        assert_same(SecondMoments.from_data(rows_of(data, elements=7 * 100)), whole)
    assert_same(SecondMoments.from_chunks(np.array_split(rows, 40)), whole)
    assert_same(SecondMoments.from_chunks([rows[:0], sp.csc_matrix(rows[:9]), rows[9:]]), whole)


def test_moments_of_parts_merge(rows: Any) -> None:
    parts = [SecondMoments.from_data(part) for part in (rows[:1], rows[1:30], rows[30:])]
    merged = parts[0].merge(parts[1]).merge(parts[2])
    assert_same(merged, SecondMoments.from_data(rows))
    assert_same(pickle.loads(pickle.dumps(merged)), merged, rtol=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_mean_far_from_zero_costs_no_precision(dtype: Any) -> None:
    """Mean over sd of 10,000: one pass without a shift would lose eight digits."""
    rng = np.random.default_rng(1)
    rows = (rng.normal(size=(4000, 5)) + 1e4).astype(dtype)
    exact = rows.astype(np.longdouble)
    exact = exact - exact.mean(axis=0)
    exact = (exact.T @ exact / len(exact)).astype(np.float64)
    moments = SecondMoments.from_data(rows)
    assert np.abs(moments.covariance - exact).max() < 1e-12
    chunked = SecondMoments.from_chunks(np.array_split(rows, 17))
    assert np.abs(chunked.covariance - exact).max() < 1e-12


def test_drift_between_chunks_costs_no_precision() -> None:
    """The shift is the first chunk's mean; later chunks may lie elsewhere."""
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(3000, 4)) + np.repeat([0.0, 50.0, -80.0], 1000)[:, None]
    moments = SecondMoments.from_chunks(np.array_split(rows, 30))
    np.testing.assert_allclose(moments.covariance, np.cov(rows.T, bias=True), rtol=1e-12)


def test_a_constant_feature_has_no_variance() -> None:
    rng = np.random.default_rng(3)
    rows = np.column_stack([rng.normal(size=1000), np.full(1000, 0.1)])
    assert 0 <= SecondMoments.from_data(rows).variances[1] < (8 * EPS * 0.1) ** 2


def test_sparse_rows_are_never_dense_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = 0
    plain = sp.csr_matrix.toarray

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal largest
        largest = max(largest, self.shape[0])
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(sp.csr_matrix, "toarray", watched)
    rows = sp.random(3000, 20, density=0.1, format="csr", random_state=0)
    SecondMoments.from_data(rows_of(rows, elements=256 * 20))
    assert 0 < largest <= 256


def test_names_travel(rows: Any) -> None:
    frame = pd.DataFrame(rows, columns=list("abcdefg"))
    assert SecondMoments.from_data(frame).feature_names == tuple("abcdefg")
    assert SecondMoments.from_chunks([frame[:9], frame[9:]]).feature_names == tuple("abcdefg")
    assert SecondMoments.from_data(rows, feature_names="abcdefg").feature_names == tuple("abcdefg")
    for chunks in ([frame[:9], frame[9:]], [rows[:9], rows[9:]]):
        renamed = SecondMoments.from_chunks(chunks, feature_names="ABCDEFG")
        assert renamed.feature_names == tuple("ABCDEFG")
    with pytest.raises(ValueError, match="chunk 1 of X has X's features in another order"):
        SecondMoments.from_chunks([frame, frame[list("bacdefg")]], feature_names="ABCDEFG")
    with pytest.raises(ValueError, match="2 feature_names were given for the 7 features of X"):
        SecondMoments.from_data(rows, feature_names="ab")
    with pytest.raises(ValueError, match="another order"):
        SecondMoments.from_data(frame).merge(SecondMoments.from_data(frame[list("bacdefg")]))
    with pytest.raises(ValueError, match=r"chunk 1 of X has X's features in another order"):
        SecondMoments.from_chunks([frame, frame[list("bacdefg")]])


def test_bad_chunks_are_named(rows: Any) -> None:
    bad = rows.copy()
    bad[450, 2] = np.nan
    with pytest.raises(ValueError, match=r"chunk 3 of cells contains NaN or inf .* feature 2"):
        SecondMoments.from_chunks(np.array_split(bad, 4), name="cells")
    with pytest.raises(ValueError, match="chunk 1 of X has 6 features but X has 7"):
        SecondMoments.from_chunks([rows, rows[:, :6]])
    with pytest.raises(ValueError, match="X has no rows"):
        SecondMoments.from_chunks([])
    with pytest.raises(ValueError, match="has 6 features but X has 7"):
        SecondMoments.from_data(rows).merge(SecondMoments.from_data(rows[:, :6]))
