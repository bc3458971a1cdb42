"""cPCA, cPCA* and probabilistic contrastive PCA of the cells of an AnnData."""

from __future__ import annotations

from typing import Literal

from anndata import AnnData

from contrast_core import CPCA, PCPCA, CPCAStar

from .. import _write
from .._docs import documented
from .._read import contrast_input
from .._select import DEFAULT, Default, Levels, Mask, cells


@documented
def cpca(
    adata: AnnData,
    *,
    groupby: str | None = None,
    reference: Levels | None = None,
    groups: Levels | None = None,
    foreground: Mask | None = None,
    background: Mask | AnnData | None = None,
    within: str | None = None,
    n_comps: int = 2,
    alpha: float | Literal["auto", "denoise"] = "auto",
    layer: str | None = None,
    obsm: str | None = None,
    mask_var: Mask | Default | None = DEFAULT,
    key_added: str | None = None,
    copy: bool = False,
) -> AnnData | None:
    """Contrastive PCA: directions that vary in the foreground cells, but not in the background.

    cPCA keeps and sharpens the difference between conditions. The components are the leading
    eigenvectors of `C_foreground - alpha * C_background`, where the covariance of each set is
    centred by the mean of that set [1]_ (Alg. 1). All cells of `adata` are embedded, even cells in
    neither set.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`.
    {CELLS}
    {WITHIN}
    n_comps
        Number of components. The automatic alpha depends on it.
    alpha
        Contrast strength: a number from 0 (PCA of the foreground) to infinity, `"auto"` or
        `"denoise"`. `"auto"` chooses the strength from the two covariances, without labels.
        `"denoise"` chooses a smaller strength that suits reconstructions. See `contrast_core.CPCA`.
    {DATA}
    {OBSM}
    key_added
        Name of the results in `.obsm`, `.varm` and `.uns`, instead of `X_cpca`, `PCs_cpca` and
        `cpca`.
    {COPY}

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields:

    `.obsm['X_cpca' | key_added]` : `ndarray` (shape `(n_obs, n_comps)`)
        The embedding: each cell minus the foreground mean, projected on the components.
    `.varm['PCs_cpca' | key_added]` : `ndarray` (shape `(n_vars, n_comps)`)
        The components (loadings), with orthonormal columns. Genes outside `mask_var` have zeros.
    `.uns['cpca' | key_added]['alpha']` : `float`
        The contrast strength that was used.
    `.uns['cpca' | key_added]['contrastive_eigenvalues']` : `ndarray` (shape `(n_comps,)`)
        Foreground variance minus alpha times background variance, per component.
    {KEPT}
    {FIT}

    Raises
    ------
    {RAISES}

    Warns
    -----
    contrast_core.ContrastWarning
        If the foreground variance of some components is less than alpha times their background
        variance.

    Notes
    -----
    {EXPECTS}

    References
    ----------
    .. [1] Abid, Zhang, Bagaria, Zou (2018). Exploring patterns enriched in a dataset with
       contrastive principal component analysis. Nature Communications 9, 2134.

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> counts = np.random.default_rng(0).poisson(2.0, size=(60, 8)).astype("float32")
    >>> adata = anndata.AnnData(np.log1p(counts))
    >>> adata.obs["condition"] = ["ctrl", "stim"] * 30
    >>> cx.tl.cpca(adata, groupby="condition", reference="ctrl", alpha=1.0)
    >>> adata.obsm["X_cpca"].shape, adata.varm["PCs_cpca"].shape
    ((60, 2), (8, 2))
    """
    keys = _write.reserve(adata, copy, "cpca", key_added)
    selection = cells(adata, groupby, reference, groups, foreground, background)
    data = contrast_input(adata, selection, n_comps, layer, obsm, mask_var, within=within)
    model = CPCA(n_comps, alpha=alpha, random_state=0)  # the result does not depend on the seed
    model.fit(data.foreground, background=data.background, **data.strata)
    entry = {
        "params": data.params | {"alpha": alpha},
        "alpha": float(model.alpha_),
        "contrastive_eigenvalues": model.contrastive_eigenvalues_,
    }
    return _write.write(adata, data.result(keys, model, entry), copy=copy)


