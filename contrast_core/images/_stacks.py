"""Helper functions and protocols for stacks of images, and maps of weights."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import check_count, numbers_of, shown


class Stack(Protocol):
    """Array with frames in its last two axes, from NumPy, Dask, Zarr, HDF5 or a memory map."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, index: Any, /) -> Any: ...


class Weighted(Protocol):
    """A fitted estimator whose components have weights."""

    def feature_weights(self) -> NDArray[Any]: ...


def chunk_side(stack: Stack, axis: int) -> int | None:
    """Return the length of stored chunks along an axis, or None if it is not known."""
    chunks = getattr(stack, "chunks", None)
    if not isinstance(chunks, tuple) or len(chunks) != len(stack.shape):
        return None
    side = chunks[axis]
    # Dask stores the lengths of all chunks along the axis; other arrays store one length.
    return int(max(side) if isinstance(side, tuple) else side)


def weight_maps(estimator: Weighted, frame_shape: tuple[int, int]) -> NDArray[np.float64]:
    """Return the squared loadings of each component as images, with the signs of the loadings.

    Parameters
    ----------
    estimator : fitted estimator
        Estimator with a method `feature_weights`, such as `contrast_core.CPCA` or the background
        removers.
    frame_shape : (int, int)
        Height and width of a frame, or of a window if the rows are patches.

    Returns
    -------
    ndarray of shape (n_components, height, width)
        Weights from -1 to 1; the largest magnitude of each component is 1. Pixels of the same sign
        vary together, and pixels of opposite signs vary against each other. The magnitudes are
        those of ``estimator.feature_weights()``.

    Raises
    ------
    ValueError
        If the estimator was fitted on frames with a different number of pixels.
    TypeError
        If the estimator has no `feature_weights`.

    References
    ----------
    Abid, Zhang, Bagaria, Zou: Contrastive principal component analysis, arXiv:1709.06716,
    Sec. 3.3 (squared loadings).

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core import CPCA
    >>> from contrast_core.images import weight_maps
    >>> frames, empty = np.random.default_rng(0).normal(size=(2, 50, 12))
    >>> weight_maps(CPCA(2).fit(frames, background=empty), (3, 4)).shape
    (2, 3, 4)
    """
    if isinstance(estimator, type) or not callable(getattr(estimator, "feature_weights", None)):
        raise TypeError(
            f"estimator={shown(estimator)} has no feature_weights; expected a fitted estimator "
            "with this method, such as CPCA(...).fit(...)."
        )
    sides = check_sides(frame_shape)
    weights = estimator.feature_weights()
    if math.prod(sides) != weights.shape[1]:
        raise ValueError(
            f"frame_shape={sides} has {math.prod(sides)} pixels, but the estimator was fitted on "
            f"rows of {weights.shape[1]} pixels; give the height and width of these frames."
        )
    signed = np.copysign(weights, _loadings(estimator)[: len(weights)])
    return np.asarray(signed, dtype=np.float64).reshape(-1, *sides)


def _loadings(estimator: Any) -> NDArray[Any]:
    """Return the rows whose rescaled squares are the estimator's `feature_weights`."""
    for name in ("patterns_", "components_", "reconstruction"):
        if hasattr(estimator, name):
            return np.asarray(getattr(estimator, name))
    raise TypeError(f"{type(estimator).__name__} has no components to take the signs from.")


def relative_weights(patterns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the squares of `patterns` (k, D), divided by the largest square of each row."""
    # The division comes before the squaring, because squares may underflow.
    return np.asarray((patterns / np.abs(patterns).max(axis=1, keepdims=True)) ** 2)


def check_sides(frame_shape: object) -> tuple[int, int]:
    """Return the height and the width of a frame as integers."""
    lengths = [check_count(side, "frame_shape") for side in numbers_of(frame_shape, "frame_shape")]
    if len(lengths) != 2:
        raise ValueError(
            f"frame_shape={shown(frame_shape)} has {len(lengths)} axes; expected (height, width)."
        )
    return lengths[0], lengths[1]
