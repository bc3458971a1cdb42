"""The samples under *File > Open Sample > Contrast*: they open with the dock beside them."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

_N_FRAMES = 2000  # at a few hundred frames, the covariance of 784 pixels is too rough to denoise
WIDGET = "Remove background"


def cells_behind_fringes() -> list[tuple[Any, dict[str, Any], str]]:
    """Cells behind interference fringes, with an empty corner at the upper left.

    Made when the sample is opened, the same on every machine.

    Returns
    -------
    list of (data, keywords, "image")
        The image, (512, 512) float32; the cells alone are in its metadata.
    """
    from contrast_core.datasets import cells_behind_fringes as made

    data = made()
    _open_dock()
    return [
        (
            data.image,
            {
                "name": "cells behind fringes",
                "axis_labels": ("y", "x"),
                "contrast_limits": (-0.4, 1.2),
                "metadata": {"clean": data.clean},
            },
            "image",
        )
    ]


def digits_on_photographs() -> list[tuple[Any, dict[str, Any], str]]:
    """Faint handwritten digits on photographs, and photographs alone, as two image layers.

    Mixed when the sample is opened, the same on every machine.

    Returns
    -------
    list of (data, keywords, "image")
        The background, then the foreground on top of it, each (2000, 28, 28) float32.
    """
    from contrast_core.datasets import digits_on_photos
    from contrast_core.images import rows_to_stack

    data = digits_on_photos(_N_FRAMES)
    _open_dock()
    frame_shape = cast(tuple[int, int], data.frame_shape)
    stacks = {"photographs": data.background, "digits on photographs": data.foreground}
    return [
        (
            rows_to_stack(rows.astype(np.float32), frame_shape),
            {
                "name": name,
                "axis_labels": ("frame", "y", "x"),
                "contrast_limits": (0.0, 1.25),
                "metadata": {"description": data.description},
            },
            "image",
        )
        for name, rows in stacks.items()
    ]


def _open_dock() -> None:
    """The plugin's dock, where there is a window, and all of the image beside it."""
    import sys

    napari = sys.modules.get("napari")
    viewer: Any = None if napari is None else napari.current_viewer()
    window = getattr(viewer, "window", None)
    if window is not None:
        from qtpy.QtCore import QTimer

        dock, _ = window.add_plugin_dock_widget("contrast-suite", WIDGET)
        shown = QTimer(dock, singleShot=True)  # once the window has made room for the dock
        shown.timeout.connect(viewer.reset_view)
        shown.start()
