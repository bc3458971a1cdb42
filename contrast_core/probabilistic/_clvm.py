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
from contrast_core.probabilistic._clvm_likelihood import (
    Likelihood,
    MomentLikelihood,
    RowLikelihood,
    Search,
)
from contrast_core.probabilistic._clvm_priors import PriorSettings
from contrast_core.probabilistic._clvm_rows import observed_rows
from contrast_core.probabilistic._clvm_selection import Sparsity, fit_selected
from contrast_core.probabilistic._clvm_start import modelled, starting_point
from contrast_core.probabilistic._latent_model import LatentModel, any_missing
from contrast_core.probabilistic._row_posterior import Tails
from contrast_core.rows import Rows
from contrast_core.solve import Design, Plan, contrast_moments


class CLVM(LatentModel):
    r"""Contrastive latent variable model: latent variables of both datasets, and of one only.

    Shared latent variables z act on foreground and background alike, salient ones t on the
    foreground alone,

    .. math:: x = S z + W t + \mu_x + \varepsilon, \qquad y = S z + \mu_y + \varepsilon,

    all of them standard normal and :math:`\varepsilon \sim N(0, \sigma^2 I_D)`. S, W and
    :math:`\sigma^2` maximise the likelihood of all rows, with each dataset's mean for
    :math:`\mu`. There is no contrast strength to choose, but the two numbers of dimensions.

    The likelihood needs no more of the data than numbers of rows, means and covariances, so neither
    does expectation maximisation: an iteration is a product of the covariances with the loadings.

    Values may be missing, as NaN, in foreground and background, and outliers may count for less,
    with `robust`. The likelihood is then that of what is observed of each row, and expectation
    maximisation reads the rows, weighted, in every step. All of this combines, and with the
    selection of features by `sparsity` and of shared dimensions by `ard`.

    Where there is no closed form, ``inference="vi"`` climbs the variational bound by stochastic
    gradients: for counts, and for robust fits to data that are not in memory. It begins at what
    expectation maximisation finds, and is slower and less exact: prefer ``"em"`` wherever that can
    do the same.

    Parameters
    ----------
    n_salient : int, default=2
        Salient latent dimensions, t, from 0; k + t from 1 to one below the number of features that
        vary: at least one direction must be left for the noise.
    n_shared : int, default=2
        Shared latent dimensions, k, from 0.
    noise : "normal" or "counts", default="normal"
        Distribution of the values. "counts", with "vi", is for raw counts: negative binomial, with
        mean :math:`\ell_i \exp(\mu_j + s_j^\top z_i + w_j^\top t_i)` with the row's total
        :math:`\ell_i` and a dispersion for each feature. Loadings are then of logarithms of rates,
        and relative: what would multiply all features alike is in the total.
    sparsity : "auto", "horseshoe" or float above 0, optional
        Salient loadings of few features: those that the penalty
        :math:`\rho \sum_i \|w_i\| / \|\hat w_i\|` on the rows of W leaves, with the most likely
        rows as weights. The likelihood is then maximised with the other rows at zero. A number is
        rho, in units of the log-likelihood: features whose salient loadings add less than about
        half of it are dropped. "auto" takes the features of least Bayesian information criterion,
        for rho from 1 to 740,000, or none, if it is least without salient variables; the model then
        has ``t = 0``. "vi" takes the rho that this gives for the fit it begins with.
        "horseshoe", with missing values or `robust` of "vi" only, takes instead those that the
        horseshoe prior does not shrink away, :math:`w_i \sim N(0, \rho_i^2 \tau^2 I)` with
        half-Cauchy scales: a feature goes where :math:`\rho_i^2 \tau^2` is probably below 0.01, in
        units of the features' mean variance, or below :math:`8 \sigma^2 / n`; with
        ``n_salient=1`` and few features to leave out it leaves out fewer. By default all features
        have salient loadings.
    ard : bool, default=False
        Automatic relevance determination of shared dimensions: with a vague prior on the length of
        each column of S those that add too little vanish, and the likelihood is maximised with as
        many as are left; `n_shared` is then the most there may be. Where the noise does not have
        the same variance in every direction, as in the mouse data, it keeps all.
    robust : "entries" or "rows", optional
        Student's t with 4 degrees of freedom instead of the normal distribution: of the noise of
        each value on its own, for single values that are wrong, or of each row as a whole, noise
        and latent variables, for whole samples that are. The data must be in memory, but for "vi".
    priors : dict, optional
        Parameters of the paper's priors, under these names:

        ``"degrees_of_freedom"`` (4)
            Of Student's t, with `robust`. The paper's inverse gamma prior of the noise variance has
            half of it for its shape a; its rate b is that times `noise_variance_`, which the
            likelihood determines.
        ``"adaptive_penalty"`` (True)
            With a number for `sparsity`: False for the paper's :math:`\rho \sum_i \|w_i\|`, rho in
            units of the log-likelihood per unit of the data.
        ``"horseshoe_scale"`` (1)
            :math:`b_g` of the global scale, :math:`\tau \sim C^+(0, b_g)`.
        ``"horseshoe_threshold"``, ``"horseshoe_probability"`` (0.5)
            A feature goes where :math:`\rho_i^2 \tau^2` is below :math:`\delta` with a probability
            above :math:`p_0`. By default the larger of 0.01 and :math:`8 \sigma^2 / n`, in units of
            the features' mean variance.
        ``"ard_shape"``, ``"ard_rate"`` (0.001 each)
            :math:`a_0` and, in units of the noise variance, :math:`b_0` of the inverse gamma prior
            of the variance of each shared column, with `ard`.
    inference : "em" or "vi", default="em"
        Expectation maximisation; or stochastic variational inference, which needs torch, on
        minibatches of rows, dense one by one, of data of every kind. The posterior of a row's
        latent variables has a full covariance. It is the exact one with normal noise and with
        ``robust="rows"``, where the bound is the log-likelihood; with ``robust="entries"`` it is
        independent of the values' weights; for counts it is the best normal one; with
        ``sparsity="horseshoe"`` rows of W have posteriors too, gradients by draws from these.
    n_init : int, default=1
        Starts; the most likely solution is kept. The first is from the leading components of the
        background and of the contrast, the others are random.
    tol : float above 0, default=1e-6
        Where to end: length of the gradient of the log-likelihood per row, by the loadings in units
        of the noise's standard deviation and by the logarithm of its variance. (The likelihood
        stops rising, to nine digits, long before the subspaces stop turning.) With missing values
        or `robust` ten times this is the length of a step, of the loadings in units of the noise's
        standard deviation and of the logarithm of its variance. Not of "vi", which ends
        once the bound has not been higher for eight passes at each of three rates of learning.
    max_iter : int, default=3000
        Evaluations of the likelihood, at most, for each start; each reads the rows with missing
        values or `robust`. Of "vi" passes over the rows to fit, each with another to evaluate.
    random_state : int, Generator or None, default=None
        Seed of the random starts; of the order of minibatches and draws with "vi".
    device : str or torch.device, optional
        Where "vi" computes, such as "cuda"; by default the processor.
    progress : bool or callable, default=False
        Show a bar of the passes of "vi": tqdm's, or one that is called as tqdm is.

    Attributes
    ----------
    components_ : ndarray of shape (t, n_features)
        Orthonormal rows that span the columns of W; the entry of largest magnitude in each is
        positive.
    salient_loadings_ : ndarray of shape (n_features, t)
        W, rotated by its singular vectors: orthogonal columns in descending order of length. (The
        model leaves the rotation open.)
    selected_ : ndarray of bool of shape (n_features,)
        Features with a salient loading.
    shared_loadings_ : ndarray of shape (n_features, k)
        S, rotated likewise; with `ard`, of as many columns as it keeps. They need not be
        orthogonal to those of W.
    noise_variance_ : float
        sigma^2; with `robust` the square of Student's scale, half of the variance. Not of counts.
    dispersions_ : ndarray of shape (n_features,)
        Of counts: r, where a count of mean a has the variance :math:`a + a^2 / r`.
    library_size_ : float
        Of counts: mean total of a row of the foreground, which `sample` gives to all.
    latent_covariance_ : ndarray of shape (t, t)
        Covariance of t given a complete row, the same for every row; with `robust` where its
        weights are 1. Not of counts.
    tails_ : {"normal", "entries", "rows", "counts"}
        What the fit took the distribution to be; "normal" without `robust`.
    log_likelihoods_ : ndarray of shape (number of accepted steps,)
        Log-likelihood of all rows of both datasets at the start and after each step, natural
        logarithms, over the features that vary. It does not fall, but for rounding (which grows
        with the ratio of the largest variance to the noise's). With ``robust="entries"`` it is the
        variational lower bound. Not of "vi".
    elbo_ : ndarray of shape (number of passes + 2,)
        Of "vi": the variational lower bound of that log-likelihood, at the start, after each pass
        and at the end, where the parameters are those of the highest one.
    n_iter_ : int
        Steps taken; passes of "vi".
    converged_ : bool
        Whether `tol` was reached; of "vi", whether the bound no longer rose.
    foreground_variance_, background_variance_ : ndarray of shape (t,)
        Variance of foreground and background along each component; with missing values or `robust`
        the model's, of loadings and `noise_variance_`.
    contrast_index_ : ndarray of shape (t,)
        :math:`(v_X - v_Y) / (v_X + v_Y)` of these two, from -1 (background only) to 1 (foreground
        only); NaN where neither varies.
    mean_, background_mean_ : ndarray of shape (n_features,)
        Means of foreground and background; of counts logarithms of the features' shares of a row's
        total where latent variables are zero.
    foreground_moments_, background_moments_ : SecondMoments or SpanMoments
        What the data were reduced to; not with missing values or `robust`. The latter, for more
        features than rows, hold the rows.
    projection_, reconstruction_ : ndarrays of shape (n_features, t) and (t, n_features)
        From centred rows to scores, the posterior means of t, and back, as `inverse_transform`
        says; with the mean they are `linear_map_`, a `contrast_core.spectral.LinearMap`. There
        are none with ``robust="entries"``, which weighs each value of a row, nor with counts.
    n_features_in_ : int
        Number of features, D.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, where the data had them.

    Raises
    ------
    ValueError
        On `fit`: if the latent variables explain all that varies, so that the likelihood has no
        maximum, `sparsity` leaves no feature, or a parameter is out of range. With missing values
        or `robust`: if a feature is never observed in one of the datasets, fewer than two rows have
        a value, or ``sparsity="horseshoe"`` is given without "vi". With these or "vi": if `within`,
        weights or several backgrounds are given, which need moments. With counts: if they are none.
    ImportError
        With "vi", if torch is not installed.

    Warns
    -----
    ContrastWarning
        If `tol` is not reached after `max_iter` evaluations or passes, or the two datasets' scales
        differ by
        orders of magnitude.

    See Also
    --------
    PCPCA : One set of latent variables, in closed form, with a contrast strength.

    Notes
    -----
    Without salient variables this is probabilistic PCA of both datasets, each about its own mean.
    Without shared ones W spans what probabilistic PCA of the foreground finds, but the noise is
    that of both: :math:`\sigma^2 = (n \sum_{i>t} \lambda_i(C_X) + m \operatorname{tr} C_Y) /
    (n(D - t) + mD)`.

    The noise has the same variance in every feature: standardise the datasets, each on its own,
    where scales mean nothing. What the background has beyond k shared dimensions counts as noise,
    so with a k too small W finds what both have; with one too large S explains what only the
    foreground has. On the mouse data any k from 1 to 8 separates the groups. Each dataset counts by
    its number of rows, several backgrounds by all their rows together, weighted rows by their total
    weight. Features that vary in neither dataset are left out of the likelihood.

    References
    ----------
    Severson, Ghosh and Ng, "Unsupervised learning with contrastive latent variable models", AAAI
    2019, arXiv:1811.06094: eqs. 2 to 5; Sec. 2.3 for sparsity, relevance determination and robust
    noise. Archambeau, Delannay and Verleysen, "Robust probabilistic projections", ICML 2006, for
    whole rows.

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
        priors: Mapping[str, float | bool] | None = None,
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
        r"""The salient part of rows: the shared part and the noise go.

        .. math:: \hat x = W (W^\top M W)^{-1} W^\top M (x - \mu_x) + \text{offset}

        The least squares estimate of W t, with what shared variables and noise add as the errors:
        a projection on the span of W along what the background would do, not an orthogonal one.

        Parameters
        ----------
        X : as for `transform`
            Rows to denoise.
        offset : {"foreground", "difference", "none"}, default="foreground"
            What is added back, as in `CPCA.denoise`.

        Returns
        -------
        ndarray of shape (n, n_features)

        Raises
        ------
        ValueError
            If `offset` is none of the three, the features are not those of the fit, or a value is
            NaN or infinite.
        """
        return super().denoise(X, offset=offset)

    def transform_shared(
        self,
        X: MatrixLike,
        *,
        dataset: Dataset = "foreground",
        within: ArrayLike | None = None,
    ) -> FloatArray:
        """Posterior means of the shared latent variables.

        Parameters
        ----------
        X : as for `transform`
            Rows from anywhere.
        dataset : {"foreground", "background"}, default="foreground"
            Which model the rows are of: that of the background, about its own mean, has no salient
            part.
        within : array-like of shape (n,), optional
            As for `transform`; background rows are centred by their label's mean among these rows.

        Returns
        -------
        ndarray of shape (n, n_shared)
            For a dask array or a tensor, the same, as from `transform`.

        Raises
        ------
        ValueError
            If `dataset` is neither, or as for `transform`.
        TypeError
            As for `transform`.
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
        """Draw rows like those of the background, which have no salient part.

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
                f"robust={tails!r} weighs rows, which moments do not hold: give the data instead, "
                "or leave robust out."
            )
        weighted = tails != "normal" or any_missing(parts)
        return self._fit_rows(parts, design, tails) if weighted else None

    def _fit_rows(self, parts: Sequence[Rows], design: Design, tails: Tails) -> Self:
        what = "missing values (NaN)" if tails == "normal" else f"robust={tails!r}"
        check_combination(parts, design, what)
        if tails != "normal":
            check_in_memory(parts, what)
        rows = observed_rows(*parts)
        k, search, *selection = self._search(int(rows.varies.sum()))
        search = search._replace(tol=10 * search.tol)
        return self._maximised(RowLikelihood(k, search, rows, tails), selection, rows.names, tails)

    def _fit_moments(self, foreground: Moments, background: Moments, plan: Plan) -> Self:
        x, y = foreground, background
        k, search, *selection = self._search(int((x.varies | y.varies).sum()))
        return self._maximised(MomentLikelihood(k, search, x, y), selection, x.feature_names)

    def _maximised(
        self,
        likelihood: Likelihood,
        selection: list[Any],
        names: tuple[str, ...] | None,
        tails: Tails = "normal",
    ) -> Self:
        found = fit_selected(likelihood, *selection)
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
        k, search, sparsity, ard = self._search(int(varies.sum()))
        start = starting_point(parts, varies, k, search, tails, sparsity)
        from contrast_core.probabilistic._clvm_variational import fit_variational  # needs torch

        found = fit_variational(
            parts, start, k, tails, sparsity, ard, search, device, self.progress
        )
        names = parts[0].names or parts[1].names
        return self._described(names, tails, search, found.described(start, tails))

    def _search(self, n_varying: int) -> tuple[int, Search, Sparsity | None, bool]:
        """Return k, how to look for a maximum, and what to select."""
        k, t = check_dimensions(self.n_shared, self.n_salient, n_varying)
        search = Search(
            t,
            check_count(self.n_init, "n_init"),
            check_generator(self.random_state),
            check_number(self.tol, "tol", above=0),
            check_count(self.max_iter, "max_iter"),
            PriorSettings.of(self.priors),
        )
        sparsity = check_sparsity(self.sparsity, t, search.priors)
        return k, search, sparsity, check_flag(self.ard, "ard")

    def _described(
        self,
        names: tuple[str, ...] | None,
        tails: Tails,
        search: Search,
        attributes: dict[str, Any],
    ) -> Self:
        if not attributes["converged_"]:
            warn(
                f"the likelihood still rises after max_iter={self.max_iter} evaluations or passes; "
                "allow more, or use fewer latent variables."
            )
        if tails in ("entries", "rows"):
            attributes["degrees_of_freedom_"] = search.priors.degrees_of_freedom
        return self._set_fitted(names, tails_=tails, **attributes)

    def _moments(
        self, X: MatrixLike | Moments, background: object, design: Design
    ) -> tuple[Moments, Moments, Plan]:
        # Rows of the loadings are features only where the coordinates are.
        solver = "auto" if self.sparsity is None else "eigh"
        return contrast_moments(X, background, solver=solver, products=False, design=design)
