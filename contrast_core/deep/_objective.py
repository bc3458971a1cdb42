"""The evidence lower bound of a contrastive variational autoencoder."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from contrast_core.deep._likelihoods import RowModel
from contrast_core.deep._networks import ContrastiveNetworks


class LatentPosterior(NamedTuple):
    """Independent normal posteriors of the latent variables of each row; arrays are (b, k)."""

    mean: Tensor
    log_variance: Tensor

    def at(self, noise: Tensor) -> Tensor:
        """Return latent variables for standard normal draws, (b, k) or (k,), with gradients."""
        return self.mean + torch.exp(0.5 * self.log_variance) * noise

    def divergence(self) -> Tensor:
        """Return the Kullback-Leibler divergence from the standard normal prior, (b,)."""
        terms = self.mean.square() + self.log_variance.exp() - 1 - self.log_variance
        return 0.5 * terms.sum(dim=1)


def posterior(encoder: torch.nn.Module, seen: Tensor) -> LatentPosterior:
    """Return the posterior of the latent variables that an encoder gives for rows."""
    return LatentPosterior(*encoder(seen).to(seen.dtype).chunk(2, dim=1))


def bounds(
    networks: ContrastiveNetworks,
    model: RowModel,
    foreground: Tensor,
    background: Tensor,
    noise: tuple[Tensor, Tensor],
) -> Tensor:
    r"""Return the evidence lower bound of each row, evaluated at one point of its latent variables.

    .. math:: \operatorname{E} \ln p(x \mid f_s(z) + f_t(t)) - KL(q(z \mid x) \| p(z))
        - KL(q(t \mid x) \| p(t)).

    Here :math:`f_s` and :math:`f_t` are the decoders, and q are the posteriors that the encoders
    compute. The expectation over q is replaced by the value at one point. `noise` holds this point
    in units of the posterior's standard deviations, relative to the posterior's mean: t for the
    foreground's rows, and z for all rows. The terms with t are left out for the background. The
    result lists the foreground's rows first.

    References
    ----------
    Severson, Ghosh and Ng, arXiv:1811.06094, eq. 17. Abid and Zou, arXiv:1902.04601, for the
    encoder of z that both datasets share.
    """
    rows = torch.cat([foreground, background])
    seen, n = model.encoder_input(rows), len(foreground)
    shared = posterior(networks.shared_encoder, seen)
    decoded = networks.shared_decoder(shared.at(noise[1])).to(rows.dtype)
    divergence = shared.divergence()
    if n:
        salient = posterior(networks.salient_encoder, seen[:n])
        added = networks.salient_decoder(salient.at(noise[0])).to(rows.dtype)
        decoded = torch.cat([decoded[:n] + added, decoded[n:]])
        divergence = torch.cat([divergence[:n] + salient.divergence(), divergence[n:]])
    return model.log_density(rows, decoded, networks.log_noise) - divergence
