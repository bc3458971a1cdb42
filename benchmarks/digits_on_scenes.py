"""Digits 0 and 1 on outdoor scenes: the nearest to the papers' digits on grass that can be had.

Needs the larger real data (CONTRAST_DATA): MNIST digits, and fifteen BSDS500 photographs of meadows
and undergrowth, which may be used but not distributed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SIDE = 28
N_FOREGROUND_SCENES = 7


class DigitsOnScenes(NamedTuple):
    foreground: Any  # (n, 784), pixels 0 to 1.25
    background: Any  # (n, 784), pixels 0 to 1
    labels: Any  # (n,), 0 or 1
    held_out: Any  # (1000, 784), digits that are not in the foreground, alone, pixels 0 to 1


def digits_on_scenes(data: Path, n_samples: int = 5000, *, seed: int = 0) -> DigitsOnScenes:
    """A quarter of a digit plus a random crop of a scene; and crops of other scenes.

    The scenes are resized to a short side of 100 pixels. The seed deals them out, as the authors of
    PCPCA deal theirs: with so few of them the result depends on which ones hide the digits.
    """
    rng = np.random.default_rng(seed)
    mnist = np.load(data / "mnist" / "mnist_train_subset.npz")
    scenes = np.load(data / "textures" / "bsds500_grass_scenes.npz")["images"] / 255.0
    short, long = scenes.shape[1:]
    small = _resampling(short, 100) @ scenes @ _resampling(long, round(100 * long / short)).T
    order = rng.permutation(len(small))
    digits = mnist["images"].reshape(-1, SIDE * SIDE) / 255.0
    crops = _crops(small[order[:N_FOREGROUND_SCENES]], n_samples, rng)
    background = _crops(small[order[N_FOREGROUND_SCENES:]], n_samples, rng)
    return DigitsOnScenes(
        0.25 * digits[:n_samples] + crops,
        background,
        mnist["labels"][:n_samples].astype(int),
        digits[5000:6000],
    )


def _resampling(length: int, target: int) -> Any:
    """Weights (target, length) of bilinear resizing, widened against aliasing."""
    width = length / target
    centres = (np.arange(target) + 0.5) * width - 0.5
    weights = np.maximum(0.0, 1 - np.abs(np.arange(length) - centres[:, None]) / width)
    return weights / weights.sum(axis=1, keepdims=True)


def _crops(scenes: Any, n: int, rng: np.random.Generator) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(scenes, (SIDE, SIDE), axis=(1, 2))
    where = rng.integers(windows.shape[:3], size=(n, 3))
    return windows[tuple(where.T)].reshape(n, -1)
