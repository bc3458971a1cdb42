"""How many dimensions a foreground has that its background lacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_count,
    check_generator,
    check_number,
)
from contrast_core.contrast._noise_bulk import debiased, noise_bulk
from contrast_core.moments import Moments
from contrast_core.solve import contrast_moments


@dataclass(frozen=True, eq=False)
class ContrastDimension:
    """Dimensions of a foreground that its background lacks; made by `contrast_dimension`.

    Parameters
    ----------
    n_own : int
        How many there are.
    n_foreground, n_background : int
        Dimensions of each dataset above its own noise.
    cosines : ndarray of shape (min(n_foreground, n_background),)
        Of the principal angles between the two leading subspaces, descending.
    threshold : float
        The cosine below which a direction is not shared.
    """

    n_own: int
    n_foreground: int
    n_background: int
    cosines: FloatArray
    threshold: float


def contrast_dimension(
    X: MatrixLike | Moments,
    *,
    background: MatrixLike | Moments,
    level: float = 0.02,
    n_resamples: int = 200,
    random_state: int | np.random.Generator | None = None,
) -> ContrastDimension:
    r"""Estimate how many dimensions the foreground has that the background lacks.

    With the leading subspaces of both datasets, :math:`d_X` and :math:`d_Y` principal directions
    that stand out of the noise, and the cosines :math:`\sigma_j` of the principal angles between
    them,

    .. math:: d = d_X - \#\{j : \sigma_j \ge 1 - \varepsilon\} .

    The threshold is the `level` quantile of the smallest cosine where all directions that can be
    shared are: normal rows with the spectra that were found, the two subspaces turned into each
    other along their principal vectors.

    Parameters
    ----------
    X, background : data or moments
        Foreground and background, as for `CPCA.fit`; rows are taken as independent.
    level : float above 0, below 1, default=0.02
        How often a shared direction may count as the foreground's own.
    n_resamples : int, default=200
        Draws under the null hypothesis.
    random_state : int, Generator or None, default=None
        Seed of the draws.

    Returns
    -------
    ContrastDimension

    Raises
    ------
    ValueError
        If the datasets do not fit together, one is constant, or a parameter is out of range.

    See Also
    --------
    permutation_test : Which components have more contrast than chance gives.

    Notes
    -----
    The question is not that of `permutation_test`, which asks whether variances differ, in any
    direction. A direction that both datasets have, with four times the variance in the foreground,
    counts 0 here and is a finding there; one that the background has too, too weak to stand out of
    its noise, counts 1 here. The noise is taken as isotropic: standardise features of different
    units.

    References
    ----------
    Contrastive dimension estimation (CDE), 2024. Noise edge: Gavish and Donoho, IEEE Transactions
    on Information Theory 60:5040, 2014.

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
    draws = check_count(n_resamples, "n_resamples")
    rng = check_generator(random_state)
    x, y, _ = contrast_moments(X, background, products=False)
    first, second = _leading(x, "X"), _leading(y, "background")
    shared = min(len(first.spikes), len(second.spikes))
    if not shared:
        n = len(first.spikes)
        return ContrastDimension(n, n, len(second.spikes), np.empty(0), 1.0)
    cosines = _cosines(first.vectors, second.vectors)
    turned = _turned_into(first.vectors, second.vectors)
    smallest = [
        _cosines(_drawn(first, first.vectors, rng), _drawn(second, turned, rng))[-1]
        for _ in range(draws)
    ]
    threshold = float(np.quantile(smallest, share))
    n_own = len(first.spikes) - int((cosines >= threshold).sum())
    return ContrastDimension(n_own, len(first.spikes), len(second.spikes), cosines, threshold)


class _Leading(NamedTuple):
    """Directions above the noise (d, size), variances in excess of it (d,), the noise, rows."""

    vectors: FloatArray
    spikes: FloatArray
    noise: float
    n_samples: int
    n_features: int


def _leading(moments: Moments, name: str) -> _Leading:
    values, vectors = np.linalg.eigh(moments.matrix())
    values, n_features = values[::-1], int(moments.varies.sum())
    if not n_features:
        raise ValueError(f"the {name} is constant: it has no dimensions.")
    bulk = noise_bulk(np.maximum(values, 0.0), n_features, float(moments.n_samples))
    d, noise = bulk.n_above, bulk.variance
    spikes = noise * (debiased(values[:d] / noise, n_features / float(moments.n_samples)) - 1)
    n = max(2, round(float(moments.n_samples)))
    return _Leading(vectors[:, ::-1][:, :d].T, np.maximum(spikes, 0.0), noise, n, n_features)


def _cosines(first: FloatArray, second: FloatArray) -> FloatArray:
    return np.asarray(np.minimum(np.linalg.svd(first @ second.T, compute_uv=False), 1.0))


def _turned_into(first: FloatArray, second: FloatArray) -> FloatArray:
    """The second rows, turned so that the smaller of the two spans lies within the other."""
    left, _, right = np.linalg.svd(first @ second.T)
    shared = min(len(first), len(second))
    principal = left[:, :shared].T @ first
    rest = right[shared:] @ second
    rest = rest - rest @ first.T @ first
    if len(rest):
        rest = np.linalg.qr(rest.T)[0].T
    return np.asarray(right.T @ np.vstack([principal, rest]))


def _drawn(model: _Leading, vectors: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Leading directions of as many normal rows with these directions."""
    d, n = len(vectors), model.n_samples
    rows = np.sqrt(model.noise) * rng.standard_normal((n, vectors.shape[1]))
    rows += (rng.standard_normal((n, d)) * np.sqrt(model.spikes)) @ vectors
    rows -= rows.mean(axis=0)
    if rows.shape[1] <= n:
        return np.asarray(np.linalg.eigh(rows.T @ rows)[1][:, ::-1][:, :d].T)
    return np.asarray(np.linalg.qr(rows.T @ np.linalg.eigh(rows @ rows.T)[1][:, ::-1][:, :d])[0].T)
