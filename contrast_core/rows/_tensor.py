"""Rows of dense torch tensors, and functions of these rows on the device of the tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import shown
from contrast_core.rows._rows import Index, Rows

DEVICE_BLOCKS = 4  # blocks on a device are larger by this factor: 128 MB of float64 each


class TensorRows(Rows):
    """Rows of a dense tensor; blocks are ndarrays without gradients, and views if possible.

    Raises
    ------
    TypeError, ValueError
        If the tensor is not dense and real, or its device has no float64.
    """

    def __init__(self, tensor: Any, *, name: str, **options: Any) -> None:
        torch = import_module("torch")
        if tensor.layout != torch.strided:
            raise TypeError(
                f"{name} is a tensor of layout {tensor.layout}; a dense tensor is expected. Give "
                f"{name}.to_dense(), or a scipy sparse matrix."
            )
        if tensor.is_complex():
            raise ValueError(
                f"{name} is a tensor of {tensor.dtype}; complex data are not supported."
            )
        self.device = check_device(tensor.device)
        if self.device.type != "cpu":
            self.place = "device"
            options["elements"] *= DEVICE_BLOCKS
        if tensor.dtype == torch.bool:  # torch cannot subtract booleans
            tensor = tensor.to(torch.uint8)
        dtype = to_host(torch.empty(0, dtype=tensor.dtype)).dtype
        super().__init__(tensor, tuple(tensor.shape), dtype, name=name, **options)

    def _pick_columns(self, index: Index) -> None:
        self._source = self._source[:, index]

    def _tensor(self, start: int, stop: int) -> Any:
        return self._source[slice(start, stop) if self._rows is None else self._rows[start:stop]]

    def tensors(self) -> Iterator[Any]:
        """Yield blocks of rows as tensors on their device, without a check for NaN."""
        for span in self._shown(list(pairwise(self.edges()))):
            yield self._tensor(*span)

    def load(self, *, dense: bool = False, check: bool = True) -> Any:
        """Return all selected rows as an ndarray, which may be a view of a tensor on the host."""
        return self.read(0, self.shape[0], check=check)

    def map(self, function: Callable[..., Any], width: int, *, dense: bool = False) -> Any:
        """Apply `function`, a partial whose keywords are arrays, to the rows on their device.

        The function is computed in float64. If the tensor has a floating-point dtype, the result
        has the same dtype. Gradients flow through the result.
        """
        torch = import_module("torch")
        partial: Any = function
        arrays = {
            key: torch.tensor(np.ascontiguousarray(value), device=self.device)
            for key, value in partial.keywords.items()
        }
        dtype = self._source.dtype if self._source.is_floating_point() else torch.float64
        parts = [
            partial.func(block.to(torch.float64), **arrays).to(dtype) for block in self.tensors()
        ]
        empty = torch.empty((0, width), dtype=dtype, device=self.device)
        result = torch.cat(parts) if parts else empty
        # A linear map passes NaN and infinity on to its result. The result is smaller than the
        # rows, so it is checked first, and the rows are checked only if it is not finite.
        if not torch.isfinite(result).all():
            self.check()
        return result

    def check(self) -> None:
        """Raise ValueError on NaN or infinity; the values are checked on the device."""
        torch = import_module("torch")
        for block in self.tensors():
            if not torch.isfinite(block).all():
                self._check(to_host(block), self.name)

    def _read(self, start: int, stop: int) -> Any:
        return to_host(self._tensor(start, stop))

    def _read_columns(self, which: slice) -> Any:
        return to_host(self._tensor(0, self.shape[0])[:, which])


def to_host(tensor: Any) -> NDArray[Any]:
    """Return a tensor as an ndarray without gradients, as a view if possible."""
    tensor = tensor.detach()
    host: NDArray[Any] = (
        (tensor.float() if "bfloat16" in str(tensor.dtype) else tensor).cpu().numpy()
    )
    return host


def check_device(device: Any) -> Any:
    """Return the torch device; raise an error unless it is available and supports float64."""
    try:
        torch = import_module("torch")
    except ImportError as error:
        raise ImportError(
            f"device={device!r} needs torch; run pip install torch, or leave device out."
        ) from error
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"device={shown(device)} is not a device that torch knows; give 'cpu', 'cuda' or "
            "'cuda:0', or leave device out."
        ) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"device={str(device)!r} was asked for, but torch finds no CUDA device here. Leave "
            "device out to compute on the processor."
        )
    if device.type == "mps":
        raise ValueError(
            "the device 'mps' has no float64, which is needed for sums. Leave device out, and give "
            "X.cpu() instead of a tensor on this device."
        )
    if device.type == "meta":
        raise ValueError(
            "the device 'meta' holds no values, so nothing can be computed there. Give tensors on "
            "'cpu' or 'cuda'."
        )
    return torch.empty(0, device=device).device  # turns "cuda" into "cuda:0", for example
