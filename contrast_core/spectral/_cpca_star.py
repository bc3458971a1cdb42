"""Contrastive PCA* (cPCA*), which maximises the ratio of variances instead of their difference."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np

from contrast_core._moment_contrast import MomentContrast
from contrast_core._strength import StrengthPath, ascending
from contrast_core._validation import (
    FloatArray,
    check_beta,
    check_choice,
    check_flag,
    check_n_components,
    check_number,
)
from contrast_core.contrast import background_ridge
from contrast_core.linalg import RidgeWeights
from contrast_core.moments import Moments
from contrast_core.solve import Plan, solve_ratios

_LARGEST_CONDITION = 1e13  # largest condition number that double precision resolves


class CPCAStar(StrengthPath, MomentContrast):
    r"""Contrastive PCA*: directions with the largest ratio of foreground to background variance.

    The directions solve the symmetric generalised eigenproblem

    .. math:: C_X v = \lambda\, B_\beta v, \qquad
        B_\beta = (1 - \beta) I + \beta\, C_Y, \qquad \beta \in [0, 1] .

    Here :math:`C_X` and :math:`C_Y` are the covariances of foreground and background. Each is taken
    about its own mean and divided by its own number of rows. With ``beta = 0``, or without a
    background, the method is PCA of the foreground. With ``beta = 1``, it maximises the ratio of
    the two variances. If the foreground is a signal plus the background, this ratio is the
    signal-to-noise ratio plus one. A beta between 0 and 1 adds isotropic noise of variance
    ``(1 - beta) / beta`` to the background.

    Parameters
    ----------
    n_components : int, default=2
        Number of components, k, from 1 to the number of features.
    beta : "auto" or float from 0 to 1, default="auto"
        Contrast strength. "auto" takes :math:`1 / (1 + \tau)` with :math:`\tau = \tfrac{1}{4}
        \operatorname{tr}(C_Y) / D'`, where D' is the number of features that vary (see
        `contrast_core.contrast.background_ridge`). It is deterministic, uses no labels, and does
        not depend on k. The meaning of a number depends on the units of the data. If all rows are
        multiplied by c, the number :math:`\beta / (\beta + (1 - \beta) c^2)` gives the same
        subspace as beta gave before. "auto" adapts to the units.
    orthogonal : bool, default=False
        If True, each direction is the best one that is orthogonal in feature space to all earlier
        directions, and `components_` equals `directions_`. If False, the directions are
        :math:`B_\beta`-orthogonal: two of them, u and v, satisfy :math:`u^\top B_\beta v = 0`.
    condition_limit : float above 1, optional
        If given, directions in which both datasets together vary little are left out first. These
        are the eigenvectors of :math:`C_X + C_Y` whose eigenvalues are below the largest eigenvalue
        divided by this limit. In the remaining directions, :math:`B_\beta` may be singular. The
        ratio is then infinite along directions in which only the foreground varies. Generalised
        contrastive PCA uses 1e13 at ``beta = 1``, which is the largest limit that double precision
        allows. A lower limit keeps noise out of the ratios.

    Attributes
    ----------
    components_ : ndarray of shape (k, n_features)
        Orthonormal rows that span the same space as `directions_`. They are the result of a QR
        decomposition of the directions, in the order of the eigenvalues, so the first one is the
        leading direction at unit length. The entry of largest magnitude in each is positive.
    directions_ : ndarray of shape (k, n_features)
        The generalised eigenvectors v as rows, scaled to :math:`v^\top B_\beta v = 1`. They are
        :math:`B_\beta`-orthogonal, but not orthogonal in feature space. Directions with an infinite
        eigenvalue are scaled to :math:`v^\top C_X v = 1`. With ``orthogonal=True``, all directions
        are orthogonal and have unit length.
    generalized_eigenvalues_ : ndarray of shape (k,)
        Eigenvalues lambda, descending and never negative. The eigenvalue of a direction v is
        :math:`v^\top C_X v / v^\top B_\beta v`.
    beta_, strength_ : float
        The contrast strength used.
    foreground_variance_, background_variance_ : ndarray of shape (k,)
        Variance of foreground and background along each row of `components_`.
    contrast_index_ : ndarray of shape (k,)
        :math:`(v_X - v_Y) / (v_X + v_Y)`, where :math:`v_X` and :math:`v_Y` are the foreground and
        background variances along each row of `directions_` (not of `components_`). It is between
        -1 (background only) and 1 (foreground only). It does not depend on the scale of the data,
        and is NaN for a direction along which neither dataset varies. At ``beta = 1`` it is
        :math:`(\lambda - 1) / (\lambda + 1)`, and the directions are those of generalised
        contrastive PCA, which maximises this index.
    mean_, background_mean_ : ndarray of shape (n_features,)
        Means of foreground and background.
    foreground_moments_, background_moments_ : SecondMoments or SpanMoments
        Moments to which the data were reduced. `at` and `path` compute their results from them.
        With more features than rows, the moments hold the rows. Do not change the rows while `at`
        or `path` is in use.
    projection_, reconstruction_ : ndarrays of shape (n_features, k) and (k, n_features)
        `projection_` is ``components_.T`` and maps centred rows to scores. `reconstruction_` is
        ``components_`` and maps scores back. With the mean, they form `linear_map_`, a
        `contrast_core.spectral.LinearMap`.
    n_features_in_ : int
        Number of features, D.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if the data had names.

    Raises
    ------
    ValueError
        On `fit`, in these cases:

        - A parameter is out of range.
        - :math:`B_\beta` is singular to working precision, and there is no `condition_limit`. At
          ``beta = 1``, the background covariance must be positive definite, which takes more
          background rows than features.
        - `condition_limit` leaves fewer than k directions.
        - In each direction that `condition_limit` leaves, only one dataset varies. This is the case
          if the two datasets together have at most D + 2 rows.

    Warns
    -----
    ContrastWarning
        If the scales of the two datasets differ by orders of magnitude, or if more than k
        directions have an infinite eigenvalue, so that the choice among them is arbitrary.

    See Also
    --------
    CPCA : Maximise a difference of variances instead of a ratio.
    OnlineCPCAStar : Find the same subspace from a stream of rows.

    Notes
    -----
    The data are not scaled. Standardise both datasets first if features have different units.
    If eigenvalues are equal, their directions are an arbitrary B-orthonormal basis of their space.
    Eigenvalues beyond the rank of the foreground are 0.

    References
    ----------
    "An online algorithm for contrastive principal component analysis" (cPCA*), Sec. 2.2,
    equations 3 and 4. Contrast index, orthogonal directions and the limit of the condition number:
    generalized contrastive PCA (gcPCA), de Oliveira et al. 2025. The orthogonal form of gcPCA takes
    the directions of largest and of smallest index in turn. This class always takes the direction
    of largest index; exchange the two datasets to get the directions of smallest index.

    Examples
    --------
    >>> from contrast_core import CPCAStar
    >>> from contrast_core.datasets import load_mouse_protein
    >>> mice = load_mouse_protein()
    >>> star = CPCAStar().fit(mice.foreground, background=mice.background)
    >>> round(star.beta_, 3)
    0.8
    >>> star.transform(mice.foreground).shape
    (270, 2)
    >>> weaker, stronger = star.path([0.1, 0.99])  # from the same moments
    """

    _strength = "beta"
    _background_is_optional = True

    beta_: float
    directions_: FloatArray
    generalized_eigenvalues_: FloatArray
    foreground_variance_: FloatArray
    background_variance_: FloatArray
    contrast_index_: FloatArray
    foreground_moments_: Moments
    background_moments_: Moments

    def __init__(
        self,
        n_components: int = 2,
        *,
        beta: float | Literal["auto"] = "auto",
        orthogonal: bool = False,
        condition_limit: float | None = None,
    ) -> None:
        self.n_components = n_components
        self.beta = beta
        self.orthogonal = orthogonal
        self.condition_limit = condition_limit

    def _default_strengths(self) -> FloatArray:
        ridge = background_ridge(self.foreground_moments_, self.background_moments_)
        return np.array([0.0, *(1 / (1 + ridge * np.logspace(3, -3, 40)))])

    def _fit_each(self, others: list[Self]) -> list[Self]:
        x, y = self.foreground_moments_, self.background_moments_
        distinct, _ = ascending(others, [other._weights(x, y).background for other in others])
        k = self._n_features_out
        return self._solve(distinct, x, y, k)

    def _fit_moments(self, foreground: Moments, background: Moments, plan: Plan) -> Self:
        k = check_n_components(self.n_components, foreground.n_features)
        [fitted] = self._solve([self], foreground, background, k)
        return fitted

    def _solve(
        self, others: list[Self], foreground: Moments, background: Moments, k: int
    ) -> list[Self]:
        """Fit each of the estimators to the same moments."""
        weights = [other._weights(foreground, background) for other in others]
        limit = self.condition_limit
        if limit is not None:
            limit = check_number(
                limit, "condition_limit", above=1, at_most=_LARGEST_CONDITION, expected="None, or"
            )
        solutions = solve_ratios(
            *(foreground, background, weights, k),
            orthogonal=check_flag(self.orthogonal, "orthogonal"),
            condition_limit=limit,
        )
        return [
            other._set_contrast(
                foreground,
                background,
                components_=solution.components,
                directions_=solution.directions,
                beta_=weight.background,
                generalized_eigenvalues_=solution.values,
                foreground_variance_=solution.foreground_variance,
                background_variance_=solution.background_variance,
                contrast_index_=solution.indices,
            )
            for other, weight, solution in zip(others, weights, solutions, strict=True)
        ]

    def _weights(self, foreground: Moments, background: Moments) -> RidgeWeights:
        if isinstance(self.beta, str):
            check_choice(self.beta, "beta", ["auto"], "a number from 0 to 1")
            # The weight of the identity is not computed as 1 - beta, because rounding would destroy
            # a small weight.
            ridge = background_ridge(foreground, background)
            return RidgeWeights(ridge / (1 + ridge), 1 / (1 + ridge))
        beta = check_beta(self.beta)
        return RidgeWeights(1 - beta, beta)
