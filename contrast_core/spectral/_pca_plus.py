"""PCA+, which finds what the views of positive pairs share by maximising their alignment."""

from __future__ import annotations

from typing import Self

from numpy.typing import ArrayLike

from contrast_core._validation import FloatArray, MatrixLike, check_flag, check_n_components
from contrast_core.feedback import warn
from contrast_core.moments import PairMoments
from contrast_core.solve import Plan, positive_pairs, solve_contrasts, with_fallback
from contrast_core.spectral._cpca import n_without_contrast
from contrast_core.spectral._positive_pairs import PositivePairEmbedding


class PCAPlus(PositivePairEmbedding):
    r"""PCA+: PCA of the cross-moment of positive pairs, which shows what the two views share.

    A positive pair consists of two rows that show the same signal. The first rows of all pairs are
    one view, and the second rows are the other view. The components maximise the alignment of the
    views,

    .. math:: \max_{V^\top V = I} \operatorname{tr} V^\top S^+ V, \qquad
        S^+ = \frac{1}{2n}\sum_i \bigl(x_i x_i^{+\top} + x_i^+ x_i^\top\bigr) .

    Here :math:`x_i` and :math:`x_i^+` are the two rows of pair i, one from each view, centred. Let
    u be the mean of the two rows of a pair, and d half their difference, with covariances
    :math:`C_U` and :math:`C_D`. Then :math:`S^+ = C_U - C_D`. PCA+ is therefore contrastive PCA
    with the means as foreground, the half differences as background, and the contrast strength 1.

    Background and noise are independent between the views, so they cancel in expectation. If there
    are many features, a strong background does not cancel in a sample. In that case use
    `PCAPlusPlus`.

    Parameters
    ----------
    n_components : int, default=2
        Number of components, k, from 1 to the number of features.
    exchangeable : bool, default=True
        Whether both views are centred by their common mean, so that a shift between them reduces
        the alignment. With False, each view is centred by its own mean (the paper's form).

    Attributes
    ----------
    components_ : ndarray of shape (k, n_features)
        Orthonormal rows; the entry of largest magnitude in each is positive.
    alignment_ : ndarray of shape (k,)
        Eigenvalues of S+, descending. They are the variances that the views share along each
        component.
    mean_ : ndarray of shape (n_features,)
        The common mean of the views if `exchangeable` is True, and the mean of X otherwise.
    projection_, reconstruction_ : ndarrays of shape (n_features, k) and (k, n_features)
        `projection_` is ``components_.T`` and maps centred rows to scores. `reconstruction_` is
        ``components_`` and maps scores back. With the mean, they form `linear_map_`, a
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

    See Also
    --------
    PCAPlusPlus : PCA+ with a constraint that removes a strong background.

    Notes
    -----
    If there are more features than rows, the problem is solved in the span of the rows. If the
    number of features and the number of rows in both views together exceed ``120 * (k + 22)`` or
    10,000, S+ is not formed, but only multiplied by vectors, as in `PCAPlusPlus`. If this does not
    converge, a matrix with at most 10,000 rows is formed. The results are equally exact.

    References
    ----------
    "PCA++: How uniformity induces robustness to background noise in contrastive learning",
    eq. 3.3.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core import PCAPlus
    >>> rng = np.random.default_rng(0)
    >>> signal = 3 * rng.normal(size=(200, 1)) * np.eye(5)[0]
    >>> X, positive = (signal + rng.normal(size=(200, 5)) for _ in range(2))
    >>> pca_plus = PCAPlus(1).fit(X, positive=positive)
    >>> bool(abs(pca_plus.components_[0, 0]) > 0.99)
    True
    """

    alignment_: FloatArray

    def __init__(self, n_components: int = 2, *, exchangeable: bool = True) -> None:
        self.n_components = n_components
        self.exchangeable = exchangeable

    def fit(
        self,
        X: MatrixLike | PairMoments,
        y: object = None,
        *,
        positive: MatrixLike | None = None,
        sample_weight: ArrayLike | None = None,
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

        Returns
        -------
        PCAPlus

        Raises
        ------
        ValueError
            If the views differ in rows or features, there are fewer than two pairs, data are not
            finite, or `n_components` is out of range. The error is also raised if rows and features
            both exceed 10,000 and there is no gap between the eigenvalues k and k + 1 of S+.
        TypeError
            If `positive` is given together with moments, or a parameter has the wrong type.
        """
        check_flag(self.exchangeable, "exchangeable")
        pairs = positive_pairs(X, positive, sample_weight)
        k = check_n_components(self.n_components, pairs.n_features)

        def solve(plan: Plan) -> PCAPlus:
            moments = pairs.moments(plan.form, exchangeable=self.exchangeable)
            other = moments.disagreement(exchangeable=self.exchangeable)
            [found] = solve_contrasts(moments.average, other, [1.0], k, plan)
            if n_zero := n_without_contrast(found, 1.0):
                warn(
                    f"the two views have nothing in common along {n_zero} of {k} components, which "
                    "are arbitrary: their alignment is 0. Is one of the views constant?"
                )
            mean = moments.average.mean
            return self._set_fitted(
                moments.feature_names,
                plan_=plan,
                mean_=mean if self.exchangeable else mean + moments.difference.mean,
                components_=found.components,
                alignment_=found.values,
            )

        with_fallback(
            pairs.plan(k),
            solve,
            task=f"PCA+ of {pairs.n_pairs} pairs and {pairs.n_features} features",
            advice=f"Data of this size need a gap between eigenvalues {k} and {k + 1}: use another "
            "number of components or fewer features.",
        )
        return self
