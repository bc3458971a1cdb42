"""The container in which this package returns a foreground and a background with known facts."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class ContrastData:
    """Foreground and background, with the known facts about their rows.

    Parameters
    ----------
    foreground : ndarray of shape (n, D), float64
        Data that contain the structure of interest.
    background : ndarray of shape (m, D), float64
        Data that share the unwanted variation, with the same features in the same order.
    labels : ndarray of shape (n,)
        Known group of each foreground row, as integers or strings. Labels are meant for the
        evaluation of results. No method needs them.
    feature_names : tuple of str or None
        Names of the D features, if they have names.
    units : ndarray of shape (n,) or None
        Sampling unit of each foreground row (the animal, the photograph), if rows are not
        independent. Keep the rows of a unit together in cross-validation.
    background_units : ndarray of shape (m,) or None
        Sampling unit of each background row.
    frame_shape : tuple of int or None
        Height and width in pixels if every row is an image, flattened row by row.
    clean : ndarray of shape (n, D) or None
        True signal of each foreground row, if it is known. Denoising should recover this signal.
    description : str
        Short text on what the data are and where they come from.
    """

    foreground: NDArray[np.float64]
    background: NDArray[np.float64]
    labels: NDArray[Any]
    feature_names: tuple[str, ...] | None = None
    units: NDArray[Any] | None = None
    background_units: NDArray[Any] | None = None
    frame_shape: tuple[int, int] | None = None
    clean: NDArray[np.float64] | None = None
    description: str = ""
