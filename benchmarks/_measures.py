"""How well known groups come apart in an embedding, as the papers measure it."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import silhouette_score
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, cross_val_score


def standardised(rows: NDArray[Any]) -> NDArray[Any]:
    """Features at zero mean and unit sd; those that do not vary stay at zero."""
    sd = rows.std(axis=0)
    sd[sd == 0] = 1
    return (rows - rows.mean(axis=0)) / sd


def silhouette(scores: NDArray[Any], labels: NDArray[Any]) -> float:
    """With each axis scaled to unit sd; of more than 2000 rows, of 2000 of them."""
    sample = 2000 if len(scores) > 2000 else None
    return float(
        silhouette_score(scores / scores.std(axis=0), labels, sample_size=sample, random_state=0)
    )


def accuracy(
    scores: NDArray[Any], labels: NDArray[Any], groups: NDArray[Any] | None = None
) -> float:
    """Of a linear discriminant, cross-validated: five folds, or nine that keep groups together."""
    folds = StratifiedKFold(5) if groups is None else StratifiedGroupKFold(9)
    model = LinearDiscriminantAnalysis()
    return float(cross_val_score(model, scores, labels, cv=folds, groups=groups).mean())
