"""Products of sparse rows: dense where columns are well filled, entry by entry where not."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from contrast_core import CPCA, SecondMoments
from contrast_core.linalg import subspace_error
from contrast_core.moments import (
    _kernels,
    _sparse,
    _sparse_products,
    _sparse_within,
    span_moments,
)
from contrast_core.rows import rows_of


def counts(n_rows: int = 3000, n_features: int = 400, seed: int = 0) -> Any:
    """Rows whose columns are filled from nearly not at all to fully, as counts of genes are."""
    rng = np.random.default_rng(seed)
    part = np.geomspace(2e-3, 1, n_features)[rng.permutation(n_features)]
    values = rng.gamma(2.0, 1.0, size=(n_rows, n_features))
    return sp.csr_array(values * (rng.random((n_rows, n_features)) < part))


def covariance(rows: Any) -> Any:
    centred = rows.toarray().astype(np.float64)
    centred = centred - centred.mean(axis=0)
    return centred.T @ centred / len(centred)


def assert_close(found: Any, wanted: Any, rtol: float = 1e-12) -> None:
    """To `rtol` of what the two features' variances allow, entry by entry."""
    scale = np.sqrt(np.maximum(wanted.diagonal(), 0)) + 1e-100
    assert np.abs((found - wanted) / np.outer(scale, scale)).max() < rtol


# Products of 20,000 entries at a time: several for each dataset.
blocked = partial(rows_of, elements=20_000)


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.csr_matrix, sp.csc_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_moments_are_those_of_dense_rows(kind: Any, dtype: Any) -> None:
    rows = kind(counts().astype(dtype))
    assert 0 < _sparse_within.filled_columns(rows.tocsr()).sum() < 400
    moments = SecondMoments.from_data(blocked(rows))
    assert_close(moments.covariance, covariance(rows))
    np.testing.assert_allclose(moments.mean, rows.toarray().mean(axis=0, dtype=float), rtol=1e-12)
    np.testing.assert_array_equal(moments.covariance, moments.covariance.T)


