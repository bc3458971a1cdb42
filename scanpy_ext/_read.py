"""What a contrast takes from an AnnData, and what it writes of each gene and cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

from contrast_core.feedback import Progress, warn
from contrast_core.rows import Rows, held

from . import _keys, _values
from ._arguments import is_anndata, listed
from ._matrix import embedding, read_matrix, whole_matrix
from ._select import (
    DEFAULT,
    BoolArray,
    Default,
    Levels,
    Mask,
    Selection,
    cells,
    donor_column,
)
from ._write import Slots, check_writable, storable

if TYPE_CHECKING:
    from anndata import AnnData

    from ._keys import Keys

Labels: TypeAlias = NDArray[np.str_]

FEW_CELLS = 10  # of the background, below which a covariance says little


@dataclass(frozen=True)
class ContrastInput:
    """What a method needs from an AnnData, read and checked.

    Attributes
    ----------
    matrix
        All cells and the genes in use, (n_obs, n_features), wherever they are.
    selection
        The foreground and background cells.
    features
        The genes in use, a mask of shape (n_vars,); None for an embedding.
    params
        How the input was asked for, storable in `.uns`.
    other
        The cells of another AnnData that are the background, if one was given.
    copy
        Whether results go into a copy.
    within, within_other
        The donor or batch of every cell, (n_obs,), and of those of `other`, if that was asked for.
    """

    matrix: Rows
    selection: Selection
    features: BoolArray | None
    params: dict[str, Any]
    other: Rows | None = None
    copy: bool = False
    within: Labels | None = None
    within_other: Labels | None = None

    @property
    def foreground(self) -> Rows:
        """The foreground cells, (n, n_features)."""
        return self.matrix.take(self.selection.foreground)

    @property
    def background(self) -> Rows:
        """The background cells, (m, n_features)."""
        return self.matrix.take(self.selection.background) if self.other is None else self.other

    @property
    def groups(self) -> dict[str, Labels]:
        """What the core's `fit` takes beside the two sets of cells."""
        if self.within is None:
            return {}
        background = self.within[self.selection.background]
        return {
            "groups": self.within[self.selection.foreground],
            "background_groups": background if self.within_other is None else self.within_other,
        }

    @property
    def shared(self) -> BoolArray:
        """The cells in both sets, (n_obs,)."""
        return self.selection.foreground & self.selection.background

    @property
    def sizes(self) -> dict[str, int]:
        """How many cells the two sets have, storable in `.uns`."""
        n_other = 0 if self.other is None else int(self.other.shape[0])
        return {
            "n_foreground": int(self.selection.foreground.sum()),
            "n_background": n_other or int(self.selection.background.sum()),
        }

    def feature_names(self, adata: AnnData) -> list[str]:
        """Names of the genes in use, or of the dimensions of the embedding."""
        if self.features is not None:
            return list(adata.var_names[self.features])
        return _keys.dimensions(str(self.params["obsm"]), self.matrix.shape[1])

    def loaded(self) -> tuple[Any, Any]:
        """Foreground and background as ndarrays or CSR; cells in both sets are read once."""
        if self.other is not None:
            return self.foreground.load(), self.other.load()
        foreground, background = self.selection.foreground, self.selection.background
        used = foreground | background
        both = held(self.matrix.take(used))
        x, y = both.take(foreground[used]), both.take(background[used])
        return x.load(check=False), y.load(check=False)

    def embed(self, model: Any) -> NDArray[np.floating]:
        """Scores of all cells, (n_obs, n_comps), in the precision of their values."""
        groups = {} if self.within is None else {"groups": self.within}
        return self.as_precise(model.transform(self.matrix, **groups))

    def as_precise(self, scores: Any) -> NDArray[np.floating]:
        """Scores in single precision, if the values are."""
        return np.asarray(scores, np.float32 if self.matrix.dtype == np.float32 else np.float64)

    def slots(
        self,
        keys: Keys,
        model: Any,
        result: Mapping[str, Any],
        *,
        loadings: NDArray[np.floating] | None = None,
        filters: NDArray[np.floating] | None = None,
    ) -> Slots:
        """What a linear method writes, for `write`: every one of them the same slots.

        Parameters
        ----------
        keys
            Names of the slots.
        model
            A fitted linear method.
        result
            What else goes to `.uns`.
        loadings
            (n_features, n_comps), the components by default.
        filters
            (n_features, n_comps), where scores are not projections on the loadings.
        """
        tables = {
            keys.varm: model.components_.T if loadings is None else loadings,
            _keys.filters(keys): filters,
        }
        vectors = {"mean": model.mean_, "background_mean": model.background_mean_}
        entry = dict(result) | self.sizes
        if "dispersion" in entry:
            vectors["dispersion"] = entry.pop("dispersion")
        if self.within is not None:  # scores of the groups' means, by which those of new cells are
            entry["within_groups"] = model.groups_  # centred
            entry["within_scores"] = (model.group_means_ - model.mean_) @ model.projection_
        embedding = {keys.obsm: self.embed(model)}
        if self.features is None:  # no genes: all is about the dimensions of the embedding
            entry |= vectors | {"loadings": tables[keys.varm]}
            if filters is not None:
                entry["filters"] = filters
            return {"obsm": embedding, "varm": {}, "var": {}, "uns": {keys.uns: entry}}
        return {
            "obsm": embedding,
            "varm": {
                name: None if table is None else of_all_genes(table, self.features)
                for name, table in tables.items()
            },
            "var": gene_columns(keys, self.features, **vectors),
            "uns": {keys.uns: entry},
        }


