"""The default contrast, chosen without labels."""

from __future__ import annotations

import numpy as np

from contrast_core.linalg import Pencil, neighbouring_pairs
from contrast_core.moments import Moments
from contrast_core.solve import Plan, plan_for, solve_contrasts

_SHRINKAGE = 0.25  # tau / mu; the background covariance is shrunk by 0.2 towards mu * identity
_MAX_ITERATIONS = 100  # the iteration is Newton's on a concave function: under ten in practice


def trace_ratio_alpha(
    foreground: Moments, background: Moments, n_components: int, plan: Plan | None = None
) -> float:
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
    plan : Plan, optional
        How the moments are solved.

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
    k = n_components
    plan = plan or plan_for(foreground, background, k)
    ridge = background_ridge(foreground, background)
    alpha = _cheap_steps(foreground, background, k, ridge, plan)
    for _ in range(_MAX_ITERATIONS):
        found = solve_contrasts(foreground, background, [alpha], k, plan)
        risen = float(found.foreground_variance.sum())
        risen /= float(found.background_variance.sum()) + k * ridge
        # Newton's steps square the error: after one this small there is none left.
        converged = risen <= alpha * (1 + 1e-8)
        alpha = max(alpha, risen)
        if converged:
            break
    return alpha


def _cheap_steps(x: Moments, y: Moments, k: int, ridge: float, plan: Plan) -> float:
    """A contrast from 0 up to the one sought, close to it where that is fast.

    The ratio of any subspace is at most the best one, and an approximate subspace is nearly as good
    as the exact one: so cheap steps may lead up to the exact ones.
    """
    alpha = 0.0
    if not plan.leads_up(x.size):
        return alpha
    pencil = Pencil(x.matrix(), y.matrix())
    block = pencil.starting_block(alpha, k)

    def ratio() -> float:
        components = block[:, :k].T
        return float(x.along(components).sum()) / (float(y.along(components).sum()) + k * ridge)

    risen = ratio()
    while risen > alpha * (1 + 1e-6):
        alpha = risen
        if plan.leads_up(x.size, k):
            _, block = neighbouring_pairs(pencil, np.array([alpha]), k, block, lambda *_: 1e-5)
        else:
            block = pencil.starting_block(alpha, k)
        risen = ratio()
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
    varies_x, varies_y = foreground.varies, background.varies
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


def denoising_alpha(foreground: Moments, background: Moments, plan: Plan | None = None) -> float:
    """Contrast for denoising: half the trace-ratio contrast solved for two components.

    Whatever number of components is kept: the denoised rows lie closest to the clean ones at a
    weaker contrast than the one that separates groups best.

    Parameters
    ----------
    foreground, background : moments
        Moments of the two datasets, same features.
    plan : Plan, optional
        How the moments are solved.

    Returns
    -------
    float
        The contrast.

    Raises
    ------
    ValueError
        If one of the datasets is constant.
    """
    k = min(2, foreground.n_features)
    return 0.5 * trace_ratio_alpha(foreground, background, k, plan)
