"""Contrastive PCA."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, Self

import numpy as np

from contrast_core._moment_contrast import MomentContrast
from contrast_core._strength import StrengthPath, ascending
from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_alpha,
    check_choice,
    check_n_components,
    check_seed,
)
from contrast_core.contrast import automatic_contrast, denoising_alpha, trace_ratio_alpha
from contrast_core.feedback import warn
from contrast_core.moments import Form, Moments
from contrast_core.solve import (
    SOLVERS,
    ContrastSolution,
    Design,
    Plan,
    Solver,
    contrast_index,
    contrast_moments,
    in_form,
    plan_for,
    solve_contrasts,
    with_fallback,
)
from contrast_core.spectral._cpca_posterior import BinghamPosterior


class CPCA(BinghamPosterior, StrengthPath, MomentContrast):
    r"""Contrastive PCA: directions of high foreground and low background variance.

    The components are the eigenvectors with the k largest (most positive) eigenvalues of the
    contrast of the two covariances,

    .. math:: C(\alpha) = C_X - \alpha\, C_Y .

    Each covariance is taken about its own mean and divided by its own number of rows. With
    ``alpha = 0``, or without a background, the method is PCA of the foreground. With
    ``alpha = inf``, it is PCA of the foreground within the null space of the background.

    Parameters
    ----------
    n_components : int, default=2
        Number of components, k, from 1 to the number of features.
    alpha : "auto", "denoise" or float from 0 to inf, default="auto"
        Contrast strength. "auto" takes the largest ratio of foreground to background variance that
        a subspace of k dimensions reaches, after shrinking the background covariance (see
        `contrast_core.contrast.trace_ratio_alpha`). This rule needs no labels and no random
        numbers. "denoise" takes half of the automatic strength for two components, whatever k is.
        It is better for the method `denoise`, but separates groups less well.
    solver : {"auto", "eigh", "gram", "lanczos"}, default="auto"
        Algorithm. All solvers give the same result.

        - "eigh" forms the covariances of the features.
        - "gram" forms the covariances in an orthonormal basis of the span of all rows. It is meant
          for more features than rows.
        - "lanczos" forms no covariance matrix. It searches for the eigenvectors, and to this end
          multiplies the rows by vectors. A result is accepted if the residual, divided by the gap
          after the k-th eigenvalue, is at most 1e-8 (or the rounding error, if that is larger).
          This ratio bounds the sine of the angle to the exact components, unless the search misses
          a direction to which its random start happens to be orthogonal. It is therefore not proved
          that the result holds the leading components. `at` and `path` read the rows again, so do
          not change the data before you call them.
        - "auto" takes "gram" for more features than rows, and "eigh" otherwise. It takes "lanczos"
          if rows and features both exceed 10,000. For dense rows in memory and a finite number as
          alpha, it also takes "lanczos" if both exceed ``120 * (k + 22)``, which is 2,880 for two
          components. For sparse rows in memory, it takes "lanczos" if few components of many rows
          are wanted and alpha is not inf. If this search fails, "auto" uses "eigh" or "gram"
          instead, unless rows and features both exceed 10,000.

        "eigh" and "gram" solve small matrices by LAPACK. A matrix with at least 700 rows, and at
        least 150 rows for each component (75 if alpha is "auto"), is solved by an iteration if the
        iteration converges fast. A factorisation of the shifted matrix (its inertia) then proves
        that only k eigenvalues exceed a bound, so that the iteration missed none of them. Rows that
        are not in memory are read block by block. "lanczos" reads them again for every product.
        "gram" reads blocks of columns, each of which may take a pass over all rows.
    random_state : int or None, default=None
        Seed of the start of "lanczos". Nothing else is random.

    Attributes
    ----------
    components_ : ndarray of shape (k, n_features)
        Orthonormal rows; the entry of largest magnitude in each is positive.
    alpha_, strength_ : float
        The contrast strength used.
    contrastive_eigenvalues_ : ndarray of shape (k,)
        Eigenvalues of C(alpha), descending. Some may be negative. At ``alpha = inf``, they are the
        foreground variances within the null space of the background.
    foreground_variance_, background_variance_ : ndarray of shape (k,)
        Variance of foreground and background along each component.
    contrast_index_ : ndarray of shape (k,)
        :math:`(v_X - v_Y) / (v_X + v_Y)`, where :math:`v_X` and :math:`v_Y` are the foreground and
        background variances. It is between -1 (background only) and 1 (foreground only). It does
        not depend on the scale of the data, and is NaN for a component along which neither dataset
        varies.
    mean_, background_mean_ : ndarray of shape (n_features,)
        Means of foreground and background.
    foreground_moments_, background_moments_ : SecondMoments, SpanMoments or ProductMoments
        Moments to which the data were reduced. `at` computes its results from them. For "gram" and
        "lanczos", the moments hold the rows, without a copy if possible. Do not change the rows
        while `at` is in use.
    solver_ : {"eigh", "search"}
        The algorithm that found the eigenpairs. "eigh" is LAPACK. "search" is a block Davidson
        iteration, whose result is proved if a matrix was formed.
    form_ : {"dense", "span", "products"}
        Form in which the covariances were held. "dense" stands for features x features matrices,
        and "span" for matrices in a basis of the span of the rows. With "products" no matrix was
        formed, and the rows themselves were multiplied.
    plan_ : contrast_core.solve.Plan
        The plan by which the eigenproblem was solved. ``plan_.reason`` says in words why this plan
        was chosen. A model file holds the plan only if it was saved with ``moments=True``.
    projection_, reconstruction_ : ndarrays of shape (n_features, k) and (k, n_features)
        `projection_` is ``components_.T`` and maps centred rows to scores. `reconstruction_` is
        ``components_`` and maps scores back. With the mean, they form `linear_map_`, a
        `contrast_core.spectral.LinearMap`.
    n_features_in_ : int
        Number of features, D.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if the data had names.

    Warns
    -----
    ContrastWarning
        If components have a negative eigenvalue, so that alpha times the background variance
        exceeds the foreground variance. A warning is also given if there are more components than
        directions in which a dataset varies, or if the scales of the two datasets differ by orders
        of magnitude.

    See Also
    --------
    contrast_core.contrast_path : Fit a whole grid of contrasts, and select representative ones.

    Notes
    -----
    The data are not scaled. Standardise both datasets first if features have different units.

    If features are constant, or are linear combinations of other features, there are directions
    along which neither dataset varies. These directions have no contrast. They come last, with the
    eigenvalue 0, even after components with negative eigenvalues. Constant features do not change
    the result.

    References
    ----------
    Abid, Zhang, Bagaria and Zou, "Exploring patterns enriched in a dataset with contrastive
    principal component analysis", Nature Communications 9:2134, 2018, Algorithm 1.

    Examples
    --------
    >>> from contrast_core import CPCA
    >>> from contrast_core.datasets import load_mouse_protein
    >>> mice = load_mouse_protein()
    >>> cpca = CPCA().fit(mice.foreground, background=mice.background)
    >>> cpca.transform(mice.foreground).shape
    (270, 2)
    >>> pca = cpca.at(0.0)  # from the same moments, the data are not read again
    >>> pca.alpha_
    0.0
    """

    _strength = "alpha"
    _of_moments = (*MomentContrast._of_moments, "plan_")
    _background_is_optional = True
    _rules = ("auto", "denoise")

    alpha_: float
    contrastive_eigenvalues_: FloatArray
    foreground_variance_: FloatArray
    background_variance_: FloatArray
    contrast_index_: FloatArray
    foreground_moments_: Moments
    background_moments_: Moments
    solver_: str
    plan_: Plan

    def __init__(
        self,
        n_components: int = 2,
        *,
        alpha: float | Literal["auto", "denoise"] = "auto",
        solver: Solver = "auto",
        random_state: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.solver = solver
        self.random_state = random_state

    def _moments(
        self, X: MatrixLike | Moments, background: Any, design: Design
    ) -> tuple[Moments, Moments, Plan]:
        check_choice(self.solver, "solver", SOLVERS)
        alpha = check_strength(self.alpha, self._rules)
        check_seed(self.random_state)
        return contrast_moments(
            X,
            background,
            n_components=self.n_components,
            solver=self.solver,
            automatic=isinstance(alpha, str),
            contrasts=2 if alpha == math.inf else 1,
            design=design,
            optional=True,
        )

    def _fit_moments(self, foreground: Moments, background: Moments, plan: Plan) -> Self:
        return with_fallback(plan, partial(self._fit_planned, foreground, background))

    def _fit_planned(self, foreground: Moments, background: Moments, plan: Plan) -> Self:
        x, y = in_form(foreground, background, plan.form)
        k = check_n_components(self.n_components, x.n_features)
        if check_strength(self.alpha, self._rules) == "auto":
            alpha, solution = automatic_contrast(x, y, k, plan, random_state=self.random_state)
        else:
            alpha = choose_alpha(self.alpha, x, y, k, plan)
            seed = self.random_state
            [solution] = solve_contrasts(x, y, [alpha], k, plan, random_state=seed)
        _warn_of_no_contrast(solution, x, alpha)
        return self._set_solution(x, y, alpha, solution, plan)

    def _fit_one(self, other: Self) -> Self:
        x, y = self.foreground_moments_, self.background_moments_
        return other._fit_moments(x, y, self._plan(1))

    def _fit_each(self, others: list[Self]) -> list[Self]:
        return with_fallback(self._plan(len(others)), partial(self._fit_path, others))

    def _fit_path(self, others: list[Self], plan: Plan) -> list[Self]:
        x, y = in_form(self.foreground_moments_, self.background_moments_, plan.form)
        k = self._n_features_out
        chosen = [choose_alpha(other.alpha, x, y, k, plan) for other in others]
        distinct, alphas = ascending(others, chosen)
        solutions = solve_contrasts(x, y, alphas, k, plan, random_state=self.random_state)
        return [
            other._set_solution(x, y, alpha, solution, plan)
            for other, alpha, solution in zip(distinct, alphas, solutions, strict=True)
        ]

    def _plan(self, contrasts: int) -> Plan:
        x, y = self.foreground_moments_, self.background_moments_
        return plan_for(x, y, self._n_features_out, contrasts=contrasts, form=SOLVERS[self.solver])

    def _set_solution(
        self,
        foreground: Moments,
        background: Moments,
        alpha: float,
        solution: ContrastSolution,
        plan: Plan,
    ) -> Self:
        return self._set_contrast(
            foreground,
            background,
            components_=solution.components,
            alpha_=alpha,
            contrastive_eigenvalues_=solution.values,
            foreground_variance_=solution.foreground_variance,
            background_variance_=solution.background_variance,
            contrast_index_=contrast_index(
                solution.foreground_variance, solution.background_variance
            ),
            solver_=solution.solver,
            plan_=plan,
        )

    @property
    def form_(self) -> Form:
        """Return the form of the covariances, which is "dense", "span" or "products"."""
        return self.plan_.form

    def _default_strengths(self) -> FloatArray:
        return default_alphas()


def choose_alpha(
    alpha: object,
    foreground: Moments,
    background: Moments,
    n_components: int,
    plan: Plan,
) -> float:
    """Return the contrast strength as a number; if `alpha` names a rule, apply this rule."""
    match check_strength(alpha, CPCA._rules):
        case "auto":
            return trace_ratio_alpha(foreground, background, n_components, plan)
        case "denoise":
            return denoising_alpha(foreground, background, plan)
        case number:
            return float(number)


def check_strength(alpha: object, rules: Sequence[str]) -> float | str:
    """Return the name of a rule, or a contrast strength as a number."""
    if isinstance(alpha, str):
        return check_choice(alpha, "alpha", rules, "a number from 0 to inf")
    return check_alpha(alpha)


def default_alphas() -> FloatArray:
    """Return the default grid of contrast strengths."""
    return np.concatenate([[0.0], np.logspace(-1, 3, 40)])


def n_without_contrast(solution: ContrastSolution, alpha: float) -> int:
    """Return the number of components with the contrast 0 along which both datasets vary."""
    both = solution.foreground_variance + alpha * solution.background_variance
    return int(((np.abs(solution.values) <= 1e-12 * both) & (both > 0)).sum())


def _warn_of_no_contrast(solution: ContrastSolution, foreground: Moments, alpha: float) -> None:
    """Warn of components with negative contrast, or with zero contrast where both datasets vary.

    Another function warns of directions in which neither dataset varies.
    """
    eigenvalues, rounding = solution.values, 1e-12 * foreground.total_variance
    n_negative = int((eigenvalues < -rounding).sum())
    n_zero = n_without_contrast(solution, alpha) if alpha and not math.isinf(alpha) else 0
    if n_zero:
        warn(
            f"{n_zero} of {len(eigenvalues)} components have no contrast at alpha={alpha:.4g}: "
            "along them the foreground variance equals alpha times the background variance, to "
            "working precision, so the components are arbitrary. Check that the background is "
            "not the foreground itself."
        )
    if n_negative:
        warn(
            f"{n_negative} of {len(eigenvalues)} components have negative contrast at "
            f"alpha={alpha:.4g}: along them alpha times the background variance exceeds the "
            "foreground variance. Use fewer components or a smaller alpha to avoid them.",
        )
