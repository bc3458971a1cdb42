"""Tests of `StructuredBackgroundRemover` and of `FrameBackgroundRemover`.

The first one works on patches, which are small windows of images. Its results are compared with
plain NumPy.
"""

from __future__ import annotations

import pickle
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from contrast_core import SecondMoments
from contrast_core.images import FrameBackgroundRemover, StructuredBackgroundRemover
from tests.core.estimators import ReversedBackground
from tests.core.images.pictures import TWITCHING, twitching_square

MAKE: dict[str, Any] = {
    "windows": StructuredBackgroundRemover,
    "constant strength": partial(StructuredBackgroundRemover, background_strength="constant"),
    "frames": partial(FrameBackgroundRemover, TWITCHING),
}
NAMES = [f"pixel {i}" for i in range(63)]
X, Y, SIGNAL = twitching_square()
each_remover = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)


@each_remover
@pytest.mark.parametrize("scale", [1e-60, 1e60])
def test_units_and_a_shift_do_not_matter(make: Any, scale: float) -> None:
    plain = make().fit(X, background=Y)
    scaled = make().fit(scale * X, background=scale * Y)
    np.testing.assert_allclose(scaled.transform(scale * X) / scale, plain.transform(X), atol=1e-8)
    np.testing.assert_allclose(scaled.strengths(scale * X), plain.strengths(X), rtol=1e-7)
    shifted = make().fit(X + 100, background=Y + 100)
    np.testing.assert_allclose(shifted.transform(X + 100), plain.transform(X), atol=1e-8)


ODD = {
    "the same data": (Y, Y),
    "a weak foreground": (1e-6 * X, Y),
    "a constant foreground": (np.full_like(X, 3.0), Y),
    "few rows": (X[:2], Y[:4]),
    "a background of two frames": (X, np.repeat(Y[:2], 4, axis=0)),
    "a background that alternates": (X, np.tile(Y[:2], (4, 1))),
    "constant pixels": (np.where(np.arange(63) < 30, 7.0, X), Y),
}


@each_remover
@pytest.mark.parametrize("case", ODD)
def test_odd_data_give_finite_estimates(make: Any, case: str) -> None:
    foreground, background = ODD[case]
    with np.errstate(divide="raise", invalid="raise", over="raise"):
        remover = make().fit(foreground, background=background)
        estimate = remover.transform(foreground)
    assert np.isfinite(estimate).all()
    assert (remover.signal_variances_ >= 0).all()
    if isinstance(remover, StructuredBackgroundRemover):
        if case == "the same data":
            np.testing.assert_allclose(estimate, 0.0, atol=1e-12)
    elif case in ("the same data", "few rows", "a constant foreground"):
        assert remover.n_components_ == 0
        assert remover.feature_weights().shape == (0, 63)


BOTH = ("windows", "frames")
REFUSED = [
    (BOTH, X, 0 * Y + 0.1, ValueError, r"the background is constant \(none of its 63"),
    (BOTH[:1], SecondMoments.from_data(X), Y, TypeError, "SecondMoments for both, or data for"),
    (BOTH[1:], SecondMoments.from_data(X), Y, TypeError, "rows are needed here"),
    (BOTH[1:], X, Y[:3], ValueError, "the background has 3 frames; at least 4 are needed"),
]


@pytest.mark.parametrize(("names", "foreground", "background", "error", "words"), REFUSED)
def test_bad_data_are_refused_and_leave_the_estimator_unfitted(
    names: Any, foreground: Any, background: Any, error: Any, words: str
) -> None:
    for name in names:
        remover = MAKE[name]()
        with pytest.raises(error, match=words):
            remover.fit(foreground, background=background)
        assert not [name for name in vars(remover) if name.endswith("_")]
        with pytest.raises(NotFittedError):
            remover.transform(X)


