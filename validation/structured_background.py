"""Structured background out of single images: made patterns, an electron micrograph, and controls.

Needs CONTRAST_DATA. Peers of scikit-image with PyWavelets, bm3d, pystripe and pyvsnr (pip install
them) are left out where these are missing.

    CONTRAST_DATA=... python validation/structured_background.py

- Patterns over three channels of fly cells, background an empty rectangle of 96 x 96: squared error
  after the best affine fit, relative to the noisy image's, beside the best of Gaussian, median,
  top-hat, high-pass, flat field, Fourier stripe and notch filters, Wiener, non-local means, total
  variation, wavelets, BM3D, pystripe and VSNR, each tuned on the clean image. Scan lines and
  curtains also at twice the cells' strength with little noise, where a stripe filter leaves less of
  scan lines: lines that cross the whole image tell it more than an area can.
- Milling curtains (FIB-SEM): what is left of them in two other rectangles of resin, and how much of
  the tissue's edges. Before, after and removed in benchmarks/output/curtains.png.
- Camera noise (speckles): the blind-spot error of the estimate beside that of the image itself.
- Fields of a plate without structured background (Transfluor): the F ratio between wells.

Bounds: below, `BOUNDS` and `FIXED`, and beside each figure.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter, median_filter, uniform_filter, white_tophat
from scipy.stats import f_oneway
from threadpoolctl import threadpool_limits

from benchmarks.common.tasks import OUTPUT, ROOT, data_folder
from contrast_core.images import Patches, suppress_background

sys.path.append(str(ROOT))
from tests.core.images.pictures import (
    PATTERNS,
    curtains,
    haze,
    noisy,
    relative_error,
    scan_lines,
    standard,
    white,
)

EMPTY = 96
CHANNELS = ("nuclei", "actin", "third")
BOUNDS = {
    "stripes": 0.30,
    "grid": 0.035,
    "fringes": 0.08,
    "brick": 0.35,
    "gravel": 0.45,
    "white": 0.08,
}
FIXED = {"stripes": 0.27, "gravel": 0.38}  # with the background's strength held
STATED = ("white", "haze")  # where a peer is better, and no bound against the peers holds
missed: list[str] = []


def check(name: str, value: float, bound: float, *, at_least: bool = False) -> str:
    reached = value >= bound if at_least else value <= bound
    if not reached:
        missed.append(name)
    return f"{value:.3f}" + ("" if reached else f" (MISSED {bound:.3g})")


def clean_cells(folder: Path, channel: int) -> Any:
    fields = np.load(folder / "microscopy" / "fly_cells_3ch.npz")["image"]
    image = gaussian_filter(fields[0, channel].astype(float), 0.7)[100:484, 100:484]
    return (image - image.min()) / (np.percentile(image, 99.9) - image.min())


def patterns(folder: Path, shape: tuple[int, int], rng: np.random.Generator) -> dict[str, Any]:
    textures = np.load(folder / "textures" / "skimage_cc0_textures.npz")
    names = list(textures["names"])

    def cut(name: str) -> Any:
        return textures["images"][names.index(name)][: shape[0], : shape[1]].astype(float)

    lines = {"scan lines": scan_lines, "curtains": curtains}
    made = {name: make(shape, rng) for name, make in (PATTERNS | lines).items()}
    made["brick"], made["gravel"] = (
        standard(cut("brick")),
        standard(gaussian_filter(cut("gravel"), 1)),
    )
    return made | {"white": white(shape, rng), "haze": haze(shape, rng)}


def emptiest(clean: Any) -> Any:
    half = EMPTY // 2
    means = uniform_filter(clean, EMPTY)[half:-half, half:-half]
    y, x = np.unravel_index(means.argmin(), means.shape)
    mask = np.zeros(clean.shape, dtype=bool)
    mask[y : y + EMPTY, x : x + EMPTY] = True
    return mask


def without_stripes(image: Any, axis: int, width: float, kept: int) -> Any:
    """Damp frequencies along lines that run down an axis, but for the lowest across them."""
    down, across = (np.fft.fftfreq(n, 1 / n) for n in image.shape)
    grid = np.meshgrid(down, across, indexing="ij")
    along, over = grid if axis == 0 else grid[::-1]
    damped = np.exp(-((along / width) ** 2) / 2) * (np.abs(over) > kept)
    return np.fft.ifft2(np.fft.fft2(image) * (1 - damped)).real


def without_peaks(image: Any, ratio: float) -> Any:
    """Damp frequencies whose power is so many times the median of their ring."""
    spectrum = np.fft.fft2(image - image.mean())
    power = gaussian_filter(np.abs(spectrum) ** 2, 1, mode="wrap")
    grid = np.meshgrid(*(np.fft.fftfreq(n, 1 / n) for n in image.shape), indexing="ij")
    rings = np.hypot(*grid).astype(int)
    medians = np.array([np.median(power[rings == r]) for r in range(rings.max() + 1)])
    peaks = (power > ratio * medians[rings]) & (rings > 4)
    damped = np.clip(2 * gaussian_filter(peaks.astype(float), 1.5, mode="wrap"), 0, 1)
    return np.fft.ifft2(spectrum * (1 - damped)).real


def wiener(image: Any, area: Any, strength: float) -> Any:
    """A Wiener filter with the power spectra of the image and of an area of background."""
    area = area - area.mean()
    window = np.outer(*(np.hanning(n) for n in area.shape))
    behind = np.abs(np.fft.fft2(area * window, image.shape)) ** 2 / (window**2).sum()
    spectrum = np.fft.fft2(image - image.mean())
    power = gaussian_filter(np.abs(spectrum) ** 2 / image.size, 1.5, mode="wrap")
    gain = np.clip(1 - strength * behind / np.maximum(power, 1e-12), 0.02, 1)
    return np.fft.ifft2(spectrum * gain).real


def simple_filters(image: Any, area: Any) -> Iterator[tuple[str, Any]]:
    """Each simple filter at a few settings; `area` is a rectangle of background."""
    for s in (0.7, 1, 1.5, 2, 3):
        yield "Gaussian", gaussian_filter(image, s)
    for side, s in product((9, 15, 25, 41), (0, 1, 2)):
        yield "top-hat", white_tophat(gaussian_filter(image, s), side)
    for s in (5, 10, 20, 40):
        wide = gaussian_filter(image, s)
        yield "high-pass", image - wide
        if wide.min() > 0:
            yield "flat field", image / wide
    for axis, width, kept in product((0, 1), (0.3, 1, 2, 4), (0, 4, 16)):
        yield "stripe filter", without_stripes(image, axis, width, kept)
    for ratio in (8, 30):
        yield "notch", without_peaks(image, ratio)
    for strength in (1, 2):
        yield "Wiener", wiener(image, area, strength)


def peers(image: Any, area: Any) -> Iterator[tuple[str, Any]]:
    """Each filter at each of its settings."""
    yield from simple_filters(image, area)
    for s in (0.5, 4, 6):
        yield "Gaussian", gaussian_filter(image, s)
    for side in (3, 5, 7, 9, 13):
        yield "median", median_filter(image, side)
    for axis, width, kept in product((0, 1), (0.3, 1, 2, 4, 8), (2, 8, 32)):
        yield "stripe filter", without_stripes(image, axis, width, kept)
    yield from _of_packages(image, area)


def _of_packages(image: Any, area: Any) -> Iterator[tuple[str, Any]]:
    """Denoisers and stripe removers of other packages, where these are installed."""
    sd = image.std()
    if find_spec("skimage") and find_spec("pywt"):
        from skimage import restoration

        for h in (0.2, 0.4, 0.6, 0.9):
            yield "NLM", restoration.denoise_nl_means(image, 5, 6, h=h * sd)
        for weight in (0.05, 0.1, 0.2, 0.4, 0.8, 1.6):
            yield "TV", restoration.denoise_tv_chambolle(image / sd, weight)
        for sigma in (0.15, 0.3, 0.6, 1.0):
            yield "wavelet", restoration.denoise_wavelet(image / sd, sigma=sigma)
        yield "wavelet", restoration.denoise_wavelet(image / sd)
    if find_spec("bm3d"):
        from bm3d import bm3d

        for strength in (0.7, 1.0):
            yield "BM3D", bm3d(image, strength * area.std())
    if find_spec("pystripe"):
        from pystripe.core import filter_streaks

        low = image.min()
        for turned, width in product((False, True), (8, 32, 128)):
            turn = np.transpose if turned else np.asarray
            found = filter_streaks(turn(image - low), [width, width], wavelet="db3")
            yield "pystripe", turn(found)
    if find_spec("pyvsnr"):
        from pyvsnr import vsnr2d

        for axis in (0, 1):
            shape = {"name": "Gabor", "noise_level": 20, "sigma": (1, 40), "theta": 90 * axis}
            yield "VSNR", np.squeeze(vsnr2d(image[None], [shape], maxit=30, algo="numpy"))


def best_peer(image: Any, clean: Any) -> tuple[float, str]:
    area = image[emptiest(clean)].reshape(EMPTY, EMPTY)
    found = peers(image, area)
    return min((relative_error(each, clean, image), name) for name, each in found)


def on_patterns(folder: Path) -> None:
    print("relative error: varying strength / constant; best peer tuned on the truth; verdicts")
    for channel, name in enumerate(CHANNELS):
        clean, rng = clean_cells(folder, channel), np.random.default_rng(0)
        mask = emptiest(clean)
        for kind, pattern in patterns(folder, clean.shape, rng).items():
            image = noisy(clean, pattern, rng)
            result = suppress_background(image, mask)
            fixed = suppress_background(image, mask, background_strength="constant")
            error = relative_error(result.denoised, clean, image)
            held = relative_error(fixed.denoised, clean, image)
            peer, whose = best_peer(image, clean)
            text = check(f"{kind} on {name}", error, BOUNDS.get(kind, np.inf))
            text += " / " + check(f"{kind} on {name}, constant", held, FIXED.get(kind, np.inf))
            text += f"   {whose} {peer:.3f}"
            if kind not in STATED:
                check(f"{kind} on {name} below {whose}'s {peer:.3f}", error, peer)
            said = [verdict.kind for verdict in result.verdicts]
            print(f"  {name:7s} {kind:8s} {text}   {', '.join(said)}", flush=True)
            if kind == "white" and "unstructured background" not in said:
                missed.append(f"verdict on white noise on {name}")


def strong_lines(folder: Path) -> None:
    print("\nstrong lines, little noise: error, and that of a stripe filter tuned on the truth")
    for channel, name in enumerate(CHANNELS):
        clean, rng = clean_cells(folder, channel), np.random.default_rng(0)
        for make in (scan_lines, curtains):
            image = noisy(clean, make(clean.shape, rng), rng, amplitude=2.0, noise=0.1)
            error = relative_error(
                suppress_background(image, emptiest(clean)).denoised, clean, image
            )
            peer, whose = best_peer(image, clean)
            print(f"  {name:7s} {make.__name__:10s} {error:.3f}   {whose} {peer:.3f}", flush=True)


def milled(folder: Path) -> None:
    data = np.load(folder / "microscopy" / "fibsem_curtains.npz")
    image = data["image"].astype(float)
    top, bottom, left, right = data["background"]
    mask = np.zeros(image.shape, dtype=bool)
    mask[top:bottom, left:right] = True
    start = time.process_time()
    result = suppress_background(image, mask)
    seconds = (time.process_time() - start) / (image.size / 1e6)
    print("\nmilling curtains: energy left in resin (at most 0.04), edges kept (at least 0.88)")

    def energy(picture: Any, where: tuple[slice, slice]) -> float:
        return float((picture - gaussian_filter(picture, 25))[where].var())

    for rows, columns in (((450, 700), (80, 200)), ((700, 1000), (60, 150))):
        where = slice(*rows), slice(*columns)
        left_over = energy(result.denoised, where) / energy(image, where)
        print(
            f"  rows {rows}, columns {columns}:", check(f"curtains in rows {rows}", left_over, 0.04)
        )
    before, after = (
        np.gradient(gaussian_filter(picture, 1.5), axis=0)[500:900, 280:430]
        for picture in (image, result.denoised)
    )
    strong = np.abs(before) >= np.quantile(np.abs(before), 0.95)
    kept = float((after * before)[strong].sum() / (before**2)[strong].sum())
    print("  edges:", check("edges of the tissue", kept, 0.88, at_least=True))
    print("  s of CPU a megapixel, verdicts included:", check("time", seconds, 12))
    print("  verdicts:", [verdict.kind for verdict in result.verdicts])
    _draw(image, result.denoised, result.removed)


def _draw(*pictures: Any) -> None:
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(15, 6), layout="constrained")
    for axis, picture, title in zip(axes, pictures, ("before", "after", "removed"), strict=True):
        low, high = np.percentile(picture, [0.5, 99.5])
        axis.imshow(picture, cmap="gray", vmin=low, vmax=high)
        axis.set_title(title)
        axis.set_axis_off()
    OUTPUT.mkdir(exist_ok=True)
    figure.savefig(OUTPUT / "curtains.png", dpi=100)
    plt.close(figure)


def camera_noise(folder: Path) -> None:
    data = np.load(folder / "microscopy" / "speckles_2ch.npz")
    print("\ncamera noise: blind-spot error relative to the image's own (at most 1.15)")
    for channel, image in zip(data["channels"], data["image"].astype(float), strict=True):
        mask = np.zeros(image.shape, dtype=bool)
        for y, x in data["background_tiles_32"]:
            mask[y : y + 32, x : x + 32] = True
        hidden = np.random.default_rng(0).random(image.shape) < 0.02
        ring = np.ones((3, 3), dtype=bool)
        ring[1, 1] = False
        blind = np.where(hidden, median_filter(image, footprint=ring), image)
        result = suppress_background(blind, mask)
        estimate = result.denoised - result.brightness + result.estimator.background_mean_.mean()
        error, own = (
            float(((picture - image)[hidden] ** 2).mean()) for picture in (estimate, blind)
        )
        said = [verdict.kind for verdict in result.verdicts]
        print(f"  {channel}:", check(f"blind spots of {channel}", error / own, 1.15), said)
        if "unstructured background" not in said:
            missed.append(f"verdict on {channel}")


def plate(folder: Path) -> None:
    data = np.load(folder / "microscopy" / "transfluor_fields.npz")
    images = data["image"].astype(float)
    images /= gaussian_filter(images.mean(axis=0), 25)
    tiles = gaussian_filter(images, (0, 2, 2)).reshape(len(images), 16, 32, 16, 32).max(axis=(2, 4))
    mask = np.kron(tiles <= np.quantile(tiles, 0.1), np.ones((1, 32, 32), dtype=bool))
    result = suppress_background(images, mask, sampling=Patches(stride=4))
    wells = np.array([name[:3] for name in data["field"]])

    def ratio(stack: Any) -> float:
        spots = [np.percentile(image - gaussian_filter(image, 4), 99) for image in stack]
        return float(f_oneway(*(np.array(spots)[wells == well] for well in np.unique(wells)))[0])

    own, found = ratio(images), ratio(result.denoised)
    print(
        f"\nfields of a plate: F ratio between wells, of the images {own:.1f}, of the estimate",
        end=" ",
    )
    print(check("F ratio between wells", found, own, at_least=True))
    print("  verdicts:", [verdict.kind for verdict in result.verdicts])


def main() -> int:
    folder = data_folder()
    if folder is None:
        print("skipped: CONTRAST_DATA does not name the folder of the larger real data sets")
        return 0
    for part in (milled, camera_noise, plate, on_patterns, strong_lines):
        part(folder)
    print("\n" + (f"not reached: {'; '.join(missed)}" if missed else "every bound reached"))
    return bool(missed)


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        sys.exit(main())
