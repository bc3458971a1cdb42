"""Advise by cross-validation whether a contrast is needed, and up to how many components."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student

from contrast_core._short_repr import ShortRepr
from contrast_core._validation import FloatArray, MatrixLike, check_generator
from contrast_core.contrast import background_ridge
from contrast_core.feedback import muted
from contrast_core.moments import SecondMoments
from contrast_core.significance._estimators import resampling
from contrast_core.significance._units import Sample, two_samples
from contrast_core.solve import plan_for, solve_trace_ratio
from contrast_core.spectral import CPCA, CPCAStar

METHODS = ("PCA", "cPCA*", "cPCA", "whitening")  # the first method that is good enough is advised
COMPONENTS = (1, 2, 3, 5, 10, 20, 50)
_N_FOLDS = 5
_ENOUGH = 0.9  # a method is good enough if it holds at least this share of the largest excess
# The ridge of whitening divided by the ridge of cPCA*. The ridge of cPCA* is a quarter of the mean
# background variance, so that the ridge of whitening is a tenth of this variance.
_WEAKER_RIDGE = 0.4


@dataclass(frozen=True, eq=False, repr=False)
class ContrastAdvice(ShortRepr):
    r"""Advice on whether a contrast is needed, as computed by `contrast_advice`.

    Parameters
    ----------
    n_components : ndarray of shape (K,)
        The numbers of components k at which the methods are compared.
    excess : ndarray of shape (K, 4)
        Excess variance (defined in `contrast_advice`) of the first k directions of PCA, cPCA*,
        cPCA and whitening.
    lower, upper : ndarray of shape (K, 4)
        Ends of the 95% confidence interval of the excess, from Student's t over units.
    p_value : float
        P-value of the excess along the leading direction of cPCA*, which is also the leading
        direction of cPCA. The null hypothesis is that units of foreground and background have the
        same distribution.
    """

    n_components: NDArray[np.intp]
    excess: FloatArray
    lower: FloatArray
    upper: FloatArray
    p_value: float
    level: ClassVar[float] = 0.01  # strict, because users often run other tests as well

    @property
    def advised(self) -> list[str]:
        """Return the method to use for each number of components.

        This is the first of PCA, cPCA*, cPCA and whitening that holds at least 90% of the largest
        excess. It is PCA if no method has a positive excess.
        """
        largest = np.maximum(self.excess.max(axis=1, keepdims=True), 0.0)
        enough = (self.excess >= _ENOUGH * largest) | (largest == 0)
        return [METHODS[i] for i in enough.argmax(axis=1)]

    @property
    def found(self) -> bool:
        """Return whether the excess along the leading direction is significant at 1%."""
        return self.p_value <= self.level

    def sentence(self, found: bool | None = None) -> str:
        """Return the advice in one sentence.

        Parameters
        ----------
        found : bool, optional
            Whether another test found an effect. By default, the attribute `found` is used.
        """
        if not (self.found if found is None else found):
            return (
                "Nothing to find: left-out units do not vary significantly more in the foreground "
                "than in the background."
            )
        needed = [name != METHODS[0] for name in self.advised]
        if not any(needed):
            return "No contrast is needed: PCA does as well at every number of components."
        first = needed.index(True)
        last = first + [*needed[first:], False].index(False) - 1
        begins, ends = self.n_components[[first, last]]
        span = f"up to {ends}" if first == 0 else f"from {begins} to {ends}"
        at_the_end = last == len(needed) - 1
        rest = "larger numbers were not compared" if at_the_end else "with more, PCA does as well"
        plural = "component" if ends == 1 else "components"
        return f"A contrast is needed {span} {plural} ({self.advised[first]}); {rest}."

    def table(self) -> dict[str, list[Any]]:
        """Return a table of the excess and the advised method, as a dictionary of columns.

        There is a row for each number of components, and a column with the excess of each method.
        ``lower`` and ``upper`` are the ends of the interval of the advised method.
        """
        chosen = [METHODS.index(name) for name in self.advised]
        columns: dict[str, list[Any]] = {"components": self.n_components.tolist()}
        columns |= {name: self.excess[:, i].tolist() for i, name in enumerate(METHODS)}
        columns["advised"] = self.advised
        for name, ends in (("lower", self.lower), ("upper", self.upper)):
            columns[name] = ends[np.arange(len(chosen)), chosen].tolist()
        return columns


def contrast_advice(
    X: MatrixLike,
    *,
    background: MatrixLike | Sequence[MatrixLike],
    units: ArrayLike | None = None,
    background_units: ArrayLike | None = None,
    random_state: int | np.random.Generator | None = None,
    **weights: Any,
) -> ContrastAdvice:
    r"""Compare PCA, cPCA*, cPCA and whitening by the excess variance that they hold.

    A fifth of the units is left out at a time. Each method is fitted to the other units, without
    labels, and gives k directions, the rows of V. The covariance of the background along these
    directions, :math:`S = V (C_Y + \tau I) V^\top`, is also computed from the other units. Its
    ridge :math:`\tau` is the ridge of cPCA*. The left-out rows are then projected on V, in
    coordinates in which S is the identity. The squared distance of each left-out foreground row
    from the foreground mean of the other units is averaged within each unit and then over units.
    Let :math:`\bar x` be this average, and let :math:`\bar y` be the same average for the
    background. The excess is

    .. math:: k \, \frac{\bar x - \bar y}{\bar y + \tau \operatorname{tr} S^{-1}} .

    This is the difference of the foreground and background variances, divided by the background
    variance plus the ridge, and summed over k directions. It depends on the subspace only, not on
    its basis. V is not fitted to the units whose variances are measured, so overfitting cannot
    enlarge the excess.

    Parameters
    ----------
    X, background : array-like, DataFrame or sparse matrix of shape (n or m, n_features)
        Foreground and background rows, not moments. Without units, the background may be a list of
        several datasets.
    units, background_units : array-like of shape (n,) and (m,), optional
        The donor, animal or other unit that each row belongs to. All units count the same, and a
        label that occurs in both datasets is one unit. Without units, every row is a unit.
    random_state : int, Generator or None, default=None
        Seed of the assignment of units to the five parts that are left out.
    **weights
        `sample_weight`, `background_weight` and `background_mix`, as for `CPCA.fit`.

    Returns
    -------
    ContrastAdvice

    Raises
    ------
    ValueError, TypeError
        If the datasets have different features, only one of them has units, or one of them has a
        single unit only.

    Notes
    -----
    The methods are PCA of the foreground, cPCA* and cPCA with their automatic strengths, and
    whitening. Whitening uses the background's covariance plus a ridge of a tenth of the mean
    background variance. PCA after this whitening is cPCA* at a larger beta. The numbers of
    components are 1, 2, 3, 5, 10, 20 and 50. Numbers that are too large for the features or rows
    are left out.

    The advice compares variances and uses no labels. A difference between groups may be easier or
    harder to see than its share of the excess suggests.

    References
    ----------
    Standard error: Nadeau and Bengio, "Inference for the generalization error", Machine Learning
    52, 2003.

    Examples
    --------
    >>> from contrast_core.datasets import make_motion_sensors
    >>> from contrast_core.significance import contrast_advice
    >>> data = make_motion_sensors()
    >>> advice = contrast_advice(data.foreground, background=data.background, random_state=0)
    >>> print(advice.sentence())
    A contrast is needed up to 5 components (cPCA*); with more, PCA does as well.
    """
    rng = check_generator(random_state)
    samples = two_samples(X, background, units, background_units, **weights)
    both = (samples.foreground, samples.background)
    n_folds = min(_N_FOLDS, *(sample.n_units for sample in both))
    folds = [
        fold[sample.codes]
        for fold, sample in zip(samples.assign_to_parts(n_folds, rng), both, strict=True)
    ]
    fewest = min(int((folds[0] != i).sum()) for i in range(n_folds))
    most = min(samples.n_varying, samples.foreground.rows.shape[1], fewest - 1)
    numbers = [k for k in COMPONENTS if k <= most]
    sizes = [np.empty((sample.rows.shape[0], len(numbers), len(METHODS))) for sample in both]
    ridges = np.empty((n_folds, len(numbers), len(METHODS)))
    with resampling(samples), muted():
        for i in range(n_folds):
            x, y = (s.moments(fold != i) for s, fold in zip(both, folds, strict=True))
            ridge = background_ridge(x, y, samples.n_varying)
            chosen = _whitened(_directions(x, y, ridge, numbers), y, ridge)
            ridges[i] = [[ridge * (each**2).sum() for each in of] for of in chosen]
            for sample, fold, moments, size in zip(both, folds, (x, y), sizes, strict=True):
                size[fold == i] = _squared_lengths(sample.rows[fold == i], moments.mean, chosen)
    x_units, y_units = (_unit_means(s, size) for s, size in zip(both, sizes, strict=True))
    difference, error, df = _difference(x_units, y_units, samples.shared)
    # The errors of different folds are correlated, because their directions are fitted to
    # overlapping sets of rows. Nadeau and Bengio correct the standard error by this factor.
    error *= math.sqrt(1 + n_folds / (n_folds - 1))
    unit = (y_units.mean(axis=0) + ridges.mean(axis=0)) / np.array(numbers)[:, None]
    excess, margin = difference / unit, student.ppf(0.975, df) * error / unit
    leading = 0, METHODS.index("cPCA*")
    p_value = float(student.sf(difference[leading] / error[leading], df[leading]))
    return ContrastAdvice(np.array(numbers), excess, excess - margin, excess + margin, p_value)


def _directions(
    x: SecondMoments, y: SecondMoments, ridge: float, numbers: Sequence[int]
) -> list[list[FloatArray]]:
    """Return the directions of each method for each k, as orthonormal rows (k, n_features)."""
    most = numbers[-1]
    pca = CPCA(most, alpha=0.0).fit(x, background=y).components_
    star, white = (
        CPCAStar(most, beta=1 / (1 + each)).fit(x, background=y).components_
        for each in (ridge, _WEAKER_RIDGE * ridge)
    )
    plans = [(k, plan_for(x, y, k)) for k in numbers]
    cpca = [solve_trace_ratio(x, y, k, ridge, plan)[1].components for k, plan in plans]
    return [[pca[:k], star[:k], own, white[:k]] for k, own in zip(numbers, cpca, strict=True)]


def _whitened(
    directions: list[list[FloatArray]], background: SecondMoments, ridge: float
) -> list[list[FloatArray]]:
    """Transform each basis so that the background covariance plus ridge becomes the identity."""
    return [
        [
            np.linalg.solve(
                np.linalg.cholesky(v @ background.covariance @ v.T + ridge * np.eye(len(v))), v
            )
            for v in of_methods
        ]
        for of_methods in directions
    ]


def _squared_lengths(rows: Any, mean: FloatArray, bases: list[list[FloatArray]]) -> FloatArray:
    """Return the squared distances of rows from the mean, measured in each basis, (n, K, 4)."""
    lengths = np.empty((rows.shape[0], len(bases), len(METHODS)))
    for i, of_methods in enumerate(bases):
        for j, basis in enumerate(of_methods):
            scores = np.asarray(rows @ basis.T) - basis @ mean
            lengths[:, i, j] = (scores**2).sum(axis=1)
    return lengths


def _unit_means(sample: Sample, values: FloatArray) -> FloatArray:
    """Return the mean of the values over the rows of each unit, (n_units, K, 4)."""
    weights = np.ones(len(values)) if sample.weights is None else sample.weights
    sums = np.zeros((sample.n_units, *values.shape[1:]))
    np.add.at(sums, sample.codes, weights[:, None, None] * values)
    return sums / np.bincount(sample.codes, weights)[:, None, None]


def _difference(x: FloatArray, y: FloatArray, shared: Any) -> tuple[FloatArray, ...]:
    """Return the difference of the means over units, its standard error and degrees of freedom.

    `x` and `y` hold the mean of each unit, and `shared` (S, 2) holds the indices of the units that
    are in both datasets. The test is paired if all units are in both datasets; otherwise it is
    Welch's test.
    """
    if len(shared) == len(x) == len(y):
        x, y = x[shared[:, 0]] - y[shared[:, 1]], np.zeros_like(x)
    n, m = len(x), len(y)
    squared = x.var(axis=0, ddof=1) / n, y.var(axis=0, ddof=1) / m
    tiny = np.finfo(np.float64).tiny
    error = np.sqrt(squared[0] + squared[1]) + tiny**0.5
    df = error**4 / (squared[0] ** 2 / (n - 1) + squared[1] ** 2 / (m - 1) + tiny)
    return x.mean(axis=0) - y.mean(axis=0), error, np.clip(df, 1, n + m - 2)
