"""Conversion of weights and training states to arrays, for fitted estimators and files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from contrast_core.deep._training import State

Arrays = dict[str, NDArray[Any]]


def weights_of(networks: nn.Module) -> Arrays:
    """Return a copy of all weights as arrays."""
    return _arrays(networks.state_dict())


def restored(networks: nn.Module, weights: Mapping[str, NDArray[Any]]) -> None:
    """Put weights into networks.

    Raises
    ------
    ValueError
        If the weights belong to other networks.
    """
    try:
        networks.load_state_dict(_tensors(weights))
    except (RuntimeError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            "the fitted weights are of other networks than those of the parameter networks "
            f"({reason}). Give those of the fit, by set_params(networks=...)."
        ) from error


def stored(state: State | None, weights: Arrays) -> dict[str, Any] | None:
    """Return a training state as arrays; it shares `weights` if these are the last weights."""
    if state is None:
        return None
    last = _arrays(state.weights)
    if all(np.array_equal(last[name], weights[name]) for name in last):
        last = weights
    adam = {name: _arrays(kept) for name, kept in state.adam.items()}
    return {"weights": last, "adam": adam, "lowest": state.lowest, "first": state.first}


def state_from(arrays: Mapping[str, Any] | None) -> State | None:
    if arrays is None:
        return None
    adam = {name: _tensors(kept) for name, kept in arrays["adam"].items()}
    return State(_tensors(arrays["weights"]), adam, arrays["lowest"], arrays["first"])


def _arrays(tensors: Mapping[str, Tensor]) -> Arrays:
    return {name: value.cpu().numpy().copy() for name, value in tensors.items()}


def _tensors(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    return {name: torch.tensor(value) for name, value in arrays.items()}