def of_all_genes(
    values: NDArray[np.floating], features: BoolArray, fill: float = 0.0
) -> NDArray[np.floating]:
    """Values of the genes in use, (n_features, ...), as (n_vars, ...)."""
    whole = np.full((features.size, *values.shape[1:]), fill)
    whole[features] = values
    return whole


def gene_columns(
    keys: Keys, features: BoolArray, **vectors: NDArray[np.floating]
) -> dict[str, NDArray[Any] | None]:
    """The columns of `.var` of a linear method: the genes in use, and values of each of them.

    None for those that another method may have left under the same name.
    """
    columns: dict[str, NDArray[Any] | None] = {_keys.vector(keys, _keys.IN_USE): features}
    for name in _keys.VECTORS:
        found, fill = vectors.get(name), np.inf if name == "cap" else 0.0
        values = None if found is None else of_all_genes(found, features, fill)
        columns[_keys.vector(keys, name)] = values
    return columns


class Design(TypedDict, total=False):
    """Which cells and which of their values: what the contrastive tools pass on to `read`."""

    groupby: str | None
    reference: Levels | None
    groups: Levels | None
    include_reference: bool
    foreground: Mask | None
    background: Mask | AnnData | None
    layer: str | None
    obsm: str | None
    mask_var: Mask | Default | None
    copy: bool
    progress: Progress


class WithinDesign(Design, total=False):
    """The same, with a column of donors or batches within which is contrasted."""

    within: str | None


def read(
    adata: AnnData,
    *,
    n_comps: int,
    groupby: str | None = None,
    reference: Levels | None = None,
    groups: Levels | None = None,
    include_reference: bool = True,
    foreground: Mask | None = None,
    background: Mask | AnnData | None = None,
    within: str | None = None,
    layer: str | None = None,
    obsm: str | None = None,
    mask_var: Mask | Default | None = DEFAULT,
    copy: bool = False,
    progress: Progress = False,
    missing: bool = False,
    counts: bool = False,
) -> ContrastInput:
    """Select cells and genes, and check them; what is in memory is looked through for NaN.

    Where values may be `missing`, NaN passes in what can hold it.
    Warns where the values of genes are no logarithms of counts, unless `counts` are wanted.
    """
    check_writable(adata, copy)
    selection = cells(adata, groupby, reference, groups, include_reference, foreground, background)
    matrix, features, params = read_matrix(
        adata,
        layer=layer,
        mask_var=mask_var,
        n_comps=n_comps,
        obsm=obsm,
        progress=progress,
        missing=missing,
    )
    params = selection.params | params | storable(within=within)
    other = of_cells = of_others = None
    if within is not None:
        if isinstance(within, str) and within == groupby:
            raise ValueError(
                f"within and groupby are both {within!r}: within= names the column of the donors, "
                "animals or batches, groupby= that of their condition."
            )
        of_cells = known_labels(adata, within, "within")
        _check_levels_on_both_sides(within, of_cells, selection)
    if is_anndata(background):
        other = _read_other(adata, background, layer, obsm, features, matrix, missing)
        if within is not None:
            of_others = known_labels(background, within, "within")
        if selection.foreground.all() and _values.are_same_values(matrix, other):
            raise ValueError(
                "background, another AnnData, holds the same cells as adata: there is nothing to "
                "contrast. Give other cells, or choose the two sets with groupby= and reference=."
            )
    if features is not None and not counts:
        if other is not None:
            _values.check_same_scale(matrix, other)
        _values.warn_of_values(matrix, other)
    data = ContrastInput(matrix, selection, features, params, other, copy, of_cells, of_others)
    if data.sizes["n_background"] < FEW_CELLS:
        warn(
            f"the background has only {data.sizes['n_background']} cells. A covariance of so few "
            "cells says little about what the background has: take more of them."
        )
    return data


