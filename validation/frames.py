"""Compare the automatic frame filter with cPCA's projection in removing background from frames.

    [CONTRAST_DATA=...] python -m validation.frames [photographs] [atoms]

For digits on pictures the methods are `FrameBackgroundRemover` and `CPCA(10, alpha="denoise")`. The
measure is the squared error after the best affine fit of every frame, divided by the error of the
noisy frames. It is computed on the frames of the fit and on 1,000 new frames.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter

from benchmarks.common.report import Report, run
from benchmarks.common.tasks import larger_data
from contrast_core import CPCA
from contrast_core.datasets import digits_on_photos
from contrast_core.images import FrameBackgroundRemover, suppress_background
from tests.core.images.pictures import relative_frame_error

NEW = 1000
BOUNDS = {50: 0.90, 200: 0.71, 500: 0.65, 2000: 0.58}  # largest error for each number of frames


def errors(data: Any, n: int) -> tuple[float, float, float]:
    """Return two errors of the filter, and one error of the projection.

    The filter's errors are for the frames of the fit and for new frames. The projection's error is
    for the frames of the fit.
    """
    X, Y = data.foreground[:n], data.background[:n]
    remover = FrameBackgroundRemover((28, 28)).fit(X, background=Y)
    cpca = CPCA(10, alpha="denoise").fit(X, background=Y)

    def error(denoise: Any, some: slice) -> float:
        rows, clean = data.foreground[some], data.clean[some]
        return relative_frame_error(denoise(rows), clean, rows)

    fitted, new = slice(n), slice(len(data.clean) - NEW, None)
    projected = error(lambda rows: cpca.denoise(rows, offset="difference"), fitted)
    return error(remover.transform, fitted), error(remover.transform, new), projected


def photographs(report: Report) -> None:
    """Remove the bundled photographs behind faint digits."""
    data = digits_on_photos(5000)
    for n, most in BOUNDS.items():
        own, new, projected = errors(data, n)
        report.measured(f"{n} frames", own, most=most)
        report.measured("  on new frames", new, most=own + 0.06)
        report.measured("  projection", projected, least=own)


def atoms(report: Report) -> None:
    """Remove the light that illuminates the atoms (probe light) from 14 images of cold atoms.

    The measure is the standard deviation of the optical density in an area without atoms. For each
    image the background frames are the probe light of the 13 other images. For comparison, the
    study also computes the density in the usual way, which divides the image by the probe light
    that was recorded a moment later.
    """
    data = np.load(larger_data() / "atoms" / "cold_atoms_14.npz")
    dark = data["dark"].astype(float).mean(axis=0)
    y, x = np.mgrid[:512, :512]
    empty, found = (y - 350) ** 2 + (x - 345) ** 2 < 65**2, []
    for shot, (image, later) in enumerate(zip(data["atoms"], data["probe"], strict=True)):
        result = suppress_background(
            image[None],
            np.delete(data["probe"], shot, axis=0),
            sampling="frames",
            multiplicative=True,
            dark=data["dark"],
        )
        paired = -np.log((image - dark).clip(1) / (later - dark).clip(1))
        both = result.denoised[0], paired
        found.append([gaussian_filter(each, s)[empty].std() for s in (0, 3) for each in both])
    smooth = "after a Gaussian filter of 3 pixels"
    worst = max(found, key=lambda values: values[2])
    for what, values in (
        ("unfiltered, mean", np.mean(found, axis=0)[:2]),
        (f"{smooth}, mean", np.mean(found, axis=0)[2:]),
        (f"{smooth}, worst image", worst[2:]),
    ):
        report.measured(what, values[0])
        report.measured("  division by the frame taken a moment later", values[1])


if __name__ == "__main__":
    run(photographs, atoms)
