"""Measures of how well an embedding separates known groups, and of the cost of a call."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.stats import binom
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import silhouette_score
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, cross_val_score
from threadpoolctl import threadpool_limits

from contrast_core.linalg import subspace_error


def standardised(rows: NDArray[Any]) -> NDArray[Any]:
    """Scale the observed values of each feature to mean 0 and sd 1; constant features become 0."""
    sd = np.nanstd(rows, axis=0)
    sd[sd == 0] = 1
    return (rows - np.nanmean(rows, axis=0)) / sd


def centred(rows: NDArray[Any], groups: NDArray[Any], known: Any = True) -> NDArray[Any]:
    """Subtract the mean of each row's group, or of the group's rows where `known` is true."""
    found = rows.astype(float)
    for group in np.unique(groups):
        here = groups == group
        found[here] -= rows[here & known].mean(axis=0)
    return found


def silhouette(scores: NDArray[Any], labels: NDArray[Any], *, scaled: bool = True) -> float:
    """Return the mean silhouette of known groups over at most 2000 randomly chosen rows.

    By default each axis is first scaled to unit standard deviation, as in the published scripts for
    the mice. With `scaled=False` the scores are not scaled.
    """
    sample = 2000 if len(scores) > 2000 else None
    if scaled:
        scores = scores / scores.std(axis=0)
    return float(silhouette_score(scores, labels, sample_size=sample, random_state=0))


def accuracy(
    scores: NDArray[Any], labels: NDArray[Any], groups: NDArray[Any] | None = None
) -> float:
    """Return the cross-validated accuracy of a linear discriminant.

    There are five folds. If `groups` is given, there are nine, and no group is split over folds.
    """
    folds = StratifiedKFold(5) if groups is None else StratifiedGroupKFold(9)
    model = LinearDiscriminantAnalysis()
    return float(cross_val_score(model, scores, labels, cv=folds, groups=groups).mean())


def seconds(*calls: Callable[[], Any], repeats: int = 3) -> list[tuple[float, Any]]:
    """Run the calls in turn; return the median CPU seconds and the result of each."""
    taken: list[list[float]] = [[] for _ in calls]
    results: list[Any] = [None] * len(calls)
    for _ in range(repeats):
        for i, call in enumerate(calls):
            start = time.process_time()
            results[i] = call()
            taken[i].append(time.process_time() - start)
    return [(float(np.median(t)), result) for t, result in zip(taken, results, strict=True)]


def allocated(call: Callable[[], Any]) -> float:
    """Return the peak of the memory that a call allocates, in GB."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1] / 1e9
    finally:
        tracemalloc.stop()


def in_a_process(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a new process with one BLAS thread, and return its result."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_on_one_thread, call, *arguments).result()


def _on_one_thread(call: Callable[..., Any], *arguments: Any) -> Any:
    with threadpool_limits(1):
        return call(*arguments)


def peak_memory() -> float:
    """Return the peak memory of this process in GB, since its start."""
    with open("/proc/self/status") as status:
        [line] = [line for line in status if line.startswith("VmHWM")]
    return int(line.split()[1]) / 2**20


def excess(c_x: Any, c_y: Any, alphas: Any, components: Any) -> float:
    """Return the largest ratio of a subspace's error to the bound for rounding errors.

    The foreground's covariance is `c_x`, the background's `c_y`, and `components` holds a subspace
    for each alpha. Its error is the sine of the largest angle to the subspace that LAPACK finds.
    The bound is max(1e-8, 100 eps |C| / gap), where |C| is the largest absolute eigenvalue of the
    contrast, and the gap is between the last eigenvalue that is wanted and the next one.
    """
    worst = 0.0
    for alpha, found in zip(alphas, components, strict=True):
        values, vectors = scipy.linalg.eigh(c_x - alpha * c_y)
        k = len(found)
        gap = values[-k] - values[-k - 1]
        allowed = max(1e-8, 100 * np.finfo(float).eps * np.abs(values).max() / gap)
        worst = max(worst, subspace_error(found, vectors[:, -k:].T) / allowed)
    return worst


def highest_level(n_sets: int) -> float:
    """Return the largest acceptable share of rejections at level 5% among null datasets.

    It is 7% for 1,000 datasets or more. For fewer datasets it is the share that a test with a true
    level of 5% exceeds with a probability of 0.1%.
    """
    return 0.07 if n_sets >= 1000 else float(binom.ppf(0.999, n_sets, 0.05) / n_sets)
