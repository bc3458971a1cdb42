"""Data that stay on disk: rows are read in bounded blocks, and everything agrees with memory."""

from __future__ import annotations

import pickle
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_info, threadpool_limits

from contrast_core import CPCA, PCPCA, SecondMoments, contrast_path
from contrast_core.rows import rows_of

N, D = 2000, 12
EPS32 = np.finfo(np.float32).eps


@pytest.fixture(scope="module")
def rows() -> Any:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(N, D)) * np.linspace(1, 3, D) + rng.normal(size=D) * 20
    values[rng.random(values.shape) < 0.3] = 0
    return values.astype(np.float32)


# Blocks of 256 rows, read and multiplied, so that a small dataset has several.
small = partial(rows_of, elements=256 * D)


def _h5py(rows: Any, folder: Path, **options: Any) -> Any:
    return (
        pytest.importorskip("h5py")
        .File(folder / "x.h5", "w")
        .create_dataset("X", data=rows, **options)
    )


def _h5py_chunked(rows: Any, folder: Path) -> Any:
    return _h5py(rows, folder, chunks=(100, 5), compression="gzip")


def _zarr(rows: Any, folder: Path) -> Any:
    zarr = pytest.importorskip("zarr")
    dataset = zarr.create_array(folder / "x.zarr", shape=rows.shape, chunks=(300, 7), dtype="f4")
    dataset[:] = rows
    return dataset


def _memory_map(rows: Any, folder: Path) -> Any:
    np.save(folder / "x.npy", rows)
    return np.load(folder / "x.npy", mmap_mode="r")


def _backed(rows: Any, folder: Path) -> Any:
    anndata = pytest.importorskip("anndata")
    anndata.AnnData(rows).write_h5ad(folder / "x.h5ad")
    return anndata.read_h5ad(folder / "x.h5ad", backed="r").X


def _backed_csr(rows: Any, folder: Path) -> Any:
    return _backed(sp.csr_matrix(rows), folder)


def _backed_csc(rows: Any, folder: Path) -> Any:
    return _backed(sp.csc_matrix(rows), folder)


STORES = [_h5py, _h5py_chunked, _zarr, _memory_map, _backed, _backed_csr, _backed_csc]


@pytest.fixture(params=STORES, ids=lambda store: store.__name__[1:])
def store(request: pytest.FixtureRequest) -> Callable[[Any, Path], Any]:
    chosen: Callable[[Any, Path], Any] = request.param
    return chosen


def assert_same(a: SecondMoments, b: SecondMoments, rtol: float = 1e-12) -> None:
    assert a.n_samples == b.n_samples
    scale = np.abs(b.covariance).max()
    np.testing.assert_allclose(a.covariance, b.covariance, rtol=0, atol=rtol * scale)
    np.testing.assert_allclose(a.mean, b.mean, rtol=max(rtol, 1e-12))


def test_a_stored_dataset_gives_the_moments_of_its_rows(
    rows: Any, store: Any, tmp_path: Path
) -> None:
    dataset = store(rows, tmp_path)
    assert_same(SecondMoments.from_data(small(dataset)), SecondMoments.from_data(small(rows)))
    named = SecondMoments.from_data(dataset, feature_names="abcdefghijkl")
    assert named.feature_names == tuple("abcdefghijkl")


