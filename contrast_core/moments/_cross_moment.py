"""The cross-moment of positive pairs, multiplied but never formed."""

from __future__ import annotations

from typing import Any

from scipy.sparse import issparse

from contrast_core._validation import FloatArray
from contrast_core.linalg import SymmetricOperator
from contrast_core.moments._implicit import mean_and_variances, products, scores
from contrast_core.moments._pooled import max_products_of
from contrast_core.moments._sparse import as_float64


class CrossMoment(SymmetricOperator):
    r"""Products with :math:`S^+ = (Z^\top Z^+ + Z^{+\top} Z) / 2n`, Z the centred views.

    Parameters
    ----------
    X, positive : ndarray or CSR matrix of shape (n_pairs, n_features)
        The two views. Sparse ones are multiplied as they are, centring being a correction of rank
        one.
    common_mean : bool
        Centre both by the mean of the two; else each by its own.

    Raises
    ------
    ValueError
        On NaN or infinity.
    """

    def __init__(self, X: Any, positive: Any, *, common_mean: bool) -> None:
        n_features = X.shape[1]
        super().__init__(n_features, random_state=0, max_products=max_products_of(n_features))
        mean, other = (
            mean_and_variances(rows, name)[0] for rows, name in ((X, "X"), (positive, "positive"))
        )
        self.means = ((mean + other) / 2,) * 2 if common_mean else (mean, other)
        self._views = [as_float64(rows) if issparse(rows) else rows for rows in (X, positive)]

    def _matmat(self, columns: FloatArray) -> FloatArray:
        (x, p), (mean, other) = self._views, self.means
        product = products(x, mean, scores(p, other, columns))
        product += products(p, other, scores(x, mean, columns))
        product /= 2 * x.shape[0]
        return product
