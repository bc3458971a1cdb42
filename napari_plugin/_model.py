"""What the denoising widget does, without a window: checks, fit and projection, step by step."""

from __future__ import annotations

import math
import warnings
from collections.abc import Generator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from contrast_core import CPCA, ContrastWarning, SecondMoments
from contrast_core.images import Frames, Stack, weight_maps

MAX_PIXELS = 64 * 64
"""Most pixels per frame: the two covariances then take 256 MiB, and solving as much again."""

OFFSET: Literal["difference"] = "difference"
"""What is added back to denoised frames: the static background goes too."""


class InputError(ValueError):
    """A choice that cannot work; the message says what to choose instead."""


@dataclass(frozen=True, eq=False)
class FrameStack:
    """Frames (..., H, W), in memory or lazy, and the name that messages call them by."""

    name: str
    data: Stack

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the stack (..., H, W)."""
        return tuple(self.data.shape)

    @property
    def frame_shape(self) -> tuple[int, int]:
        """Height and width of a frame."""
        return self.shape[-2], self.shape[-1]

    @property
    def n_frames(self) -> int:
        """Number of 2-D frames over all leading axes."""
        return math.prod(self.shape[:-2])


@dataclass(frozen=True)
class Progress:
    """How many of all frames to be read are done, and what comes next."""

    done: int
    total: int
    next: str


@dataclass(frozen=True, eq=False)
class Denoised:
    """What a run found.

    Attributes
    ----------
    stack : ndarray of float32, of the foreground's shape
        The foreground's frames projected on the components, plus foreground minus background
        mean; in the units of the data.
    weight_maps : ndarray of float32 of shape (k, H, W)
        Squared loadings of each component, with a maximum of 1.
    alpha : float
        The contrast used.
    eigenvalues : ndarray of shape (k,)
        Contrast along each component.
    display_range : (float, float)
        Pixels below and above are a few in a hundred: a good range of grey values.
    warnings : tuple of str
        What the user should know about this fit.
    """

    stack: NDArray[np.float32]
    weight_maps: NDArray[np.float32]
    alpha: float
    eigenvalues: NDArray[np.float64]
    display_range: tuple[float, float]
    warnings: tuple[str, ...]


Steps: TypeAlias = Generator[Progress, None, Denoised]


@dataclass(frozen=True)
class DenoisingModel:
    """Denoise the frames of a foreground stack by contrastive PCA against a background stack.

    Parameters
    ----------
    n_components : int, default=10
        Components kept, from 1 to the smaller of the pixels per frame and the foreground's frames
        minus one.
    alpha : "denoise" or float from 0 to inf, default="denoise"
        Contrast strength, as in `contrast_core.CPCA`.

    References
    ----------
    Abid, Zhang, Bagaria, Zou: Contrastive principal component analysis, arXiv:1709.06716,
    Sec. 3.3.
    """

    n_components: int = 10
    alpha: float | Literal["denoise"] = "denoise"

    def check(self, foreground: FrameStack, background: FrameStack) -> None:
        """Refuse, before any pixel is read, what cannot work.

        Raises
        ------
        InputError
            With a message for the user that says what to do.
        """
        for stack in (foreground, background):
            _check_stack(stack)
        if foreground.frame_shape != background.frame_shape:
            raise InputError(
                f"Frames of {foreground.name!r} are {_pixels(foreground)}, those of "
                f"{background.name!r} {_pixels(background)}. Choose stacks with frames of the same "
                "size, or crop one to match the other."
            )
        n_pixels = math.prod(foreground.frame_shape)
        if n_pixels > MAX_PIXELS:
            raise InputError(
                f"Frames of {_pixels(foreground)} have {n_pixels:,} pixels, and the two "
                f"covariances would need {16 * n_pixels**2 / 2**30:,.1f} GiB of memory. Crop or "
                f"bin both stacks to at most {MAX_PIXELS:,} pixels per frame (such as 64 x 64)."
            )
        most = min(n_pixels, foreground.n_frames - 1)
        if not 1 <= self.n_components <= most:
            raise InputError(
                f"{self.n_components} components were asked for, but {foreground.n_frames} frames "
                f"of {n_pixels} pixels in {foreground.name!r} have at most {most}. Choose 1 to "
                f"{most} components, or a longer foreground."
            )

    def steps(
        self, foreground: FrameStack, background: FrameStack, *, elements: int = 2**20
    ) -> Steps:
        """Run in steps: a generator that may be dropped between any two blocks of frames.

        Parameters
        ----------
        foreground, background : FrameStack
            Every 2-D frame counts as one sample; lazy stacks are read block by block, the
            foreground twice.
        elements : int, default=2**20
            Pixels in a block; 8 MB as float64, read and used in milliseconds.

        Yields
        ------
        Progress
            Before the first and after every block.

        Returns
        -------
        Denoised

        Raises
        ------
        InputError
            As in `check`, or if a stack holds NaN or infinity.
        ValueError
            If the contrast cannot be solved, such as for a constant background.
        """
        self.check(foreground, background)
        total = 2 * foreground.n_frames + background.n_frames
        done = 0

        pair: list[SecondMoments] = []
        for stack in (foreground, background):
            moments: SecondMoments | None = None
            reading = f"Reading {stack.name}"
            yield Progress(done, total, reading)
            rows = Frames().rows(stack.data, name=stack.name, elements=elements)
            for start, stop in pairwise(rows.edges()):
                frames = rows.read(start, stop, check=False)
                _check_finite(frames, start, stack.name)
                block = SecondMoments.from_data(frames, name=stack.name)
                moments = block if moments is None else moments.merge(block)
                yield Progress(done + stop, total, reading)
            if moments is None:
                raise InputError(f"{stack.name!r} has no pixels. Choose another stack.")
            pair.append(moments)
            done += stack.n_frames

        yield Progress(done, total, "Solving")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ContrastWarning)
            cpca = CPCA(self.n_components, alpha=self.alpha).fit(pair[0], background=pair[1])

        denoised = np.empty(foreground.shape, dtype=np.float32)
        yield Progress(done, total, "Denoising")
        rows = Frames().rows(foreground.data, name=foreground.name, elements=elements)
        flat = denoised.reshape(rows.shape)
        for start, stop in pairwise(rows.edges()):
            flat[start:stop] = cpca.denoise(rows.read(start, stop), offset=OFFSET)
            yield Progress(done + stop, total, "Denoising")

        return Denoised(
            stack=denoised,
            weight_maps=weight_maps(cpca, foreground.frame_shape).astype(np.float32),
            alpha=cpca.alpha_,
            eigenvalues=cpca.contrastive_eigenvalues_,
            display_range=_display_range(denoised),
            warnings=tuple(
                str(warning.message)
                for warning in caught
                if issubclass(warning.category, ContrastWarning)
            ),
        )


def _check_stack(stack: FrameStack) -> None:
    shape = stack.shape
    if len(shape) < 3 or stack.n_frames < 2:
        raise InputError(
            f"{stack.name!r} has shape {shape}: a single frame. Choose a stack of two or more "
            "frames (frames, height, width)."
        )
    kind = np.dtype(getattr(stack.data, "dtype", float)).kind
    if kind not in "biuf":
        raise InputError(
            f"{stack.name!r} has pixels of type {getattr(stack.data, 'dtype', None)}. Choose a "
            "stack of real numbers, such as the magnitude of complex pixels."
        )


def _check_finite(rows: NDArray[Any], first_frame: int, name: str) -> None:
    if rows.dtype.kind != "f":
        return
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        raise InputError(
            f"{name!r} has NaN or infinite pixels, first in frame {first_frame + int(bad.argmax())}"
            ". Fill them (such as by numpy.nan_to_num), or crop or leave out what holds them."
        )


def _display_range(stack: NDArray[np.float32]) -> tuple[float, float]:
    """Between percentiles of about a million pixels, of whole frames evenly spread."""
    frames = stack.reshape(-1, stack.shape[-2] * stack.shape[-1])
    sample = frames[:: max(1, stack.size // 2**20)]
    low, high = np.percentile(sample, [1.0, 99.8])
    return float(low), float(high) if high > low else float(low) + 1.0


def _pixels(stack: FrameStack) -> str:
    return "{} x {}".format(*stack.frame_shape)
