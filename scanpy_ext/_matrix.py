"""The matrix of an AnnData: `.X`, a layer or an embedding, in memory, in a file or in dask."""

from __future__ import annotations

from typing import Any

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray

from contrast_core.rows import Rows, rows_of

from ._arguments import is_among, listed, quoted
from ._select import DEFAULT, BoolArray, Default, Mask, genes
from ._write import storable

_REMEDY = "Leave these genes out with mask_var=, or remove or impute the values first."


def read_matrix(
    adata: AnnData,
    *,
    layer: str | None,
    mask_var: Mask | Default | None,
    n_comps: int,
    obsm: str | None = None,
    missing: bool = False,
) -> tuple[Rows, BoolArray | None, dict[str, Any]]:
    """Return the matrix of all cells and the genes in use, the genes' mask, and the arguments.

    For an embedding the mask is None, and all of its dimensions are in use. Data that are not in
    memory are not read yet.
    """
    if obsm is not None:
        if layer is not None or not (mask_var is DEFAULT or mask_var is None):
            given = "layer" if layer is not None else "mask_var"
            raise ValueError(f"got obsm= together with {given}=, which is about genes. Drop one.")
        features, mask_name = None, None
        matrix = embedding(adata, obsm, missing=missing)
        n_features = matrix.shape[1]
    else:
        features, mask_name = genes(adata, mask_var)
        n_features = int(features.sum())
    if isinstance(n_comps, bool) or not isinstance(n_comps, (int, np.integer)):
        raise TypeError(f"n_comps={quoted(n_comps)}: expected a whole number.")
    if not 1 <= n_comps <= n_features:
        in_use = "genes in use" if obsm is None else f"columns of adata.obsm[{obsm!r}]"
        raise ValueError(
            f"n_comps={quoted(n_comps)}, but it must be from 1 to {n_features} ({in_use})."
        )

    if features is not None:
        matrix = whole_matrix(adata, layer, missing=missing).columns(features)
    if matrix.in_memory:
        matrix.check()
    params = storable(
        n_comps=int(n_comps), n_features=n_features, layer=layer, mask_var=mask_name, obsm=obsm
    )
    return matrix, features, params


def whole_matrix(
    adata: AnnData,
    layer: str | None,
    *,
    owner: str = "adata",
    missing: bool = False,
) -> Rows:
    """Return all cells and genes of `.X` or a layer; errors call the AnnData `owner`."""
    if layer is not None and not is_among(layer, adata.layers):
        raise ValueError(
            f"layer: adata.layers has no {quoted(layer)}. "
            f"Its layers are {listed(list(adata.layers))}."
        )
    matrix = adata.X if layer is None else adata.layers[layer]
    if matrix is None:
        raise ValueError("adata.X is None: name the layer to use, layer=...")
    name = f"{owner}.X" if layer is None else f"{owner}.layers[{layer!r}]"
    return rows_of(matrix, name, remedy=_REMEDY, missing=missing)


def embedding(adata: AnnData, obsm: str, *, owner: str = "adata", missing: bool = False) -> Rows:
    """Return an entry of `adata.obsm`."""
    if not is_among(obsm, adata.obsm):
        raise ValueError(f"adata.obsm has no {quoted(obsm)}; it has {listed(list(adata.obsm))}.")
    rows = rows_of(adata.obsm[obsm], f"{owner}.obsm[{obsm!r}]", missing=missing)
    if not rows.in_memory:
        raise TypeError(
            f"adata.obsm[{obsm!r}] is {type(adata.obsm[obsm]).__name__} of shape {rows.shape}; "
            "expected a table in memory, a row for each cell."
        )
    return rows.replace(names=None)


def centred(
    values: NDArray[Any], labels: NDArray[np.str_], by: BoolArray | slice = slice(None)
) -> NDArray[np.floating]:
    """Subtract each label's mean from its rows; the mean is over the rows in `by`, if given."""
    found: NDArray[Any] = values.astype(np.float32 if values.dtype == np.float32 else np.float64)
    known = np.zeros(len(values), dtype=bool)
    known[by] = True
    for label in np.unique(labels):
        here = labels == label
        found[here] -= values[here & known].mean(axis=0)
    return found
