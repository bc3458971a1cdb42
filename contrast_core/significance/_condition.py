"""Permutation test of a condition, which relabels donors or swaps the two parts of a donor."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrast_core._moment_contrast import MomentContrast
from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_count,
    check_flag,
    check_generator,
)
from contrast_core.feedback import Progress
from contrast_core.significance._deflation import Deflation
from contrast_core.significance._estimators import (
    check_estimator,
    quietly_fitted,
    resampling,
)
from contrast_core.significance._permutation import PermutationTest
from contrast_core.significance._relabellings import Relabellings
from contrast_core.significance._statistic import Statistic
from contrast_core.significance._units import TwoSamples, Units, two_samples


def condition_test(
    estimator: MomentContrast,
    X: MatrixLike,
    *,
    background: MatrixLike,
    units: ArrayLike | None = None,
    background_units: ArrayLike | None = None,
    include_background: bool = True,
    n_permutations: int = 999,
    random_state: int | np.random.Generator | None = None,
    progress: Progress = False,
) -> PermutationTest:
    r"""Test whether a condition causes a component, by relabelling which donors were treated.

    `permutation_test` asks whether two datasets have the same covariance, and ignores their means.
    This test includes the difference between the means. X holds the rows of treated donors
    (animals, cultures), and the background holds the rows of controls. The foreground consists of
    both together, unless `include_background` is False. Under the null hypothesis, a donor's rows
    do not depend on its condition. Each relabelling therefore chooses other donors as treated,
    forms both sets again, and fits the contrast again. Each donor counts the same, however many
    rows it has. The statistic and p-value of component j are

    .. math:: T_j = \alpha_j \frac{\operatorname{tr} C_Y}{\operatorname{tr} C_X} , \qquad
        p_j = \frac{\#\{\text{relabellings}: T_j^{(b)} \ge T_j\}}{\#\{\text{relabellings}\}} ,

    where :math:`C_X` and :math:`C_Y` are the covariances of foreground and background, and
    :math:`T_j^{(b)}` is the statistic of relabelling b. The relabellings include the original
    labels. As in `permutation_test`, component j is the leading direction after the earlier
    components are removed, at the automatic contrast strength :math:`\alpha_j` for one component.
    At a given strength, and for PCPCA, the statistic is an eigenvalue, as in that test.

    If a donor has rows in both sets, a relabelling swaps these two parts or leaves them in place.
    The mean of the two parts is subtracted from both, and the mean of all donors with rows in one
    set only is added to both. Donors with rows in one set only are not centred.

    Parameters
    ----------
    estimator : CPCA, CPCAStar or PCPCA
        The method and number of components, as in `permutation_test`.
    X, background : array-like, DataFrame or sparse matrix of shape (n or m, n_features)
        Rows of the treated donors and of the controls, not moments. No row is in both.
    units, background_units : array-like of shape (n,) and (m,), optional
        The donor of every row. A label that occurs in both sets is one donor. Without units, every
        row is treated as a donor of its own. If several rows come from the same donor, the p-values
        are then far too small.
    include_background : bool, default=True
        If True, the foreground consists of all rows, so that it contains the difference between the
        means. If False, it consists of the rows of X alone.
    n_permutations : int, default=999
        Number of random relabellings. If no more than `n_permutations` relabellings exist, all of
        them are used.
    random_state : int, Generator or None, default=None
        Seed of the relabellings, and of the rows that are left out (see the notes).
    progress : bool or callable, default=False
        Whether to show a progress bar of tqdm. A callable is used in place of tqdm, and is called
        as ``progress(iterable, total=, desc=)``.

    Returns
    -------
    PermutationTest
        The result, in which every donor has the same weight.

    Raises
    ------
    ValueError
        If there are fewer than 20 relabellings, so that no p-value can reach 0.05. The smallest
        designs with at least 20 are 3 donors against 3, 1 against 19, and 5 donors with rows in
        both sets (32 relabellings). The error is also raised if some donors occur in one set
        only, but no donor occurs in the other set only. In addition, it is raised in the cases in
        which `permutation_test` raises it.
    TypeError
        In the cases in which `permutation_test` raises it.

    Warns
    -----
    ContrastWarning
        If `n_permutations` is so small that no p-value can reach 0.05.

    Notes
    -----
    If the condition has no influence on how a donor's rows are drawn, the first component's p-value
    at an automatic contrast is exact. At a given contrast it is approximate, because both sets are
    scaled to the total variances of the original sets. The same holds for PCPCA, even if its gamma
    is automatic. The p-values of later components are approximate too, because every relabelling
    removes the components that were found with the original labels.

    The moments of a donor with few rows are noisy. If treated donors and controls had different
    numbers of rows, this noise alone would distinguish them. Rows are therefore left out at random,
    so that both parts of a donor have equally many rows. Among donors with rows in one set only,
    the median number of rows of a donor is computed for each set. None of these donors keeps more
    rows than the smaller of the two medians.

    Rows without units are stored as a dense matrix. The moments of every donor are computed once,
    and each relabelling is then one small eigenproblem. The moments take (number of units) times
    D^2 numbers, where D is the number of features.

    References
    ----------
    Permutation of units: Lehmann and Romano, "Testing Statistical Hypotheses", 2005.
    Contrast: see `CPCA` and `contrast_core.contrast.trace_ratio_alpha`.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core import CPCA, condition_test
    >>> rng = np.random.default_rng(0)
    >>> donors, others = np.repeat(np.arange(4), 30), np.repeat(np.arange(4, 8), 30)
    >>> X, Y = rng.normal(size=(120, 10)), rng.normal(size=(120, 10))
    >>> X[:, 0] += 6
    >>> test = condition_test(
    ...     CPCA(1), X, background=Y, units=donors, background_units=others, random_state=0
    ... )
    >>> test.n_distinct, test.n_significant()
    (70, 1)
    """
    n_permutations = check_count(n_permutations, "n_permutations")
    check_flag(include_background, "include_background")
    rng = check_generator(random_state)
    check_estimator(estimator)
    samples = two_samples(X, background, units, background_units, fewest=1)
    relabellings = Relabellings.from_samples(samples, n_permutations)
    together = _units(_balanced(samples, rng))
    is_treated = relabellings.given
    x, y = (
        together.moments(np.where(side, 1.0, 0.0), float(together.counts[side].sum()))
        for side in (is_treated | include_background, ~is_treated)
    )
    fitted = quietly_fitted(estimator, x, y)
    with resampling(samples):
        deflated = _DeflatedUnits(
            Statistic.for_estimator(estimator, fitted),
            samples.n_varying,
            (together,),
            given=is_treated,
            pooled=include_background,
        ).find(len(fitted.components_))
        null = relabellings.statistics(deflated.statistics, rng, progress)
    return PermutationTest.from_statistics(relabellings, deflated, null)


def _balanced(samples: TwoSamples, rng: np.random.Generator) -> TwoSamples:
    """Leave out rows at random, so that numbers of rows do not distinguish the two sets."""
    sizes = samples.foreground.sizes, samples.background.sizes
    most = [size.copy() for size in sizes]
    alone = [samples.unshared(side) for side in (0, 1)]
    if all(map(len, alone)):
        median = min(int(np.median(size[a])) for size, a in zip(sizes, alone, strict=True))
        for limit, a in zip(most, alone, strict=True):
            limit[a] = np.minimum(limit[a], median)
    one, other = samples.shared.T
    most[0][one] = most[1][other] = np.minimum(sizes[0][one], sizes[1][other])
    return samples._replace(
        foreground=samples.foreground.thinned(most[0], rng),
        background=samples.background.thinned(most[1], rng),
    )


def _units(samples: TwoSamples) -> Units:
    """Stack the units of both datasets, and centre the two parts of each donor.

    The parts are centred at the mean of the donors with one part, or at 0 if there are none.
    """
    units = Units.stacked(samples.units())
    pairs = samples.pairs
    means = units.means.copy()
    free = np.setdiff1d(np.arange(len(units)), pairs)
    middle = means[pairs].mean(axis=1, keepdims=True)
    common = means[free].mean(axis=0) if len(free) else 0.0
    means[pairs] += common - middle
    return replace(units, means=means)


@dataclass
class _DeflatedUnits(Deflation):
    """Deflation of the stacked units of both datasets.

    If `pooled` is True, all units belong to the foreground. `given` marks the treated units.
    """

    given: NDArray[np.bool_] = field(kw_only=True)
    pooled: bool = field(kw_only=True)

    def _original_covariances(self, j: int) -> tuple[FloatArray, FloatArray]:
        x, y = self._sets(self.given)
        return x[j:, j:], y[j:, j:]

    def statistics(self, is_treated: NDArray[np.bool_]) -> list[float]:
        """Return the statistic of every component for these labels."""
        x, y = self._sets(is_treated)
        return self.relabelled(lambda j: (x[j:, j:], y[j:, j:]))

    def _sets(self, is_treated: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
        """Return the covariances of foreground and background, with equal weights of all units."""
        [units] = self.units
        masks = is_treated | self.pooled, ~is_treated
        x, y = (units.covariance(mask / mask.sum()) for mask in masks)
        return x, y