@documented
def cpca_star(
    adata: AnnData,
    *,
    groupby: str | None = None,
    reference: Levels | None = None,
    groups: Levels | None = None,
    foreground: Mask | None = None,
    background: Mask | AnnData | None = None,
    within: str | None = None,
    n_comps: int = 2,
    beta: float | Literal["auto"] = "auto",
    layer: str | None = None,
    obsm: str | None = None,
    mask_var: Mask | Default | None = DEFAULT,
    key_added: str | None = None,
    copy: bool = False,
) -> AnnData | None:
    """Contrastive PCA*: directions with the largest ratio of foreground to background variance.

    cPCA* keeps and sharpens the difference between conditions, even if it makes up little of the
    variance, because it maximises the ratio of the variances instead of their difference. The
    directions solve `C_foreground v = lambda B v` with `B = (1 - beta) I + beta C_background` [1]_
    (eq. 3, 4). All cells of `adata` are embedded, even cells in neither set.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`.
    {CELLS}
    {WITHIN}
    n_comps
        Number of components.
    beta
        Contrast strength: a number from 0 (PCA of the foreground) to 1 (the ratio of the variances,
        which needs more background cells than genes), or `"auto"`. See `contrast_core.CPCAStar`.
    {DATA}
    {OBSM}
    key_added
        Name of the results in `.obsm`, `.varm` and `.uns`, instead of `X_cpca_star`,
        `PCs_cpca_star` and `cpca_star`.
    {COPY}

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields:

    `.obsm['X_cpca_star' | key_added]` : `ndarray` (shape `(n_obs, n_comps)`)
        The embedding: each cell minus the foreground mean, projected on the components.
    `.varm['PCs_cpca_star' | key_added]` : `ndarray` (shape `(n_vars, n_comps)`)
        The components (loadings): orthonormal columns that span the same subspace as the
        directions. Genes outside `mask_var` have zeros.
    `.uns['cpca_star' | key_added]['beta']` : `float`
        The contrast strength that was used.
    `.uns['cpca_star' | key_added]['generalized_eigenvalues']` : `ndarray` (shape `(n_comps,)`)
        The eigenvalue lambda of each direction: the ratio of `v' C_foreground v` to `v' B v`.
    {KEPT}
    {FIT}

    Raises
    ------
    {RAISES}

    Notes
    -----
    {EXPECTS}

    References
    ----------
    .. [1] An online algorithm for contrastive principal component analysis (cPCA*), Sec. 2.2.

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> counts = np.random.default_rng(0).poisson(2.0, size=(60, 8)).astype("float32")
    >>> adata = anndata.AnnData(np.log1p(counts))
    >>> adata.obs["condition"] = ["ctrl", "stim"] * 30
    >>> cx.tl.cpca_star(adata, groupby="condition", reference="ctrl")
    >>> adata.obsm["X_cpca_star"].shape, adata.varm["PCs_cpca_star"].shape
    ((60, 2), (8, 2))
    """
    keys = _write.reserve(adata, copy, "cpca_star", key_added)
    selection = cells(adata, groupby, reference, groups, foreground, background)
    data = contrast_input(adata, selection, n_comps, layer, obsm, mask_var, within=within)
    model = CPCAStar(n_comps, beta=beta)
    model.fit(data.foreground, background=data.background, **data.strata)
    entry = {
        "params": data.params | {"beta": beta},
        "beta": float(model.beta_),
        "generalized_eigenvalues": model.generalized_eigenvalues_,
    }
    return _write.write(adata, data.result(keys, model, entry), copy=copy)


