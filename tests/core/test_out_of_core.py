"""Tests of data on disk, which are read in bounded blocks with the same results as in memory."""

from __future__ import annotations

import sys
import threading
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from contrast_core import CPCA, PCPCA, SecondMoments, contrast_path
from contrast_core.rows import rows_of
from tests.core.kinds import KINDS, LAZY, STORED, Watched, assert_same_moments
from tests.core.samples import recording

N, D = 2000, 12


@pytest.fixture(scope="module")
def rows() -> Any:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(N, D)) * np.linspace(1, 3, D) + rng.normal(size=D) * 20
    values[rng.random(values.shape) < 0.3] = 0
    return values.astype(np.float32)


# With blocks of 256 rows, a small dataset has several blocks.
small = partial(rows_of, elements=256 * D)


@pytest.mark.parametrize(
    ("estimator", "kind"),
    [
        *((CPCA(2, alpha=1.5), kind) for kind in (*STORED, *LAZY)),
        *((PCPCA(2, gamma=0.3), kind) for kind in ("HDF5", "backed CSR", "dask")),
    ],
    ids=str,
)
def test_estimators_accept_data_outside_memory(
    rows: Any, kind: str, tmp_path: Path, estimator: Any
) -> None:
    background = np.random.default_rng(1).normal(size=(300, D)) * np.linspace(3, 1, D)
    dataset = small(KINDS[kind](rows, tmp_path))
    results = []
    for data in (rows, dataset):
        fitted = estimator.fit(data, background=background)
        results.append([fitted.transform(data), fitted.denoise(data)])
        results[-1].append(fitted.inverse_transform(results[-1][0]))
        results[-1].append(fitted.remove_components(data))
        results[-1].append(estimator.fit_transform(data, background=background))
    for expected, found in zip(*results, strict=True):
        assert hasattr(found, "compute") == (kind in LAZY)  # results of dask arrays are lazy
        assert (found.dtype, found.shape) == (np.float64, expected.shape)
        np.testing.assert_allclose(np.asarray(found), expected, atol=1e-10)
    path = contrast_path(dataset, background=background, alphas=[0, 1, 5])
    expected = contrast_path(rows, background=background, alphas=[0, 1, 5])
    np.testing.assert_allclose(path.eigenvalues, expected.eigenvalues, atol=1e-10)


