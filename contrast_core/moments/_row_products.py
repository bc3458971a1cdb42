"""Inner products of wide rows, by blocks of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import vstack

from contrast_core._validation import FloatArray
from contrast_core.linalg import add_products, worker_threads
from contrast_core.moments._sparse import (
    filled_features,
    sparse_gram,
    sparse_mean_and_variances,
)
from contrast_core.rows import Rows, check_finite

Result = TypeVar("Result")

_BLOCK_ELEMENTS = 2**20  # 8 MB of centred columns at a time
_PASS_ELEMENTS = 2**25  # 256 MB, where the rows are read for each block
_LEAST_COLUMNS = 256  # fewer cost more to add up than to multiply
_MAX_ROWS_PER_WORKER = 4096  # beyond, each worker's own Gram matrix would hold too much memory


class RowProducts(NamedTuple):
    """Gram matrix of the centred rows, its upper triangle; what each dataset was centred by."""

    gram: FloatArray  # (number of rows, number of rows), Fortran-ordered
    means: FloatArray  # (number of datasets, n_features)
    variances: FloatArray  # about these means, the same shape


def row_products(rows: Sequence[Rows], common_mean: bool) -> RowProducts:
    """Inner products of the centred rows of one dataset or more.

    Parameters
    ----------
    rows : sequence of Rows
        The datasets; sparse ones in memory.
    common_mean : bool
        Centre all by the mean of all rows, and take variances about it; else each by its own.

    Returns
    -------
    RowProducts

    Raises
    ------
    ValueError
        On NaN or infinity.
    """
    if all(part.is_sparse for part in rows):
        return _sparse_products(rows, common_mean)
    return _dense_products(rows, common_mean)


def combine_rows(rows: Sequence[Rows], means: FloatArray, weights: FloatArray) -> FloatArray:
    """Sums of centred rows, (k, n_features).

    Parameters
    ----------
    rows : sequence of Rows
        The datasets.
    means : ndarray of shape (number of datasets, n_features)
        What each is centred by.
    weights : ndarray of shape (number of rows, k)
        Of the stacked rows.
    """
    ends = row_ends(rows)
    combined = np.zeros((weights.shape[1], rows[0].shape[1]))
    if not all(_by_columns(part) for part in rows):
        for part, mean, own in zip(rows, means, np.split(weights, ends[:-1]), strict=True):
            start = 0
            for block in part.blocks(check=False):
                some = own[start : start + block.shape[0]]
                combined += (block.T @ some).T - np.outer(some.sum(axis=0), mean)
                start += block.shape[0]
        return combined

    def combine(blocks: Sequence[slice]) -> None:
        for columns, block in _dense_blocks(rows, blocks):
            for part, mean in zip(np.split(block, ends[:-1]), means, strict=True):
                part -= mean[columns]
            combined[:, columns] = weights.T @ block

    _share_out(_column_blocks(rows), combine)
    return combined


def row_scores(rows: Sequence[Rows], means: FloatArray, columns: FloatArray) -> FloatArray:
    """Of the stacked centred rows on columns (n_features, k), (number of rows, k)."""
    return np.concatenate(
        [
            part.map(lambda block: block @ columns, columns.shape[1]) - mean @ columns
            for part, mean in zip(rows, means, strict=True)
        ]
    )


def row_ends(rows: Sequence[Rows]) -> NDArray[np.intp]:
    """Where each dataset ends among the stacked rows."""
    return np.cumsum([part.shape[0] for part in rows], dtype=np.intp)


def _dense_products(
    rows: Sequence[Rows], common_mean: bool, gram: FloatArray | None = None
) -> RowProducts:
    """By blocks of columns, added to `gram`."""
    ends, shape = row_ends(rows), (len(rows), rows[0].shape[1])
    means, variances = np.empty(shape), np.empty(shape)

    def multiply(blocks: Sequence[slice]) -> FloatArray:
        products = np.zeros((ends[-1], ends[-1]), order="F")
        for columns, block in _dense_blocks(rows, blocks):
            parts = np.split(block, ends[:-1])
            for i, (part, data) in enumerate(zip(parts, rows, strict=True)):
                with np.errstate(invalid="ignore", over="ignore"):
                    means[i, columns] = part.mean(axis=0)
                if not np.isfinite(means[i, columns]).all():
                    check_finite(part, data.name)
            if common_mean:
                means[:, columns] = block.mean(axis=0)
            for i, part in enumerate(parts):
                part -= means[i, columns]
                variances[i, columns] = np.einsum("ij,ij->j", part, part) / len(part)
            add_products(block.T, products)
        return products

    threads = all(_by_columns(part) for part in rows) and ends[-1] <= _MAX_ROWS_PER_WORKER
    parts = _share_out(_column_blocks(rows), multiply, threads)
    if gram is not None:
        parts.append(gram)
    total, *others = parts
    for part in others:
        total += part
    return RowProducts(total, means, variances)


def _sparse_products(rows: Sequence[Rows], common_mean: bool) -> RowProducts:
    """Well filled features as dense ones, the others entry by entry and centred afterwards."""
    ends, n_features = row_ends(rows), rows[0].shape[1]
    matrices = [part.load(check=False) for part in rows]
    found = [
        sparse_mean_and_variances(matrix, part.name)
        for matrix, part in zip(matrices, rows, strict=True)
    ]
    means, variances = (np.stack(part) for part in zip(*found, strict=True))
    if common_mean:
        common = np.average(means, axis=0, weights=np.diff(ends, prepend=0))
        variances += (means - common) ** 2
        means[:] = common
    stacked = vstack(matrices, format="csr", dtype=np.float64)
    counts = np.bincount(stacked.indices, minlength=n_features)
    filled = filled_features(counts, stacked.shape[0])
    with worker_threads() as (pool, n_threads):
        gram = sparse_gram(stacked, filled, pool, n_threads)
    thin_means = np.where(filled, 0.0, means)
    along, between = stacked @ thin_means.T, thin_means @ thin_means.T
    datasets = [slice(end - part.shape[0], end) for end, part in zip(ends, rows, strict=True)]
    for (i, a), (j, b) in product(enumerate(datasets), repeat=2):
        gram[a, b] -= along[a, j, None] + along[b, i] - between[i, j]
    if not filled.any():
        return RowProducts(gram, means, variances)
    well = [part.columns(filled) for part in rows]
    return RowProducts(_dense_products(well, common_mean, gram).gram, means, variances)


def _share_out(
    blocks: list[slice], work: Callable[[Sequence[slice]], Result], threads: bool = True
) -> list[Result]:
    """What `work` makes of the blocks, or of its share of them on each of several threads.

    Which thread takes which blocks does not depend on timing.
    """
    if not threads or len(blocks) == 1:
        return [work(blocks)]
    with worker_threads() as (pool, n_threads):
        if pool is None:
            return [work(blocks)]
        return list(pool.map(work, [blocks[i::n_threads] for i in range(n_threads)]))


def _by_columns(rows: Rows) -> bool:
    """Whether blocks of columns are to be had by slicing an array."""
    return rows.in_memory and not rows.is_sparse


def _column_blocks(rows: Sequence[Rows]) -> list[slice]:
    """Columns to be taken at once: more where each block costs a pass over the rows."""
    n_features, n_rows = rows[0].shape[1], int(row_ends(rows)[-1])
    elements = min(_BLOCK_ELEMENTS, *(part.elements for part in rows))
    if not all(part.reads_columns for part in rows):
        elements = _PASS_ELEMENTS
    step = max(_LEAST_COLUMNS, elements // n_rows)
    return [slice(i, min(i + step, n_features)) for i in range(0, n_features, step)]


def _dense_blocks(
    rows: Sequence[Rows], blocks: Sequence[slice]
) -> Iterator[tuple[slice, FloatArray]]:
    """These columns of the stacked rows, dense; each block is overwritten by the next."""
    ends = row_ends(rows)
    buffer = np.empty(ends[-1] * max((b.stop - b.start for b in blocks), default=0))
    for columns in blocks:
        block = buffer[: ends[-1] * (columns.stop - columns.start)].reshape(ends[-1], -1)
        for data, part in zip(rows, np.split(block, ends[:-1]), strict=True):
            part[:] = data.read_columns(columns, check=False)
        yield columns, block
