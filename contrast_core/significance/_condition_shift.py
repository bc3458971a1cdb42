"""Measure on held-out rows whether a condition moves the rows, and how far.

The direction in which foreground and background differ is Fisher's linear discriminant. It uses the
background's covariance along the leading principal components of all rows, plus a ridge. Donors, or
fifths of the rows, are held out in turn. Each block of held-out rows is measured along the
direction that was computed from the other blocks.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit
from scipy.stats import t as student

from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_both_labels,
    check_count,
    check_generator,
    check_number,
    check_same_features,
)
from contrast_core.moments import FeatureMoments
from contrast_core.rows import rows_of

_COMPONENTS = 50  # largest number of principal components of all rows
_DIRECTION_RIDGE = 4.0  # ridge, in units of the mean variance of a feature
_PASSES = 3  # power iterations of the randomised singular value decomposition
_FOLDS = 5  # number of parts of the rows that are held out in turn if there are no units
FEWEST_ROWS = 10  # smallest number of rows of a dataset, and of a unit that is used
FEWEST_UNITS = 3  # smallest number of units of a comparison
_ITERATIONS = 20  # number of iterations of expectation maximisation


@dataclass(frozen=True, eq=False)
class ConditionShift:
    """Distance by which a condition moves the foreground's rows, as computed by `condition_shift`.

    Parameters
    ----------
    effect : float
        Difference of the held-out means along `direction`, in standard deviations of the
        background. Its expectation is 0 if the condition does nothing.
    effect_low, effect_high : float
        Ends of the confidence interval of the effect. The expected effect is never negative, so
        the upper end is at least 0.
    p_value : float
        One-sided p-value of the null hypothesis that the effect is not positive.
    n_blocks : int
        Number of blocks that were held out in turn. A block is a unit, a set of units of both
        datasets, or a fifth of the rows.
    units : tuple
        Names of the units in use; empty if no units were given.
    left_out : tuple
        Names of the units that were left out, because they have fewer than ten rows in a dataset.
    direction : ndarray of shape (n_features,)
        Fisher's discriminant of unit length, computed from all blocks. The foreground has the
        larger mean along this direction.
    resampled : ndarray of shape (n_resamples, n_features)
        Directions of unit length, each computed from blocks that were drawn with replacement.
    foreground_scores, background_scores : ndarray of shape (n,) and (m,)
        Score of each row along the direction that was computed from the other blocks. A score is
        the distance from the background's mean, in standard deviations of the background. It is NaN
        for rows of units that were left out.
    """

    effect: float
    effect_low: float
    effect_high: float
    p_value: float
    n_blocks: int
    units: tuple[Any, ...]
    left_out: tuple[Any, ...]
    direction: FloatArray
    resampled: FloatArray
    foreground_scores: FloatArray
    background_scores: FloatArray

    def ratio(self) -> tuple[float, float, float]:
        """Return the foreground : background ratio and the ends of its interval.

        The ratio is 1 plus the squared effect, or 1 minus the squared effect if the effect is
        negative. Without an effect, it is about 1. If the effect is positive and both datasets have
        the same variance along the direction, the ratio is the mean squared distance of held-out
        foreground rows from the background's mean, divided by the mean squared distance of
        background rows, both along the direction.
        """
        effects = np.array([self.effect, self.effect_low, self.effect_high])
        ratio, low, high = np.maximum(1 + effects * np.abs(effects), 0).tolist()
        return ratio, low, high

    def stability(self, n_top: int = 10) -> FloatArray:
        """Return how often each feature is among those with the largest loadings, (n_features,).

        For each feature, the result is the share of the resampled directions in which the feature
        has one of the `n_top` largest absolute loadings, with the same sign as in `direction`.

        Parameters
        ----------
        n_top : int, default=10
            Number of features that count as leading in each direction.
        """
        n_top = min(check_count(n_top, "n_top"), len(self.direction))
        size = np.abs(self.resampled)
        least = np.partition(size, -n_top, axis=1)[:, -n_top, None]
        same_sign = np.sign(self.resampled) == np.sign(self.direction)
        return np.asarray(((size >= least) & (size > 0) & same_sign).mean(axis=0))


def condition_shift(
    X: MatrixLike,
    *,
    background: MatrixLike,
    units: ArrayLike | None = None,
    background_units: ArrayLike | None = None,
    level: float = 0.95,
    n_resamples: int = 100,
    random_state: int | np.random.Generator | None = None,
) -> ConditionShift:
    r"""Measure on held-out rows how far a condition moves the rows.

    Let d be the difference of the two means, and let :math:`C_Y` be the covariance of the
    background along the leading principal components of all rows. The direction is Fisher's
    discriminant

    .. math:: v \propto (C_Y + \tau I)^{-1} d ,

    where :math:`\tau` is four times the mean variance of a feature. This direction maximises the
    ratio of the variance between the two means to the variance within the background. To reduce
    noise, each entry of d is first replaced by its posterior mean, in a model in which a share of
    the features differs. Let z be the entry divided by its standard error. If the feature differs,
    z has the distribution :math:`N(0, 1 + \nu)`, otherwise :math:`N(0, 1)`. The share and
    :math:`\nu` are estimated from the data (empirical Bayes).

    Each block of rows is held out in turn, and the direction is computed from the other blocks. Let
    :math:`s_b` be the difference of the two means of block b along this direction. The effect is
    the mean of the :math:`s_b`. Its interval and p-value come from Student's t distribution over
    blocks. The :math:`s_b` are not independent: of any two blocks, each is measured along a
    direction to which the other contributed. With n blocks and without an effect, the variance of
    the mean is therefore :math:`2 (n - 1) / (n - 2)` times the estimate for independent terms.

    The expected effect is never negative, because the difference of the means is measured along a
    direction that estimates this difference. The upper end of the interval is therefore at least 0.

    Parameters
    ----------
    X, background : array-like, DataFrame or sparse matrix of shape (n or m, n_features)
        Rows under the condition, and rows without it. No row is in both datasets.
    units, background_units : array-like of shape (n,) and (m,), optional
        The donor, animal or culture of each row. If there are units with rows in both datasets,
        each of these units is a block, and its foreground rows are compared with its own background
        rows. Otherwise, a block is made up of one or more units of each dataset. Units with fewer
        than ten rows are left out. Without units, rows are treated as independent, and the blocks
        are fifths of the rows. The interval then says nothing about other donors.
    level : float above 0, below 1, default=0.95
        Level of the confidence interval.
    n_resamples : int, default=100
        Number of resampled directions, each from blocks that are drawn with replacement.
    random_state : int, Generator or None, default=None
        Seed of the blocks, of the resamples and of the randomised principal components.

    Returns
    -------
    ConditionShift

    Raises
    ------
    ValueError
        If the datasets have different features, contain NaN or do not vary. The error is also
        raised if only one dataset has units, if a dataset has fewer than ten rows, or if fewer than
        three units can be compared.

    See Also
    --------
    responders : Estimate from the scores which rows respond.
    condition_test : Test a contrastive component exactly, by relabelling units.

    Notes
    -----
    The number of principal components is at most 50, and at most half the number of rows of the
    smaller dataset. Only the difference of the means counts: a condition that spreads the rows
    without moving their mean has the effect 0.

    References
    ----------
    Fisher, Annals of Eugenics 7:179, 1936. Cross-fitting: Chernozhukov et al., Econometrics
    Journal 21:C1, 2018. Principal components: Halko, Martinsson and Tropp, SIAM Review 53:217,
    2011. Shrinkage: Johnstone and Silverman, Annals of Statistics 32:1594, 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core import condition_shift
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(2, 200, 10))
    >>> X[:, 3] += 2  # twice the standard deviation
    >>> found = condition_shift(X, background=Y, random_state=0)
    >>> bool(found.effect_low < 2 < found.effect_high), int(abs(found.direction).argmax())
    (True, 3)
    """
    level = check_number(level, "level", above=0, below=1)
    n_resamples = check_count(n_resamples, "n_resamples", at_least=0)
    rng = check_generator(random_state)
    x, y = rows_of(X, "X"), rows_of(background, "background")
    check_same_features(x.shape[1], x.names, y.shape[1], y.names)
    sizes = int(x.shape[0]), int(y.shape[0])
    if min(sizes) < FEWEST_ROWS:
        raise ValueError(
            f"X has {sizes[0]} rows and background {sizes[1]}; a comparison needs at least "
            f"{FEWEST_ROWS} rows of each."
        )
    blocks = _blocks(sizes, units, background_units, rng)
    first, second = (rows.load() for rows in (x, y))
    basis = _principal(first, second, rng)
    n = len(blocks.foreground)
    drawn = [np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(n_resamples)]
    # Each row of weights says how often each block counts towards a direction.
    weights = np.array([*(1.0 - np.eye(n)), np.ones(n), *drawn])
    directions = _directions((first, second), blocks, weights, basis)
    scores = _held_out_scores((first, second), directions[:n], blocks)
    effects = np.array(
        [
            scores[0][part].mean() - scores[1][other].mean()
            for part, other in zip(blocks.foreground, blocks.background, strict=True)
        ]
    )
    # Let d_b be the difference of the two means of block b. The direction for block b is roughly a
    # linear function of the mean of the d_c of the n - 1 other blocks c, so s_b is the mean of
    # n - 1 products, each of d_b and one d_c. The product of d_b and d_c is part of s_b and of
    # s_c. If the products are independent with mean 0 and variance v, the mean of the s_b has the
    # variance 2 v / (n (n - 1)), and the expected sample variance of the s_b is
    # v (n - 2) / (n - 1)^2.
    error = np.sqrt(2 * (n - 1) / (n - 2) / n) * effects.std(ddof=1)
    effect = effects.mean()
    half = student.ppf((1 + level) / 2, n - 1) * error
    directions = directions[n:]
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    directions /= np.where(lengths > 0, lengths, 1.0)
    return ConditionShift(
        effect=float(effect),
        effect_low=float(effect - half),
        effect_high=float(max(effect + half, 0.0)),
        p_value=float(student.sf(effect / error, n - 1)) if error > 0 else float(effect <= 0),
        n_blocks=n,
        units=blocks.names,
        left_out=blocks.left_out,
        direction=directions[0],
        resampled=directions[1:],
        foreground_scores=scores[0],
        background_scores=scores[1],
    )


class _Blocks(NamedTuple):
    """Blocks of rows that are held out together, and the names of their units.

    Block b consists of the foreground rows with the indices ``foreground[b]`` and the background
    rows with the indices ``background[b]``. If the blocks are paired, both belong to the same unit.
    """

    foreground: list[NDArray[np.intp]]
    background: list[NDArray[np.intp]]
    paired: bool = False
    names: tuple[Any, ...] = ()
    left_out: tuple[Any, ...] = ()


def _blocks(
    sizes: tuple[int, int],
    units: ArrayLike | None,
    background_units: ArrayLike | None,
    rng: np.random.Generator,
) -> _Blocks:
    """Divide the rows of both datasets into blocks by their units or, without units, into fifths.

    Raises
    ------
    ValueError
        If fewer than three units can be compared.
    """
    labels = check_both_labels((units, background_units), sizes)
    if labels is None:
        x, y = (np.array_split(rng.permutation(size), _FOLDS) for size in sizes)
        return _Blocks(x, y)
    counts = [Counter(np.sort(side).tolist()) for side in labels]
    named = list(dict.fromkeys([*counts[0], *counts[1]]))
    paired = any(name in counts[0] and name in counts[1] for name in named)
    # A unit needs enough rows in both datasets if blocks are paired, else only in its own dataset.
    used = [
        [name for name in named if all(count[name] >= FEWEST_ROWS for count in needed)]
        for needed in ([counts, counts] if paired else [[counts[0]], [counts[1]]])
    ]
    n = min(map(len, used))
    if n < FEWEST_UNITS:
        raise ValueError(
            f"{n} units have at least {FEWEST_ROWS} rows in both datasets; a comparison within "
            f"units needs {FEWEST_UNITS} such units."
            if paired
            else f"{len(used[0])} units of X and {len(used[1])} units of background have at least "
            f"{FEWEST_ROWS} rows; a comparison needs {FEWEST_UNITS} such units in each dataset."
        )
    if not paired:  # units of X are paired with units of the background at random
        used = [list(rng.permutation(np.array(names, dtype=object))) for names in used]
    parts = [
        [np.flatnonzero(np.isin(side, np.array(names[b::n], dtype=side.dtype))) for b in range(n)]
        for side, names in zip(labels, used, strict=True)
    ]
    chosen = set(used[0]) | set(used[1])
    return _Blocks(
        parts[0],
        parts[1],
        paired,
        tuple(name for name in named if name in chosen),
        tuple(name for name in named if name not in chosen),
    )


def _held_out_scores(
    rows: tuple[Any, Any], directions: FloatArray, blocks: _Blocks
) -> tuple[FloatArray, FloatArray]:
    """Return the scores of all rows, along directions that were computed without their blocks.

    Parameters
    ----------
    rows : pair of arrays or sparse matrices
        Foreground and background.
    directions : ndarray of shape (B, D)
        Row b is the direction that was computed without block b.
    blocks : _Blocks
        The rows of each block.

    Returns
    -------
    pair of ndarrays of shape (n,) and (m,)
        Distances from the background's mean, in standard deviations of the background. They are NaN
        for rows that are in no block.
    """
    n = len(directions)
    projected = np.asarray(rows[0] @ directions.T), np.asarray(rows[1] @ directions.T)
    scores = np.full(len(projected[0]), np.nan), np.full(len(projected[1]), np.nan)
    for b in range(n):
        others = np.arange(n) != b
        along = [projected[1][part, b] for part in blocks.background]
        centres = np.array([each.mean() for each in along])
        variance = np.array([each.var(ddof=1) for each in along])[others].mean()
        centre = centres[others].mean()
        if blocks.paired:  # scores are measured from the background mean of their own unit
            centre = centres[b]
        else:  # differences among units count as variation of the background
            variance += ((centres[others] - centre) ** 2).mean()
        unit = np.sqrt(variance) if variance > 0 else 1.0
        for side, parts in enumerate((blocks.foreground, blocks.background)):
            scores[side][parts[b]] = (projected[side][parts[b], b] - centre) / unit
    # Held-out rows vary more along a direction than the rows from which it was computed. The scores
    # are therefore divided by the standard deviation of the held-out background rows.
    held_out = [scores[1][part] for part in blocks.background]
    unit = np.sqrt(
        np.mean([each.var(ddof=1) if blocks.paired else np.mean(each**2) for each in held_out])
    )
    return (scores[0] / unit, scores[1] / unit) if unit > 0 else scores


def _principal(x: Any, y: Any, rng: np.random.Generator) -> FloatArray:
    """Return a basis (k, D) of the leading principal components of both datasets together.

    The rows are not centred, so that sparse rows stay sparse. One of the components is then close
    to the mean.
    """
    from sklearn.utils.extmath import randomized_svd

    k = min(_COMPONENTS, min(x.shape[0], y.shape[0]) // 2, x.shape[1])
    if k == x.shape[1]:
        return np.eye(k)
    rows = sp.vstack([x, y], format="csr") if sp.issparse(x) else np.vstack([x, y])
    seed = int(rng.integers(2**31))
    found = randomized_svd(rows, k, n_iter=_PASSES, random_state=seed)[2]
    return np.asarray(found, dtype=np.float64)


def _directions(
    rows: tuple[Any, Any], blocks: _Blocks, weights: FloatArray, basis: FloatArray
) -> FloatArray:
    """Return Fisher's discriminants (W, D), one for each row of `weights` (W, B).

    Each row of `weights` says how often each of the B blocks counts. D is the number of features.

    Raises
    ------
    ValueError
        If the background does not vary within its blocks.
    """
    parts = blocks.foreground, blocks.background
    moments = [
        [FeatureMoments.from_data(data[part]) for part in own]
        for data, own in zip(rows, parts, strict=True)
    ]
    means, variances = (
        [np.stack([getattr(each, name) for each in own]) for own in moments]
        for name in ("mean", "variance")
    )
    sizes = [np.array([float(len(part)) for part in own]) for own in parts]
    if not variances[1].any():
        raise ValueError(
            "background does not vary within its units or, without units, within fifths of its "
            "rows. The effect is measured in standard deviations of the background, so give "
            "background rows that vary."
        )
    coordinates = np.asarray(rows[1] @ basis.T, dtype=np.float64)
    size = 2 * [len(basis)]
    within = np.stack([np.cov(coordinates[part].T).reshape(size) for part in blocks.background])
    centres = np.stack([coordinates[part].mean(axis=0) for part in blocks.background])
    shares = weights / weights.sum(axis=1, keepdims=True)
    squared_error = sum(
        shares @ variance / (weights @ n_rows)[:, None]
        for variance, n_rows in zip(variances, sizes, strict=True)
    )
    directions = _shrunk(shares @ (means[0] - means[1]), squared_error)
    ridges = _DIRECTION_RIDGE * (shares @ variances[1]).mean(axis=1)
    for direction, share, ridge in zip(directions, shares, ridges, strict=True):
        covariance = np.tensordot(share, within, axes=1)
        if not blocks.paired:
            away = np.sqrt(share)[:, None] * (centres - share @ centres)
            covariance = covariance + away.T @ away
        if ridge > 0:
            # The covariance C of the background is zero outside the basis, so C + ridge I is
            # inverted by the formula of Sherman, Morrison and Woodbury.
            along = basis @ direction
            inner = np.linalg.solve(covariance + ridge * np.eye(len(basis)), along)
            direction[:] = direction / ridge + (inner - along / ridge) @ basis
    return directions


def _shrunk(difference: FloatArray, squared_error: FloatArray) -> FloatArray:
    """Return the expected true differences (W, D), given the observed differences (W, D).

    In each row, a share of the features differs. Their true differences, in standard errors, are
    drawn from a normal distribution with mean 0. The other features do not differ. The share and
    the variance of the distribution are estimated by expectation maximisation. It starts from a
    small share, because it would need many more iterations from a large share. Differences whose
    standard error is zero are returned unchanged.
    """
    varies = squared_error > 0
    squared = np.divide(difference**2, squared_error, out=np.zeros_like(difference), where=varies)
    n_features = np.maximum(varies.sum(axis=1, keepdims=True), 1)
    share, spread = 0.1, 10 * np.maximum(squared.mean(axis=1, keepdims=True), 1.0)
    for _ in range(_ITERATIONS):
        evidence = squared * (spread / (1 + spread)) - np.log1p(spread)
        differs = varies * expit(logit(share) + evidence / 2)
        expected = np.maximum(differs.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        share = np.clip(expected / n_features, 1e-4, 1 - 1e-4)
        spread = np.maximum((differs * squared).sum(axis=1, keepdims=True) / expected - 1, 0.05)
    return np.where(varies, differs * (spread / (1 + spread)), 1.0) * difference