@pytest.mark.parametrize(
    ("frame_shape", "words"),
    [
        ((7, 8), r"\(7, 8\) has 56 pixels, but X has 63 feat"),
        ((63,), r"\(63,\) has 1 axes; expected \(height, wi"),
        ((64, 64), "has 4096 pixels, but X has 63 features"),
    ],
)
def test_frame_shapes_that_do_not_fit_are_refused(frame_shape: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        FrameBackgroundRemover(frame_shape).fit(X, background=Y)


class CheckedRemover(ReversedBackground, StructuredBackgroundRemover):
    pass


def test_the_remover_passes_scikit_learns_own_checks() -> None:
    check_estimator(CheckedRemover(), on_skip=None)


@each_remover
def test_clones_and_pickles_agree_and_output_keeps_feature_names(make: Any) -> None:
    frames = pd.DataFrame(X, columns=NAMES), pd.DataFrame(Y, columns=NAMES)
    remover = make().fit(frames[0], background=frames[1])
    assert list(remover.set_output(transform="pandas").transform(frames[0]).columns) == NAMES
    remover.set_output(transform="default")
    copy = pickle.loads(pickle.dumps(remover))
    np.testing.assert_array_equal(copy.transform(frames[0]), remover.transform(frames[0]))
    assert clone(remover).get_params() == remover.get_params()
    np.testing.assert_allclose(make().fit_transform(X, background=Y), copy.transform(frames[0]))


def in_plain_numpy(rows: Any, X: Any, Y: Any, mode: str) -> tuple[Any, Any]:
    """Return the posterior means of the signal and of the strengths of signal and background."""
    d = X.shape[1]
    cx, cy = np.cov(X.T, bias=True), np.cov(Y.T, bias=True)
    delta = X.mean(axis=0) - Y.mean(axis=0)
    # S is the covariance of the signal, and N is the covariance of the background.
    values, vectors = np.linalg.eigh(cx - cy)
    S = (vectors * np.maximum(values, 0)) @ vectors.T + np.outer(delta, delta)
    N = cy + 0.03 * np.trace(cy) / d * np.eye(d)
    gains = [1.0] if mode == "constant" else [0.02, *np.geomspace(0.1, 4, 6)]
    pairs = list(product([0.0, *np.geomspace(0.0003, 30, 16)], gains))
    estimates, strengths = [], []
    # s and g are the strengths of the signal and of the background, with a uniform prior on a grid.
    for row in rows - Y.mean(axis=0):
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
    remover = StructuredBackgroundRemover(background_strength=mode).fit(X, background=Y)
    estimates, strengths = in_plain_numpy(X[:40], X, Y, mode)
    np.testing.assert_allclose(remover.transform(X[:40]), estimates, atol=1e-9)
    np.testing.assert_allclose(remover.strengths(X[:40]), strengths, rtol=1e-9)


def test_moments_computed_at_once_or_in_two_parts_give_the_same_fit_as_rows() -> None:
    y = SecondMoments.from_data(Y)
    parts = SecondMoments.from_data(X[:99]).merge(SecondMoments.from_data(X[99:]))
    expected = StructuredBackgroundRemover().fit(X, background=Y).transform(X)
    for moments in (SecondMoments.from_data(X), parts):
        fitted = StructuredBackgroundRemover().fit(moments, background=y)
        np.testing.assert_allclose(fitted.transform(X), expected, atol=1e-10)
    with pytest.raises(TypeError, match="fit_transform got SecondMoments"):
        fitted.fit_transform(y, background=y)


def test_rows_processed_in_several_blocks_give_the_same_estimates() -> None:
    remover = StructuredBackgroundRemover().fit(X, background=Y)
    many = np.tile(X, (60, 1))  # 1.1 million values, which is more than one block
    expected = np.tile(remover.transform(X), (60, 1))
    np.testing.assert_allclose(remover.transform(many), expected, atol=1e-12)
    assert remover.strengths(many).shape == (len(many), 2)