def test_selections_are_read_in_one_pass(rows: Any, store: Any, tmp_path: Path) -> None:
    """Those of one dataset, also where they overlap; others each for itself."""
    masks = [np.arange(N) % 3 == 0, np.arange(N) < 700, np.arange(N) % 3 == 1]
    whole = small(store(rows, tmp_path)).columns(np.arange(D) != 2)
    found = SecondMoments.from_parts([whole.take(mask) for mask in masks])
    apart = SecondMoments.from_parts([small(rows).take(masks[0]), small(rows.copy())])
    for moments, mask in zip(found, masks, strict=True):
        assert_same(moments, SecondMoments.from_data(np.delete(rows[mask], 2, axis=1)))
    assert_same(apart[0], SecondMoments.from_data(rows[masks[0]]))
    assert_same(apart[1], SecondMoments.from_data(rows))
    dataset = Watched(rows, None)
    whole = small(dataset)
    SecondMoments.from_parts([whole.take(mask) for mask in masks])
    assert [start // 256 for start, _ in dataset.read] == [*range(8)]


@pytest.mark.parametrize("estimator", [CPCA(2, alpha=1.5), PCPCA(2, gamma=0.3)], ids=repr)
def test_estimators_take_stored_datasets(
    rows: Any, store: Any, tmp_path: Path, estimator: Any
) -> None:
    background = np.random.default_rng(1).normal(size=(300, D)) * np.linspace(3, 1, D)
    expected = estimator.fit(rows, background=background)
    scores, cleaned = expected.transform(rows), expected.remove_components(rows)
    denoised = expected.denoise(rows)
    dataset = small(store(rows, tmp_path))
    fitted = estimator.fit(dataset, background=background)
    np.testing.assert_allclose(fitted.transform(dataset), scores, atol=1e-10)
    np.testing.assert_allclose(fitted.denoise(dataset), denoised, atol=1e-10)
    np.testing.assert_allclose(fitted.remove_components(dataset), cleaned, atol=1e-10)
    np.testing.assert_allclose(
        estimator.fit_transform(dataset, background=background), scores, atol=1e-10
    )


def test_a_path_from_stored_datasets(rows: Any, tmp_path: Path) -> None:
    path = contrast_path(_h5py(rows, tmp_path), background=rows[:700], alphas=[0, 1, 5])
    expected = contrast_path(rows, background=rows[:700], alphas=[0, 1, 5])
    np.testing.assert_allclose(path.eigenvalues, expected.eigenvalues, atol=1e-10)


class Watched:
    """A dataset that records which rows are asked for."""

    def __init__(self, rows: Any, chunks: tuple[int, int] | None) -> None:
        self.rows, self.chunks = rows, chunks
        self.shape, self.dtype = rows.shape, rows.dtype
        self.read: list[tuple[int, int]] = []

    def __getitem__(self, key: Any) -> Any:
        assert isinstance(key, slice)
        self.read.append((key.start, key.stop))
        return self.rows[key]


@pytest.mark.parametrize(("n_chunk", "step"), [(100, 200), (300, 300), (1, 256)])
def test_reads_are_bounded_and_made_of_whole_storage_chunks(
    rows: Any, n_chunk: int, step: int
) -> None:
    dataset = Watched(rows, (n_chunk, 5))
    SecondMoments.from_data(small(dataset))
    assert dataset.read == [(i, min(i + step, N)) for i in range(0, N, step)]
    dataset.read.clear()
    CPCA(alpha=0).fit(rows, background=rows).transform(small(dataset))
    assert dataset.read == [(i, min(i + step, N)) for i in range(0, N, step)]


def test_memory_is_bounded_by_blocks_not_rows() -> None:
    class Endless:
        """Rows that are made when they are read."""

        shape, dtype, chunks = (400_000, 50), np.dtype("f4"), (1000, 50)

        def __getitem__(self, key: slice) -> Any:
            return np.random.default_rng(key.start).random((key.stop - key.start, 50), "f4")

    dataset = rows_of(Endless(), elements=2**17)  # 80 MB in all, blocks of half a megabyte
    fitted = CPCA(alpha=0).fit(dataset, background=dataset)  # imports what it needs
    tracemalloc.start()
    try:
        CPCA(alpha=0).fit(dataset, background=dataset)
        assert tracemalloc.get_traced_memory()[1] < 16e6
        tracemalloc.reset_peak()
        scores = fitted.transform(dataset)
        assert tracemalloc.get_traced_memory()[1] < scores.nbytes + 8e6
    finally:
        tracemalloc.stop()


def test_reading_can_stop_and_go_on(rows: Any, tmp_path: Path) -> None:
    """What the documentation shows: merge the moments of what was read with those of the rest."""
    dataset = _h5py_chunked(rows, tmp_path)
    saved = tmp_path / "moments.pickle"
    saved.write_bytes(pickle.dumps(SecondMoments.from_data(dataset[:700])))
    moments = pickle.loads(saved.read_bytes())
    while moments.n_samples < len(dataset):
        part = dataset[moments.n_samples : moments.n_samples + 500]
        moments = moments.merge(SecondMoments.from_data(part))
    assert_same(moments, SecondMoments.from_data(rows))


def test_workers_change_nothing_and_the_result_does_not_depend_on_timing(rows: Any) -> None:
    with threadpool_limits(1, user_api="blas"):
        serial = SecondMoments.from_data(small(rows))
    with threadpool_limits(4, user_api="blas"):
        several = [SecondMoments.from_data(small(rows)) for _ in range(5)]
    for moments in several:
        assert_same(moments, serial)
        np.testing.assert_array_equal(moments.covariance, several[0].covariance)


def test_chunks_are_read_in_the_callers_thread_into_a_buffer_of_its_own(rows: Any) -> None:
    """A reader may fill one array again and again, and need not be safe for threads."""

    def reader() -> Iterator[Any]:
        buffer = np.empty((250, D), np.float32)
        for start in range(0, N, 250):
            assert threading.current_thread() is threading.main_thread()
            buffer[:] = rows[start : start + 250]
            yield small(buffer)

    assert_same(SecondMoments.from_chunks(reader()), SecondMoments.from_data(rows))


def test_an_error_while_reading_leaves_no_thread_and_no_limit_behind(rows: Any) -> None:
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


def test_fits_in_several_threads_leave_the_number_of_blas_threads_alone(rows: Any) -> None:
    expected = SecondMoments.from_data(small(rows))
    before = [library["num_threads"] for library in threadpool_info()]
    with ThreadPoolExecutor(4) as executor:
        for moments in executor.map(SecondMoments.from_data, [small(rows)] * 20):
            assert_same(moments, expected)
    assert [library["num_threads"] for library in threadpool_info()] == before


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_single_precision_is_off_by_single_rounding(rows: Any, dtype: Any) -> None:
    """Relative to the covariance, not to the mean, which may be many times larger."""
    far = small((rows * 10 + 1000).astype(dtype))
    single = SecondMoments.from_data(far, precision="single")
    assert single.covariance.dtype == single.mean.dtype == np.float64
    assert_same(single, SecondMoments.from_data(far), rtol=16 * EPS32)
    assert_same(SecondMoments.from_chunks([far], precision="single"), single, rtol=0)


def test_what_single_precision_cannot_hold_is_refused() -> None:
    rows = np.array([[1e25], [-1e25], [2e25]])
    assert SecondMoments.from_data(rows).covariance[0, 0] > 1e49
    with pytest.raises(ValueError, match="variance of X overflows float32"):
        SecondMoments.from_data(rows, precision="single")
    with pytest.raises(ValueError, match="precision='half' is unknown; expected 'double' or"):
        SecondMoments.from_data(rows, precision="half")  # type: ignore[arg-type]


def test_progress_counts_the_blocks(rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int | None, str, int]] = []

    def bar(items: Any, *, total: int | None, desc: str) -> Iterator[Any]:
        count = 0
        for item in items:
            count += 1
            yield item
        seen.append((total, desc, count))

    dataset = Watched(rows, None)
    SecondMoments.from_data(small(dataset), progress=bar)
    SecondMoments.from_data(small(rows, "cells"), progress=bar)
    SecondMoments.from_chunks([rows, rows], progress=bar)
    SecondMoments.from_chunks(iter([rows, rows]), progress=bar)
    assert seen == [(8, "X", 8), (8, "cells", 8), (2, "X", 2), (None, "X", 2)]
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match="progress=True needs tqdm"):
        SecondMoments.from_data(dataset, progress=True)


def test_tqdm_shows_the_progress(rows: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    SecondMoments.from_data(Watched(rows, None), progress=True)
    assert "1/1" in capsys.readouterr().err


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
    with pytest.raises(ValueError, match="X has 11 features, but CPCA is expecting 12 features"):
        fitted.transform(Watched(rows[:, :11], None))
    with pytest.raises(ValueError, match="background has 11 features but X has 12"):
        CPCA().fit(rows, background=Watched(rows[:, :11], None))


def test_datasets_that_hold_no_table_are_refused(rows: Any) -> None:
    with pytest.raises(ValueError, match=r"X has no rows \(n_samples=0\)"):
        SecondMoments.from_data(Watched(rows[:0], None))
    with pytest.raises(ValueError, match=r"X has shape \(2000,\); two dimensions are expected"):
        SecondMoments.from_data(Watched(rows[:, 0], None))
    dataset = Watched(rows, None)
    with pytest.raises(ValueError, match="2 feature_names were given for the 12 features of X"):
        SecondMoments.from_data(dataset, feature_names="ab")
    assert not dataset.read