def _check_levels_on_both_sides(within: str, labels: Labels, selection: Selection) -> None:
    """Refuse donors that lie on one side each, whose means hold the whole difference.

    This concerns background cells that are in the foreground too. Otherwise the difference
    between the two sets is no part of the contrast, and donors may differ between them.
    """
    front, back = selection.foreground & ~selection.background, selection.background
    if not front.any() or not (selection.foreground & back).any():
        return
    sides = set(labels[front]), set(labels[back])
    if not sides[0] & sides[1]:
        raise ValueError(
            f"within: no level of adata.obs[{within!r}] has cells both in the background and "
            f"outside of it ({listed(sorted(sides[0]), 5)} against {listed(sorted(sides[1]), 5)}). "
            "Centring each level would remove the difference that is asked about: leave within= "
            "out, and ask scanpy_ext.tl.significance with donor= whether donors differ as much."
        )
    if alone := sorted(sides[0] ^ sides[1]):
        warn(
            f"levels of adata.obs[{within!r}] with cells on one side only tell nothing about the "
            f"difference within a level: {listed(alone)}."
        )


def known_labels(
    adata: AnnData, name: str, argument: str, used: BoolArray | slice = slice(None)
) -> Labels:
    """The label in a column of every cell, or of those in use, as text."""
    labels = np.asarray(donor_column(adata, name, argument), dtype=object)[used]
    missing = int(sum(label is None for label in labels))
    if missing:
        which = "cells" if isinstance(used, slice) else "foreground or background cells"
        raise ValueError(
            f"{argument}: {missing} {which} have no value in adata.obs[{name!r}]. Drop these "
            "cells, or name them."
        )
    return labels.astype(str)


def _read_other(
    adata: AnnData,
    other: AnnData,
    layer: str | None,
    obsm: str | None,
    features: BoolArray | None,
    matrix: Rows,
    missing: bool,
) -> Rows:
    """The cells of another AnnData that are the background."""
    if other.n_obs < 2:
        raise ValueError(f"background has {other.n_obs} cell(s); a covariance needs at least 2.")
    try:
        if features is None:
            found = embedding(other, str(obsm), owner="background", missing=missing)
        else:
            _check_same_genes(adata, other)
            found = whole_matrix(other, layer, owner="background", missing=missing)
            found = found.columns(features)
    except (TypeError, ValueError) as error:
        raise type(error)(f"background, another AnnData: {error}") from None
    if found.shape[1] != matrix.shape[1]:
        raise ValueError(
            f"background.obsm[{obsm!r}] has {found.shape[1]} columns, but adata.obsm[{obsm!r}] "
            f"has {matrix.shape[1]}: both must be one embedding, fitted to the cells of both."
        )
    if found.in_memory:
        found.check()
    return found


def _check_same_genes(adata: AnnData, other: AnnData) -> None:
    if other.var_names.equals(adata.var_names):
        return
    missing = adata.var_names.difference(other.var_names)
    if len(missing):
        raise ValueError(
            f"it lacks {len(missing)} of adata's genes ({listed(list(missing), most=5)}). "
            "Restrict both to the genes they share."
        )
    raise ValueError(
        "it has other genes as well, or adata's in another order. Give "
        "background[:, adata.var_names]."
    )
