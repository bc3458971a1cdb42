"""Models in files, and models applied to folders of files."""

from __future__ import annotations

from collections import Counter
from copy import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any

from contrast_core import load, save
from contrast_core.images import Frames, Patches
from napari_plugin._export import FORMATS, export
from napari_plugin._lazy import as_lazy
from napari_plugin._open import opened
from napari_plugin._pair import Images
from napari_plugin._settings import InputError, Report, Settings, no_report
from napari_plugin._solve import Solution

ENDING = ".contrast"


def save_model(solution: Solution, path: Path) -> tuple[Path, bool]:
    """Write a model; return its path, with the ending of models, and whether its slider is kept.

    The slider goes on working where the moments can be written.
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
    except TypeError:  # moments of large frames hold the frames
        save(estimator, path)
        return path, False
    return path, hasattr(estimator, "foreground_moments_")


def load_model(path: Path, shape: tuple[int, ...]) -> Solution:
    """Read a model for images of a shape.

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
    if not hasattr(estimator, "dock_"):
        raise InputError(
            f"{path.name} holds a model that was not saved here. Choose one that Save model wrote."
        )
    made, height, width = estimator.dock_, *shape[-2:]
    samples = Patches(**made["windows"]) if made["windows"] else Frames()
    n, fits = int(estimator.n_features_in_), height * width
    if isinstance(samples, Patches):
        fits = n if samples.sides[0] <= height and samples.sides[1] <= width else 0
    elif hasattr(estimator, "frame_shape"):
        fits = n if tuple(estimator.frame_shape) == (height, width) else 0
    if fits != n:
        raise InputError(
            f"The saved model is for frames or patches of {n} pixels, which these images of "
            f"{height} x {width} do not have. Choose images like those it was made from."
        )
    settings = Settings(**made["settings"])
    return Solution(estimator, samples, settings, made["automatic"], made["brightness"])


def apply_to_folder(
    model: Path, source: Path, target: Path, report: Report = no_report, ending: str = ".ome.tif"
) -> tuple[str, ...]:
    """Apply a saved model to every TIFF and OME-Zarr of a folder; return what went wrong.

    Parameters
    ----------
    model, source, target : Path
        The model's file, the folder of images, and the folder for the results.
    report : callable, optional
    ending : str, default=".ome.tif"
        Results have the names of the images with this ending. Images whose names differ only in
        their ending, such as h.tif and h.tiff, keep it: h.tif.ome.tif and h.tiff.ome.tif.

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

        def told(*_: Any, done: int = done, doing: str = doing) -> None:
            report(done, len(files), doing)

        try:
            with opened(path) as (data, calibration):
                images = Images(path.name, data)
                lazy, on_view = as_lazy(load_model(model, images.shape), images)
                on_view.report = told
                export(lazy, target / f"{name}{ending}", calibration, told)
        except InputError as error:
            failures.append(f"{path.name}: {error}")
        except OSError as error:
            failures.append(
                f"{path.name}: could not be read or written ({error.strerror or error})."
            )
        except (ValueError, IndexError):
            failures.append(f"{path.name}: could not be read as images.")
    return tuple(failures)


def _stem(name: str) -> str:
    return name[: -len(next(each for each in FORMATS if name.lower().endswith(each)))]
