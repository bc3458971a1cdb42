"""Normal densities of few latent dimensions and isotropic noise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.rows import Rows


def log_densities(
    rows: Rows,
    mean: FloatArray,
    components: FloatArray,
    variances: FloatArray,
    noise: float,
    *,
    incomplete: Callable[[Any], FloatArray] | None = None,
) -> FloatArray:
    r"""Log-density of each row where all directions but a few have the same variance.

    By the Woodbury identity and the determinant lemma, which for orthonormal components need a
    projection on these and what it leaves: no matrix of D x D is formed.

    Parameters
    ----------
    rows : Rows
        n of them.
    mean : ndarray of shape (n_features,)
        Mean of the density.
    components : ndarray of shape (k, n_features)
        Orthonormal directions.
    variances : ndarray of shape (k,)
        Along these.
    noise : float
        Variance along all others.
    incomplete : callable, optional
        The same, a column, of dense rows with missing values, where these are let through.

    Returns
    -------
    ndarray of shape (n,)
        Natural logarithms.
    """
    k, n_features = components.shape
    constant = (
        n_features * np.log(2 * np.pi) + np.log(variances).sum() + (n_features - k) * np.log(noise)
    )
    function = partial(
        _log_densities,
        mean=mean,
        components=components,
        variances=variances,
        noise=np.array(noise),
        constant=np.array(constant),
    )
    either = complete_or_not(function, incomplete) if incomplete and rows.can_miss else function
    column: FloatArray = rows.map(either, 1, dense=True)
    return column[:, 0]


def complete_or_not(
    complete: Callable[[Any], FloatArray], incomplete: Callable[[Any], FloatArray]
) -> Callable[[Any], FloatArray]:
    """A function of dense blocks of rows: one of those without missing values, one of the rest."""
    return partial(_either, complete=complete, incomplete=incomplete)


def _either(
    rows: Any, complete: Callable[[Any], FloatArray], incomplete: Callable[[Any], FloatArray]
) -> FloatArray:
    return incomplete(rows) if np.isnan(rows).any() else complete(rows)


def _log_densities(
    rows: Any,
    mean: FloatArray,
    components: FloatArray,
    variances: FloatArray,
    noise: FloatArray,
    constant: FloatArray,
) -> FloatArray:
    """Column of log-densities; `constant` is minus twice the part that is the same for all."""
    centred = rows - mean
    projected = centred @ components.T
    left = centred - projected @ components
    distance = (projected**2 / variances).sum(axis=1) + (left**2).sum(axis=1) / noise
    column: FloatArray = -0.5 * (constant + distance)[:, None]
    return column
