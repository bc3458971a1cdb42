"""Contrastive PCA* of the cells of an AnnData."""

from __future__ import annotations

from typing import Literal

from anndata import AnnData

from contrast_core import CPCAStar

from .. import _write
from .._docs import documented
from .._read import contrast_input
from .._select import DEFAULT, Default, Levels, Mask, cells


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
        Contrast strength: a number from 0 (PCA of the foreground) to 1 (the plain ratio; needs
        more background cells than genes), or `"auto"`; see `contrast_core.CPCAStar`.
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
        The embedding: each cell minus the foreground mean, on the components.
    `.varm['PCs_cpca_star' | key_added]` : `ndarray` (shape `(n_vars, n_comps)`)
        The components (loadings): orthonormal columns with the span of the directions, zero for
        genes outside `mask_var`.
    `.uns['cpca_star' | key_added]['beta']` : `float`
        The contrast strength in use.
    `.uns['cpca_star' | key_added]['generalized_eigenvalues']` : `ndarray` (shape `(n_comps,)`)
        Lambda: the ratio of the variances along each direction.
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
    keys = _write.reserve(adata, "cpca_star", key_added)
    selection = cells(adata, groupby, reference, groups, foreground, background)
    data = contrast_input(adata, selection, n_comps, layer, obsm, mask_var, copy, within=within)
    model = CPCAStar(n_comps, beta=beta)
    model.fit(data.foreground, background=data.background, **data.strata)
    entry = {
        "params": data.params | {"beta": beta},
        "beta": float(model.beta_),
        "generalized_eigenvalues": model.generalized_eigenvalues_,
    }
    return _write.write(adata, data.result(keys, model, entry), copy=copy)
