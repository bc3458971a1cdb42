"""The contract of the linear methods on positive pairs: ``fit(X, positive=...)``."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from contrast_core._base import LinearEmbedding
from contrast_core._validation import FloatArray, MatrixLike, as_number
from contrast_core.moments import PairMoments, PairRows, check_pairs


class PositivePairEmbedding(LinearEmbedding):
    """Base of the methods that look for what two views of the same rows share."""

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"positive": True}

    def fit_transform(
        self,
        X: MatrixLike,
        y: object = None,
        *,
        positive: MatrixLike,
        **fit_params: Any,
    ) -> FloatArray:
        """Fit, then return the scores of the rows of X.

        Parameters
        ----------
        X, positive : array-like, DataFrame or sparse matrix of shape (n_pairs, n_features)
            The two views; not moments, which hold no rows to transform.
        y : ignored
        **fit_params : dict
            What else `fit` takes.

        Returns
        -------
        ndarray of shape (n_pairs, n_components)

        Raises
        ------
        TypeError
            If `X` is `PairMoments`.
        """
        if isinstance(X, PairMoments):
            raise TypeError(
                "fit_transform got PairMoments, which hold no rows to transform; call fit with "
                "the moments, then transform with the data."
            )
        fitted: Any = self.fit(X, y, positive=positive, **fit_params)
        return np.asarray(fitted.transform(X))


def positive_pairs(
    X: MatrixLike | PairMoments, positive: MatrixLike | None
) -> PairMoments | PairRows:
    """Pairs as moments, if they are or are stored, or as checked rows; at least two of them.

    Raises
    ------
    TypeError
        If `positive` is given beside `PairMoments`.
    ValueError
        If `positive` is missing, the views differ in rows or features, or there are fewer than
        two pairs.
    """
    pairs: PairMoments | PairRows
    if isinstance(X, PairMoments):
        if positive is not None:
            raise TypeError(
                f"X is PairMoments, which hold both views already, but positive is "
                f"{type(positive).__name__}; give fit(moments) alone, or data for both."
            )
        pairs = X
    else:
        if positive is None:
            raise ValueError(
                "positive=None was given; a method on positive pairs needs a second view of every "
                "row of X: fit(X, positive=...), or fit(moments) with the PairMoments of both."
            )
        x, p, names = check_pairs(X, positive)
        if "stored" in (x.place, p.place):
            pairs = PairMoments.from_data(x, p)
        else:
            pairs = PairRows(x.load(check=False), p.load(check=False), names)
    if pairs.n_pairs < 2:
        raise ValueError(
            f"X has n_samples={pairs.n_pairs} pair(s), but a variance needs at least 2."
        )
    return pairs


def check_n_effective(n_effective: object, n_pairs: int) -> float:
    """The number of independent pairs: what was given, else their number."""
    if n_effective is None:
        return float(n_pairs)
    number = as_number(n_effective, "n_effective", "a number of pairs or None")
    # Kish's number is computed with rounding.
    if not 1 < number <= n_pairs * (1 + 1e-9):
        raise ValueError(
            f"n_effective={number:g} is out of range: it must be greater than 1 and at "
            f"most the number of pairs, {n_pairs}."
        )
    return number
