"""The trace ratio, with directions from one half of the rows and variances from the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrast_core._short_repr import ShortRepr
from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_count,
    check_generator,
    check_n_components,
)
from contrast_core.contrast import held_out_ratio
from contrast_core.significance._estimators import resampling
from contrast_core.significance._units import Weights, two_samples

_BLOCKS = 8  # which halve in 35 ways


@dataclass(frozen=True, eq=False, repr=False)
class CrossFittedRatio(ShortRepr):
    """Cross-fitted trace ratio; made by `cross_fitted_ratio`.

    Parameters
    ----------
    ratio : float
        Median of `ratios`. A single split is noisy, above all with few units.
    ratios : ndarray of shape (2 * n_splits,)
        Two ratios of each split: each half chooses the directions once.
    baseline : float
        tr(C_X) / tr(C_Y), the ratio that directions without contrast give.
    n_units, n_background_units : int or None
        Number of units in each dataset; None where rows were split one by one.
    """

    ratio: float
    ratios: FloatArray
    baseline: float
    n_units: int | None
    n_background_units: int | None

    @property
    def relative(self) -> float:
        """Return the ratio over the baseline: 1 or somewhat less without an effect."""
        return self.ratio / self.baseline


def cross_fitted_ratio(
    X: MatrixLike,
    *,
    background: MatrixLike | Sequence[MatrixLike],
    n_components: int = 2,
    units: ArrayLike | None = None,
    background_units: ArrayLike | None = None,
    n_splits: int = 10,
    random_state: int | np.random.Generator | None = None,
    **weights: Unpack[Weights],
) -> CrossFittedRatio:
    r"""Return the trace ratio on rows that did not choose the directions: the size of an effect.

    One half of the rows chooses the k directions V of the automatic contrast
    (`contrast_core.contrast.trace_ratio_alpha`), the other half, with covariances :math:`C'`,
    measures their ratio

    .. math:: \frac{\operatorname{tr} V^\top C'_X V}{\operatorname{tr} V^\top C'_Y V + k\tau'} .

    On the rows that chose V this ratio is large whatever the data are. On the other half, two
    samples of one distribution give tr(C_X) / tr(C_Y) or less: with a variance s along V and the
    ridge :math:`\tau'`, a quarter of the mean variance, :math:`s / (s + \tau')` times it, which is
    0.8 if all directions have the same variance.

    Parameters
    ----------
    X, background : array-like, DataFrame or sparse matrix of shape (n or m, n_features)
        Foreground and background rows, not moments; without units the background may be a list of
        several, which are mixed as by `CPCA.fit`, each about its own mean.
    n_components : int, default=2
        Number of components of the contrast, k.
    units, background_units : array-like of shape (n,) and (m,), optional
        The donor or animal of each row; a unit's rows stay in one half. A label that occurs in both
        datasets is one and the same unit. Without units every row is taken as independent and held
        dense; rows that repeat then fake a finding. Neighbouring frames of a film are alike too:
        give stretches of the film as units, longer than its events last, such as
        ``np.arange(n_frames) // 500``, with other labels in the background (``-1 -`` the same).
    sample_weight, background_weight : array-like of shape (n,) and (m,), optional
        A weight for each row, as for `CPCA.fit`; of several backgrounds a list. A row stays one
        independent row whatever its weight.
    background_mix : array-like of shape (number of backgrounds,), optional
        As for `CPCA.fit`.
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
        If the datasets do not fit together, only one has units, or there are fewer than four
        rows or two units to split.

    Notes
    -----
    The ratio says how large a contrast is, not whether chance alone would give one as large: the
    spread of `ratios` is that of the splits of one dataset. Single units differ among themselves:
    untreated blood cells of two donors give 1.1 to 1.4 times the baseline. So compare with the
    ratio of background units against each other, and use `permutation_test` or `condition_test` to
    decide.

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
    ...     mice.foreground, background=mice.background, units=mice.units,
    ...     background_units=mice.background_units, random_state=0,
    ... )
    >>> found.relative > 1.5
    True
    """
    n_splits = check_count(n_splits, "n_splits")
    rng = check_generator(random_state)
    samples = two_samples(X, background, units, background_units, **weights)
    k = check_n_components(n_components, samples.n_varying)
    sizes = samples.foreground.n_units, samples.background.n_units
    if samples.foreground.codes is None and min(sizes) < 4:
        raise ValueError(
            f"X has {sizes[0]} rows and background {sizes[1]}; two halves with a variance each "
            "need at least 4 of both."
        )
    of_unit = samples.dealt(_BLOCKS, rng)
    x, y = samples.foreground.merged(of_unit[0]), samples.background.merged(of_unit[1])
    ratios = []
    with resampling(samples):
        for half in _halves(of_unit, n_splits, rng):
            in_half = [np.isin(np.unique(blocks), half) for blocks in of_unit]
            first, second = (
                (
                    x.moments(x.counts * (in_half[0] == kept)),
                    y.moments(y.counts * (in_half[1] == kept)),
                )
                for kept in (True, False)
            )
            ratios.append(held_out_ratio(first, second, k, samples.n_varying))
            ratios.append(held_out_ratio(second, first, k, samples.n_varying))
    totals = [part.moments(part.counts).total_variance for part in (x, y)]
    return CrossFittedRatio(
        float(np.median(ratios)), np.array(ratios), totals[0] / totals[1], *samples.numbers()
    )


def _halves(
    of_unit: list[NDArray[np.intp]], n_splits: int, rng: np.random.Generator
) -> list[tuple[int, ...]]:
    """Return some of the most even splits, each as the blocks that make up one half."""
    sizes = [np.bincount(blocks, minlength=_BLOCKS) for blocks in of_unit]
    halves = [half for half in combinations(range(_BLOCKS), _BLOCKS // 2) if half[0] == 0]
    uneven = [sum(abs(2 * n[list(half)].sum() - n.sum()) for n in sizes) for half in halves]
    even = np.flatnonzero(np.array(uneven) == min(uneven))
    chosen = rng.permutation(even)[:n_splits]
    return [halves[i] for i in np.sort(chosen)]
