"""Moments on a torch device: rows that lie there, or that are copied there block by block."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from contrast_core.moments._accumulator import Precision, Summary, or_double
from contrast_core.rows import DEVICE_BLOCKS, ELEMENTS, Rows, check_device

if TYPE_CHECKING:
    from contrast_core.rows import TensorRows

_SINGLE_ROWS = 4096  # whose products are added up in float32
_SLOTS = 3  # one block is filled, one copied and one multiplied at a time
_COPY_THREADS = min(4, os.cpu_count() or 1)  # one thread does not keep up with the bus


class DeviceAccumulator:
    """Count, mean and scatter of rows, with products taken on a device; a context manager.

    Rows that lie there are used where they are; others are gathered into page-locked memory and
    copied while earlier ones are multiplied.

    Parameters
    ----------
    name : str
        What errors call the rows.
    device : torch.device or str
        Where.
    precision : {"double", "single"}
        Arithmetic of the products.
    elements : int
        Values that are copied at once.
    panel : int
        Columns of the scatter's upper triangle that are multiplied at once.
    """

    def __init__(
        self,
        name: str,
        device: Any,
        precision: Precision,
        *,
        elements: int = DEVICE_BLOCKS * ELEMENTS,
        panel: int = 512,
    ) -> None:
        self._name, self.device = name, check_device(device)
        self._scatter = _Scatter(self.device, precision, panel)
        self._upload = _Upload(self.device, self._scatter.add, elements)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        if self._scatter.dtype == self._scatter.torch.float32:
            self._stack.enter_context(_ieee_products())
        self._stack.callback(self._upload.close)
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def consume(self, rows: Rows, *, check: bool = True) -> None:
        """Add all of these rows; with `check`, ValueError on NaN or infinity."""
        if rows.device != self.device:
            for block in rows.blocks(dense=True, check=check):
                self._upload.add(block)
            return
        if check:
            rows.check()
        self._upload.flush()
        for block in cast("TensorRows", rows).tensors():
            self._scatter.add(block)

    def result(self) -> Summary | None:
        """Return the summary of all rows so far on the host, None without any."""
        self._upload.flush()
        return self._scatter.result(self._name)


class _Scatter:
    """Count, sum and upper triangle of the products of shifted rows, on the device.

    Rows are shifted by the mean of the first block, as on the processor. Only the panels that reach
    the upper triangle are multiplied, as torch has no symmetric product.
    """

    def __init__(self, device: Any, precision: Precision, panel: int) -> None:
        if precision not in ("double", "single"):
            raise ValueError(f"precision={precision!r} is unknown; expected 'double' or 'single'.")
        self.torch = import_module("torch")
        self._device, self._panel = device, panel
        self.dtype = self.torch.float64 if precision == "double" else self.torch.float32
        self._count = 0

    def add(self, rows: Any) -> None:
        """Add rows of any real dtype that lie on the device."""
        torch, rows = self.torch, rows.detach()
        if not len(rows):
            return
        if not self._count:
            self._shift = rows.mean(dim=0, dtype=torch.float64)
            self._total = torch.zeros_like(self._shift)
            size = (len(self._shift),) * 2
            self._products = torch.zeros(size, dtype=torch.float64, device=self._device)
        self._count += len(rows)
        shifted = (rows - self._shift).to(self.dtype)
        self._total += shifted.sum(dim=0, dtype=torch.float64)
        if self.dtype == torch.float64:
            self._multiply(shifted)
        else:
            for part in shifted.split(_SINGLE_ROWS):
                self._multiply(part)

    def _multiply(self, rows: Any) -> None:
        for i in range(0, rows.shape[1], self._panel):
            panel, into = rows[:, i : i + self._panel].T, self._products[i : i + self._panel, i:]
            if rows.dtype == into.dtype:
                into.addmm_(panel, rows[:, i:])
            else:
                into += panel @ rows[:, i:]

    def result(self, name: str) -> Summary | None:
        """Return the summary of all rows so far on the host, None without any."""
        if not self._count:
            return None
        offset = self._total / self._count
        upper = (self._products / self._count).addr_(offset, offset, alpha=-1).triu_()
        # A feature without variance may come out a rounding error below zero.
        upper.diagonal().clamp_(min=0.0)
        if not self.torch.isfinite(upper.diagonal()).all():
            raise ValueError(
                f"the variance of {name} overflows {self.dtype}; multiply all data by a constant "
                f"that brings them near 1{or_double(self.dtype)}."
            )
        covariance = upper + upper.triu(1).T
        return Summary(
            np.array([self._count]),
            (self._shift + offset).cpu().numpy()[None],
            covariance.cpu().numpy(),
        )


class _Upload:
    """Rows from the host, gathered into page-locked blocks and handed on once on the device."""

    def __init__(self, device: Any, consume: Callable[[Any], None], elements: int) -> None:
        self._torch = import_module("torch")
        self._device, self._consume, self._elements = device, consume, elements
        self._stream = self._torch.cuda.Stream(device) if device.type == "cuda" else None
        self._slots: list[_Slot] = []
        self._turn = self._filled = 0
        self._pool = ThreadPoolExecutor(_COPY_THREADS)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def add(self, chunk: Any) -> None:
        """Take rows; they may be overwritten afterwards."""
        exact = np.can_cast(chunk.dtype, np.float32)
        dtype = self._torch.float32 if exact else self._torch.float64
        if not self._slots or self._slots[0].host.dtype != dtype:
            self.flush()
            n_features = chunk.shape[1]
            shape = (max(1, self._elements // max(1, n_features)), n_features)
            self._slots = [_Slot(shape, dtype, self._device) for _ in range(_SLOTS)]
        start = 0
        while start < len(chunk):
            slot = self._slots[self._turn]
            if not self._filled:
                slot.wait()
            rows = chunk[start : start + len(slot.host) - self._filled]
            into = slot.host[self._filled : self._filled + len(rows)].numpy()
            parts = (np.array_split(a, _COPY_THREADS) for a in (into, rows))
            list(self._pool.map(np.copyto, *parts))
            start, self._filled = start + len(rows), self._filled + len(rows)
            if self._filled == len(slot.host):
                self.flush()

    def flush(self) -> None:
        """Hand on what has been gathered."""
        if not self._filled:
            return
        slot, n_rows = self._slots[self._turn], self._filled
        self._turn, self._filled = (self._turn + 1) % _SLOTS, 0
        if self._stream is None:
            self._consume(slot.host[:n_rows].to(self._device))
            return
        cuda = self._torch.cuda
        current = cuda.current_stream(self._device)
        with cuda.stream(self._stream):
            slot.rows[:n_rows].copy_(slot.host[:n_rows], non_blocking=True)
        current.wait_stream(self._stream)
        self._consume(slot.rows[:n_rows])
        slot.free.record(current)


class _Slot:
    """A page-locked block of rows, its copy on a CUDA device, and when both are free again."""

    def __init__(self, shape: tuple[int, int], dtype: Any, device: Any) -> None:
        torch = import_module("torch")
        cuda = device.type == "cuda"
        self.host: Any = torch.empty(shape, dtype=dtype, pin_memory=cuda)
        self.rows: Any = torch.empty(shape, dtype=dtype, device=device) if cuda else None
        self.free: Any = torch.cuda.Event() if cuda else None

    def wait(self) -> None:
        """Until what was handed on from here has been used."""
        if self.free is not None:
            self.free.synchronize()


@contextmanager
def _ieee_products() -> Iterator[None]:
    """Float32 products in float32: TF32 and bfloat16, if the process allows them, keep 10 bits."""
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
