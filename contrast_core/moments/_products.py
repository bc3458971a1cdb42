"""Moments of data whose covariance is only multiplied, never formed.

An iteration for a few leading eigenvectors needs no matrix, only products of the covariance with a
few columns V. About the mean m of the rows,

    C V = 1/n X^T (X V) - m (m^T V),

so sparse rows stay sparse: centring is a correction of rank one. Dense rows are centred block by
block. This pays for a contrast or two of data with too many rows and features for either a
covariance or a Gram matrix, and for few components of sparse data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, NamedTuple

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.moments._feature_moments import FeatureMoments
from contrast_core.moments._moments import ALONE, Form, Moments, Threads
from contrast_core.moments._sparse_products import (
    gram_products,
    less_outer,
    multipliable,
    sharing_pays,
)
from contrast_core.rows import Rows, pieces


class Term(NamedTuple):
    """A weighted sum of squares of rows about a mean: ``weight * sum_i (x_i - m) (x_i - m)^T``.

    weight : float
        Factor of the sum, 1/n for the covariance of n rows.
    mean : ndarray of shape (n_features,)
        Mean of these rows.
    n_rows, total_variance : float
        Their number, and the sum of their features' variances.
    rows : tuple of Rows
        The rows, where they are dense or not in memory: they are read for every product.
    pieces : tuple of CSR matrices
        The rows where they are sparse and in memory, in pieces that other terms may share.
    """

    weight: float
    mean: FloatArray
    n_rows: float
    total_variance: float
    rows: tuple[Rows, ...]
    pieces: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class ProductMoments(Moments):
    """Mean and variances of a dataset, and its covariance behind products with the rows.

    It holds the rows (no copy of dense ones; leave them unchanged), so unlike `SecondMoments` it
    neither merges nor is small.

    Parameters
    ----------
    n_samples : int
        Number of rows, n.
    mean, variances : ndarray of shape (n_features,)
        Mean and variance of each feature.
    terms : tuple of Term
        What the covariance is the sum of: one term for a dataset.
    rows : tuple of Rows
        The dataset.
    feature_names : tuple of str, optional
        Names of the features, where the data had them.
    parts : tuple of ProductMoments
        Moments of which these are a weighted sum.
    """

    n_samples: float
    mean: FloatArray
    variances: FloatArray
    terms: tuple[Term, ...]
    rows: tuple[Rows, ...] = ()
    feature_names: tuple[str, ...] | None = None
    parts: tuple[Any, ...] = ()

    form: ClassVar[Form] = "products"

    @property
    def shares_out(self) -> bool:
        """Whether threads are of use: all rows are sparse and in memory, and many."""
        sizes = [piece.nnz for term in self.terms for piece in term.pieces]
        return not any(term.rows for term in self.terms) and sharing_pays(sum(sizes))

    def apply(self, columns: FloatArray, threads: Threads = ALONE) -> FloatArray:
        """Multiply the covariance with columns (D, b); of sparse rows on threads of the pool."""
        if _can_share_a_mean(self.terms):
            return _about_one_mean(self.terms, columns, threads)
        return sum(
            (_of_term(term, columns, threads) for term in self.terms), np.zeros(columns.shape)
        )


def product_moments(
    datasets: Sequence[Rows], feature_names: tuple[str, ...] | None = None
) -> list[ProductMoments]:
    """Return the moments of datasets that are only multiplied.

    Sparse rows that datasets have in common, as a foreground has its background, they share.

    Raises ValueError on NaN or infinity.
    """
    found = pieces(datasets) if len(datasets) > 1 and all(map(_is_piece, datasets)) else None
    distinct, made_of = found or (datasets, [[i] for i in range(len(datasets))])
    taken = [_moments_and_piece(part) for part in distinct]
    moments = []
    for rows, which in zip(datasets, made_of, strict=True):
        n, mean, squares = reduce(FeatureMoments.merge, [taken[i][0] for i in which])
        sparse = tuple(taken[i][1] for i in which if taken[i][1] is not None)
        variances = squares / n
        dense = () if sparse else (rows,)
        term = Term(1 / n, mean, n, float(variances.sum()), dense, sparse)
        names = feature_names or rows.names
        moments.append(ProductMoments(n, mean, variances, (term,), (rows,), names))
    return moments


def joint_products(
    moments: Sequence[Moments], columns: FloatArray, threads: Threads = ALONE
) -> list[FloatArray]:
    """Multiply several covariances with columns (D, b), taking each piece of rows once."""
    terms = [term for part in moments for term in getattr(part, "terms", ())]
    if len(moments) < 2 or not _can_share_a_mean(terms):
        return [part.apply(columns, threads) for part in moments]
    mean = terms[0].mean
    shared: dict[int, FloatArray] = {}
    products = []
    for part in moments:
        total = np.zeros(columns.shape)
        for term in part.terms:  # type: ignore[attr-defined]
            for piece in term.pieces:
                if id(piece) not in shared:
                    shared[id(piece)] = gram_products([piece], [1.0], mean, columns, *threads)
                total += term.weight * shared[id(piece)]
            total = _less_shift(total, term, mean, columns)
        products.append(total)
    return products


def _about_one_mean(terms: Sequence[Term], columns: FloatArray, threads: Threads) -> FloatArray:
    """Multiply a sum of terms in one pass over the pieces, all about the mean of the first."""
    mean = terms[0].mean
    distinct: dict[int, Any] = {}
    weights: dict[int, float] = {}
    for term in terms:
        for piece in term.pieces:
            distinct[id(piece)] = piece
            weights[id(piece)] = weights.get(id(piece), 0.0) + term.weight
    product = gram_products([*distinct.values()], [*weights.values()], mean, columns, *threads)
    for term in terms[1:]:
        product = _less_shift(product, term, mean, columns)
    return product


def _less_shift(
    product: FloatArray, term: Term, mean: FloatArray, columns: FloatArray
) -> FloatArray:
    """Turn the product about another mean into the one about the term's own."""
    shift = term.mean - mean
    return less_outer(product, term.weight * term.n_rows * shift, shift @ columns)


def _of_term(term: Term, columns: FloatArray, threads: Threads) -> FloatArray:
    each = [term.weight] * len(term.pieces)
    product = gram_products(term.pieces, each, term.mean, columns, *threads)
    for part in term.rows:
        for centred in _centred(part, term.mean):
            product += term.weight * (centred.T @ (centred @ columns))
    return product


def _can_share_a_mean(terms: Sequence[Term]) -> bool:
    """Return whether rows of all terms are sparse and their means near enough to lose no digits."""
    if not terms or any(term.rows for term in terms):
        return False
    shifts = [term.mean - terms[0].mean for term in terms]
    least = min(term.total_variance for term in terms)
    return all(shift @ shift <= 100 * least for shift in shifts)


def _is_piece(part: Rows) -> bool:
    return part.in_memory and part.is_sparse


def _moments_and_piece(part: Rows) -> tuple[FeatureMoments, Any]:
    """Return the moments of each feature and, of sparse rows in memory, what is multiplied."""
    if not _is_piece(part):
        return FeatureMoments.from_data(part, check=True), None
    rows = part.load()
    return FeatureMoments.from_data(rows), multipliable(rows)


def _centred(rows: Rows, mean: FloatArray) -> Iterator[FloatArray]:
    """Yield blocks of rows less their mean, dense; each is overwritten by the next."""
    buffer = np.empty((0, len(mean)))
    for block in rows.blocks(dense=True, check=False):
        if len(buffer) < len(block):
            buffer = np.empty((len(block), len(mean)))
        yield np.subtract(block, mean, out=buffer[: len(block)])
