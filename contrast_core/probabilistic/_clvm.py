"""Contrastive latent variable models."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrast_core._base import Offset
from contrast_core._linear_map import LinearMap
from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_choice,
    check_count,
    check_flag,
    check_generator,
    check_number,
    shown,
)
from contrast_core.feedback import warn
from contrast_core.linalg import fix_signs
from contrast_core.moments import Moments
from contrast_core.probabilistic._clvm_em import (
    Fit,
    Problem,
    first_model,
    fit_em,
    likelihood_problem,
    posterior,
    random_model,
)
from contrast_core.probabilistic._clvm_selection import fit_sparse, relevant_shared
from contrast_core.probabilistic._two_densities import TwoDensities
from contrast_core.solve import Design, Plan, contrast_index, contrast_moments


class CLVM(TwoDensities):
    r"""Contrastive latent variable model: latent variables of both datasets, and of one only.

    Shared latent variables z act on foreground and background alike, salient ones t on the
    foreground alone,

    .. math:: x = S z + W t + \mu_x + \varepsilon, \qquad y = S z + \mu_y + \varepsilon,

    all of them standard normal and :math:`\varepsilon \sim N(0, \sigma^2 I_D)`. S, W and
    :math:`\sigma^2` maximise the likelihood of all rows, with each dataset's mean for
    :math:`\mu`. There is no contrast strength to choose, but the two numbers of dimensions.

    The likelihood needs no more of the data than numbers of rows, means and covariances, so neither
    does expectation maximisation: an iteration is a product of the covariances with the loadings.

    Parameters
    ----------
    n_shared : int, default=2
        Shared latent dimensions, k, from 0.
    n_salient : int, default=2
        Salient latent dimensions, t, from 0; k + t from 1 to one below the number of features that
        vary: at least one direction must be left for the noise.
    sparsity : "auto" or float above 0, optional
        Salient loadings of few features: those that the penalty
        :math:`\rho \sum_i \|w_i\| / \|\hat w_i\|` on the rows of W leaves, with the most likely
        rows as weights. The likelihood is then maximised with the other rows at zero. A number is
        rho, in units of the log-likelihood: a feature goes whose salient loadings add less than
        about half of it. "auto" takes the features of least Bayesian information criterion, for
        rho from 1 to 740,000. By default no penalty.
    ard : bool, default=False
        Automatic relevance determination of shared dimensions: with a vague prior on the length of
        each column of S those that add too little vanish, and the likelihood is maximised with as
        many as are left; `n_shared` is then the most there may be. Where the noise does not have
        the same variance in every direction, as in the mouse data, it keeps all.
    n_init : int, default=1
        Starts; the most likely solution is kept. The first is from the leading components of the
        background and of the contrast, the others are random.
    tol : float above 0, default=1e-6
        Where to end: length of the gradient of the log-likelihood per row, by the loadings in units
        of the noise's standard deviation and by the logarithm of its variance. (The likelihood
        stops rising, to nine digits, long before the subspaces stop turning.)
    max_iter : int, default=3000
        Evaluations of the likelihood, at most, for each start.
    random_state : int, Generator or None, default=None
        Seed of the random starts.

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
        sigma^2.
    latent_covariance_ : ndarray of shape (t, t)
        Covariance of t given a row, the same for every row.
    log_likelihoods_ : ndarray of shape (number of accepted steps,)
        Log-likelihood of all rows of both datasets at the start and after each step, natural
        logarithms, over the features that vary. It does not fall, but for rounding (which grows
        with the ratio of the largest variance to the noise's).
    n_iter_ : int
        Steps taken.
    converged_ : bool
        Whether the gradient became as short as `tol`.
    foreground_variance_, background_variance_ : ndarray of shape (t,)
        Variance of foreground and background along each component.
    contrast_index_ : ndarray of shape (t,)
        :math:`(v_X - v_Y) / (v_X + v_Y)` of these two, from -1 (background only) to 1 (foreground
        only); NaN where neither varies.
    mean_, background_mean_ : ndarray of shape (n_features,)
        Means of foreground and background.
    foreground_moments_, background_moments_ : SecondMoments or SpanMoments
        What the data were reduced to. The latter, for more features than rows, hold the rows.
    projection_, reconstruction_ : ndarrays of shape (n_features, t) and (t, n_features)
        From centred rows to scores, the posterior means of t, and back, as `inverse_transform`
        says; with the mean they are `linear_map_`, a `contrast_core.LinearMap`.
    n_features_in_ : int
        Number of features, D.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, where the data had them.

    Raises
    ------
    ValueError
        On `fit`: if the latent variables explain all that varies, so that the likelihood has no
        maximum, or a parameter is out of range.

    Warns
    -----
    ContrastWarning
        If the gradient is still longer than `tol` after `max_iter` evaluations, or the two
        datasets' scales differ by orders of magnitude.

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
    2019, arXiv:1811.06094: eqs. 2 to 5; Sec. 2.3 for sparsity and relevance determination.

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
        *,
        n_shared: int = 2,
        n_salient: int = 2,
        sparsity: float | Literal["auto"] | None = None,
        ard: bool = False,
        n_init: int = 1,
        tol: float = 1e-6,
        max_iter: int = 3000,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_shared = n_shared
        self.n_salient = n_salient
        self.sparsity = sparsity
        self.ard = ard
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def _moments(
        self, X: MatrixLike | Moments, background: object, design: Design
    ) -> tuple[Moments, Moments, Plan]:
        # Rows of the loadings are features only where the coordinates are.
        solver = "auto" if self.sparsity is None else "eigh"
        return contrast_moments(X, background, solver=solver, products=False, design=design)

    def _fit_moments(self, foreground: Moments, background: Moments, plan: Plan) -> Self:
        x, y = foreground, background
        k, t = self._dimensions(int((x.varies | y.varies).sum()))
        penalty, ard = self._penalty(t), check_flag(self.ard, "ard")
        n_init = check_count(self.n_init, "n_init")
        tol = check_number(self.tol, "tol", above=0)
        max_iter = check_count(self.max_iter, "max_iter")
        rng = check_generator(self.random_state)

        def most_likely(problem: Problem) -> Fit:
            starts = [first_model(x, y, problem, t)]
            n_latent = problem.n_shared + t
            starts += [random_model(x.size, n_latent, rng) for _ in range(n_init - 1)]
            fits = [fit_em(problem, start, tol=tol, max_iter=max_iter) for start in starts]
            return max(fits, key=lambda fit: fit.log_likelihoods[-1])

        problem = likelihood_problem(x, y, k)
        best = most_likely(problem)
        if ard and k:
            k = max(relevant_shared(problem, best.model), int(not t))
            problem = likelihood_problem(x, y, k)
            best = most_likely(problem)
        if penalty is not None:
            best = fit_sparse(problem, best, penalty, tol=tol, max_iter=max_iter)
        if not best.converged:
            warn(
                f"the likelihood still rises after max_iter={max_iter} evaluations; allow more, or "
                "use fewer latent variables."
            )
        loadings = best.model.loadings * problem.unit
        (shared, _), (salient, components) = (
            _rotated(x, part) for part in np.split(loadings, [k], axis=1)
        )
        inside = x.coordinates_of(components)
        along = x.along(inside), y.along(inside)
        return self._set_fitted(
            x.feature_names,
            mean_=x.mean,
            background_mean_=y.mean,
            components_=components,
            shared_loadings_=shared,
            salient_loadings_=salient,
            selected_=salient.any(axis=1),
            noise_variance_=best.model.noise * problem.unit**2,
            log_likelihoods_=problem.log_likelihoods(best.log_likelihoods),
            n_iter_=len(best.log_likelihoods) - 1,
            converged_=best.converged,
            foreground_variance_=along[0],
            background_variance_=along[1],
            contrast_index_=contrast_index(*along),
            foreground_moments_=x,
            background_moments_=y,
        )

    def _dimensions(self, n_varying: int) -> tuple[int, int]:
        if n_varying < 2:
            raise ValueError(
                f"{n_varying} feature(s) vary in X or the background, but a latent variable and "
                "noise need at least 2."
            )
        reason, most = f"with {n_varying} features that vary", n_varying - 1
        k = check_count(self.n_shared, "n_shared", at_least=0, at_most=most, reason=reason)
        reason = f"{reason} and n_shared={k}, and one direction left for the noise,"
        least, most = int(not k), most - k
        return k, check_count(
            self.n_salient, "n_salient", at_least=least, at_most=most, reason=reason
        )

    def _penalty(self, n_salient: int) -> float | Literal["auto"] | None:
        if self.sparsity is None:
            return None
        if not n_salient:
            raise ValueError(
                f"sparsity={shown(self.sparsity)} is about salient loadings, of which n_salient=0 "
                "has none; leave it out."
            )
        if isinstance(self.sparsity, str):
            check_choice(self.sparsity, "sparsity", ["auto"], "a number")
            return "auto"
        return check_number(self.sparsity, "sparsity", above=0, expected="'auto' or a number")

    @property
    def projection_(self) -> FloatArray:
        """Map from centred rows to posterior means, (n_features, t)."""
        k = self.shared_loadings_.shape[1]
        return posterior(self._model("foreground")[0]).gain[:, k:]

    @property
    def reconstruction_(self) -> FloatArray:
        """Map from posterior means to centred rows, (t, n_features)."""
        # A latent variable as weak as the noise is shrunk to zero, from which nothing leads back.
        shrinkage = self.salient_loadings_.T @ self.projection_
        return np.asarray(np.linalg.pinv(shrinkage) @ self.salient_loadings_.T)

    @property
    def _projector(self) -> LinearMap:
        return self.linear_map_

    def transform(self, X: MatrixLike, *, groups: ArrayLike | None = None) -> FloatArray:
        r"""Posterior means of the salient latent variables.

        .. math:: E[t \mid x] = (I + W^\top M W)^{-1} W^\top M (x - \mu_x), \qquad
            M = (S S^\top + \sigma^2 I)^{-1}

        What the shared latent variables or the noise explain counts for little.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n, n_features)
            Rows from anywhere; sparse input stays sparse.
        groups : array-like of shape (n,), optional
            As in `CPCA.transform`.

        Returns
        -------
        ndarray of shape (n, n_salient)
            Their posterior covariance is `latent_covariance_` for every row.

        Raises
        ------
        ValueError
            If the features are not those of the fit, or a value is NaN or infinite.
        """
        return super().transform(X, groups=groups)

    def inverse_transform(self, X: MatrixLike) -> FloatArray:
        r"""Rows of the salient subspace whose posterior means are the ones given.

        .. math:: \hat x = W (W^\top M W)^{-1} (I + W^\top M W)\, t + \mu_x

        After `transform` this is what `denoise` gives. The model's mean of a row given t is
        ``t @ salient_loadings_.T + mean_``.

        Parameters
        ----------
        X : array-like of shape (n, n_salient)
            Salient latent variables.

        Returns
        -------
        ndarray of shape (n, n_features)

        Raises
        ------
        ValueError
            If the number of columns is not the number of salient variables.
        """
        return super().inverse_transform(X)

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


def _rotated(moments: Moments, loadings: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Loadings in feature space, turned to orthogonal columns, and their directions as rows."""
    directions, lengths, _ = np.linalg.svd(loadings, full_matrices=False)
    directions[~loadings.any(axis=1)] = 0.0
    components = fix_signs(moments.lift(directions.T))
    return components.T * lengths, components
