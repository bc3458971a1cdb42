"""Simulated images with a known signal: cells behind patterns, and frames with a background.

Each pattern has mean 0 and variance 1 over the image. The benchmarks use these images too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter

Shape = tuple[int, int]


def stripes(shape: Shape, rng: np.random.Generator) -> Any:
    """Return fine and broad horizontal stripes, like the marks of a scanner or a mill."""
    fine, broad = rng.normal(size=(shape[0], 1)), rng.normal(size=(shape[0], 1))
    return standard(0.8 * fine + 1.5 * gaussian_filter(broad, (2, 0)) + np.zeros(shape))


def scan_lines(shape: Shape, rng: np.random.Generator) -> Any:
    """Return horizontal lines of independent brightness, as in a scanned image."""
    return standard(rng.normal(size=(shape[0], 1)) + np.zeros(shape))


def curtains(shape: Shape, rng: np.random.Generator) -> Any:
    """Return fine and broad vertical streaks that change slowly along their length."""
    streaks = (gaussian_filter(rng.normal(size=shape), (60, width)) for width in (0.7, 3))
    return standard(sum(map(standard, streaks)))


def grid(shape: Shape, rng: np.random.Generator, *, period: float = 10.3) -> Any:
    """Return a rectangular grid with slightly bent lines."""
    waves = (
        wave(shape, rng, along, period, wander=60, smoothness=40) for along in ((0, 1), (1, 0))
    )
    return standard(sum(waves))


def fringes(shape: Shape, rng: np.random.Generator, *, period: float = 13.0) -> Any:
    """Return slanted and bent interference fringes."""
    return standard(wave(shape, rng, (np.sin(0.6), np.cos(0.6)), period, wander=90, smoothness=30))


def wave(
    shape: Shape,
    rng: np.random.Generator,
    along: tuple[float, float],
    period: float,
    *,
    wander: float,
    smoothness: float,
) -> Any:
    """Return a wave with a smoothly varying phase, a period in pixels and a direction (y, x).

    The phase is Gaussian noise, smoothed over `smoothness` pixels and multiplied by `wander`.
    """
    y, x = np.mgrid[: shape[0], : shape[1]]
    phase = wander * gaussian_filter(rng.normal(size=shape), smoothness)
    return np.cos(2 * np.pi * (y * along[0] + x * along[1]) / period + phase)


def white(shape: Shape, rng: np.random.Generator) -> Any:
    """Return white noise, like the noise of a camera."""
    return standard(rng.normal(size=shape))


def haze(shape: Shape, rng: np.random.Generator) -> Any:
    """Return a smooth pattern, like light from outside the focal plane."""
    return standard(gaussian_filter(rng.normal(size=shape), 20))


PATTERNS = {"stripes": stripes, "grid": grid, "fringes": fringes}


def standard(pattern: Any) -> Any:
    return (pattern - pattern.mean()) / pattern.std()


def cells(shape: Shape, rng: np.random.Generator, *, empty: int = 64) -> Any:
    """Return bright round cells of several sizes; no cell lies in the upper left corner.

    The corner is a square with sides of `empty` pixels. The brightness lies between 0 and about 1.
    """
    y, x = np.mgrid[: shape[0], : shape[1]]
    image = np.zeros(shape)
    n_cells = shape[0] * shape[1] // 600
    for cy, cx, radius, bright in zip(
        *(rng.uniform(0, n, n_cells) for n in shape),
        rng.uniform(2, 7, n_cells),
        rng.uniform(0.3, 1, n_cells),
        strict=True,
    ):
        if max(cy, cx) > empty + 3 * radius:
            disc = (y - cy) ** 2 + (x - cx) ** 2 < radius**2
            image = np.maximum(image, bright * disc)
    return gaussian_filter(image, 0.7)


def scene(
    pattern: Callable[[Shape, np.random.Generator], Any],
    shape: Shape = (140, 131),
    empty: int = 64,
    *,
    seed: int = 0,
    amplitude: float = 1.0,
    noise: float = 0.3,
) -> tuple[Any, Any, Any]:
    """Return cells behind a pattern and noise, the mask of the empty corner, and the cells alone.

    `amplitude` and `noise` are multiples of the standard deviation of the cells.
    """
    rng = np.random.default_rng(seed)
    clean = cells(shape, rng, empty=empty)
    mask = np.zeros(shape, dtype=bool)
    mask[:empty, :empty] = True
    behind = amplitude * pattern(shape, rng) + noise * rng.normal(size=shape)
    return clean + clean.std() * behind, mask, clean


def relative_error(estimate: Any, clean: Any, noisy: Any) -> float:
    """Return the squared error of the estimate, divided by the error of the noisy image.

    Each error is taken after the best affine fit to the clean image.
    """
    return relative_frame_error(*(image.reshape(1, -1) for image in (estimate, clean, noisy)))


TWITCHING = (7, 9)  # height and width of the frames of `twitching_square`


def twitching_square(n: int = 300, m: int = 250, seed: int = 0) -> tuple[Any, Any, Any]:
    """Return n foreground rows, m background rows and the signal of the foreground rows.

    The foreground is a square of random brightness behind stripes; the background has stripes only.
    """
    rng = np.random.default_rng(seed)

    def background(k: int) -> Any:
        strength = rng.lognormal(sigma=0.5, size=(k, 1, 1))
        lines = rng.normal(size=(k, TWITCHING[0], 1)) * strength
        return (lines + 0.2 * rng.normal(size=(k, *TWITCHING))).reshape(k, -1) + 4.0

    signal = np.zeros((n, *TWITCHING))
    signal[:, 2:5, 3:7] = rng.normal(1.0, 1.0, size=(n, 1, 1))
    signal = signal.reshape(n, -1)
    return signal + background(n), background(m), signal


def relative_frame_error(estimate: Any, clean: Any, noisy: Any) -> float:
    """Return the squared error of the estimate, divided by the error of the noisy frames.

    Each error is taken after the best affine fit of every frame to its clean frame.
    """

    def error(frames: Any) -> float:
        e, c = (rows - rows.mean(axis=1, keepdims=True) for rows in (frames, clean))
        slope = (e * c).sum(axis=1) / np.maximum((e * e).sum(axis=1), 1e-300)
        return float(((slope[:, None] * e - c) ** 2).sum())

    return error(estimate) / error(noisy)
