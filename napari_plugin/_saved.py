"""Save and load models, apply them to folders of files, and write scripts that repeat a run."""

from __future__ import annotations

import zlib
from base64 import b85encode
from collections import Counter
from copy import copy
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np

from contrast_core import load, save
from contrast_core.images import Frames, Patches
from napari_plugin._files import FORMATS, export, open_images
from napari_plugin._model import as_lazy
from napari_plugin._pair import Images, Pair, box_of
from napari_plugin._settings import BoolArray, InputError, Report, Settings, no_report
from napari_plugin._solve import CLASSES, Solution

ENDING = ".contrast"

_HEAD = [
    "import base64",
    "import zlib",
    "from functools import reduce",
    "",
    "import napari",
    "import numpy as np",
    "",
    "import contrast_core",
    "from contrast_core.images import Frames, Patches, block_moments, suppress_background",
    "",
    "viewer = napari.current_viewer()",
]
"""The first lines of every script."""


def save_model(solution: Solution, path: Path) -> tuple[Path, bool]:
    """Write a model to a file; return the file's path, and whether it holds moments.

    If the file holds the moments (means and covariances of the samples), a loaded model can be
    fitted again from them, so the dock's slider "Suppression" works for it.

    The ending ".contrast" is appended to the path if it is missing.
    """
    if not path.name.endswith(ENDING):
        path = path.with_name(path.name + ENDING)
    estimator = copy(solution.estimator)
    estimator.dock_ = {
        "settings": asdict(solution.settings),
        "windows": asdict(solution.samples),
        "automatic": solution.automatic,
        "brightness": solution.brightness,
    }
    try:
        save(estimator, path, moments=True)
    except TypeError:  # moments of large frames cannot be written, because they hold the frames
        save(estimator, path)
        return path, False
    return path, hasattr(estimator, "foreground_moments_")


def load_model(path: Path, shape: tuple[int, ...]) -> Solution:
    """Read a model, and check that it can be applied to images of this shape.

    Raises
    ------
    InputError
        If the file holds no model of this plugin, or a model for images of another shape.
    """
    try:
        estimator = load(path)
        made = estimator.dock_
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(
            f"{path.name} could not be read: it is not a model that was saved here, or it is "
            "damaged. Choose a file that Save model wrote."
        ) from error
    sides, n = shape[-2:], int(estimator.n_features_in_)
    samples: Patches | Frames = Frames()
    fits = tuple(getattr(estimator, "frame_shape", sides)) == sides and n == sides[0] * sides[1]
    if made["windows"]:
        samples = Patches(**made["windows"])
        fits = all(map(int.__le__, samples.sides, sides))
    if not fits:
        raise InputError(
            f"The saved model is for frames or patches of {n} pixels. It does not fit these "
            f"images of {sides[0]} x {sides[1]} pixels. Choose images like those of the fit."
        )
    settings = Settings(**made["settings"])
    return Solution(estimator, samples, settings, made["automatic"], made["brightness"])


def apply_to_folder(
    model: Path, source: Path, target: Path, report: Report = no_report
) -> tuple[str, ...]:
    """Apply a saved model to every TIFF and OME-Zarr of a folder; return messages of failures.

    Parameters
    ----------
    model, source, target : Path
        The model's file, the folder of images, and the folder for the results.
        The names of the results end in ".ome.tif", which replaces the ending of each image's name.
        If two names differ only in their endings, it is appended to both: h.tif and h.tiff become
        h.tif.ome.tif and h.tiff.ome.tif.
    report : callable, optional

    Raises
    ------
    InputError
        If there is nothing to do, or both folders are the same.
    """
    files = sorted(path for path in source.iterdir() if path.name.lower().endswith(FORMATS))
    if not files:
        raise InputError(f"{source.name} holds no TIFF or OME-Zarr. Choose another folder.")
    if source.resolve() == target.resolve():
        raise InputError("Choose another folder for the results, so that no image is replaced.")
    target.mkdir(parents=True, exist_ok=True)
    stems = {path: _stem(path.name) for path in files}
    times = Counter(stem.lower() for stem in stems.values())
    failures = []
    for done, path in enumerate(files):
        doing = f"{path.name} ({done + 1} of {len(files)})"
        name = stems[path] if times[stems[path].lower()] == 1 else path.name
        told = partial(_tell, report, done, len(files), doing)
        try:
            with open_images(path) as (data, calibration):
                images = Images(path.name, data)
                lazy = as_lazy(load_model(model, images.shape), images, told)
                export(lazy, target / f"{name}.ome.tif", calibration, told)
        except (OSError, ValueError, IndexError) as error:
            failures.append(f"{path.name}: {error}")
    return tuple(failures)


def _tell(report: Report, done: int, total: int, doing: str, *_: object) -> None:
    """Report how many files are done, and ignore the reports of blocks within a file."""
    report(done, total, doing)


def _stem(name: str) -> str:
    return name[: -len(next(each for each in FORMATS if name.lower().endswith(each)))]


def as_python(pair: Pair, solution: Solution) -> str:
    """Return a script that computes ``denoised`` from the viewer's layers."""
    settings, samples = solution.settings, solution.samples
    foreground, behind = "image", "background"
    if pair.masks_frames and isinstance(samples, Patches):
        behind = "np.asarray(image)[background]"
    if settings.method == "automatic":
        options = [f"{key}={value!r}" for key, value in settings.options(samples).items()]
        lines = [
            f"result = suppress_background(image, {behind}, {', '.join(options)})",
            "denoised = result.denoised",
        ]
    else:
        kind, parameter, _ = CLASSES[settings.method]
        name, strength = kind.__name__, float(solution.estimator.strength_)
        rows = "reduce(contrast_core.SecondMoments.merge, block_moments(sampling, {}))"
        if isinstance(samples, Frames):
            rows = "sampling.rows({})"
            foreground += ", ~background" if pair.masks_frames else ""
        behind = f"image, {behind}" if pair.mask is not None and "image" not in behind else behind
        lines = [
            f"sampling = {samples!r}",
            f"model = contrast_core.{name}({settings.n_components}, {parameter}={strength!r})",
            f"model.fit({rows.format(foreground)}, background={rows.format(behind)})",
            'denoised = sampling.map(lambda rows: model.denoise(rows, offset="difference"), image)',
        ]
    mask = (
        [f"background = {pair.background_images.code()}"] if pair.mask is None else _mask(pair.mask)
    )
    return "\n".join([*_HEAD, f"image = {pair.foreground.code()}", *mask, "", *lines, ""])


def _mask(mask: BoolArray) -> list[str]:
    """Return lines of code that make a mask: a box from slices, other shapes from packed bits."""
    box = box_of(mask)
    if mask[box].all():
        where = ", ".join(f"{each.start}:{each.stop}" for each in box)
        return [
            f"background = np.zeros({mask.shape}, dtype=bool)",
            f"background[{where}] = True",
        ]
    packed = b85encode(zlib.compress(np.packbits(mask).tobytes(), 9)).decode()
    return [
        "# The marked area, a bit for each pixel.",
        f'packed = "{packed}"',
        "bits = np.frombuffer(zlib.decompress(base64.b85decode(packed)), dtype=np.uint8)",
        f"background = np.unpackbits(bits)[: {mask.size}].reshape{mask.shape}.astype(bool)",
    ]
