"""The sample under *File > Open Sample > Contrast*."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

_N_FRAMES = 2000  # at a few hundred frames, the covariance of 784 pixels is too rough to denoise


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
