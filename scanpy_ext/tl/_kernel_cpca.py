"""Kernel contrastive PCA of the cells of an AnnData."""

from __future__ import annotations

from typing import Any, Literal

from anndata import AnnData

from contrast_core import KernelCPCA
from contrast_core.moments import FeatureMoments
from contrast_core.spectral import Kernel

from .. import _write
from .._arguments import is_among, storable
from .._docs import documented
from .._read import contrast_input
from .._select import DEFAULT, Default, Levels, Mask, cells


@documented
def kernel_cpca(
    adata: AnnData,
    *,
    groupby: str | None = None,
    reference: Levels | None = None,
    groups: Levels | None = None,
    foreground: Mask | None = None,
    background: Mask | AnnData | None = None,
    n_comps: int = 2,
    alpha: float | Literal["auto"] = "auto",
    kernel: Kernel = "rbf",
    kernel_gamma: float | None = None,
    layer: str | None = None,
    obsm: str | None = None,
    mask_var: Mask | Default | None = DEFAULT,
    key_added: str | None = None,
    copy: bool = False,
) -> AnnData | None:
    """Kernel contrastive PCA: cPCA in the feature space of a kernel.

    Kernel cPCA keeps and sharpens the difference between conditions, even if no linear direction
    shows this difference [1]_ (eq. 5, App. E). Foreground and background together should have at
    most a few thousand cells, because the time grows with the cube of their number. All cells of
    `adata` are embedded, including cells that are in neither set.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`.
    {CELLS}
    n_comps
        Number of components.
    alpha
        Contrast strength: a number from 0 to infinity, or `"auto"`; see
        `contrast_core.KernelCPCA`.
    kernel
        Name of a kernel of scikit-learn's `pairwise_kernels`, or a callable of two rows. Distances
        in thousands of genes are hardly informative, so `obsm="X_pca"` is often the better input.
    kernel_gamma
        Coefficient of the kernel. The default is 1 / (number of features * mean variance), similar
        to `gamma="scale"` in scikit-learn's `SVC`. The features are the genes in use or the
        dimensions of `obsm`, and their variance is taken over the foreground and background cells.
        For the chi2 kernels, the default is 1.
    {DATA}
    {OBSM}
    key_added
        Name of the results in `.obsm` and `.uns`, instead of `X_kernel_cpca` and `kernel_cpca`.
    {COPY}

    Returns
    -------
    `None`, or the updated copy with `copy=True`. A kernel has no loadings. Sets these fields:

    `.obsm['X_kernel_cpca' | key_added]` : `ndarray` (shape `(n_obs, n_comps)`)
        The embedding, centred by the foreground mean in feature space.
    `.uns['kernel_cpca' | key_added]['alpha']` : `float`
        The contrast strength that was used.
    `.uns['kernel_cpca' | key_added]['kernel_gamma']` : `float`
        The coefficient of the kernel that was used.
    `.uns['kernel_cpca' | key_added]['contrastive_eigenvalues']` : `ndarray` (shape `(n_comps,)`)
        Foreground variance minus alpha times background variance, per component.
    {KEPT}

    Raises
    ------
    {RAISES}

    Notes
    -----
    {EXPECTS}

    The foreground and background cells and the kernel matrix of all of them are held in memory;
    sparse matrices stay sparse. For the embedding, all cells of a file or dask array are read
    again, in blocks.

    References
    ----------
    .. [1] Abid, Zhang, Bagaria, Zou (2017). Contrastive principal component analysis.
       arXiv:1709.06716, Sec. 5 and App. E.

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> counts = np.random.default_rng(0).poisson(2.0, size=(60, 8)).astype("float32")
    >>> adata = anndata.AnnData(np.log1p(counts))
    >>> adata.obs["condition"] = ["ctrl", "stim"] * 30
    >>> cx.tl.kernel_cpca(adata, groupby="condition", reference="ctrl", alpha=1.0)
    >>> adata.obsm["X_kernel_cpca"].shape
    (60, 2)
    """
    keys = _write.reserve(adata, copy, "kernel_cpca", key_added)
    selection = cells(adata, groupby, reference, groups, foreground, background)
    data = contrast_input(adata, selection, n_comps, layer, obsm, mask_var)
    foreground, background = data.foreground.load(), data.background.load()
    if kernel_gamma is None:
        kernel_gamma = (
            1.0 if is_among(kernel, {"chi2", "additive_chi2"}) else _scale(foreground, background)
        )
    model = KernelCPCA(n_comps, alpha=alpha, kernel=kernel, kernel_gamma=kernel_gamma)
    model.fit(foreground, background=background)
    named = kernel if isinstance(kernel, str) else None
    entry = {
        "params": data.params | storable(alpha=alpha, kernel=named),
        "alpha": float(model.alpha_),
        "kernel_gamma": float(kernel_gamma),
        "contrastive_eigenvalues": model.contrastive_eigenvalues_,
        "foreground_variance": model.foreground_variance_,
        "background_variance": model.background_variance_,
    }
    result = _write.Result(keys.uns, entry | data.sizes, {"obsm": {keys.obsm: data.embed(model)}})
    return _write.write(adata, result, copy=copy)


def _scale(foreground: Any, background: Any) -> float:
    """Return 1 divided by the total variance of both sets, each centred by its own mean."""
    moments = [FeatureMoments.from_data(rows) for rows in (foreground, background)]
    total = sum(float(of_set.squares.sum()) for of_set in moments)
    return sum(of_set.n_samples for of_set in moments) / total if total > 0 else 1.0
