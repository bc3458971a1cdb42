"""The trace ratio, with directions from one half of the rows and variances from the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

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
from contrast_core.contrast import background_ridge
from contrast_core.linalg import contrastive_eigenpairs, variances_along
from contrast_core.moments import SecondMoments
from contrast_core.significance._estimators import resampling
from contrast_core.significance._units import TwoSamples, two_samples

_MAX_ITERATIONS = 100
_BLOCKS = 8  # which halve in 35 ways


@dataclass(frozen=True, eq=False, repr=False)
class CrossFittedRatio(ShortRepr):
    """The cross-fitted trace ratio; made by `cross_fitted_ratio`.

    Parameters
    ----------
    ratio : float
        Median of `ratios`: a single split is noisy, the more the fewer the units.
    ratios : ndarray of shape (2 * n_splits,)
        The ratio of each split, either half once the one for the directions.
    baseline : float
        tr(C_X) / tr(C_Y), what directions without contrast give.
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
        """The ratio divided by the baseline: about 1 where both datasets are alike."""
        return self.ratio / self.baseline


def cross_fitted_ratio(
    X: MatrixLike,
    *,
    background: MatrixLike | Sequence[MatrixLike],
    n_components: int = 2,
    units: ArrayLike | None = None,
    background_units: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    background_weight: ArrayLike | Sequence[ArrayLike | None] | None = None,
    background_mix: ArrayLike | None = None,
    n_splits: int = 10,
    random_state: int | np.random.Generator | None = None,
) -> CrossFittedRatio:
    r"""Return the trace ratio on rows that did not choose the directions: the size of an effect.

    The iteration of the automatic contrast (`contrast_core.contrast.trace_ratio_alpha`), with V
    the top-k eigenvectors of :math:`C_X - \alpha C_Y` on one half of the rows and

    .. math:: \alpha \leftarrow
        \frac{\operatorname{tr} V^\top C'_X V}{\operatorname{tr} V^\top C'_Y V + k\tau'}

    on the other half, until it stops rising. In-sample this ratio is large whatever the data;
    here two samples of one distribution give about tr(C_X) / tr(C_Y).

    Parameters
    ----------
    X, background : array-like, DataFrame or sparse matrix of shape (n or m, n_features)
        Foreground and background rows, not moments; without units the background may be a list of
        several, which are mixed as by `CPCA.fit`, each about its own mean.
    n_components : int, default=2
        k, the number of components the contrast is for.
    units, background_units : array-like of shape (n,) and (m,), optional
        What rows repeat (donor, animal); a unit's rows stay in one half. A label that occurs in
        both datasets is one and the same unit. Without them every row is taken as independent and
        held dense: rows that repeat then fake a finding. Neighbouring frames of a film repeat as
        well: give stretches of it as units, longer than what happens in it lasts, such as
        ``np.arange(n_frames) // 500``, in the background with other labels (``-1 -`` the same).
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
    spread of `ratios` is that of the splits of one dataset. Single units differ among themselves
    (one donor's cells against another's give about 2), so compare with the ratio of background
    units against each other, and use `permutation_test` or `condition_test` to decide.

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
    weights: dict[str, Any] = {
        "sample_weight": sample_weight,
        "background_weight": background_weight,
        "background_mix": background_mix,
    }
    samples = two_samples(X, background, units, background_units, **weights)
    k = check_n_components(n_components, samples.n_varying)
    sizes = samples.foreground.n_units, samples.background.n_units
    if samples.foreground.codes is None and min(sizes) < 4:
        raise ValueError(
            f"X has {sizes[0]} rows and background {sizes[1]}; two halves with a variance each "
            "need at least 4 of both."
        )
    of_unit = _blocks(samples, rng)
    x, y = samples.foreground.merged(of_unit[0]), samples.background.merged(of_unit[1])
    ratios = []
    with resampling(samples):
        for half in _halves(of_unit, n_splits, rng):
            in_x, in_y = (np.isin(np.unique(blocks), half) for blocks in of_unit)
            first, second = (
                (x.moments(in_x == kept), y.moments(in_y == kept)) for kept in (True, False)
            )
            ratios += [
                _held_out_ratio(*both, k, samples.n_varying)
                for both in ((first, second), (second, first))
            ]
    return CrossFittedRatio(
        float(np.median(ratios)),
        np.array(ratios),
        x.moments().total_variance / y.moments().total_variance,
        *samples.numbers(),
    )


def _held_out_ratio(
    fitted: tuple[SecondMoments, SecondMoments],
    measured: tuple[SecondMoments, SecondMoments],
    k: int,
    n_varying: int,
) -> float:
    ridge = background_ridge(*measured, n_varying)
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


def _blocks(samples: TwoSamples, rng: np.random.Generator) -> list[NDArray[np.intp]]:
    """The block of each unit of both datasets, dealt out in turn; a shared unit's is one."""
    n_shared = len(samples.shared)
    shared_block = rng.permutation(n_shared) % _BLOCKS
    blocks = []
    for side, sample in enumerate((samples.foreground, samples.background)):
        block = np.empty(sample.n_units, dtype=np.intp)
        block[samples.shared[:, side]] = shared_block
        alone = samples.only(side)
        block[alone] = (n_shared + rng.permutation(len(alone))) % _BLOCKS
        blocks.append(block)
    return blocks


def _halves(
    of_unit: list[NDArray[np.intp]], n_splits: int, rng: np.random.Generator
) -> list[tuple[int, ...]]:
    """Blocks that make one half of both datasets, of the splits that are as even as possible."""
    sizes = [np.bincount(blocks, minlength=_BLOCKS) for blocks in of_unit]
    halves = [half for half in combinations(range(_BLOCKS), _BLOCKS // 2) if half[0] == 0]
    uneven = [sum(abs(2 * n[list(half)].sum() - n.sum()) for n in sizes) for half in halves]
    even = np.flatnonzero(np.array(uneven) == min(uneven))
    chosen = rng.permutation(even)[:n_splits]
    return [halves[i] for i in np.sort(chosen)]
