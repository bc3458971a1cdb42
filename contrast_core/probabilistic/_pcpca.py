"""Probabilistic contrastive PCA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

import numpy as np

from contrast_core._strength import StrengthPath, ascending
from contrast_core._validation import FloatArray, check_count
from contrast_core.moments import Moments
from contrast_core.probabilistic._contrastive_model import contrastive_model
from contrast_core.probabilistic._gibbs_posterior import GibbsPosterior
from contrast_core.probabilistic._incomplete import fit_incomplete, incomplete_rows
from contrast_core.probabilistic._latent_model import LatentModel, any_missing
from contrast_core.probabilistic._valid_range import (
    ValidRange,
    check_gamma,
    check_latent_dimension,
    largest_gamma,
)
from contrast_core.rows import Rows
from contrast_core.solve import (
    ContrastSolution,
    Design,
    Plan,
    plan_for,
    solve_contrasts,
)


class PCPCA(GibbsPosterior, StrengthPath, LatentModel):
    r"""Probabilistic contrastive PCA: a density that is high for the foreground only.

    The model is probabilistic PCA, :math:`x = W z + \bar x + \varepsilon` with
    :math:`z \sim N(0, I_d)` and :math:`\varepsilon \sim N(0, \sigma^2 I_D)`. The fit makes the
    n foreground rows x likely and the m background rows y unlikely. Each dataset has its own mean:

    .. math:: \max_{W, \sigma^2} \;
        \frac1n \sum_i \log p(x_i) - \frac{\gamma}{m} \sum_j \log p(y_j) .

    The solution has a closed form in the top-d eigenpairs :math:`(\Lambda, U)` of
    :math:`C(\gamma) = C_X - \gamma\, C_Y`, where :math:`C_X` and :math:`C_Y` are the covariances of
    foreground and background:

    .. math:: \sigma^2 = \frac{\operatorname{tr} C(\gamma) - \operatorname{tr} \Lambda}
        {(1 - \gamma)(D - d)}, \qquad
        W = U \Bigl(\frac{\Lambda}{1 - \gamma} - \sigma^2 I\Bigr)^{1/2} .

    ``gamma`` is the paper's gamma', which is adjusted for the sample sizes and has the scale of
    `CPCA`'s alpha. The paper's gamma, which multiplies sums, is ``gamma * n / m``. The components
    are those of `CPCA` at ``alpha = gamma``. With ``gamma = 0`` or without a background the model
    is probabilistic PCA of the foreground.

    Both datasets may have missing values (NaN). The objective then uses the density of the observed
    values of each row, and L-BFGS finds its maximum.

    Parameters
    ----------
    n_components : int, default=2
        Number of latent dimensions, d, from 1 to the number of features minus 1, because at least
        one direction must be left for the noise.
    gamma : "auto" or float from 0 to below `gamma_max_`, default="auto"
        Contrast strength. "auto" is 0.9 times `gamma_max_`, which is inside the valid range.
        For incomplete data "auto" is also multiplied by the share of observed values, averaged over
        foreground and background.
    max_iter : int, default=1000
        Largest number of iterations of L-BFGS from each start, for incomplete data.

    Attributes
    ----------
    components_ : ndarray of shape (d, n_features)
        Orthonormal rows of U^T, which span the column space of W. In each row the entry of largest
        magnitude is positive.
    loadings_ : ndarray of shape (n_features, d)
        W, with orthogonal columns in descending order of length. (The model does not determine
        their rotation.)
    noise_variance_ : float
        Noise variance sigma^2.
    latent_covariance_ : ndarray of shape (d, d)
        Covariance of z given a complete row, sigma^2 (W^T W + sigma^2 I)^-1. It is diagonal and the
        same for every row.
    gamma_, strength_ : float
        The contrast strength used.
    gamma_max_ : float
        End of the valid range: the model exists for ``0 <= gamma < gamma_max_``. The range ends
        where sigma^2 becomes zero. It ends at 1 at the latest, because the total weight
        ``1 - gamma`` of the two mean log-densities is zero there. For incomplete data the condition
        is necessary but not sufficient: see the notes.
    contrastive_eigenvalues_ : ndarray of shape (d,)
        Leading eigenvalues of C(gamma), descending and positive. Divided by ``1 - gamma_`` they are
        the variances of the model along the components.
    foreground_variance_, background_variance_ : ndarray of shape (d,)
        Variances of foreground and background along each component. For incomplete data they are
        expected values under the model, given the observed values.
    contrast_index_ : ndarray of shape (d,)
        :math:`(v_X - v_Y) / (v_X + v_Y)`, where :math:`v_X` and :math:`v_Y` are the foreground and
        background variances. It is between -1 (background only) and 1 (foreground only). It does
        not depend on the data's scale, and is NaN where neither dataset varies.
    mean_, background_mean_ : ndarray of shape (n_features,)
        Means of foreground and background. For incomplete data they are means of the observed
        values, which assumes that values are missing completely at random.
    objective_ : float
        Value of the objective at its maximum: the mean log-density of the foreground's rows minus
        gamma times the mean log-density of the background's rows.
    n_iter_ : int
        Number of iterations of L-BFGS from the best start; 1 for complete data.
    converged_ : bool
        Whether L-BFGS reached a maximum; True for complete data.
    start_objectives_ : ndarray of shape (number of starts,)
        For incomplete data only: the value of the objective that was reached from each start.
        Values below `objective_` belong to local maxima.
    foreground_moments_, background_moments_ : SecondMoments or SpanMoments
        The moments that `at` and `path` use, for complete data only. Data with more features than
        rows give SpanMoments, which refer to the rows and do not copy them. Do not change the rows
        while you still use `at` or `path`.
    projection_, reconstruction_ : ndarrays of shape (n_features, d) and (d, n_features)
        `projection_` maps centred rows to scores, the posterior means of z; `reconstruction_` maps
        scores back, as in `inverse_transform`. Together with the mean they form `linear_map_`, a
        `contrast_core.spectral.LinearMap`.
    n_features_in_ : int
        Number of features, D.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if the data had names.

    Warns
    -----
    ContrastWarning
        If the scales of the two datasets differ by orders of magnitude, or if L-BFGS has not
        converged.

    Notes
    -----
    The tail :math:`t(\gamma) = \operatorname{tr} C(\gamma) - \operatorname{tr} \Lambda` is concave
    and does not increase, so the valid contrast strengths form an interval. Its end is computed
    exactly. The paper's Remark 1 gives only a sufficient bound, which can be far lower (0.024
    instead of 0.629 on the mouse data). The end depends on the scales of the two datasets. If the
    units are arbitrary, standardise each dataset on its own.

    Groups of the foreground separate best close to `gamma_max_`, but there sigma^2 goes to zero and
    the density narrows to a subspace. At 0.9 of `gamma_max_` the silhouette of the groups is at
    least 90% of its largest value over gamma on the mouse, toy and digit data. In the digit data,
    pictures were added to the digits to hide them. The pictures for foreground and background were
    chosen at random twelve times. Held-out digits without a picture have a higher density under the
    model at 0.8 of `gamma_max_` than under probabilistic PCA in eight of these twelve cases if the
    pictures are scenes, and in none if they are photographs. Closer to `gamma_max_` this density
    falls. `score` cannot be used to choose `gamma`, because it falls as `gamma` rises, even for
    rows that resemble the foreground.

    *Missing values.* Each evaluation solves a d x d system for each pattern of missing values, by
    Woodbury's identity, so time and memory grow linearly with the number of rows. L-BFGS runs from
    several starts. Two of them are closed-form solutions, at ``gamma`` and at 0, of the
    data with missing values replaced by means. The others are random loadings, which are drawn with
    a fixed seed and combined with different noise variances. There are four random starts. Data of
    fewer than 750 values have more local maxima and get up to 32 random starts. A row without
    observed values has no effect.

    The objective is unbounded in two cases. In the first case a feature f has
    :math:`\gamma\, m_f / m \ge n_f / n`, where :math:`m_f` and :math:`n_f` are the numbers of
    background and foreground rows in which it is observed. In the second case some W leaves a
    residual variance in the observed foreground that is smaller than gamma times the residual
    variance that it leaves in the observed background. `gamma_max_` is the smallest gamma at which
    either case occurs. In the second case it is found by a search from several starts, so it can be
    too large. `within` is not supported with missing values: subtract each group's mean before the
    fit. `at` and `path` need complete data.

    At ``gamma = 0``, `noise_variance_` equals the noise variance of `sklearn.decomposition.PCA`
    times (n - 1) / n, because second moments divide by n here, as in the paper.

    References
    ----------
    Li, Jones and Engelhardt, "Probabilistic contrastive principal component analysis",
    arXiv:2012.07977, 2020: eq. 10, Theorem 3, Remark 1 and Sec. 7. Posterior of z: Tipping
    and Bishop, "Probabilistic principal component analysis", JRSS B 61(3), 1999.

    Examples
    --------
    >>> from contrast_core import PCPCA
    >>> from contrast_core.datasets import load_mouse_protein
    >>> mice = load_mouse_protein()
    >>> pcpca = PCPCA().fit(mice.foreground, background=mice.background)
    >>> pcpca.transform(mice.foreground).shape
    (270, 2)
    >>> round(pcpca.gamma_max_, 3), round(pcpca.gamma_, 3)
    (0.629, 0.566)
    >>> ppca = pcpca.at(0.0)  # from the same moments, the data are not read again
    >>> pcpca.noise_variance_ < ppca.noise_variance_
    True
    """

    _strength = "gamma"
    _background_is_optional = True

    loadings_: FloatArray
    gamma_: float
    gamma_max_: float
    foreground_variance_: FloatArray
    background_variance_: FloatArray
    contrast_index_: FloatArray
    objective_: float
    n_iter_: int
    converged_: bool
    start_objectives_: FloatArray
    foreground_moments_: Moments
    background_moments_: Moments

    def __init__(
        self,
        n_components: int = 2,
        *,
        gamma: float | Literal["auto"] = "auto",
        max_iter: int = 1000,
    ) -> None:
        self.n_components = n_components
        self.gamma = gamma
        self.max_iter = max_iter

    def _loadings(self, dataset: str) -> FloatArray:
        return self.loadings_

    def _fit_parts(self, parts: Sequence[Rows], design: Design) -> Self | None:
        check_count(self.max_iter, "max_iter")
        if not any_missing(parts):
            return None
        # Without a background, the foreground is also passed as background. It has no effect,
        # because gamma is then 0.
        return self._fit_incomplete(parts if len(parts) > 1 else [*parts, *parts], design)

    def _default_strengths(self) -> FloatArray:
        return np.linspace(0.0, 0.95, 20) * self.gamma_max_

    def _fit_each(self, others: list[Self]) -> list[Self]:
        x, y = self.foreground_moments_, self.background_moments_
        valid = ValidRange(self.gamma_max_, self._n_features_out)
        distinct, gammas = ascending(others, [check_gamma(other.gamma, valid) for other in others])
        d = valid.n_components
        solutions = solve_contrasts(x, y, gammas, d, plan_for(x, y, d, contrasts=len(gammas)))
        return [
            other._set_model(x, y, gamma, valid, solution)
            for other, gamma, solution in zip(distinct, gammas, solutions, strict=True)
        ]

    def _fit_moments(self, foreground: Moments, background: Moments, plan: Plan) -> Self:
        d = check_latent_dimension(self.n_components, foreground.n_features)
        valid = ValidRange(largest_gamma(foreground, background, d, plan), d)
        gamma = check_gamma(self.gamma, valid)
        [solution] = solve_contrasts(foreground, background, [gamma], d, plan)
        return self._set_model(foreground, background, gamma, valid, solution)

    def _fit_incomplete(self, parts: Sequence[Rows], design: Design) -> Self:
        d = check_latent_dimension(self.n_components, parts[0].shape[1])
        data = incomplete_rows(parts, design.background_mix, d)
        attributes = fit_incomplete(data, self.gamma, d, self.max_iter)
        return self._set_fitted(data.names, **attributes)

    def _check_moments(self, purpose: str = "fits at other strengths") -> None:
        if hasattr(self, "start_objectives_"):
            raise ValueError(
                f"this PCPCA was fitted to incomplete data, which have no moments, but {purpose} "
                "need them. For another gamma, fit PCPCA(gamma=...).fit(X, background=...). For "
                "everything else, fit complete data, such as the result of `impute`."
            )
        super()._check_moments(purpose)

    def _set_model(
        self,
        foreground: Moments,
        background: Moments,
        gamma: float,
        valid: ValidRange,
        solution: ContrastSolution,
    ) -> Self:
        """Set the closed form of Theorem 3, with means over rows in place of the paper's sums."""
        values, components = solution.values, solution.components
        total = foreground.total_variance - gamma * background.total_variance
        n_noise = foreground.n_features - valid.n_components
        noise_variance = float(total - values.sum()) / (n_noise * (1 - gamma))
        if not noise_variance > 0:  # a rounding error, because gamma is too close to gamma_max_
            raise valid.error(gamma)
        variances = solution.foreground_variance, solution.background_variance
        model_variances = values / (1 - gamma)
        model = contrastive_model(
            gamma, valid.end, components, model_variances, noise_variance, variances
        )
        n_features = foreground.n_features
        log_determinant = np.log(model_variances).sum() + n_noise * np.log(noise_variance)
        return self._set_fitted(
            foreground.feature_names,
            mean_=foreground.mean,
            background_mean_=background.mean,
            objective_=-0.5
            * (1 - gamma)
            * float(n_features * (1 + np.log(2 * np.pi)) + log_determinant),
            n_iter_=1,
            converged_=True,
            foreground_moments_=foreground,
            background_moments_=background,
            **model,
        )
