"""Tests of `bootstrap_stability`, which resamples rows or units."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contrast_core import CPCA, bootstrap_stability
from tests.core.samples import quiet


@quiet
@pytest.mark.parametrize("kind", ["rows", "donors", "backgrounds"])
def test_resamples_agree_with_plain_numpy(kind: str) -> None:
    """Compare the resamples with plain NumPy, for rows, donors and several backgrounds.

    A donor with rows in both datasets is drawn equally often in both datasets. If there are several
    backgrounds, each of them is resampled separately.
    """
    rng = np.random.default_rng(13)
    X, Y = rng.normal(size=(60, 5)) * [3, 2, 1, 1, 1], rng.normal(size=(50, 5)) * [1, 1, 2, 1, 1]
    weights, background, given = (np.ones(60), np.ones(50)), Y, {}
    if kind == "donors":
        X, Y = X + rng.normal(size=(6, 5))[np.arange(60) // 10], Y + 1.0
        given = {"units": np.arange(60) // 10, "background_units": np.arange(50) // 10 + 3}
        background = Y
    if kind == "backgrounds":
        background, given = [Y[:20] + 9, Y[20:]], {"background_mix": [3, 1]}
        Y = np.vstack([part - part.mean(axis=0) for part in background])
        weights = np.ones(60), np.repeat([0.75 / 20, 0.25 / 30], [20, 30])
    found = bootstrap_stability(
        CPCA(2), X, background=background, n_resamples=9, level=0.5, random_state=0, **given
    )
    again, times = np.random.default_rng(0), []

    def drawn(n: int) -> Any:
        return np.bincount(again.integers(n, size=n), minlength=n)

    for _ in range(9):
        # Donors 0 to 2 are in X only, 3 to 5 in both datasets, and 6 and 7 in the background only.
        if kind == "donors":
            both, first, second = drawn(3), drawn(3), drawn(2)
            times.append([np.repeat(np.append(*t), 10) for t in ((first, both), (both, second))])
        else:
            sizes = [20, 30] if kind == "backgrounds" else [50]
            times.append([drawn(60), np.concatenate([drawn(size) for size in sizes])])
    alpha = CPCA(2).fit(X, background=background, **({} if kind == "donors" else given)).alpha_

    def components(times_x: Any, times_y: Any) -> Any:
        x, y = (
            np.cov(rows.T, bias=True, aweights=weight * each)
            for rows, weight, each in zip((X, Y), weights, (times_x, times_y), strict=True)
        )
        return np.linalg.eigh(x - alpha * y)[1][:, :-3:-1].T

    ours, theirs = components(1, 1), [components(*each) for each in times]
    squared = np.array([(ours @ each.T) ** 2 for each in theirs])
    np.testing.assert_allclose(found.retained, squared.sum(axis=2), rtol=1e-7)
    straight = squared[:, [0, 1], [0, 1]]
    crossed = squared[:, [0, 1], [1, 0]]
    best = np.where((straight.sum(axis=1) > crossed.sum(axis=1))[:, None], straight, crossed)
    np.testing.assert_allclose(found.matched, best, rtol=1e-7)
    # The retained shares add up to the sum of the squared cosines of the principal angles.
    cosines = np.cos(found.angles) ** 2
    np.testing.assert_allclose(cosines.sum(axis=1), found.retained.sum(axis=1))
    turned = []
    # The rotation brings the basis of each resampled subspace as close as possible to the fitted
    # components.
    for each in theirs:
        left, _, right = np.linalg.svd(ours @ each.T)
        turned.append(left @ right @ each)
    signs = np.sign((ours * found.components).sum(axis=1))[:, None]
    lower, upper = np.sort(signs * np.quantile(turned, [0.25, 0.75], axis=0), axis=0)
    np.testing.assert_allclose(found.lower, lower, atol=1e-7)
    np.testing.assert_allclose(found.upper, upper, atol=1e-7)
