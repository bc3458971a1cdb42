"""Inner products of wide rows, summed over blocks of columns.

Problem: for n centred rows Z with many more features than rows, compute the Gram matrix Z Z^T and
products of Z with a few columns. A Gram matrix is a sum over features, so blocks of columns are
centred and multiplied one after another. Because each column is centred before it is multiplied, a
mean far from zero costs no accuracy. Sparse rows are never made dense as a whole. Sparse features
with few entries are multiplied entry by entry, and the products are corrected for the mean
afterwards. This costs no accuracy, because the squared mean of such a feature is at most half of
its mean square.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk
from scipy.sparse import issparse, vstack

from contrast_core._validation import FloatArray
from contrast_core.linalg import worker_threads
from contrast_core.moments._feature_moments import FeatureMoments
from contrast_core.moments._products import CACHED
from contrast_core.moments._sparse import filled_features, group_sums, sparse_gram
from contrast_core.rows import Rows, check_finite

_BLOCK_ELEMENTS = 2**20  # 8 MB of centred columns at a time
_PASS_ELEMENTS = 2**25  # 256 MB of centred columns, used if each block needs a pass over the rows
# For a block of fewer columns, adding its product to the Gram matrix costs more than computing it.
_LEAST_COLUMNS = 256


@dataclass(frozen=True, eq=False)
class StackedRows:
    """The rows of several datasets, one below another; each row has a centre and a weight.

    Parameters
    ----------
    parts : tuple of Rows
        The datasets.
    ends : ndarray of shape (number of datasets,)
        Number of stacked rows up to the end of each dataset.
    codes : ndarray of shape (number of rows,)
        Index of each row's centre. The centre is the mean of the row's dataset or, if the dataset
        has groups, the mean of its group.
    first_centres : ndarray of shape (number of datasets,)
        Index of the first centre of each dataset.
    weights : ndarray of shape (number of rows,) or None
        Weights of the rows; None if all are equal. Centred rows are multiplied by the square roots
        of the weights.
    centre_weights : ndarray of shape (number of centres,)
        Total weight of the rows of each centre.
    """

    parts: tuple[Rows, ...]
    ends: NDArray[np.intp]
    codes: NDArray[np.intp]
    first_centres: NDArray[np.intp]
    weights: FloatArray | None
    centre_weights: FloatArray

    @classmethod
    def from_parts(cls, parts: Sequence[Rows]) -> StackedRows:
        """Stack the rows of these datasets."""
        codes, weights, n_centres = [], [], [0]
        for part in parts:
            own = np.zeros(part.shape[0], np.intp) if part.codes is None else part.codes
            codes.append(n_centres[-1] + own)
            n_centres.append(n_centres[-1] + (1 if part.groups is None else len(part.groups)))
            weights.append(np.ones(len(own)) if part.weights is None else part.weights)
        all_codes, all_weights = np.concatenate(codes), np.concatenate(weights)
        return cls(
            tuple(parts),
            np.cumsum([len(own) for own in codes]),
            all_codes,
            np.array(n_centres[:-1]),
            None if all(part.weights is None for part in parts) else all_weights,
            np.bincount(all_codes, all_weights, n_centres[-1]).astype(np.float64),
        )

    @property
    def n_features(self) -> int:
        """Number of features, D."""
        return int(self.parts[0].shape[1])

    @property
    def totals(self) -> FloatArray:
        """Total weight of each dataset."""
        return np.add.reduceat(self.centre_weights, self.first_centres)

    def split(self, stacked: FloatArray) -> list[FloatArray]:
        """Split an array over all rows into views, one for each dataset."""
        return np.split(stacked, self.ends[:-1])

    def _times_root_weights(self, values: FloatArray) -> FloatArray:
        """Multiply values, (number of rows, b), by the square roots of the rows' weights."""
        return values if self.weights is None else values * np.sqrt(self.weights)[:, None]

    def means_of(self, block: FloatArray) -> FloatArray:
        """Return the centres of these columns, (number of centres, n_columns).

        `block` holds the columns of all stacked rows.
        """
        _, sums = group_sums(block, self.weights, self.codes, len(self.centre_weights))
        return sums / np.maximum(self.centre_weights, np.finfo(np.float64).tiny)[:, None]

    def centred(self, block: FloatArray, means: FloatArray) -> FloatArray:
        """Return centred stacked rows, multiplied by the square roots of their weights."""
        return self._times_root_weights(block - means[self.codes])

    def combine(self, means: FloatArray, weights: FloatArray) -> FloatArray:
        """Return k linear combinations of the centred rows, (k, n_features).

        Their coefficients `weights` have the shape (number of rows, k).
        """
        weights, start = self._times_root_weights(weights), 0
        combined = np.zeros((weights.shape[1], self.n_features))
        for part in self.parts:
            elements = CACHED if part.in_memory and not part.is_sparse else None
            for block in part.blocks(elements=elements, check=False):
                some = slice(start, start + block.shape[0])
                own, codes, start = weights[some], self.codes[some], some.stop
                if issparse(block):
                    combined += (block.T @ own).T
                    combined -= group_sums(own, None, codes, len(means))[1].T @ means
                else:
                    combined += own.T @ (block - means[codes])
        return combined

    def scores(self, means: FloatArray, columns: FloatArray) -> FloatArray:
        """Return products (number of rows, k) of the centred rows with columns (n_features, k)."""
        scores = np.concatenate(
            [part.map(lambda block: block @ columns, columns.shape[1]) for part in self.parts]
        )
        return self._times_root_weights(scores - (means @ columns)[self.codes])

    def products(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the inner products of the centred rows; sparse rows must be in memory.

        Returns
        -------
        gram : ndarray of shape (number of rows, number of rows)
            In Fortran order; the upper triangle is filled.
        means : ndarray of shape (number of centres, n_features)
            The centres of the rows.
        variances : ndarray of shape (number of datasets, n_features)
            Variances of each dataset about these means.

        Raises
        ------
        ValueError
            If a value is NaN or infinite.
        """
        if all(part.is_sparse for part in self.parts):
            return _sparse_products(self)
        return _dense_products(self)


def _dense_products(
    rows: StackedRows, gram: FloatArray | None = None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the same as `StackedRows.products`, summed over blocks of centred columns.

    If `gram` is given, the products are added to it.
    """
    n_rows, totals = int(rows.ends[-1]), rows.totals
    means = np.empty((len(rows.centre_weights), rows.n_features))
    variances = np.empty((len(rows.parts), rows.n_features))
    gram = np.zeros((n_rows, n_rows), order="F") if gram is None else gram
    for columns in _column_blocks(rows):
        # NaN and infinity in floating-point data are found below: they make a mean not finite.
        parts = [data.read_columns(columns, check=data.dtype.kind != "f") for data in rows.parts]
        block = np.concatenate(parts, dtype=np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            means[:, columns] = rows.means_of(block)
        if not np.isfinite(means[:, columns]).all():
            for data in rows.parts:
                data.read_columns(columns)  # raises an error that names the value
        block = rows.centred(block, means[:, columns])
        for i, part in enumerate(rows.split(block)):
            variances[i, columns] = np.einsum("ij,ij->j", part, part) / totals[i]
        gram = dsyrk(1.0, block.T, beta=1.0, c=gram, trans=1, overwrite_c=1)
    return gram, means, variances


def _sparse_products(rows: StackedRows) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the same as `StackedRows.products`, from sparse rows.

    Features with many entries are centred and multiplied as dense columns. All other features are
    multiplied entry by entry, and the Gram matrix is corrected for their means afterwards.
    """
    for part in rows.parts:
        check_finite(part.load(check=False), part.name)
    stacked = vstack(
        [part.load(check=False) for part in rows.parts], format="csr", dtype=np.float64
    )
    moments = []
    for i in range(len(rows.centre_weights)):
        these = rows.codes == i
        weights = None if rows.weights is None else rows.weights[these]
        moments.append(FeatureMoments.from_block(stacked[these], weights))
    means = np.stack([each.mean for each in moments])
    squares = np.stack([each.squares for each in moments])
    variances = np.add.reduceat(squares, rows.first_centres) / rows.totals[:, None]
    filled = filled_features(stacked, rows.codes, len(means))
    with worker_threads() as (pool, n_threads):
        gram = sparse_gram(stacked, filled, pool, n_threads)
    thin_means = np.where(filled, 0.0, means)
    # For rows x and y with the centres a and b: (x - a).(y - b) = x.y - x.b - (y.a - a.b).
    along, between = stacked @ thin_means.T, thin_means @ thin_means.T
    step = max(1, _BLOCK_ELEMENTS // len(gram))
    for start in range(0, len(gram), step):
        some = slice(start, start + step)
        codes = rows.codes[some]
        gram[:, some] -= along[:, codes]
        gram[:, some] -= (along[some] - between[codes])[:, rows.codes].T
    if rows.weights is not None:
        roots = np.sqrt(rows.weights)
        gram *= roots[:, None]
        gram *= roots
    if filled.any():
        filled_part = replace(rows, parts=tuple(part.columns(filled) for part in rows.parts))
        gram = _dense_products(filled_part, gram)[0]
    return gram, means, variances


def _column_blocks(rows: StackedRows) -> list[slice]:
    """Return blocks of columns; they are larger if each block costs a pass over the rows."""
    elements = min(_BLOCK_ELEMENTS, *(part.elements for part in rows.parts))
    if not all(part.reads_columns for part in rows.parts):
        elements = _PASS_ELEMENTS
    step = max(_LEAST_COLUMNS, elements // int(rows.ends[-1]))
    return [slice(i, min(i + step, rows.n_features)) for i in range(0, rows.n_features, step)]
