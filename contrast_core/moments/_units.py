"""Warn if features seem to have different units, because large values dominate covariances.

Problem: a covariance depends on the units of the features. If a few features have much larger
values than the others, the leading components depend almost only on them. The usual remedy is to
standardise the features (Jolliffe, Principal Component Analysis, 2nd ed., 2002). The warning
depends only on the features' shares of the variance, and it changes no result.
"""

from __future__ import annotations

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.feedback import warn

# If a few features hold more than this share of the variance, their units probably differ.
_NEARLY_ALL = 0.9
# With fewer features, one feature may hold nearly all of the variance for other reasons.
_FEWEST_FEATURES = 4


def warn_of_units(variances: FloatArray, background_variances: FloatArray, most: int) -> None:
    """Warn if a few features hold nearly all of the variance of both datasets.

    Parameters
    ----------
    variances, background_variances : ndarray of shape (n_features,)
        Variance of each feature in foreground and background.
    most : int
        "A few features" means a tenth of the features that vary, but at least one feature and at
        most this number of features.
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
            f"of X and {shares[1]:.0%} of the variance of the background, so the contrast "
            "hardly depends on other features. If features have different units, scale both "
            "datasets alike: fit scaler = StandardScaler().fit(background), and apply "
            "scaler.transform to both."
        )
