"""Compute layers from a fitted contrast: denoised values, or values without gaps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from anndata import AnnData

from contrast_core.feedback import check_choice, check_flag, warn
from contrast_core.probabilistic import FactorModel

from .. import _keys, _read, _select, _stored, _write
from .._arguments import storable
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
    where the columns of V are the components and `mean` is the foreground mean [1]_ (Sec. 3.3). For
    cLVM, a cell becomes its salient part, as in `contrast_core.CLVM.denoise`. Few components
    simplify the data strongly, so use the layer for plots of the effect, not for tests. After a fit
    within donors, each cell is centred by the mean of its donor, so that differences between donors
    are removed too.

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
    `None`, or the updated copy with `copy=True`. Sets these fields:

    `.layers['denoised' | layer_added]` : `ndarray` (shape `(n_obs, n_vars)`)
        The denoised expression of all cells, dense, in the precision of the input. Genes outside
        the `mask_var` of the fit are NaN, because the components do not include them.
    `.uns['denoise']['denoised' | layer_added]` : `dict`
        The arguments that were given.

    Raises
    ------
    ValueError
        If there is no such result, or its components cannot reconstruct genes, as after
        `kernel_cpca`, after `pca_pp` or after a fit with `obsm`. The error is also raised if
        `offset` is unknown, if `layer_added` is a name that files cannot hold, or if another
        function wrote a layer of this name.
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
    _keys.checked(layer_added, "layer_added")
    _write.check_free(adata, copy, "denoise", {"layers": [layer_added]})
    fitted = _stored.restore(adata, key)
    linear = fitted.projector()
    chosen = fitted.params.get("layer") if layer is _select.DEFAULT else layer
    rows = _read.whole_matrix(adata, chosen).columns(fitted.places)
    kind = np.float32 if rows.dtype == np.float32 else np.float64
    denoised = np.full(adata.shape, np.nan, kind)
    mean = linear.offsets[check_choice(offset, "offset", linear.offsets)]
    scores = np.asarray(linear.transform(rows))
    scores = scores - fitted.centres(adata, scores)
    back = replace(linear, mean=mean)
    for start in range(0, len(scores), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        denoised[some, fitted.places] = back.inverse_transform(scores[some])
    n_unused = adata.n_vars - len(fitted.places)
    if n_unused:
        warn(
            f"{n_unused} of {adata.n_vars} genes were not in use by the fit and are NaN in "
            f"adata.layers[{layer_added!r}]. Fit with mask_var=None to denoise all genes."
        )
    entry = {layer_added: storable(key=key, offset=offset, layer=chosen)}
    result = _write.Result("denoise", entry, {"layers": {layer_added: denoised}}, adds=True)
    return _write.write(adata, result, copy=copy)


@documented
def impute(
    adata: AnnData,
    *,
    key: str = "pcpca",
    layer: str | _select.Default | None = _select.DEFAULT,
    layer_added: str = "imputed",
    return_std: bool = False,
    copy: bool = False,
) -> AnnData | None:
    """Write a layer in which missing values (NaN) are filled in by `scanpy_ext.tl.pcpca`'s model.

    Each missing value becomes its conditional mean, given the observed values of the same cell [1]_
    (Sec. 7.2). This keeps the difference between conditions as far as the observed values show it.
    The model describes the foreground. In a cell with few observed values, the imputed values are
    therefore near the foreground mean. Use imputed values for plots and for methods that need a
    complete matrix. They are not measurements: do not test single genes with them.

    Parameters
    ----------
    adata
        Annotated data matrix on which `scanpy_ext.tl.pcpca` was run.
    key
        Name of the result in `.uns`: the name of the method, or the `key_added` that was given.
    layer
        The layer to fill in, or `None` for `.X`. It must be dense, with NaN where a value is
        missing. By default, it is the layer of the fit.
    layer_added
        Name of the filled-in layer. A layer of this name that another function wrote is never
        replaced.
    return_std
        Whether to write the conditional standard deviations of the imputed values too.
    {COPY}

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields:

    `.layers['imputed' | layer_added]` : `ndarray` (shape `(n_obs, n_vars)`)
        The values of all cells, in the precision of the input. Observed values stay as they are,
        and so do all values of genes outside the `mask_var` of the fit.
    `.layers['imputed_std' | layer_added + '_std']` : `ndarray` (shape `(n_obs, n_vars)`)
        Only with `return_std`: the standard deviations of the imputed values, and 0 elsewhere.
    `.uns['impute'][layer]` : `dict`
        An entry for each layer that was written. `key` is the name of the result from which it was
        computed, and `values` is `"mean"` or `"std"`.

    Raises
    ------
    ValueError
        If there is no such result, if it is not a result of PCPCA on genes, if another function
        wrote a layer of this name, or if a value is infinite.
    TypeError
        If `return_std` or `copy` is neither true nor false, or if the matrix is sparse. Entries
        that a sparse matrix does not store are zeros, not missing values.

    References
    ----------
    .. [1] Li, Jones, Engelhardt (2020). Probabilistic contrastive principal component analysis.
       arXiv:2012.07977.

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> levels = np.random.default_rng(0).normal(size=(60, 8))
    >>> levels[::7, 2] = np.nan
    >>> adata = anndata.AnnData(levels)
    >>> adata.obs["condition"] = ["ctrl", "stim"] * 30
    >>> cx.tl.pcpca(adata, groupby="condition", reference="ctrl")
    >>> cx.tl.impute(adata)
    >>> bool(np.isnan(adata.layers["imputed"]).any())
    False
    """
    _keys.checked(layer_added, "layer_added")
    return_std = check_flag(return_std, "return_std")
    names = [layer_added, f"{layer_added}_std"][: 1 + return_std]
    _write.check_free(adata, copy, "impute", {"layers": names})
    fitted = _stored.restore(adata, key)
    if fitted.genes is None or "gamma" not in fitted.result:  # only PCPCA has gamma
        raise ValueError(
            f"adata.uns[{key!r}] cannot fill in values, because it is not a result of PCPCA on "
            "genes. Run scanpy_ext.tl.pcpca without obsm=, and give its result as key=."
        )
    noise = float(fitted.result["noise_variance"])
    model = FactorModel(fitted.vector("mean"), fitted.loadings, noise)
    chosen = fitted.params.get("layer") if layer is _select.DEFAULT else layer
    rows = _read.whole_matrix(adata, chosen, missing=True)
    if not rows.can_miss:
        raise TypeError(
            f"{rows.name} is sparse: values that it does not store are zero, not missing. Give "
            "a dense layer with NaN where a value is missing."
        )
    layers = _filled(rows, model, fitted.places, len(names))
    entry = {
        name: {"key": str(key), "values": values}
        for name, values in zip(names, ("mean", "std"), strict=False)
    }
    slots = {"layers": dict(zip(names, layers, strict=True))}
    return _write.write(adata, _write.Result("impute", entry, slots, adds=True), copy=copy)


def _filled(rows: Any, model: FactorModel, places: Any, n_layers: int) -> list[Any]:
    """Return layers of all cells: imputed values, and standard deviations if `n_layers` is 2."""
    kind = np.float32 if rows.dtype == np.float32 else np.float64
    layers = [np.zeros(rows.shape, kind) for _ in range(n_layers)]
    start = 0
    for block in rows.blocks():
        some, start = slice(start, start + len(block)), start + len(block)
        layers[0][some] = block
        layers[0][some, places] = model.imputed(block[:, places])
        if n_layers > 1:
            layers[1][some, places] = model.deviations(block[:, places])
    return layers
