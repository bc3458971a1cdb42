"""Measures of how well an embedding separates known groups, as the papers define them."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import silhouette_score
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, cross_val_score


def standardised(rows: NDArray[Any]) -> NDArray[Any]:
    """Return features with mean 0 and standard deviation 1; constant features become 0."""
    sd = rows.std(axis=0)
    sd[sd == 0] = 1
    return (rows - rows.mean(axis=0)) / sd


def silhouette(scores: NDArray[Any], labels: NDArray[Any], *, scaled: bool = True) -> float:
    """Return the mean silhouette of known groups, from at most 2000 of the rows.

    By default each axis is first scaled to unit standard deviation, as in the published scripts for
    the mice. `scaled=False` takes the scores as they are.
    """
    sample = 2000 if len(scores) > 2000 else None
    if scaled:
        scores = scores / scores.std(axis=0)
    return float(silhouette_score(scores, labels, sample_size=sample, random_state=0))


def accuracy(
    scores: NDArray[Any], labels: NDArray[Any], groups: NDArray[Any] | None = None
) -> float:
    """Return the cross-validated accuracy of a linear discriminant.

    There are five folds, or nine folds that keep the rows of a group together.
    """
    folds = StratifiedKFold(5) if groups is None else StratifiedGroupKFold(9)
    model = LinearDiscriminantAnalysis()
    return float(cross_val_score(model, scores, labels, cv=folds, groups=groups).mean())
