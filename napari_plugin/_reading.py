"""What images were reduced to, and what reading by frames and by patches share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrast_core import SecondMoments
from napari_plugin._pair import Images
from napari_plugin._settings import InputError, Samples

ELEMENTS = 2**20
"""Values in a block: 8 MB as float64, read and used in milliseconds."""


@dataclass(frozen=True, eq=False)
class Reading:
    """What the data were reduced to: all that `solve` needs.

    Parameters
    ----------
    samples : Patches or Frames
        What a sample is; for patches with the stride at which results are put together.
    image_shape : (int, int)
        Height and width of the images.
    foreground, background : SecondMoments or ndarray of shape (n, pixels)
        Moments; frames themselves for background removal and where frames are large.
    blocks : pair of tuples of SecondMoments
        Of parts that share no pixels, by which the result is judged; empty where frames are held.
    n_used, n_images : int
        How many of the foreground's images were read to learn from, and how many there are.
    """

    samples: Samples
    image_shape: tuple[int, int]
    foreground: Any
    background: Any
    blocks: tuple[tuple[SecondMoments, ...], tuple[SecondMoments, ...]]
    n_used: int
    n_images: int

    @property
    def holds_frames(self) -> bool:
        """Whether frames are held rather than moments."""
        return not isinstance(self.foreground, SecondMoments)

    @property
    def nbytes(self) -> int:
        """Memory that it takes, about."""
        if self.holds_frames:
            return int(self.foreground.nbytes + self.background.nbytes)
        n_matrices = 2 + sum(len(each) for each in self.blocks)
        return int(8 * self.foreground.n_features**2 * n_matrices)


def spread(choice: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """So many of them, evenly spread."""
    if len(choice) <= most:
        return choice
    kept: NDArray[np.intp] = choice[np.linspace(0, len(choice) - 1, most).round().astype(int)]
    return kept


def add(found: SecondMoments | None, block: NDArray[Any]) -> SecondMoments:
    """Moments with those of another block."""
    part = SecondMoments.from_data(block)
    return part if found is None else found.merge(part)


def merge_all(parts: list[Any]) -> SecondMoments:
    """Moments of all parts."""
    found: SecondMoments = parts[0]
    for part in parts[1:]:
        found = found.merge(part)
    return found


def missing(images: Images, index: int) -> InputError:
    """What to say of pixels that are no numbers."""
    where = f", first in frame {index}" if images.n_images > 1 else ""
    return InputError(
        f"{images.name!r} has empty (NaN) or infinite pixels{where}. Fill them with the value of "
        "empty background, or crop them away."
    )


def constant(name: str = "") -> InputError:
    """What to say of a background without a pattern, in a layer or in an area."""
    where = f" ({name!r})" if name else ""
    return InputError(
        f"The background{where} is the same everywhere, so that it has no pattern to be learnt. "
        "Choose an area, frames or a layer in which the disturbance can be seen."
    )
