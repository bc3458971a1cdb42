"""Estimate which rows responded, with a two-component mixture model of held-out scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from contrast_core._validation import FloatArray, check_number, real_array

_ITERATIONS = 500  # largest number of iterations of expectation maximisation
_CLOSEST = 1.0  # smallest distance between the two means, in standard deviations
_FEWEST = 10  # smallest number of scores in each set
# Each part of the rows helped to choose the direction along which another part is scored. This
# doubles the variance of a mean. The rest of the factor is a margin, because the mixture is
# estimated too.
_VARIANCE_FACTOR = 3.0
_Z = 1.959964  # standard normal quantile of a 95% interval


@dataclass(frozen=True, eq=False)
class Responders:
    """Posterior probability that each row responded, as computed by `responders`.

    Parameters
    ----------
    posterior, background_posterior : ndarray of shape (n,) and (m,)
        Probability that the row responded. Rows of the background did not respond by definition, so
        their values show how well the posterior is calibrated.
    threshold : float
        Rows with a posterior above the threshold are called responders. The threshold is chosen so
        that at most the share `level` of the background is called.
    called : ndarray of bool of shape (n,)
        Whether each row of the foreground is called a responder.
    shift : float
        Distance between the means of the two components, in the units of the scores.
    sensitivity : float
        Mean posterior of rows that responded, if the mixture model is correct.
    """

    posterior: FloatArray
    background_posterior: FloatArray
    threshold: float
    called: NDArray[np.bool_]
    shift: float
    sensitivity: float

    def share(
        self, rows: Any = slice(None), background_rows: Any = slice(None)
    ) -> tuple[float, float, float]:
        """Estimate the share of responders among some rows, with a 95% interval.

        The mean posterior of the background rows is subtracted from the mean posterior of the rows.
        The share is this difference, divided by the difference between the mean posteriors of
        responders and of the whole background.

        Parameters
        ----------
        rows, background_rows : index or mask, optional
            The rows, and the background rows with which they are compared. By default, all rows
            are used.

        Returns
        -------
        tuple of float
            The share, and the lower and upper end of its interval, all from 0 to 1. They are NaN if
            there are fewer than two rows in either set.
        """
        values, others = self.posterior[rows], self.background_posterior[background_rows]
        if min(len(values), len(others)) < 2:
            return np.nan, np.nan, np.nan
        baseline = others.mean()
        room = max(self.sensitivity - self.background_posterior.mean(), np.finfo(float).eps)
        error = np.sqrt(
            _VARIANCE_FACTOR * (values.var() / len(values) + others.var() / len(others))
        )
        around = (values.mean() - baseline + np.array([0, -_Z, _Z]) * error) / room
        share, low, high = np.clip(around, 0.0, 1.0)
        return float(share), float(low), float(high)


def responders(
    scores: ArrayLike, background_scores: ArrayLike, *, level: float = 0.05
) -> Responders:
    r"""Estimate for each row the posterior probability that it responded.

    Held-out scores of the foreground are modelled as a mixture of two components. One is the
    distribution of the background's scores, with mean :math:`\mu` and variance :math:`\sigma^2`.
    The other is this distribution shifted by :math:`\delta`. The posterior probability is

    .. math:: p = \frac{\pi\, N(s; \mu + \delta, \sigma^2)}
        {\pi\, N(s; \mu + \delta, \sigma^2) + (1 - \pi)\, N(s; \mu, \sigma^2)} ,

    where the share :math:`\pi` and :math:`\delta \ge \sigma` are estimated by expectation
    maximisation. The threshold for calling rows is a quantile of the background's posteriors, which
    does not assume a normal distribution.

    Parameters
    ----------
    scores, background_scores : array-like of shape (n,) and (m,)
        Scores along a direction that was computed without these rows, such as the scores of
        `condition_shift`. Responders have larger scores.
    level : float above 0, below 1, default=0.05
        Largest share of the background that may be called.

    Returns
    -------
    Responders

    Raises
    ------
    ValueError
        If there are fewer than ten scores in either set, some scores are not finite, or all scores
        of the background are equal.

    References
    ----------
    Mixture with one component known: Papalexi et al., Nature Genetics 53:322, 2021 (Mixscape).
    Threshold: Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core import responders
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=400) + 3 * (np.arange(400) < 100)  # a quarter responds
    >>> found = responders(scores, rng.normal(size=400))
    >>> share, low, high = found.share()
    >>> low < 0.25 < high, bool((found.background_posterior > found.threshold).mean() <= 0.05)
    (True, True)
    """
    level = check_number(level, "level", above=0, below=1)
    values, others = (
        real_array(scores, "scores"),
        real_array(background_scores, "background_scores"),
    )
    for name, given in (("scores", values), ("background_scores", others)):
        if given.ndim != 1 or len(given) < _FEWEST or not np.isfinite(given).all():
            raise ValueError(
                f"{name} has shape {given.shape} and {int((~np.isfinite(given)).sum())} values "
                f"that are not finite; expected at least {_FEWEST} finite numbers."
            )
    centre, spread = others.mean(), others.std()
    if spread == 0:
        raise ValueError(
            "background_scores are all the same. The mixture model needs scores that vary."
        )
    z, z_others = (values - centre) / spread, (others - centre) / spread
    prior, shift = 0.5, max(2.0, 1.5 * z.mean())
    for _ in range(_ITERATIONS):
        posterior = _posterior(z, prior, shift)
        previous = prior, shift
        prior = float(np.clip(posterior.mean(), 1e-6, 1 - 1e-6))
        shift = max(float(posterior @ z / posterior.sum()), _CLOSEST)
        if np.allclose(previous, (prior, shift), rtol=1e-8, atol=0):
            break
    posterior, background = _posterior(z, prior, shift), _posterior(z_others, prior, shift)
    # A row that is exchangeable with the m background rows exceeds this order statistic with a
    # probability of at most `level`.
    rank = int(np.ceil((1 - level) * (len(others) + 1)))
    threshold = max(0.5, np.sort(background)[rank - 1]) if rank <= len(others) else 1.0
    return Responders(
        posterior,
        background,
        float(threshold),
        posterior > threshold,
        shift * float(spread),
        float(_posterior(z_others + shift, prior, shift).mean()),
    )


def _posterior(z: FloatArray, prior: float, shift: float) -> FloatArray:
    """Return the posterior probability of the component with mean `shift`; the other has mean 0."""
    return np.asarray(expit(logit(prior) + shift * z - shift**2 / 2))
