"""Python scripts that repeat what the window did."""

from __future__ import annotations

import zlib
from base64 import b85encode

import numpy as np

from contrast_core.images import Patches
from napari_plugin._pair import Pair, box_of
from napari_plugin._solve import Solution, strides

_NAMES = {"cpca": "CPCA", "pca": "CPCA", "pcpca": "PCPCA", "cpca_star": "CPCAStar"}
_PARAMETERS = {"cpca": "alpha", "pca": "alpha", "pcpca": "gamma", "cpca_star": "beta"}


def as_python(pair: Pair, solution: Solution, sources: tuple[str, str]) -> str:
    """Return a script that computes ``denoised`` from the viewer's layers.

    Parameters
    ----------
    pair, solution
        The images of the run, and its model.
    sources : (str, str)
        Expressions for the arrays of the image and of the background's layer.
    """
    settings, samples = solution.settings, solution.samples
    kind, behind = type(samples).__name__, "background"
    of_frames = pair.masks_frames and isinstance(samples, Patches)
    if of_frames:
        behind = "np.asarray(image)[background]"
    lines = [
        "import numpy as np",
        "import napari",
        "",
        "viewer = napari.current_viewer()",
        f"image = {sources[0]}",
        *([f"background = {sources[1]}"] if pair.mask is None else _mask(pair.mask)),
        "",
    ]
    if settings.method == "automatic":
        options = ', level="remove"' if isinstance(samples, Patches) else ""
        options += ', background_strength="constant"' if settings.constant_strength else ""
        options += ", stationary_signal=True" if settings.signal_anywhere else ""
        options += ", multiplicative=True" if settings.absorbed else ""
        return "\n".join(
            [
                *lines[:2],
                f"from contrast_core.images import {kind}, suppress_background",
                *lines[2:],
                f"result = suppress_background(image, {behind}, sampling={samples!r}{options})",
                "denoised = result.denoised",
                "",
            ]
        )
    name, parameter = _NAMES[settings.method], _PARAMETERS[settings.method]
    read = ["sampling"] * 2
    if isinstance(samples, Patches):
        read = [f"Patches({samples.size}, {each.stride})" for each in strides(pair, solution)]
    foreground = "image"
    if pair.mask is not None and not of_frames:
        behind = "image, background"
        if pair.masks_frames:
            foreground = "image, ~background"
    return "\n".join(
        [
            *lines[:2],
            f"from contrast_core import {name}",
            f"from contrast_core.images import {kind}",
            *lines[2:],
            f"sampling = {samples!r}",
            f"model = {name}({settings.n_components}, "
            f"{parameter}={float(solution.estimator.strength_)!r})",
            f"model.fit({read[0]}.rows({foreground}), background={read[1]}.rows({behind}))",
            "denoised = sampling.map(",
            '    lambda rows: model.denoise(rows, offset="difference"), image',
            ")",
            "",
        ]
    )


def _mask(mask: np.ndarray) -> list[str]:
    """Return lines that make a mask: a box by its slices, other shapes by their packed bits."""
    zeros = f"background = np.zeros({mask.shape}, dtype=bool)"
    if mask.ndim == 1:
        numbers = np.flatnonzero(mask)
        if np.ptp(numbers) + 1 == len(numbers):
            return [zeros, f"background[{numbers[0]}:{numbers[-1] + 1}] = True"]
    elif mask.ndim == 2 and mask[np.ix_(*box_of(mask))].all():
        rows, columns = box_of(mask)
        where = f"{rows.start}:{rows.stop}, {columns.start}:{columns.stop}"
        return [zeros, f"background[{where}] = True"]
    packed = b85encode(zlib.compress(np.packbits(mask).tobytes(), 9)).decode()
    return [
        "import base64",
        "import zlib",
        "",
        "# The marked area, a bit for each pixel.",
        f'packed = "{packed}"',
        "bits = np.frombuffer(zlib.decompress(base64.b85decode(packed)), dtype=np.uint8)",
        f"background = np.unpackbits(bits)[: {mask.size}].reshape{mask.shape}.astype(bool)",
    ]
