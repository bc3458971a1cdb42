"""Tests of `StructuredBackgroundRemover` against its definition in plain NumPy."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from contrast_core import SecondMoments
from contrast_core.images import StructuredBackgroundRemover


def planted(n: int = 300, m: int = 200, d: int = 10) -> tuple[Any, Any, Any]:
    """Return rows of signal and background, rows of background alone, and the signal."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]

    def background(rows: int) -> Any:
        strength = rng.lognormal(sigma=0.5, size=(rows, 1))
        return strength * rng.normal(size=(rows, 3)) * [4.0, 3.0, 2.0] @ basis[:3]

    signal = rng.normal(size=(n, 2)) * [3.0, 2.0] @ (basis[3:5] + 0.5 * basis[:2]) + 1.0
    noise = 0.2 * rng.normal(size=(n + m, d))
    return signal + background(n) + noise[:n] + 5.0, background(m) + noise[n:] + 5.0, signal


def in_plain_numpy(X: Any, Y: Any, mode: str) -> tuple[Any, Any]:
    """Compute the posterior mean from its definition, row by row and for two strengths."""
    d = X.shape[1]
    cx, cy = np.cov(X.T, bias=True), np.cov(Y.T, bias=True)
    delta = X.mean(axis=0) - Y.mean(axis=0)
    values, vectors = np.linalg.eigh(cx - cy)
    S = (vectors * np.maximum(values, 0)) @ vectors.T + np.outer(delta, delta)
    N = cy + 0.03 * np.trace(cy) / d * np.eye(d)
    gains = [1.0] if mode == "constant" else [0.02, *np.geomspace(0.1, 4, 6)]
    pairs = list(product([0.0, *np.geomspace(0.0003, 30, 16)], gains))
    estimates, strengths = [], []
    for row in X - Y.mean(axis=0):
        logs, means = [], []
        for s, g in pairs:
            total = s * S + g * N
            solved = np.linalg.solve(total, row)
            logs.append(-0.5 * (np.linalg.slogdet(total)[1] + row @ solved))
            means.append(s * S @ solved)
        weights = np.exp(np.array(logs) - max(logs))
        weights /= weights.sum()
        estimates.append(weights @ means)
        strengths.append(weights @ np.array(pairs))
    return np.array(estimates), np.array(strengths)


@pytest.mark.parametrize("mode", ["varying", "constant"])
def test_the_estimate_is_the_posterior_mean(mode: Any) -> None:
    X, Y, _ = planted(n=40)
    remover = StructuredBackgroundRemover(background_strength=mode).fit(X, background=Y)
    estimates, strengths = in_plain_numpy(X, Y, mode)
    np.testing.assert_allclose(remover.transform(X), estimates, atol=1e-9)
    np.testing.assert_allclose(remover.strengths(X), strengths, rtol=1e-9)


def test_whole_or_merged_moments_give_the_same_fit_as_data() -> None:
    X, Y, _ = planted()
    y = SecondMoments.from_data(Y)
    parts = SecondMoments.from_data(X[:99]).merge(SecondMoments.from_data(X[99:]))
    expected = StructuredBackgroundRemover().fit(X, background=Y).transform(X)
    for moments in (SecondMoments.from_data(X), parts):
        fitted = StructuredBackgroundRemover().fit(moments, background=y)
        np.testing.assert_allclose(fitted.transform(X), expected, atol=1e-10)
    with pytest.raises(TypeError, match="fit_transform got SecondMoments"):
        fitted.fit_transform(y, background=y)


def test_many_rows_are_processed_in_blocks() -> None:
    X, Y, _ = planted(d=100)
    remover = StructuredBackgroundRemover().fit(X, background=Y)
    many = np.tile(X, (40, 1))  # 1.2 million values, which is more than one block
    expected = np.tile(remover.transform(X), (40, 1))
    np.testing.assert_allclose(remover.transform(many), expected, atol=1e-12)
    assert remover.strengths(many).shape == (len(many), 2)