# A chunk has `n_chunk` rows. A read has `step` rows: as many whole chunks as a block of 256 rows
# holds, or one chunk.
@pytest.mark.parametrize(("n_chunk", "step"), [(100, 200), (300, 300), (1, 256)])
def test_reads_are_bounded_and_made_of_whole_storage_chunks(
    rows: Any, n_chunk: int, step: int
) -> None:
    dataset = Watched(rows, (n_chunk, 5))
    once = [(i, min(i + step, N)) for i in range(0, N, step)]
    list(small(dataset).blocks())
    assert dataset.read == once
    dataset.read.clear()
    # Chunks without a selected row are not read. From the other chunks, only the range from the
    # first to the last selected row is read.
    list(small(dataset).take(np.isin(np.arange(N), [3, 7, 1510, 1511])).blocks())
    assert dataset.read == [(3, 8), (1510, 1512)]
    dataset.read.clear()
    SecondMoments.from_data(small(dataset))
    assert dataset.read == once
    CPCA(alpha=0).fit(rows, background=rows).transform(small(dataset))
    assert dataset.read == 2 * once  # the moments and the scores have each read all rows once
    whole = small(dataset)
    masks = [np.arange(N) % 3 == 0, np.arange(N) < 700, np.arange(N) % 3 == 1]
    dataset.read.clear()
    SecondMoments.from_parts([whole.take(mask) for mask in masks])
    assert [start // step for start, _ in dataset.read] == [*range(len(once))]
    assert sum(stop - start for start, stop in dataset.read) <= N


def test_memory_is_bounded_by_the_size_of_blocks() -> None:
    class Endless:
        """Rows that are generated when they are read."""

        shape, dtype, chunks = (400_000, 50), np.dtype("f4"), (1000, 50)

        def __getitem__(self, key: slice) -> Any:
            return np.random.default_rng(key.start).random((key.stop - key.start, 50), "f4")

    dataset = rows_of(Endless(), elements=2**17)  # 80 MB in total, in blocks of 0.5 MB
    fitted = CPCA(alpha=0).fit(dataset, background=dataset)  # the first fit also imports modules
    tracemalloc.start()
    try:
        CPCA(alpha=0).fit(dataset, background=dataset)
        assert tracemalloc.get_traced_memory()[1] < 16e6
        tracemalloc.reset_peak()
        scores = fitted.transform(dataset)
        assert tracemalloc.get_traced_memory()[1] < scores.nbytes + 8e6
    finally:
        tracemalloc.stop()


def test_a_csc_file_is_loaded_in_blocks_of_limited_size(
    rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = rows_of(KINDS["backed CSC"](rows, tmp_path), elements=N // 4)
    widths, original = [], type(dataset)._read_columns

    def read(self: Any, which: slice) -> Any:
        widths.append(which.stop - which.start)
        return original(self, which)

    monkeypatch.setattr(type(dataset), "_read_columns", read)
    np.testing.assert_array_equal(dataset.load().toarray(), rows)
    assert widths == [4, 4, 4]  # a pass reads 16 * N / 4 values


def test_threads_do_not_change_the_results(rows: Any) -> None:
    """Check that results do not depend on the number of threads, on timing or on other fits."""
    with threadpool_limits(1, user_api="blas"):
        serial = SecondMoments.from_data(small(rows))
    with threadpool_limits(4, user_api="blas"):
        several = [SecondMoments.from_data(small(rows)) for _ in range(5)]
    before = [library["num_threads"] for library in threadpool_info()]
    with ThreadPoolExecutor(4) as executor:
        together = list(executor.map(SecondMoments.from_data, [small(rows)] * 20))
    assert [library["num_threads"] for library in threadpool_info()] == before
    for moments in several + together:
        assert_same_moments(moments, serial)
    for moments in several:
        np.testing.assert_array_equal(moments.covariance, several[0].covariance)


def test_an_error_while_reading_leaves_neither_threads_nor_a_limit_of_threads_behind(
    rows: Any,
) -> None:
    def reader() -> Iterator[Any]:
        yield from (small(rows), rows)
        raise OSError("the disk is gone")

    before, threads = threadpool_info(), threading.active_count()
    with pytest.raises(OSError, match="the disk is gone"):
        SecondMoments.from_chunks(reader())
    assert threading.active_count() == threads
    assert [library["num_threads"] for library in threadpool_info()] == [
        library["num_threads"] for library in before
    ]


def test_progress_counts_the_blocks(
    rows: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Any] = []
    bar = recording(seen)
    SecondMoments.from_data(small(Watched(rows)), progress=bar)
    SecondMoments.from_data(small(rows, "cells"), progress=bar)
    SecondMoments.from_chunks([rows, rows], progress=bar)
    SecondMoments.from_chunks(iter([rows, rows]), progress=bar)
    assert seen == 8 * [("X", 8)] + 8 * [("cells", 8)] + 2 * [("X", 2)] + 2 * [("X", None)]
    pytest.importorskip("tqdm")
    SecondMoments.from_data(Watched(rows), progress=True)
    assert "1/1" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match="progress=True needs tqdm"):
        SecondMoments.from_data(Watched(rows), progress=True)


def test_errors_name_the_rows(rows: Any) -> None:
    bad = rows.copy()
    bad[700, 3] = np.nan
    dataset = Watched(bad, (100, D))
    with pytest.raises(ValueError, match=r"cells\[600:800\] contains NaN or inf .* feature 3"):
        SecondMoments.from_data(small(dataset, "cells"))
    fitted = CPCA(alpha=0).fit(rows, background=rows)
    with pytest.raises(ValueError, match=r"X\[600:800\] contains NaN or inf"):
        fitted.transform(small(dataset))
    with pytest.raises(ValueError, match=r"background\[0:2000\] contains NaN or inf"):
        CPCA().fit(rows, background=dataset)
    with pytest.raises(ValueError, match=r"X has no rows \(n_samples=0\)"):
        SecondMoments.from_data(Watched(rows[:0]))
