"""Bootstrap of the components, which shows how far they move if other rows are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from contrast_core._moment_contrast import MomentContrast
from contrast_core._short_repr import ShortRepr
from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_count,
    check_generator,
    check_number,
)
from contrast_core.feedback import Progress, muted, with_progress
from contrast_core.linalg import aligned, principal_angles
from contrast_core.significance._estimators import (
    at_fixed_strength,
    components_of,
    fitted_on,
    resampling,
)
from contrast_core.significance._units import TwoSamples, Weights, two_samples


@dataclass(frozen=True, eq=False, repr=False)
class BootstrapStability(ShortRepr):
    """Stability of components under resampling, as computed by `bootstrap_stability`.

    Stability is measured in squared cosines, from 0 to 1. B is the number of resamples, and k is
    the number of components. For unrelated components in D features, `matched` is about 1/D, and
    `retained` and `subspace_stability` are about k/D.

    Parameters
    ----------
    matched : ndarray of shape (B, k)
        Squared cosine between each component and its counterpart in each resample. The components
        of a resample are first matched one to one to those of the data, because their order may
        change.
    retained : ndarray of shape (B, k)
        Share of each component that lies in the resample's subspace. If `retained` is high and
        `matched` is low, the subspace is stable, but the component turns within the subspace. This
        happens if eigenvalues are nearly equal.
    angles : ndarray of shape (B, k)
        Principal angles between the subspace of the data and that of each resample, in radians,
        descending.
    components : ndarray of shape (k, n_features)
        The components of the data.
    lower, upper : ndarray of shape (k, n_features)
        Lower and upper end of a percentile interval for each loading. A share `level` of the
        resamples lies within the interval, and equal shares lie below and above it. The components
        of a resample are first rotated within their subspace to be as close as possible to the
        components of the data. The intervals therefore show the uncertainty of the subspace. The
        difference between `matched` and `retained` shows how far components turn within it.
    level : float
        Share of the resamples that lies within these intervals.
    n_units, n_background_units : int or None
        Number of units in each dataset; None if rows were drawn one by one.
    """

    matched: FloatArray
    retained: FloatArray
    angles: FloatArray
    components: FloatArray
    lower: FloatArray
    upper: FloatArray
    level: float
    n_units: int | None
    n_background_units: int | None

    @property
    def component_stability(self) -> FloatArray:
        """Return the mean of `matched` over the resamples, (k,)."""
        return np.asarray(self.matched.mean(axis=0))

    @property
    def component_retention(self) -> FloatArray:
        """Return the mean of `retained` over the resamples, (k,)."""
        return np.asarray(self.retained.mean(axis=0))

    @property
    def subspace_stability(self) -> float:
        """Return the mean squared cosine of the principal angles, over angles and resamples."""
        return float((np.cos(self.angles) ** 2).mean())


def bootstrap_stability(
    estimator: MomentContrast,
    X: MatrixLike,
    *,
    background: MatrixLike | Sequence[MatrixLike],
    units: ArrayLike | None = None,
    background_units: ArrayLike | None = None,
    n_resamples: int = 200,
    level: float = 0.95,
    random_state: int | np.random.Generator | None = None,
    progress: Progress = False,
    **weights: Unpack[Weights],
) -> BootstrapStability:
    r"""Measure how stable components are by resampling rows, or units, with replacement.

    Foreground and background are resampled separately. The components :math:`V^*` of each resample
    are compared with the components V of the data in three ways:

    - by the squared cosine between each component and its counterpart;
    - by the share :math:`\|V^{*\top} v_j\|^2` of each component :math:`v_j` that lies in the
      resample's subspace;
    - by the principal angles between the two subspaces.

    Parameters
    ----------
    estimator : CPCA, CPCAStar, PCPCA or another `MomentContrast`
        The method and number of components. It is cloned. An automatic strength is chosen once, on
        the data, and the same strength is used for all resamples. PCPCA is resampled as cPCA at
        ``alpha = gamma_``, which has the same components.
    X, background : array-like, DataFrame or sparse matrix of shape (n or m, n_features)
        Foreground and background rows, not moments. Without units, the background may be a list of
        several datasets. They are mixed as in `CPCA.fit`, each centred at its own mean.
    units, background_units : array-like of shape (n,) and (m,), optional
        The donor, animal or other unit that each row belongs to. Units are drawn as a whole. A
        label that occurs in both datasets is one unit, which is drawn for both at once. Without
        units, rows are treated as independent. If several rows come from the same donor,
        components then look far more stable than they are.
    sample_weight, background_weight : array-like of shape (n,) and (m,), optional
        A weight for each row, as for `CPCA.fit`. For several backgrounds, give a list of such
        arrays. A row counts as one independent row, whatever its weight.
    background_mix : array-like of shape (number of backgrounds,), optional
        Share of each background in the mixture, as for `CPCA.fit`.
    n_resamples : int, default=200
        Number of bootstrap samples, B.
    level : float above 0, below 1, default=0.95
        Share of the resamples within the interval of each loading.
    random_state : int, Generator or None, default=None
        Seed of the resampling.
    progress : bool or callable, default=False
        Whether to show a progress bar of tqdm. A callable is used in place of tqdm, and is called
        as ``progress(iterable, total=, desc=)``.

    Returns
    -------
    BootstrapStability

    Raises
    ------
    ValueError
        If the datasets have different features, a dataset is constant, only one dataset has units,
        or a parameter is out of range.
    TypeError
        If the estimator is not a linear contrastive method, moments are given, or a parameter or
        label has the wrong type.

    Notes
    -----
    A stable component need not be significant. It can be stable even if it is only the noise of a
    few features, or if a single unit dominates it.

    The moments of each unit are computed only once.

    References
    ----------
    Efron and Tibshirani, "An Introduction to the Bootstrap", 1993 (eigenvectors of a
    covariance; percentiles). Contrast: see `CPCA`.

    Examples
    --------
    >>> from contrast_core import CPCA, bootstrap_stability
    >>> from contrast_core.datasets import make_four_groups
    >>> data = make_four_groups(random_state=0)
    >>> stability = bootstrap_stability(
    ...     CPCA(2), data.foreground, background=data.background, n_resamples=20, random_state=0
    ... )
    >>> stability.component_stability.shape, stability.subspace_stability > 0.9
    ((2,), True)
    """
    n_resamples = check_count(n_resamples, "n_resamples")
    share = check_number(level, "level", above=0, below=1)
    rng = check_generator(random_state)
    samples = two_samples(X, background, units, background_units, **weights)
    parts = samples.units()
    fitted = fitted_on(samples, parts, estimator, X, background)
    ours = components_of(fitted, samples)
    again = at_fixed_strength(fitted, len(ours))
    matched, retained, angles, turned = [], [], [], []
    with resampling(samples), muted():
        for _ in with_progress(range(n_resamples), n_resamples, "bootstrap", progress):
            x, y = (
                part.moments(times * part.counts)
                for part, times in zip(parts, _draw(samples, rng), strict=True)
            )
            again.fit(x, background=y)
            theirs = again.components_
            squared = (ours @ theirs.T) ** 2
            matched.append(squared[linear_sum_assignment(squared, maximize=True)])
            retained.append(squared.sum(axis=1))
            angles.append(principal_angles(ours, theirs))
            turned.append(aligned(theirs, ours))
    loadings = np.array(turned) if samples.basis is None else np.array(turned) @ samples.basis
    lower, upper = np.quantile(loadings, [(1 - share) / 2, (1 + share) / 2], axis=0)
    return BootstrapStability(
        np.array(matched),
        np.array(retained),
        np.array(angles),
        fitted.components_,
        lower,
        upper,
        share,
        *samples.numbers(),
    )


def _draw(
    samples: TwoSamples, rng: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Draw how many times each unit of the two datasets occurs in a resample.

    A unit that both datasets share is drawn equally often in both.
    """
    n_shared = len(samples.shared)
    shared_times = _times(n_shared, rng)
    times = []
    for side, sample in enumerate((samples.foreground, samples.background)):
        drawn = np.empty(sample.n_units, dtype=np.intp)
        drawn[samples.shared[:, side]] = shared_times
        alone = samples.unshared(side)
        strata = np.zeros(sample.n_units, np.intp) if sample.strata is None else sample.strata
        for stratum in np.unique(strata[alone]):  # every background keeps its number of rows
            some = alone[strata[alone] == stratum]
            drawn[some] = _times(len(some), rng)
        times.append(drawn)
    return times[0], times[1]


def _times(n: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return how many times each of n units is drawn in n draws with replacement."""
    return np.bincount(rng.integers(max(n, 1), size=n), minlength=n)
