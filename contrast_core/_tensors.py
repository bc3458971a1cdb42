"""Rows in torch tensors: which ones are accepted, and functions of them on their own device."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import check_finite

_BLOCK_ELEMENTS = 2**24  # 128 MB of float64: a few of these are on the device at a time


def is_tensor(X: Any) -> bool:
    """Whether `X` is a torch tensor; torch is not imported for it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(X, torch.Tensor)


def check_tensor(X: Any, name: str, *, min_rows: int = 0) -> Any:
    """Return `X` if it is dense, real and two-dimensional, on a device with float64."""
    torch = import_module("torch")
    if X.layout != torch.strided:
        raise TypeError(
            f"{name} is a tensor of layout {X.layout}; a dense tensor is expected. Give "
            f"{name}.to_dense(), or a scipy sparse matrix."
        )
    if X.is_complex():
        raise ValueError(f"{name} is a tensor of {X.dtype}; complex data are not supported.")
    if X.ndim != 2:
        raise ValueError(
            f"{name} has shape {tuple(X.shape)}; two dimensions are expected: rows are samples, "
            "columns are features."
        )
    if X.shape[0] < min_rows:
        raise ValueError(
            f"{name} has n_samples={X.shape[0]}, but at least {min_rows} is needed (rows are "
            "samples, columns are features)."
        )
    check_device(X.device)
    return X.to(torch.uint8) if X.dtype == torch.bool else X  # bool has no subtraction


def check_device(device: Any) -> Any:
    """A torch device that is there and can hold float64."""
    try:
        torch = import_module("torch")
    except ImportError as error:
        raise ImportError(
            f"device={device!r} needs torch; install contrast-suite[torch], or leave device out."
        ) from error
    device = torch.device(device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"device={str(device)!r} was asked for, but torch finds no CUDA device here. Leave "
            "device out to compute on the processor."
        )
    if device.type == "mps":
        raise ValueError("the device 'mps' has no float64, which sums need; give X.cpu().")
    return torch.empty(0, device=device).device  # "cuda" with its index


def check_same_place(X: Any, other: Any, other_name: str) -> None:
    """Both are tensors on one device, or neither is a tensor."""
    if is_tensor(X) != is_tensor(other):
        raise TypeError(
            f"X is {_place(X)} and {other_name} is {_place(other)}; give both as tensors on one "
            "device or neither, or SecondMoments of each."
        )
    if is_tensor(X) and X.device != other.device:
        raise ValueError(
            f"X is {_place(X)} and {other_name} is {_place(other)}; both are expected on one "
            "device. Move one with .to(device), or give SecondMoments of each."
        )


def _place(X: Any) -> str:
    return f"a tensor on {X.device}" if is_tensor(X) else type(X).__name__


def wide_tensors_to_host(X: Any, background: Any) -> tuple[Any, Any]:
    """Both as ndarrays if they have fewer rows together than features, else as they are.

    Such rows are smaller than the covariance that would come to the host otherwise.
    """
    pair = check_tensor(X, "X"), check_tensor(background, "background")
    if len(X) + len(background) >= max(X.shape[1], background.shape[1]):
        return pair
    return to_host(pair[0]), to_host(pair[1])


def to_host(X: Any) -> NDArray[Any]:
    """A tensor as an ndarray, a view where that is possible; without gradients."""
    X = X.detach()
    host: NDArray[Any] = (X.float() if "bfloat16" in str(X.dtype) else X).cpu().numpy()
    return host


def tensor_blocks(X: Any) -> tuple[Any, ...]:
    """Views of a few rows each."""
    blocks: tuple[Any, ...] = X.split(device_rows(X.shape[1]))
    return blocks


def device_rows(n_features: int) -> int:
    """How many rows a device takes at once."""
    return max(1024, _BLOCK_ELEMENTS // max(1, n_features))


def finite_blocks(blocks: Any, name: str) -> Iterator[Any]:
    """The blocks, each checked on its device."""
    torch = import_module("torch")
    for block in blocks:
        if not torch.isfinite(block).all():
            check_finite(to_host(block), name)
        yield block


def map_tensor(function: partial[Any], X: Any) -> Any:
    """`function` of rows, whose keywords are arrays, block by block on the device of `X`.

    Computed in float64. The result has the dtype of `X` where that is floating, and gradients flow
    through it.
    """
    torch = import_module("torch")
    arrays = {
        key: torch.tensor(np.ascontiguousarray(value), device=X.device)
        for key, value in function.keywords.items()
    }
    dtype = X.dtype if X.is_floating_point() else torch.float64
    result = torch.cat(
        [function.func(block.to(torch.float64), **arrays).to(dtype) for block in tensor_blocks(X)]
    )
    # NaN and infinity survive every linear map, and the result is smaller than the rows.
    if not torch.isfinite(result).all():
        for _ in finite_blocks(tensor_blocks(X), "X"):
            pass
    return result
