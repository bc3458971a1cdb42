"""PCA++: contrastive PCA of positive pairs under hard uniformity."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_flag,
    check_n_components,
    shown,
)
from contrast_core.contrast import (
    Truncation,
    signal_is_detectable,
    truncated_eigenpairs,
)
from contrast_core.feedback import warn
from contrast_core.linalg import fix_signs, leading_eigenpairs, orthonormal_rows
from contrast_core.moments import PairMoments
from contrast_core.solve import Plan, PositivePairs, positive_pairs, with_fallback
from contrast_core.spectral._positive_pairs import PositivePairEmbedding, check_n_effective

_GOOD_PAIRS = 0.5  # a leading eigenvalue of good pairs is near 1; random ones give about 0.3


class PCAPlusPlus(PositivePairEmbedding):
    r"""PCA++: components that two views of the same rows share, despite a strong background.

    The directions maximise the alignment of the views, under the constraint that the scores are
    uncorrelated with unit variance ("uniformity"),

    .. math:: \max_{V^\top S V = I} \operatorname{tr} V^\top S^+ V,
        \qquad\text{so}\qquad S^+ v = \lambda S v,

    where S is the covariance of the rows and :math:`S^+ = (X^\top X^+ + X^{+\top} X)/2n` is the
    cross-moment of the pairs. S is truncated to its leading s eigenpairs, because the other ones
    are noise, which whitening would amplify. PCA++ removes the difference between two conditions,
    whereas cPCA keeps it.

    Parameters
    ----------
    n_components : int, default=2
        Number of components, k, from 1 to the number of features.
    truncation : "auto", int, float or None, default="auto"
        Rule for the number of eigenpairs of S that are kept, s. "auto" keeps those above the
        Marchenko-Pastur edge :math:`\sigma^2(1+\sqrt{D/n})^2`, with a robust estimate of the noise
        level :math:`\sigma^2` (see `contrast_core.contrast.noise_bulk`). An integer is the number
        itself. A fraction up to 1 keeps the fewest that hold this share of the total variance. None
        keeps all, for data with many more rows than features.
    exchangeable : bool, default=True
        Whether the two views play the same role. If True, S is estimated from both views about
        their common mean. A shift between the views then counts as disagreement and is suppressed,
        and rows of either view can be transformed. False is the literal form of the paper: each
        view has its own mean, and S is the covariance of X alone.
    weighted : bool, default=True
        Whether the scores, which have unit variance, are multiplied by the eigenvalue of their
        component, so that components on which the views agree count more.

    Attributes
    ----------
    generalized_eigenvalues_ : ndarray of shape (k,)
        Eigenvalues, descending: the correlation of the views along each direction, from -1 to 1
        in the exchangeable form.
    directions_ : ndarray of shape (k, n_features)
        Generalised eigenvectors as rows, with ``directions_ @ S @ directions_.T = I``. They are the
        filters that give the scores.
    patterns_ : ndarray of shape (k, n_features)
        ``directions_ @ S``: the change of the features for a unit of each score. If signal and
        background overlap, the patterns span the signal, but the filters do not.
    components_ : ndarray of shape (k, n_features)
        Orthonormal rows. For every j, the first j rows span the same space as the first j
        directions.
    truncation_ : int
        Number of eigenpairs of S that were kept, s.
    detectable_ : ndarray of bool of shape (k,)
        Whether each component is detectable according to random matrix theory: its spike
        :math:`\lambda/(1-\lambda)` exceeds `contrast_core.contrast.detectable_spike`, and its
        eigenvalue exceeds the largest one that unrelated views would give by chance.
    mean_ : ndarray of shape (n_features,)
        The common mean of the views; in the literal form, the mean of X.
    projection_, reconstruction_ : ndarrays of shape (n_features, k) and (k, n_features)
        `directions_` times their weights, which map centred rows to scores, and `patterns_` divided
        by the weights, which map scores back. With the mean, they form `linear_map_`, a
        `contrast_core.spectral.LinearMap`.
    form_ : {"dense", "span", "products"}
        Form in which the covariances were held: as a matrix of the features, as a matrix in the
        span of the rows, or as the rows themselves.
    plan_ : contrast_core.solve.Plan
        The plan that was followed; ``plan_.reason`` gives the reason. A file holds it only
        if it was saved with ``moments=True``.
    n_features_in_ : int
        Number of features, D.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if the data had names.

    Warns
    -----
    ContrastWarning
        If the truncation keeps at most k directions, so that the components span the same space as
        those of PCA; if the leading eigenvalue is below 0.5, which is a sign of wrong pairs; or if
        some components are not detectable.

    See Also
    --------
    contrast_core.contrast.expected_subspace_error : The error that theory predicts.
    contrast_core.contrast.effective_n_pairs : Number of independent pairs, if rows repeat.

    Notes
    -----
    The data are not scaled. For counts, scale features to unit variance first. If `truncation` is a
    number, multiplying all data by a constant changes neither components nor scores.

    Let u be the mean and d half the difference of each pair. Then :math:`S^+ = C_U - C_D` and
    :math:`S = C_U + C_D`. So PCA++ is cPCA* of the means against the half differences, the
    generalised eigenproblem :math:`C_U v = \rho\, C_D v` with :math:`\lambda = (\rho - 1) /
    (\rho + 1)`, solved in the space of the leading eigenvectors of S. It finds directions along
    which the means of pairs vary more than the differences within pairs. This does not hold for the
    literal form, whose S is the covariance of X alone.

    S is formed unless the rows of both views and the features all exceed 3,000; data with fewer
    rows than features are solved in the span of their rows. Larger data are solved by products with
    the rows if there is a gap behind the s-th eigenvalue, and otherwise by a matrix with at most
    10,000 rows. The s eigenpairs are equally exact in all three cases. Only the noise level of
    ``truncation="auto"`` differs: without a matrix, the sum of the spectrum is known but not the
    spectrum, so the level is the mean of all eigenvalues that do not stand out, instead of their
    median. Signals that are too weak to stand out raise that mean a little.

    References
    ----------
    "PCA++: How uniformity induces robustness to background noise in contrastive learning",
    eq. 4.1 to 4.3 and Appendix B.2; the exchangeable form and the weights are additions.

    Examples
    --------
    Two views share a weak signal in feature 0; each has its own strong background in feature 1.

    >>> import numpy as np
    >>> from contrast_core import PCAPlusPlus
    >>> rng = np.random.default_rng(0)
    >>> signal = 3 * rng.normal(size=(300, 1)) * np.eye(40)[0]
    >>> def view():
    ...     background = 30 * rng.normal(size=(300, 1)) * np.eye(40)[1]
    ...     return signal + background + rng.normal(size=(300, 40))
    >>> X, positive = view(), view()
    >>> pca_pp = PCAPlusPlus(1).fit(X, positive=positive)
    >>> int(np.abs(pca_pp.components_[0]).argmax()), pca_pp.truncation_
    (0, 2)
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = dict.fromkeys(
        ("positive", "n_effective", "sample_weight"), True
    )

    generalized_eigenvalues_: FloatArray
    directions_: FloatArray
    patterns_: FloatArray
    truncation_: int
    detectable_: NDArray[np.bool_]

    def __init__(
        self,
        n_components: int = 2,
        *,
        truncation: Truncation = "auto",
        exchangeable: bool = True,
        weighted: bool = True,
    ) -> None:
        self.n_components = n_components
        self.truncation = truncation
        self.exchangeable = exchangeable
        self.weighted = weighted

    def fit(
        self,
        X: MatrixLike | PairMoments,
        y: object = None,
        *,
        positive: MatrixLike | None = None,
        sample_weight: ArrayLike | None = None,
        n_effective: float | None = None,
    ) -> Self:
        """Fit from two views of the same rows, or from their moments.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, stored dataset of shape (n_pairs, n_features) \
                or PairMoments
            The first view; or the moments of both, `positive` then being left out. Stored datasets
            are read in blocks, into matrices of features x features.
        y : ignored
        positive : array-like, DataFrame, sparse matrix or stored dataset of shape \
                (n_pairs, n_features)
            The second view, row i with row i of X, the same features in the same order.
        sample_weight : array-like of shape (n_pairs,), optional
            A weight for each pair, not negative; a pair with the weight 3 counts as three. Pairs
            with weights are reduced to matrices of features x features.
        n_effective : float, optional
            How many independent pairs the pairs are worth, where rows repeat (see
            `contrast_core.contrast.effective_n_pairs`); by default their number.
            The automatic truncation and `detectable_` depend on it.

        Returns
        -------
        PCAPlusPlus

        Raises
        ------
        ValueError
            If the views differ in rows or features, there are fewer than two pairs, data are not
            finite, a parameter is out of range, S has too low a rank for it, or there are more
            than 10,000 rows and features and no gap behind the s-th eigenvalue of S.
        TypeError
            If `positive` is given beside moments, or a parameter has the wrong type.
        """
        check_flag(self.exchangeable, "exchangeable")
        check_flag(self.weighted, "weighted")
        pairs = positive_pairs(X, positive, sample_weight)
        k = check_n_components(self.n_components, pairs.n_features)
        n_pairs = check_n_effective(n_effective, pairs.n_pairs)

        def solve(plan: Plan) -> PCAPlusPlus:
            return self._fit_planned(pairs, plan, k, n_pairs)

        n_views = 2 if self.exchangeable else 1
        with_fallback(
            pairs.plan,
            solve,
            task=f"truncation={shown(self.truncation)} of {n_views * pairs.n_pairs} rows and "
            f"{pairs.n_features} features",
            advice="Data of this size need a gap there: use truncation='auto', an integer where "
            "the eigenvalues have a gap, or fewer features.",
        )
        return self

    def _fit_planned(self, pairs: PositivePairs, plan: Plan, k: int, n_pairs: float) -> Self:
        moments = pairs.moments(plan.form, exchangeable=self.exchangeable)
        whole = moments.second_moments(exchangeable=self.exchangeable)  # S
        n_rows = 2 * n_pairs if self.exchangeable else n_pairs
        variances, inner = truncated_eigenpairs(whole, self.truncation, k, n_rows, plan)
        spread = np.sqrt(variances)[:, None]
        alignment = moments.cross_moment_along(inner / spread, exchangeable=self.exchangeable)
        eigenvalues, rotation = leading_eigenpairs(alignment, k)
        vectors = whole.lift(inner)
        whitening, root = vectors / spread, vectors * spread  # S truncated is root^T root
        directions = fix_signs(rotation @ whitening)
        detectable = signal_is_detectable(
            eigenvalues, whole, len(variances), n_pairs, exchangeable=self.exchangeable
        )
        _warn_of_weak_results(eigenvalues, detectable, len(variances), pairs.n_features)
        return self._set_fitted(
            moments.feature_names,
            plan_=plan,
            mean_=whole.mean,
            components_=orthonormal_rows(directions),
            generalized_eigenvalues_=eigenvalues,
            directions_=directions,
            patterns_=directions @ root.T @ root,
            truncation_=len(variances),
            detectable_=detectable,
        )

    @property
    def _weights(self) -> FloatArray:
        if self.weighted:
            return self.generalized_eigenvalues_
        return np.ones_like(self.generalized_eigenvalues_)

    @property
    def projection_(self) -> FloatArray:
        """Return the map from centred rows to scores, (n_features, k)."""
        return (self.directions_ * self._weights[:, None]).T

    @property
    def reconstruction_(self) -> FloatArray:
        """Return the map from scores to centred rows, (k, n_features)."""
        weights = self._weights[:, None]
        return np.divide(
            self.patterns_, weights, out=np.zeros_like(self.patterns_), where=weights != 0
        )

    def transform(self, X: MatrixLike) -> FloatArray:
        """Return the scores of rows of either view.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n, n_features)
            Rows from anywhere; sparse input stays sparse.

        Returns
        -------
        ndarray of shape (n, n_components)
            ``(X - mean_) @ directions_.T``, of unit variance over the rows that were fitted, times
            `generalized_eigenvalues_` unless ``weighted=False``.

        Raises
        ------
        ValueError
            If the features are not those of the fit, or a value is NaN or infinite.
        """
        return super().transform(X)

    def inverse_transform(self, X: MatrixLike) -> FloatArray:
        """Return rows of feature space from their scores: the mean plus the scores' patterns.

        Parameters
        ----------
        X : array-like of shape (n, n_components)
            Scores, as `transform` returns them.

        Returns
        -------
        ndarray of shape (n, n_features)
            The linear regression of the rows on their scores, ``u @ patterns_ + mean_`` with u the
            scores of unit variance; transforming it gives the scores again.

        Raises
        ------
        ValueError
            If the number of columns is not the number of components.
        """
        return super().inverse_transform(X)


def _warn_of_weak_results(
    eigenvalues: FloatArray, detectable: NDArray[np.bool_], truncation: int, n_features: int
) -> None:
    k = len(eigenvalues)
    if truncation <= k < n_features:
        warn(
            f"S was truncated to {truncation} directions for {k} components, which therefore span "
            "what those of PCA of S do. Use fewer components, or a larger truncation if you know "
            "that more directions than that stand out of the noise.",
        )
    if eigenvalues[0] < _GOOD_PAIRS:
        warn(
            f"the leading generalised eigenvalue is {eigenvalues[0]:.2g}; good pairs give one near "
            "1, unrelated rows one of about 0.3 or less. Check that the two rows of each pair show "
            "the same thing; for cells, check donors, conditions and genes.",
        )
    elif not detectable.all():
        warn(
            f"{k - int(detectable.sum())} of {k} components are too weak to be told from noise "
            "with this number of pairs and features (detectable_). Use fewer components, more "
            "pairs or fewer features.",
        )
