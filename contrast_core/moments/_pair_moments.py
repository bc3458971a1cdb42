"""Means, covariances and cross-moment of positive pairs: all that PCA+ and PCA++ need to know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_feature_names,
    check_same_features,
    shown,
)
from contrast_core.feedback import Progress, with_progress
from contrast_core.moments._accumulator import Accumulator, not_empty
from contrast_core.moments._given import (
    check_chunks,
    check_covariance,
    check_mean,
    check_total,
    names_of_both,
)
from contrast_core.moments._second_moments import SecondMoments
from contrast_core.rows import Rows, rows_of


@dataclass(frozen=True, eq=False)
class PairMoments:
    r"""Moments of positive pairs: rows of two views that share a signal, row i with row i.

    .. math:: S_{own}^+ = \frac{1}{2n} \sum_i (x_i - \bar x)(x_i^+ - \bar x^+)^\top
        + (x_i^+ - \bar x^+)(x_i - \bar x)^\top

    Sufficient for PCA+ and PCA++ in either form: read the pairs once, then fit with any number of
    components and any truncation. Moments of parts merge into those of the whole, and pickle.

    Parameters
    ----------
    n_pairs : int
        Number of pairs, n.
    mean, positive_mean : ndarray of shape (n_features,)
        Mean of each view.
    covariance, positive_covariance : ndarray of shape (n_features, n_features)
        Covariance of each view about its own mean, divided by n.
    cross_covariance : ndarray of shape (n_features, n_features)
        Symmetrised cross-covariance of the views, each about its own mean, divided by n.
    feature_names : tuple of str, optional
        Names of the features, where the data had them.

    Raises
    ------
    ValueError, TypeError
        If these are not moments: a matrix that is not symmetric, a negative variance, shapes that
        differ, NaN or infinity, names too few or many, no pairs.

    See Also
    --------
    contrast_core.PCAPlusPlus : The method that it serves.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core import PairMoments
    >>> rng = np.random.default_rng(0)
    >>> signal = rng.normal(size=(50, 3))
    >>> X, positive = (signal + 0.1 * rng.normal(size=(50, 3)) for _ in range(2))
    >>> parts = [PairMoments.from_data(X[i], positive[i]) for i in (slice(0, 20), slice(20, 50))]
    >>> whole = PairMoments.from_data(X, positive)
    >>> bool(np.allclose(parts[0].merge(parts[1]).cross_covariance, whole.cross_covariance))
    True
    """

    n_pairs: float
    mean: FloatArray
    positive_mean: FloatArray
    covariance: FloatArray
    positive_covariance: FloatArray
    cross_covariance: FloatArray
    feature_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        mean = check_mean(self.mean, "mean")
        matrices = {
            name: check_covariance(
                getattr(self, name), name, len(mean), diagonal=name != "cross_covariance"
            )
            for name in ("covariance", "positive_covariance", "cross_covariance")
        }
        vars(self).update(
            n_pairs=check_total(self.n_pairs, "n_pairs"),
            mean=mean,
            positive_mean=check_mean(self.positive_mean, "positive_mean", len(mean)),
            feature_names=check_feature_names(self.feature_names, len(mean)),
            **matrices,
        )

    @classmethod
    def _unchecked(
        cls, n_pairs: float, *arrays: FloatArray, names: tuple[str, ...] | None
    ) -> PairMoments:
        """Moments that were worked out here, without the constructor's checks."""
        moments = object.__new__(cls)
        fields = ("mean", "positive_mean", "covariance", "positive_covariance", "cross_covariance")
        vars(moments).update(zip(fields, arrays, strict=True), n_pairs=n_pairs, feature_names=names)
        return moments

    @property
    def n_features(self) -> int:
        """Number of features, D."""
        return len(self.mean)

    @classmethod
    def from_data(
        cls,
        X: MatrixLike,
        positive: MatrixLike,
        *,
        sample_weight: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
        progress: Progress = False,
    ) -> PairMoments:
        """Moments of two matrices, in memory or not.

        Parameters
        ----------
        X, positive : array-like, DataFrame, scipy sparse matrix or stored dataset of shape \
                (n_pairs, n_features)
            The two views, row i with row i. Read in blocks of rows and accumulated in float64;
            sparse input is never made dense as a whole. An HDF5 dataset, a zarr array, the sparse
            dataset of a backed AnnData or a memory map is never in memory as a whole.
        sample_weight : array-like of shape (n_pairs,), optional
            A weight for each pair, not negative; `n_pairs` is then their sum. Whole numbers count
            pairs so many times.
        feature_names : sequence of str, optional
            Names of the features; those of a DataFrame are taken by default.
        progress : bool or callable, default=False
            Show a progress bar of the blocks read of stored datasets: tqdm's, or one that is called
            as tqdm is.

        Returns
        -------
        PairMoments

        Raises
        ------
        ValueError
            If the views differ in rows or features, are empty, or hold NaN or infinity, or a weight
            is negative.
        ImportError
            If ``progress=True`` and tqdm is not installed.
        """
        if sample_weight is not None:
            X = rows_of(X, "X", weights=sample_weight)
        return cls._from_views([(X, positive)], feature_names, progress)

    @classmethod
    def from_chunks(
        cls,
        chunks: Iterable[tuple[MatrixLike, MatrixLike]],
        *,
        feature_names: Sequence[str] | None = None,
    ) -> PairMoments:
        """Moments of pairs that arrive in blocks.

        Parameters
        ----------
        chunks : iterable of pairs of array-like or sparse matrices of shape (any, n_features)
            Blocks of the two views; each is read once and may be dropped afterwards.
        feature_names : sequence of str, optional
            Names of the features; those of the first DataFrame are taken by default.

        Returns
        -------
        PairMoments

        Raises
        ------
        ValueError
            If there is no block, blocks or views differ in their features, the views differ in
            their rows, or on NaN or infinity.
        """
        return cls._from_views(chunks, feature_names, False)

    @classmethod
    def _from_views(
        cls,
        chunks: Iterable[tuple[MatrixLike, MatrixLike]],
        feature_names: Sequence[str] | None,
        progress: Progress,
    ) -> PairMoments:
        n_features: int | None = None
        first, second, both = Accumulator(), Accumulator(), Accumulator()
        for chunk in check_chunks(chunks, "pairs of blocks (X, positive)"):
            if not isinstance(chunk, tuple | list) or len(chunk) != 2:
                raise TypeError(
                    f"a chunk is {type(chunk).__name__} {shown(chunk)}; expected a pair of blocks "
                    "of rows (X, positive)."
                )
            x, p, found = check_pairs(*chunk)
            if n_features is None:
                n_features, elements, known = x.shape[1], x.elements, found
                names = rows_of(x, names=found if feature_names is None else feature_names).names
                first, second, both = (
                    Accumulator(view, elements=elements) for view in ("X", "positive", "X")
                )
            check_same_features(
                *(n_features, known or names, x.shape[1], found), background_name="a chunk"
            )
            dense = not (x.is_sparse and p.is_sparse)
            spans = list(pairwise((p if x.in_memory and not p.in_memory else x).edges()))
            for span in with_progress(spans, len(spans), "pairs", progress or x.progress):
                a, b = (rows.read(*span, dense=dense) for rows in (x, p))
                weights = None if x.weights is None else x.weights[slice(*span)]
                first.add(a, weights)
                second.add(b, weights)
                both.add(a.astype(np.float64) + b, weights)
        x_moments, p_moments, sums = (
            not_empty(rows.result(), "X") for rows in (first, second, both)
        )
        # Polarisation: a symmetric product costs half of the general one.
        cross = sums.within
        cross -= x_moments.within
        cross -= p_moments.within
        cross /= 2
        return cls._unchecked(
            x_moments.n_samples,
            x_moments.mean,
            p_moments.mean,
            x_moments.within,
            p_moments.within,
            cross,
            names=names,
        )

    def merge(self, other: PairMoments) -> PairMoments:
        """Moments of the two sets of pairs together.

        Parameters
        ----------
        other : PairMoments
            Moments of other pairs with the same features.

        Returns
        -------
        PairMoments
            The counts add; neither operand changes.

        Raises
        ------
        ValueError
            If the features differ.
        """
        names = names_of_both(self, other, "take PairMoments.from_data of both views first")
        made = SecondMoments._unchecked
        x, p = (
            made(self.n_pairs, *mine).merge(made(other.n_pairs, *theirs))
            for mine, theirs in (
                ((self.mean, self.covariance), (other.mean, other.covariance)),
                (
                    (self.positive_mean, self.positive_covariance),
                    (other.positive_mean, other.positive_covariance),
                ),
            )
        )
        weight = other.n_pairs / x.n_samples
        shift = np.outer(other.mean - self.mean, other.positive_mean - self.positive_mean)
        cross = (1 - weight) * self.cross_covariance + weight * other.cross_covariance
        cross += (weight * (1 - weight) / 2) * (shift + shift.T)
        return PairMoments._unchecked(
            x.n_samples,
            x.mean,
            p.mean,
            x.covariance,
            p.covariance,
            cross,
            names=names,
        )

    def second_moments(self, *, exchangeable: bool = True) -> SecondMoments:
        r"""The covariance S that PCA++ whitens by.

        .. math:: S = (S_X + S_{X^+})/2 + \delta\delta^\top/4,
            \qquad \delta = \bar x - \bar x^+

        Parameters
        ----------
        exchangeable : bool, default=True
            Of the rows of both views about their common mean, as above; else of X alone.

        Returns
        -------
        SecondMoments
            With ``2 * n_pairs`` samples, or `n_pairs`.
        """
        x = SecondMoments._unchecked(self.n_pairs, self.mean, self.covariance, self.feature_names)
        if not exchangeable:
            return x
        return x.merge(
            SecondMoments._unchecked(self.n_pairs, self.positive_mean, self.positive_covariance)
        )

    def cross_moment(self, *, exchangeable: bool = True) -> FloatArray:
        r"""The cross-moment that PCA+ and PCA++ maximise.

        .. math:: S^+ = S_{own}^+ - \delta\delta^\top/4

        Parameters
        ----------
        exchangeable : bool, default=True
            About the views' common mean, as above; else each view about its own mean.

        Returns
        -------
        ndarray of shape (n_features, n_features)
        """
        if not exchangeable:
            return self.cross_covariance
        shift = (self.mean - self.positive_mean) / 2
        return np.asarray(self.cross_covariance - np.outer(shift, shift))

    def cross_moment_along(
        self, directions: FloatArray, *, exchangeable: bool = True
    ) -> FloatArray:
        """`cross_moment` between `directions`, rows (s, n_features): shape (s, s)."""
        cross = self.cross_moment(exchangeable=exchangeable)
        return np.asarray(directions @ cross @ directions.T)


def check_pairs(
    X: MatrixLike | Rows, positive: MatrixLike | Rows
) -> tuple[Rows, Rows, tuple[str, ...] | None]:
    """Rows of the two views and the features' names.

    Raises ValueError if the views differ in rows or features.
    """
    x, p = (
        # Of a dask array that does not know how many rows it has, they must be computed.
        rows if rows.shape[0] >= 0 else rows_of(rows.load(), rows.name)
        for rows in (rows_of(X, "X"), rows_of(positive, "positive"))
    )
    check_same_features(x.shape[1], x.names, p.shape[1], p.names, background_name="positive")
    if x.shape[0] != p.shape[0]:
        raise ValueError(
            f"positive has n_samples={p.shape[0]} but X has n_samples={x.shape[0]}; row i of one "
            "is paired with row i of the other, so both need the same number. Repeat rows that "
            "have several partners, and say how many pairs that is worth by n_effective."
        )
    return x, p, x.names or p.names
