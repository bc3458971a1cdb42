"""Sparse contrastive PCA, whose components involve few features each."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Literal, Self

import numpy as np
from sklearn.base import clone

from contrast_core._linear_map import LinearMap
from contrast_core._moment_contrast import MomentContrast
from contrast_core._strength import StrengthPath, ascending
from contrast_core._validation import (
    FloatArray,
    check_count,
    check_n_components,
    check_number,
    numbers_of,
    shown,
)
from contrast_core.feedback import warn
from contrast_core.linalg import Eigenpairs, fix_signs, sparse_components
from contrast_core.moments import Moments
from contrast_core.solve import (
    Plan,
    contrast_index,
    n_positive,
    plan_for,
    positive_part,
)
from contrast_core.spectral._cpca import choose_alpha, default_alphas

_DEFAULT_PENALTY = 0.3
_LARGEST_RIDGE = 1e12  # with a larger ridge, rounding errors would be as large as C(alpha)


class SparseCPCA(StrengthPath, MomentContrast):
    r"""Sparse contrastive PCA, whose components involve few features each.

    The method is elastic-net sparse PCA of the positive part of the contrast,
    :math:`C_+ = \sum_i \lambda_i v_i v_i^\top`, where :math:`(\lambda_i, v_i)` are *all* positive
    eigenpairs of :math:`C(\alpha) = C_X - \alpha\, C_Y`, the contrast of the covariances of
    foreground and background. For matrices A and B with the columns :math:`a_j` and :math:`b_j`, it
    minimises

    .. math:: \min_{A, B} \sum_{j=1}^k (a_j - b_j)^\top C_+ (a_j - b_j)
        + \rho\lambda_1 \|b_j\|_2^2 + 2 t_j \|b_j\|_1 \quad\text{with } A^\top A = I,

    which is sparse PCA of the square root of :math:`C_+`. The parameters `ridge` and `penalty` set
    :math:`\rho` and :math:`t_j`, and :math:`\lambda_1` is the largest eigenvalue. The components
    are the vectors :math:`b_j`, scaled to unit length. Without a penalty they equal the components
    of `CPCA`.

    Parameters
    ----------
    n_components : int, default=2
        Number of components, k, from 1 to the number of positive eigenvalues of C(alpha).
    alpha : "auto", "denoise" or float from 0, finite, default="auto"
        Contrast strength, as for `CPCA`.
    penalty : float from 0 to below 1, optional
        The penalty is :math:`t_j` divided by :math:`\lambda_j \max_d |v_{jd}|`, the value of
        :math:`t_j` at which component j would keep no feature (:math:`v_{jd}` is the entry of
        eigenvector j for feature d). The penalty has no unit, so it does not
        depend on the scale of the data. The default is 0.3, unless `n_features_to_select` is given.
        `cross_validated_penalty` chooses a penalty.
    n_features_to_select : int from 1 to the number of features, optional
        Number of features that each component keeps; give it instead of a penalty. Least angle
        regression follows the elastic net's path until one more feature would enter.
    ridge : float above 0, up to 1e12, default=1.0
        The ridge penalty :math:`\rho`, in units of the largest eigenvalue of C(alpha). A large
        ridge selects correlated features together, and makes the selection depend less on chance
        correlations in the sample. This was measured with 600 rows of 500 features, of which 30
        differ between groups that can hardly be detected. A ridge of 1.0 found all 30 features. A
        ridge of 1e-6, which is practically a lasso and a common default elsewhere, found 28.

    Attributes
    ----------
    components_ : ndarray of shape (k, n_features)
        Components as sparse rows of unit length, which are not orthogonal to one another. They are
        in the order of the eigenvectors from which the iteration starts. The entry of largest
        magnitude in each is positive.
    alpha_, strength_ : float
        The contrast strength used.
    penalties_ : ndarray of shape (k,)
        The penalty of each component, in the same units as `penalty`. It is smaller than `penalty`
        if `penalty` would have removed the last feature of the component.
    foreground_variance_, background_variance_ : ndarray of shape (k,)
        Variance of foreground and background along each component. The variances do not add up to
        the variance in the span of the components, because the scores are correlated.
    contrast_index_ : ndarray of shape (k,)
        :math:`(v_X - v_Y) / (v_X + v_Y)`, where :math:`v_X` and :math:`v_Y` are the foreground and
        background variances. It is between -1 (background only) and 1 (foreground only). It does
        not depend on the scale of the data, and is NaN for a component along which neither dataset
        varies.
    mean_, background_mean_ : ndarray of shape (n_features,)
        Means of foreground and background.
    foreground_moments_, background_moments_ : SecondMoments or SpanMoments
        Moments of the two datasets, from which `at`, `path` and `sparsity_path` compute their
        results. `SpanMoments` are used if there are more features than rows, and refer to the rows
        of the data. Do not change the data as long as the moments are in use.
    projection_, reconstruction_ : ndarrays of shape (n_features, k) and (k, n_features)
        `projection_` is ``components_.T`` and maps centred rows to scores. `reconstruction_` is its
        pseudoinverse and maps scores back. Therefore `denoise` and `inverse_transform` project
        orthogonally on the span of the components. A feature that no component involves gets its
        mean.
        With the mean, the two matrices form `linear_map_`, a `contrast_core.spectral.LinearMap`.
    n_features_in_ : int
        Number of features, D.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if the data had names.

    Raises
    ------
    ValueError
        On `fit`: if `n_components` exceeds the number of positive eigenvalues of C(alpha), both a
        penalty and a number of features are given, or a parameter is out of range.

    Warns
    -----
    ContrastWarning
        If the iteration does not converge, or the scales of the two datasets differ by orders of
        magnitude.

    See Also
    --------
    CPCA : Contrastive PCA with all features in every component.
    cross_validated_penalty : Choose the penalty with the most contrast in held-out rows.

    Notes
    -----
    The data are not scaled. Standardise both datasets first if features have different units,
    because the penalty is the same for all features.

    The problem is not convex. It is solved by minimising over B and A in turn, starting at the
    leading eigenvectors. Without a penalty, every rotation of the components is a solution. With a
    penalty below 0.01, the iteration takes thousands of steps.

    If several features are copies of one another, a penalty keeps all or none of them, whereas
    `n_features_to_select` may keep some. The default grid of `path` ends at the strength beyond
    which C(alpha) has fewer positive eigenvalues than there are components.

    References
    ----------
    Boileau, Hejazi and Dudoit, "Exploring high-dimensional biological data with sparse contrastive
    principal component analysis", Bioinformatics 36(11), 2020. Elastic-net sparse PCA: Zou, Hastie
    and Tibshirani, "Sparse principal component analysis", JCGS 15(2), 2006, Algorithm 1.

    Examples
    --------
    >>> from contrast_core import SparseCPCA
    >>> from contrast_core.datasets import make_sparse_groups
    >>> data = make_sparse_groups(random_state=0)  # groups differ in the first 30 of 500 features
    >>> sparse = SparseCPCA(2, n_features_to_select=15)
    >>> found = sparse.fit(data.foreground, background=data.background).components_ != 0
    >>> found.sum(axis=1), int(found[:, :30].sum())
    (array([15, 15]), 30)
    """

    _strength = "alpha"

    alpha_: float
    penalties_: FloatArray
    foreground_variance_: FloatArray
    background_variance_: FloatArray
    contrast_index_: FloatArray
    foreground_moments_: Moments
    background_moments_: Moments

    def __init__(
        self,
        n_components: int = 2,
        *,
        alpha: float | Literal["auto", "denoise"] = "auto",
        penalty: float | None = None,
        n_features_to_select: int | None = None,
        ridge: float = 1.0,
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.penalty = penalty
        self.n_features_to_select = n_features_to_select
        self.ridge = ridge

    def sparsity_path(self, numbers: Sequence[int] | None = None) -> list[Self]:
        """Fit components with fewer and fewer features, at the contrast strength of this estimator.

        Parameters
        ----------
        numbers : sequence of int, optional
            Values of `n_features_to_select`. By default, these are the number of all features, and
            the powers of two below this number, from at most 256 down to 1.

        Returns
        -------
        list of Self
            A new fitted estimator for each different number, in descending order of the numbers,
            and therefore from dense to sparse.

        Raises
        ------
        ValueError, TypeError
            If no number is given, one is out of range or not an integer, or the estimator comes
            from a file without moments.
        """
        self._check_moments()
        if numbers is None:
            powers = [2**i for i in range(8, -1, -1) if 2**i < self.n_features_in_]
            given: list[object] = [self.n_features_in_, *powers]
        else:
            given = numbers_of(numbers, "numbers")
        counts = {check_count(n, "numbers", at_most=self.n_features_in_) for n in given}
        if not counts:
            raise ValueError("numbers is empty; give at least one, or None for a grid.")
        return self._with_sparsity(
            [
                {"n_features_to_select": count, "penalty": None}
                for count in sorted(counts, reverse=True)
            ]
        )

    def _at_penalties(self, penalties: Sequence[float]) -> list[Self]:
        """Return a fitted estimator for each penalty, at the contrast strength of this one."""
        return self._with_sparsity([{"penalty": one} for one in penalties])

    def _with_sparsity(self, settings: Sequence[Mapping[str, object]]) -> list[Self]:
        x, y = self.foreground_moments_, self.background_moments_
        part = positive_part(x, y, self.alpha_)
        unfitted = self._with_strength(self.alpha_)
        return [
            self._like_this(
                clone(unfitted).set_params(**setting)._fit_part(x, y, self.alpha_, part)
            )
            for setting in settings
        ]

    def _fit_moments(self, foreground: Moments, background: Moments, plan: Plan) -> Self:
        self._sparsity(foreground.n_features)
        k = check_n_components(self.n_components, foreground.n_features)
        alpha = self._choose_alpha(foreground, background, k, plan)
        part = positive_part(foreground, background, alpha)
        return self._fit_part(foreground, background, alpha, part)

    def _fit_each(self, others: list[Self]) -> list[Self]:
        x, y = self.foreground_moments_, self.background_moments_
        k = self._n_features_out
        plan = plan_for(x, y, k)
        chosen = [other._choose_alpha(x, y, k, plan) for other in others]
        distinct, alphas = ascending(others, chosen)
        return [
            other._fit_part(x, y, alpha, positive_part(x, y, alpha))
            for other, alpha in zip(distinct, alphas, strict=True)
        ]

    def _fit_part(self, x: Moments, y: Moments, alpha: float, part: Eigenpairs) -> Self:
        k = check_n_components(self.n_components, x.n_features)
        if k > len(part.values):
            raise ValueError(
                f"n_components={k}, but at alpha={alpha:.4g} the contrast has only "
                f"{len(part.values)} positive eigenvalues, and each component needs one. Use fewer "
                "components or a smaller alpha."
            )
        penalty, count = self._sparsity(x.n_features)
        ridge = check_number(self.ridge, "ridge", above=0, at_most=_LARGEST_RIDGE)
        found = sparse_components(*part, k, ridge=ridge, penalty=penalty, count=count)
        if not found.converged:
            warn(
                f"sparse components at alpha={alpha:.4g} have not converged after thousands of "
                "steps. Either the penalty is too small to determine them, or two components have "
                "nearly the same contrast. Use a larger penalty, a larger ridge, or another number "
                "of components."
            )
        components = fix_signs(found.components)
        coordinates = x.coordinates_of(components)
        along = x.variances_along(coordinates), y.variances_along(coordinates)
        return self._set_contrast(
            x,
            y,
            components_=components,
            alpha_=alpha,
            penalties_=found.penalties,
            foreground_variance_=along[0],
            background_variance_=along[1],
            contrast_index_=contrast_index(*along),
        )

    def _sparsity(self, n_features: int) -> tuple[float, int | None]:
        """Return the penalty and None, or 0 and the number of features to select."""
        if self.n_features_to_select is None:
            given = _DEFAULT_PENALTY if self.penalty is None else self.penalty
            return check_penalty(given), None
        if self.penalty is not None:
            raise ValueError(
                f"penalty={shown(self.penalty)} and n_features_to_select="
                f"{shown(self.n_features_to_select)} were both given; give one of them."
            )
        name = "n_features_to_select"
        return 0.0, check_count(self.n_features_to_select, name, at_most=n_features)

    def _choose_alpha(self, x: Moments, y: Moments, k: int, plan: Plan) -> float:
        alpha = choose_alpha(self.alpha, x, y, k, plan)
        if math.isinf(alpha):
            raise ValueError(
                "alpha=inf was given, but sparse components need a finite contrast. Give a finite "
                "number, or 'auto'."
            )
        return alpha

    def _default_strengths(self) -> FloatArray:
        """Return the strengths of the grid at which all components have positive eigenvalues."""
        x, y, k = self.foreground_moments_, self.background_moments_, self._n_features_out
        alphas = default_alphas()
        too_few = bisect_left(alphas, True, key=lambda alpha: n_positive(x, y, alpha) < k)
        return alphas[:too_few]

    @property
    def reconstruction_(self) -> FloatArray:
        """Return the map from scores to centred rows, the pseudoinverse of `projection_`."""
        return np.asarray(np.linalg.pinv(self.components_.T))

    @property
    def _projector(self) -> LinearMap:
        return self.linear_map_


def check_penalty(penalty: object, name: str = "penalty") -> float:
    """Return the penalty as a float; raise an error unless it is from 0 to below 1."""
    return check_number(penalty, name, at_least=0, below=1)
