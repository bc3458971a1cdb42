"""Warn if features seem to have different units: large values dominate the covariances."""

from __future__ import annotations

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.feedback import warn

_NEARLY_ALL = 0.9  # if a few features hold a larger share of the variance, units probably differ
_FEWEST_FEATURES = 4  # if there are fewer, one may hold nearly all variance for other reasons


def warn_of_units(variances: FloatArray, background_variances: FloatArray, most: int) -> None:
    """Warn if few features hold nearly all of the variance of both datasets.

    Parameters
    ----------
    variances, background_variances : ndarray of shape (n_features,)
        Variance of each feature in foreground and background.
    most : int
        Largest number of features that is called few. The number is further limited to a tenth of
        the features that vary, but it is at least one.
    """
    n_varying = int(((variances > 0) | (background_variances > 0)).sum())
    if n_varying < _FEWEST_FEATURES:
        return
    few = max(1, min(most, n_varying // 10))
    largest = np.argsort(-variances, kind="stable")[:few]
    both = variances, background_variances
    if not all(part.any() for part in both):
        return
    shares = [float(part[largest].sum() / part.sum()) for part in both]
    if min(shares) > _NEARLY_ALL:
        named = ", ".join(map(str, np.sort(largest)[:5])) + (", ..." if few > 5 else "")
        warn(
            f"{few} of {n_varying} features (column {named}) hold {shares[0]:.0%} of the variance "
            f"of X and {shares[1]:.0%} of that of the background, so the contrast is hardly about "
            "any other. If features have different units, scale both datasets alike: "
            "scaler = StandardScaler().fit(background), then scaler.transform of both."
        )
