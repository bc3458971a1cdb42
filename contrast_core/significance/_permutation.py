"""Which components are real: permutation of the foreground and background labels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrast_core._moment_contrast import MomentContrast
from contrast_core._validation import FloatArray, MatrixLike
from contrast_core.feedback import Progress, warn, with_progress
from contrast_core.moments import SecondMoments
from contrast_core.significance._estimators import (
    components_of,
    fitted_on,
    held,
    leading_eigenvalue,
    resampling,
)
from contrast_core.significance._units import TwoSamples, Units, two_samples

_LEVEL = 0.05


@dataclass(frozen=True, eq=False)
class PermutationTest:
    """Significance of each component; made by `permutation_test`.

    Parameters
    ----------
    p_values : ndarray of shape (k,)
        Of each component, non-decreasing: a component counts only if those before it do.
    statistics : ndarray of shape (k,)
        The method's leading eigenvalue after the components before it are removed.
    null_statistics : ndarray of shape (B, k)
        The same under each relabelling.
    n_permutations : int
        Number of relabellings used, B.
    n_distinct : int
        Number of relabellings there are.
    exact : bool
        Whether all of them were used, the given one included.
    n_groups, n_background_groups : int or None
        Number of groups in each dataset; None where rows were permuted one by one.
    """

    p_values: FloatArray
    statistics: FloatArray
    null_statistics: FloatArray
    n_permutations: int
    n_distinct: int
    exact: bool
    n_groups: int | None
    n_background_groups: int | None

    @property
    def smallest_p_value(self) -> float:
        """The smallest p-value that this test can give."""
        return 1 / self.n_distinct if self.exact else 1 / (1 + self.n_permutations)

    def n_significant(self, level: float = _LEVEL) -> int:
        """Number of leading components with a p-value of at most `level`."""
        return int((self.p_values <= level).sum())


def permutation_test(
    estimator: MomentContrast,
    X: MatrixLike,
    *,
    background: MatrixLike,
    groups: ArrayLike | None = None,
    background_groups: ArrayLike | None = None,
    n_permutations: int = 999,
    random_state: int | np.random.Generator | None = None,
    progress: Progress = False,
) -> PermutationTest:
    r"""How many components are real? Permute which rows, or groups, are foreground.

    The null hypothesis of component j: without the components before it, foreground and
    background have the same covariance up to a common factor. Its statistic is the method's
    leading eigenvalue once the first j-1 components are projected out of both datasets (for cPCA
    the j-th contrastive eigenvalue), compared with the same eigenvalue for relabelled data,

    .. math:: p_j = \frac{1 + \#\{b : T_j^{(b)} \ge T_j\}}{1 + B} .

    Projecting out matters: set against the j-th eigenvalue of relabelled data, the component
    after the last real one is found "significant" in every second to fifth data set.

    Parameters
    ----------
    estimator : CPCA, CPCAStar, PCPCA or another `MomentContrast` with eigenvalues
        The method and number of components; it is cloned. What it chooses from the data (an
        automatic strength) is chosen once, for the data as they are, and held for all
        relabellings; for one cPCA component the automatic strength makes this the same test as
        choosing anew. PCPCA is tested as cPCA at ``alpha = gamma'``, which has its components.
    X, background : array-like, DataFrame or sparse matrix of shape (n or m, n_features)
        Foreground and background rows, not moments.
    groups, background_groups : array-like of shape (n,) and (m,), optional
        The donor, animal or other unit that each row belongs to; groups are relabelled as a
        whole. A label that occurs in both datasets is one and the same donor, and its two parts
        are swapped with each other, never mixed with other donors'. Without groups every row is
        taken as independent: with rows that repeat, the p-values are far too small.
    n_permutations : int, default=999
        Number of random relabellings, B. If there are no more than that many, all are used and
        the p-values are exact.
    random_state : int, Generator or None, default=None
        Seed of the relabellings.
    progress : bool or callable, default=False
        Show a progress bar: tqdm's, or what is called as ``progress(iterable, total=, desc=)``.

    Returns
    -------
    PermutationTest

    Raises
    ------
    ValueError
        If the datasets do not fit together or one is constant, only one has groups, or
        `n_permutations` is less than 1.
    TypeError
        If the estimator is not a linear contrastive method, or moments are given.

    Warns
    -----
    ContrastWarning
        If there are so few relabellings that no p-value can reach 0.05.

    Notes
    -----
    Each dataset is centred by its own mean and scaled by its own total variance before rows
    change sides, and scaled back after: neither a difference of means nor one of overall scale
    is a finding. A component that carries much of the foreground's variance also raises its
    scale, so the test is conservative, the more the fewer the features. Within the null,
    p-values hold approximately (means and scales are estimated). Groups are reduced to their
    moments once, at the cost of (number of groups) D^2 numbers; single rows are held dense.

    References
    ----------
    P-values: Phipson and Smyth, "Permutation p-values should never be zero", Statistical
    Applications in Genetics and Molecular Biology 9(1), 2010. Contrast: see `CPCA`.

    Examples
    --------
    >>> from contrast_core import CPCA, permutation_test
    >>> from contrast_core.datasets import make_four_groups
    >>> data = make_four_groups(random_state=0)
    >>> test = permutation_test(
    ...     CPCA(3), data.foreground, background=data.background, n_permutations=99, random_state=0
    ... )
    >>> test.n_significant()
    2
    """
    if n_permutations < 1:
        raise ValueError(f"n_permutations={n_permutations} is out of range; at least 1 is needed.")
    samples = two_samples(X, background, groups, background_groups)
    fitted = fitted_on(samples, estimator, X, background)
    components = components_of(fitted, samples)
    relabelled = _Relabelling.of(samples, components)
    step = held(fitted, 1)
    k = len(components)

    def statistics(is_foreground: NDArray[np.bool_]) -> list[float]:
        x, y = relabelled.moments(is_foreground)
        return [
            leading_eigenvalue(step.fit(_without(x, j), background=_without(y, j)))
            for j in range(k)
        ]

    n_distinct = _count(samples)
    exact = n_distinct <= n_permutations
    total = n_distinct if exact else n_permutations
    smallest = 1 / n_distinct if exact else 1 / (1 + n_permutations)
    if smallest > _LEVEL:
        warn(
            f"there are {n_distinct} ways to say which units are foreground and {total} are used: "
            f"no p-value can be below {smallest:.2g}. More groups or more permutations are needed.",
        )
    labels = _all_labels(samples) if exact else _random_labels(samples, total, random_state)
    with resampling(samples):
        observed = np.array(statistics(_given(samples)))
        null = np.array(
            [statistics(chosen) for chosen in with_progress(labels, total, "permute", progress)]
        )
    # The given labels come up among the relabellings too, with other rounding.
    reached = (null >= observed - 1e-9 * np.abs(observed)).sum(axis=0)
    p_values = reached / n_distinct if exact else (1 + reached) / (1 + n_permutations)
    return PermutationTest(
        np.maximum.accumulate(p_values),
        observed,
        null,
        total,
        n_distinct,
        exact,
        *samples.n_groups(),
    )


@dataclass(frozen=True, eq=False)
class _Relabelling:
    """All units, standardised, in coordinates whose first k are the components."""

    units: Units
    scale_x: float
    scale_y: float

    @classmethod
    def of(cls, samples: TwoSamples, components: FloatArray) -> _Relabelling:
        basis = _completed(components)
        x, y = samples.foreground.mapped(basis), samples.background.mapped(basis)
        whole_x, whole_y = x.moments(), y.moments()
        units = x.standardised(whole_x).joined(y.standardised(whole_y))
        return cls(units, whole_x.total_variance, whole_y.total_variance)

    def moments(self, is_foreground: NDArray[np.bool_]) -> tuple[SecondMoments, SecondMoments]:
        x, y = self.units.moments(is_foreground), self.units.moments(~is_foreground)
        return (
            SecondMoments._unchecked(x.n_samples, x.mean, self.scale_x * x.covariance),
            SecondMoments._unchecked(y.n_samples, y.mean, self.scale_y * y.covariance),
        )


def _completed(components: FloatArray) -> FloatArray:
    """The components followed by an orthonormal basis of their complement, (D, D)."""
    k = len(components)
    basis = np.linalg.qr(components.T, mode="complete")[0].T
    return np.vstack([components, basis[k:]])


def _without(moments: SecondMoments, j: int) -> SecondMoments:
    """Moments without the first j coordinates."""
    return SecondMoments._unchecked(moments.n_samples, moments.mean[j:], moments.covariance[j:, j:])


def _given(samples: TwoSamples) -> NDArray[np.bool_]:
    return np.arange(len(samples.foreground) + len(samples.background)) < len(samples.foreground)


def _count(samples: TwoSamples) -> int:
    """Distinct relabellings: swaps within shared groups, times free choices among the others."""
    free_x, free_y = len(samples.only(0)), len(samples.only(1))
    swaps: int = 2 ** len(samples.shared)
    return swaps * math.comb(free_x + free_y, free_x)


def _places(samples: TwoSamples) -> tuple[NDArray[np.intp], NDArray[np.intp], int]:
    """Positions, among all units, of the shared pairs (S, 2) and of the free units."""
    shift = len(samples.foreground)
    pairs = samples.shared + np.array([0, shift], dtype=np.intp)
    free = np.concatenate([samples.only(0), samples.only(1) + shift])
    return pairs, free, len(samples.only(0))


def _labels(
    samples: TwoSamples, swapped: NDArray[np.bool_], chosen: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Labels with the given pairs swapped and the chosen free units in the foreground."""
    pairs, free, _ = _places(samples)
    labels = np.zeros(len(samples.foreground) + len(samples.background), dtype=bool)
    labels[pairs[:, 0]] = ~swapped
    labels[pairs[:, 1]] = swapped
    labels[free[chosen]] = True
    return labels


def _all_labels(samples: TwoSamples) -> Iterator[NDArray[np.bool_]]:
    _, free, n_chosen = _places(samples)
    for swapped in product([False, True], repeat=len(samples.shared)):
        for chosen in combinations(range(len(free)), n_chosen):
            yield _labels(samples, np.array(swapped, dtype=bool), np.array(chosen, dtype=np.intp))


def _random_labels(
    samples: TwoSamples, total: int, random_state: int | np.random.Generator | None
) -> Iterator[NDArray[np.bool_]]:
    rng = np.random.default_rng(random_state)
    _, free, n_chosen = _places(samples)
    for _ in range(total):
        swapped = rng.random(len(samples.shared)) < 0.5
        yield _labels(samples, swapped, rng.permutation(len(free))[:n_chosen])
