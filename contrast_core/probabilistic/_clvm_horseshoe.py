"""Selection of the features with salient loadings, by the horseshoe prior."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc, gammainccinv

from contrast_core._validation import FloatArray
from contrast_core.probabilistic._clvm_priors import PriorSettings
from contrast_core.probabilistic._row_posterior import Model

if TYPE_CHECKING:
    from contrast_core.probabilistic._clvm_moments import MomentLikelihood

_STEPS = 500  # largest number of updates; below a hundred in practice
_SETTLED = 1e-3  # change of the log precisions at which the updates end
_LEAST_SCALE = 0.01  # default threshold delta, relative to the mean variance of the features
_ERRORS = 8.0  # least threshold delta, in squared standard errors of a loading
_QUANTILES = 200  # number of quantiles of tau^2 over which probabilities are averaged


class Scales(NamedTuple):
    r"""Inverse gamma posteriors of the squared scales of the rows of the salient loadings W.

    The squared local scales are :math:`\rho_i^2`, one for each row. The squared global scale is
    :math:`\tau^2`. W has `size` rows.

    local_shape, global_shape : float
    local_rate : ndarray of shape (size,)
    global_rate : float
    """

    local_shape: float
    local_rate: FloatArray
    global_shape: float
    global_rate: float

    @property
    def precision(self) -> FloatArray:
        """Posterior mean of the prior precision of each row of W, (size,)."""
        of_all = self.global_shape / self.global_rate
        return self.local_shape / self.local_rate * of_all

    def updated(self, squares: FloatArray, n_salient: int, scale: float = 1.0) -> Scales:
        """Return updated posteriors, given the expected squared lengths of the rows of W, (size,).

        `scale` is the scale of the half-Cauchy prior of tau. The square of a half-Cauchy variable
        has an inverse gamma distribution whose rate is itself a random variable, the auxiliary
        variable. The posterior of the auxiliary variable is updated as well.
        """
        local = self.local_shape / self.local_rate
        of_all = self.global_shape / self.global_rate
        local_rate = 1 / (1 + local) + squares * of_all / 2
        local_shape = (n_salient + 1) / 2
        local = local_shape / local_rate
        global_shape = (len(squares) * n_salient + 1) / 2
        global_rate = 1 / (scale**-2 + of_all) + float(local @ squares) / 2
        return Scales(local_shape, local_rate, global_shape, global_rate)

    def probability_below(self, limit: float) -> FloatArray:
        r"""Return the probability that :math:`\rho_i^2 \tau^2` is below a limit, (size,)."""
        shares = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        of_all = self.global_rate / gammainccinv(self.global_shape, shares)
        arguments = self.local_rate[:, None] * of_all / limit
        return np.asarray(gammaincc(self.local_shape, arguments).mean(axis=1))


class _LoadingsPosterior(NamedTuple):
    """Posterior of the loadings.

    `model` holds the posterior means of the loadings, and the noise variance. `spread` holds the
    covariance of each row of the t salient loadings W, (size, t, t), for the `size` features that
    vary.
    """

    model: Model
    spread: FloatArray


def shrunk_probability(
    likelihood: MomentLikelihood, dense: Model, priors: PriorSettings
) -> FloatArray:
    r"""Return the probability that the horseshoe shrinks each feature's salient loadings.

    .. math:: w_i \sim N(0, \rho_i^2 \tau^2 I), \qquad \rho_i \sim C^+(0, 1), \quad
        \tau \sim C^+(0, b_g)

    Here :math:`C^+` is the half-Cauchy distribution, and :math:`w_i` is the row of W that belongs
    to feature i. Coordinate ascent with closed-form updates fits a posterior in which W, its scales
    and the latent variables are independent. The shared loadings S and the noise variance are point
    estimates. The result is the probability of :math:`\rho_i^2 \tau^2 < \delta`. By default
    :math:`\delta` is the larger of 0.01 and :math:`8 \sigma^2 / n`, where :math:`\sigma^2` is the
    noise variance and n is the number of foreground rows. Both :math:`\delta` and
    :math:`\sigma^2` are relative to the mean variance of the features. The second value matters if
    there are few rows: with 60 rows and :math:`\delta = 0.01`, a fifth of the features whose true
    salient loadings are zero would be kept.

    Parameters
    ----------
    likelihood : MomentLikelihood
        Likelihood of the model.
    dense : Model
        The model that maximises the likelihood without the prior.
    priors : PriorSettings

    References
    ----------
    Severson, Ghosh and Ng, arXiv:1811.06094, eq. 12 and Appendix B. In eq. 25 the second inverse
    gamma should be the distribution of the paper's lambda, not of its inverse. Wand, Ormerod,
    Padoan and Fruehwirth, "Mean field variational Bayes for elaborate distributions", Bayesian
    Analysis 6(4), 2011.
    """
    # Constant features have zero loadings and no scale.
    varies = np.asarray(dense.loadings.any(axis=1))
    t, size = likelihood.search.n_salient, int(varies.sum())
    scales = Scales(1.0, np.ones(size), 1.0, 1.0)
    found = _LoadingsPosterior(dense, np.zeros((size, t, t)))
    for _ in range(_STEPS):
        before = scales.precision
        squares = (found.model.loadings[varies, likelihood.n_shared :] ** 2).sum(axis=1)
        squares += np.trace(found.spread, axis1=1, axis2=2)
        scales = scales.updated(squares, t, priors.horseshoe_scale)
        if np.abs(np.log(scales.precision / before)).max() <= _SETTLED:
            break
        found = _updated(found, likelihood, varies, scales.precision)
    shrunk, n_foreground = np.ones(len(varies)), likelihood.x.n_samples
    shrunk[varies] = scales.probability_below(least_scale(priors, found.model.noise, n_foreground))
    return shrunk


def least_scale(priors: PriorSettings, noise: float, n_rows: float) -> float:
    """Return the threshold delta, given the noise variance and the number of foreground rows.

    The noise variance and delta are relative to the mean variance of the features.
    """
    if priors.horseshoe_threshold is not None:
        return priors.horseshoe_threshold
    return max(_LEAST_SCALE, _ERRORS * noise / n_rows)


def _updated(
    found: _LoadingsPosterior,
    likelihood: MomentLikelihood,
    varies: NDArray[np.bool_],
    precision: FloatArray,
) -> _LoadingsPosterior:
    """Update the latent variables, then S and the posterior of W, then the noise variance.

    `precision` holds the expected prior precision of each row of W.
    """
    (loadings, noise), k, n = found.model, likelihood.n_shared, likelihood.n_rows
    expected = likelihood.expect(found.model, found.spread.sum(axis=0))
    systems = np.tile(expected.second * n / noise, (len(precision), 1, 1))
    salient = np.arange(k, loadings.shape[1])
    systems[:, salient, salient] += precision[:, None]
    loadings = np.zeros_like(loadings)
    right = (expected.cross[varies] * n / noise)[:, :, None]
    loadings[varies] = np.linalg.solve(systems, right)[:, :, 0]
    spread = np.asarray(np.linalg.inv(systems[:, k:, k:]))
    left = likelihood.left_over(loadings, expected)
    left += float((spread.sum(axis=0) * expected.second[k:, k:]).sum())
    return _LoadingsPosterior(Model(loadings, left / likelihood.n_features), spread)
