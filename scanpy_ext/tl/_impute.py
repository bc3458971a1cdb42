"""Fill in the missing values of a layer by a probabilistic contrast."""

from __future__ import annotations

from typing import Any

import numpy as np
from anndata import AnnData

from contrast_core.probabilistic import FactorModel

from .. import _fitted, _keys, _matrix, _select, _write
from .._arguments import check_flag
from .._docs import documented


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

    Each missing value becomes its conditional mean, given what is observed of the same cell [1]_
    (Sec. 7.2), which keeps the difference between conditions as far as the observed values show it.
    The model describes the foreground: in a cell with few observed values, the values filled in
    are near the foreground's mean. Use them for pictures and for methods that need a complete
    matrix. They are not measurements: do not test single genes with them.

    Parameters
    ----------
    adata
        Annotated data matrix on which `scanpy_ext.tl.pcpca` was run.
    key
        Name of the result in `.uns`: the method's, or the `key_added` that was given.
    layer
        The layer to fill in, or `None` for `.X`. It must be dense, with NaN where a value is
        missing. By default the layer of the fit.
    layer_added
        Name of the filled-in layer. A layer of this name that another function wrote is never
        replaced.
    return_std
        Write conditional standard deviations too.
    {COPY}

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields:

    `.layers['imputed' | layer_added]` : `ndarray` (shape `(n_obs, n_vars)`)
        The values of all cells, in the precision of the input. Observed values stay as they are,
        and so do all values of genes outside the `mask_var` of the fit.
    `.layers['imputed_std' | layer_added + '_std']` : `ndarray` (shape `(n_obs, n_vars)`)
        Only with `return_std`: the standard deviations of the values filled in, and 0 elsewhere.
    `.uns['impute'][layer]` : `dict`
        For each layer written, `key` (the name of the result that it was made with) and `values`
        (`"mean"` or `"std"`).

    Raises
    ------
    ValueError
        If there is no such result, if it is not a result of PCPCA on genes, if another function
        wrote a layer of this name, or if a value is infinite.
    TypeError
        If the matrix is sparse, because its entries that are not stored are zeros, or a flag is
        neither true nor false.

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
    _write.check_writable(adata, copy)
    _keys.checked(layer_added, "layer_added")
    return_std = check_flag(return_std, "return_std")
    names = [layer_added, f"{layer_added}_std"][: 1 + return_std]
    _write.check_free(adata, "impute", {"layers": names})
    fitted = _fitted.restore(adata, key)
    model = _model(fitted)
    chosen = fitted.params.get("layer") if layer is _select.DEFAULT else layer
    rows = _matrix.whole_matrix(adata, chosen, missing=True)
    if chosen in names:
        raise ValueError(
            f"layer={chosen!r} would be replaced by what is made of it. Give another layer_added=."
        )
    if not rows.can_miss:
        raise TypeError(
            f"{rows.name} is sparse, and what it does not store is zero, not missing. Give a dense "
            "layer with NaN where a value is missing."
        )
    layers = _filled(rows, model, fitted.places, len(names))
    entries = {
        name: {"key": str(key), "values": values}
        for name, values in zip(names, ("mean", "std"), strict=False)
    }
    entry = dict(adata.uns.get("impute", {})) | entries
    slots = {"layers": dict(zip(names, layers, strict=True))}
    return _write.write(adata, _write.Result("impute", entry, slots, adds=True), copy=copy)


def _model(fitted: _fitted.Fitted) -> FactorModel:
    """Return the factor model of the foreground."""
    if fitted.genes is None or "gamma" not in fitted.result:  # only PCPCA has gamma
        raise ValueError(
            f"adata.uns[{fitted.keys.uns!r}] cannot fill values in: that needs a model of genes, "
            "from scanpy_ext.tl.pcpca without obsm=."
        )
    noise = float(fitted.result["noise_variance"])
    return FactorModel(fitted.vector("mean"), fitted.loadings, noise)


def _filled(rows: Any, model: FactorModel, places: Any, n_layers: int) -> list[Any]:
    """Return all cells with missing values filled in, and standard deviations if asked for."""
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
