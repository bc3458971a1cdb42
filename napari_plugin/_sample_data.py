"""Sample data of the menu *File > Open Sample > contrast-suite*. Each entry opens the dock too."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

_N_FRAMES = 2000  # a few hundred frames estimate the covariance of 784 pixels too roughly
WIDGET = "Contrastive denoising"

LayerTuple = tuple[Any, dict[str, Any], str]


def cells_behind_fringes() -> list[LayerTuple]:
    """Make an image of cells behind interference fringes, with an empty upper left corner.

    Returns
    -------
    list of (data, keywords, "image")
        The image, (512, 512) float32, which is the same on every machine. Its metadata hold the
        image of the cells without fringes.
    """
    from contrast_core.datasets import cells_behind_fringes as made

    data = made()
    _open_dock()
    keywords = {
        "name": "cells behind fringes",
        "axis_labels": ("y", "x"),
        "contrast_limits": (-0.4, 1.2),
        "metadata": {"clean": data.clean},
    }
    return [(data.image, keywords, "image")]


def digits_on_photographs() -> list[LayerTuple]:
    """Make two stacks: faint handwritten digits mixed with photographs, and photographs alone.

    Returns
    -------
    list of (data, keywords, "image")
        The background stack and then the foreground stack, each (2000, 28, 28) float32. Both are
        the same on every machine.
    """
    from contrast_core.datasets import digits_on_photos

    data = digits_on_photos(_N_FRAMES)
    _open_dock()
    shape = cast(tuple[int, int], data.frame_shape)
    return [
        (
            rows.astype(np.float32).reshape(-1, *shape),
            {
                "name": name,
                "axis_labels": ("frame", "y", "x"),
                "contrast_limits": (0.0, 1.25),
                "metadata": {"description": data.description, "contrast-suite": {"role": role}},
            },
            "image",
        )
        for name, role, rows in (
            ("photographs", "background", data.background),
            ("digits on photographs", "foreground", data.foreground),
        )
    ]


def _open_dock() -> None:
    """Open the plugin's dock if there is a window, and zoom so that the whole image is visible."""
    from napari import current_viewer

    viewer = current_viewer()
    if viewer is not None:
        from qtpy.QtCore import QTimer

        # napari does not open a second dock with the same title. The title contains the plugin's
        # name here, and its display name if the user opens the dock from the menu. Both names are
        # the same, so that only one dock can be open.
        dock, _ = viewer.window.add_plugin_dock_widget("contrast-suite", WIDGET)
        shown = QTimer(dock, singleShot=True)  # waits until the dock has its place
        shown.timeout.connect(viewer.reset_view)
        shown.start()
