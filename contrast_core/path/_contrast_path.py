"""Contrastive PCA over a grid of contrasts, and the choice of a few representative contrasts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrast_core._short_repr import ShortRepr
from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_alpha,
    check_count,
    check_n_components,
    check_seed,
    numbers_of,
)
from contrast_core.contrast import representatives, subspace_affinity
from contrast_core.moments import Moments
from contrast_core.solve import (
    ContrastSolution,
    Design,
    Plan,
    contrast_moments,
    in_form,
    solve_contrasts,
    with_fallback,
)
from contrast_core.spectral import CPCA
from contrast_core.spectral._cpca import default_alphas


@dataclass(frozen=True, eq=False, repr=False)
class ContrastPath(ShortRepr):
    """Contrastive PCA at every contrast of a grid, as computed by `contrast_path`.

    Parameters
    ----------
    alphas : ndarray of shape (A,)
        The grid, ascending.
    components : ndarray of shape (A, k, n_features)
        Orthonormal rows at each contrast.
    eigenvalues : ndarray of shape (A, k)
        Eigenvalues of ``C_X - alpha C_Y``, descending. At ``alpha = inf``, they are the foreground
        variances within the null space of the background.
    foreground_variances, background_variances : ndarray of shape (A, k)
        Variances along each component. The variances of the first component trace the Pareto front
        of high foreground and low background variance (Abid et al. 2018, Thm 1).
    affinity : ndarray of shape (A, A)
        Affinities between the subspaces: products of the cosines of their principal angles, or
        the k-th root of this product if there are more than ten components.
    labels : ndarray of shape (A,)
        Cluster of each contrast.
    representatives : ndarray of shape (p,)
        Indices into `alphas` of the clusters' medoids, ascending.
    solvers : tuple of str
        The solver of each contrast: "eigh" (LAPACK) or "search" (block Davidson iteration). Unless
        ``plan.form`` is "products", a proof follows each search, which shows that the search found
        the k largest eigenvalues.
    plan : contrast_core.solve.Plan
        The plan that was followed. ``plan.form`` is the form of the covariances, and
        ``plan.reason`` is the reason for the choice, in words.
    foreground, background : SecondMoments, SpanMoments or ProductMoments
        Moments of the data.
    """

    alphas: FloatArray
    components: FloatArray
    eigenvalues: FloatArray
    foreground_variances: FloatArray
    background_variances: FloatArray
    affinity: FloatArray
    labels: NDArray[np.intp]
    representatives: NDArray[np.intp]
    solvers: tuple[str, ...]
    plan: Plan
    foreground: Moments
    background: Moments

    @property
    def representative_alphas(self) -> FloatArray:
        """Contrast strengths at the clusters' medoids, ascending, shape (p,)."""
        return np.asarray(self.alphas[self.representatives], dtype=np.float64)

    def at(self, alpha: float) -> CPCA:
        """Return contrastive PCA at any strength, fitted from the same moments.

        Parameters
        ----------
        alpha : float from 0 to inf
            Contrast strength, on the grid or not.

        Returns
        -------
        CPCA
            The fitted estimator.
        """
        estimator = CPCA(self.components.shape[1], alpha=alpha)
        return estimator.fit(self.foreground, background=self.background)


