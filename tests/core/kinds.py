"""Every kind of data that can be read as rows, and helpers for tests of rows and of moments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from contrast_core import SecondMoments
from contrast_core.rows import rows_of


def _frame(values: Any, folder: Path) -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(values, columns=list("abcdefghijklmnop"[: values.shape[1]]))


def _memory_map(values: Any, folder: Path) -> Any:
    np.save(folder / "x.npy", values)
    return np.load(folder / "x.npy", mmap_mode="r")


def _h5py(values: Any, folder: Path, **options: Any) -> Any:
    file = pytest.importorskip("h5py").File(folder / "x.h5", "w")
    return file.create_dataset("X", data=values, **options)


def _zarr(values: Any, folder: Path) -> Any:
    zarr = pytest.importorskip("zarr")
    return zarr.create_array(folder / "x.zarr", data=values, chunks=(30, 4))


def _backed(kind: Any, values: Any, folder: Path) -> Any:
    anndata = pytest.importorskip("anndata")
    anndata.AnnData(kind(values)).write_h5ad(folder / "x.h5ad")
    return anndata.read_h5ad(folder / "x.h5ad", backed="r").X


def _dask(values: Any, folder: Path, chunks: Any = (40, 4), kind: Any = None) -> Any:
    array = pytest.importorskip("dask.array").from_array(values, chunks=chunks)
    return array if kind is None else array.map_blocks(kind)


def tensor(values: Any) -> Any:
    return pytest.importorskip("torch", reason="torch is not installed").as_tensor(values)


def _duplicated(values: Any, folder: Path) -> Any:
    """Return a CSR matrix with each entry split in two and with unsorted columns."""
    once = sp.csr_matrix(values[:, ::-1])
    columns = values.shape[1] - 1 - once.indices.repeat(2)
    twice = sp.csr_matrix((once.data.repeat(2) / 2, columns, once.indptr * 2), shape=values.shape)
    assert not twice.has_canonical_format
    return twice


def long_indices(values: Any) -> Any:
    """Return a read-only CSR matrix with 64-bit indices."""
    matrix = sp.csr_matrix(values)
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    for part in (matrix.data, matrix.indices, matrix.indptr):
        part.flags.writeable = False
    return matrix


KINDS: dict[str, Callable[[Any, Path], Any]] = {
    "array": lambda values, folder: values,
    "Fortran order": lambda values, folder: np.asfortranarray(values),
    "list": lambda values, folder: values.tolist(),
    "data frame": _frame,
    "memory map": _memory_map,
    "CSR": lambda values, folder: sp.csr_matrix(values),
    "CSC array": lambda values, folder: sp.csc_array(values),
    "COO": lambda values, folder: sp.coo_matrix(values),
    "duplicates": _duplicated,
    "HDF5": _h5py,
    "HDF5 in chunks": partial(_h5py, chunks=(25, 3), compression="gzip"),
    "HDF5 in rows": lambda values, folder: _h5py(values, folder, chunks=(25, values.shape[1])),
    "zarr": _zarr,
    "backed": partial(_backed, np.asarray),
    "backed CSR": partial(_backed, sp.csr_matrix),
    "backed CSC": partial(_backed, sp.csc_matrix),
    "dask": _dask,
    "dask CSR": partial(_dask, chunks=(40, -1), kind=sp.csr_matrix),
    "dask CSC": partial(_dask, chunks=(40, -1), kind=sp.csc_array),
    "tensor": lambda values, folder: tensor(values).requires_grad_(),
    "rows": lambda values, folder: rows_of(values),
}
STORED = [kind for kind in KINDS if kind.startswith(("HDF5", "zarr", "backed", "memory map"))]
LAZY = [kind for kind in KINDS if kind.startswith("dask")]


class Watched:
    """Dataset that is read like a file, and that records which rows are read."""

    def __init__(self, values: Any, chunks: tuple[int, int] | None = None) -> None:
        self.values, self.chunks = values, chunks
        self.shape, self.dtype = values.shape, values.dtype
        self.read: list[tuple[int, int]] = []

    def __getitem__(self, key: Any) -> Any:
        assert isinstance(key, slice)
        self.read.append((key.start, key.stop))
        return self.values[key]


def watch_toarray(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return a list that will hold the shape of each CSR or CSC matrix that is made dense."""
    shapes: list[tuple[int, int]] = []
    for kind in (sp.csr_array, sp.csc_array, sp.csr_matrix, sp.csc_matrix):

        def watched(self: Any, *args: Any, plain: Any = kind.toarray, **kwargs: Any) -> Any:
            shapes.append(self.shape)
            return plain(self, *args, **kwargs)

        monkeypatch.setattr(kind, "toarray", watched)
    return shapes


def dense(block: Any) -> Any:
    """Return the ndarray of a dense or sparse block."""
    return block.toarray() if sp.issparse(block) else block


def assert_same_moments(a: SecondMoments, b: SecondMoments, rtol: float = 1e-12) -> None:
    """Check that counts are equal, and that means and covariances differ by rounding only."""
    assert a.n_samples == b.n_samples
    scale = np.abs(b.covariance).max()
    np.testing.assert_allclose(a.covariance, b.covariance, rtol=0, atol=rtol * scale)
    np.testing.assert_array_equal(a.covariance, a.covariance.T)
    np.testing.assert_allclose(a.mean, b.mean, rtol=max(rtol, 1e-11))
