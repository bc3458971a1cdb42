"""The input of PCA+ and PCA++, cells and their positive pairs, and their result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray

from contrast_core import PCAPlus, PCAPlusPlus
from contrast_core.pairing import scaled_features
from contrast_core.rows import load_into_memory

from . import _keys, _matrix, _pairs, _select, _values, _write
from ._arguments import check_flag
from ._fitted import fit_table
from ._read import of_all_genes


@dataclass(frozen=True)
class PairedInput:
    """All cells with scaled genes, the caps and factors of the scaling, and which are pairs."""

    matrix: Any
    cap: NDArray[np.floating]
    scale: NDArray[np.floating]
    pairs: _pairs.Pairs
    features: _select.BoolArray
    params: dict[str, Any]
    dtype: np.dtype[Any]

    @property
    def rows(self) -> Any:
        """The stimulated cells of the pairs, (n_pairs, n_features)."""
        return self.matrix[self.pairs.stimulated]

    @property
    def positive(self) -> Any:
        """Their partners."""
        return self.matrix[self.pairs.control]

    def write(
        self,
        adata: AnnData,
        keys: _keys.Keys,
        model: PCAPlus | PCAPlusPlus,
        *,
        loadings: NDArray[np.floating],
        filters: NDArray[np.floating],
        entry: dict[str, Any],
        copy: bool,
    ) -> AnnData | None:
        """Embed all cells and write. Loadings and filters are rows (k, n_features), as scaled."""
        table = fit_table(
            adata.var_names,
            self.features,
            (filters * self.scale).T,
            mean=np.divide(
                model.mean_, self.scale, out=np.zeros_like(self.scale), where=self.scale > 0
            ),
            cap=self.cap,
        )
        entry |= {"n_pairs": len(self.pairs.control), "n_effective": self.pairs.n_effective}
        entry["params"] = self.params | entry["params"]
        slots = {
            "obsm": {keys.obsm: np.asarray(model.transform(self.matrix), self.dtype)},
            "varm": {keys.varm: of_all_genes(loadings.T, self.features), keys.fit: table},
        }
        found = [] if self.pairs.result is None else [self.pairs.result]
        return _write.write(adata, *found, _write.Result(keys.uns, entry, slots), copy=copy)


def paired_input(
    adata: AnnData,
    groupby: str | None,
    reference: _select.Level | None,
    donor: str | None,
    key: str | None,
    n_comps: int,
    scale: bool,
    layer: str | None,
    mask_var: _select.Mask | _select.Default | None,
) -> PairedInput:
    """Read the cells and their pairs: those stored, or new ones if a condition is given."""
    check_flag(scale, "scale")
    matrix, features, params = _matrix.read_matrix(
        adata, layer=layer, mask_var=mask_var, n_comps=n_comps
    )
    if groupby is None and (reference is not None or donor is not None):
        raise ValueError(
            "groupby is missing: give groupby= and reference= (and donor=) to find pairs, or none "
            "of them to use stored pairs."
        )
    if groupby is not None and reference is None:
        raise ValueError(f"reference is missing: which level of {groupby!r} is the control?")
    key = "pairs" if key is None else _keys.checked(key, "pairs")
    if groupby is None:
        pairs = _pairs.stored(adata, key)
        matrix = load_into_memory(matrix)
        _values.warn_of_counts(matrix)
    else:
        matrix = load_into_memory(matrix)
        n_basis = min(20, matrix.shape[1])
        pairs = _pairs.find(
            adata, matrix, groupby, reference, donor, n_comps=n_basis, params=params, key=key
        )
    if scale:
        values, cap, each = scaled_features(matrix)
    else:
        n_features = matrix.shape[1]
        values, cap, each = matrix.load(), np.full(n_features, np.inf), np.ones(n_features)
    params |= {"pairs": key, "scale": scale}
    dtype = np.dtype(np.float32 if matrix.dtype == np.float32 else np.float64)
    return PairedInput(values, cap, each, pairs, cast("_select.BoolArray", features), params, dtype)
