"""Tests of moments of sparse rows, whose well-filled columns are treated as dense."""

from __future__ import annotations

import sys
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from contrast_core import CPCA, SecondMoments
from contrast_core.moments import _accumulator, _kernels, span_moments
from contrast_core.moments._sparse import filled_features, sparse_gram
from contrast_core.rows import rows_of
from tests.core.kinds import watch_toarray


def counts(n_rows: int = 3000, n_features: int = 400) -> Any:
    """Return counts like those of genes: some columns are almost empty, others are full."""
    rng = np.random.default_rng(0)
    part = np.geomspace(2e-3, 1, n_features)[rng.permutation(n_features)]
    values = rng.gamma(2.0, 1.0, size=(n_rows, n_features))
    return sp.csr_array(values * (rng.random((n_rows, n_features)) < part))


def covariance(rows: Any) -> Any:
    return np.cov(rows.toarray().astype(float).T, bias=True)


def assert_close(found: Any, wanted: Any, rtol: float = 1e-12) -> None:
    """Check that a covariance is symmetric and close to another one.

    The error of an entry is measured relative to the standard deviations of its two features.
    """
    scale = np.sqrt(np.maximum(wanted.diagonal(), 0)) + 1e-100
    assert np.abs((found - wanted) / np.outer(scale, scale)).max() < rtol
    np.testing.assert_array_equal(found, found.T)


# Blocks of 20,000 entries give several blocks for each dataset.
blocked = partial(rows_of, elements=20_000)


