"""The container in which every dataset of this package is returned."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class ContrastData:
    """A foreground, a background and what is known about their rows.

    Parameters
    ----------
    foreground : ndarray of shape (n, D), float64
        The data in which structure is looked for.
    background : ndarray of shape (m, D), float64
        The data that shares the unwanted variation; same features in the same order.
    labels : ndarray of shape (n,)
        Known group of each foreground row, integers or strings. For judging a result; no method
        here needs it.
    feature_names : tuple of str or None
        Names of the D features, where they have any.
    units : ndarray of shape (n,) or None
        What foreground rows have in common beyond their label (the animal, the photograph), where
        rows are not independent. Keep the rows of a group together in cross-validation.
    background_units : ndarray of shape (m,) or None
        The same for the background rows.
    frame_shape : tuple of int or None
        Height and width in pixels if every row is an image, flattened row by row.
    clean : ndarray of shape (n, D) or None
        The signal of each foreground row alone, where it is known: what denoising should recover.
    description : str
        What the data are and where they come from.
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
