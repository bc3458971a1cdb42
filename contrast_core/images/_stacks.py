"""Stacks of frames and the matrices that the estimators work on: every 2-D frame is a row."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrast_core._validation import check_count, check_unmasked, numbers_of, shown
from contrast_core.rows import array_of

FrameIndex: TypeAlias = tuple[int | slice, ...]

_BLOCK_ELEMENTS = 2**20  # 8 MB of float64: a block is read, used and dropped in milliseconds


class Stack(Protocol):
    """An array with frames in its last two axes: NumPy, Dask, Zarr, HDF5, memory-mapped."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, index: Any, /) -> Any: ...


class Denoiser(Protocol):
    """A fitted estimator with the linear contract, such as `contrast_core.CPCA`."""

    def denoise(
        self, X: Any, *, offset: Literal["foreground", "difference", "none"]
    ) -> NDArray[Any]: ...


class Weighted(Protocol):
    """A fitted estimator whose components have weights."""

    def feature_weights(self) -> NDArray[Any]: ...


def stack_to_rows(stack: ArrayLike) -> NDArray[Any]:
    """Frames as rows: (..., H, W) to (n_frames, H * W), without copying where possible.

    Parameters
    ----------
    stack : array-like of shape (..., H, W)
        One or more leading axes, such as time or (time, depth); rows are in C order over them.

    Returns
    -------
    ndarray of shape (n_frames, H * W)
        In the stack's own dtype.

    Raises
    ------
    ValueError
        If there is no leading axis, or frames have no pixels.
    TypeError
        If pixels are no real numbers, or entries are masked.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core.images import stack_to_rows
    >>> stack_to_rows(np.zeros((5, 3, 28, 28))).shape
    (15, 784)
    """
    frames = np.asarray(array_of(stack, "stack"))
    height, width = _frame_shape(frames.shape)
    return frames.reshape(-1, height * width)


def rows_to_stack(rows: ArrayLike, shape: tuple[int, ...]) -> NDArray[Any]:
    """Rows as frames: (n_frames, H * W) to `shape`, the inverse of `stack_to_rows`.

    Parameters
    ----------
    rows : array-like of shape (n_frames, H * W)
        One frame per row.
    shape : tuple of int
        The stack's shape (..., H, W), or the frame's shape (H, W) for a plain sequence of frames.

    Returns
    -------
    ndarray
        Of shape `shape`, or (n_frames, H, W).

    Raises
    ------
    ValueError
        If the rows do not fill that shape.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core.images import rows_to_stack
    >>> rows_to_stack(np.zeros((15, 784)), (28, 28)).shape
    (15, 28, 28)
    """
    check_unmasked(rows, "rows")
    matrix = np.asarray(rows)
    sides = check_sides(shape, "shape", at_least=2)
    full = (len(matrix), *sides) if len(sides) == 2 else sides
    height, width = full[-2:]
    expected = (math.prod(full[:-2]), height * width)
    if matrix.shape != expected:
        raise ValueError(
            f"rows have shape {matrix.shape}, but a stack of shape {full} has {expected[0]} frames "
            f"of {height} x {width} pixels and needs rows of shape {expected}."
        )
    return matrix.reshape(full)


