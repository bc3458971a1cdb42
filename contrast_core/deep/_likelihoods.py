"""Likelihoods of rows given the outputs of the decoders: normal or negative binomial."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from contrast_core._validation import FloatArray
from contrast_core.deep._reading import SCALED_SUM


class Gaussian:
    r"""Density :math:`x \sim N(f, \sigma^2 I)` of scaled rows, with one noise variance.

    Here f (`decoded`) is the sum of the outputs of the decoders, and `log_noise` is the logarithm
    of :math:`\sigma`.
    """

    def encoder_input(self, rows: Tensor) -> Tensor:
        """Return the inputs of the encoders for a minibatch of rows, (b, n_features)."""
        return rows

    def log_density(self, rows: Tensor, decoded: Tensor, log_noise: Tensor) -> Tensor:
        """Return the log-likelihood of each row, (b,)."""
        squares = (rows - decoded).square().sum(dim=1) * torch.exp(-2 * log_noise)
        return -0.5 * (squares + rows.shape[1] * (2 * log_noise + float(np.log(2 * np.pi))))


class NegativeBinomial:
    r"""Density :math:`x_g \sim NB(\ell\,\mathrm{softmax}(f + \log r)_g, \theta_g)` of counts.

    Here :math:`\ell` is the sum of the row, and f (`decoded`) is the sum of the outputs of the
    decoders. A count with mean a has the variance :math:`a + a^2 / \theta_g`.

    Parameters
    ----------
    mean, unit
        Mean and scale of the logarithms of counts scaled to 10,000 per row. They standardise the
        input of the encoders.
    rates : ndarray of shape (n_features,)
        r, the share of each feature in all counts of the background. If the decoders return zero,
        these are the expected shares of a row.
    """

    def __init__(
        self,
        mean: FloatArray,
        unit: float,
        rates: FloatArray,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._mean = torch.tensor(mean, dtype=dtype, device=device)
        self._unit = unit
        self._log_rates = torch.tensor(np.log(rates), dtype=dtype, device=device)

    def encoder_input(self, rows: Tensor) -> Tensor:
        return (torch.log1p(rows * (SCALED_SUM / _totals(rows))) - self._mean) / self._unit

    def proportions(self, decoded: Tensor) -> Tensor:
        """Return the logarithm of the expected share of each feature in a row's total."""
        return torch.log_softmax(decoded + self._log_rates, dim=1)

    def log_density(self, rows: Tensor, decoded: Tensor, log_noise: Tensor) -> Tensor:
        log_mean = self.proportions(decoded) + torch.log(_totals(rows))
        # A negative binomial count is Poisson with a random mean. The relative variance of this
        # mean is 1 / theta, and `log_noise` is the logarithm of its relative standard deviation.
        dispersion = torch.exp(-2 * log_noise)  # theta
        # logaddexp gives log(theta + mean) without overflow and without loss of the smaller term.
        log_both = torch.logaddexp(log_mean, -2 * log_noise)
        density = (
            torch.lgamma(rows + dispersion)
            - torch.lgamma(dispersion)
            - torch.lgamma(rows + 1)
            + dispersion * (-2 * log_noise - log_both)
            + rows * (log_mean - log_both)
        )
        return density.sum(dim=1)


RowModel: TypeAlias = Gaussian | NegativeBinomial


def _totals(rows: Tensor) -> Tensor:
    """Return the total of each row, (b, 1), and 1 for a row without counts."""
    return rows.sum(dim=1, keepdim=True).clamp(min=1)
