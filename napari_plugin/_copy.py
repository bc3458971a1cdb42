"""Python scripts that repeat what the window did."""

from __future__ import annotations

import zlib
from base64 import b85encode

import numpy as np

from contrast_core.images import Patches
from napari_plugin._pair import Pair, box_of
from napari_plugin._solve import Solution

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
    patches = isinstance(solution.samples, Patches)
    behind = "np.asarray(image)[background]" if pair.masks_frames and patches else "background"
    make = _removal if solution.settings.method == "automatic" else _projection
    imports, lines = make(pair, solution, behind)
    mask = [f"background = {sources[1]}"] if pair.mask is None else _mask(pair.mask)
    head = [*imports, "", "viewer = napari.current_viewer()", f"image = {sources[0]}", *mask, ""]
    return "\n".join([*head, *lines, ""])


def _removal(pair: Pair, solution: Solution, behind: str) -> tuple[list[str], list[str]]:
    """Return the imports and the lines of the automatic method."""
    settings, samples = solution.settings, solution.samples
    patches = isinstance(samples, Patches)
    options = [f"sampling={samples!r}" if patches else 'sampling="frames"']
    for is_chosen, option in (
        (patches and settings.brightness != "auto", f"brightness={settings.brightness!r}"),
        (settings.constant_strength, 'background_strength="constant"'),
        (settings.signal_anywhere, "stationary_signal=True"),
        (settings.absorbed, "multiplicative=True"),
    ):
        options += [option] if is_chosen else []
    names = "Patches, suppress_background" if patches else "suppress_background"
    return ["import numpy as np", "import napari", f"from contrast_core.images import {names}"], [
        f"result = suppress_background(image, {behind}, {', '.join(options)})",
        "denoised = result.denoised",
    ]


def _projection(pair: Pair, solution: Solution, behind: str) -> tuple[list[str], list[str]]:
    """Return the imports and the lines of a projection."""
    settings, samples = solution.settings, solution.samples
    name, parameter = _NAMES[settings.method], _PARAMETERS[settings.method]
    foreground = "image"
    if pair.mask is not None and behind == "background":
        behind = "image, background"
        foreground = "image, ~background" if pair.masks_frames else "image"
    imports = ["import numpy as np", "import napari"]
    rows = "sampling.rows({})"
    if isinstance(samples, Patches):
        imports = ["from functools import reduce", "", *imports]
        imports += [f"from contrast_core import {name}, SecondMoments"]
        imports += ["from contrast_core.images import Patches, block_moments"]
        rows = "reduce(SecondMoments.merge, block_moments(sampling, {}))"
    else:
        imports += [f"from contrast_core import {name}", "from contrast_core.images import Frames"]
    strength = float(solution.estimator.strength_)
    return imports, [
        f"sampling = {samples!r}",
        f"model = {name}({settings.n_components}, {parameter}={strength!r})",
        "model.fit(",
        f"    {rows.format(foreground)},",
        f"    background={rows.format(behind)},",
        ")",
        "denoised = sampling.map(",
        '    lambda rows: model.denoise(rows, offset="difference"), image',
        ")",
    ]


def _mask(mask: np.ndarray) -> list[str]:
    """Return lines that make a mask: a box by its slices, other shapes by their packed bits."""
    zeros = f"background = np.zeros({mask.shape}, dtype=bool)"
    if mask.ndim == 1:
        numbers = np.flatnonzero(mask)
        if np.ptp(numbers) + 1 == len(numbers):
            return [zeros, f"background[{numbers[0]}:{numbers[-1] + 1}] = True"]
    elif mask.ndim == 2 and mask[box_of(mask)].all():
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
