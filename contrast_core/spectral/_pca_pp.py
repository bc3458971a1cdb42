"""PCA++, which finds what positive pairs share, with uncorrelated scores of unit variance."""

from __future__ import annotations

from numbers import Integral
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
from contrast_core.solve import Plan, PlannedPairs, positive_pairs, with_fallback
from contrast_core.spectral._positive_pairs import PositivePairEmbedding, check_n_effective

# A warning is given if the leading eigenvalue is below this value. Good pairs have a leading
# eigenvalue near 1, and random pairs have one of about 0.3.
_GOOD_PAIRS = 0.5
_EXPECTED = 3  # least number of eigenpairs of S for which the solver is planned


class PCAPlusPlus(PositivePairEmbedding):
    r"""PCA++: components that two views of the same rows share, despite a strong background.

    Row i of one view and row i of the other view are a positive pair: they show the same signal.
    The directions maximise the alignment of the views, under the constraint that the scores are
    uncorrelated and have unit variance ("uniformity"),

    .. math:: \max_{V^\top S V = I} \operatorname{tr} V^\top S^+ V,
        \qquad\text{so}\qquad S^+ v = \lambda S v .

    Here S is the covariance of the rows, and :math:`S^+ = (X^\top X^+ + X^{+\top} X)/2n` is the
    cross-moment of the n pairs, whose rows X and :math:`X^+` are centred. S is truncated to its
    leading s eigenpairs. The other eigenpairs are noise, which would be amplified by scaling the
    scores to unit variance. If the views are two conditions, PCA++ removes the difference between
    them, whereas cPCA keeps it.

    Parameters
    ----------
    n_components : int, default=2
        Number of components, k, from 1 to the number of features.
    truncation : "auto", int, float or None, default="auto"
        Rule for the number s of eigenpairs of S that are kept. "auto" keeps the eigenpairs above
        the Marchenko-Pastur edge :math:`\sigma^2(1+\sqrt{D/N})^2`, where D is the number of
        features and N is the number of rows from which S is estimated. The noise level
        :math:`\sigma^2` is estimated robustly (see `contrast_core.contrast.noise_bulk`). An integer
        is the number itself. A fraction up to 1 keeps the fewest eigenpairs that hold this share of
        the total variance. None keeps all eigenpairs, which suits data with many more rows than
        features.
    exchangeable : bool, default=True
        Whether the two views play the same role. If True, S is estimated from both views about
        their common mean. A shift between the views then counts as disagreement and is suppressed,
        and rows of either view can be transformed. If False, the literal form of the paper is used:
        each view has its own mean, and S is the covariance of X alone.
    weighted : bool, default=True
        Whether the scores, which have unit variance, are multiplied by the eigenvalue of their
        component, so that components on which the views agree count more.

    Attributes
    ----------
    generalized_eigenvalues_ : ndarray of shape (k,)
        Eigenvalues, descending. In the exchangeable form, they are the correlations of the views
        along each direction, from -1 to 1.
    directions_ : ndarray of shape (k, n_features)
        Generalised eigenvectors as rows, with ``directions_ @ S @ directions_.T = I``. The scores
        are the products of the rows with these directions.
    patterns_ : ndarray of shape (k, n_features)
        ``directions_ @ S``, which is the change of the features if a score changes by one. If
        signal and background overlap, the patterns span the signal, but the directions do not.
    components_ : ndarray of shape (k, n_features)
        Orthonormal rows. For every j, the first j rows span the same space as the first j
        directions.
    truncation_ : int
        Number of eigenpairs of S that were kept, s.
    detectable_ : ndarray of bool of shape (k,)
        Whether each component is detectable according to random matrix theory. This is so if
        :math:`\lambda/(1-\lambda)`, the variance of its signal in units of the noise variance,
        exceeds `contrast_core.contrast.detectable_spike`, and its eigenvalue exceeds the largest
        eigenvalue that unrelated views would give by chance.
    mean_ : ndarray of shape (n_features,)
        The common mean of the views; in the literal form, the mean of X.
    projection_, reconstruction_ : ndarrays of shape (n_features, k) and (k, n_features)
        `projection_` maps centred rows to scores and is the transpose of `directions_` times their
        weights (the eigenvalues, or 1 with ``weighted=False``). `reconstruction_` maps scores back
        and is `patterns_` divided by the weights. With the mean, they form `linear_map_`, a
        `contrast_core.spectral.LinearMap`.
    form_ : {"dense", "span", "products"}
        Form in which the covariances were held. "dense" stands for features x features matrices,
        and "span" for matrices in a basis of the span of the rows. With "products" no matrix was
        formed, and the rows themselves were multiplied.
    plan_ : contrast_core.solve.Plan
        The plan by which the eigenproblem was solved. ``plan_.reason`` says in words why this plan
        was chosen. A model file holds the plan only if it was saved with ``moments=True``.
    n_features_in_ : int
        Number of features, D.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if the data had names.

    Warns
    -----
    ContrastWarning
        If the truncation keeps at most k directions, because the components then span the same
        space as the components of PCA. A warning is also given if the leading eigenvalue is below
        0.5, which is a sign of wrong pairs, or if some components are not detectable.

    See Also
    --------
    contrast_core.contrast.expected_subspace_error : Predict the error by theory.
    contrast_core.contrast.effective_n_pairs : Count the independent pairs, if rows repeat.

    Notes
    -----
    The data are not scaled. For counts, scale features to unit variance first. Multiplying all data
    by a constant changes neither components nor scores.

    Let u be the mean of the two rows of a pair, and d half their difference, with covariances
    :math:`C_U` and :math:`C_D`. Then :math:`S^+ = C_U - C_D` and :math:`S = C_U + C_D`. PCA++ is
    therefore cPCA* with the means as foreground and the half differences as background, in the
    space of the leading eigenvectors of S. The generalised eigenproblem is
    :math:`C_U v = \rho\, C_D v` with :math:`\lambda = (\rho - 1) / (\rho + 1)`. PCA++ finds
    directions along which the means of pairs vary more than the differences within pairs. This does
    not hold for the literal form, because its S is the covariance of X alone.

    There are three ways to compute the s eigenpairs of S, which are equally exact:

    - S is formed unless the number of features and the number of rows in both views together
      exceed ``120 * (e + 22)``. Here e is the largest of 3, `n_components`, and `truncation` if it
      is an integer, so the limit is 3,000 for up to three components. If there are fewer rows than
      features, S is formed in the span of the rows.
    - For larger data no matrix is formed, and the rows are multiplied by vectors instead. This
      needs a gap between the eigenvalues s and s + 1.
    - Otherwise, a matrix with at most 10,000 rows is formed.

    Only the noise level of ``truncation="auto"`` differs between these ways. Without a matrix, the
    sum of all eigenvalues is known, but not each eigenvalue. The noise level is then the mean of
    all eigenvalues that do not stand out, instead of their median. Signals that are too weak to
    stand out raise this mean a little.

    References
    ----------
    "PCA++: How uniformity induces robustness to background noise in contrastive learning",
    eq. 4.1 to 4.3 and Appendix B.2; the exchangeable form and the weights are additions.

    Examples
    --------
    Two views share a weak signal in feature 0. Each view has its own strong background in feature
    1.

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
            The first view; or the moments of both views, without `positive`. Stored datasets are
            read in blocks and reduced to matrices of shape (n_features, n_features).
        y : ignored
        positive : array-like, DataFrame, sparse matrix or stored dataset of shape \
                (n_pairs, n_features)
            The second view, with the same features in the same order. Row i and row i of X are a
            pair.
        sample_weight : array-like of shape (n_pairs,), optional
            A weight for each pair, not negative. A pair with the weight 3 counts as three pairs.
            Pairs with weights are reduced to matrices of shape (n_features, n_features).
        n_effective : float, optional
            Effective number of independent pairs, which is smaller than the number of pairs if rows
            repeat (see `contrast_core.contrast.effective_n_pairs`). By default, it is the number of
            pairs. The automatic truncation and `detectable_` depend on it.

        Returns
        -------
        PCAPlusPlus

        Raises
        ------
        ValueError
            If the views differ in rows or features, there are fewer than two pairs, or data are not
            finite. The error is also raised if a parameter is out of range or too large for the
            rank of S, or if rows and features both exceed 10,000 and there is no gap between the
            eigenvalues s and s + 1 of S.
        TypeError
            If `positive` is given together with moments, or a parameter has the wrong type.
        """
        check_flag(self.exchangeable, "exchangeable")
        check_flag(self.weighted, "weighted")
        pairs = positive_pairs(X, positive, sample_weight)
        k = check_n_components(self.n_components, pairs.n_features)
        n_pairs = check_n_effective(n_effective, pairs.n_pairs)

        def solve(plan: Plan) -> PCAPlusPlus:
            return self._fit_planned(pairs, plan, k, n_pairs)

        asked = int(self.truncation) if isinstance(self.truncation, Integral) else 0
        n_views = 2 if self.exchangeable else 1
        with_fallback(
            pairs.plan(max(_EXPECTED, k, asked)),
            solve,
            task=f"truncation={shown(self.truncation)} of {n_views * pairs.n_pairs} rows and "
            f"{pairs.n_features} features",
            advice="Data of this size need a gap between the eigenvalues that are kept and the "
            "next one: use truncation='auto', an integer at a gap, or fewer features.",
        )
        return self

    def _fit_planned(self, pairs: PlannedPairs, plan: Plan, k: int, n_pairs: float) -> Self:
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
            Any rows with the features of the fit. Sparse input stays sparse.

        Returns
        -------
        ndarray of shape (n, n_components)
            The scores ``(X - mean_) @ directions_.T``, which have unit variance over the rows of
            the fit. Unless ``weighted=False``, they are multiplied by `generalized_eigenvalues_`.

        Raises
        ------
        ValueError
            If the features are not those of the fit, or a value is NaN or infinite.
        """
        return super().transform(X)

    def inverse_transform(self, X: MatrixLike) -> FloatArray:
        """Reconstruct rows from their scores, as the mean plus the patterns times the scores.

        Parameters
        ----------
        X : array-like of shape (n, n_components)
            Scores, as `transform` returns them.

        Returns
        -------
        ndarray of shape (n, n_features)
            The linear regression of the rows on their scores, ``u @ patterns_ + mean_``, where u
            are the scores of unit variance. `transform` of these rows gives the scores again.

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
            f"the covariance was truncated to {truncation} directions for {k} components, so they "
            "span the same space as the components of PCA. Use fewer components, or use a larger "
            "truncation if you know that more directions stand out from the noise.",
        )
    if eigenvalues[0] < _GOOD_PAIRS:
        warn(
            f"the leading generalised eigenvalue is {eigenvalues[0]:.2g}; good pairs give a value "
            "near 1, and unrelated rows give about 0.3 or less. Check that the two rows of each "
            "pair show the same thing; for cells, check donors, conditions and genes.",
        )
    elif not detectable.all():
        warn(
            f"{k - int(detectable.sum())} of {k} components are too weak to be distinguished from "
            "noise with this number of pairs and features (see detectable_). Use fewer components, "
            "more pairs or fewer features.",
        )
