"""Tests of `FrameBackgroundRemover`, which filters the background out of frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contrast_core import CPCA
from contrast_core.images import FrameBackgroundRemover, Frames, suppress_background
from tests.core.images.pictures import TWITCHING as SHAPE
from tests.core.images.pictures import (
    digits_on_photographs,
    relative_frame_error,
    twitching_square,
)


def fitted(X: Any, Y: Any) -> FrameBackgroundRemover:
    return FrameBackgroundRemover(SHAPE).fit(X, background=Y)


def test_the_filter_is_the_posterior_mean() -> None:
    X, Y, _ = twitching_square()
    remover = fitted(X, Y)
    k, variances = remover.n_components_, remover.signal_variances_
    assert k >= 1
    S = (remover.patterns_.T * variances) @ remover.patterns_
    G = remover.patterns_.T @ remover.patterns_
    estimates = remover.transform(X)
    for row, strength, estimate in zip(X, remover.strengths(X)[:, 0], estimates, strict=True):
        expected = S @ np.linalg.solve(S + strength * G, row - remover.mean_)
        np.testing.assert_allclose(estimate, expected + remover.signal_mean_, atol=1e-8)
    np.testing.assert_allclose(remover.patterns_ @ remover.filters_, np.eye(63), atol=1e-9)
    # The strength of the background in a frame is the frame's mean square outside of the signal's
    # directions, divided by the mean of this value over the background frames. It is at least 0.5.
    rest = (((Y - remover.mean_) @ remover.filters_[:, k:]) ** 2).mean(axis=1)
    expected = np.maximum(rest / rest.mean(), 0.5)
    np.testing.assert_allclose(remover.strengths(Y)[:, 0], expected, rtol=0.01)


@pytest.mark.parametrize(("n", "most"), [(50, 0.90), (500, 0.65), (1500, 0.60)])
def test_digits_on_photographs(n: int, most: float) -> None:
    film = digits_on_photographs(n + 300)
    X, Y = film.foreground[:n], film.background[:n]
    remover = FrameBackgroundRemover(film.shape).fit(X, background=Y)
    estimate = remover.transform(film.foreground)
    seen, new = (
        relative_frame_error(estimate[part], film.clean[part], film.foreground[part])
        for part in (slice(n), slice(n, None))
    )
    assert seen < most
    assert new < seen + 0.06
    projected = CPCA(10, alpha="denoise").fit(X, background=Y).denoise(X, offset="difference")
    assert seen < relative_frame_error(projected, film.clean[:n], X)


def test_stacks_of_frames_are_filtered_in_one_call() -> None:
    X, Y, signal = twitching_square()
    stack, empty = X.reshape(50, 6, *SHAPE), Y.reshape(-1, *SHAPE)
    result = suppress_background(stack, empty, sampling="frames")
    expected = fitted(X, Y).transform(X)
    np.testing.assert_allclose(result.denoised.reshape(300, 63), expected, atol=1e-12)
    np.testing.assert_allclose(result.denoised + result.removed, stack, atol=1e-12)
    assert result.verdicts == ()
    film = np.concatenate([empty, stack.reshape(-1, *SHAPE)])
    marked = suppress_background(film, np.arange(len(film)) < 250, sampling=Frames())
    np.testing.assert_allclose(marked.denoised[250:].ravel(), result.denoised.ravel(), atol=1e-9)
    assert (marked.denoised[:250] ** 2).mean() < 0.1 * (signal**2).mean()


def test_verdicts_on_too_few_frames_and_on_swapped_or_empty_contrasts() -> None:
    X, Y, _ = twitching_square(400, 400)
    film, empty = (a.reshape(-1, *SHAPE) for a in (X, Y))

    def kinds(stack: Any, background: Any) -> list[str]:
        result = suppress_background(stack, background, sampling="frames")
        assert np.isfinite(result.denoised).all()
        return [verdict.kind for verdict in result.verdicts]

    assert kinds(film, empty) == []
    assert kinds(film[:4], empty[:4])[-1] == "too few frames"
    assert kinds(empty, film)[0] == "layers probably swapped"
    assert kinds(empty[:200], empty[200:]) == ["nothing found", "too few frames"]


FILM = np.random.default_rng(0).normal(size=(9, 6, 8))


@pytest.mark.parametrize(
    ("stack", "empty", "words"),
    [
        (FILM, FILM[:, :5], "frames have 5 x 8 pixels, but the image's frames have 6 x 8; give"),
        (FILM[0], FILM, r"the image has shape \(6, 8\); frames need"),
        (FILM, np.ones(9, dtype=bool), "True everywhere"),
        (FILM, np.zeros(9, dtype=bool), "no frame of the background lies entirely"),
        (FILM, np.ones((6, 8), dtype=bool) & (np.arange(8) > 2), r"needs a mask of shape \(9,\)"),
    ],
)
def test_stacks_and_masks_that_do_not_fit_are_refused(stack: Any, empty: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        suppress_background(stack, empty, sampling="frames")
