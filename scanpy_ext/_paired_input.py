"""Cells and their positive pairs, read for PCA+ and PCA++, and what these write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from contrast_core import PCAPlus, PCAPlusPlus
from contrast_core.pairing import ScaledFeatures, scaled_features
from contrast_core.rows import held

from . import _keys, _matrix, _pairs, _read, _select, _values, _write
from ._arguments import check_flag

if TYPE_CHECKING:
    from anndata import AnnData

    from contrast_core.feedback import Progress


@dataclass(frozen=True)
class PairedInput:
    """All cells at the scale in use, and which of them are pairs."""

    scaled: ScaledFeatures
    pairs: _pairs.Pairs
    features: _select.BoolArray
    params: dict[str, Any]
    dtype: np.dtype[Any]

    @property
    def rows(self) -> Any:
        """The stimulated cells of the pairs, (n_pairs, n_features)."""
        return self.scaled.matrix[self.pairs.stimulated]

    @property
    def positive(self) -> Any:
        """Their partners."""
        return self.scaled.matrix[self.pairs.control]

    def write(
        self,
        adata: AnnData,
        keys: _keys.Keys,
        model: PCAPlus | PCAPlusPlus,
        *,
        loadings: NDArray[np.floating],
        filters: NDArray[np.floating],
        result: dict[str, Any],
        params: dict[str, Any],
        copy: bool,
    ) -> AnnData | None:
        """Embed all cells and write: loadings and filters are rows (k, n_features), as scaled."""
        scale, cap = self.scaled.scale, self.scaled.cap
        mean = np.divide(model.mean_, scale, out=np.zeros_like(scale), where=scale > 0)
        return _write.write(
            adata,
            obsm={keys.obsm: np.asarray(model.transform(self.scaled.matrix), self.dtype)},
            varm={
                keys.varm: _read.of_all_genes(loadings.T, self.features),
                _keys.filters(keys): _read.of_all_genes((filters * scale).T, self.features),
            },
            var=_read.gene_columns(keys, self.features, mean=mean, cap=cap),
            obsp=self.pairs.obsp,
            uns=self.pairs.uns
            | {
                keys.uns: result
                | {
                    "n_pairs": len(self.pairs.control),
                    "n_effective": self.pairs.n_effective,
                    "params": self.params | params,
                }
            },
            copy=copy,
        )


def paired_input(
    adata: AnnData,
    condition: str | None,
    reference: _select.Level | None,
    donor: str | None,
    key: str | None,
    n_comps: int,
    scale: bool,
    layer: str | None,
    mask_var: _select.Mask | _select.Default | None,
    progress: Progress,
) -> PairedInput:
    """The cells and their pairs: those stored, or new ones if a condition is given."""
    check_flag(scale, "scale")
    matrix, features, params = _matrix.read_matrix(
        adata, layer=layer, mask_var=mask_var, n_comps=n_comps, progress=progress
    )
    if condition is None:
        if reference is not None or donor is not None:
            raise ValueError(
                "condition is missing: give condition= and reference= (and donor=) to find pairs, "
                "or none of them to use stored pairs."
            )
        pairs = _pairs.stored(adata, key)
        matrix = held(matrix)
        _values.warn_of_counts(matrix)
    else:
        if reference is None:
            raise ValueError(f"reference is missing: which level of {condition!r} is the control?")
        matrix = held(matrix)
        pairs = _pairs.find(
            adata,
            matrix,
            condition,
            reference,
            donor,
            n_comps=min(20, matrix.shape[1]),
            params=params,
            key=key,
        )
    if scale:
        scaled = scaled_features(matrix)
    else:
        n_features = matrix.shape[1]
        scaled = ScaledFeatures(matrix.load(), np.full(n_features, np.inf), np.ones(n_features))
    params |= _write.storable(pairs=key or "pairs", scale=scale)
    dtype = np.dtype(np.float32 if matrix.dtype == np.float32 else np.float64)
    return PairedInput(scaled, pairs, cast("_select.BoolArray", features), params, dtype)