def use_numba(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make moments use compiled code for any number of entries, or never."""
    if compiled:
        pytest.importorskip("numba")
        monkeypatch.setattr(_kernels, "_WORTH_COMPILING", 0)
    else:
        monkeypatch.setattr(_kernels, "_numba", lambda: None)
        monkeypatch.setattr(_kernels, "ELEMENTS", 1000)  # several blocks of the dense columns


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.csr_matrix, sp.csc_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_moments_of_sparse_rows_agree_with_dense_rows(kind: Any, dtype: Any) -> None:
    rows = kind(counts().astype(dtype))
    assert 0 < filled_features(rows.tocsr(), None, 1).sum() < 400
    moments = SecondMoments.from_data(blocked(rows))
    assert_close(moments.covariance, covariance(rows))
    np.testing.assert_allclose(moments.mean, rows.toarray().mean(axis=0, dtype=float), rtol=1e-12)


@pytest.mark.parametrize("compiled", [True, False])
def test_the_variance_within_one_small_group_is_precise(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use a feature with a large mean that is stored in all rows of a group, and nowhere else."""
    use_numba(compiled, monkeypatch)
    rows, groups = np.zeros((4000, 30)), np.arange(4000) < 100
    rows[::50, 1:] = np.random.default_rng(0).random((80, 29))
    rows[groups, 0] = 1e7 + np.random.default_rng(1).normal(size=100)
    found = SecondMoments.from_data(sp.csr_array(rows), groups=groups).within.covariance
    assert found[0, 0] == pytest.approx(100 / 4000 * rows[groups, 0].var(), rel=1e-8)


@pytest.mark.parametrize("alpha", ["auto", 1.0])
@pytest.mark.parametrize("size", [(90, 600), (400, 60)])
def test_numba_is_not_started_for_little_data(
    alpha: Any, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that numba, whose start takes a second, is not loaded for a fit of milliseconds."""
    monkeypatch.setattr(_kernels, "_entries_so_far", [0])
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    monkeypatch.setattr(_kernels, "_numba", lambda: pytest.fail("numba was started"))
    x, y = (sp.random(*size, density=0.05, format="csr", random_state=i) for i in (0, 1))
    assert CPCA(1, alpha=alpha).fit(x, background=y).components_.shape == (1, size[1])


@pytest.mark.parametrize("width", [1, 7, 8, 9, 17])
def test_compiled_products_with_columns_equal_those_of_scipy(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use widths around the eight columns that the loop takes at a time, and an empty row."""
    rows = counts()
    rows.data[rows.indptr[3] : rows.indptr[4]] = 0
    rows.eliminate_zeros()
    rng = np.random.default_rng(width)
    columns, along_mean = rng.normal(size=(400, width)), rng.normal(size=width)
    use_numba(True, monkeypatch)
    product, sums = _kernels.scatter_product(rows, columns, along_mean)
    scores = rows @ columns - along_mean
    np.testing.assert_allclose(product, rows.T @ scores, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(sums, scores.sum(axis=0), rtol=1e-9)


@pytest.mark.parametrize(("n_features", "compiled"), [(400, False), (400, True), (2252, True)])
def test_a_gram_matrix_has_the_inner_products_of_all_rows(
    n_features: int, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use up to 2001 features that are not filled; the loop takes 1000 of them at a time."""
    use_numba(compiled, monkeypatch)
    rows = counts(70, n_features)
    filled = np.arange(n_features) % 9 == 0
    gram = sparse_gram(rows, filled)
    thin = rows.toarray()[:, ~filled]
    np.testing.assert_allclose(np.triu(gram), np.triu(thin @ thin.T), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("labels", ["neither", "weights", "groups", "both"])
def test_compiled_code_computes_the_same_sums(
    labels: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use several blocks with an empty group, an empty row, unsorted entries and large means."""
    rng = np.random.default_rng(2)
    filling = rng.beta(0.4, 2.0, size=150)
    dense = (rng.random((4100, 150)) < filling) * rng.integers(1, 9, (4100, 150))
    dense[:, 5] = 10_000 + rng.integers(0, 9, len(dense))
    dense[:, 7] = dense[17] = 0
    rows = sp.csr_array(dense.astype(dtype))
    order = np.concatenate([np.arange(a, b)[::-1] for a, b in pairwise(rows.indptr)])
    rows.indices[:], rows.data[:] = rows.indices[order], rows.data[order]
    rows.has_sorted_indices = False
    weights = rng.random(len(dense)) if labels in ("weights", "both") else None
    codes = rng.integers(0, 3, len(dense)) if labels in ("groups", "both") else None
    parts = []
    for compiled in (True, False):
        with monkeypatch.context() as patched:
            use_numba(compiled, patched)
            filled = filled_features(rows, codes, 4, compiled=compiled)
            assert 0 < filled.sum() < 150
            parts.append(_accumulator._sparse_summary(rows, weights, codes, 4, filled=filled))
    each = np.ones(len(dense)) if weights is None else weights
    group = np.zeros(len(dense), int) if codes is None else codes
    centred = dense.astype(float)
    for own in (group == code for code in np.unique(group)):
        centred[own] -= np.average(centred[own], axis=0, weights=each[own])
    wanted = (centred * each[:, None]).T @ centred / each.sum()
    for total, means, within in parts:
        assert total.sum() == pytest.approx(each.sum())
        np.testing.assert_allclose(means, parts[0][1], rtol=1e-14)
        # Only the upper triangle is filled.
        assert_close(np.triu(within) + np.triu(within, 1).T, wanted, rtol=1e-10)


def test_sparse_rows_are_never_made_dense_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = watch_toarray(monkeypatch)
    rows = sp.random(3000, 20, density=0.1, format="csr", random_state=0)
    SecondMoments.from_data(rows_of(rows, elements=256 * 20))
    assert 0 < max(n_rows for n_rows, _ in shapes) <= 256
    shapes.clear()
    x, y = (sp.random(30, 1600, density=0.1, format="csr", random_state=i) for i in (0, 1))
    for solver in ("gram", "lanczos"):
        fitted = CPCA(alpha=1.0, solver=solver, random_state=0)  # type: ignore[arg-type]
        fitted.fit(rows_of(x, elements=1), background=rows_of(y, elements=1))
    assert 0 < max(n_rows * n_columns for n_rows, n_columns in shapes) <= 60 * 256


@pytest.mark.parametrize("full", [0.02, 0.4])
def test_moments_of_wide_sparse_rows_agree_with_dense_rows(full: float) -> None:
    """Compare eigenvalues, with and without features that are treated as dense."""
    rng = np.random.default_rng(2)
    rows = [
        sp.random_array((n, 3000), density=0.02, format="csr", rng=rng).toarray() for n in (60, 50)
    ]
    for part in rows:
        part[:, :40] = 50 + rng.random((len(part), 40)) * (rng.random((len(part), 40)) < full)
        part[:, :20] -= 50
    sparse = span_moments([rows_of(sp.csr_array(part)) for part in rows])
    dense = span_moments([rows_of(part) for part in rows])
    for a, b in zip(sparse, dense, strict=True):
        np.testing.assert_allclose(a.mean, b.mean, rtol=1e-12)
        np.testing.assert_allclose(a.variances, b.variances, rtol=1e-10, atol=1e-15)
        values = [np.linalg.eigvalsh(part.covariance) for part in (a, b)]
        np.testing.assert_allclose(*values, atol=1e-12 * values[0][-1])