@documented
def pcpca(
    adata: AnnData,
    *,
    groupby: str | None = None,
    reference: Levels | None = None,
    groups: Levels | None = None,
    foreground: Mask | None = None,
    background: Mask | AnnData | None = None,
    within: str | None = None,
    n_comps: int = 2,
    gamma: float | Literal["auto"] = "auto",
    layer: str | None = None,
    obsm: str | None = None,
    mask_var: Mask | Default | None = DEFAULT,
    key_added: str | None = None,
    copy: bool = False,
) -> AnnData | None:
    """Probabilistic contrastive PCA: a model of the variation that the background lacks.

    PCPCA keeps and sharpens the difference between conditions, as cPCA does. It is a probability
    model, `x = W z + mean + noise`. W and the noise variance are chosen so that the foreground
    cells are likely and the background cells unlikely [1]_ (eq. 10, Thm 3). All cells of `adata`
    are embedded as posterior means of z, even cells in neither set.

    Values may be missing, as NaN in a dense layer. The densities are then computed from the
    observed values of each cell [1]_ (Sec. 7), and `scanpy_ext.tl.impute` fills in the missing
    values.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`.
    {CELLS}
    {WITHIN}
    n_comps
        Number of latent dimensions, smaller than the number of genes.
    gamma
        Contrast strength: a number from 0 (probabilistic PCA of the foreground) to below
        `gamma_max`, or `"auto"` (0.9 times `gamma_max`, times the share of values that are
        observed). See `contrast_core.PCPCA`.
    {DATA}
    {OBSM}
    key_added
        Name of the results in `.obsm`, `.varm` and `.uns`, instead of `X_pcpca`, `PCs_pcpca` and
        `pcpca`.
    {COPY}

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields:

    `.obsm['X_pcpca' | key_added]` : `ndarray` (shape `(n_obs, n_comps)`)
        The embedding: posterior means of the latent variables.
    `.varm['PCs_pcpca' | key_added]` : `ndarray` (shape `(n_vars, n_comps)`)
        The loadings W, with orthogonal columns. Genes outside `mask_var` have zeros.
    `.uns['pcpca' | key_added]['gamma']` : `float`
        The contrast strength that was used.
    `.uns['pcpca' | key_added]['gamma_max']` : `float`
        The upper limit of the contrast strength. The model exists only below this limit.
    `.uns['pcpca' | key_added]['noise_variance']` : `float`
        Variance of the noise.
    `.uns['pcpca' | key_added]['objective' | 'converged']` : `float`, `bool`
        The objective is the mean log-density of the foreground cells minus gamma times the mean
        log-density of the background cells. `objective` is its maximum. `converged` says whether
        the iteration for incomplete data has converged.
    `.uns['pcpca' | key_added]['contrastive_eigenvalues']` : `ndarray` (shape `(n_comps,)`)
        Foreground variance minus gamma times background variance, per component.
    {KEPT}
    {FIT}

    Raises
    ------
    {RAISES}
        NaN is allowed here as a missing value, except in sparse matrices and in backed or
        dask-backed data. With `within` no value may be missing.

    Notes
    -----
    {EXPECTS}

    References
    ----------
    .. [1] Li, Jones, Engelhardt (2020). Probabilistic contrastive principal component analysis.
       arXiv:2012.07977.

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> counts = np.random.default_rng(0).poisson(2.0, size=(60, 8)).astype("float32")
    >>> adata = anndata.AnnData(np.log1p(counts))
    >>> adata.obs["condition"] = ["ctrl", "stim"] * 30
    >>> cx.tl.pcpca(adata, groupby="condition", reference="ctrl")
    >>> adata.obsm["X_pcpca"].shape, adata.varm["PCs_pcpca"].shape
    ((60, 2), (8, 2))
    """
    keys = _write.reserve(adata, copy, "pcpca", key_added)
    selection = cells(adata, groupby, reference, groups, foreground, background)
    data = contrast_input(
        adata, selection, n_comps, layer, obsm, mask_var, within=within, missing=True
    )
    model = PCPCA(n_comps, gamma=gamma)
    model.fit(data.foreground, background=data.background, **data.strata)
    entry = {
        "params": data.params | {"gamma": gamma},
        "gamma": float(model.gamma_),
        "gamma_max": float(model.gamma_max_),
        "noise_variance": float(model.noise_variance_),
        "objective": float(model.objective_),
        "converged": bool(model.converged_),
        "contrastive_eigenvalues": model.contrastive_eigenvalues_,
    }
    result = data.result(keys, model, entry, loadings=model.loadings_)
    return _write.write(adata, result, copy=copy)
