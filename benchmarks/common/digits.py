"""Digits 0 and 1 on outdoor pictures, which replace the papers' digits on ImageNet's grass.

The pictures are twelve bundled photographs. If the environment variable CONTRAST_DATA is set, the
fifteen scenes of meadows and undergrowth of BSDS500 are used as well. These scenes may be used but
not distributed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contrast_core.datasets._digits import _arrays

SIDE = 28
N_DEALS = 12


class DigitsOnPictures(NamedTuple):
    foreground: Any  # (n, 784), pixels 0 to 1.25
    background: Any  # (n, 784), pixels 0 to 1
    labels: Any  # (n,), 0 or 1
    clean: Any  # (n, 784), the digits in the foreground, pixels 0 to 0.25
    held_out: Any  # (1000, 784), other digits without a picture behind them, pixels 0 to 1
    same_pictures: Any  # (n, 784), more crops of the foreground's pictures, pixels 0 to 1


def digits_on_scenes(data: Path, n_samples: int = 5000, *, seed: int = 0) -> DigitsOnPictures:
    """Return digits at a quarter of their strength on crops of scenes, and crops of other scenes.

    The seed decides which scenes are behind the digits, as in the published scripts of PCPCA. There
    are so few scenes that the result depends on the seed.
    """
    mnist = np.load(data / "mnist" / "mnist_train_subset.npz")
    return _mixed(mnist, small_scenes(data), n_samples, seed)


def small_scenes(data: Path) -> Any:
    """Return the fifteen scenes, their short side resized to 100 pixels."""
    scenes = np.load(data / "textures" / "bsds500_grass_scenes.npz")["images"] / 255.0
    short, long = scenes.shape[1:]
    return _resampling(short, 100) @ scenes @ _resampling(long, round(100 * long / short)).T


def digits_on_photographs(n_samples: int = 4000, *, seed: int = 0) -> DigitsOnPictures:
    """Return the bundled digits on crops of bundled photographs, and crops of other photographs."""
    photographs = _arrays("photographs.npz")["images"] / 255.0
    return _mixed(_arrays("mnist_zeros_ones.npz"), photographs, n_samples, seed)


def over_deals(
    data: Path | None, measure: Callable[[DigitsOnPictures, int], Any]
) -> Iterator[tuple[str, Any]]:
    """Yield each kind of pictures with the results of `measure` for twelve random divisions.

    Each division, called a deal, gives half of the pictures to the foreground and the others to the
    background. The results have one row for each value that `measure` returns, and one column for
    each deal.
    """
    kinds = {"photographs": lambda seed: digits_on_photographs(seed=seed)}
    if data is not None:
        kinds["scenes"] = lambda seed: digits_on_scenes(data, seed=seed)
    for kind, deal in kinds.items():
        print(f"{kind}, {N_DEALS} deals, least / median / largest", flush=True)
        yield kind, np.transpose([measure(deal(seed), seed) for seed in range(N_DEALS)])


def _mixed(mnist: Any, pictures: Any, n_samples: int, seed: int) -> DigitsOnPictures:
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(pictures))
    half = len(pictures) // 2
    digits = mnist["images"].reshape(-1, SIDE * SIDE) / 255.0
    hiding = crops(pictures[order[:half]], n_samples, rng)
    background = crops(pictures[order[half:]], n_samples, rng)
    clean = 0.25 * digits[:n_samples]
    return DigitsOnPictures(
        clean + hiding,
        background,
        mnist["labels"][:n_samples].astype(int),
        clean,
        digits[n_samples : n_samples + 1000],
        crops(pictures[order[:half]], n_samples, rng),
    )


def _resampling(length: int, target: int) -> Any:
    """Return the weights (target, length) of linear resizing with a filter against aliasing."""
    width = length / target
    centres = (np.arange(target) + 0.5) * width - 0.5
    weights = np.maximum(0.0, 1 - np.abs(np.arange(length) - centres[:, None]) / width)
    return weights / weights.sum(axis=1, keepdims=True)


def crops(pictures: Any, n: int, rng: np.random.Generator) -> Any:
    """Return random crops of pictures, each as a row of pixels."""
    windows = np.lib.stride_tricks.sliding_window_view(pictures, (SIDE, SIDE), axis=(1, 2))
    where = rng.integers(windows.shape[:3], size=(n, 3))
    return windows[tuple(where.T)].reshape(n, -1)
