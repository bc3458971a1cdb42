"""The default contrast, chosen without labels."""

from __future__ import annotations

from contrast_core.moments import Moments
from contrast_core.solve import Plan, Solution, in_form, plan_for, solve_trace_ratio

RIDGE = 0.25  # tau over the mean variance mu: the covariance shrunk by 0.2 towards mu * identity


def trace_ratio_alpha(
    foreground: Moments, background: Moments, n_components: int, plan: Plan | None = None
) -> float:
    r"""Return the contrast strength at which the best subspace has the largest ratio of variances.

    .. math:: \alpha = \max_V
        \frac{\operatorname{tr} V^\top C_X V}{\operatorname{tr} V^\top C_Y V + k\tau},
        \qquad \tau = \tfrac14 \operatorname{tr}(C_Y) / D',

    over orthonormal V (n_features, k). Those that attain it are the top-k eigenvectors of
    :math:`C_X - \alpha C_Y`. D' counts the features that vary at all. The ridge tau (see
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
    return automatic_contrast(foreground, background, n_components, plan)[0]


def automatic_contrast(
    foreground: Moments,
    background: Moments,
    n_components: int,
    plan: Plan | None = None,
    *,
    random_state: int | None = 0,
) -> tuple[float, Solution]:
    """Return `trace_ratio_alpha` together with the components at that strength."""
    if plan is None:
        plan = plan_for(foreground, background, n_components)
        foreground, background = in_form(foreground, background, plan.form)
    ridge = background_ridge(foreground, background)
    return solve_trace_ratio(
        foreground, background, n_components, ridge, plan, random_state=random_state
    )


def background_ridge(
    foreground: Moments, background: Moments, n_varying: int | None = None
) -> float:
    r"""Return the ridge tau of the background covariance that the default contrasts share.

    .. math:: \tau = \tfrac14 \operatorname{tr}(C_Y) / D',

    with D' the number of features that vary at all: the background shrunk by 0.2 towards a
    multiple of the identity. cPCA's default alpha counts it in the trace ratio; that of cPCA* is
    :math:`\beta = 1 / (1 + \tau)`, at which :math:`B_\beta` is proportional to
    :math:`C_Y + \tau I`.

    Parameters
    ----------
    foreground, background : moments
        Moments of the two datasets, same features.
    n_varying : int, optional
        D', where the moments are in coordinates of fewer directions than the features.

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
    n_varying = n_varying or int((varies_x | varies_y).sum())
    return RIDGE * background.total_variance / n_varying


def denoising_alpha(foreground: Moments, background: Moments, plan: Plan | None = None) -> float:
    """Return the strength for denoising: half the trace-ratio strength for two components.

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
