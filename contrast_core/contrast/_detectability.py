"""Random matrix theory of positive pairs: which signals can be detected."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrast_core._validation import (
    FloatArray,
    check_choice,
    check_count,
    check_flag,
    check_number,
    numbers_of,
)
from contrast_core.moments import Moments


def detectable_spike(n_features: int, n_pairs: float, *, exchangeable: bool = True) -> float:
    r"""Return the smallest variance of a signal that can be detected from positive pairs.

    A positive pair consists of two rows that show the same signal, one from each of two views. In
    units of the noise variance, the smallest variance is

    .. math:: \sqrt{D / n} \quad\text{or}\quad \sqrt{D / 2n} ,

    where the second form holds if the covariance is estimated from both views together
    (``exchangeable=True``). Weaker signals cannot be detected, because no principal direction of
    the sample points towards them.

    Parameters
    ----------
    n_features : int
        Number of features, D.
    n_pairs : float
        Number of pairs, n; if rows repeat, their effective number (see `effective_n_pairs`).
    exchangeable : bool, default=True
        Whether both views estimate the covariance, as in ``PCAPlusPlus(exchangeable=True)``.

    Returns
    -------
    float
        The threshold for the variance of the signal along a direction, in units of the noise
        variance.

    Raises
    ------
    ValueError
        If `n_features` or `n_pairs` is not positive.

    References
    ----------
    "PCA++: How uniformity induces robustness to background noise in contrastive learning",
    Assumption 4.1; Baik, Ben Arous and Péché, Annals of Probability 33:1643, 2005.

    Examples
    --------
    >>> from contrast_core.contrast import detectable_spike
    >>> detectable_spike(2000, 500)
    1.4142135623730951
    """
    return math.sqrt(_aspect_ratio(n_features, n_pairs, exchangeable))


def expected_subspace_error(
    spikes: ArrayLike,
    n_features: int,
    n_pairs: float,
    *,
    exchangeable: bool = True,
    regime: Literal["fixed", "growing"] = "fixed",
) -> float:
    r"""Return the subspace error of PCA++ that theory predicts.

    A spike is the variance of a signal in units of the noise variance. Let :math:`\lambda` be the
    smallest spike, and let c = D / n be the aspect ratio (D / 2n with ``exchangeable=True``). Let
    :math:`\theta` be the limit of the largest principal angle between the estimated and the true
    signal subspace, as n and D grow with this ratio. Theory predicts

    .. math:: \sin^2\theta = \frac{c(\lambda + 1)}{\lambda(\lambda + c)}
        \quad\text{(fixed)}, \qquad \sin^2\theta = \frac{c}{\lambda + c} \quad\text{(growing)}.

    Parameters
    ----------
    spikes : float or array-like
        Variances of the signals in units of the noise variance; only the smallest matters. A
        generalised eigenvalue l of `PCAPlusPlus` corresponds to the spike ``l / (1 - l)``.
    n_features : int
        Number of features, D.
    n_pairs : float
        Number of pairs, n; if rows repeat, their effective number (see `effective_n_pairs`).
    exchangeable : bool, default=True
        Whether both views estimate the covariance, as in ``PCAPlusPlus(exchangeable=True)``.
    regime : {"fixed", "growing"}, default="fixed"
        Whether the spikes stay fixed while n and D grow ("fixed"), or grow as well ("growing").

    Returns
    -------
    float
        The error :math:`\sin\theta`, from 0 to 1. With ``regime="fixed"`` it is 1 if the smallest
        spike is not detectable.

    Raises
    ------
    ValueError
        If there is no spike, if a spike is negative or NaN, if `n_features` or `n_pairs` is not
        positive, or if `regime` is neither of the two names.

    References
    ----------
    "PCA++: How uniformity induces robustness to background noise in contrastive learning",
    Theorems 4.2 and 4.4.

    Examples
    --------
    >>> from contrast_core.contrast import expected_subspace_error
    >>> round(expected_subspace_error([50, 25, 10], 450, 500, exchangeable=False), 3)
    0.301
    """
    aspect = _aspect_ratio(n_features, n_pairs, exchangeable)
    check_choice(regime, "regime", ["fixed", "growing"])
    values = [
        check_number(spike, "spikes", at_least=0, at_most=math.inf, expected="variances: numbers")
        for spike in numbers_of(spikes, "spikes")
    ]
    if not values:
        raise ValueError("spikes is empty; give at least one variance.")
    weakest = min(values)
    if math.isinf(weakest):
        return 0.0
    if regime == "growing":
        return math.sqrt(aspect / (weakest + aspect))
    if weakest <= math.sqrt(aspect):
        return 1.0
    return math.sqrt(aspect * (weakest + 1) / (weakest * (weakest + aspect)))


def signal_is_detectable(
    eigenvalues: FloatArray,
    moments: Moments,
    truncation: int,
    n_pairs: float,
    *,
    exchangeable: bool = True,
) -> NDArray[np.bool_]:
    r"""Return whether each generalised eigenvalue l of PCA++ belongs to a detectable signal.

    Two conditions must hold. First, the variance of the signal in units of the noise variance,
    which is :math:`l/(1-l)`, must exceed `detectable_spike`. Second, l must exceed the largest
    eigenvalue that is expected by chance if the two views of n pairs are unrelated and s directions
    are kept,

    .. math:: \sqrt{2s/n}\,(1 + s^{-2/3}).

    The first factor is the edge of the semicircle law, which the eigenvalues of the symmetrised
    cross-moment of unrelated views follow. The second factor increases this edge to the 99%
    quantile of the largest eigenvalue.

    Parameters
    ----------
    eigenvalues : ndarray of shape (k,)
        Generalised eigenvalues, l.
    moments : Moments
        Mean and covariance with which the views were whitened. Only features that vary are counted.
    truncation : int
        Number of directions that whitening kept, s.
    n_pairs : float
        Effective number of pairs, n.
    exchangeable : bool, default=True
        Whether the covariance was estimated from both views together.

    Returns
    -------
    ndarray of bool of shape (k,)
    """
    n_features = int(moments.varies.sum())
    threshold = detectable_spike(n_features, n_pairs, exchangeable=exchangeable)
    chance = math.sqrt(2 * truncation / n_pairs) * (1 + truncation ** (-2 / 3))
    # The spike exceeds a threshold t if and only if the eigenvalue exceeds t / (1 + t).
    return np.asarray(eigenvalues > max(threshold / (1 + threshold), chance))


def _aspect_ratio(n_features: int, n_pairs: float, exchangeable: bool) -> float:
    ratio = check_count(n_features, "n_features") / check_number(n_pairs, "n_pairs", above=0)
    return ratio / 2 if check_flag(exchangeable, "exchangeable") else ratio