def contrast_path(
    X: MatrixLike | Moments,
    *,
    background: MatrixLike | Moments | Sequence[MatrixLike | Moments],
    n_components: int = 2,
    alphas: ArrayLike | None = None,
    n_representatives: int | None = None,
    random_state: int | None = 0,
    within: ArrayLike | None = None,
    background_within: ArrayLike | Sequence[ArrayLike | None] | None = None,
    sample_weight: ArrayLike | None = None,
    background_weight: ArrayLike | Sequence[ArrayLike | None] | None = None,
    background_mix: ArrayLike | None = None,
) -> ContrastPath:
    r"""Fit contrastive PCA over a grid of strengths, and choose a few representative strengths.

    The function computes the moments once and finds the leading eigenvectors of
    :math:`C_X - \alpha C_Y` at every alpha. It then measures the affinity of all pairs of
    subspaces, which is the product of the cosines of their principal angles (for more than ten
    components, the k-th root of the product). Spectral clustering then divides the subspaces into
    clusters, and the medoid of each cluster represents it. If the grid contains alpha = 0, the
    subspace of PCA of the foreground is clustered with the others. (In the experiments of the
    paper, only the subspaces of positive strengths are clustered, and PCA is shown separately.)

    Parameters
    ----------
    X : array-like, DataFrame, sparse matrix of shape (n, n_features) or SecondMoments
        Foreground.
    background : data of the same kinds, of shape (m, n_features)
        Background with the same features, or a list of backgrounds. Either all datasets are
        moments, or none is.
    n_components : int, default=2
        Number of components, k.
    alphas : array-like of floats from 0 to inf, optional
        The grid; by default 0 and 40 values log-spaced from 0.1 to 1000.
    n_representatives : int, optional
        Number of clusters, p. The default is three, or the number of contrasts if that is smaller.
        If at most p subspaces are different, each different subspace is a cluster.
    random_state : int or None, default=0
        Seed of the clustering, and of the search if ``plan.form`` is "products".
    within, background_within, sample_weight, background_weight, background_mix
        As in `CPCA.fit`.

    Returns
    -------
    ContrastPath

    Raises
    ------
    ValueError
        If the grid is empty, repeats a value or contains a value outside [0, inf], or the data do
        not fit together (see `CPCA.fit`).

    References
    ----------
    Abid, Zhang, Bagaria and Zou 2018, Algorithm 2.

    Examples
    --------
    >>> from contrast_core import contrast_path
    >>> from contrast_core.datasets import make_four_groups
    >>> data = make_four_groups(random_state=0)
    >>> path = contrast_path(data.foreground, background=data.background)
    >>> path.components.shape, len(path.representative_alphas)
    ((41, 2, 30), 3)
    """
    grid = _check_grid(alphas)
    seed = check_seed(random_state)
    n_representatives = check_count(
        min(3, len(grid)) if n_representatives is None else n_representatives,
        "n_representatives",
        at_most=len(grid),
        reason=f"with {len(grid)} contrasts",
    )
    design = Design(within, background_within, sample_weight, background_weight, background_mix)
    x, y, plan = contrast_moments(
        X, background, n_components=n_components, contrasts=len(grid), design=design
    )
    k = check_n_components(n_components, x.n_features)

    def solve(plan: Plan) -> list[ContrastSolution]:
        pair = in_form(x, y, plan.form)
        used.append(plan)
        return solve_contrasts(*pair, grid.tolist(), k, plan, random_state=seed)

    used: list[Plan] = []
    *parts, solvers, _ = zip(*with_fallback(plan, solve), strict=True)
    values, components, coordinates, x_along, y_along = map(np.stack, parts)
    affinity = subspace_affinity(coordinates)
    labels, medoids = representatives(affinity, n_representatives, seed)
    return ContrastPath(
        alphas=grid,
        components=components,
        eigenvalues=values,
        foreground_variances=x_along,
        background_variances=y_along,
        affinity=affinity,
        labels=labels,
        representatives=medoids,
        solvers=solvers,
        plan=used[-1],
        foreground=x,
        background=y,
    )


def _check_grid(alphas: ArrayLike | None) -> FloatArray:
    if alphas is None:
        return default_alphas()
    grid = np.sort([check_alpha(alpha, name="alphas") for alpha in numbers_of(alphas, "alphas")])
    if not len(grid):
        raise ValueError("alphas is empty; give at least one contrast, or None for the default.")
    if (np.diff(grid) == 0).any():
        repeated = grid[:-1][np.diff(grid) == 0][0]
        raise ValueError(f"alphas repeats {repeated:g}; give each contrast strength once.")
    return np.asarray(grid, dtype=np.float64)
