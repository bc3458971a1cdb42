"""Models in files, and models applied to folders of files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from contrast_core import CPCA, PCPCA, CPCAStar, load, save
from contrast_core.images import FrameBackgroundRemover, Frames, StructuredBackgroundRemover
from napari_plugin._apply import denoise
from napari_plugin._export import FORMATS, Place, write
from napari_plugin._open import opened
from napari_plugin._pair import Images
from napari_plugin._settings import (
    AUTOMATIC,
    InputError,
    Method,
    Progress,
    Samples,
    Settings,
    Steps,
    default_patches,
)
from napari_plugin._solve import Solution

T = TypeVar("T")

ENDING = ".contrast"
_METHODS: dict[type, Method] = {
    CPCA: "cpca",
    PCPCA: "pcpca",
    CPCAStar: "cpca_star",
    StructuredBackgroundRemover: "automatic",
    FrameBackgroundRemover: "automatic",
}


def save_model(solution: Solution, path: Path) -> bool:
    """Write a model, with its moments if they are numbers; returns whether they were.

    With them the slider goes on working when the model is loaded.
    """
    try:
        save(solution.estimator, path, moments=True)
    except TypeError:  # moments of large frames hold the frames
        save(solution.estimator, path)
        return False
    return hasattr(solution.estimator, "foreground_moments_")


def load_model(path: Path, shape: tuple[int, ...]) -> Solution:
    """A model for images of a shape.

    Raises
    ------
    InputError
        If the file holds no such model, or one for other images.
    """
    try:
        estimator = load(path)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path.name} could not be read: it is not a model that was saved here, or it is "
            "damaged. Choose another file."
        ) from error
    method = _METHODS.get(type(estimator))
    if method is None:
        raise InputError(
            f"{path.name} holds a model that does not remove backgrounds from images. Choose one "
            "that was saved here."
        )
    settings = Settings(method)
    automatic = None
    if method != "automatic":
        automatic = estimator.strength_
        if method == "cpca" and not automatic:
            settings = Settings("pca")
        settings = replace(settings, n_components=len(estimator.components_), suppression=AUTOMATIC)
    elif getattr(estimator, "background_strength", "") == "constant":
        settings = replace(settings, constant_strength=True)
    samples = _samples_of(estimator, method, shape)
    return Solution(estimator, samples, settings, automatic)


def _samples_of(estimator: Any, method: str, shape: tuple[int, ...]) -> Samples:
    """What the rows of a model from a file are, in images of a shape.

    Raises
    ------
    InputError
        If the images do not fit the model.
    """
    n = int(estimator.n_features_in_)
    side = round(n**0.5)
    if method == "automatic" and isinstance(estimator, FrameBackgroundRemover):
        frame = tuple(map(int, estimator.frame_shape))
        if shape[-2:] == frame:
            return Frames()
        raise InputError(
            f"The saved model is for frames of {frame[0]} x {frame[1]} pixels, these are of "
            f"{shape[-2]} x {shape[-1]}. Choose images of that size."
        )
    if method != "automatic" and shape[-2] * shape[-1] == n:
        return Frames()
    if side * side == n and min(shape[-2:]) >= side:
        return default_patches("automatic" if method == "automatic" else "cpca", side)
    raise InputError(
        f"The saved model is for frames or patches of {n} pixels, which these images of "
        f"{shape[-2]} x {shape[-1]} do not have. Choose images like those it was made from."
    )


def apply_to_folder(model: Path, source: Path, target: Path, ending: str) -> Steps[tuple[str, ...]]:
    """Apply a saved model to every TIFF and OME-Zarr of a folder; returns what went wrong.

    Parameters
    ----------
    model, source, target : Path
        The model's file, the folder of images, and the folder for the results, which get the names
        of the images and the ending.
    ending : str
        ".ome.tif" or ".ome.zarr".

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
    failures = []
    for i, path in enumerate(files):
        doing = f"{path.name} ({i + 1} of {len(files)})"
        yield Progress(i, len(files), doing)
        try:
            stem = path.name[: -len(next(e for e in FORMATS if path.name.lower().endswith(e)))]
            out = target / f"{stem}{ending}"
            yield from _within(_apply_to_file(model, path, out), i, len(files), doing)
        except InputError as error:
            failures.append(f"{path.name}: {error}")
        except OSError as error:
            failures.append(
                f"{path.name}: could not be read or written ({error.strerror or error})."
            )
        except (ValueError, IndexError):
            failures.append(f"{path.name}: could not be read as images.")
    return tuple(failures)


def _apply_to_file(model: Path, path: Path, out: Path) -> Steps[Path]:
    with opened(path) as (data, calibration):
        solution = load_model(model, data.shape)

        def block(place: Place) -> Steps[NDArray[np.float32]]:
            return denoise(solution, Images(path.name, np.asarray(data[place])))

        return (yield from write(block, data.shape, np.float32, out, calibration))


def _within(steps: Steps[T], done: int, total: int, doing: str) -> Steps[T]:
    """Steps of one file, reported as a part of all."""
    try:
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                result: T = stop.value
                return result
            yield Progress(done, total, doing)
    finally:
        steps.close()
