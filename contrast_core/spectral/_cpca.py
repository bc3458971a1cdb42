"""Contrastive PCA."""

from __future__ import annotations

import warnings
from typing import Literal, Self

from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from contrast_core._base import LinearContrast
from contrast_core._validation import ContrastWarning, FloatArray, check_alpha, check_n_components
from contrast_core.contrast import denoising_alpha, trace_ratio_alpha
from contrast_core.linalg import contrastive_eigenpairs, variances_along
from contrast_core.moments import SecondMoments


class CPCA(LinearContrast):
    r"""Contrastive PCA: directions of high foreground and low background variance.

    The components are the top-k eigenvectors, by algebraic value, of the contrast of the two
    covariances, each taken about its own mean and divided by its own number of rows,

    .. math:: C(\alpha) = C_X - \alpha\, C_Y .

    ``alpha = 0`` is PCA of the foreground; ``alpha = inf`` is PCA of the foreground within the
    null space of the background.

    Parameters
    ----------
    n_components : int, default=2
        Number of components, k, from 1 to the number of features.
    alpha : "auto", "denoise" or float from 0 to inf, default="auto"
        Contrast strength. "auto" takes the trace ratio with a shrunken background (see
        `contrast_core.contrast.trace_ratio_alpha`): deterministic, without labels, from the
        moments alone, at the k in use. "denoise" takes half the automatic contrast solved for two
        components, whatever k is: better for `denoise`, weaker at separating groups.

    Attributes
    ----------
    components_ : ndarray of shape (k, n_features)
        Orthonormal rows; the entry of largest magnitude in each is positive.
    alpha_ : float
        The contrast strength used.
    contrastive_eigenvalues_ : ndarray of shape (k,)
        Eigenvalues of C(alpha), descending, possibly negative; at ``alpha = inf`` the foreground
        variances within the null space.
    foreground_variance_, background_variance_ : ndarray of shape (k,)
        Variance of foreground and background along each component.
    mean_, background_mean_ : ndarray of shape (n_features,)
        Means of foreground and background.
    foreground_moments_, background_moments_ : SecondMoments
        What the data were reduced to; `at` works from them.
    n_features_in_ : int
        Number of features, D.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, where the data had them.

    Warns
    -----
    ContrastWarning
        If components have a negative eigenvalue (more alpha-weighted background than foreground
        variance), or the two datasets' scales differ by orders of magnitude.

    See Also
    --------
    contrast_core.contrast_path : A whole grid of contrasts, and a few that represent it.

    Notes
    -----
    The data are not scaled. Where features have different units, standardise both datasets first.

    References
    ----------
    Abid, Zhang, Bagaria and Zou, "Exploring patterns enriched in a dataset with contrastive
    principal component analysis", Nature Communications 9:2134, 2018, Algorithm 1.

    Examples
    --------
    >>> from contrast_core import CPCA
    >>> from contrast_core.datasets import load_mouse_protein
    >>> mice = load_mouse_protein()
    >>> cpca = CPCA().fit(mice.foreground, background=mice.background)
    >>> cpca.transform(mice.foreground).shape
    (270, 2)
    >>> pca = cpca.at(0.0)  # from the same moments, the data are not read again
    >>> pca.alpha_
    0.0
    """

    alpha_: float
    contrastive_eigenvalues_: FloatArray
    foreground_variance_: FloatArray
    background_variance_: FloatArray
    foreground_moments_: SecondMoments
    background_moments_: SecondMoments

    def __init__(
        self, n_components: int = 2, *, alpha: float | Literal["auto", "denoise"] = "auto"
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha

    def at(self, alpha: float | Literal["auto", "denoise"]) -> Self:
        """The same method at another contrast, from the same moments.

        Parameters
        ----------
        alpha : "auto", "denoise" or float from 0 to inf
            Contrast strength.

        Returns
        -------
        CPCA
            A new, fitted estimator; this one does not change.

        Raises
        ------
        ValueError, TypeError
            If `alpha` is out of range or not a number.
        """
        check_is_fitted(self)
        other: Self = clone(self).set_params(alpha=alpha)
        return other._fit_moments(self.foreground_moments_, self.background_moments_)

    def _fit_moments(self, foreground: SecondMoments, background: SecondMoments) -> Self:
        k = check_n_components(self.n_components, foreground.n_features)
        alpha = self._choose_alpha(foreground, background, k)
        values, components = contrastive_eigenpairs(
            foreground.covariance, background.covariance, alpha, k
        )
        _warn_of_negative_contrast(values, foreground, alpha)
        return self._set_fitted(
            foreground.feature_names,
            mean_=foreground.mean,
            background_mean_=background.mean,
            components_=foreground.lift(components),
            alpha_=alpha,
            contrastive_eigenvalues_=values,
            foreground_variance_=variances_along(components, foreground.covariance),
            background_variance_=variances_along(components, background.covariance),
            foreground_moments_=foreground,
            background_moments_=background,
        )

    def _choose_alpha(self, foreground: SecondMoments, background: SecondMoments, k: int) -> float:
        match self.alpha:
            case "auto":
                return trace_ratio_alpha(foreground, background, k)
            case "denoise":
                return denoising_alpha(foreground, background)
            case str():
                raise ValueError(
                    f"alpha={self.alpha!r} is unknown; expected 'auto', 'denoise' or a number from "
                    "0 to inf."
                )
        return check_alpha(self.alpha)


def _warn_of_negative_contrast(
    eigenvalues: FloatArray, foreground: SecondMoments, alpha: float
) -> None:
    rounding = 1e-12 * foreground.total_variance
    n_negative = int((eigenvalues < -rounding).sum())
    if n_negative:
        warnings.warn(
            f"{n_negative} of {len(eigenvalues)} components have negative contrast at "
            f"alpha={alpha:.4g}: along them alpha times the background variance exceeds the "
            "foreground variance. Use fewer components or a smaller alpha to avoid them.",
            ContrastWarning,
            stacklevel=4,
        )
