"""Cross-fitted trace ratio: directions from one half of the rows, variances from the other half."""

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

_BLOCKS = 8  # units are divided into 8 blocks; there are 35 splits into halves of four blocks


@dataclass(frozen=True, eq=False, repr=False)
class CrossFittedRatio(ShortRepr):
    """Cross-fitted trace ratio, as computed by `cross_fitted_ratio`.

    Parameters
    ----------
    ratio : float
        Median of `ratios`. The ratio of a single split is noisy, especially with few units.
    ratios : ndarray of shape (2 * s,)
        Two ratios for each of s splits, because the directions are fitted to each half once. s is
        `n_splits`, or smaller if there are few units.
    baseline : float
        The ratio of the total variances, tr(C_X) / tr(C_Y).
    n_units, n_background_units : int or None
        Number of units in each dataset; None if rows were split one by one.
    """

    ratio: float
    ratios: FloatArray
    baseline: float
    n_units: int | None
    n_background_units: int | None

    @property
    def relative(self) -> float:
        """Return the ratio divided by the baseline; at most about 1 for equal distributions."""
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
    r"""Estimate the size of an effect by a trace ratio on rows that were not used for the fit.

    The automatic contrast (`contrast_core.contrast.trace_ratio_alpha`) is fitted to one half of the
    rows and gives k directions, the columns of V. The ratio along V is then computed from the
    covariances :math:`C'_X` of the foreground and :math:`C'_Y` of the background in the other half:

    .. math:: \frac{\operatorname{tr} V^\top C'_X V}{\operatorname{tr} V^\top C'_Y V + k\tau'} .

    On the rows to which V is fitted, this ratio would be large for any data. Suppose that both
    datasets have the same distribution. On the other half, the ratio is then about the baseline
    tr(C_X) / tr(C_Y) times the factor :math:`s / (s + \tau')`. Here s is the background's mean
    variance along the columns of V, and the ridge :math:`\tau'` is a quarter of the background's
    mean variance per feature, both in the other half. The factor is below 1. If all directions have
    the same variance, it is 0.8.

    Parameters
    ----------
    X, background : array-like, DataFrame or sparse matrix of shape (n or m, n_features)
        Foreground and background rows, not moments. Without units, the background may be a list of
        several datasets. They are mixed as in `CPCA.fit`, each centred at its own mean.
    n_components : int, default=2
        Number of components of the contrast, k.
    units, background_units : array-like of shape (n,) and (m,), optional
        The donor or animal of each row. All rows of a unit stay in the same half. A label that
        occurs in both datasets is one unit. Without units, rows are treated as independent and
        stored as a dense matrix. If several rows come from the same donor, the ratio is then too
        large. Neighbouring frames of a film are similar too. For a film, let each unit be a stretch
        of frames that is longer than the events of the film, as in ``np.arange(n_frames) // 500``.
        Use different labels in the background, such as ``-1 - np.arange(n_frames) // 500``.
    sample_weight, background_weight : array-like of shape (n,) and (m,), optional
        A weight for each row, as for `CPCA.fit`. For several backgrounds, give a list of such
        arrays. A row counts as one independent row, whatever its weight.
    background_mix : array-like of shape (number of backgrounds,), optional
        Share of each background in the mixture, as for `CPCA.fit`.
    n_splits : int, default=10
        Number of random splits. In each split, directions are fitted to each half once.
    random_state : int, Generator or None, default=None
        Seed of the splits.

    Returns
    -------
    CrossFittedRatio

    Raises
    ------
    ValueError
        If the datasets have different features, only one has units, or a dataset has fewer than
        four rows or two units.

    Notes
    -----
    The ratio measures how large a contrast is. It does not show whether chance alone would give an
    equally large contrast, because all `ratios` come from splits of the same rows. Units differ
    even without a condition: untreated blood cells of two donors give 1.1 to 1.4 times the
    baseline. Therefore compare the ratio with the ratio between two groups of background units, and
    test significance by `permutation_test` or `condition_test`.

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
    if not samples.foreground.grouped and min(sizes) < 4:
        raise ValueError(
            f"X has {sizes[0]} rows and background {sizes[1]}. Each half of a split needs 2 rows "
            "to have a variance, so each dataset needs at least 4 rows."
        )
    of_unit = samples.assign_to_parts(_BLOCKS, rng)
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
    """Return up to `n_splits` of the most even splits, each given by the blocks of one half."""
    sizes = [np.bincount(blocks, minlength=_BLOCKS) for blocks in of_unit]
    halves = [half for half in combinations(range(_BLOCKS), _BLOCKS // 2) if half[0] == 0]
    uneven = [sum(abs(2 * n[list(half)].sum() - n.sum()) for n in sizes) for half in halves]
    even = np.flatnonzero(np.array(uneven) == min(uneven))
    chosen = rng.permutation(even)[:n_splits]
    return [halves[i] for i in np.sort(chosen)]
