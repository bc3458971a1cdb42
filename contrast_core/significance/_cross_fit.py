"""The trace ratio, with directions from one half of the rows and variances from the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_n_components,
)
from contrast_core.contrast import background_ridge
from contrast_core.feedback import warn
from contrast_core.linalg import contrastive_eigenpairs, variances_along
from contrast_core.moments import SecondMoments
from contrast_core.significance._estimators import resampling
from contrast_core.significance._units import TwoSamples, two_samples

_FACTOR = 1.5  # a ratio below this multiple of tr(C_X) / tr(C_Y) is no finding
_FEW_GROUPS = 10  # with so few groups a ratio near 1 does not show that there is nothing
_MAX_ITERATIONS = 100


@dataclass(frozen=True, eq=False)
class CrossFittedRatio:
    """The cross-fitted trace ratio; made by `cross_fitted_ratio`.

    Parameters
    ----------
    ratio : float
        Median of `ratios`: a single split is noisy, the more the fewer the groups.
    ratios : ndarray of shape (2 * n_splits,)
        The ratio of each split, either half once the one for the directions.
    baseline : float
        tr(C_X) / tr(C_Y), what directions without contrast give.
    n_groups, n_background_groups : int or None
        Number of groups in each dataset; None where rows were split one by one.
    """

    ratio: float
    ratios: FloatArray
    baseline: float
    n_groups: int | None
    n_background_groups: int | None

    @property
    def threshold(self) -> float:
        """1.5 times the baseline; a ratio below it is no finding."""
        return _FACTOR * self.baseline

    @property
    def found(self) -> bool:
        """Whether the ratio reaches the threshold."""
        return self.ratio >= self.threshold

    @property
    def few_groups(self) -> bool:
        """Whether a dataset has so few groups (ten or fewer) that no null can be certified."""
        numbers = (self.n_groups, self.n_background_groups)
        return any(number is not None and number <= _FEW_GROUPS for number in numbers)


def cross_fitted_ratio(
    X: MatrixLike,
    *,
    background: MatrixLike,
    n_components: int = 2,
    groups: ArrayLike | None = None,
    background_groups: ArrayLike | None = None,
    n_splits: int = 10,
    random_state: int | np.random.Generator | None = None,
) -> CrossFittedRatio:
    r"""Is there anything to find? The trace ratio on rows that did not choose the directions.

    The iteration of the automatic contrast (`contrast_core.contrast.trace_ratio_alpha`), with V
    the top-k eigenvectors of :math:`C_X - \alpha C_Y` on one half of the rows and

    .. math:: \alpha \leftarrow
        \frac{\operatorname{tr} V^\top C'_X V}{\operatorname{tr} V^\top C'_Y V + k\tau'}

    on the other half, until it stops rising. In-sample this ratio is large whatever the data;
    here two samples of one distribution give about tr(C_X) / tr(C_Y).

    Parameters
    ----------
    X, background : array-like, DataFrame or sparse matrix of shape (n or m, n_features)
        Foreground and background rows, not moments.
    n_components : int, default=2
        k, the number of components the contrast is for.
    groups, background_groups : array-like of shape (n,) and (m,), optional
        What rows repeat (donor, animal); a group's rows stay in one half. A label that occurs in
        both datasets is one and the same group. Without them every row is taken as independent and
        held dense: rows that repeat then fake a finding.
    n_splits : int, default=10
        Number of random splits; each is used both ways.
    random_state : int, Generator or None, default=None
        Seed of the splits.

    Returns
    -------
    CrossFittedRatio

    Raises
    ------
    ValueError
        If the datasets do not fit together, only one has groups, or there are fewer than four
        rows or two groups to split.

    Warns
    -----
    ContrastWarning
        If the ratio is below 1.5 tr(C_X) / tr(C_Y).

    Notes
    -----
    Seven to ten groups cannot certify a null, in either direction: too few are left in a half to
    find a weak contrast, and single groups differ among themselves (one donor's cells against
    another's give about 2). Then compare with the ratio of background groups against each other.

    References
    ----------
    Trace ratio: Fujiwara et al., Journal of Data Science, Statistics, and Visualisation 2(5),
    2022, doi:10.52933/jdssv.v2i5.56.

    Examples
    --------
    >>> from contrast_core import cross_fitted_ratio
    >>> from contrast_core.datasets import load_mouse_protein
    >>> mice = load_mouse_protein()
    >>> found = cross_fitted_ratio(
    ...     mice.foreground, background=mice.background, groups=mice.groups,
    ...     background_groups=mice.background_groups, random_state=0,
    ... )
    >>> found.found, found.few_groups
    (True, True)
    """
    samples = two_samples(X, background, groups, background_groups)
    x, y = samples.foreground.moments(), samples.background.moments()
    k = check_n_components(n_components, x.n_features)
    if n_splits < 1:
        raise ValueError(f"n_splits={n_splits} is out of range; at least 1 is needed.")
    if not samples.grouped and min(len(samples.foreground), len(samples.background)) < 4:
        raise ValueError(
            f"X has {len(samples.foreground)} rows and background {len(samples.background)}; two "
            "halves with a variance each need at least 4 of both."
        )
    rng = np.random.default_rng(random_state)
    ratios = []
    with resampling(samples):
        for _ in range(n_splits):
            half_x, half_y = _halves(samples, rng)
            first = samples.foreground.moments(half_x), samples.background.moments(half_y)
            second = samples.foreground.moments(~half_x), samples.background.moments(~half_y)
            ratios += [_held_out_ratio(first, second, k), _held_out_ratio(second, first, k)]
    result = CrossFittedRatio(
        float(np.median(ratios)),
        np.array(ratios),
        x.total_variance / y.total_variance,
        *samples.n_groups(),
    )
    if not result.found:
        _warn_of_nothing(result)
    return result


def _held_out_ratio(
    fitted: tuple[SecondMoments, SecondMoments],
    measured: tuple[SecondMoments, SecondMoments],
    k: int,
) -> float:
    ridge = background_ridge(*measured)
    alpha = 0.0
    for _ in range(_MAX_ITERATIONS):
        directions = contrastive_eigenpairs(
            fitted[0].covariance, fitted[1].covariance, alpha, k
        ).components
        foreground, background = (
            float(variances_along(directions, moments.covariance).sum()) for moments in measured
        )
        risen = foreground / (background + k * ridge)
        if risen <= alpha * (1 + 1e-12):
            break
        alpha = risen
    return alpha


def _halves(
    samples: TwoSamples, rng: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Random halves of the units of both datasets; a shared group is in the same half of both."""
    n_shared = len(samples.shared)
    shared_half = rng.permutation(n_shared) % 2 == 0
    halves = []
    for side, units in enumerate((samples.foreground, samples.background)):
        half = np.empty(len(units), dtype=bool)
        half[samples.shared[:, side]] = shared_half
        alone = samples.only(side)
        half[alone] = rng.permutation(len(alone)) % 2 == n_shared % 2
        halves.append(half)
    return halves[0], halves[1]


def _warn_of_nothing(result: CrossFittedRatio) -> None:
    few = ""
    if result.few_groups:
        few = (
            f" With {result.n_groups} and {result.n_background_groups} groups this does not show "
            "that there is nothing: seven to ten groups cannot certify a null."
        )
    warn(
        f"the cross-fitted trace ratio is {result.ratio:.3g}, below 1.5 tr(C_X)/tr(C_Y) = "
        f"{result.threshold:.3g}: on rows that did not choose the directions, the foreground "
        f"varies hardly more than the background.{few}",
    )
