"""What the window did, as a Python script."""

from __future__ import annotations

import numpy as np

from contrast_core.images import Frames, Patches
from napari_plugin._pair import BoolArray, Pair
from napari_plugin._read_patches import strides
from napari_plugin._solve import Solution

_NAMES = {"cpca": "CPCA", "pca": "CPCA", "pcpca": "PCPCA", "cpca_star": "CPCAStar"}
_PARAMETERS = {"cpca": "alpha", "pca": "alpha", "pcpca": "gamma", "cpca_star": "beta"}


def as_python(pair: Pair, solution: Solution) -> str:
    """A script from arrays ``image`` (and ``background``) to ``denoised``."""
    settings, samples = solution.settings, solution.samples
    frames = isinstance(samples, Frames)
    sampling = "Frames()" if frames else repr(samples)
    lines = [
        "import numpy as np",
        "import napari",
        "",
        "viewer = napari.current_viewer()",
        f"image = viewer.layers[{pair.foreground.name!r}].data",
        *_background(pair),
        "",
    ]
    kind = type(samples).__name__
    if settings.method == "automatic":
        options = ""
        if settings.constant_strength and not frames:
            options = ', background_strength="constant"'
        if settings.signal_anywhere and frames:
            options = ", stationary_signal=True"
        patched = not frames and pair.masks_frames
        return "\n".join(
            [
                *lines[:2],
                f"from contrast_core.images import {kind}, suppress_background",
                *lines[2:],
                *(["background = image[background]"] if patched else []),
                f"result = suppress_background(image, background, sampling={sampling}{options})",
                "denoised = result.denoised",
                "",
            ]
        )
    name, parameter = _NAMES[settings.method], _PARAMETERS[settings.method]
    read = "sampling", "sampling"
    if isinstance(samples, Patches):
        read = tuple(f"Patches({samples.size}, {stride})" for stride in strides(pair, samples))  # type: ignore[assignment]
    foreground, behind = f"{read[0]}.rows(image)", f"{read[1]}.rows(background)"
    if pair.masks_frames and not frames:
        behind = f"{read[1]}.rows(image[background])"
    elif pair.mask is not None:
        behind = f"{read[1]}.rows(image, background)"
        if frames:
            foreground = f"{read[0]}.rows(image, ~background)"
    return "\n".join(
        [
            *lines[:2],
            f"from contrast_core import {name}",
            f"from contrast_core.images import {kind}",
            *lines[2:],
            f"sampling = {sampling}",
            f"model = {name}({settings.n_components}, "
            f"{parameter}={solution.estimator.strength_!r})",
            f"model.fit({foreground}, background={behind})",
            "denoised = sampling.map(",
            '    lambda rows: model.denoise(rows, offset="difference"), image',
            ")",
            "",
        ]
    )


def _background(pair: Pair) -> list[str]:
    if pair.background is not None:
        return [f"background = viewer.layers[{pair.background.name!r}].data"]
    mask = pair.mask
    if mask is None:
        return []
    if (box := _box(mask)) is None:
        return [
            "# True where the background is alone: the area that was marked.",
            f"background = np.load('background.npy')  # bool, of shape {mask.shape}",
        ]
    slices = ", ".join(f"{start}:{stop}" for start, stop in box)
    return [
        f"background = np.zeros({mask.shape}, dtype=bool)",
        f"background[{slices}] = True",
    ]


def _box(mask: BoolArray) -> list[tuple[int, int]] | None:
    """The bounds of a mask that is one box."""
    box = []
    for axis in range(mask.ndim):
        others = tuple(other for other in range(mask.ndim) if other != axis)
        places = np.flatnonzero(mask.any(axis=others))
        box.append((int(places[0]), int(places[-1]) + 1))
    inside = mask[tuple(slice(*bounds) for bounds in box)]
    return box if inside.all() else None
