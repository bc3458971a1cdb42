"""Reconstruct cells from the components of a contrast."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from anndata import AnnData

from contrast_core.feedback import warn

from .. import _fitted, _keys, _matrix, _select, _write
from .._arguments import is_among, quoted
from .._docs import documented

_AT_ONCE = 4096  # number of cells that are reconstructed at once


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
    """Add a layer with the part of the expression that the components of a contrast explain.

    Denoising keeps the difference between conditions that cPCA, cPCA*, PCPCA or cLVM found, and
    removes variation that the background has too. A cell x becomes `offset + V V' (x - mean)`,
    where the columns of V are the components [1]_ (Sec. 3.3). For cLVM, a cell becomes its salient
    part, as in `contrast_core.CLVM.denoise`. Few components simplify the data strongly, so use the
    layer for pictures of the effect, not for tests. After a fit within donors, each cell is centred
    by its donor's mean, so that differences between donors are removed too.

    Parameters
    ----------
    adata
        Annotated data matrix on which `scanpy_ext.tl.cpca`, `cpca_star`, `pcpca` or `clvm` was
        run.
    key
        Name of the result in `.uns`: the name of the method, or the `key_added` that was given.
    offset
        The vector that is added to each cell. `"foreground"` adds the foreground mean, so that
        values are on the scale of the input. `"difference"` adds the foreground mean minus the
        background mean, so that values are changes against the background. `"none"` adds nothing.
    layer
        The layer to denoise, or `None` for `.X`. By default, it is the layer of the fit.
    layer_added
        Name of the denoised layer. An existing layer of that name is replaced only if this function
        wrote it.
    {COPY}

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets this field:

    `.layers['denoised' | layer_added]` : `ndarray` (shape `(n_obs, n_vars)`)
        The denoised expression of all cells, dense, in the precision of the input. Genes outside
        the `mask_var` of the fit are NaN, because the components do not include them.
    `.uns['denoise']['denoised' | layer_added]` : `dict`
        The arguments that were given.

    Raises
    ------
    ValueError
        If there is no such result, its components cannot rebuild genes (a kernel, `obsm`, PCA++),
        `offset` is unknown, `layer_added` is a name that files cannot hold, or another function
        wrote a layer of this name.
    TypeError
        If the matrix is of an unknown kind, or `copy` is neither True nor False.

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
    _write.check_writable(adata, copy)
    _keys.checked(layer_added, "layer_added")
    _write.check_free(adata, "denoise", {"layers": [layer_added]})
    fitted = _fitted.restore(adata, key)
    linear = fitted.projector()
    chosen = fitted.params.get("layer") if layer is _select.DEFAULT else layer
    rows = _matrix.whole_matrix(adata, chosen).columns(fitted.places)
    kind = np.float32 if rows.dtype == np.float32 else np.float64
    denoised = np.full(adata.shape, np.nan, kind)
    offsets = linear.offsets
    if not is_among(offset, offsets):
        raise ValueError(f"offset={quoted(offset)} is unknown; expected one of {list(offsets)}.")
    scores = np.asarray(linear.transform(rows))
    scores = scores - fitted.centres(adata, scores)
    back = replace(linear, mean=offsets[offset])
    for start in range(0, len(scores), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        denoised[some, fitted.places] = back.inverse_transform(scores[some])
    n_unused = adata.n_vars - len(fitted.places)
    if n_unused:
        warn(
            f"{n_unused} of {adata.n_vars} genes were not in use by the fit and are NaN in "
            f"adata.layers[{layer_added!r}]. Fit with mask_var=None to denoise all genes."
        )
    given = {layer_added: _write.storable(key=key, offset=offset, layer=chosen)}
    entry = dict(adata.uns.get("denoise", {})) | given
    result = _write.Result("denoise", entry, {"layers": {layer_added: denoised}}, adds=True)
    return _write.write(adata, result, copy=copy)
