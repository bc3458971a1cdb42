"""Read the cells and genes of an AnnData, and form the result of a linear method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from contrast_core.feedback import check_count, shown, warn
from contrast_core.rows import Rows, rows_of

from . import _keys, _values
from ._arguments import check_anndata, is_among, listed, storable
from ._keys import Keys
from ._select import DEFAULT, BoolArray, Default, Mask, Selection, check_donor, genes, known_labels
from ._stored import fit_table
from ._write import Result

Labels: TypeAlias = NDArray[np.str_]

_FEW_CELLS = 10  # there is a warning if the background has fewer cells
_REMEDY = "Leave these genes out with mask_var=, or remove or impute the values first."


@dataclass(frozen=True)
class ContrastInput:
    """The cells and genes that a method needs from an AnnData, after all checks.

    Attributes
    ----------
    matrix
        All cells and the genes in use, (n_obs, n_features), in memory or not.
    foreground, background
        The cells of the two sets, (n, n_features) and (m, n_features).
    selection
        The masks of the foreground and background cells.
    features, gene_names
        Mask of the genes in use, (n_vars,), or None for an embedding; and the names of all genes.
    params
        The arguments that chose the input, storable in `.uns`.
    within
        Keyword argument for the `transform` of a method: the donor or batch of every cell,
        (n_obs,). Empty if the contrast is not within donors.
    strata
        Keyword arguments for the `fit` of a method: the donor or batch of every foreground cell
        and of every background cell. Empty if the contrast is not within donors.
    """

    matrix: Rows
    foreground: Rows
    background: Rows
    selection: Selection
    features: BoolArray | None
    gene_names: pd.Index
    params: dict[str, Any]
    within: dict[str, Labels] = field(default_factory=dict)
    strata: dict[str, Labels] = field(default_factory=dict)

    @property
    def sizes(self) -> dict[str, int]:
        """Numbers of cells of the two sets, storable in `.uns`."""
        sides = {"n_foreground": self.foreground, "n_background": self.background}
        return {name: int(side.shape[0]) for name, side in sides.items()}

    @property
    def feature_names(self) -> list[str]:
        """Names of the genes in use, or of the dimensions of the embedding."""
        if self.features is not None:
            return list(self.gene_names[self.features])
        return _keys.dimensions(str(self.params["obsm"]), self.matrix.shape[1])

    def embed(self, model: Any) -> NDArray[np.floating]:
        """Return scores of all cells, (n_obs, n_comps), in single precision if the data are."""
        return self.as_precise(model.transform(self.matrix, **self.within))

    def as_precise(self, scores: Any) -> NDArray[np.floating]:
        """Return scores as an array in memory, in single precision if the data are.

        The chunks of a dask array are joined in this process. If NumPy converted the array, a
        worker of the cluster would join them, and would need memory for the scores of all cells.
        """
        dtype = np.float32 if self.matrix.dtype == np.float32 else np.float64
        precise = scores.astype(dtype, copy=False)
        return precise if isinstance(precise, np.ndarray) else rows_of(precise).load()

    def result(
        self,
        keys: Keys,
        model: Any,
        entry: Mapping[str, Any],
        *,
        loadings: NDArray[np.floating] | None = None,
        linear: bool = True,
        **vectors: NDArray[np.floating] | None,
    ) -> Result:
        """Return the result that a method writes, with the same slots for every method.

        Parameters
        ----------
        keys
            Names of the AnnData slots to write.
        model
            A fitted method.
        entry
            Further values for the entry in `.uns`.
        loadings
            Loadings, (n_features, n_comps). By default, `model.components_.T`.
        linear
            Whether the scores of a cell x are `(x - mean) @ model.projection_`.
        **vectors
            Further values for each feature, (n_features,).
        """
        loadings = model.components_.T if loadings is None else loadings
        filters = model.projection_ if linear else None
        vectors = {"mean": model.mean_, "background_mean": model.background_mean_} | vectors
        entry = dict(entry) | self.sizes
        for name in ("foreground_variance", "background_variance"):
            entry[name] = getattr(model, f"{name}_")
        if self.within:  # `tl.project` subtracts the scores of the group means
            entry["within_groups"] = model.within_labels_
            entry["within_scores"] = (model.within_means_ - model.mean_) @ model.projection_
        slots: dict[str, dict[str, Any]] = {"obsm": {keys.obsm: self.embed(model)}}
        if self.features is None:  # an embedding: its dimensions take the place of genes
            entry["fit"] = fit_table(self.feature_names, slice(None), filters, **vectors)
            entry["loadings"] = loadings
        else:
            slots["varm"] = {
                keys.varm: on_all_genes(loadings, self.features),
                keys.fit: fit_table(self.gene_names, self.features, filters, **vectors),
            }
        return Result(keys.uns, entry, slots)


def on_all_genes(values: NDArray[np.floating], features: BoolArray) -> NDArray[np.floating]:
    """Extend values of the genes in use, (n_features, ...), by zeros to (n_vars, ...)."""
    whole = np.zeros((features.size, *values.shape[1:]))
    whole[features] = values
    return whole


def contrast_input(
    adata: AnnData,
    selection: Selection,
    n_comps: int,
    layer: str | None = None,
    obsm: str | None = None,
    mask_var: Mask | Default | None = DEFAULT,
    *,
    within: str | None = None,
    missing: bool = False,
    counts: bool = False,
) -> ContrastInput:
    """Read the selected cells and genes, and check them.

    Data in memory must not contain NaN, unless `missing` is True and the matrix is dense. Unless
    `counts` is True, the function warns if the values do not look like logarithms of counts.
    """
    matrix, features, params = read_matrix(
        adata, layer=layer, mask_var=mask_var, n_comps=n_comps, obsm=obsm, missing=missing
    )
    front, back = selection.foreground, selection.background
    of_cells: dict[str, Labels] = {}
    strata: dict[str, Labels] = {}
    if within is not None:
        check_donor(within, selection.params.get("groupby"), "within")
        labels = known_labels(adata, within, "within")
        _check_levels_on_both_sides(within, labels, selection)
        other = selection.other
        of_back = labels[back] if other is None else known_labels(other, within, "within")
        of_cells, strata = {"within": labels}, {"within": labels[front]}
        strata["background_within"] = of_back
    if selection.other is None:
        background = matrix.take(back)
    else:
        background = _read_other(adata, selection.other, layer, obsm, features, missing)
        if front.all() and _values.are_same_values(matrix, background):
            raise ValueError(
                "the AnnData that was given as background holds the same cells as adata, so there "
                "is nothing to contrast. Give other cells as background, or choose the two sets "
                "with groupby= and reference=."
            )
    if features is not None and not counts:
        _values.warn_of_values(matrix, None if selection.other is None else background)
    n_background = background.shape[0]
    if n_background < _FEW_CELLS:
        warn(
            f"the background has only {n_background} cells. The covariance of so few cells is "
            "inaccurate. Take more background cells."
        )
    params = selection.params | params | storable(within=within)
    names = adata.var_names
    return ContrastInput(
        matrix, matrix.take(front), background, selection, features, names, params, of_cells, strata
    )


def _check_levels_on_both_sides(within: str, labels: Labels, selection: Selection) -> None:
    """Check that donors have cells both in the background and outside of it.

    If the foreground contains background cells, the contrast includes the difference between the
    means of the background and of the other cells. Centring a donor whose cells are all on one side
    sets the mean of its cells to zero, so that they contribute nothing to this difference. The
    function warns if this is so for some donors, and raises ValueError if it is so for all donors.
    If no cell is in both sets, each set is centred by
    its own mean even without `within`, so the contrast never contains the difference between the
    means of the two sets. Different donors are then allowed, and nothing is checked.
    """
    front, back = selection.foreground & ~selection.background, selection.background
    if not front.any() or not (selection.foreground & back).any():
        return
    sides = set(labels[front]), set(labels[back])
    if not sides[0] & sides[1]:
        raise ValueError(
            f"within: no level of adata.obs[{within!r}] has cells both in the background and "
            f"outside of it ({listed(sorted(sides[0]), 5)} against {listed(sorted(sides[1]), 5)}). "
            "Centring each level would remove the difference between the two sets. Leave within= "
            "out, and test with scanpy_ext.tl.significance(donor=...) whether the difference "
            "exceeds the differences between donors."
        )
    if alone := sorted(sides[0] ^ sides[1]):
        warn(
            f"these levels of adata.obs[{within!r}] do not have cells both in the background and "
            "outside of it, so they contribute nothing to the difference between the two sets: "
            f"{listed(alone)}."
        )


def _read_other(
    adata: AnnData,
    other: AnnData,
    layer: str | None,
    obsm: str | None,
    features: BoolArray | None,
    missing: bool,
) -> Rows:
    """Return the background cells, which are all cells of another AnnData."""
    if other.n_obs < 2:
        raise ValueError(f"background has {other.n_obs} cell(s); a covariance needs at least 2.")
    if features is None:
        found = embedding(other, str(obsm), owner="background", missing=missing)
    else:
        if not other.var_names.equals(adata.var_names):
            lacking = list(adata.var_names.difference(other.var_names))
            fault = (
                f"lacks {len(lacking)} genes of adata ({listed(lacking, most=5)})"
                if lacking
                else "has genes that adata lacks, or its genes have another order"
            )
            raise ValueError(
                f"the AnnData that was given as background {fault}. Both need the same genes in "
                "the same order: restrict adata to genes of both, and give "
                "background[:, adata.var_names]."
            )
        found = whole_matrix(other, layer, owner="background", missing=missing).columns(features)
    if found.in_memory:
        found.check()
    return found


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
    check_anndata(adata)
    features, mask_name, in_use = None, None, f"columns of adata.obsm[{obsm!r}]"
    if obsm is None:
        features, mask_name = genes(adata, mask_var)
        matrix = whole_matrix(adata, layer, missing=missing).columns(features)
        in_use = "genes in use"
    elif layer is not None or not (mask_var is DEFAULT or mask_var is None):
        given = "layer" if layer is not None else "mask_var"
        raise ValueError(f"got obsm= together with {given}=, which refers to genes. Drop one.")
    else:
        matrix = embedding(adata, obsm, missing=missing)
    n_features = matrix.shape[1]
    reason = f"with {n_features} {in_use}"
    n_comps = check_count(n_comps, "n_comps", at_most=n_features, reason=reason)
    if matrix.in_memory:
        matrix.check()
    params = storable(
        n_comps=n_comps, n_features=n_features, layer=layer, mask_var=mask_name, obsm=obsm
    )
    return matrix, features, params


def whole_matrix(
    adata: AnnData, layer: str | None, *, owner: str = "adata", missing: bool = False
) -> Rows:
    """Return all cells and genes of `.X` or of a layer.

    Error messages refer to the AnnData as `owner`.
    """
    if layer is not None and not is_among(layer, adata.layers):
        raise ValueError(
            f"layer: {owner}.layers has no {shown(layer)}. "
            f"Its layers are {listed(list(adata.layers))}."
        )
    matrix = adata.X if layer is None else adata.layers[layer]
    if matrix is None:
        raise ValueError(f"{owner}.X is None. Give the name of the layer to use as layer=...")
    name = f"{owner}.X" if layer is None else f"{owner}.layers[{layer!r}]"
    return rows_of(matrix, name, remedy=_REMEDY, missing=missing)


def embedding(adata: AnnData, obsm: str, *, owner: str = "adata", missing: bool = False) -> Rows:
    """Return an entry of `.obsm`; error messages refer to the AnnData as `owner`."""
    if not is_among(obsm, adata.obsm):
        raise ValueError(f"{owner}.obsm has no {shown(obsm)}; it has {listed(list(adata.obsm))}.")
    rows = rows_of(adata.obsm[obsm], f"{owner}.obsm[{obsm!r}]", missing=missing)
    if not rows.in_memory:
        raise TypeError(
            f"{rows.name} is {type(adata.obsm[obsm]).__name__} of shape {rows.shape}; "
            "expected a table in memory with a row for each cell."
        )
    return rows.replace(names=None)


def centred(
    values: NDArray[Any], labels: NDArray[np.str_], by: BoolArray | slice = slice(None)
) -> NDArray[np.floating]:
    """Subtract from each row the mean of the rows with the same label.

    If `by` is given, only the rows in `by` are used to compute the means.
    """
    found: NDArray[Any] = values.astype(np.float32 if values.dtype == np.float32 else np.float64)
    known = np.zeros(len(values), dtype=bool)
    known[by] = True
    for label in np.unique(labels):
        here = labels == label
        found[here] -= values[here & known].mean(axis=0)
    return found
