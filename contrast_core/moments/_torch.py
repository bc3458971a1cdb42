"""Moments on a torch device: rows that lie there, or that are copied there block by block."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Any

import numpy as np

from contrast_core._tensors import check_device, device_rows, is_tensor, to_host
from contrast_core.moments._accumulator import Precision, Sums

_PANEL = 512  # columns of the scatter's upper triangle that are multiplied at once
_SINGLE_ROWS = 4096  # whose products are added up in float32
_SLOTS = 3  # one block is filled, one copied and one multiplied at a time
_COPY_THREADS = min(4, os.cpu_count() or 1)  # one thread does not keep up with the bus


def device_sums(
    blocks: Iterable[Any],
    name: str,
    *,
    device: Any,
    precision: Precision,
    checked: Iterable[Any] = (),
) -> Sums:
    """Sums of dense blocks of rows, with products taken on a device.

    Parameters
    ----------
    blocks : iterable of tensors and ndarrays
        Those on the device are used where they are; others are gathered into page-locked memory
        and copied while earlier ones are multiplied.
    name : str
        What error messages call the data.
    device : torch.device or str
        Where.
    precision : {"double", "single"}
        Arithmetic of the products.
    checked : iterable, default=()
        The same blocks again, checked as they are taken, which happens only if a sum is not
        finite: so `blocks` need no check, and finite data no pass for it.
    """
    device = check_device(device)
    scatter = _Scatter(device, precision)
    arithmetic = _ieee_products() if precision == "single" else nullcontext()
    with arithmetic, _Upload(device, scatter.add) as upload:
        for block in blocks:
            if is_tensor(block) and block.device == device:
                upload.flush()
                for rows in block.detach().split(device_rows(block.shape[1])):
                    scatter.add(rows)
            else:
                upload.add(block)
        upload.flush()
        sums = scatter.sums(name)
    if not np.isfinite(sums.covariance.diagonal()).all():
        for _ in checked:
            pass
        raise ValueError(
            f"the variance of {name} overflows {scatter.dtype}; bring the data to a smaller scale "
            "first, or use precision='double'."
        )
    return sums


class _Scatter:
    """Count, sum and upper triangle of the products of shifted rows, on the device.

    Rows are shifted by the mean of the first block, as on the processor. Only the panels that reach
    the upper triangle are multiplied, as torch has no symmetric product.
    """

    def __init__(self, device: Any, precision: Precision) -> None:
        if precision not in ("double", "single"):
            raise ValueError(f"precision={precision!r} is unknown; expected 'double' or 'single'.")
        self._torch = import_module("torch")
        self._device = device
        self.dtype = self._torch.float64 if precision == "double" else self._torch.float32
        self._count = 0

    def add(self, rows: Any) -> None:
        """Add rows of any real dtype that lie on the device."""
        torch = self._torch
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
        for i in range(0, rows.shape[1], _PANEL):
            panel, into = rows[:, i : i + _PANEL].T, self._products[i : i + _PANEL, i:]
            if rows.dtype == into.dtype:
                into.addmm_(panel, rows[:, i:])
            else:
                into += panel @ rows[:, i:]

    def sums(self, name: str) -> Sums:
        """What all rows so far add up to, on the host."""
        if not self._count:
            raise ValueError(f"{name} has no rows (n_samples=0); at least one is needed.")
        offset = self._total / self._count
        upper = (self._products / self._count).addr_(offset, offset, alpha=-1).triu_()
        # A feature without variance may come out a rounding error below zero.
        upper.diagonal().clamp_(min=0.0)
        covariance = upper + upper.triu(1).T
        return Sums(
            self._count,
            (self._shift + offset).cpu().numpy(),
            covariance.cpu().numpy(),
        )


class _Upload:
    """Rows from the host, gathered into page-locked blocks and handed on once on the device."""

    def __init__(self, device: Any, consume: Callable[[Any], None]) -> None:
        self._torch = import_module("torch")
        self._device, self._consume = device, consume
        self._stream = self._torch.cuda.Stream(device) if device.type == "cuda" else None
        self._slots: list[_Slot] = []
        self._turn = self._filled = 0
        self._pool = ThreadPoolExecutor(_COPY_THREADS)

    def __enter__(self) -> _Upload:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown()

    def add(self, chunk: Any) -> None:
        """Take rows; they may be overwritten afterwards."""
        if is_tensor(chunk):
            chunk = to_host(chunk)
        exact = np.can_cast(chunk.dtype, np.float32)
        dtype = self._torch.float32 if exact else self._torch.float64
        if not self._slots or self._slots[0].host.dtype != dtype:
            self.flush()
            shape = (device_rows(chunk.shape[1]), chunk.shape[1])
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
