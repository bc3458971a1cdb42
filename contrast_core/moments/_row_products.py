"""Inner products of wide rows, by blocks of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import vstack

from contrast_core._validation import FloatArray
from contrast_core.linalg import add_products, worker_threads
from contrast_core.moments._feature_moments import FeatureMoments
from contrast_core.moments._sparse import filled_features, group_sums, sparse_gram
from contrast_core.rows import Rows, check_finite

Result = TypeVar("Result")

_BLOCK_ELEMENTS = 2**20  # 8 MB of centred columns at a time
_PASS_ELEMENTS = 2**25  # 256 MB, where the rows are read for each block
_LEAST_COLUMNS = 256  # fewer cost more to add up than to multiply
_MAX_ROWS_PER_WORKER = 4096  # beyond, each worker's own Gram matrix would hold too much memory


class RowProducts(NamedTuple):
    """Gram matrix of the centred rows, its upper triangle; what each dataset was centred by."""

    gram: FloatArray  # (number of rows, number of rows), Fortran-ordered
    means: FloatArray  # (number of centres, n_features)
    variances: FloatArray  # about them, (number of datasets, n_features)


class Layout(NamedTuple):
    """The stacked rows of datasets: each is centred by a mean, and has a weight.

    ends : ndarray of shape (number of datasets,)
        Where each dataset ends.
    codes : ndarray of shape (number of rows,)
        What each row is centred by: the mean of its dataset, or of its group there.
    spread : ndarray of shape (number of rows,) or None
        Square roots of the rows' weights, by which centred rows are multiplied.
    ends_of_centres : ndarray of shape (number of datasets,)
        Where the centres of each dataset end.
    """

    ends: NDArray[np.intp]
    codes: NDArray[np.intp]
    spread: FloatArray | None
    ends_of_centres: NDArray[np.intp]

    @classmethod
    def of(cls, rows: Sequence[Rows]) -> Layout:
        """Make the layout of these datasets."""
        codes, weights, n_centres = [], [], [0]
        for part in rows:
            own = np.zeros(part.shape[0], np.intp) if part.codes is None else part.codes
            codes.append(n_centres[-1] + own)
            n_centres.append(n_centres[-1] + (1 if part.groups is None else len(part.groups)))
            weights.append(np.ones(len(own)) if part.weights is None else part.weights)
        plain = all(part.weights is None for part in rows)
        spread = None if plain else np.sqrt(np.concatenate(weights))
        ends_of_centres = np.array(n_centres[1:])
        return cls(row_ends(rows), np.concatenate(codes), spread, ends_of_centres)

    @property
    def by_dataset(self) -> bool:
        """Whether each dataset has one mean."""
        return bool(len(self.ends) == self.ends_of_centres[-1])

    @property
    def weights(self) -> FloatArray | None:
        """Return the weights of the stacked rows, None if all count alike."""
        return None if self.spread is None else self.spread**2

    @property
    def centre_weights(self) -> FloatArray:
        """Total weight of the rows of each centre."""
        return np.asarray(np.bincount(self.codes, self.weights, self.ends_of_centres[-1]), float)

    @property
    def first_centres(self) -> NDArray[np.intp]:
        """Where the centres of each dataset begin."""
        return np.concatenate([[0], self.ends_of_centres[:-1]])

    @property
    def totals(self) -> FloatArray:
        """Total weight of each dataset."""
        return np.add.reduceat(self.centre_weights, self.first_centres)

    def means_of(self, block: FloatArray) -> FloatArray:
        """The centres of the stacked rows, (number of centres, n_columns)."""
        if self.by_dataset and self.spread is None:
            return np.stack([part.mean(axis=0) for part in np.split(block, self.ends[:-1])])
        _, sums = group_sums(block, self.weights, self.codes, self.ends_of_centres[-1])
        return sums / np.maximum(self.centre_weights, np.finfo(np.float64).tiny)[:, None]

    def centre(self, block: FloatArray, means: FloatArray) -> None:
        """Centre stacked rows, and multiply them by their spread, in place."""
        if self.by_dataset:
            for part, mean in zip(np.split(block, self.ends[:-1]), means, strict=True):
                part -= mean
        else:
            block -= means[self.codes]
        if self.spread is not None:
            block *= self.spread[:, None]


def row_products(rows: Sequence[Rows]) -> RowProducts:
    """Inner products of the centred rows of one dataset or more.

    Parameters
    ----------
    rows : sequence of Rows
        The datasets; sparse ones in memory.

    Returns
    -------
    RowProducts

    Raises
    ------
    ValueError
        On NaN or infinity.
    """
    if all(part.is_sparse for part in rows):
        return _sparse_products(rows)
    return _dense_products(rows)


def combine_rows(rows: Sequence[Rows], means: FloatArray, weights: FloatArray) -> FloatArray:
    """Sums of centred rows, (k, n_features).

    Parameters
    ----------
    rows : sequence of Rows
        The datasets.
    means : ndarray of shape (number of centres, n_features)
        What they are centred by.
    weights : ndarray of shape (number of rows, k)
        Of the stacked rows.
    """
    layout = Layout.of(rows)
    if not all(_by_columns(part) for part in rows):
        if layout.spread is not None:
            weights = weights * layout.spread[:, None]
        _, sums = group_sums(weights, None, layout.codes, len(means))
        combined = -sums.T @ means
        for part, own in zip(rows, np.split(weights, layout.ends[:-1]), strict=True):
            start = 0
            for block in part.blocks(check=False):
                some = own[start : start + block.shape[0]]
                combined += (block.T @ some).T
                start += block.shape[0]
        return combined
    combined = np.zeros((weights.shape[1], rows[0].shape[1]))

    def combine(blocks: Sequence[slice]) -> None:
        for columns, block in _dense_blocks(rows, blocks):
            layout.centre(block, means[:, columns])
            combined[:, columns] = weights.T @ block

    _share_out(_column_blocks(rows), combine)
    return combined


def row_scores(rows: Sequence[Rows], means: FloatArray, columns: FloatArray) -> FloatArray:
    """Return scores of the stacked centred rows on columns (n_features, k), (number of rows, k)."""
    layout = Layout.of(rows)
    scores = np.concatenate(
        [part.map(lambda block: block @ columns, columns.shape[1]) for part in rows]
    )
    scores -= (means @ columns)[layout.codes]
    return scores if layout.spread is None else scores * layout.spread[:, None]


def row_ends(rows: Sequence[Rows]) -> NDArray[np.intp]:
    """Where each dataset ends among the stacked rows."""
    return np.cumsum([part.shape[0] for part in rows], dtype=np.intp)


def _dense_products(rows: Sequence[Rows], gram: FloatArray | None = None) -> RowProducts:
    """By blocks of columns, added to `gram`."""
    layout, n_features = Layout.of(rows), rows[0].shape[1]
    ends, totals = layout.ends, layout.totals
    means = np.empty((layout.ends_of_centres[-1], n_features))
    variances = np.empty((len(rows), n_features))

    def multiply(blocks: Sequence[slice]) -> FloatArray:
        products = np.zeros((ends[-1], ends[-1]), order="F")
        for columns, block in _dense_blocks(rows, blocks):
            parts = np.split(block, ends[:-1])
            with np.errstate(invalid="ignore", over="ignore"):
                means[:, columns] = layout.means_of(block)
            if not np.isfinite(means[:, columns]).all():
                for data in rows:
                    data.read_columns(columns)  # names what is not finite
            layout.centre(block, means[:, columns])
            for i, part in enumerate(parts):
                variances[i, columns] = np.einsum("ij,ij->j", part, part) / totals[i]
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


def _sparse_products(rows: Sequence[Rows]) -> RowProducts:
    """Well filled features as dense ones, the others entry by entry and centred afterwards."""
    layout = Layout.of(rows)
    for part in rows:
        check_finite(part.load(check=False), part.name)
    stacked = vstack([part.load(check=False) for part in rows], format="csr", dtype=np.float64)
    found = []
    for i in range(layout.ends_of_centres[-1]):
        these = layout.codes == i
        weights = None if layout.weights is None else layout.weights[these]
        found.append(FeatureMoments.at_once(stacked[these], weights))
    means, squares = np.stack([of.mean for of in found]), np.stack([of.squares for of in found])
    variances = np.add.reduceat(squares, layout.first_centres) / layout.totals[:, None]
    filled = filled_features(stacked, layout.codes, len(means))
    with worker_threads() as (pool, n_threads):
        gram = sparse_gram(stacked, filled, pool, n_threads)
    thin_means = np.where(filled, 0.0, means)
    along, between = stacked @ thin_means.T, thin_means @ thin_means.T
    step = max(1, _BLOCK_ELEMENTS // len(gram))
    for start in range(0, len(gram), step):
        some = slice(start, start + step)
        codes = layout.codes[some]
        gram[:, some] -= along[:, codes]
        gram[:, some] -= (along[some] - between[codes])[:, layout.codes].T
    if layout.spread is not None:
        gram *= layout.spread[:, None]
        gram *= layout.spread
    if not filled.any():
        return RowProducts(gram, means, variances)
    well = [part.columns(filled) for part in rows]
    return RowProducts(_dense_products(well, gram).gram, means, variances)


def _share_out(
    blocks: list[slice], work: Callable[[Sequence[slice]], Result], threads: bool = True
) -> list[Result]:
    """Apply `work` to the blocks, or to a share of them on each of several threads.

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
            part[:] = data.read_columns(columns, check=data.dtype.kind != "f")  # judged by means
        yield columns, block
