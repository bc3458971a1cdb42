"""Shuffled minibatches of rows, for models that are fitted by stochastic gradients."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse, vstack

from contrast_core.rows._rows import Index, Rows
from contrast_core.rows._stored import StoredColumns

Minibatch: TypeAlias = tuple[Index, NDArray[Any]]

# Blocks are smaller by this factor than in other passes, so that the buffer holds many of them.
_PART = 4
_BUFFER = 4  # size of the buffer in values, as a multiple of `Rows.elements`
_LEAST = 4  # smallest number of blocks that are shuffled together, even if chunks are large
_SPARSE = 8  # the buffer is larger by this factor if it is sparse


def minibatches(
    rows: Rows,
    n_batches: int,
    rng: np.random.Generator,
    *,
    shift: Any = 0.0,
    scale: float = 1.0,
    dtype: Any = np.float32,
) -> Iterator[Minibatch]:
    """Yield every row once, in random order, in dense minibatches of nearly equal size.

    If the data are in memory, each minibatch is drawn from all rows that have not been drawn yet.
    Stored datasets and dask arrays are read in blocks of whole storage chunks, in random order. The
    rows of several blocks are shuffled together in a buffer. Sparse data are never made dense as a
    whole.

    Parameters
    ----------
    rows : Rows
        Rows whose number n is known.
    n_batches : int
        Number of minibatches, from 1 to n. Datasets of different sizes can be read together with
        the same number of minibatches each.
    rng : numpy.random.Generator
        Random generator for the order.
    shift : ndarray of shape (n_features,) or float, default=0.0
    scale : float above 0, default=1.0
        Each row is transformed to ``(row - shift) / scale``, computed in float64.
    dtype : numpy dtype, default=float32
        Type of the minibatches.

    Yields
    ------
    ndarray of int, ndarray
        Indices of the rows, of shape (b,), and the finite rows, of shape (b, n_features).

    Raises
    ------
    ValueError
        If a value is NaN or infinite, or there are fewer rows than minibatches.
    """
    n = rows.shape[0]
    if not 1 <= n_batches <= n:
        raise ValueError(
            f"{rows.name} has {n} rows, which cannot be split into {n_batches} minibatches. "
            f"Ask for at most {n} minibatches."
        )
    if isinstance(rows, StoredColumns):  # the file can be read only by columns
        rows = rows.loaded()
    quiet = rows.replace(progress=False)
    edges = [round(i * n / n_batches) for i in range(n_batches + 1)]
    sizes = [stop - start for start, stop in pairwise(edges)]
    for index, block in (_drawn if rows.place in ("memory", "device") else _streamed)(
        quiet, sizes, rng
    ):
        dense = block.toarray() if issparse(block) else np.asarray(block)
        if np.any(shift) or scale != 1:
            dense = (dense - np.asarray(shift, dtype=np.float64)) / scale
        yield index, np.ascontiguousarray(dense, dtype)


def _drawn(rows: Rows, sizes: list[int], rng: np.random.Generator) -> Iterator[tuple[Index, Any]]:
    """Yield minibatches of rows in memory, drawn from all rows, with the rows' indices."""
    order = rng.permutation(rows.shape[0])
    for index in np.split(order, np.cumsum(sizes)[:-1]):
        yield index, rows.take(index).read(0, len(index))


def _streamed(
    rows: Rows, sizes: list[int], rng: np.random.Generator
) -> Iterator[tuple[Index, Any]]:
    """Yield minibatches of rows that are read in blocks, drawn from a buffer, with their indices.

    The rows that are left in the buffer after the last full minibatch are shuffled together with
    the next blocks.
    """
    spans = list(pairwise(rows.edges(max(1, rows.elements // _PART))))
    most = _BUFFER * (_SPARSE if rows.is_sparse else 1) * rows.elements // max(1, rows.shape[1])
    index: Index = np.empty(0, dtype=np.intp)
    left: list[Any] = []
    wanted = iter(sizes)
    size = next(wanted)
    for together in _groups([spans[i] for i in rng.permutation(len(spans))], most):
        blocks = [rows.read(start, stop) for start, stop in together]
        pool = _stacked([*left, *blocks])
        index = np.concatenate([index, *(np.arange(*span) for span in together)])
        order, start = rng.permutation(len(index)), 0
        while start + size <= len(order):
            drawn = order[start : start + size]
            yield index[drawn], pool[drawn]
            start, size = start + size, next(wanted, len(order) + 1)
        left, index = [pool[order[start:]]], index[order[start:]]


def _groups(spans: list[tuple[int, int]], most: int) -> Iterator[list[tuple[int, int]]]:
    """Yield groups of blocks that fit into the buffer, each in the order of the dataset."""
    group: list[tuple[int, int]] = []
    for span in spans:
        if len(group) >= _LEAST and sum(b - a for a, b in [*group, span]) > most:
            yield sorted(group)
            group = []
        group.append(span)
    yield sorted(group)


def _stacked(blocks: list[Any]) -> Any:
    return vstack(blocks, format="csr") if issparse(blocks[0]) else np.concatenate(blocks)
