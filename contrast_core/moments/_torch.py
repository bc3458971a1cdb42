"""Moments that are computed on a torch device, from tensors or from rows copied block by block.

Problem: a GPU multiplies a hundred times as fast as a processor, but its memory is small and
copying to it is slow. Blocks of rows are therefore copied through page-locked memory, which a GPU
reads while it multiplies the previous block. All rows are shifted by the mean of the first block,
and the rest of the mean is subtracted at the end (Chan, Golub and LeVeque, American Statistician
37:242, 1983). The sums are kept in float64, whatever the precision of the products is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from contrast_core.moments._accumulator import Precision, Summary, check_precision, overflow
from contrast_core.rows import DEVICE_BLOCKS, ELEMENTS, Rows, check_device

if TYPE_CHECKING:
    from contrast_core.rows import TensorRows

_SINGLE_ROWS = 4096  # number of rows whose products are added up in float32


class DeviceAccumulator:
    """Count, mean and covariance of rows, with products computed on a device.

    Parameters
    ----------
    name : str
        Name of the rows in error messages.
    device : torch.device or str
        Device that computes the products.
    precision : {"double", "single"}
        Arithmetic of the products.
    elements : int
        Number of values that are copied at once.
    """

    def __init__(
        self,
        name: str,
        device: Any,
        precision: Precision,
        *,
        elements: int = DEVICE_BLOCKS * ELEMENTS,
    ) -> None:
        self._name, self.device = name, check_device(device)
        self.torch: Any = import_module("torch")
        self.dtype = getattr(self.torch, check_precision(precision).name)
        self._elements, self._count = elements, 0

    def consume(self, rows: Rows) -> None:
        """Add all of these rows; raise ValueError on NaN or infinity."""
        blocks: Iterator[Any]
        if rows.device == self.device:
            rows.check()
            blocks = cast("TensorRows", rows).tensors()
        else:
            host = rows.blocks(elements=self._elements, dense=True)
            blocks = map(self._copied, host)
        single = self.dtype == self.torch.float32
        with _ieee_products() if single else nullcontext():
            for block in blocks:
                self._add(block.detach())

    def _copied(self, block: Any) -> Any:
        """Copy a block to the device; the caller may overwrite the block afterwards."""
        exact = np.can_cast(block.dtype, np.float32)
        host = self.torch.tensor(block.astype(np.float32 if exact else np.float64, copy=False))
        if self.device.type == "cuda":
            host = host.pin_memory()
        return host.to(self.device, non_blocking=True)

    def _add(self, rows: Any) -> None:
        torch = self.torch
        if not len(rows):
            return
        if not self._count:
            self._shift = rows.mean(dim=0, dtype=torch.float64)
            self._total = torch.zeros_like(self._shift)
            size = (len(self._shift),) * 2
            self._products = torch.zeros(size, dtype=torch.float64, device=self.device)
        self._count += len(rows)
        shifted = (rows - self._shift).to(self.dtype)
        self._total += shifted.sum(dim=0, dtype=torch.float64)
        for part in shifted.split(len(rows) if self.dtype == torch.float64 else _SINGLE_ROWS):
            if self.dtype == torch.float64:
                self._products.addmm_(part.T, part)
            else:
                self._products += part.T @ part

    def result(self) -> Summary | None:
        """Return the summary of all rows so far as NumPy arrays; None if there were no rows."""
        if not self._count:
            return None
        offset = self._total / self._count
        upper = (self._products / self._count).addr_(offset, offset, alpha=-1).triu_()
        # Rounding may make the variance of a constant feature slightly negative.
        upper.diagonal().clamp_(min=0.0)
        if not self.torch.isfinite(upper.diagonal()).all():
            raise overflow(self._name, self.dtype)
        covariance = upper + upper.triu(1).T
        return Summary(
            np.array([self._count]),
            (self._shift + offset).cpu().numpy()[None],
            covariance.cpu().numpy(),
        )


@contextmanager
def _ieee_products() -> Iterator[None]:
    """Make torch multiply float32 values in float32 while the context is active.

    A process may allow TF32 or bfloat16 instead, which keep at most 10 bits of the mantissa.
    """
    torch = import_module("torch")
    places = [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul]
    places = [place for place in places if hasattr(place, "fp32_precision")]  # torch 2.9 and newer
    if not places:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
        return
    saved = [place.fp32_precision for place in places]
    try:
        for place in places:
            place.fp32_precision = "ieee"
        yield
    finally:
        for place, value in zip(places, saved, strict=True):
            place.fp32_precision = value
