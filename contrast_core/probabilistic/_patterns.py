"""Rows by which of their values are observed, and the small system that each pattern needs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray
from contrast_core.rows import ELEMENTS


class Patterns(NamedTuple):
    """The distinct ways in which rows are observed.

    masks : ndarray of shape (P, n_features)
        1 where a feature is observed, else 0.
    codes : ndarray of shape (n,)
        Which pattern each row has.
    """

    masks: FloatArray
    codes: NDArray[np.intp]


class Systems(NamedTuple):
    r"""Linear systems of the patterns, with the rows :math:`W_o` of W that are observed.

    stacked : ndarray of shape (P, d, d)
        :math:`W_o^\top W_o + \sigma^2 I_d`.
    inverse : ndarray of shape (P, d, d)
        Of these; times sigma^2 the covariance of z.
    """

    stacked: FloatArray
    inverse: FloatArray

    @property
    def log_determinant(self) -> FloatArray:
        """Logarithms of the determinants of `stacked`, (P,)."""
        return np.asarray(np.linalg.slogdet(self.stacked)[1])


def patterns_of(observed: NDArray[np.bool_]) -> Patterns:
    """Rows with the same values observed, (n, n_features), share a pattern."""
    packed = np.packbits(observed, axis=1)
    _, first, codes = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    return Patterns(observed[first].astype(np.float64), codes.reshape(-1))


def systems_of(masks: FloatArray, loadings: FloatArray, noise: float) -> Systems:
    """All systems, stacked by one matrix product."""
    d = loadings.shape[1]
    stacked = (masks @ outer_products(loadings)).reshape(len(masks), d, d) + noise * np.eye(d)
    # The inverses themselves are what the gradient and the posterior consist of.
    return Systems(stacked, np.asarray(np.linalg.inv(stacked)))


def outer_products(vectors: FloatArray) -> FloatArray:
    """Return the outer product of each row with itself, (n, d * d)."""
    n, d = vectors.shape
    return np.asarray((vectors[:, :, None] * vectors[:, None, :]).reshape(n, d * d))


def latent_means(systems: Systems, codes: NDArray[np.intp], projected: FloatArray) -> FloatArray:
    """The inverse of each row's system times its row of ``X W``, (n, d)."""
    means = np.empty_like(projected)
    step = max(1, ELEMENTS // max(1, projected.shape[1] ** 2))
    for start in range(0, len(means), step):
        some = slice(start, start + step)
        means[some] = (systems.inverse[codes[some]] @ projected[some, :, None])[:, :, 0]
    return means
