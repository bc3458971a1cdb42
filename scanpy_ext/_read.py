"""Reading the input of a contrast from an AnnData, and the result of a linear method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from contrast_core.feedback import warn
from contrast_core.rows import Rows, load_into_memory

from . import _keys, _values
from ._arguments import listed
from ._fitted import fit_table
from ._keys import Keys
from ._matrix import embedding, read_matrix, whole_matrix
from ._select import DEFAULT, BoolArray, Default, Mask, Selection, known_labels
from ._write import Result, check_writable, storable

Labels: TypeAlias = NDArray[np.str_]

_FEW_CELLS = 10  # with fewer background cells, there is a warning


@dataclass(frozen=True)
class ContrastInput:
    """The cells and genes that a method needs from an AnnData, after all checks.

    Attributes
    ----------
    matrix
        All cells and the genes in use, (n_obs, n_features), in memory or not.
    selection
        The foreground and background cells.
    features, gene_names
        A mask of the genes in use, (n_vars,), or None for an embedding; and the names of all genes.
    params
        The arguments that chose the input, storable in `.uns`.
    other
        The background cells, if another AnnData was given as the background.
    copy
        Whether results go into a copy.
    within, within_other
        The donor or batch of every cell, (n_obs,), and of every cell of `other`; None without
        `within`.
    """

    matrix: Rows
    selection: Selection
    features: BoolArray | None
    gene_names: pd.Index
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
    def strata(self) -> dict[str, Labels]:
        """The donors of the cells, as the core's `fit` takes them."""
        if self.within is None:
            return {}
        background = self.within[self.selection.background]
        return {
            "within": self.within[self.selection.foreground],
            "background_within": background if self.within_other is None else self.within_other,
        }

    @property
    def sizes(self) -> dict[str, int]:
        """Numbers of cells of the two sets, storable in `.uns`."""
        n_other = 0 if self.other is None else int(self.other.shape[0])
        return {
            "n_foreground": int(self.selection.foreground.sum()),
            "n_background": n_other or int(self.selection.background.sum()),
        }

    @property
    def feature_names(self) -> list[str]:
        """Names of the genes in use, or of the dimensions of the embedding."""
        if self.features is not None:
            return list(self.gene_names[self.features])
        return _keys.dimensions(str(self.params["obsm"]), self.matrix.shape[1])

    def loaded(self) -> tuple[Any, Any]:
        """Return foreground and background as ndarrays or CSR; cells in both sets are read once."""
        if self.other is not None:
            return self.foreground.load(), self.other.load()
        foreground, background = self.selection.foreground, self.selection.background
        used = foreground | background
        both = load_into_memory(self.matrix.take(used))
        x, y = both.take(foreground[used]), both.take(background[used])
        return x.load(check=False), y.load(check=False)

    def embed(self, model: Any) -> NDArray[np.floating]:
        """Return scores of all cells, (n_obs, n_comps), in the precision of their values."""
        given = {} if self.within is None else {"within": self.within}
        return self.as_precise(model.transform(self.matrix, **given))

    def as_precise(self, scores: Any) -> NDArray[np.floating]:
        """Return scores in single precision if the values are in single precision."""
        return np.asarray(scores, np.float32 if self.matrix.dtype == np.float32 else np.float64)

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
        """Return the result that a linear method writes, with the same slots for every method.

        Parameters
        ----------
        keys
            Names of the slots.
        model
            A fitted method.
        entry
            Further values for the entry in `.uns`.
        loadings
            Loadings, (n_features, n_comps). By default, the components.
        linear
            Whether `(x - mean) @ model.projection_` are the scores of cells.
        **vectors
            Further values for each feature, (n_features,).
        """
        loadings = model.components_.T if loadings is None else loadings
        filters = model.projection_ if linear else None
        vectors = {"mean": model.mean_, "background_mean": model.background_mean_} | vectors
        entry = dict(entry) | self.sizes
        for name in ("foreground_variance", "background_variance"):
            entry[name] = getattr(model, f"{name}_")
        if self.within is not None:  # the scores of new cells are centred by those of group means
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
    copy: bool = False,
    *,
    within: str | None = None,
    missing: bool = False,
    counts: bool = False,
) -> ContrastInput:
    """Read the selected cells and genes, and check them. Data in memory must not contain NaN.

    If values may be `missing`, NaN is accepted in matrices that can hold missing values. Warns if
    the values of genes are not logarithms of counts, unless `counts` are wanted.
    """
    check_writable(adata, copy)
    matrix, features, params = read_matrix(
        adata, layer=layer, mask_var=mask_var, n_comps=n_comps, obsm=obsm, missing=missing
    )
    params = selection.params | params | storable(within=within)
    other = of_cells = of_others = None
    if within is not None:
        if isinstance(within, str) and within == selection.params.get("groupby"):
            raise ValueError(
                f"within and groupby are both {within!r}: within= names the column of the donors, "
                "animals or batches, groupby= that of their condition."
            )
        of_cells = known_labels(adata, within, "within")
        _check_levels_on_both_sides(within, of_cells, selection)
    if selection.other is not None:
        other = _read_other(adata, selection.other, layer, obsm, features, matrix, missing)
        if within is not None:
            of_others = known_labels(selection.other, within, "within")
        if selection.foreground.all() and _values.are_same_values(matrix, other):
            raise ValueError(
                "background, another AnnData, holds the same cells as adata: there is nothing to "
                "contrast. Give other cells, or choose the two sets with groupby= and reference=."
            )
    if features is not None and not counts:
        if other is not None:
            _values.check_same_scale(matrix, other)
        _values.warn_of_values(matrix, other)
    data = ContrastInput(
        matrix, selection, features, adata.var_names, params, other, copy, of_cells, of_others
    )
    n_background = data.sizes["n_background"]
    if n_background < _FEW_CELLS:
        warn(
            f"the background has only {n_background} cells. A covariance of so few cells says "
            "little about what the background has: take more of them."
        )
    return data


def _check_levels_on_both_sides(within: str, labels: Labels, selection: Selection) -> None:
    """Refuse donors that are on one side only, because centring them would remove the effect.

    The check applies if background cells are in the foreground too. Otherwise the difference
    between the two sets has no part in the contrast, and each set may have its own donors.
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


def _read_other(
    adata: AnnData,
    other: AnnData,
    layer: str | None,
    obsm: str | None,
    features: BoolArray | None,
    matrix: Rows,
    missing: bool,
) -> Rows:
    """Return the cells of another AnnData that are the background."""
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
