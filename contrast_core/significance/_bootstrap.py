"""The bootstrap: how far the components would move if other rows had been drawn."""

from __future__ import annotations

import math
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

_FEATURES_AT_ONCE = 1000


@dataclass(frozen=True, eq=False, repr=False)
class BootstrapStability(ShortRepr):
    """Stability of components under resampling; made by `bootstrap_stability`.

    Stability is in squared cosines, from 0 to 1. Unrelated directions give about 1/D for `matched`
    and k/D for `retained` and the subspace.

    Parameters
    ----------
    matched : ndarray of shape (B, k)
        Stability of each component: its agreement with its counterpart in each resample. The
        resample's components are matched to ours one to one, because they may change places.
    retained : ndarray of shape (B, k)
        Share of each component that lies in the resample's subspace. High where `matched` is low:
        the component is real, but turns within the subspace (nearly tied eigenvalues).
    angles : ndarray of shape (B, k)
        Principal angles between our subspace and the resample's, radians, descending.
    components : ndarray of shape (k, n_features)
        The components of the data.
    lower, upper : ndarray of shape (k, n_features)
        Ends of a band for each loading, which holds a share `level` of the resamples; as many lie
        below it as above. A resample's components are first rotated within their subspace so that
        they lie as near to ours as possible. The bands therefore describe the subspace; how far
        components turn within it is the difference between `matched` and `retained`.
    level : float
        Share of the resamples within these bands.
    n_units, n_background_units : int or None
        Number of units in each dataset; None where rows were drawn one by one.
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

    Foreground and background are resampled separately, and the components V* of each resample
    compared with those of the data, V: per component (matched one to one, and the share
    :math:`\|V^{*\top} v_j\|^2` that the resampled subspace keeps) and by principal angles.

    Parameters
    ----------
    estimator : CPCA, CPCAStar, PCPCA or another `MomentContrast`
        The method and number of components; it is cloned. An automatic strength is chosen once,
        for the data as they are, and held. PCPCA is resampled as cPCA at ``alpha = gamma'``, which
        has its components.
    X, background : array-like, DataFrame or sparse matrix of shape (n or m, n_features)
        Foreground and background rows, not moments; without units the background may be a list of
        several, which are mixed as by `CPCA.fit`, each about its own mean.
    units, background_units : array-like of shape (n,) and (m,), optional
        The donor, animal or other unit that each row belongs to; units are drawn as a whole. A
        label that occurs in both datasets is one and the same donor, drawn for both at once.
        Without units every row is taken as independent: with rows that repeat, components look
        far more stable than they are.
    sample_weight, background_weight : array-like of shape (n,) and (m,), optional
        A weight for each row, as for `CPCA.fit`; of several backgrounds a list. A row stays one
        independent row whatever its weight.
    background_mix : array-like of shape (number of backgrounds,), optional
        As for `CPCA.fit`.
    n_resamples : int, default=200
        Number of bootstrap samples, B.
    level : float above 0, below 1, default=0.95
        Share of the resamples within the bands of the loadings.
    random_state : int, Generator or None, default=None
        Seed of the resampling.
    progress : bool or callable, default=False
        Show a progress bar: tqdm's, or what is called as ``progress(iterable, total=, desc=)``.

    Returns
    -------
    BootstrapStability

    Raises
    ------
    ValueError
        If the datasets do not fit together or one is constant, only one has units, or a parameter
        is out of range.
    TypeError
        If the estimator is not a linear contrastive method, moments are given, or a parameter or
        label has the wrong type.

    Notes
    -----
    Stability is not significance: a component of noise in few features, or one that a single unit
    dominates, can be stable. Units are reduced to their moments once.

    References
    ----------
    Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, Sec. 7.2 (eigenvectors of a
    covariance) and 13.3 (percentiles). Contrast: see `CPCA`.

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
    return BootstrapStability(
        np.array(matched),
        np.array(retained),
        np.array(angles),
        fitted.components_,
        *_bands(np.array(turned), samples.basis, share),
        share,
        *samples.numbers(),
    )


def _bands(
    components: FloatArray, basis: FloatArray | None, level: float
) -> tuple[FloatArray, FloatArray]:
    """Return percentiles over the resamples, for few features at a time with a `basis`."""
    ends = [(1 - level) / 2, (1 + level) / 2]
    if basis is None:
        lower, upper = np.quantile(components, ends, axis=0)
        return lower, upper
    n_blocks = math.ceil(basis.shape[1] / _FEATURES_AT_ONCE)
    parts = [
        np.quantile(components @ some, ends, axis=0)
        for some in np.array_split(basis, n_blocks, axis=1)
    ]
    lower, upper = np.concatenate(parts, axis=-1)
    return lower, upper


def _draw(
    samples: TwoSamples, rng: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Draw how often each unit counts; shared units count as often in both datasets."""
    n_shared = len(samples.shared)
    shared_times = _times(n_shared, rng)
    times = []
    for side, sample in enumerate((samples.foreground, samples.background)):
        drawn = np.empty(sample.n_units, dtype=np.intp)
        drawn[samples.shared[:, side]] = shared_times
        alone = samples.unshared(side)
        strata = np.zeros(sample.n_units, np.intp) if sample.strata is None else sample.strata
        for stratum in np.unique(strata[alone]):  # of each of several backgrounds as many as it has
            some = alone[strata[alone] == stratum]
            drawn[some] = _times(len(some), rng)
        times.append(drawn)
    return times[0], times[1]


def _times(n: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return how often each of n units comes up in n draws."""
    return np.bincount(rng.integers(max(n, 1), size=n), minlength=n)
