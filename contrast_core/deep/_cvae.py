"""Contrastive variational autoencoder."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from contrast_core._base import BackgroundMixin, Dataset, Embedding, ScoreMixin
from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_choice,
    check_count,
    check_flag,
    check_generator,
    check_known_length,
    check_number,
    shown,
)
from contrast_core.deep._reading import BackgroundScale, Noise, background_scale, check_values
from contrast_core.feedback import Progress, warn
from contrast_core.rows import Rows, check_device
from contrast_core.solve import contrast_rows

if TYPE_CHECKING:
    from torch import nn

    from contrast_core.deep._coding import Coder
    from contrast_core.deep._networks import ContrastiveNetworks
    from contrast_core.deep._training import History


class CVAE(BackgroundMixin, ScoreMixin, Embedding):
    r"""Contrastive variational autoencoder: nonlinear shared and salient latent variables.

    Shared latent variables z act on both datasets. Salient latent variables t act on the foreground
    only. Each kind acts through its own network, :math:`f_s` or :math:`f_t`:

    .. math:: x = f_s(z) + f_t(t) + \varepsilon, \qquad y = f_s(z) + \varepsilon,

    with standard normal z and t and :math:`\varepsilon \sim N(0, \sigma^2 I)`. Two more networks,
    the encoders, take a row and compute the means and variances of the normal posteriors of its
    latent variables. Adam fits the four networks and :math:`\sigma` to minibatches by maximising
    the evidence lower bound of both datasets. The data need not be in memory. Rows are centred by
    the background's mean, so that :math:`f_t` includes the shift of the foreground. They are then
    divided by the root of the background's mean variance, so that the model does not depend on the
    units.

    ``noise="counts"`` is a model of raw counts, such as counts of single cells. Let :math:`\ell` be
    the sum of a row, and :math:`r_g` the share of feature g in all counts of the background. Then

    .. math:: x_g \sim NB(\ell \, \mathrm{softmax}(f_s(z) + f_t(t) + \log r)_g, \theta_g) ,

    where a count with mean a has the variance :math:`a + a^2 / \theta_g`. In the background,
    :math:`f_t(t)` is left out.

    `CVAE` needs torch.

    Parameters
    ----------
    n_salient : int, default=2
        Number of salient latent dimensions, at least 1.
    n_shared : int, default=8
        Number of shared latent dimensions, at least 1. If there are too few, the salient dimensions
        also describe variation of the background.
    noise : {"normal", "counts"}, default="normal"
        Distribution of rows given the latent variables: normal, or negative binomial for raw
        counts.
    networks : dict of torch.nn.Module, optional
        Networks that replace the default ones of the same names. ``"salient_encoder"`` and
        ``"shared_encoder"`` map rows (b, n_features) to means and logarithms of variances side by
        side, (b, 2 * latent). ``"salient_decoder"`` and ``"shared_decoder"`` map latent variables
        (b, latent) to rows (b, n_features). Encoders of images begin with
        ``torch.nn.Unflatten(1, (1, height, width))``, and their decoders end with
        ``torch.nn.Flatten()``. The networks are copied, and training starts from their weights. The
        default networks are the paper's: two hidden layers of 128 and 256 units with ReLU. The
        layer of 256 units is the one next to the features.
    max_iter : int, optional
        Largest number of passes over the data (epochs). By default it is chosen to give 4000
        minibatches, but at least 20 and at most 400 passes.
    batch_size : int, default=128
        Number of rows in a minibatch, which has rows of both datasets in proportion to their sizes.
    learning_rate : float above 0, default=1e-3
        Learning rate of Adam.
    validation_fraction : float from 0 to 0.5, default=0.1
        Share of the rows of each dataset that is held out, at most 5000 rows of each. Training ends
        once the evidence lower bound of these rows has not risen for a tenth of the largest number
        of epochs (at least five epochs), and the weights of the best epoch are kept. With 0 no rows
        are held out, and the weights of the last epoch are kept.
    warm_start : bool, default=False
        Whether to continue the last fit for `max_iter` more passes. The fit may come from another
        process (see `contrast_core.load`). The held-out loss shows whether the data are the same.
        If they are, the result is as if the training had not been interrupted (exactly so on the
        same processor). On other data, training starts again from the best weights of the last fit,
        and rows are centred and scaled as in the last fit.
    device : str or torch.device, optional
        Device to compute on, such as ``"cuda"``; by default the CPU. On a GPU that supports
        bfloat16, training multiplies matrices in this lower precision.
    progress : bool or callable, default=False
        Whether to show a progress bar of the passes. A callable replaces tqdm and takes the same
        arguments.
    random_state : int, Generator or None, default=None
        Seed of the first weights, of the minibatches and of the draws. With an integer, results are
        reproducible on the same processor with the same number of threads. Layers of `networks`
        that draw random numbers themselves, such as dropout, use torch's global seed instead.

    Attributes
    ----------
    weights_ : dict of ndarrays
        Weights of the networks, under their names in torch, and ``log_noise``, the logarithm of the
        noise's scale.
    mean_ : ndarray of shape (n_features,)
        Mean of the background. For counts, mean of the logarithms of the background's counts scaled
        to 10,000 per row.
    unit_ : float
        Root of the mean variance of the background's features. For counts it is computed from the
        same logarithms as `mean_`.
    rates_ : ndarray of shape (n_features,), or None
        For counts only: r, the share of each feature in all counts of the background. A feature
        without background counts is treated as if it had half a count.
    total_ : float, or None
        For counts only: mean sum of the background's rows, which is also the expected sum of the
        rows that are sampled.
    noise_variance_ : float or ndarray of shape (n_features,)
        :math:`\sigma^2` in the data's squared units; for counts :math:`1 / \theta`, the
        overdispersion of each feature.
    training_loss_, held_out_loss_ : ndarrays of shape (n_epochs,)
        Negative mean evidence lower bound per row, computed after rows are centred and scaled
        (counts are neither centred nor scaled). The training loss is the mean during each epoch.
        The held-out loss is computed after each epoch (NaN if no rows are held out). Epochs before
        a warm start are included.
    best_epoch_ : int
        Epoch whose weights were kept.
    n_iter_ : int
        Number of epochs, including those before a warm start.
    converged_ : bool
        Whether the held-out loss had settled before `max_iter`.
    training_state_ : dict of arrays and numbers, or None
        State that a warm start needs: the weights of the last epoch and the state of Adam, at most
        three times the size of `weights_`. It is None if the training diverged.
    seed_ : int
        Seed of everything that is random in the training, drawn from `random_state`.
    latent_sizes_ : tuple of int
        `n_salient` and `n_shared` of the fit.
    noise_ : {"normal", "counts"}
        `noise` of the fit.
    own_networks_ : tuple of str
        Names of the networks that were given as `networks`.
    n_features_in_ : int
        Number of features, D.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if the data had names.

    Notes
    -----
    The paper has one encoder of z for each dataset. Here one encoder of z serves both, so that rows
    of unknown origin can be embedded. The salient encoder can also be applied to background rows.

    As in any variational autoencoder, the latent variables are not unique: rotations, among other
    changes, give an equivalent model. The axes of a scatter plot therefore have no meaning on their
    own, and other seeds give other pictures. Two salient dimensions separate images of two
    different digits, but not images of all ten digits.

    See Also
    --------
    CLVM : The linear counterpart, fitted by exact maximum likelihood.

    References
    ----------
    Severson, Ghosh and Ng, arXiv:1811.06094, Sec. 2.4 (eq. 16 and 17) and Sec. 4.4. Abid and Zou,
    arXiv:1902.04601. Counts: the negative binomial model of Lopez et al., "Deep generative modeling
    for single-cell transcriptomics", Nature Methods 15, 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core import CVAE
    >>> rng = np.random.default_rng(0)
    >>> shared = np.outer(rng.normal(size=400), np.ones(10)) + 0.3 * rng.normal(size=(400, 10))
    >>> turn = rng.uniform(0, 2 * np.pi, size=200)
    >>> foreground, background = shared[:200].copy(), shared[200:]
    >>> foreground[:, :2] += 3 * np.column_stack([np.cos(turn), np.sin(turn)])
    >>> cvae = CVAE(max_iter=5, random_state=0).fit(foreground, background=background)
    >>> cvae.transform(foreground).shape, cvae.sample_foreground(7).shape
    ((200, 2), (7, 10))
    """

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

    # The user's own networks are code, which model files do not hold. The device may not exist on
    # the machine that reads the file.
    _not_saved: ClassVar[tuple[str, ...]] = ("networks", "device")

    def __init__(
        self,
        n_salient: int = 2,
        *,
        n_shared: int = 8,
        noise: Noise = "normal",
        networks: Mapping[str, nn.Module] | None = None,
        max_iter: int | None = None,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        validation_fraction: float = 0.1,
        warm_start: bool = False,
        device: Any = None,
        progress: Progress = False,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_salient = n_salient
        self.n_shared = n_shared
        self.noise = noise
        self.networks = networks
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.validation_fraction = validation_fraction
        self.warm_start = warm_start
        self.device = device
        self.progress = progress
        self.random_state = random_state

    def fit(self, X: MatrixLike, y: object = None, *, background: MatrixLike) -> Self:
        """Train the networks.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, stored dataset, dask array or torch tensor of \
                shape (n, n_features)
            Foreground rows, of one condition or several together. The rows are read in minibatches,
            and only minibatches are made dense.
        y : ignored
        background : as X, of shape (m, n_features)
            Background rows, with the features of `X` in the same order.

        Returns
        -------
        Self

        Raises
        ------
        ValueError, TypeError
            If a parameter is out of range, the two datasets have different features, a dataset has
            only one row, or the background does not vary. The error is also raised if a value is
            NaN or infinite, if it is not a count with ``noise="counts"``, if a network's output has
            the wrong shape, or if the loss is NaN or infinite in the first epoch. If the loss is
            NaN or infinite in a later epoch, there is a warning instead, and the best weights so
            far are kept.
        ImportError
            If torch is not installed.
        """
        _check_torch()
        from contrast_core.deep._fit import fit_networks
        from contrast_core.deep._training import arrays_of

        sizes, noise = self._sizes(), self._noise()
        settings: dict[str, Any] = {
            "batch_size": check_count(self.batch_size, "batch_size", at_least=2),
            "learning_rate": check_number(self.learning_rate, "learning_rate", above=0),
            "held_out_share": check_number(
                self.validation_fraction, "validation_fraction", at_least=0, at_most=0.5
            ),
            "max_epochs": self.max_iter
            if self.max_iter is None
            else check_count(self.max_iter, "max_iter"),
        }
        device = self._device()
        going_on = check_flag(self.warm_start, "warm_start") and hasattr(self, "weights_")
        x, y_ = self._datasets(X, background)
        if going_on:
            self._check_continuation(x, sizes, noise)
            check_values((x, y_), noise)
            scale, seed = self._scale, self.seed_
        else:
            scale = background_scale(x, y_, noise)
            seed = int(check_generator(self.random_state).integers(2**63))
        networks = self._networks(x.shape[1], sizes, noise, seed)
        if going_on:
            networks.restore(self.weights_)
        history = fit_networks(
            networks,
            x,
            y_,
            scale,
            **settings,
            seed=seed,
            device=device,
            progress=x.progress or self.progress,
            before=self._history() if going_on else None,
        )
        if history.ended == "not finite":
            warn(
                f"the loss is NaN or infinite in epoch {len(history.training)}, so the weights "
                f"after epoch {history.best} are kept. Lower the learning rate, or look for rows "
                "with far larger values than other rows."
            )
        weights, state = arrays_of(networks.state_dict()), history.state
        if state is not None and history.best == len(history.training):
            state = state._replace(weights=weights)
        variance = np.exp(2 * weights["log_noise"].astype(np.float64))
        return self._set_fitted(
            x.names,
            n_features_in_=x.shape[1],
            weights_=weights,
            **scale._asdict(),
            noise_variance_=variance
            if scale.rates_ is not None
            else float(variance) * scale.unit_**2,
            training_loss_=history.training,
            held_out_loss_=history.held_out,
            best_epoch_=history.best,
            n_iter_=len(history.training),
            converged_=history.ended == "settled",
            training_state_=None if state is None else state._asdict(),
            seed_=seed,
            latent_sizes_=sizes,
            noise_=noise,
            own_networks_=tuple(sorted(self.networks or {})),
        )

    @property
    def _n_features_out(self) -> int:
        return self.latent_sizes_[0]

    def transform(self, X: MatrixLike) -> FloatArray:
        """Return the posterior means of the salient latent variables.

        Background rows can be embedded as well. They lie near the foreground rows that have no
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
        return self._mapped(X, "salient")

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
        return self._mapped(X, "shared")

    def denoise(self, X: MatrixLike) -> FloatArray:
        r"""Return the salient part of rows, :math:`f_t(\operatorname{E} t)`.

        The paper calls it the de-noised target. The shared part and the mean of the background are
        left out. For counts, the salient part and the shared part are factors of the expected
        counts. The result is then the mean profile of the background, multiplied by the salient
        factor alone and scaled to the sum of each row.

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
        return self._mapped(X, "denoised")

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
        return self._mapped(X, f"{dataset}_bounds")[:, 0]

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

    def _mapped(self, X: MatrixLike, what: str) -> FloatArray:
        """Apply the method `what` of `Coder` to rows."""
        rows, coder = self._rows(X), self._coder()
        widths = dict(zip(("salient", "shared"), self.latent_sizes_, strict=True))
        width = (widths | {"denoised": self.n_features_in_}).get(what, 1)
        result: FloatArray = rows.map(partial(getattr(coder, what)), width, dense=True)
        return result

    @property
    def _scale(self) -> BackgroundScale:
        return BackgroundScale(self.mean_, self.unit_, self.rates_, self.total_)

    def _device(self) -> Any:
        return check_device("cpu" if self.device is None else self.device)

    def _coder(self) -> Coder:
        """Rebuild the fitted networks from the weights, which are kept as arrays."""
        check_is_fitted(self)
        from contrast_core.deep._coding import Coder

        given = tuple(sorted(self.networks or {}))
        if given != self.own_networks_:
            raise ValueError(
                f"this CVAE was fitted with custom networks for {list(self.own_networks_)}, but "
                f"the parameter networks has {list(given)}. Model files hold weights, not code: "
                "give the same networks by set_params(networks=...)."
            )
        networks = self._networks(self.n_features_in_, self.latent_sizes_, self.noise_, 0)
        networks.restore(self.weights_)
        return Coder(networks, self._scale, self._device())

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

    def _history(self) -> History:
        """Return the training that a warm start continues."""
        from contrast_core.deep._training import History, State

        state = self.training_state_
        return History(
            *(self.training_loss_, self.held_out_loss_, self.best_epoch_),
            "settled" if self.converged_ else "max_epochs",
            None if state is None else State(**state),
        )

    def _check_loaded(self) -> None:
        """Raise ValueError unless the weights, state and seed of a file are valid."""
        state, parts = self.training_state_, [self.weights_]
        if state is not None:
            parts += [state["weights"], *state["adam"].values()]
        for part in parts:
            for name, values in part.items():
                if not isinstance(values, np.ndarray) or not np.isfinite(values).all():
                    raise ValueError(f"{name!r} of its weights is not an array of finite numbers")
        if not isinstance(self.seed_, int):
            raise ValueError(f"its seed is {shown(self.seed_)}")

    def _datasets(self, X: MatrixLike, background: MatrixLike) -> tuple[Rows, Rows]:
        x, y = contrast_rows(X, background)
        for rows in (x, y):
            check_known_length(rows.shape[0], rows.name)
        return x, y

    def _sizes(self) -> tuple[int, int]:
        return check_count(self.n_salient, "n_salient"), check_count(self.n_shared, "n_shared")

    def _noise(self) -> Noise:
        check_choice(self.noise, "noise", get_args(Noise))
        return self.noise

    def _check_continuation(self, x: Rows, sizes: tuple[int, int], noise: Noise) -> None:
        fitted, asked = (*self.latent_sizes_, self.noise_), (*sizes, noise)
        if fitted != asked:
            raise ValueError(
                "warm_start=True continues a fit with (n_salient, n_shared, noise) = "
                f"{shown(fitted)}, but these parameters are now {shown(asked)}. Set them back, or "
                "fit again with warm_start=False."
            )
        self._rows(x)  # checks that the features are those of the fit


def _check_torch() -> None:
    if find_spec("torch") is None:
        raise ImportError("CVAE needs torch: run pip install torch.")
