"""What the process of ``_process`` does: ``python -m napari_plugin._child FOLDER``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from contrast_core import load, save
from contrast_core.images import FrameBackgroundRemover, Frames, block_moments, verdicts
from napari_plugin._settings import InputError


def main(folder: Path) -> None:
    """Wait for the word that all is there, and do the task."""
    if not sys.stdin.readline():
        return  # the window is gone
    described = json.loads((folder / "task.json").read_text(encoding="utf-8"))
    model = None
    try:
        answer, model = _TASKS[described["task"]](folder, described["options"])
    except InputError as error:
        answer = {"refused": str(error)}
    if model is not None:
        save(model, folder / "answer.model", moments=True)
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")


def _frames(folder: Path, options: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    shape = tuple(options["frame_shape"])
    remover = FrameBackgroundRemover(
        (shape[0], shape[1]), stationary_signal=options["stationary_signal"]
    )
    return {}, remover.fit(_array(folder, "x"), background=_array(folder, "y"))


def _projection(folder: Path, options: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    from napari_plugin._solve import fit_projection

    x, y = (load(folder / f"{side}.model") for side in "xy")
    fitted, automatic = fit_projection(x, y, options)
    return {"automatic": automatic}, fitted


def _verdicts(folder: Path, options: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    sides = []
    for side in "xy":
        files = sorted(folder.glob(f"{side}[0-9]*.model"))
        if files:
            sides.append([load(file) for file in files])
        else:
            sides.append(block_moments(Frames(), _array(folder, side)[:, None, :]))
    return {"sentences": [verdict.sentence for verdict in verdicts(*sides)]}, None


def _array(folder: Path, name: str) -> Any:
    return np.load(folder / f"{name}.npy", allow_pickle=False)


_TASKS = {"frames": _frames, "projection": _projection, "verdicts": _verdicts}

if __name__ == "__main__":
    main(Path(sys.argv[1]))
