"""Contrastive PCA of the cells of an AnnData."""

from __future__ import annotations

from typing import Literal

from anndata import AnnData

from contrast_core import CPCA

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
    """Contrastive PCA: directions that vary in the foreground cells, not in the background.

    cPCA keeps and sharpens the difference between conditions. The components are the leading
    eigenvectors of `C_foreground - alpha * C_background`, each covariance centred by its own
    mean [1]_ (Alg. 1). All cells of `adata` are embedded, also those in neither set.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`.
    {CELLS}
    {WITHIN}
    n_comps
        Number of components. The automatic alpha depends on it.
    alpha
        Contrast strength: a number from 0 (PCA of the foreground) to infinity, or `"auto"`
        (chosen without labels from the two covariances), or `"denoise"` (milder, for
        reconstructions); see `contrast_core.CPCA`.
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
        The embedding: each cell minus the foreground mean, on the components.
    `.varm['PCs_cpca' | key_added]` : `ndarray` (shape `(n_vars, n_comps)`)
        The components (loadings): orthonormal columns, zero for genes outside `mask_var`.
    `.uns['cpca' | key_added]['alpha']` : `float`
        The contrast strength in use.
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
        If some components vary less in the foreground than alpha times in the background.

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
    keys = _write.reserve(adata, "cpca", key_added)
    selection = cells(adata, groupby, reference, groups, foreground, background)
    data = contrast_input(adata, selection, n_comps, layer, obsm, mask_var, copy, within=within)
    model = CPCA(n_comps, alpha=alpha, random_state=0)  # the result does not depend on the seed
    model.fit(data.foreground, background=data.background, **data.strata)
    entry = {
        "params": data.params | {"alpha": alpha},
        "alpha": float(model.alpha_),
        "contrastive_eigenvalues": model.contrastive_eigenvalues_,
    }
    return _write.write(adata, data.result(keys, model, entry), copy=copy)
