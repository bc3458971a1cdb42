"""Moments of data whose covariance matrix is never formed.

Problem: find leading eigenvectors of a dataset that has too many rows and too many features for a
covariance or a Gram matrix. Iterative eigensolvers do not need the matrix. They only need products
of the covariance C with a few columns V (Saad, Numerical Methods for Large Eigenvalue Problems,
2011). With the rows X and their mean m, such a product is

    C V = 1/n (X - 1 m^T)^T ((X - 1 m^T) V).

Dense rows are centred block by block. Centring sparse rows would make them dense. For sparse rows,
the mean is therefore subtracted from the products of the rows with V (the scores) and from the
result. This loses digits only for a feature whose mean is larger than its standard deviation, which
is rare in sparse data.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.moments._feature_moments import FeatureMoments
from contrast_core.moments._kernels import scatter_product
from contrast_core.moments._moments import ALONE, Form, Moments, Threads
from contrast_core.moments._sparse import as_float64
from contrast_core.rows import Rows, row_view

# Smallest number of stored entries for which threads share a product. With fewer entries, one
# thread takes less than a millisecond.
_WORTH_SHARING = 2**18
# Number of values in a block of dense rows in memory. The block stays in the processor's cache
# while it is centred and multiplied.
CACHED = 2**18


class Term(NamedTuple):
    """Weighted scatter of rows about a mean: ``weight * sum_i (x_i - m) (x_i - m)^T``.

    weight : float
        Factor of the sum, 1/n for the covariance of n rows.
    mean : ndarray of shape (n_features,)
        Mean of these rows.
    rows : Rows
        The rows. They are read again for every product, unless they are sparse and in memory.
    matrix : CSR matrix or None
        The same rows as a matrix, if they are sparse and in memory.
    """

    weight: float
    mean: FloatArray
    rows: Rows
    matrix: Any

    @classmethod
    def from_rows(cls, rows: Rows, weight: float, mean: FloatArray) -> Term:
        """Return the term of these rows, with `matrix` set if they are sparse and in memory."""
        loads = rows.in_memory and rows.is_sparse
        return cls(weight, mean, rows, as_float64(rows.load(check=False)) if loads else None)

    def apply(self, columns: FloatArray, threads: Threads) -> FloatArray:
        """Return the product of this term with columns (D, b)."""
        if self.matrix is not None:
            return self._sparse_product(columns, *threads)
        product = np.zeros(columns.shape)
        # The buffer is reused, because allocating memory costs as much time as the product.
        buffer = np.empty((0, len(self.mean)))
        elements = CACHED if self.rows.in_memory else None
        for block in self.rows.blocks(elements=elements, dense=True, check=False):
            if len(buffer) < len(block):
                buffer = np.empty((len(block), len(self.mean)))
            centred = np.subtract(block, self.mean, out=buffer[: len(block)])
            product += self.weight * (centred.T @ (centred @ columns))
        return product

    def _sparse_product(self, columns: FloatArray, pool: Executor | None, n: int) -> FloatArray:
        """Return the product of this term with columns, which n threads compute together.

        Each thread gets about the same number of entries.
        """
        shares = np.linspace(0, self.matrix.nnz, max(n, 1) + 1)[1:-1]
        inner = np.searchsorted(self.matrix.indptr, shares).tolist()
        along_mean = self.mean @ columns

        def product_of(ends: tuple[int, int]) -> tuple[FloatArray, FloatArray]:
            return scatter_product(row_view(self.matrix, *ends), columns, along_mean)

        ends = pairwise([0, *inner, self.matrix.shape[0]])
        products, totals = zip(*(map if pool is None else pool.map)(product_of, ends), strict=True)
        return np.asarray(self.weight * (sum(products) - np.outer(self.mean, sum(totals))))


@dataclass(frozen=True, eq=False)
class ProductMoments(Moments):
    """Mean and variances of a dataset, and products of its covariance, computed from the rows.

    Dense rows are not copied, so do not change the data while the moments are in use. Unlike
    `SecondMoments`, these moments are as large as the data and cannot be merged.

    Parameters
    ----------
    n_samples : int
        Number of rows, n.
    mean, variances : ndarray of shape (n_features,)
        Mean and variance of each feature.
    terms : tuple of Term
        Terms whose sum is the covariance. A single dataset has one term.
    rows : tuple of Rows
        The dataset, as a tuple of length one. For a weighted sum, the tuple is empty.
    feature_names : tuple of str, optional
        Names of the features, if the data had names.
    parts : tuple of ProductMoments
        If these moments are a weighted sum, the moments that were summed; otherwise empty.
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
    def gains_from_threads(self) -> bool:
        """Whether threads speed up products, as they do for large sparse matrices in memory."""
        sizes = [0 if term.matrix is None else term.matrix.nnz for term in self.terms]
        return all(sizes) and sum(sizes) >= _WORTH_SHARING

    def apply(self, columns: FloatArray, threads: Threads = ALONE) -> FloatArray:
        """Return the product of the covariance with columns (D, b); threads share sparse rows."""
        products = (term.apply(columns, threads) for term in self.terms)
        return sum(products, np.zeros(columns.shape))


def product_moments(
    datasets: Sequence[Rows], feature_names: tuple[str, ...] | None = None
) -> list[ProductMoments]:
    """Return `ProductMoments` of each dataset; raise ValueError on NaN or infinity."""
    moments = []
    for rows in datasets:
        n, mean, squares = FeatureMoments.from_data(rows, check=True)
        terms, names = (Term.from_rows(rows, 1 / n, mean),), feature_names or rows.names
        moments.append(ProductMoments(n, mean, squares / n, terms, (rows,), names))
    return moments
