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
    r"""Contrastive latent variable model: what both datasets share, and what one alone has.

    Shared latent variables z act on foreground and background alike, salient ones t on the
    foreground alone,

    .. math:: x = S z + W t + \mu_x + \varepsilon, \qquad y = S z + \mu_y + \varepsilon,

    all of them standard normal and :math:`\varepsilon \sim N(0, \sigma^2 I_D)`. S, W and
    :math:`\sigma^2` maximise the likelihood of all rows; :math:`\mu` is the mean of each dataset.
    There is no contrast strength to choose, only the two numbers of dimensions.

    Expectation maximisation (EM) needs only counts, means and covariances: an iteration is a
    product of the covariances with the loadings.

    Values may be missing, as NaN, in foreground and background, and `robust` lets outliers count
    for less. The likelihood is then that of the observed values of each row, and every step of EM
    reads the rows. Missing values, `robust`, the selection of features by `sparsity` and that of
    shared dimensions by `ard` can be combined.

    ``inference="vi"`` maximises the variational bound by stochastic gradients, for counts and for
    robust fits to data that are not in memory. It begins at what EM finds. It is slower and less
    exact, so prefer ``"em"`` wherever both can do the same.

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
        How to select the features that have salient loadings; by default all have. A number is the
        penalty rho of :math:`\rho \sum_i \|w_i\| / \|\hat w_i\|` on the rows of W, with the rows
        of the unpenalised fit as weights, in units of the log-likelihood: features whose salient
        loadings add less than about rho / 2 are dropped, and the likelihood is then maximised with
        the other rows at zero. "auto" tries rho from 1 to 740,000 and takes the selection with the
        least Bayesian information criterion. If that is least without salient variables, the model
        has none, ``t = 0``. With "vi", rho is chosen for the fit with which it begins.
        "horseshoe" keeps the features that the horseshoe prior,
        :math:`w_i \sim N(0, \rho_i^2 \tau^2 I)` with half-Cauchy scales, does not shrink away; with
        missing values or `robust` it needs "vi". With ``n_salient=1`` and few features to leave
        out it leaves out fewer.
    ard : bool, default=False
        Automatic relevance determination of shared dimensions: under a vague prior on the length of
        each column of S, columns that add too little vanish, and the likelihood is maximised with
        the others. `n_shared` is then the largest number. It finds the right number where the noise
        has the same variance in every direction; where it does not, as in the mouse data and most
        real tables, it keeps all columns.
    robust : "entries" or "rows", optional
        Student's t instead of the normal distribution, with 4 degrees of freedom: "entries" for the
        noise of each value on its own, if single values are wrong; "rows" for each row as a whole,
        noise and latent variables, if whole samples are wrong. The data must be in memory, except
        with "vi".
    priors : dict, optional
        Parameters of the paper's priors, under these names:

        ``"degrees_of_freedom"`` (4)
            Degrees of freedom of Student's t, with `robust`. Half of it is the shape a of the
            paper's inverse gamma prior of the noise variance. The paper's b is not set but
            estimated: it is a times `noise_variance_`.
        ``"adaptive_penalty"`` (True)
            With a number for `sparsity`: False for the paper's :math:`\rho \sum_i \|w_i\|`, rho in
            units of the log-likelihood per unit of the data.
        ``"feature_groups"``
            Labels of the features, (n_features,), such as the sensor that each one belongs to.
            With a number or "auto" for `sparsity` the penalty is then on the length of all rows of
            W of a group together, so that the features of a group are selected together.
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
        Expectation maximisation; or stochastic variational inference, which needs torch and reads
        minibatches of rows from data of every kind. The posterior of a row's latent variables has a
        full covariance. It is exact with normal noise and with ``robust="rows"``, where the bound
        is the log-likelihood; with ``robust="entries"`` it is independent of the values' weights;
        for counts it is the best normal one; with ``sparsity="horseshoe"`` rows of W have
        posteriors too, and gradients are taken at draws from them.
    n_init : int, default=1
        Number of starts; the most likely solution is kept. The first start is the leading
        components of the background and of the contrast, the others are random.
    tol : float above 0, default=1e-6
        Length of the gradient at which EM ends: the gradient of the log-likelihood per row with
        respect to the loadings, in units of the noise's standard deviation, and to the logarithm of
        its variance. (The likelihood is constant to nine digits long before the subspaces stop
        turning.) With missing values or `robust`, ten times `tol` is instead the length of a step
        in these coordinates. Ignored with "vi", which ends once the bound has not risen for eight
        passes at each of three learning rates.
    max_iter : int, default=3000
        Largest number of evaluations of the likelihood for each start; with missing values or
        `robust` each of them reads the rows. With "vi", largest number of passes over the rows.
    random_state : int, Generator or None, default=None
        Seed of the random starts and, with "vi", of the order of minibatches and of draws.
    device : str or torch.device, optional
        Device on which "vi" computes, such as "cuda"; by default the processor.
    progress : bool or callable, default=False
        Whether to show a bar of the passes of "vi": tqdm's, or one that is called as tqdm is.

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
        sigma^2; with `robust` the square of Student's scale. Not set for counts.
    degrees_of_freedom_ : float
        With `robust` only: degrees of freedom of Student's t.
    shrunk_probability_ : ndarray of shape (n_features,)
        With ``sparsity="horseshoe"`` only: posterior probability that :math:`\rho_i^2 \tau^2` of a
        feature is below the threshold of `priors`; 1 for constant features.
    dispersions_ : ndarray of shape (n_features,)
        For counts only: r, where a count of mean a has the variance :math:`a + a^2 / r`.
    library_size_ : float
        For counts only: mean total of the foreground's rows, which samples have for theirs.
    latent_covariance_ : ndarray of shape (t, t)
        Covariance of t given a complete row, the same for every row; with `robust` for weights of
        1. Not defined for counts.
    tails_ : {"normal", "entries", "rows", "counts"}
        Distribution of the values in the fit; "normal" without `robust`.
    log_likelihoods_ : ndarray of shape (number of accepted steps,)
        Log-likelihood of all rows of both datasets at the start and after each step, natural
        logarithms, over the features that vary. It does not fall, except by rounding (which grows
        with the ratio of the largest variance to the noise's). With ``robust="entries"`` it is the
        variational lower bound. Not set with "vi".
    elbo_ : ndarray of shape (number of passes + 2,)
        With "vi" only: the variational lower bound of that log-likelihood, at the start, after each
        pass and at the end, where the parameters are those of the highest one.
    n_iter_ : int
        Number of steps taken, or of passes with "vi".
    converged_ : bool
        Whether `tol` was reached; with "vi", whether the bound no longer rose.
    foreground_variance_, background_variance_ : ndarray of shape (t,)
        Variance of foreground and background along each component; with missing values or `robust`
        the model's, of loadings and `noise_variance_`.
    contrast_index_ : ndarray of shape (t,)
        :math:`(v_X - v_Y) / (v_X + v_Y)` of these two, from -1 (background only) to 1 (foreground
        only); NaN where neither varies.
    mean_, background_mean_ : ndarray of shape (n_features,)
        Means of foreground and background; for counts the logarithms of the features' shares of a
        row's total where latent variables are zero.
    foreground_moments_, background_moments_ : SecondMoments or SpanMoments
        Moments of the data; not set with missing values or `robust`. SpanMoments, for more features
        than rows, hold the rows.
    projection_, reconstruction_ : ndarrays of shape (n_features, t) and (t, n_features)
        From centred rows to scores, the posterior means of t, and back, as `inverse_transform`
        says; with the mean they are `linear_map_`, a `contrast_core.spectral.LinearMap`. There
        are none with ``robust="entries"``, which weighs each value of a row, nor with counts.
    n_features_in_ : int
        Number of features, D.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if the data had names.

    Raises
    ------
    ValueError
        On `fit`: if the latent variables explain all that varies, so that the likelihood has no
        maximum, `sparsity` leaves no feature, or a parameter is out of range. With missing values
        or `robust`: if a feature is never observed in one of the datasets, fewer than two rows have
        a value, or ``sparsity="horseshoe"`` is given without "vi". With these or "vi": if `within`,
        weights or several backgrounds are given, which need moments. With counts: if values are not
        whole numbers from 0.
    ImportError
        With "vi", if torch is not installed.

    Warns
    -----
    ContrastWarning
        If `tol` is not reached after `max_iter` evaluations or passes, or the two datasets' scales
        differ by orders of magnitude.

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

        This is the least squares estimate of W t, with what shared variables and noise add as the
        errors: a projection on the span of W along what the background would do, which is not an
        orthogonal one.

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
        """Return the posterior means of the shared latent variables.

        Parameters
        ----------
        X : as for `transform`
            Rows from anywhere.
        dataset : {"foreground", "background"}, default="foreground"
            Which model the rows follow: the one of the background has no salient part.
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
        k, search, *selection = self._search(rows.varies)
        search = search._replace(tol=10 * search.tol)
        return self._maximised(
            RowLikelihood.of(rows, tails, k, search), selection, rows.names, tails
        )

    def _fit_moments(self, foreground: Moments, background: Moments, plan: Plan) -> Self:
        x, y = foreground, background
        k, search, *selection = self._search(x.varies | y.varies)
        return self._maximised(MomentLikelihood.of(x, y, k, search), selection, x.feature_names)

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
        k, search, sparsity, ard = self._search(varies)
        start = starting_point(parts, varies, k, search, tails, sparsity)
        from contrast_core.probabilistic._clvm_variational import fit_variational  # needs torch

        found = fit_variational(
            parts, start, k, tails, sparsity, ard, search, device, self.progress
        )
        names = parts[0].names or parts[1].names
        return self._described(names, tails, search, found.described(start, tails))

    def _search(self, varies: NDArray[np.bool_]) -> tuple[int, Search, Sparsity | None, bool]:
        """Return k, how to look for a maximum, and what to select."""
        k, t = check_dimensions(self.n_shared, self.n_salient, int(varies.sum()))
        search = Search(
            t,
            check_count(self.n_init, "n_init"),
            check_generator(self.random_state),
            check_number(self.tol, "tol", above=0),
            check_count(self.max_iter, "max_iter"),
            PriorSettings.of(self.priors, len(varies)),
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
