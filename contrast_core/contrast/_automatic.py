"""The default contrast strengths, chosen without labels."""

from __future__ import annotations

from contrast_core.moments import Moments
from contrast_core.solve import ContrastSolution, Plan, in_form, plan_for, solve_trace_ratio

# The ridge tau of `background_ridge`, divided by the mean variance of a background feature. This
# ridge gives the same directions as shrinking the background covariance by 0.2 towards the mean
# variance times the identity.
BACKGROUND_RIDGE = 0.25


def trace_ratio_alpha(
    foreground: Moments, background: Moments, n_components: int, plan: Plan | None = None
) -> float:
    r"""Return the largest ratio of foreground to background variance over all subspaces.

    The default contrast strength alpha is this ratio,

    .. math:: \alpha = \max_V
        \frac{\operatorname{tr} V^\top C_X V}{\operatorname{tr} V^\top C_Y V + k\tau},
        \qquad \tau = \tfrac{1}{4} \operatorname{tr}(C_Y) / D',

    over V (n_features, k) with orthonormal columns, where :math:`C_X` and :math:`C_Y` are the
    covariances of foreground and background. The maximum is attained by the top-k eigenvectors of
    :math:`C_X - \alpha C_Y`. D' is the number of features that vary in at least one of the
    datasets. Without the ridge tau (see `background_ridge`), directions in which the background
    happens not to vary would always have the largest ratio.

    Parameters
    ----------
    foreground, background : moments
        Moments of the two datasets, which have the same features.
    n_components : int
        k, the number of components for which the contrast is chosen.
    plan : Plan, optional
        Plan of the solver for these moments.

    Returns
    -------
    float
        The contrast strength, finite and positive. If the foreground is multiplied by c, the
        strength is multiplied by c squared. If both datasets are multiplied by c, it does not
        change.

    Raises
    ------
    ValueError
        If one of the datasets is constant.

    References
    ----------
    Trace-ratio contrast: Fujiwara et al., Journal of Data Science, Statistics, and
    Visualisation 2(5), 2022, doi:10.52933/jdssv.v2i5.56. The linear shrinkage of the background
    covariance is not part of that paper.
    """
    return automatic_contrast(foreground, background, n_components, plan)[0]


def automatic_contrast(
    foreground: Moments,
    background: Moments,
    n_components: int,
    plan: Plan | None = None,
    *,
    random_state: int | None = 0,
) -> tuple[float, ContrastSolution]:
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
    r"""Return the ridge tau that the defaults of cPCA and cPCA* add to the background covariance.

    .. math:: \tau = \tfrac{1}{4} \operatorname{tr}(C_Y) / D',

    where D' is the number of features that vary in at least one of the datasets. This ridge is
    equivalent to shrinking the background covariance by 0.2 towards a multiple of the identity. The
    default alpha of cPCA includes the ridge in the trace ratio. The default of cPCA* is
    :math:`\beta = 1 / (1 + \tau)`, at which its matrix
    :math:`B_\beta = (1 - \beta) I + \beta C_Y` is proportional to :math:`C_Y + \tau I`.

    Parameters
    ----------
    foreground, background : moments
        Moments of the two datasets, which have the same features.
    n_varying : int, optional
        D'. Give it if the moments have fewer coordinates than the data have features.

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
                f"{moments.n_samples} rows), so no contrast can be chosen automatically. Check "
                "which rows it holds, or give the contrast strength as a number."
            )
    n_varying = n_varying or int((varies_x | varies_y).sum())
    return BACKGROUND_RIDGE * background.total_variance / n_varying


def denoising_alpha(foreground: Moments, background: Moments, plan: Plan | None = None) -> float:
    """Return the contrast strength for denoising: half of `trace_ratio_alpha` for two components.

    This strength is used for any number of components. The denoised rows are closest to the clean
    rows at a contrast that is weaker than the one that separates groups best.

    Parameters
    ----------
    foreground, background : moments
        Moments of the two datasets, which have the same features.
    plan : Plan, optional
        Plan of the solver for these moments.

    Returns
    -------
    float
        The contrast strength.

    Raises
    ------
    ValueError
        If one of the datasets is constant.
    """
    k = min(2, foreground.n_features)
    return 0.5 * trace_ratio_alpha(foreground, background, k, plan)
