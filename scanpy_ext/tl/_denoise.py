"""Cells rebuilt from the components of a contrast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from .. import _matrix, _read, _select, _write
from .._docs import documented

if TYPE_CHECKING:
    from anndata import AnnData


@documented
def denoise(
    adata: AnnData,
    *,
    key: str = "cpca",
    offset: Literal["foreground", "difference", "none"] = "foreground",
    layer: str | _select.Default | None = _select.DEFAULT,
    layer_added: str = "denoised",
    copy: bool = False,
) -> AnnData | None:
    """Write a corrected layer: expression as the components of a contrast explain it.

    Denoising keeps the difference between conditions that cPCA, cPCA* or PCPCA found, and takes
    away what the background has as well: `offset + V V' (x - mean)` with the components as the
    columns of V [1]_ (Sec. 3.3). With few components that is a strong simplification: for
    pictures of the effect, not for tests.

    Parameters
    ----------
    adata
        Annotated data matrix on which `scanpy_ext.tl.cpca`, `cpca_star` or `pcpca` was run.
    key
        Name of the result in `.uns`.
    offset
        What is added back: `"foreground"` the foreground mean, so that values are like those that
        came in; `"difference"` the foreground mean minus the background mean, so that they are
        changes against the background; `"none"` nothing.
    layer
        The layer to correct, `None` for `.X`. By default the one of the fit.
    layer_added
        Name of the corrected layer.
    {COPY}

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets this field:

    `.layers['denoised' | layer_added]` : `ndarray` (shape `(n_obs, n_vars)`)
        All cells, dense, in the precision of the input. Genes outside the `mask_var` of the fit
        are 0.

    Raises
    ------
    ValueError
        If there is no such result, it has no components of genes (a kernel, `obsm`, PCA++), or
        `offset` is unknown.
    TypeError
        If the matrix is of an unknown kind.

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
    >>> cx.tl.cpca(adata, groupby="condition", reference="ctrl", alpha="denoise")
    >>> cx.tl.denoise(adata)
    >>> adata.layers["denoised"].shape
    (60, 8)
    """
    keys, result = _read.linear_result(adata, key)
    params = result.get("params", {})
    if "background_mean" not in result or "obsm" in params:
        raise ValueError(
            f"adata.uns[{key!r}] cannot be used for denoising: that needs components of genes, "
            "from scanpy_ext.tl.cpca, cpca_star or pcpca without obsm=."
        )
    mean, other = np.asarray(result["mean"]), np.asarray(result["background_mean"])
    offsets = {"foreground": mean, "difference": mean - other, "none": np.zeros_like(mean)}
    if offset not in offsets:
        raise ValueError(f"offset={offset!r} is unknown; expected one of {list(offsets)}.")
    added = offsets[offset]
    components = _unit_columns(np.asarray(adata.varm[keys.varm]))
    in_use = (components != 0).any(axis=1) | (mean != 0) | (other != 0)
    chosen = params.get("layer") if layer is _select.DEFAULT else layer
    matrix = _matrix.with_columns(_read.whole_matrix(adata, chosen), in_use)
    kept = components[in_use]
    shift = mean[in_use] @ kept

    denoised = np.zeros(adata.shape, np.float32 if matrix.dtype == np.float32 else np.float64)

    def rebuilt(rows: Any) -> NDArray[np.floating]:
        return np.asarray(rows @ kept - shift)

    scores = _matrix.apply(rebuilt, matrix, kept.shape[1])
    for block in _matrix.blocks(*denoised.shape):
        denoised[block, in_use] = scores[block] @ kept.T + added[in_use]
    return _write.write(adata, layers={layer_added: denoised}, uns={}, copy=copy)


def _unit_columns(loadings: NDArray[np.floating]) -> NDArray[np.floating]:
    """Orthogonal columns at unit length; a column of zeros stays as it is."""
    lengths = np.linalg.norm(loadings, axis=0)
    return np.asarray(loadings / np.where(lengths > 0, lengths, 1.0))
