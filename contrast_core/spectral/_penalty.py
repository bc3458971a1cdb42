"""Cross-validation of the penalty of sparse contrastive PCA."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from contrast_core._linear_map import LinearMap
from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_both_labels,
    check_count,
    check_generator,
    check_known_length,
    numbers_of,
)
from contrast_core.linalg import orthonormal_rows
from contrast_core.moments import FeatureMoments
from contrast_core.rows import Rows
from contrast_core.solve import contrast_moments, contrast_rows
from contrast_core.spectral._sparse_cpca import SparseCPCA, check_penalty


@dataclass(frozen=True, eq=False)
class PenaltyChoice:
    """Penalty that was chosen on held-out rows, as computed by `cross_validated_penalty`.

    Parameters
    ----------
    penalty : float
        The penalty with the largest contrast in held-out rows, averaged over folds.
    penalties : ndarray of shape (P,)
        All penalties that were tried, ascending.
    contrasts : ndarray of shape (n_folds, P)
        Held-out contrast of each penalty in each fold, in squared units of the data.
    fitted : SparseCPCA
        The estimator at the chosen penalty, fitted on all rows.
    """

    penalty: float
    penalties: FloatArray
    contrasts: FloatArray
    fitted: SparseCPCA


def cross_validated_penalty(
    estimator: SparseCPCA,
    X: MatrixLike,
    *,
    background: MatrixLike,
    penalties: ArrayLike | None = None,
    units: ArrayLike | None = None,
    background_units: ArrayLike | None = None,
    n_folds: int = 5,
    random_state: int | np.random.Generator | None = None,
) -> PenaltyChoice:
    r"""Choose the penalty of `SparseCPCA` whose components have the most contrast in held-out rows.

    For each fold, the components are fitted to the rows outside the fold. A QR decomposition makes
    them orthonormal, in their order, which gives V. Their contrast is then computed from the
    covariances :math:`C'` of the rows in the fold,

    .. math:: \operatorname{tr} V^\top (C'_X - \alpha\, C'_Y) V ,

    where alpha is the strength that was chosen on all rows. The penalty with the largest mean
    contrast over the folds is chosen. If several penalties have this mean, the largest of them is
    chosen.

    Parameters
    ----------
    estimator : SparseCPCA
        The method. It is cloned, and its own penalty or number of features is ignored.
    X, background : array-like, DataFrame, sparse matrix, stored dataset or torch tensor of shape \
            (n or m, n_features)
        Foreground and background rows, not moments. They are read once for each fold and once for
        the final fit.
    penalties : array-like, optional
        Penalties to try, from 0 to below 1. The default is 0, 0.05, ... 0.95.
    units, background_units : array-like of shape (n,) and (m,), optional
        The donor, animal or other unit of each row. All rows of a unit are in the same fold, even
        if the unit occurs in both datasets. Without units, rows are treated as independent. If
        several rows come from the same donor, the penalty is then too small.
    n_folds : int, default=5
        Number of folds, at least 2.
    random_state : int, Generator or None, default=None
        Seed of the folds.

    Returns
    -------
    PenaltyChoice

    Raises
    ------
    TypeError
        If the estimator is not a `SparseCPCA`, or moments are given.
    ValueError
        If the datasets have different features, a parameter is out of range, or only one dataset
        has units. The error is also raised if a dataset has fewer than two rows in some fold.

    Examples
    --------
    >>> from contrast_core import SparseCPCA, cross_validated_penalty
    >>> from contrast_core.datasets import make_sparse_groups
    >>> data = make_sparse_groups(random_state=0)
    >>> choice = cross_validated_penalty(
    ...     SparseCPCA(2), data.foreground, background=data.background,
    ...     penalties=[0.1, 0.4, 0.7], random_state=0,
    ... )
    >>> choice.penalty, int(choice.fitted.components_[:, :30].any(axis=0).sum())
    (0.4, 30)
    """
    if not isinstance(estimator, SparseCPCA):
        raise TypeError(f"estimator is a {type(estimator).__name__}; expected a SparseCPCA.")
    given = 0.05 * np.arange(20) if penalties is None else penalties
    tried = np.unique(
        [check_penalty(value, "penalties") for value in numbers_of(given, "penalties")]
    )
    if not tried.size:
        raise ValueError("penalties is empty; give at least one, or None for a grid.")
    x, y = contrast_rows(X, background)
    folds = _folds(x, y, units, background_units, n_folds, check_generator(random_state))
    free = clone(estimator).set_params(n_features_to_select=None, penalty=float(tried[0]))
    whole = clone(free).fit(X, background=background)
    free.set_params(alpha=whole.alpha_)
    contrasts = np.array([_held_out(free, x, y, *fold, tried) for fold in folds])
    means = contrasts.mean(axis=0)
    best = float(tried[np.flatnonzero(means == means.max())[-1]])
    [fitted] = whole._at_penalties([best])
    fitted.set_params(alpha=estimator.alpha)
    return PenaltyChoice(best, tried, contrasts, fitted)


def _held_out(
    estimator: SparseCPCA,
    x: Rows,
    y: Rows,
    held_x: NDArray[np.bool_],
    held_y: NDArray[np.bool_],
    penalties: FloatArray,
) -> FloatArray:
    """Fit components without the held-out rows, and return their contrasts in these rows, (P,).

    `held_x` and `held_y` are masks of the held-out rows. There is one contrast for each penalty.
    """
    moments = contrast_moments(
        x.take(~held_x), y.take(~held_y), n_components=estimator.n_components, products=False
    )
    fitted = clone(estimator)._fit_moments(*moments)
    bases = [orthonormal_rows(one.components_) for one in fitted._at_penalties(penalties.tolist())]
    columns = np.vstack(bases).T
    scores = LinearMap(mean=np.zeros(len(columns)), projection=columns)
    x_along, y_along = (
        FeatureMoments.from_data(scores.transform(rows.take(held))).variance
        for rows, held in ((x, held_x), (y, held_y))
    )
    along = x_along - fitted.alpha_ * y_along
    return np.asarray(along.reshape(len(penalties), -1).sum(axis=1))


def _folds(
    x: Rows,
    y: Rows,
    units: ArrayLike | None,
    background_units: ArrayLike | None,
    n_folds: int,
    rng: np.random.Generator,
) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Return, for each fold, masks of the rows of both datasets that it holds out."""
    n_folds = check_count(n_folds, "n_folds", at_least=2)
    n, m = (check_known_length(rows.shape[0], rows.name) for rows in (x, y))
    labels = check_both_labels((units, background_units), (n, m))
    if labels is None:
        numbers = [rng.permutation(size) % n_folds for size in (n, m)]
    else:
        distinct, unit = np.unique(np.concatenate(labels), return_inverse=True)
        numbers = np.split((rng.permutation(len(distinct)) % n_folds)[unit], [n])
    for number, name in zip(numbers, ("X", "background"), strict=True):
        held = np.bincount(number, minlength=n_folds)
        if held.min() < 2:
            raise ValueError(
                f"{name} has {held.min()} rows in one of {n_folds} folds, but each fold needs at "
                "least 2. Use fewer folds, or more rows or units."
            )
    return [(numbers[0] == fold, numbers[1] == fold) for fold in range(n_folds)]
