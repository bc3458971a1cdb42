"""Contrastive latent variable models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from contrast_core._base import Dataset, Offset
from contrast_core._linear_map import LinearMap
from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_count,
    check_flag,
    check_generator,
    check_number,
)
from contrast_core.feedback import Progress, warn
from contrast_core.moments import Moments
from contrast_core.probabilistic._clvm_checks import (
    check_combination,
    check_dimensions,
    check_in_memory,
    check_sparsity,
    check_streamed,
    check_tails,
    check_torch,
)
from contrast_core.probabilistic._clvm_likelihood import Likelihood, Search
from contrast_core.probabilistic._clvm_moments import MomentLikelihood
from contrast_core.probabilistic._clvm_priors import PriorSettings, Sparsity
from contrast_core.probabilistic._clvm_rows import RowLikelihood, observed_rows
from contrast_core.probabilistic._clvm_selection import fit_selected
from contrast_core.probabilistic._clvm_start import modelled, starting_point
from contrast_core.probabilistic._latent_model import LatentModel, any_missing
from contrast_core.probabilistic._row_posterior import Tails
from contrast_core.rows import Rows
from contrast_core.solve import Design, Plan, contrast_moments


class CLVM(LatentModel):
    r"""Contrastive latent variable model: shared variation, and variation of the foreground alone.

    Shared latent variables z act on both datasets. Salient latent variables t act on the foreground
    only:

    .. math:: x = S z + W t + \mu_x + \varepsilon, \qquad y = S z + \mu_y + \varepsilon,

    All latent variables are standard normal, and :math:`\varepsilon \sim N(0, \sigma^2 I_D)`. The
    fit chooses S, W and :math:`\sigma^2` to maximise the likelihood of all rows; :math:`\mu_x` and
    :math:`\mu_y` are the means of the datasets. You choose the two numbers of dimensions, but no
    contrast strength.

    Expectation maximisation (EM) needs only the numbers of rows, the means and the covariances:
    each iteration multiplies the covariances by the loadings.

    Both datasets may have missing values (NaN), and `robust` reduces the weight of outliers. In
    both cases the fit maximises the likelihood of the observed values of each row, and every step
    of EM reads the rows. Missing values, `robust`, `sparsity` (which selects features) and `ard`
    (which selects shared dimensions) can be combined.

    ``inference="vi"`` maximises the variational bound by stochastic gradients, starting from the
    solution that EM finds. It is needed for counts, and for robust fits to data that are not in
    memory. It is slower and less exact than ``"em"``, so prefer ``"em"`` if both are possible.

    Parameters
    ----------
    n_salient : int, default=2
        Number of salient latent dimensions, at least 0. Below, t stands for this number in shapes
        and sums, and for the salient variables elsewhere. The sum k + t must be at least 1 and
        below the number of features that vary, to leave one direction for the noise.
    n_shared : int, default=2
        Number of shared latent dimensions, k, at least 0.
    noise : "normal" or "counts", default="normal"
        Distribution of the values. "counts" needs ``inference="vi"`` and models raw counts as
        negative binomial, with mean :math:`\ell_i \exp(\mu_j + s_j^\top z_i + w_j^\top t_i)`, where
        :math:`\ell_i` is the row's total, and :math:`s_j` and :math:`w_j` are the rows of S and W.
        Each feature has its own dispersion. The loadings then describe logarithms of rates. Only
        differences of loadings between features have a meaning, because a factor common to all
        features is part of the total.
    sparsity : "auto", "horseshoe" or float above 0, optional
        How to select the features that have salient loadings. By default all features have salient
        loadings.

        A number is the rho of the penalty :math:`\rho \sum_i \|w_i\| / \|\hat w_i\|`, in units of
        the log-likelihood, where :math:`\hat w_i` are the rows of the unpenalised W. Features whose
        salient loadings add less than about rho / 2 to the log-likelihood are dropped. A last fit
        without the penalty holds their rows of W at zero.

        "auto" tries rho from 1 to 740,000 and takes the selection with the smallest Bayesian
        information criterion. If the criterion is smallest without salient variables, the model has
        none (``t = 0``). With ``inference="vi"`` the features are selected in the EM fit from which
        it starts.

        "horseshoe" keeps the features that the horseshoe prior does not shrink to zero. The prior
        is :math:`w_i \sim N(0, \rho_i^2 \tau^2 I)` with half-Cauchy scales. With missing values or
        `robust` it needs "vi". With ``n_salient=1``, the horseshoe drops features without a salient
        part less reliably if there are only a few of them.
    ard : bool, default=False
        Whether to choose the number of shared dimensions by automatic relevance determination;
        `n_shared` is then the largest number. A vague prior on the length of each column of S
        shrinks a column to zero if it adds too little to the likelihood. A last fit without the
        prior uses the other columns. The chosen number is right if the noise has the same variance
        in every direction. Otherwise, as in the mouse data and most real tables, all columns are
        kept.
    robust : "entries" or "rows", optional
        Whether to replace the normal distribution by Student's t, with 4 degrees of freedom.
        "entries" is for single wrong values: the noise of each value has its own t distribution.
        "rows" is for samples that are wrong as a whole: the noise and the latent variables of a row
        have a joint t distribution. The data must be in memory, except with "vi".
    priors : dict, optional
        Parameters of the paper's priors, under these names:

        ``"degrees_of_freedom"`` (4)
            Degrees of freedom of Student's t, with `robust`. Half of this number is the shape a of
            the paper's inverse gamma prior of the noise variance. The rate b of this prior is not
            set but estimated: it is the product of a and `noise_variance_`.
        ``"adaptive_penalty"`` (True)
            False selects the paper's penalty :math:`\rho \sum_i \|w_i\|`. The unit of rho is then
            the inverse unit of the data. It needs a number for `sparsity`.
        ``"feature_groups"``
            Labels of the features, (n_features,), such as the sensor that each one belongs to.
            With a number or "auto" for `sparsity`, the penalty then applies to the joint length of
            all rows of W in a group, so that the features of a group are selected together.
        ``"horseshoe_scale"`` (1)
            :math:`b_g` of the half-Cauchy prior of the global scale,
            :math:`\tau \sim C^+(0, b_g)`.
        ``"horseshoe_threshold"``, ``"horseshoe_probability"`` (0.5)
            The threshold :math:`\delta` and the probability :math:`p_0`. A feature is dropped if
            :math:`\rho_i^2 \tau^2` is below :math:`\delta` with a probability above :math:`p_0`.
            The default threshold is the larger of 0.01 and :math:`8 \sigma^2 / n` for n foreground
            rows, in units of the features' mean variance.
        ``"ard_shape"``, ``"ard_rate"`` (0.001 each)
            :math:`a_0` and :math:`b_0` of the inverse gamma prior of the variance of each shared
            column, with `ard`; :math:`b_0` is in units of the noise variance.
    inference : "em" or "vi", default="em"
        "em" is expectation maximisation. "vi" is stochastic variational inference, which needs
        torch and reads minibatches of rows from data of every kind.

        With "vi" the posterior of a row's latent variables has a full covariance. With normal noise
        and with ``robust="rows"`` this posterior is exact, and the bound equals the log-likelihood.
        With ``robust="entries"`` each value has a random weight, and the posterior of the latent
        variables is assumed to be independent of the posteriors of these weights. For counts it is
        the best normal approximation. With ``sparsity="horseshoe"`` the rows of W have posteriors
        too, and gradients are taken at draws from them.
    n_init : int, default=1
        Number of starts; the most likely solution is kept. The first start consists of the leading
        components of the background and of the contrast. The others are random.
    tol : float above 0, default=1e-6
        EM ends when the gradient of the log-likelihood per row is shorter than this. The gradient
        is taken with respect to the loadings, in units of the noise's standard deviation, and to
        the logarithm of the noise variance. (The likelihood is constant to nine digits long before
        the subspaces stop turning.) With missing values or `robust`, EM ends instead when its step
        in these parameters is shorter than ten times `tol`. "vi" ignores `tol`. It ends once the
        bound has not risen for eight passes at each of three learning rates.
    max_iter : int, default=3000
        Largest number of evaluations of the likelihood for each start. With missing values or
        `robust` each evaluation reads the rows. With "vi", largest number of passes over the rows.
    random_state : int, Generator or None, default=None
        Seed of the random starts. With "vi" it also seeds the order of minibatches and the draws.
    device : str or torch.device, optional
        Device on which "vi" computes, such as "cuda"; by default the CPU.
    progress : bool or callable, default=False
        Whether to show a progress bar of the passes of "vi". A callable replaces tqdm and takes the
        same arguments.

    Attributes
    ----------
    components_ : ndarray of shape (t, n_features)
        Orthonormal rows that span the columns of W. In each row the entry of largest magnitude is
        positive.
    salient_loadings_ : ndarray of shape (n_features, t)
        W, rotated so that its columns are orthogonal and in descending order of length. (The model
        does not determine the rotation.)
    selected_ : ndarray of bool of shape (n_features,)
        Features with a salient loading.
    shared_loadings_ : ndarray of shape (n_features, k)
        S, rotated in the same way. With `ard` it has only the columns that are kept. The columns of
        S need not be orthogonal to the columns of W.
    noise_variance_ : float
        Noise variance sigma^2; with `robust`, the squared scale of Student's t. Not set for counts.
    degrees_of_freedom_ : float
        With `robust` only: degrees of freedom of Student's t.
    shrunk_probability_ : ndarray of shape (n_features,)
        With ``sparsity="horseshoe"`` only: posterior probability that :math:`\rho_i^2 \tau^2` of a
        feature is below the threshold of `priors`; 1 for constant features.
    dispersions_ : ndarray of shape (n_features,)
        For counts only: r of each feature. A count with mean a has the variance
        :math:`a + a^2 / r`.
    library_size_ : float
        For counts only: mean total of the foreground's rows. Rows that are sampled have this total.
    latent_covariance_ : ndarray of shape (t, t)
        Covariance of t given a complete row, which is the same for every row. With `robust` it is
        the covariance for a row whose values have the weight 1. Not defined for counts.
    tails_ : {"normal", "entries", "rows", "counts"}
        Distribution of the values in the fit; "normal" without `robust`.
    log_likelihoods_ : ndarray of shape (number of accepted steps,)
        Log-likelihood (natural logarithm) of all rows of both datasets at the start and after each
        step. Features that do not vary are left out. The log-likelihood does not fall, except by
        rounding errors, which grow with the ratio of the largest variance to the noise variance.
        With ``robust="entries"`` it is the variational lower bound. Not set with "vi".
    elbo_ : ndarray of shape (number of passes + 2,)
        With "vi" only: the variational lower bound of the log-likelihood at the start, after each
        pass and at the end. The fit ends with the parameters of the highest bound.
    n_iter_ : int
        Number of steps that EM took. With "vi", the number of passes over the rows.
    converged_ : bool
        Whether `tol` was reached. With "vi", whether the bound had stopped rising.
    foreground_variance_, background_variance_ : ndarray of shape (t,)
        Variances of foreground and background along each component. With missing values or `robust`
        they are the variances under the model, from the loadings and `noise_variance_`.
    contrast_index_ : ndarray of shape (t,)
        :math:`(v_X - v_Y) / (v_X + v_Y)`, where :math:`v_X` and :math:`v_Y` are the foreground and
        background variances. It is between -1 (background only) and 1 (foreground only), or NaN
        where neither dataset varies.
    mean_, background_mean_ : ndarray of shape (n_features,)
        Means of foreground and background. For counts, logarithms of each feature's share of a
        row's total when all latent variables are zero.
    foreground_moments_, background_moments_ : SecondMoments or SpanMoments
        Moments of the data; not set with missing values or `robust`. Data with more features than
        rows give SpanMoments, which refer to the rows themselves.
    projection_, reconstruction_ : ndarrays of shape (n_features, t) and (t, n_features)
        `projection_` maps centred rows to scores, the posterior means of t; `reconstruction_` maps
        scores back, as in `inverse_transform`. Together with the mean they form `linear_map_`, a
        `contrast_core.spectral.LinearMap`. They do not exist for counts, or with
        ``robust="entries"``, which weights each value of a row.
    n_features_in_ : int
        Number of features, D.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if the data had names.

    Raises
    ------
    ValueError
        `fit` raises it in these cases:

        - With all data: if the latent variables explain all variance, so that the likelihood has no
          maximum, if `sparsity` leaves no feature, or if a parameter is out of range.
        - With missing values or `robust`: if a feature is never observed in one of the datasets, if
          fewer than two rows have a value, or if ``sparsity="horseshoe"`` is given without "vi".
        - With missing values, `robust` or "vi": if `within`, weights or several backgrounds are
          given, which need moments.
        - With counts: if values are not whole numbers of at least 0.
    ImportError
        With "vi", if torch is not installed.

    Warns
    -----
    ContrastWarning
        If the fit has not converged after `max_iter` evaluations or passes, or if the scales of the
        two datasets differ by orders of magnitude.

    See Also
    --------
    PCPCA : One set of latent variables, in closed form, with a contrast strength.

    Notes
    -----
    Without salient variables the model is probabilistic PCA of both datasets, each about its own
    mean. Without shared variables W spans the subspace that probabilistic PCA of the foreground
    finds, but the noise is estimated from both datasets:
    :math:`\sigma^2 = (n \sum_{i>t} \lambda_i(C_X) + m \operatorname{tr} C_Y) /
    (n(D - t) + mD)` for n foreground and m background rows.

    The noise has the same variance in every feature. If the units of the features are arbitrary,
    standardise each dataset on its own first. If k is too small, the background variation beyond k
    shared dimensions counts as noise, and W finds variation that both datasets have. If k is too
    large, S explains variation that only the foreground has. On the mouse data any k from 1 to 8
    separates the groups. The weight of a dataset in the likelihood is its number of rows, or the
    total weight of its rows. The weight of several backgrounds is their total number of rows.
    Features that vary in neither dataset are left out of the likelihood.

    References
    ----------
    Severson, Ghosh and Ng, "Unsupervised learning with contrastive latent variable models", AAAI
    2019, arXiv:1811.06094: eqs. 2 to 5; Sec. 2.3 for sparsity, relevance determination and robust
    noise. For ``robust="rows"``: Archambeau, Delannay and Verleysen, "Robust probabilistic
    projections", ICML 2006.

    Examples
    --------
    >>> from contrast_core import CLVM
    >>> from contrast_core.datasets import load_mouse_protein
    >>> mice = load_mouse_protein()
    >>> clvm = CLVM().fit(mice.foreground, background=mice.background)
    >>> clvm.transform(mice.foreground).shape, clvm.shared_loadings_.shape
    ((270, 2), (77, 2))
    >>> clvm.converged_, round(clvm.noise_variance_, 2)
    (True, 0.43)
    """

    shared_loadings_: FloatArray
    salient_loadings_: FloatArray
    tails_: Tails
    degrees_of_freedom_: float
    shrunk_probability_: FloatArray
    selected_: NDArray[np.bool_]
    log_likelihoods_: FloatArray
    n_iter_: int
    converged_: bool
    foreground_variance_: FloatArray
    background_variance_: FloatArray
    contrast_index_: FloatArray
    foreground_moments_: Moments
    background_moments_: Moments

    def __init__(
        self,
        n_salient: int = 2,
        *,
        n_shared: int = 2,
        noise: Literal["normal", "counts"] = "normal",
        sparsity: Sparsity | None = None,
        ard: bool = False,
        robust: Literal["entries", "rows"] | None = None,
        priors: Mapping[str, Any] | None = None,
        inference: Literal["em", "vi"] = "em",
        n_init: int = 1,
        tol: float = 1e-6,
        max_iter: int = 3000,
        random_state: int | np.random.Generator | None = None,
        device: Any = None,
        progress: Progress = False,
    ) -> None:
        self.n_salient = n_salient
        self.n_shared = n_shared
        self.noise = noise
        self.sparsity = sparsity
        self.ard = ard
        self.robust = robust
        self.priors = priors
        self.inference = inference
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.device = device
        self.progress = progress

    @property
    def _tails(self) -> Tails:
        return self.tails_

    @property
    def _n_shared(self) -> int:
        return int(self.shared_loadings_.shape[1])

    def _loadings(self, dataset: str) -> FloatArray:
        if dataset == "background":
            return self.shared_loadings_
        return np.hstack([self.shared_loadings_, self.salient_loadings_])

    @property
    def _projector(self) -> LinearMap:
        return self.linear_map_

    def denoise(self, X: MatrixLike, *, offset: Offset = "foreground") -> FloatArray:
        r"""Remove the shared part and the noise from rows, and keep the salient part.

        .. math:: \hat x = W (W^\top M W)^{-1} W^\top M (x - \mu_x) + \text{offset}

        with :math:`M = (S S^\top + \sigma^2 I)^{-1}`. This is the generalised least squares
        estimate of W t, in which the shared part and the noise are the errors. It is an oblique
        projection on the span of W.

        Parameters
        ----------
        X : as for `transform`
            Rows to denoise.
        offset : {"foreground", "difference", "none"}, default="foreground"
            Mean to add to the denoised rows, as in `CPCA.denoise`.

        Returns
        -------
        ndarray of shape (n, n_features)

        Raises
        ------
        ValueError
            If `offset` is not one of these three strings, if the features are not those of the fit,
            or if a value is NaN or infinite.
        """
        return super().denoise(X, offset=offset)

    def transform_shared(
        self,
        X: MatrixLike,
        *,
        dataset: Dataset = "foreground",
        within: ArrayLike | None = None,
    ) -> FloatArray:
        """Return the posterior means of the shared latent variables.

        Parameters
        ----------
        X : as for `transform`
            Rows of either dataset, or new rows.
        dataset : {"foreground", "background"}, default="foreground"
            The dataset whose model the rows follow. The model of the background has no salient
            part.
        within : array-like of shape (n,), optional
            Labels, as for `transform`. A background row is centred by the mean of the rows of `X`
            with the same label.

        Returns
        -------
        ndarray of shape (n, n_shared)
            For a dask array or a tensor, the result is of the same kind, as from `transform`.

        Raises
        ------
        ValueError
            If `dataset` is neither of the two names, or in the cases of `transform`.
        TypeError
            In the cases of `transform`.
        """
        check_is_fitted(self)
        return self._latent_means(X, dataset, slice(self._n_shared), within)

    def sample_background(
        self,
        n_samples: int = 1,
        *,
        add_noise: bool = False,
        random_state: int | np.random.Generator | None = None,
    ) -> FloatArray:
        """Draw rows from the model of the background, which has no salient part.

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
            If `n_samples` is not an integer of at least 1.
        """
        return self._sample("background", n_samples, add_noise, random_state)

    def _fit_parts(self, parts: Sequence[Rows], design: Design) -> Self | None:
        tails = check_tails(self.robust, self.noise, self.inference)
        if self.inference == "vi":
            return self._fit_variational(parts, design, tails)
        if tails != "normal" and not parts:
            raise TypeError(
                f"robust={tails!r} weighs rows, but moments were given, which do not contain them. "
                "Give the rows, or leave robust out."
            )
        weighted = tails != "normal" or any_missing(parts)
        return self._fit_rows(parts, design, tails) if weighted else None

    def _fit_rows(self, parts: Sequence[Rows], design: Design, tails: Tails) -> Self:
        what = "missing values (NaN)" if tails == "normal" else f"robust={tails!r}"
        check_combination(parts, design, what)
        if tails != "normal":
            check_in_memory(parts, what)
        rows = observed_rows(*parts)
        k, search = self._search(rows.varies)
        search = search._replace(tol=10 * search.tol)
        return self._maximised(RowLikelihood.from_rows(rows, tails, k, search), rows.names, tails)

    def _fit_moments(self, foreground: Moments, background: Moments, plan: Plan) -> Self:
        x, y = foreground, background
        k, search = self._search(x.varies | y.varies)
        return self._maximised(MomentLikelihood.from_moments(x, y, k, search), x.feature_names)

    def _maximised(
        self, likelihood: Likelihood, names: tuple[str, ...] | None, tails: Tails = "normal"
    ) -> Self:
        found = fit_selected(likelihood)
        attributes = likelihood.described(found) | {
            "n_iter_": len(found.fit.log_likelihoods) - 1,
            "converged_": found.fit.converged,
        }
        if found.shrunk is not None:
            attributes["shrunk_probability_"] = found.shrunk
        return self._described(names, tails, likelihood.search, attributes)

    def _fit_variational(self, parts: Sequence[Rows], design: Design, tails: Tails) -> Self:
        check_streamed(parts, design)
        device, varies = check_torch(self.device), modelled(parts, tails)
        k, search = self._search(varies)
        start = starting_point(parts, varies, k, search, tails)
        from contrast_core.probabilistic._clvm_variational import fit_variational  # needs torch

        found = fit_variational(parts, start, tails, search, device, self.progress)
        names = parts[0].names or parts[1].names
        return self._described(names, tails, search, found.described(tails))

    def _search(self, varies: NDArray[np.bool_]) -> tuple[int, Search]:
        """Return k and the settings of the search for a maximum, all checked."""
        k, t = check_dimensions(self.n_shared, self.n_salient, int(varies.sum()))
        priors = PriorSettings.from_mapping(self.priors, len(varies))
        return k, Search(
            t,
            check_count(self.n_init, "n_init"),
            check_generator(self.random_state),
            check_number(self.tol, "tol", above=0),
            check_count(self.max_iter, "max_iter"),
            priors,
            check_sparsity(self.sparsity, t, priors),
            check_flag(self.ard, "ard"),
        )

    def _described(
        self,
        names: tuple[str, ...] | None,
        tails: Tails,
        search: Search,
        attributes: dict[str, Any],
    ) -> Self:
        if not attributes["converged_"]:
            warn(
                f"the likelihood still rises after max_iter={self.max_iter} evaluations or passes. "
                "Use a larger max_iter, or fewer latent variables."
            )
        if tails in ("entries", "rows"):
            attributes["degrees_of_freedom_"] = search.priors.degrees_of_freedom
        return self._set_fitted(names, tails_=tails, **attributes)

    def _moments(
        self, X: MatrixLike | Moments, background: object, design: Design
    ) -> tuple[Moments, Moments, Plan]:
        # Sparsity selects rows of the loadings, so each of these rows must belong to a feature.
        # For more features than rows, the solver "auto" would give rows that belong to coordinates
        # in the span of the data. The solver "eigh" always keeps the features.
        solver = "auto" if self.sparsity is None else "eigh"
        return contrast_moments(X, background, solver=solver, products=False, design=design)
