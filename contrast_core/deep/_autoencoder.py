"""Scores, reconstructions and samples of a fitted contrastive autoencoder."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from contrast_core._base import Dataset, Embedding, ScoreMixin
from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_choice,
    check_count,
    check_flag,
    check_generator,
)
from contrast_core.deep._reading import Measured, Noise
from contrast_core.rows import check_device

if TYPE_CHECKING:
    from torch import nn

    from contrast_core.deep._coding import Coder
    from contrast_core.deep._networks import ContrastiveNetworks


class Autoencoder(ScoreMixin, Embedding):
    """Base class of `CVAE` with the methods of a fitted model; `CVAE` trains the networks."""

    networks: Mapping[str, nn.Module] | None
    device: Any

    weights_: dict[str, NDArray[Any]]
    mean_: FloatArray
    unit_: float
    rates_: FloatArray | None
    total_: float | None
    noise_variance_: float | FloatArray
    training_loss_: FloatArray
    held_out_loss_: FloatArray
    best_epoch_: int
    n_iter_: int
    converged_: bool
    training_state_: dict[str, Any] | None
    seed_: int
    latent_sizes_: tuple[int, int]
    noise_: Noise
    own_networks_: tuple[str, ...]

    @property
    def _n_features_out(self) -> int:
        return self.latent_sizes_[0]

    def transform(self, X: MatrixLike) -> FloatArray:
        """Return the posterior means of the salient latent variables.

        The same encoder embeds background rows. They come to lie near foreground rows that have no
        salient part.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, stored dataset, dask array or torch tensor of \
                shape (n, n_features)
            Rows of either dataset, or new rows. They are read in blocks.

        Returns
        -------
        ndarray of shape (n, n_salient)
            For a dask array, the result is a dask array that is not yet computed. For a tensor, it
            is a tensor on the same device, through which gradients flow.

        Raises
        ------
        ValueError
            If the features are not those of the fit, or a value is NaN or infinite.
        """
        rows, coder = self._rows(X), self._coder()
        scores: FloatArray = rows.map(partial(coder.salient), self.latent_sizes_[0], dense=True)
        return scores

    def transform_shared(self, X: MatrixLike) -> FloatArray:
        """Return the posterior means of the shared latent variables.

        Parameters
        ----------
        X : as for `transform`
            Rows of either dataset.

        Returns
        -------
        ndarray of shape (n, n_shared)
            For a dask array or a tensor, the result is of the same kind, as from `transform`.

        Raises
        ------
        ValueError
            In the cases of `transform`.
        """
        rows, coder = self._rows(X), self._coder()
        scores: FloatArray = rows.map(partial(coder.shared), self.latent_sizes_[1], dense=True)
        return scores

    def denoise(self, X: MatrixLike) -> FloatArray:
        r"""Return the salient part of rows, :math:`f_t(\operatorname{E} t)`.

        This is the paper's de-noised target. It leaves out the shared part and the mean of the
        background. For counts both parts act by factors. The result is then the mean profile of the
        background, changed by the salient part alone and scaled to the sum of each row.

        Parameters
        ----------
        X : as for `transform`
            Rows to denoise.

        Returns
        -------
        ndarray of shape (n, n_features)
            Values in the units of the data. For a dask array or a tensor, the result is of the same
            kind, as from `transform`.

        Raises
        ------
        ValueError
            In the cases of `transform`.

        References
        ----------
        Severson, Ghosh and Ng, arXiv:1811.06094, Sec. 4.4 and Fig. 3b.
        """
        rows, coder = self._rows(X), self._coder()
        result: FloatArray = rows.map(partial(coder.denoised), self.n_features_in_, dense=True)
        return result

    def score_samples(self, X: MatrixLike, *, dataset: Dataset = "foreground") -> FloatArray:
        """Return the evidence lower bound of each row, which is at most its log-density.

        Parameters
        ----------
        X : as for `transform`
            Rows.
        dataset : {"foreground", "background"}, default="foreground"
            Dataset whose model is used. The model of the background has no salient part.

        Returns
        -------
        ndarray of shape (n,)
            Lower bounds of log-densities (natural logarithms) in the units of the data. A cubature
            rule of third degree computes the expectation over latent variables without random
            numbers. Bounds of different fits to the same data can be compared.

        Raises
        ------
        ValueError
            If `dataset` is neither of the two names, or in the cases of `transform`.
        """
        check_choice(dataset, "dataset", ("foreground", "background"))
        rows, coder = self._rows(X), self._coder()
        function = coder.foreground_bounds
        if dataset == "background":
            function = coder.background_bounds
        bounds: FloatArray = rows.map(partial(function), 1, dense=True)
        return bounds[:, 0]

    def sample_foreground(
        self,
        n_samples: int = 1,
        *,
        denoised: bool = False,
        add_noise: bool = False,
        random_state: int | np.random.Generator | None = None,
    ) -> FloatArray:
        """Draw rows like those of the foreground.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        denoised : bool, default=False
            Whether to leave the shared part out, as `denoise` does.
        add_noise : bool, default=False
            Whether to add the noise. For counts, rows with noise are draws from the negative
            binomial, and rows without noise are expected counts. The expected sum of a row is the
            mean sum of the background's rows.
        random_state : int, Generator or None, default=None
            Seed of the draws.

        Returns
        -------
        ndarray of shape (n_samples, n_features)

        Raises
        ------
        ValueError, TypeError
            If a parameter is out of range.
        """
        return self._sample(
            n_samples, True, not check_flag(denoised, "denoised"), add_noise, random_state
        )

    def sample_background(
        self,
        n_samples: int = 1,
        *,
        add_noise: bool = False,
        random_state: int | np.random.Generator | None = None,
    ) -> FloatArray:
        """Draw rows like those of the background.

        Parameters
        ----------
        n_samples, add_noise, random_state
            As for `sample_foreground`.

        Returns
        -------
        ndarray of shape (n_samples, n_features)

        Raises
        ------
        ValueError, TypeError
            If a parameter is out of range.
        """
        return self._sample(n_samples, False, True, add_noise, random_state)

    def _sample(
        self, n_samples: int, salient: bool, shared: bool, add_noise: bool, random_state: Any
    ) -> FloatArray:
        coder, rng = self._coder(), check_generator(random_state)
        n = check_count(n_samples, "n_samples")
        t, z = (rng.standard_normal((n, size)) for size in self.latent_sizes_)
        seed = int(rng.integers(2**63)) if check_flag(add_noise, "add_noise") else None
        return coder.decoded(t if salient else None, z if shared else None, noise=seed)

    @property
    def _measured(self) -> Measured:
        return Measured(self.mean_, self.unit_, self.rates_, self.total_)

    def _device(self) -> Any:
        return check_device("cpu" if self.device is None else self.device)

    def _coder(self) -> Coder:
        """Return the fitted networks, which are rebuilt from the weights, kept as arrays."""
        check_is_fitted(self)
        from contrast_core.deep._coding import Coder
        from contrast_core.deep._state import restored

        given = tuple(sorted(self.networks or {}))
        if given != self.own_networks_:
            raise ValueError(
                f"this CVAE was fitted with networks of its own for {list(self.own_networks_)}, "
                f"but the parameter networks has {list(given)}. Model files hold weights, not "
                "code: give the same networks by set_params(networks=...)."
            )
        networks = self._networks(self.n_features_in_, self.latent_sizes_, self.noise_, 0)
        restored(networks, self.weights_)
        return Coder(networks, self._measured, self._device())

    def _networks(
        self,
        n_features: int,
        sizes: tuple[int, int],
        noise: Noise,
        seed: int,
    ) -> ContrastiveNetworks:
        import torch

        from contrast_core.deep._networks import ContrastiveNetworks, sizes_of

        generator = torch.Generator().manual_seed(seed)
        shape = () if noise == "normal" else (n_features,)
        return ContrastiveNetworks(self.networks, sizes_of(n_features, *sizes), shape, generator)
