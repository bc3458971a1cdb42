"""Measure how well structured background is removed from single images, real and simulated.

    CONTRAST_DATA=... python -m validation.structured_background [milled] [strong_lines]

The studies need CONTRAST_DATA. Some of the filters are from scikit-image (with PyWavelets), bm3d,
pystripe, pyvsnr and destripe. They are left out if these packages are not installed, and a line
says so. pystripe 1.3.1 requires old versions of NumPy and SciPy, but it runs with current ones
(`pip install --no-deps pystripe`, then `pip install dcimg imageio tifffile PyWavelets`). Errors are
squared errors after the best affine fit, divided by the error of the noisy image. The settings of
every filter are chosen with the clean image.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter, median_filter, uniform_filter, white_tophat

from benchmarks.common.report import Report, run
from benchmarks.common.tasks import larger_data
from contrast_core.images import suppress_background
from tests.core.images.pictures import curtains, noisy, relative_error, scan_lines

EMPTY = 96
CHANNELS = ("nuclei", "actin", "third")
PACKAGES = ("skimage", "pywt", "bm3d", "pystripe", "pyvsnr", "destripe")


def clean_cells(folder: Path, channel: int) -> Any:
    fields = np.load(folder / "microscopy" / "fly_cells_3ch.npz")["image"]
    image = gaussian_filter(fields[0, channel].astype(float), 0.7)[100:484, 100:484]
    return (image - image.min()) / (np.percentile(image, 99.9) - image.min())


def lowest_square(values: Any, side: int) -> tuple[Any, float]:
    """Return the mask of the square whose centre has the lowest value, and this value."""
    half = side // 2
    inner = values[half:-half, half:-half]
    y, x = np.unravel_index(inner.argmin(), inner.shape)
    mask = np.zeros(values.shape, dtype=bool)
    mask[y : y + side, x : x + side] = True
    return mask, float(inner.min())


def emptiest(clean: Any) -> Any:
    return lowest_square(uniform_filter(clean, EMPTY), EMPTY)[0]


def without_stripes(image: Any, axis: int, width: float, kept: int) -> Any:
    """Damp the frequencies of lines along an axis, but not the `kept` lowest frequencies.

    `width` is the standard deviation of the damped band of frequencies.
    """
    down, across = (np.fft.fftfreq(n, 1 / n) for n in image.shape)
    grid = np.meshgrid(down, across, indexing="ij")
    along, over = grid if axis == 0 else grid[::-1]
    damped = np.exp(-((along / width) ** 2) / 2) * (np.abs(over) > kept)
    return np.fft.ifft2(np.fft.fft2(image) * (1 - damped)).real


def without_peaks(image: Any, ratio: float) -> Any:
    """Damp frequencies whose power exceeds `ratio` times the median of their ring."""
    spectrum = np.fft.fft2(image - image.mean())
    power = gaussian_filter(np.abs(spectrum) ** 2, 1, mode="wrap")
    grid = np.meshgrid(*(np.fft.fftfreq(n, 1 / n) for n in image.shape), indexing="ij")
    rings = np.hypot(*grid).astype(int)
    medians = np.array([np.median(power[rings == r]) for r in range(rings.max() + 1)])
    peaks = (power > ratio * medians[rings]) & (rings > 4)
    damped = np.clip(2 * gaussian_filter(peaks.astype(float), 1.5, mode="wrap"), 0, 1)
    return np.fft.ifft2(spectrum * (1 - damped)).real


def wiener(image: Any, area: Any, strength: float) -> Any:
    """Apply a Wiener filter with the power spectra of the image and of a background area."""
    area = area - area.mean()
    window = np.outer(*(np.hanning(n) for n in area.shape))
    behind = np.abs(np.fft.fft2(area * window, image.shape)) ** 2 / (window**2).sum()
    spectrum = np.fft.fft2(image - image.mean())
    power = gaussian_filter(np.abs(spectrum) ** 2 / image.size, 1.5, mode="wrap")
    gain = np.clip(1 - strength * behind / np.maximum(power, 1e-12), 0.02, 1)
    return np.fft.ifft2(spectrum * gain).real


def simple_filters(image: Any, area: Any) -> Iterator[tuple[str, Any]]:
    """Yield each simple filter at a few settings; `area` is a rectangle of background."""
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
    """Yield the result of each filter at each setting, including filters of installed packages."""
    yield from simple_filters(image, area)
    for s in (0.5, 4, 6):
        yield "Gaussian", gaussian_filter(image, s)
    for side in (3, 5, 7, 9, 13):
        yield "median", median_filter(image, side)
    for axis, width, kept in product((0, 1), (0.3, 1, 2, 4, 8), (2, 8, 32)):
        yield "stripe filter", without_stripes(image, axis, width, kept)
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
    unit = (image - image.min()) / np.ptp(image)
    for turn in (np.asarray, np.transpose):
        yield from stripe_removers(unit, turn)


def stripe_removers(unit: Any, turn: Any) -> Iterator[tuple[str, Any]]:
    """Yield the results of packages that remove stripes from an image.

    `unit` is the image with values from 0 to 1. Lines that are vertical in `turn(unit)` are
    removed.
    """
    if find_spec("pystripe"):
        from pystripe.core import filter_streaks

        grey = 60000 * turn(unit).T  # the result is rounded to whole numbers from 0 to 65,535
        for strong, weak in product((8, 16, 32, 64, 128), (64, 128, 256)):
            found = filter_streaks(grey, [strong, weak], crossover=3000)
            yield "pystripe", turn(found.T.astype(float))
    if find_spec("pyvsnr"):
        from pyvsnr import vsnr2d

        for level, length in ((20, 40), (80, 40), (80, 200), (400, 200)):
            line = {"name": "Gabor", "noise_level": level, "sigma": (0.7, length), "theta": 0}
            found = vsnr2d(turn(unit)[None].copy(), [line], maxit=30, algo="numpy")
            yield "VSNR", turn(np.squeeze(found))
    if find_spec("destripe"):
        from destripe import UniversalStripeRemover

        for smooth, faint in ((0.1, 0.003), (0.1, 0.008), (0.1, 0.02)):
            remover = UniversalStripeRemover(smooth, faint, device="cpu")
            found = remover.process(turn(unit).astype(np.float32), iterations=150)
            yield "destripe", turn(found.numpy().astype(float))


def best_peer(image: Any, clean: Any) -> tuple[float, str]:
    area = image[emptiest(clean)].reshape(EMPTY, EMPTY)
    return min((relative_error(each, clean, image), name) for name, each in peers(image, area))


def strong_lines(report: Report) -> None:
    """Remove scan lines and curtains of twice the cells' strength from images with little noise.

    For scan lines, the error of a tuned stripe filter is 0.75 to 1.3 times ours.
    """
    print("not installed:", *(name for name in PACKAGES if not find_spec(name)))
    for channel, name in enumerate(CHANNELS):
        clean, rng = clean_cells(larger_data(), channel), np.random.default_rng(0)
        mask = emptiest(clean)
        for make in (scan_lines, curtains):
            image = noisy(clean, make(clean.shape, rng), rng, amplitude=2.0, noise=0.1)
            peer, whose = best_peer(image, clean)
            print(f"{make.__name__} on {name}; {whose} {peer:.3f}")
            for strength in ("auto", "varying"):
                result = suppress_background(
                    image, mask, brightness="remove", background_strength=strength
                )
                error = relative_error(result.denoised, clean, image)
                report.measured(f"background_strength={strength}", error)


def milled(report: Report) -> None:
    """Measure which shares of milling curtains and of tissue edges are left in a FIB-SEM image."""
    data = np.load(larger_data() / "microscopy" / "fibsem_curtains.npz")
    image = data["image"].astype(float)
    top, bottom, left, right = data["background"]
    mask = np.zeros(image.shape, dtype=bool)
    mask[top:bottom, left:right] = True
    result = suppress_background(image, mask)

    def energy(picture: Any, where: tuple[slice, slice]) -> float:
        return float((picture - gaussian_filter(picture, 25))[where].var())

    for rows, columns in (((450, 700), (80, 200)), ((700, 1000), (60, 150))):
        where = slice(*rows), slice(*columns)
        left_over = energy(result.denoised, where) / energy(image, where)
        report.measured(f"energy left in rows {rows}, columns {columns}", left_over, most=0.04)
    before, after = (
        np.gradient(gaussian_filter(picture, 1.5), axis=0)[500:900, 280:430]
        for picture in (image, result.denoised)
    )
    strong = np.abs(before) >= np.quantile(np.abs(before), 0.95)
    kept = float((after * before)[strong].sum() / (before**2)[strong].sum())
    report.measured("edges of the tissue kept", kept, least=0.88)


if __name__ == "__main__":
    run(milled, strong_lines)
