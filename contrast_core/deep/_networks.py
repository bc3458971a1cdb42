"""The four networks of a contrastive variational autoencoder."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from contrast_core._validation import shown
from contrast_core.deep._training import tensors_of

Sizes: TypeAlias = dict[str, tuple[int, int]]

_HIDDEN = (128, 256)  # widths of the hidden layers in the paper


def sizes_of(n_features: int, n_salient: int, n_shared: int) -> Sizes:
    """Return the input and output widths of each network, under its name.

    The output of an encoder holds means and logarithms of variances side by side.
    """
    return {
        "salient_encoder": (n_features, 2 * n_salient),
        "shared_encoder": (n_features, 2 * n_shared),
        "salient_decoder": (n_salient, n_features),
        "shared_decoder": (n_shared, n_features),
    }


class ContrastiveNetworks(nn.Module):
    """Encoders, decoders and the logarithm of the noise's scale.

    Parameters
    ----------
    given : mapping of str to torch.nn.Module
        Networks that replace default ones; they are copied.
    sizes : dict
        Widths of the networks, as from `sizes_of`.
    noise_shape : tuple of int
        Shape of the noise parameter `log_noise`: ``()`` for one scale, or ``(n_features,)``.
    generator : torch.Generator
        Source of the first weights of the default networks.

    Raises
    ------
    ValueError, TypeError
        If a given network has a name that is not in `sizes`, is not a module, or returns an output
        of another shape.
    """

    salient_encoder: nn.Module
    shared_encoder: nn.Module
    salient_decoder: nn.Module
    shared_decoder: nn.Module

    def __init__(
        self,
        given: Mapping[str, nn.Module] | None,
        sizes: Sizes,
        noise_shape: tuple[int, ...],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        given = _checked(given, sizes)
        for name, (width, height) in sizes.items():
            module: nn.Module
            if name in given:
                module = copy.deepcopy(given[name]).to(dtype=torch.float32)
                _check_fits(module, name, width, height)
            else:
                hidden = _HIDDEN if "decoder" in name else _HIDDEN[::-1]
                module = perceptron((width, *hidden, height), generator)
            setattr(self, name, module)
        self.n_latent = sizes["salient_decoder"][0], sizes["shared_decoder"][0]
        self.log_noise = nn.Parameter(torch.zeros(noise_shape))

    def restore(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Put fitted weights into the networks.

        Raises
        ------
        ValueError
            If the weights belong to other networks.
        """
        try:
            self.load_state_dict(tensors_of(weights))
        except (RuntimeError, KeyError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ValueError(
                f"the fitted weights do not belong to the parameter networks ({reason}). Give the "
                "networks of the fit by set_params(networks=...)."
            ) from error

    def groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """Return parameter groups for an optimiser; the noise has ten times the learning rate."""
        others = [value for name, value in self.named_parameters() if name != "log_noise"]
        return [{"params": others}, {"params": [self.log_noise], "lr": 10 * learning_rate}]


def perceptron(widths: tuple[int, ...], generator: torch.Generator) -> nn.Sequential:
    """Return fully connected layers with ReLU between them, initialised by torch's default rule."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        # The layer is created without values, because torch would draw them from its global state.
        layer = nn.Linear(n_in, n_out, device="meta").to_empty(device="cpu")
        for parameter in layer.parameters():
            nn.init.uniform_(parameter, -(n_in**-0.5), n_in**-0.5, generator=generator)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _checked(given: Mapping[str, nn.Module] | None, sizes: Sizes) -> Mapping[str, nn.Module]:
    if given is None:
        return {}
    expected = ", ".join(map(repr, sizes))
    if not isinstance(given, Mapping):
        raise TypeError(
            f"networks={shown(given)} is {type(given).__name__}; expected a dict of "
            f"torch.nn.Module under some of the names {expected}."
        )
    for name, module in given.items():
        if name not in sizes:
            raise ValueError(f"networks has {shown(name)}; expected some of {expected}.")
        if not isinstance(module, nn.Module):
            raise TypeError(
                f"networks[{name!r}] is {type(module).__name__}; expected a torch.nn.Module."
            )
    return given


def _check_fits(module: nn.Module, name: str, width: int, height: int) -> None:
    """Raise ValueError unless a network maps two rows to an output of the right shape."""
    module.eval()
    reason = ""
    try:
        with torch.no_grad():
            found = module(torch.zeros(2, width))
    except Exception as error:  # a user's network can raise any error
        reason = f"fails with {type(error).__name__}: {str(error).splitlines()[0][:150]}"
    else:
        if not isinstance(found, Tensor):
            reason = f"returns {type(found).__name__}"
        elif tuple(found.shape) != (2, height):
            reason = f"returns shape {tuple(found.shape)}"
    if reason:
        what = "a decoder maps latent variables to features"
        if "encoder" in name:
            what = "an encoder returns means and logarithms of variances side by side"
        raise ValueError(
            f"networks[{name!r}] {reason} for rows of shape (2, {width}); expected a tensor of "
            f"shape (2, {height}) ({what})."
        )
