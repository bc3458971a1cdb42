"""Moments of data whose covariance is only multiplied, never formed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, ClassVar

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.moments._covariance import ALONE, Covariance, Form, Moments, Threads
from contrast_core.moments._feature_moments import FeatureMoments
from contrast_core.moments._sparse import as_float64
from contrast_core.moments._sparse_products import (
    gram_products,
    less_outer,
    multipliable,
    sharing_pays,
)
from contrast_core.rows import Rows, pieces


@dataclass(frozen=True, eq=False)
class ProductMoments(Moments):
    r"""Mean and variances of a dataset, and its covariance behind products with the rows.

    .. math:: C V = (X - 1\bar x)^\top (X - 1\bar x) V / n

    For a contrast or two of data with too many rows and features for either covariance or Gram
    matrix, and of sparse data where few components are wanted. It holds the rows (no copy of dense
    ones; leave them unchanged), so unlike `SecondMoments` it neither merges nor is small.

    Parameters
    ----------
    n_samples : int
        Number of rows, n.
    mean, variances : ndarray of shape (n_features,)
        Mean and variance of each feature.
    parts : tuple of Rows
        The data, as one dataset or more whose rows are pooled. Sparse rows are multiplied as they
        are, centring being a correction of rank one; dense ones are centred block by block. Those
        that are not in memory are read for every product.
    feature_names : tuple of str, optional
        Names of the features, where the data had them.
    pieces : tuple of CSR matrices
        The same rows where they are sparse and in memory, in pieces that other moments may share.
    """

    n_samples: float
    mean: FloatArray
    variances: FloatArray
    parts: tuple[Rows, ...]
    feature_names: tuple[str, ...] | None = None
    pieces: tuple[Any, ...] = ()

    form: ClassVar[Form] = "products"

    @property
    def shares_out(self) -> bool:
        """Whether threads are of use: all rows are sparse and in memory, and many."""
        return all(map(_is_piece, self.parts)) and sharing_pays(sum(p.nnz for p in self.pieces))

    def apply(self, columns: FloatArray, threads: Threads = ALONE) -> FloatArray:
        """Product with columns (D, b); of sparse rows on threads of the pool."""
        each = [1.0] * len(self.pieces)
        product = gram_products(self.pieces, each, self.mean, columns, *threads)
        for part in self.parts:
            if not _is_piece(part):
                for centred in _centred(part, self.mean):  # in one pass
                    product += centred.T @ (centred @ columns)
        product /= self.n_samples
        return product


@dataclass(frozen=True, eq=False)
class CrossProducts(Covariance):
    r"""Products with :math:`S^+ = (Z^\top Z^+ + Z^{+\top} Z) / 2n`, Z the centred views.

    Parameters
    ----------
    views : (Rows, Rows) of shape (n_pairs, n_features)
        The two views. Sparse ones are multiplied as they are, centring being a correction of rank
        one.
    means : (ndarray, ndarray) of shape (n_features,)
        What each is centred by.
    feature_names : tuple of str, optional
        Names of the features, where the data had them.
    """

    views: tuple[Rows, Rows]
    means: tuple[FloatArray, FloatArray]
    feature_names: tuple[str, ...] | None = None

    form: ClassVar[Form] = "products"

    @property
    def n_features(self) -> int:
        """Number of features, D."""
        return len(self.means[0])

    @cached_property
    def _sparse(self) -> list[Any]:
        return [as_float64(view.load(check=False)) for view in self.views]

    def apply(self, columns: FloatArray, threads: Threads = ALONE) -> FloatArray:
        """Product with columns (D, b)."""
        mean, other = self.means
        if all(map(_is_piece, self.views)):
            x, p = self._sparse
            product = _back(x, mean, p @ columns - other @ columns)
            product += _back(p, other, x @ columns - mean @ columns)
        else:
            product = np.zeros(columns.shape)
            both = zip(
                *(_centred(v, m) for v, m in zip(self.views, self.means, strict=True)), strict=True
            )
            for a, b in both:
                product += a.T @ (b @ columns) + b.T @ (a @ columns)
        product /= 2 * self.views[0].shape[0]
        return product

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_sparse"}


def product_moments(
    datasets: Sequence[Sequence[Rows]], feature_names: tuple[str, ...] | None = None
) -> list[ProductMoments]:
    """Moments of datasets, each the rows of one selection or of several about their common mean.

    What datasets have in common, as a foreground has its background, they share.

    Raises ValueError on NaN or infinity.
    """
    selections = [part for parts in datasets for part in parts]
    found = pieces(selections) if len(datasets) > 1 and all(map(_is_piece, selections)) else None
    distinct, made_of = found or (selections, [[i] for i in range(len(selections))])
    held = [_held(part) for part in distinct]
    made = iter(made_of)
    moments = []
    for parts in datasets:
        which = [i for _ in parts for i in next(made)]
        n_rows, mean, squares = reduce(FeatureMoments.merge, [held[i][0] for i in which])
        sparse = tuple(held[i][1] for i in which if held[i][1] is not None)
        names = feature_names or parts[0].names
        moments.append(ProductMoments(n_rows, mean, squares / n_rows, tuple(parts), names, sparse))
    return moments


def joint_products(
    moments: Sequence[Covariance], columns: FloatArray, threads: Threads = ALONE
) -> list[FloatArray]:
    """Products of several covariances with columns (D, b), each piece of rows taken once."""
    sparse = _about_one_mean(moments)
    if not sparse:
        return [part.apply(columns, threads) for part in moments]
    first = sparse[0]
    shared: dict[int, FloatArray] = {}
    products = []
    for part in sparse:
        total = np.zeros(columns.shape)
        for piece in part.pieces:
            if id(piece) not in shared:
                shared[id(piece)] = gram_products([piece], [1.0], first.mean, columns, *threads)
            total += shared[id(piece)]
        # About the first dataset's mean they were taken.
        shift = part.mean - first.mean
        products.append(total / part.n_samples - np.outer(shift, shift @ columns))
    return products


def weighted_product(
    moments: Sequence[Covariance],
    weights: Sequence[float],
    columns: FloatArray,
    threads: Threads = ALONE,
) -> FloatArray:
    """Product of a weighted sum of covariances with columns (D, b), each piece of rows taken once.

    For less than `joint_products`: those of all pieces are added up as they arise.
    """
    used = [(part, w) for part, w in zip(moments, weights, strict=True) if w]
    sparse = _about_one_mean([part for part, _ in used])
    if not sparse:
        return sum((w * part.apply(columns, threads) for part, w in used), np.zeros(columns.shape))
    mean = sparse[0].mean
    pieces: dict[int, Any] = {}
    shares: dict[int, float] = {}
    for part, (_, w) in zip(sparse, used, strict=True):
        for piece in part.pieces:
            pieces[id(piece)] = piece
            shares[id(piece)] = shares.get(id(piece), 0.0) + w / part.n_samples
    product = gram_products([*pieces.values()], [*shares.values()], mean, columns, *threads)
    for part, (_, w) in zip(sparse[1:], used[1:], strict=True):
        shift = part.mean - mean
        product = less_outer(product, w * shift, shift @ columns)
    return product


def _about_one_mean(moments: Sequence[Covariance]) -> list[ProductMoments]:
    """The moments, if there are several whose rows can be multiplied about the mean of one."""
    sparse = [
        part
        for part in moments
        if isinstance(part, ProductMoments) and all(map(_is_piece, part.parts))
    ]
    return sparse if 1 < len(sparse) == len(moments) and _are_near(sparse) else []


def _are_near(moments: Sequence[Moments]) -> bool:
    """Whether second moments about the first one's mean would lose no digits."""
    shifts = [part.mean - moments[0].mean for part in moments]
    least = min(part.total_variance for part in moments)
    return all(shift @ shift <= 100 * least for shift in shifts)


def _is_piece(part: Rows) -> bool:
    return part.in_memory and part.is_sparse


def _held(part: Rows) -> tuple[FeatureMoments, Any]:
    """Moments of each feature, and sparse rows in memory, ready to be multiplied."""
    if not _is_piece(part):
        return FeatureMoments.from_data(part, check=True), None
    rows = part.load()
    return FeatureMoments.from_data(rows), multipliable(rows)


def _back(rows: Any, mean: FloatArray, scores: FloatArray) -> FloatArray:
    """The transpose of sparse centred rows (n, D) times scores (n, b)."""
    return np.asarray(rows.T @ scores - np.outer(mean, scores.sum(axis=0)))


def _centred(rows: Rows, mean: FloatArray) -> Iterator[FloatArray]:
    """Blocks of rows less their mean, dense; each is overwritten by the next."""
    buffer = np.empty((0, len(mean)))
    for block in rows.blocks(dense=True, check=False):
        if len(buffer) < len(block):
            buffer = np.empty((len(block), len(mean)))
        yield np.subtract(block, mean, out=buffer[: len(block)])