def use_numba(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use compiled code for however few entries, or not at all."""
    if compiled:
        pytest.importorskip("numba")
        monkeypatch.setattr(_kernels, "_WORTH_COMPILING", 0)
    else:
        monkeypatch.setattr(_kernels, "_numba", lambda: None)


@pytest.mark.parametrize("alpha", ["auto", 1.0])
@pytest.mark.parametrize("size", [(90, 600), (400, 60)])
def test_numba_is_not_started_for_little_data(
    alpha: Any, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its start takes a second, the fit some milliseconds."""
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    monkeypatch.setattr(_kernels, "_numba", lambda: pytest.fail("numba was started"))
    x, y = (sp.random(*size, density=0.05, format="csr", random_state=i) for i in (0, 1))
    assert CPCA(1, alpha=alpha).fit(x, background=y).components_.shape == (1, size[1])


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("part", [0.02, 0.3, 0.6, 1.0])
def test_the_cheaper_way_depends_on_how_full_columns_are(
    part: float, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_numba(compiled, monkeypatch)
    rng = np.random.default_rng(0)
    rows = sp.csr_array(rng.normal(size=(2000, 500)) * (rng.random((2000, 500)) < part))
    filled = _sparse_within.filled_columns(rows)
    assert filled.all() == (part > 0.1)
    assert_close(SecondMoments.from_data(rows).covariance, covariance(rows))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("labels", ["neither", "weights", "groups", "both"])
def test_machine_code_sums_up_the_same(
    labels: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more rows than one block, an empty group and an empty row, unsorted entries, offsets."""
    rng = np.random.default_rng(2)
    filling = rng.beta(0.4, 2.0, size=150)
    dense = (rng.random((4100, 150)) < filling) * rng.integers(1, 9, (4100, 150))
    dense[:, 5] = 10_000 + rng.integers(0, 9, len(dense))
    dense[:, 7] = dense[17] = 0
    rows = sp.csr_array(dense.astype(dtype))
    rows.indices[:], rows.data[:] = unsorted(rows)
    rows.has_sorted_indices = False
    weights = rng.random(len(dense)) if labels in ("weights", "both") else None
    codes = rng.integers(0, 3, len(dense)) if labels in ("groups", "both") else None
    parts = []
    for compiled in (True, False):
        with monkeypatch.context() as patched:
            use_numba(compiled, patched)
            filled = _sparse_within.filled_columns(rows, codes, 4)
            assert 0 < filled.sum() < 150
            parts.append(_sparse_within.sparse_within(rows, filled, weights, codes, 4))
    each = np.ones(len(dense)) if weights is None else weights
    group = np.zeros(len(dense), int) if codes is None else codes
    centred = dense.astype(float)
    for code in range(3):
        of = group == code
        if of.any():
            centred[of] -= np.average(centred[of], axis=0, weights=each[of])
    wanted = (centred * each[:, None]).T @ centred / each.sum()
    for total, means, within in parts:
        assert total.sum() == pytest.approx(each.sum())
        np.testing.assert_allclose(means, parts[0][1], rtol=1e-14)
        np.testing.assert_array_equal(within, within.T)
        assert_close(within, wanted, rtol=1e-10)


def unsorted(rows: Any) -> tuple[Any, Any]:
    """Indices and values with the entries of each row in another order."""
    order = np.concatenate([np.arange(a, b)[::-1] for a, b in pairwise(rows.indptr)])
    return rows.indices[order], rows.data[order]


def test_full_columns_far_from_zero_keep_their_digits() -> None:
    """Also where they fill up only after the first rows."""
    rng = np.random.default_rng(1)
    rows = counts().toarray()
    rows[:, 3] = 1e6 + rng.normal(size=len(rows))
    rows[:, 5] = 0.0
    rows[1500:, 5] = -1e6 + rng.normal(size=1500)
    sparse = sp.csr_array(rows)
    whole = SecondMoments.from_data(blocked(sparse))
    assert_close(whole.covariance, covariance(sparse), rtol=1e-9)
    late = SecondMoments.from_data(blocked(sparse[1500:]))
    assert_close(late.covariance, covariance(sparse[1500:]), rtol=1e-9)


def test_duplicate_entries_add_and_stored_zeros_do_not_count() -> None:
    rows = counts(500, 60).tocoo()
    entries = np.concatenate([rows.data / 2, rows.data / 2, np.zeros(100)])
    where = [np.concatenate([axis, axis, axis[:100]]) for axis in rows.coords]
    coo = sp.coo_array((entries, tuple(where)), shape=rows.shape)
    order = np.argsort(coo.coords[0], kind="stable")
    doubled = sp.csr_array(
        (
            coo.data[order],
            coo.coords[1][order],
            np.searchsorted(coo.coords[0][order], np.arange(501)),
        ),
        shape=rows.shape,
    )
    assert doubled.nnz > rows.nnz
    wanted = covariance(rows)
    assert_close(SecondMoments.from_data(blocked(doubled)).covariance, wanted)
    for part in span_moments([rows_of(doubled), rows_of(doubled)]):
        np.testing.assert_allclose(part.total_variance, np.trace(wanted), rtol=1e-12)


def test_dense_and_sparse_chunks_add_up() -> None:
    rows = counts()
    chunks = [rows[:700], rows[700:900].toarray(), rows[900:900], rows[900:].tocsc()]
    assert_close(SecondMoments.from_chunks(map(blocked, chunks)).covariance, covariance(rows))


def test_chunks_may_be_overwritten() -> None:
    rows = counts()
    parts = [rows[start : start + 1000].copy() for start in range(0, 3000, 1000)]

    def chunks() -> Any:
        for part in parts:
            yield part
            part.data[:] = np.nan

    assert_close(SecondMoments.from_chunks(chunks()).covariance, covariance(rows))


def test_wide_indices_are_read() -> None:
    rows = counts()
    rows.indices, rows.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    assert_close(SecondMoments.from_data(blocked(rows)).covariance, covariance(rows))


@pytest.mark.parametrize("n_threads", [1, 3])
def test_threads_change_nothing(n_threads: int) -> None:
    rows = blocked(counts())
    with threadpool_limits(n_threads, user_api="blas"):
        moments = SecondMoments.from_data(rows)
    with threadpool_limits(2, user_api="blas"):
        np.testing.assert_array_equal(SecondMoments.from_data(rows).covariance, moments.covariance)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_value_is_found_where_it_is(bad: float) -> None:
    rows = counts(300, 50)
    rows.data[np.flatnonzero(rows.indices == 31)[4]] = bad
    for read in (SecondMoments.from_data, lambda rows: SecondMoments.from_chunks([rows])):
        with pytest.raises(ValueError, match="first met in feature 31"):
            read(rows)


def test_an_overflow_is_named() -> None:
    rows = counts(300, 50)
    rows.data *= 1e200
    with pytest.raises(ValueError, match="the variance of X overflows"):
        SecondMoments.from_data(rows)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_the_gram_matrix_of_sparse_rows(
    compiled: bool, n_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With machine code where numba is, and without."""
    use_numba(compiled, monkeypatch)
    monkeypatch.setattr(_kernels, "_CACHED_FEATURES", 64)
    rows = counts(400, 900)
    filled = np.arange(900) % 7 == 0
    with ThreadPoolExecutor(n_threads) as pool:
        gram = _sparse.sparse_gram(rows, filled, pool, n_threads)
    kept = rows.toarray()[:, ~filled]
    np.testing.assert_allclose(np.triu(gram), np.triu(kept @ kept.T), rtol=1e-12)
    assert gram.flags.f_contiguous


@pytest.mark.parametrize("full", [0.02, 0.4])
def test_wide_sparse_moments_are_those_of_dense_rows(full: float) -> None:
    """Gram matrix of rows centred by dataset, with and without features treated as dense."""
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
        assert a.covariance.shape == b.covariance.shape
        values = [np.linalg.eigvalsh(part.covariance) for part in (a, b)]
        np.testing.assert_allclose(*values, atol=1e-12 * values[0][-1])


@pytest.mark.parametrize("n_threads", [0, 1, 2, 5])
@pytest.mark.parametrize("width", [1, 8, 11, 16, 18, 23, 28])
@pytest.mark.parametrize(("index", "values"), [(np.int32, np.float32), (np.int64, np.float64)])
@pytest.mark.parametrize("compiled", [False, True])
def test_products_of_centred_rows(
    monkeypatch: pytest.MonkeyPatch,
    compiled: bool,
    index: Any,
    values: Any,
    width: int,
    n_threads: int,
) -> None:
    use_numba(compiled, monkeypatch)
    rows = counts(40, 300)
    rows = sp.vstack([rows, sp.csr_array((3, rows.shape[1]))], format="csr")  # empty rows
    rows.indices, rows.indptr = rows.indices.astype(index), rows.indptr.astype(index)
    rows.data = rows.data.astype(values)
    rows.data.flags.writeable = False
    rows = _sparse_products.multipliable(rows)
    columns = np.random.default_rng(0).normal(size=(rows.shape[1], width))
    dense = rows.toarray().astype(np.float64)
    mean = dense.mean(axis=0)
    centred = dense - mean
    wanted = centred.T @ (centred @ columns)
    with ThreadPoolExecutor(max(n_threads, 1)) as pool:
        for _ in range(2):
            found = _sparse_products.gram_product(
                rows, 1.0, mean, columns, pool if n_threads else None, n_threads
            )
            np.testing.assert_allclose(found, wanted, atol=1e-12 * np.abs(wanted).max())
    scores = _sparse_products.sparse_scores(rows, columns)
    np.testing.assert_allclose(scores, dense @ columns, atol=1e-12)


@pytest.mark.parametrize("kind", [bool, np.int16, np.float32, np.float64])
@pytest.mark.parametrize("ordered", ["C", "F"])
def test_scores_of_sparse_rows_of_any_kind(
    monkeypatch: pytest.MonkeyPatch, kind: Any, ordered: Any
) -> None:
    use_numba(True, monkeypatch)
    rows = counts(40, 300).astype(kind)
    twice = sp.csr_array((rows.data, rows.indices, rows.indptr), shape=rows.shape)
    twice.indices = np.where(np.arange(twice.nnz) % 7 == 0, twice.indices[0], twice.indices)
    twice.has_canonical_format = False  # unsorted, with duplicates
    for each in (rows, twice, rows[:0]):
        columns = np.asarray(
            np.random.default_rng(0).normal(size=(each.shape[1], 3)), order=ordered
        )
        kept = columns.copy()
        found = _sparse_products.sparse_scores(each, columns)
        np.testing.assert_allclose(found, each.astype(float) @ columns, atol=1e-12)
        assert found.dtype == np.float64 and np.array_equal(columns, kept)


@pytest.mark.parametrize("compiled", [False, True])
def test_one_contrast_of_sparse_rows_is_the_same_on_threads(
    monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    x, y = counts(60, 3000), counts(50, 3000)
    plain = CPCA(alpha=1.0, solver="lanczos", random_state=0).fit(x, background=y)
    used: list[int] = []
    multiply = _sparse_products.gram_product

    def seen(*args: Any) -> Any:
        used.append(args[-1])
        return multiply(*args)

    monkeypatch.setattr(_sparse_products, "_WORTH_SHARING", 0)
    use_numba(compiled, monkeypatch)
    monkeypatch.setattr("contrast_core.moments._products.gram_product", seen)
    with threadpool_limits(2):
        shared = CPCA(alpha=1.0, solver="lanczos", random_state=0).fit(x, background=y)
    assert used.count(2) > 10
    np.testing.assert_allclose(shared.contrastive_eigenvalues_, plain.contrastive_eigenvalues_)
    assert subspace_error(shared.components_, plain.components_) < 1e-10
