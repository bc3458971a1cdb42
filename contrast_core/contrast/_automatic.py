"""The default contrast, chosen without labels."""

from __future__ import annotations

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.linalg import (
    Pencil,
    SymmetricOperator,
    contrastive_eigenpairs,
    iteration_pays,
    neighbouring_pairs,
    single_precision_pays,
    variances_along,
)
from contrast_core.moments import Moments

_SHRINKAGE = 0.25  # tau / mu; the background covariance is shrunk by 0.2 towards mu * identity
_MAX_ITERATIONS = 100  # the iteration is Newton's on a concave function: under ten in practice


def trace_ratio_alpha(foreground: Moments, background: Moments, n_components: int) -> float:
    r"""Contrast at which the best subspace has the largest ratio of variances.

    Iterate from :math:`\alpha = 0`, with V the top-k eigenvectors of
    :math:`C_X - \alpha C_Y`,

    .. math:: \alpha \leftarrow
        \frac{\operatorname{tr} V^\top C_X V}{\operatorname{tr} V^\top C_Y V + k\tau},
        \qquad \tau = \tfrac14 \operatorname{tr}(C_Y) / D',

    until it stops rising. D' counts the features that vary at all. The ridge tau (see
    `background_ridge`) keeps directions that the background happens not to cover from winning
    outright.

    Parameters
    ----------
    foreground, background : moments
        Moments of the two datasets, same features.
    n_components : int
        k, the number of components the contrast is for.

    Returns
    -------
    float
        The contrast, finite and positive. Scaling the foreground by c multiplies it by c squared;
        scaling both changes nothing.

    Raises
    ------
    ValueError
        If one of the datasets is constant.

    References
    ----------
    Trace-ratio contrast: Fujiwara et al., Journal of Data Science, Statistics, and
    Visualisation 2(5), 2022, doi:10.52933/jdssv.v2i5.56; with linear covariance shrinkage.
    """
    x, y, k = foreground.covariance, background.covariance, n_components
    ridge = background_ridge(foreground, background)

    def ratio(components: FloatArray) -> float:
        numerator = float(variances_along(components, x).sum())
        return numerator / (float(variances_along(components, y).sum()) + k * ridge)

    alpha = 0.0
    if not isinstance(x, SymmetricOperator) and single_precision_pays(len(x)):
        # The ratio of any subspace is at most the best one, and an approximate subspace is nearly
        # as good as the exact one: so cheap steps may lead up to the exact ones.
        pencil = Pencil(x, y)
        block = pencil.starting_block(alpha, k)
        risen = ratio(block[:, :k].T)
        while risen > alpha * (1 + 1e-6):
            alpha = risen
            if iteration_pays(len(x), k):
                _, block = neighbouring_pairs(
                    pencil, np.array([alpha]), k, block, lambda alpha, gap: 1e-5
                )
            else:
                block = pencil.starting_block(alpha, k)
            risen = ratio(block[:, :k].T)
    for _ in range(_MAX_ITERATIONS):
        risen = ratio(contrastive_eigenpairs(x, y, alpha, k).components)
        # Newton's steps square the error: after one this small there is none left.
        converged = risen <= alpha * (1 + 1e-8)
        alpha = max(alpha, risen)
        if converged:
            break
    return alpha


def background_ridge(foreground: Moments, background: Moments) -> float:
    r"""Ridge tau for the background covariance that the default contrasts share.

    .. math:: \tau = \tfrac14 \operatorname{tr}(C_Y) / D',

    with D' the number of features that vary at all: the background shrunk by 0.2 towards a
    multiple of the identity. cPCA's default alpha counts it in the trace ratio; that of cPCA* is
    :math:`\beta = 1 / (1 + \tau)`, at which :math:`B_\beta` is proportional to
    :math:`C_Y + \tau I`.

    Parameters
    ----------
    foreground, background : moments
        Moments of the two datasets, same features.

    Returns
    -------
    float
        The ridge, finite and positive, in squared units of the data.

    Raises
    ------
    ValueError
        If one of the datasets is constant.
    """
    varies_x, varies_y = _varying(foreground), _varying(background)
    for moments, varies, name in (
        (foreground, varies_x, "foreground"),
        (background, varies_y, "background"),
    ):
        if not varies.any():
            raise ValueError(
                f"the {name} is constant (none of its {moments.n_features} features varies over "
                f"{moments.n_samples} rows), so no contrast can be chosen automatically; check "
                "which rows it holds, or give the contrast strength as a number."
            )
    return _SHRINKAGE * background.total_variance / int((varies_x | varies_y).sum())


def denoising_alpha(foreground: Moments, background: Moments) -> float:
    """Contrast for denoising: half the trace-ratio contrast solved for two components.

    Whatever number of components is kept: the denoised rows lie closest to the clean ones at a
    weaker contrast than the one that separates groups best.

    Parameters
    ----------
    foreground, background : moments
        Moments of the two datasets, same features.

    Returns
    -------
    float
        The contrast.

    Raises
    ------
    ValueError
        If one of the datasets is constant.
    """
    return 0.5 * trace_ratio_alpha(foreground, background, min(2, foreground.n_features))


def _varying(moments: Moments) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Features whose spread exceeds the rounding of their mean."""
    rounding = 32 * np.finfo(np.float64).eps * np.abs(moments.mean)
    return np.sqrt(moments.variances) > rounding
