"""Estimate how many dimensions a foreground has that its background lacks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from contrast_core._short_repr import ShortRepr
from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_count,
    check_generator,
    check_number,
)
from contrast_core.linalg import principal_angles
from contrast_core.significance._estimators import resampling
from contrast_core.significance._units import two_samples

_FLIPS = 20  # number of draws of the noise
# The lengths of rows, and the standard deviations of the features' noise, are limited to this
# multiple of their medians.
_CLIP = 2.0
# The largest variance of noise nearly follows the Tracy-Widom law. The 99% quantile of this law is
# this number of standard deviations above its mean.
_QUANTILE = 2.55


@dataclass(frozen=True, eq=False, repr=False)
class ContrastDimension(ShortRepr):
    """Number of dimensions that only the foreground has, as computed by `contrast_dimension`.

    Parameters
    ----------
    n_own : int
        Number of dimensions of the foreground that the background lacks.
    n_foreground, n_background : int
        Number of dimensions of each dataset that stand out from its own noise.
    cosines : ndarray of shape (min(n_foreground, n_background),)
        Cosines of the principal angles between the leading subspaces of the two datasets,
        descending.
    threshold : float
        Directions with a cosine below the threshold are not shared.
    """

    n_own: int
    n_foreground: int
    n_background: int
    cosines: FloatArray
    threshold: float


def contrast_dimension(
    X: MatrixLike,
    *,
    background: MatrixLike,
    sample_weight: ArrayLike | None = None,
    background_weight: ArrayLike | None = None,
    level: float = 0.02,
    n_resamples: int = 200,
    random_state: int | np.random.Generator | None = None,
) -> ContrastDimension:
    r"""Estimate how many dimensions the foreground has that the background lacks.

    Let :math:`d_X` and :math:`d_Y` be the numbers of principal directions of the two datasets that
    stand out from the noise. These directions span a subspace in each dataset. Let :math:`\sigma_j`
    be the cosines of the principal angles between the two subspaces. The estimate is

    .. math:: d = d_X - \#\{j : \sigma_j \ge 1 - \varepsilon\} .

    The numbers :math:`d_X` and :math:`d_Y` and the threshold :math:`1 - \varepsilon` come from
    resampling the data. Resampling assumes neither normal noise nor noise of equal variance.

    - A principal direction stands out if its variance exceeds the largest variance of noise. To
      draw noise, the earlier directions are removed from the rows, and every entry gets a random
      sign. The noise therefore keeps the features' variances and heavy tails. Rows longer than
      twice the median length are shortened to that length, so that a few rows cannot form a
      direction.
    - The threshold of the cosines is a quantile (`level`) of the smallest cosine in bootstrap
      samples. Before these samples are drawn, the background is rotated so that its leading
      subspace shares as many directions as possible with the leading subspace of the foreground.

    Parameters
    ----------
    X, background : array-like, DataFrame or sparse matrix of shape (n or m, n_features)
        Foreground and background rows, which are treated as independent. They cannot be moments,
        because the noise is resampled from the rows.
    sample_weight, background_weight : array-like of shape (n,) and (m,), optional
        A weight for each row, as for `CPCA.fit`.
    level : float above 0, below 1, default=0.02
        Probability that a shared direction is counted as the foreground's own.
    n_resamples : int, default=200
        Number of bootstrap samples.
    random_state : int, Generator or None, default=None
        Seed of the signs and the samples.

    Returns
    -------
    ContrastDimension

    Raises
    ------
    ValueError
        If the datasets have different features, one is constant, or a parameter is out of range.
    TypeError
        If moments are given, or a parameter has the wrong type.

    See Also
    --------
    permutation_test : Test which components have more contrast than chance gives.

    Notes
    -----
    `permutation_test` answers another question, namely whether variances differ in any direction.
    Suppose that both datasets vary along a direction, with four times the variance in the
    foreground. `permutation_test` finds this direction significant, but `contrast_dimension` does
    not count it, because both datasets have it. A direction that does not stand out from the noise
    in the background is counted as the foreground's own.

    The noise of different features is assumed to be uncorrelated, with standard deviations of at
    most twice their median. A single feature that varies more is counted as a dimension. Therefore
    standardise features that have different units.

    Accuracy was measured with 300 + 300 rows of 40 features, zero or three shared directions, and
    zero to two directions of the foreground alone. Three kinds of noise were used: normal noise,
    and noise whose entries, or whose rows, have a t distribution with 4 degrees of freedom. The
    estimate was right in 39 or 40 of 40 sets. With standard deviations of the noise between 0.5
    and 1.5, it was right in 34 to 38 of 40 sets.

    References
    ----------
    Contrastive dimension estimation (CDE), 2024. Noise by random signs: Hong, Sheng and Dobriban,
    "Selecting the number of components in PCA via random signflips", arXiv:2012.02985, 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core import contrast_dimension
    >>> rng = np.random.default_rng(1)
    >>> X, Y = rng.normal(size=(2, 300, 20))
    >>> X[:, 0] *= 4  # both vary along the first feature
    >>> Y[:, 0] *= 3
    >>> X[:, 1] *= 3  # the foreground alone along the second
    >>> contrast_dimension(X, background=Y, random_state=0).n_own
    1
    """
    share = check_number(level, "level", above=0, below=1)
    n_resamples = check_count(n_resamples, "n_resamples")
    rng = check_generator(random_state)
    samples = two_samples(
        X,
        background,
        None,
        None,
        sample_weight=sample_weight,
        background_weight=background_weight,
    )
    # Random signs must be applied to features, so rows in the coordinates of a basis are first
    # mapped back to features.
    first, second = (
        _WeightedRows(
            part.means if samples.basis is None else part.means @ samples.basis, part.counts
        )
        for part in (samples.foreground.units(), samples.background.units())
    )
    with resampling(samples):
        n_first, n_second = first.n_above_noise(rng), second.n_above_noise(rng)
        shared = min(n_first, n_second)
        if not shared:
            return ContrastDimension(n_first, n_first, n_second, np.empty(0), 1.0)
        ours, theirs = first.leading(n_first), second.leading(n_second)
        cosines = np.cos(principal_angles(ours, theirs))[::-1]
        turned = second.rotated(theirs, _turned_into(ours, theirs))
        angles = [
            principal_angles(first.drawn(rng).leading(n_first), turned.drawn(rng).leading(n_second))
            for _ in range(n_resamples)
        ]
    threshold = float(np.quantile(np.cos(angles)[:, 0], share))
    n_own = n_first - int((cosines >= threshold).sum())
    return ContrastDimension(n_own, n_first, n_second, cosines, threshold)


@dataclass(frozen=True, eq=False)
class _WeightedRows:
    """Rows (n, D) with their weights (n,)."""

    rows: FloatArray
    weights: FloatArray

    def scaled(self) -> FloatArray:
        """Return the centred rows, multiplied by the square roots of their weights.

        Rows longer than twice the median length are shortened to that length.
        """
        centred = self.rows - np.average(self.rows, axis=0, weights=self.weights)
        lengths = np.linalg.norm(centred, axis=1)
        limit = _CLIP * np.median(lengths)
        if limit > 0:  # otherwise more than half of the rows are equal
            centred *= np.minimum(1.0, limit / np.maximum(lengths, limit))[:, None]
        return np.asarray(centred * np.sqrt(self.weights)[:, None])

    def drawn(self, rng: np.random.Generator) -> _WeightedRows:
        """Draw a bootstrap sample of the rows."""
        chosen = rng.integers(len(self.rows), size=len(self.rows))
        return _WeightedRows(self.rows[chosen], self.weights[chosen])

    def rotated(self, directions: FloatArray, others: FloatArray) -> _WeightedRows:
        """Rotate the rows so that `directions` (d, D) become `others` (d, D), both orthonormal."""
        rows, directions = self.rows.copy(), directions.copy()
        for direction, other in zip(directions, others, strict=True):
            # This reflection maps `direction` to `other`. Both vectors are orthogonal to the
            # directions that were mapped before, so the reflection leaves those unchanged.
            normal = direction - other
            if (length := float(normal @ normal)) > np.finfo(np.float64).eps:
                rows -= np.outer(rows @ normal, 2 / length * normal)
                directions -= np.outer(directions @ normal, 2 / length * normal)
        return _WeightedRows(rows, self.weights)

    def leading(self, d: int) -> FloatArray:
        """Return the d leading principal directions, as rows."""
        scaled = self.scaled()
        if scaled.shape[1] <= len(scaled):
            return np.asarray(np.linalg.eigh(scaled.T @ scaled)[1][:, ::-1][:, :d].T)
        combined = scaled.T @ np.linalg.eigh(scaled @ scaled.T)[1][:, ::-1][:, :d]
        return np.asarray(np.linalg.qr(combined)[0].T)

    def n_above_noise(self, rng: np.random.Generator) -> int:
        """Count the leading principal directions that stand out from the noise.

        Their variance exceeds the 99% quantile of the largest variance of noise.
        """
        left = self.scaled()[:, np.ptp(self.rows, axis=0) > 0]
        n, n_features = left.shape
        vectors, values, directions = np.linalg.svd(left, full_matrices=False)
        for k in range(max(1, min(n - 1, n_features)) - 1):
            deviations = np.sqrt((left**2).mean(axis=0))
            limit = max(_CLIP * float(np.median(deviations)), np.finfo(np.float64).tiny)
            noise = left * (limit / np.maximum(deviations, limit))
            largest = [
                _largest_square(noise * rng.choice([-1.0, 1.0], noise.shape)) for _ in range(_FLIPS)
            ]
            edge = np.mean(largest) + _QUANTILE * np.std(largest, ddof=1)
            # Random signs spread the noise over all dimensions. The rows without the k earlier
            # directions have the same total variance in fewer dimensions. This raises their largest
            # variance by the ratio of the Marchenko-Pastur edges.
            edge *= _edge(n - 1 - k, n_features - k) / _edge(n, n_features)
            if not values[k] ** 2 > edge:
                return k
            left = left - values[k] * np.outer(vectors[:, k], directions[k])
        # At least one direction must be left as noise, so the count stays below the rank.
        return int(max(0, min(n - 1, n_features) - 1))


def _edge(n: int, n_features: int) -> float:
    """Return the Marchenko-Pastur edge, the largest eigenvalue of white noise with trace 1."""
    return (math.sqrt(n) + math.sqrt(n_features)) ** 2 / (n * n_features)


def _largest_square(rows: FloatArray) -> float:
    """Return the square of the largest singular value."""
    small = rows.T @ rows if rows.shape[1] <= len(rows) else rows @ rows.T
    return float(np.linalg.eigvalsh(small)[-1])


def _turned_into(first: FloatArray, second: FloatArray) -> FloatArray:
    """Rotate the rows of `second` so that one of the two row spaces contains the other one."""
    left, _, right = np.linalg.svd(first @ second.T)
    shared = min(len(first), len(second))
    principal = left[:, :shared].T @ first
    rest = right[shared:] @ second
    rest = rest - rest @ first.T @ first
    if len(rest):
        rest = np.linalg.qr(rest.T)[0].T
    return np.asarray(right.T @ np.vstack([principal, rest]))
