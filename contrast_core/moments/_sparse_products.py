"""Products of sparse centred rows with a few columns, divided among threads.

Problem: centring a sparse matrix X makes it dense. Its covariance can be multiplied without that,
because ``(X - 1 m)^T (X - 1 m) V`` is ``X^T (X V - 1 (m V))`` less an outer product of the mean m
with the sums of the scores: the mean is subtracted from scores and sums instead of from the rows.
Digits are lost only for a feature whose mean is larger than its standard deviation, which is rare
in sparse data.
"""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

import numpy as np
from scipy.linalg.blas import dger

from contrast_core._validation import FloatArray
from contrast_core.moments._kernels import WIDTH, add_gram_products, compiled_pays, row_scores_of
from contrast_core.moments._sparse import as_float64

_LINE = 8  # values in a line of the processor's cache
_WORTH_SHARING = 2**18  # entries: fewer are multiplied in a millisecond


def sharing_pays(n_entries: int) -> bool:
    """Return whether several threads multiply this many entries faster than one thread."""
    return n_entries >= _WORTH_SHARING


def multipliable(rows: Any) -> Any:
    """Return sparse rows with values of a type that no product has to convert."""
    exact = rows.dtype in (np.float32, np.float64) and compiled_pays(rows.nnz)
    return rows if exact else as_float64(rows)


def gram_product(
    rows: Any,
    weight: float,
    mean: FloatArray,
    columns: FloatArray,
    pool: Executor | None,
    n_threads: int,
) -> FloatArray:
    """Return ``weight * Z.T @ (Z @ columns)`` of centred rows Z.

    Compiled code takes one pass over the rows; scipy is the fallback.

    Parameters
    ----------
    rows : CSR matrix of shape (n, n_features)
        The rows before they are centred.
    weight : float
        Factor of the product.
    mean : ndarray of shape (n_features,)
        The vector to subtract from every row.
    columns : ndarray of shape (n_features, b)
        The columns to multiply the centred rows with.
    pool : Executor or None
        Threads that share the rows. Which rows a thread takes depends only on `n_threads`.
    n_threads : int
        Number of threads.
    """
    n_shares = max(n_threads, 1)
    ends = _ends(rows, n_shares)
    padded = _padded(columns) if compiled_pays(rows.nnz) else columns
    along_mean = mean @ padded

    def product_of(share: int) -> tuple[FloatArray, FloatArray]:
        """Return one thread's product, before the mean is subtracted, and its sums of scores."""
        product, total = _zeros(*padded.shape), np.zeros(padded.shape[1])
        part = ends[share : share + 2]
        add_gram_products(rows, weight, padded, along_mean, product, total, *part)
        return product, total

    (product, total), *others = (map if pool is None else pool.map)(product_of, range(n_shares))
    for other, other_total in others:
        product += other
        total += other_total
    # The outer product of mean and total is subtracted in place.
    centred = dger(-1.0, total, mean, a=product.T, overwrite_a=True).T
    return np.asarray(centred[:, : columns.shape[1]])


def sparse_scores(rows: Any, columns: FloatArray) -> FloatArray:
    """Return ``rows @ columns`` of a CSR matrix."""
    if not compiled_pays(rows.nnz):
        return np.asarray(rows @ columns)
    return row_scores_of(rows, _padded(columns))[:, : columns.shape[1]]


def _ends(rows: Any, n_shares: int) -> list[int]:
    """Return the first row of each share, and the end of the last; shares have equal entries."""
    if n_shares == 1:
        return [0, rows.shape[0]]
    shares = np.linspace(0, rows.nnz, n_shares + 1)[1:-1]
    return [0, *np.searchsorted(rows.indptr, shares).tolist(), rows.shape[0]]


def _padded(columns: FloatArray) -> FloatArray:
    """Append columns of zeros, because compiled code sums up `WIDTH` columns at a time."""
    size, width = columns.shape
    padded = _zeros(size, -(-width // WIDTH) * WIDTH)
    padded[:, :width] = columns
    return padded


def _zeros(size: int, width: int) -> FloatArray:
    """Return an array of zeros (size, width) that begins at a line of the processor's cache.

    Eight values then lie in one line. NumPy's own arrays spread them over two lines, which makes
    the products take half as long again.
    """
    values = np.zeros(size * width + _LINE)
    start = -(values.ctypes.data // values.itemsize) % _LINE
    return values[start : start + size * width].reshape(size, width)
