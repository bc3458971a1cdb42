"""On which real data does a contrast help, and with how many components?

    python validation/track_record.py                # all datasets
    python validation/track_record.py mice tumours   # some

Each unit (mouse, donor, compound, picture, guide) is left out in turn. The embedding is fitted to
the other units, without labels; a linear discriminant with equal priors learns the labels from its
first k components, and classifies the rows of the unit that was left out. A figure is the mean
share of rows classified correctly over the units, with a 95% interval (Student's t over units).
A linear discriminant does not depend on the scale of components, so only their subspace counts.

Two rows use labels and are no embeddings that one could choose: "cPCA, best alpha" takes, for each
k, the best of nine strengths and PCA by this very score, an upper bound; "all features, with
labels" is a discriminant of all features with Ledoit-Wolf shrinkage. "All features, neighbours"
are the fifteen nearest rows, without an embedding.

"whitening r" is PCA after the background's covariance, plus r times its mean variance in every
direction, has been made the identity. Its subspace is that of cPCA* at another beta, and that of
cPCA* with its automatic beta is r = 0.25. "within" subtracts each unit's mean from both datasets.
Missing values are filled with the foreground's mean of the feature; PCPCA and CLVM take them.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from time import process_time
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from scipy.stats import t as student
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import KNeighborsClassifier

from contrast_core import CLVM, CPCA, PCPCA, CPCAStar, PCAPlusPlus, SecondMoments, SparseCPCA
from validation._real_data import Task, tasks

COMPONENTS = (1, 2, 3, 5, 10, 20, 50)
ALPHAS = np.append(0.0, np.logspace(-1, 3, 9))
RIDGES = (0.01, 0.1, 1.0)
BEST = "cPCA, best alpha"
NEIGHBOURS, CEILING = "all features, neighbours", "all features, with labels"
WITHIN = ("PCA", "cPCA", "cPCA*")  # are also taken within units

Scores = dict[str, dict[int, Any]]  # of each method and number of components, those of the units
Fit = Callable[[int], Any]  # from a number of components to an object with `transform`


class Truncated:
    """The first k components of a fitted method."""

    def __init__(self, fitted: Any, k: int) -> None:
        self.components, self.mean = fitted.components_[:k], fitted.mean_

    def transform(self, rows: Any) -> Any:
        """Return the scores of rows."""
        return (rows - self.mean) @ self.components.T


def nested(fit: Callable[[], Any]) -> Fit:
    """Read every k from one fit, whose components do not depend on their number."""
    once = cache(fit)
    return lambda k: Truncated(once(), k)


def methods(rows: Any, background: Any, replicates: Any) -> dict[str, Fit]:
    """Return what fits each method to the foreground and background of a fold."""
    whole = not (np.isnan(rows).any() or np.isnan(background).any())
    x, y = (SecondMoments.from_data(part) for part in filled(rows, background))
    given = (x, y) if whole else (rows, background)
    most = min(COMPONENTS[-1], x.n_features)

    def star(beta: float | str) -> Fit:
        return nested(lambda: CPCAStar(most, beta=beta).fit(x, background=y))

    def cpca(alpha: float) -> Fit:
        return nested(lambda: CPCA(most, alpha=alpha).fit(x, background=y))

    variance = y.total_variance / x.n_features
    every: dict[str, Fit] = {"PCA": cpca(0.0), "cPCA": lambda k: CPCA(k).fit(x, background=y)}
    every["cPCA*"] = star("auto")
    every |= {f"whitening {ridge:g}": star(1 / (1 + ridge * variance)) for ridge in RIDGES}
    every |= {
        "PCPCA": lambda k: PCPCA(_up_to(k, 20 if whole else 5)).fit(given[0], background=given[1]),
        "SparseCPCA": lambda k: SparseCPCA(_up_to(k, 5)).fit(x, background=y),
        "CLVM": lambda k: CLVM(n_shared=_up_to(k, 5), n_salient=k, tol=1e-4).fit(
            given[0], background=given[1]
        ),
    }
    if replicates is not None and whole:
        first, second = pairs(replicates)
        every["PCA++"] = lambda k: PCAPlusPlus(k).fit(rows[first], positive=rows[second])
    return every | {f"{BEST} {alpha:g}": cpca(alpha) for alpha in ALPHAS}


def filled(rows: Any, *others: Any) -> tuple[Any, ...]:
    """Replace missing values by the means of the first dataset."""
    means = np.nanmean(rows, axis=0)
    return tuple(np.where(np.isnan(part), means, part) for part in (rows, *others))


def _up_to(k: int, most: int) -> int:
    if k > most:
        raise ValueError(f"{k} components take too long here")
    return k


def pairs(samples: Any) -> tuple[Any, Any]:
    """Return each row with the next row of the same sample."""
    order = np.argsort(samples, kind="stable")
    same = samples[order][1:] == samples[order][:-1]
    return order[:-1][same], order[1:][same]


def accuracies(rule: Any, train: Any, test: Any, labels: Any, truth: Any, units: Any) -> list[float]:
    """Return the share of each unit's test rows that a rule classifies correctly."""
    right = rule.fit(train, labels).predict(test) == truth
    return [float(right[units == unit].mean()) for unit in np.unique(units)]


def centred(rows: Any, units: Any) -> Any:
    """Subtract the mean of each unit from its rows."""
    codes = np.unique(units, return_inverse=True)[1]
    sums = np.zeros((codes.max() + 1, rows.shape[1]))
    np.add.at(sums, codes, rows)
    return rows - (sums / np.bincount(codes)[:, None])[codes]


def scores(task: Task) -> Scores:
    """Leave out each unit in turn, and score every method on it."""
    found: dict[str, dict[int, list[float]]] = {}
    folds = task.units if task.folds is None else task.folds
    forms = {"": (task.foreground, task.background)}
    if task.within:
        forms[" within"] = (
            centred(task.foreground, task.units),
            centred(task.background, task.background_units),
        )
    for fold in np.unique(folds):
        new = folds == fold
        rest = ~np.isin(task.background_units, task.units[new])
        answers = task.labels[~new], task.labels[new], task.units[new]
        n_labels = len(np.unique(answers[0]))
        rule = LinearDiscriminantAnalysis(priors=np.full(n_labels, 1 / n_labels))
        for form, (front, back) in forms.items():
            rows, test = front[~new], front[new]
            replicates = None if task.replicates is None else task.replicates[~new]
            fits = methods(rows, back[rest], replicates)
            for name in WITHIN if form else fits:
                for k in COMPONENTS:
                    if k > rows.shape[1]:
                        continue
                    try:
                        model = fits[name](k)
                    except ValueError:  # so many components do not exist, or take too long
                        continue
                    right = accuracies(rule, model.transform(rows), model.transform(test), *answers)
                    found.setdefault(name + form, {}).setdefault(k, []).extend(right)
        with_labels = clone(rule).set_params(solver="lsqr", shrinkage="auto")
        whole = filled(task.foreground[~new], task.foreground[new])
        for name, every in ((NEIGHBOURS, KNeighborsClassifier(15)), (CEILING, with_labels)):
            right = accuracies(every, *whole, *answers)
            for k in COMPONENTS:
                found.setdefault(name, {}).setdefault(k, []).extend(right)
    arrays = {name: {k: np.array(v) for k, v in of.items()} for name, of in found.items()}
    path = [arrays.pop(name) for name in list(arrays) if name.startswith(BEST)]
    return arrays | {BEST: {k: max((of[k] for of in path), key=np.mean) for k in path[0]}}
