"""Application of fitted networks: from rows to latent variables, and back to rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from torch import Tensor

from contrast_core._validation import FloatArray, check_counts
from contrast_core.deep._likelihoods import Gaussian, NegativeBinomial, RowModel
from contrast_core.deep._networks import ContrastiveNetworks
from contrast_core.deep._objective import bounds, posterior
from contrast_core.deep._reading import BackgroundScale


def row_model(
    scale: BackgroundScale, device: torch.device, dtype: torch.dtype = torch.float32
) -> RowModel:
    """Return the distribution of rows given the outputs of the decoders.

    It is negative binomial if `scale` has rates, which are computed for counts only. Otherwise
    it is normal.
    """
    if scale.rates_ is None:
        return Gaussian()
    return NegativeBinomial(scale.mean_, scale.unit_, scale.rates_, device, dtype)


class Coder:
    """Conversion of rows in the units of the data to latent variables, and back.

    The methods take blocks of dense or sparse rows and return ndarrays. For a tensor they return a
    tensor, through which gradients flow. They compute in float64, so that the result for a row does
    not depend on the other rows of its block.
    """

    def __init__(
        self, networks: ContrastiveNetworks, scale: BackgroundScale, device: torch.device
    ) -> None:
        # Gradients are computed with respect to rows, but not with respect to weights.
        self.networks = networks.eval().double().requires_grad_(False)
        self.scale = scale
        self._move_to(device)

    def _move_to(self, device: torch.device) -> None:
        self.networks.to(device)
        self.device, self._model = device, row_model(self.scale, device, torch.float64)

    @property
    def _counts(self) -> bool:
        return self.scale.rates_ is not None

    def salient(self, rows: Any) -> Any:
        """Return the posterior means of the salient latent variables."""
        return self._apply(rows, lambda x: self._encoded(x, "salient"))

    def shared(self, rows: Any) -> Any:
        """Return the posterior means of the shared latent variables."""
        return self._apply(rows, lambda x: self._encoded(x, "shared"))

    def denoised(self, rows: Any) -> Any:
        """Return the salient part of rows, in the units of the data."""

        def function(x: Tensor) -> Tensor:
            decoded = self.networks.salient_decoder(self._encoded(x, "salient"))
            return self._in_units(decoded, x.sum(dim=1, keepdim=True), mean=0.0)

        return self._apply(rows, function)

    def foreground_bounds(self, rows: Any) -> Any:
        """Return the evidence lower bound of each row under the model of the foreground."""
        return self._apply(rows, lambda x: self._bounds(x, x[:0]))

    def background_bounds(self, rows: Any) -> Any:
        """Return the evidence lower bound of each row under the model of the background."""
        return self._apply(rows, lambda x: self._bounds(x[:0], x))

    def decoded(
        self, salient: NDArray[Any] | None, shared: NDArray[Any] | None, *, noise: int | None
    ) -> FloatArray:
        """Return the rows that the decoders compute from latent variables.

        If the salient or the shared variables are None, their part is left out. `noise` is the seed
        of the noise, or None for rows without noise.
        """
        parts = {"salient_decoder": salient, "shared_decoder": shared}
        with torch.no_grad():
            total: Any = 0.0
            for name, latent in parts.items():
                if latent is not None:
                    given = torch.tensor(latent, dtype=torch.float64, device=self.device)
                    total = total + getattr(self.networks, name)(given)
            sums = total.new_full((len(total), 1), self.scale.total_ or 0.0)
            mean = self.scale.mean_ if shared is not None else 0.0
            rows = self._in_units(total, sums, mean).numpy(force=True)
            deviation = torch.exp(self.networks.log_noise).numpy(force=True)
        if noise is None:
            return np.asarray(rows)
        rng = np.random.default_rng(noise)
        if self._counts:
            means = rows * rng.gamma(deviation**-2, deviation**2, rows.shape)
            return np.asarray(rng.poisson(means), dtype=np.float64)
        return np.asarray(rows + self.scale.unit_ * deviation * rng.normal(size=rows.shape))

    def _in_units(self, decoded: Tensor, sums: Tensor, mean: Any) -> Tensor:
        """Return the expected rows, in the units of the data, for outputs of the decoders.

        For counts, `sums` are the sums of the rows. Otherwise, `mean` is added to the rows.
        """
        if self._counts:
            return cast("NegativeBinomial", self._model).proportions(decoded).exp() * sums
        offset = torch.as_tensor(mean, dtype=torch.float64, device=decoded.device)
        return decoded * self.scale.unit_ + offset

    def _encoded(self, x: Tensor, kind: str) -> Tensor:
        encoder = getattr(self.networks, f"{kind}_encoder")
        return posterior(encoder, self._model.encoder_input(x)).mean

    def _bounds(self, x: Tensor, y: Tensor) -> Tensor:
        n_latent = self.networks.n_latent
        k = sum(n_latent) if len(x) else n_latent[1]
        # The expectation over the latent variables is computed by a cubature rule of third degree:
        # the mean over the 2k points on the axes at distance sqrt(k) from the origin.
        points = k**0.5 * torch.eye(k, dtype=x.dtype, device=x.device)
        total = torch.zeros(len(x) + len(y), dtype=x.dtype, device=x.device)
        for point in (*points, *-points):
            noise = point[: k - n_latent[1]], point[k - n_latent[1] :]
            total = total + bounds(self.networks, self._model, x, y, noise) / (2 * k)
        # The networks see rows divided by `unit_`. This changes the log-density by a constant.
        shift = 0.0 if self._counts else x.shape[1] * np.log(self.scale.unit_)
        return (total - shift)[:, None]

    def _apply(self, rows: Any, function: Callable[[Tensor], Tensor]) -> Any:
        if self._counts:
            check_counts(rows.numpy(force=True) if isinstance(rows, Tensor) else rows, "X")
        if isinstance(rows, Tensor):
            if rows.device != self.device:
                self._move_to(rows.device)
            if not self._counts:
                mean = torch.as_tensor(self.scale.mean_, device=rows.device)
                rows = (rows - mean) / self.scale.unit_
            return function(rows)
        dense = rows.toarray() if issparse(rows) else np.asarray(rows)
        if not self._counts:
            dense = (dense - self.scale.mean_) / self.scale.unit_
        with torch.no_grad():
            # Torch supports neither foreign byte orders nor negative strides.
            dense = np.ascontiguousarray(dense, dtype=np.float64)
            return function(torch.tensor(dense, device=self.device)).numpy(force=True)
