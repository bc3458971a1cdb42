"""Positive pairs as two ordinary datasets: the pairs' means and their half differences.

Problem: compute the two symmetric matrices of PCA+ and PCA++ from moments of ordinary datasets. A
pair consists of a row x of one dataset, X, and a row x+ of another, X+ (the two views). Let U have
the rows u = (x + x+)/2 and let D have the rows d = (x - x+)/2, one for each pair. Then the
symmetric cross-moment S+ of the views and the covariance S of all rows, if each view is centred by
its own mean, are

    S+ = (C_XX+ + C_X+X) / 2 = C_U - C_D,      S = (C_X + C_X+) / 2 = C_U + C_D,

because x = u + d and x+ = u - d (polarisation). Therefore PCA+ is cPCA with the foreground U, the
background D and alpha = 1, and PCA++ is cPCA* with the same foreground and background.

In the exchangeable form, both views are centred by their common mean, so that a shift between the
views counts as disagreement. The second moment of D is then taken about zero. It equals C_D plus
the covariance of the two points +delta/2 and -delta/2, where delta is the difference of the views'
means. The literal form of the PCA++ paper ("PCA++: How uniformity induces robustness to background
noise in contrastive learning") instead needs a third matrix, the covariance of the first view.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from contrast_core._validation import FloatArray, MatrixLike, check_same_features, shown
from contrast_core.feedback import Progress, with_progress
from contrast_core.moments._accumulator import Accumulator, not_empty
from contrast_core.moments._feature_moments import FeatureMoments
from contrast_core.moments._given import check_chunks, names_of_both
from contrast_core.moments._moments import Form, Moments
from contrast_core.moments._products import ProductMoments, Term, product_moments
from contrast_core.moments._second_moments import SecondMoments
from contrast_core.moments._span import SpanMoments, span_moments
from contrast_core.moments._weighted_sum import weighted_sum
from contrast_core.rows import Rows, rows_of


@dataclass(frozen=True, eq=False)
class PairMoments:
    r"""Moments of positive pairs: moments of their means, half differences, and first views.

    PCA+ and PCA++ need only these moments. Read the pairs once, and then fit with any number of
    components and any `truncation` (a parameter of `PCAPlusPlus`). Moments of
    parts of a dataset can be merged and pickled.

    Parameters
    ----------
    average : SecondMoments
        Moments of the pairs' means ``(x + x+) / 2``.
    difference : SecondMoments
        Moments of the pairs' half differences ``(x - x+) / 2``.
    first : SecondMoments, optional
        Moments of the first view, x. Only ``exchangeable=False`` needs them.

    Raises
    ------
    ValueError, TypeError
        If the numbers of rows or the features of these moments differ.

    See Also
    --------
    contrast_core.PCAPlusPlus : The method that uses these moments.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core import CPCA, PCAPlus
    >>> from contrast_core.linalg import subspace_error
    >>> from contrast_core.moments import PairMoments
    >>> rng = np.random.default_rng(0)
    >>> signal = rng.normal(size=(50, 3))
    >>> X, positive = (signal + 0.1 * rng.normal(size=(50, 3)) for _ in range(2))
    >>> pairs = PairMoments.from_data(X, positive)
    >>> contrast = CPCA(1, alpha=1.0).fit(pairs.average, background=pairs.difference)
    >>> pca_plus = PCAPlus(1, exchangeable=False).fit(pairs)
    >>> subspace_error(contrast.components_, pca_plus.components_) < 1e-12
    True
    """

    average: Moments
    difference: Moments
    first: Moments | None = None
    # Moments of the points +delta/2 and -delta/2; if None, they are computed from `difference`.
    _shift: Moments | None = field(default=None, repr=False)
    # Moments with the covariance S. They are given only in the form "products", in which S is not
    # formed as a matrix: multiplying columns by S then costs less than multiplying them by both C_U
    # and C_D.
    _both: Moments | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("difference", "first"):
            other = getattr(self, name)
            if name == "first" and other is None:
                continue
            if not isinstance(other, Moments) or other.n_samples != self.average.n_samples:
                raise ValueError(
                    f"{name} is {shown(other)}; expected moments of as many rows as `average`, "
                    f"{self.average.n_samples}."
                )
            check_same_features(
                *(self.average.n_features, self.average.feature_names),
                *(other.n_features, other.feature_names),
                background_name=name,
            )

    @property
    def n_pairs(self) -> float:
        """Number of pairs, n, or their total weight."""
        return self.average.n_samples

    @property
    def n_features(self) -> int:
        """Number of features, D."""
        return self.average.n_features

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, if the data had names."""
        return self.average.feature_names

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
        """Return the moments of the pairs of rows of two matrices, in memory or not.

        Parameters
        ----------
        X, positive : array-like, DataFrame, scipy sparse matrix or stored dataset of shape \
                (n_pairs, n_features)
            The two views. Row i of X is paired with row i of `positive`. They are read in blocks
            of rows and accumulated in float64. Sparse input is never made dense as a whole. An HDF5
            dataset, a zarr array, the sparse dataset of a backed AnnData or a memory map is never
            in memory as a whole.
        sample_weight : array-like of shape (n_pairs,), optional
            A weight for each pair, not negative; `n_pairs` is then the sum of the weights. A pair
            with a whole number as its weight counts as that many pairs.
        feature_names : sequence of str, optional
            Names of the features; by default the column names, if the views are DataFrames.
        progress : bool or callable, default=False
            Whether to show tqdm's progress bar of the blocks that are read. A function is called in
            the place of tqdm.

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
        return _in_features([(X, positive)], feature_names, progress)

    @classmethod
    def from_chunks(
        cls,
        chunks: Iterable[tuple[MatrixLike, MatrixLike]],
        *,
        feature_names: Sequence[str] | None = None,
    ) -> PairMoments:
        """Return the moments of pairs that arrive in blocks.

        Parameters
        ----------
        chunks : iterable of pairs of array-like or sparse matrices of shape (any, n_features)
            Blocks of the two views; each is read once and may be dropped afterwards.
        feature_names : sequence of str, optional
            Names of the features; by default the column names of the first DataFrame.

        Returns
        -------
        PairMoments

        Raises
        ------
        ValueError
            If there is no block, the blocks or the views differ in their features, the views have
            different numbers of rows, or a value is NaN or infinite.
        """
        return _in_features(check_chunks(chunks, "pairs of blocks (X, positive)"), feature_names)

    def merge(self, other: PairMoments) -> PairMoments:
        """Return the moments of the two sets of pairs together; neither operand changes.

        Raises ValueError if the features differ, and TypeError if `other` is not `PairMoments`.
        """
        names_of_both(self, other, "take PairMoments.from_data of both views first")
        parts: Any = [
            (getattr(self, name), getattr(other, name))
            for name in ("average", "difference", "first")
        ]
        return PairMoments(
            *(
                ours.merge(theirs)
                for ours, theirs in parts
                if ours is not None and theirs is not None
            )
        )

    def disagreement(self, *, exchangeable: bool = True) -> Moments:
        """Return the second moments of the half differences.

        The second moments are taken about zero if `exchangeable` is true, and otherwise about the
        mean of the half differences.
        """
        if not exchangeable:
            return self.difference
        shift = self._shift
        if shift is None:
            half = self.difference.mean
            shift = SecondMoments._unchecked(2, np.zeros(len(half)), np.outer(half, half))
        return weighted_sum((self.difference, shift), (1.0, 1.0), self.n_pairs)

    def second_moments(self, *, exchangeable: bool = True) -> Moments:
        r"""Return the covariance S that PCA++ whitens by.

        .. math:: S = (C_X + C_{X^+})/2 + \delta\delta^\top/4,
            \qquad \delta = \bar x - \bar x^+

        Here :math:`C_X` and :math:`C_{X^+}` are the covariances of the two views, each about its
        own mean, :math:`\bar x` or :math:`\bar x^+`.

        Parameters
        ----------
        exchangeable : bool, default=True
            If True, the result is S as above, the covariance of the rows of both views about their
            common mean. If False, it is the covariance of X alone.

        Returns
        -------
        Moments
            Their `n_samples` is ``2 * n_pairs``, or `n_pairs` if `exchangeable` is false.
        """
        if exchangeable and self._both is not None:
            return self._both
        if exchangeable:
            parts = (self.average, self.disagreement())
            return weighted_sum(parts, (1.0, 1.0), 2 * self.n_pairs, self.average.mean)
        if self.first is None:
            raise ValueError(
                "these PairMoments do not hold `first`, which exchangeable=False needs. Compute "
                "them with PairMoments.from_data."
            )
        return self.first

    def cross_moment(self, *, exchangeable: bool = True) -> FloatArray:
        r"""Return the cross-moment that PCA+ and PCA++ maximise, as a square matrix.

        .. math:: S^+ = C_U - C_D - \delta\delta^\top/4

        Here :math:`C_U` and :math:`C_D` are the covariances of the pairs' means and half
        differences, and :math:`\delta` is the difference of the means of the two views. Rows and
        columns of the matrix are the features, or coordinates in the span of the data if the
        moments have the form "span".

        Parameters
        ----------
        exchangeable : bool, default=True
            If True, both views are centred by their common mean, as above. If False, each view is
            centred by its own mean.
        """
        other = self.disagreement(exchangeable=exchangeable)
        return np.asarray(self.average.matrix() - other.matrix())

    def cross_moment_along(
        self, directions: FloatArray, *, exchangeable: bool = True
    ) -> FloatArray:
        """Return ``V S+ V^T``, of shape (s, s), where the s rows of V are the directions.

        The directions are given in the same coordinates as the matrix S+ of `cross_moment`.
        """
        other = self.disagreement(exchangeable=exchangeable)
        cross = directions @ (self.average.apply(directions.T) - other.apply(directions.T))
        return np.asarray((cross + cross.T) / 2)


class PairRows(Rows):
    """Means or half differences of the pairs of rows of two datasets, computed block by block.

    `sign` is 1 for means and -1 for half differences.
    """

    def __init__(self, x: Rows, p: Rows, sign: float, names: tuple[str, ...] | None) -> None:
        super().__init__(
            (x, p), x.shape, np.dtype(np.float64), name="X", names=names, elements=x.elements
        )
        self._sign = sign
        self.is_sparse = x.is_sparse and p.is_sparse

    def read(self, start: int, stop: int, *, dense: bool = False, check: bool = True) -> Any:
        """Return the means or half differences of the pairs `start` to `stop`."""
        dense = dense or not self.is_sparse
        blocks = (rows.read(start, stop, dense=dense, check=check) for rows in self._source)
        return self._join(*blocks)

    def _read(self, start: int, stop: int) -> Any:
        return self.read(start, stop, check=False)

    def read_columns(self, which: slice, *, check: bool = True) -> Any:
        """Return some columns of all pairs as an ndarray."""
        return self._join(*(rows.read_columns(which, check=check) for rows in self._source))

    def _join(self, a: Any, b: Any) -> Any:
        a = a.astype(np.float64, copy=False)
        half = a + b if self._sign > 0 else a - b
        half *= 0.5
        return half


def pair_moments(X: Rows, positive: Rows, form: Form, *, exchangeable: bool = True) -> PairMoments:
    """Return the moments, in the given form, of pairs that are in memory.

    If `exchangeable` is false, they include the moments of the first view, which the literal form
    of the paper needs.
    """
    x, p, names = check_pairs(X, positive)
    if form == "dense":
        return _in_features([(x, p)], names, with_first=not exchangeable)
    pairs = [PairRows(x, p, sign, names) for sign in (1.0, -1.0)]
    if x.is_sparse and p.is_sparse:  # combine the views once instead of at every product
        options: Any = {"names": names, "elements": x.elements}
        pairs = [rows_of(rows.load(), "X", **options) for rows in pairs]  # type: ignore[misc]
    views = [FeatureMoments.from_data(rows, check=True) for rows in (x, p)]
    shift = 0.5 * (views[0].mean - views[1].mean)
    if exchangeable:
        points = np.stack([shift, -shift])
        points = csr_array(points) if pairs[0].is_sparse else points
        pairs.append(rows_of(points, "X", names=names))  # type: ignore[arg-type]
    n = x.shape[0]
    if form == "products":
        made = product_moments(pairs, names)
        if not exchangeable:
            return PairMoments(made[0], made[1], product_moments([x], names)[0])
        # S is the covariance of all rows of both views about their common mean, so it is computed
        # from the views themselves.
        mean = made[0].mean
        terms = tuple(Term.from_rows(rows, 0.5 / n, mean) for rows in (x, p))
        variances = 0.5 * (views[0].variance + views[1].variance) + shift**2
        both = ProductMoments(2 * n, mean, variances, terms, feature_names=names)
        return PairMoments(made[0], made[1], None, made[2], both)
    in_span: Any = span_moments(pairs)
    if exchangeable:
        return PairMoments(in_span[0], in_span[1], None, in_span[2])
    # Because x = u + d, the coordinates of the first view are the sum of the coordinates of the
    # means u and of the half differences d.
    space = in_span[0].space
    coordinates = space.factor.coordinates()
    first_view = coordinates[:n] + coordinates[n:]
    covariance = first_view.T @ first_view / n
    first = SpanMoments(n, views[0].mean, views[0].variance, covariance, space, names)
    return PairMoments(in_span[0], in_span[1], first)


def _in_features(
    chunks: Iterable[tuple[Any, Any]],
    feature_names: Sequence[str] | None,
    progress: Progress = False,
    *,
    with_first: bool = True,
) -> PairMoments:
    """Compute the moments of pairs as matrices of the features, in one pass over both views."""
    sums: list[Accumulator] = []
    for chunk in chunks:
        if not isinstance(chunk, tuple | list) or len(chunk) != 2:
            raise TypeError(
                f"a chunk is {type(chunk).__name__} {shown(chunk)}; expected a pair of blocks "
                "of rows (X, positive)."
            )
        x, p, own_names = check_pairs(*chunk)
        if not sums:
            n_features, known = x.shape[1], own_names
            names = rows_of(x, names=own_names if feature_names is None else feature_names).names
            sums = [Accumulator("X", elements=x.elements) for _ in range(2 + with_first)]
        check_same_features(
            *(n_features, known or names, x.shape[1], own_names), background_name="a chunk"
        )
        dense = not (x.is_sparse and p.is_sparse)
        spans = list(pairwise((p if x.in_memory and not p.in_memory else x).edges()))
        for span in with_progress(spans, len(spans), "pairs", progress or x.progress):
            a, b = (rows.read(*span, dense=dense) for rows in (x, p))
            weights = None if x.weights is None else x.weights[slice(*span)]
            for each, block in zip(sums, (*_halves(a, b), a), strict=False):
                each.add(block, weights)
    totals = [not_empty(each.result(), "X") for each in sums or [Accumulator()]]
    make = SecondMoments._unchecked
    return PairMoments(*(make(each.n_samples, each.mean, each.within, names) for each in totals))


def _halves(a: Any, b: Any) -> tuple[Any, Any]:
    """Return means and half differences of two blocks of rows, computed in float64."""
    a = a.astype(np.float64)
    return (a + b) * 0.5, (a - b) * 0.5


def check_pairs(
    X: MatrixLike | Rows, positive: MatrixLike | Rows
) -> tuple[Rows, Rows, tuple[str, ...] | None]:
    """Return the rows of the two views and the features' names.

    Raises ValueError if the views differ in rows or features.
    """
    x, p = (
        # A dask array with an unknown number of rows must be computed first.
        rows if rows.shape[0] >= 0 else rows_of(rows.load(), rows.name)
        for rows in (rows_of(X, "X"), rows_of(positive, "positive"))
    )
    check_same_features(x.shape[1], x.names, p.shape[1], p.names, background_name="positive")
    if x.shape[0] != p.shape[0]:
        raise ValueError(
            f"positive has n_samples={p.shape[0]} but X has n_samples={x.shape[0]}; row i of one "
            "is paired with row i of the other, so both need the same number of rows. Repeat rows "
            "that have several partners, and give the effective number of pairs to "
            "PCAPlusPlus.fit as n_effective."
        )
    return x, p, x.names or p.names