def iter_rows(
    stack: Stack, *, block_size: int | None = None
) -> Iterator[tuple[FrameIndex, NDArray[Any]]]:
    """Read a stack block by block: only one block is in memory at a time.

    Parameters
    ----------
    stack : array of shape (..., H, W)
        Anything with `shape` that slices like a NumPy array, also lazily (Dask, Zarr, HDF5).
    block_size : int, optional
        At most so many frames per block; by default as many as fill 8 MB as float64.

    Yields
    ------
    index : tuple
        Where the block lies: ``stack[index]`` and, in an output of the same shape,
        ``out[index]``.
    rows : ndarray of shape (frames in the block, H * W)
        The block's frames in order, in the stack's own dtype.

    Raises
    ------
    ValueError
        If there is no leading axis, frames have no pixels, or `block_size` is less than one.
    TypeError
        If pixels are no real numbers, or entries are masked.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core.images import iter_rows
    >>> [rows.shape for _, rows in iter_rows(np.zeros((5, 28, 28)), block_size=2)]
    [(2, 784), (2, 784), (1, 784)]
    """
    stack = array_of(stack, "stack")
    height, width = _frame_shape(stack.shape)
    if block_size is None:
        size = max(1, _BLOCK_ELEMENTS // max(1, height * width))
    else:
        size = check_count(block_size, "block_size")
    return (
        (index, np.asarray(stack[index]).reshape(-1, height * width))
        for index in _block_indices(stack.shape[:-2], size)
    )


def denoise_stack(
    estimator: Denoiser,
    stack: Stack,
    *,
    offset: Literal["foreground", "difference", "none"] = "difference",
) -> NDArray[np.float32]:
    r"""Project every frame on the estimator's components (Abid et al., Sec. 3.3).

    .. math:: \hat x = \mu + V V^\top (x - \mu_X)

    Parameters
    ----------
    estimator : fitted estimator
        With `denoise`, such as `contrast_core.CPCA` fitted with ``alpha="denoise"``.
    stack : array of shape (..., H, W)
        The frames; read block by block, so a lazy stack never is in memory as a whole.
    offset : {"difference", "foreground", "none"}, default="difference"
        What is added back, :math:`\mu`: the foreground mean minus the background mean, so that a
        static background and uneven illumination go too; the foreground mean, which is the
        plain inverse transform; or nothing.

    Returns
    -------
    ndarray of float32, of the stack's shape
        In the units of the data.

    Raises
    ------
    ValueError
        If the stack has no leading axis, or the frames do not fit the estimator.
    TypeError
        If pixels are no real numbers, entries are masked, or the estimator has no `denoise`.

    References
    ----------
    Abid, Zhang, Bagaria, Zou: Contrastive principal component analysis, arXiv:1709.06716,
    Sec. 3.3.
    """
    _check_can(estimator, "denoise")
    stack = array_of(stack, "stack")
    _frame_shape(stack.shape)
    out = np.empty(stack.shape, dtype=np.float32)
    for index, rows in iter_rows(stack):
        out[index] = estimator.denoise(rows, offset=offset).reshape(out[index].shape)
    return out


def weight_maps(estimator: Weighted, frame_shape: tuple[int, int]) -> NDArray[np.float64]:
    """Pictures of what each component looks at: squared loadings, maximum 1 per component.

    Parameters
    ----------
    estimator : fitted estimator
        With `feature_weights`, such as `contrast_core.CPCA` or those of this package.
    frame_shape : (int, int)
        Height and width of a frame, or of the windows that patches are.

    Returns
    -------
    ndarray of shape (n_components, height, width)
        Weights from 0 to 1.

    Raises
    ------
    ValueError
        If the estimator was fitted on frames of another number of pixels.
    TypeError
        If the estimator has no `feature_weights`.

    References
    ----------
    Abid, Zhang, Bagaria, Zou: Contrastive principal component analysis, arXiv:1709.06716,
    Sec. 3.3.
    """
    _check_can(estimator, "feature_weights")
    sides = check_sides(frame_shape, "frame_shape", at_least=2, at_most=2)
    weights = estimator.feature_weights()
    if math.prod(sides) != weights.shape[1]:
        raise ValueError(
            f"frame_shape={sides} has {math.prod(sides)} pixels, but the estimator was fitted on "
            f"rows of {weights.shape[1]}; give the height and width of the frames it was fitted on."
        )
    return np.asarray(rows_to_stack(weights, sides), dtype=np.float64)


def relative_weights(patterns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squares of each row, (k, D), relative to the largest."""
    # Divided before they are squared: squares may underflow.
    return np.asarray((patterns / np.abs(patterns).max(axis=1, keepdims=True)) ** 2)


def _check_can(estimator: object, method: str) -> None:
    """Raise TypeError if this is no estimator with such a method."""
    if isinstance(estimator, type) or not callable(getattr(estimator, method, None)):
        raise TypeError(
            f"estimator={shown(estimator)} has no {method}; expected a fitted estimator that has, "
            "such as CPCA(...).fit(...)."
        )


def check_sides(
    shape: object, name: str, *, at_least: int, at_most: int | None = None
) -> tuple[int, ...]:
    """A shape of at least one frame's two axes."""
    lengths = [check_count(side, name) for side in numbers_of(shape, name)]
    if not at_least <= len(lengths) <= (at_most or len(lengths)):
        raise ValueError(
            f"{name}={shown(shape)} has {len(lengths)} axes; expected (height, width)"
            + ("." if at_most else " or (..., height, width).")
        )
    return tuple(lengths)


def _frame_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    if len(shape) < 3:
        raise ValueError(
            f"a stack has shape (..., height, width) with at least one leading axis, got "
            f"{tuple(shape)}; a single frame is frame[None]."
        )
    if not (shape[-2] and shape[-1]):
        raise ValueError(
            f"the stack has shape {tuple(shape)}, so that its frames have no pixels; give one of "
            "frames that have some."
        )
    return shape[-2], shape[-1]


def _block_indices(leading: tuple[int, ...], size: int) -> Iterator[FrameIndex]:
    """Cut the leading axes, in C order, into boxes of at most `size` frames."""
    first, *rest = leading
    inner = math.prod(rest)
    if rest and inner > size:
        for i in range(first):
            for index in _block_indices(tuple(rest), size):
                yield (i, *index)
        return
    step = max(1, size // max(1, inner))
    for start in range(0, first, step):
        yield (slice(start, min(start + step, first)),)
