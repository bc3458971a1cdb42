"""Positive pairs of cells, as `pp.match_pairs` finds and `tl.pca_pp` and `tl.pca_plus` use them."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData
from numpy.typing import NDArray

from contrast_core.contrast import effective_n_pairs
from contrast_core.feedback import warn
from contrast_core.pairing import (
    PositivePairs,
    neighbor_pairs,
    pairing_basis,
    scaled_features,
)
from contrast_core.rows import Rows, load_into_memory

from . import _keys, _select, _values, _write
from ._arguments import listed, quoted, text
from ._mixing import leiden

_FEWEST_CLUSTERED = 4  # cells; fewer are one cluster
_MAX_PAIRS = 300  # of two matched clusters, as in the PCA++ paper


class Pairs(NamedTuple):
    """Which cell is paired with which, (n_pairs,) each; for new pairs what to write too."""

    stimulated: NDArray[np.intp]
    control: NDArray[np.intp]
    result: _write.Result | None = None

    @property
    def n_effective(self) -> float:
        """Effective number of pairs (Kish), since a cell can be in several."""
        return effective_n_pairs(self.stimulated, self.control)


class _Design(NamedTuple):
    """The cells that may be paired, and their labels: all arrays of length n_used."""

    cells: NDArray[np.intp]
    is_control: NDArray[np.bool_]
    donor: NDArray[Any]
    centred: NDArray[np.intp]
    n_without_donor: int


def find(
    adata: AnnData,
    matrix: Rows,
    groupby: str,
    reference: Any,
    donor: str | None,
    *,
    cell_type: str | None = None,
    method: Literal["neighbors", "clusters"] = "neighbors",
    clusters: str | None = None,
    n_neighbors: int = 10,
    mutual: bool = True,
    n_comps: int = 20,
    params: dict[str, Any],
    key: str,
    random_state: int | None = 0,
) -> Pairs:
    """Find pairs of stimulated and control cells and summarise them; nothing is written.

    Parameters
    ----------
    matrix
        All cells and the genes in use, wherever they are: the cells that may be paired are loaded.
    params
        How the matrix was asked for, storable in `.uns`.

    The others are those of `pp.match_pairs`.
    """
    _write.check_free(adata, key, {"obsp": [key, _keys.distances_of(key)]})
    if not isinstance(method, str) or method not in ("neighbors", "clusters"):
        raise ValueError(f"method={quoted(method)}: expected 'neighbors' or 'clusters'.")
    if clusters is not None and method != "clusters":
        raise ValueError(f"clusters={clusters!r} was given: it needs method='clusters'.")
    _select.check_donor(donor, groupby)
    design = _design(adata, groupby, reference, donor)
    types = None if cell_type is None else _select.column(adata, cell_type, "cell_type")
    if types is not None and not types.iloc[design.cells].notna().any():
        raise ValueError(
            f"cell_type: no cell that may be paired has a value in adata.obs[{cell_type!r}]; leave "
            "cell_type out, or name the types."
        )
    used = np.zeros(adata.n_obs, dtype=bool)
    used[design.cells] = True
    rows = load_into_memory(matrix.take(used))
    _values.warn_of_counts(rows)

    basis = pairing_basis(scaled_features(rows).matrix, design.centred, n_components=n_comps)
    labels = None
    if method == "clusters":
        labels = (
            _leiden(basis, design.centred, random_state)
            if clusters is None
            else _select.column(adata, clusters, "clusters")[design.cells].to_numpy()
        )
    control = design.is_control
    pairs = neighbor_pairs(
        basis[~control],
        basis[control],
        within=design.donor[~control],
        positive_within=design.donor[control],
        n_neighbors=n_neighbors,
        mutual=mutual,
        clusters=None if labels is None else labels[~control],
        positive_clusters=None if labels is None else labels[control],
        max_pairs=_MAX_PAIRS if method == "clusters" else None,
        random_state=random_state,
    )
    if not pairs.n_pairs:
        raise ValueError(
            f"no pairs were found: no donor has cells of {groupby} on both sides that are "
            "neighbours. Check groupby= and donor=, or give a larger n_neighbors."
        )
    i, j = design.cells[~control][pairs.rows], design.cells[control][pairs.positive_rows]
    params = params | _write.storable(
        n_comps=int(n_comps),
        groupby=groupby,
        reference=str(reference),
        donor=donor,
        cell_type=cell_type,
        method=method,
        clusters=clusters,
        n_neighbors=n_neighbors,
        mutual=mutual,
        random_state=random_state,
    )
    summary = _summary(pairs, design) | {"params": params}
    if types is not None:
        summary |= _by_cell_type(types, design, i, j)
    _warn(summary, design)

    shape = adata.n_obs, adata.n_obs
    matrices = {
        key: sp.csr_matrix((np.ones(len(i), np.float32), (i, j)), shape=shape),
        _keys.distances_of(key): sp.csr_matrix((pairs.distances, (i, j)), shape=shape),
    }
    return Pairs(i, j, _write.Result(key, summary, {"obsp": matrices}))


def stored(adata: AnnData, key: str) -> Pairs:
    """Return the pairs in `adata.obsp`."""
    if key not in adata.obsp:
        raise ValueError(
            f"adata.obsp has no pairs {key!r}. Run scanpy_ext.pp.match_pairs first, or give "
            "groupby= and reference= (and donor=) to find pairs now."
        )
    matrix = sp.coo_matrix(adata.obsp[key])
    is_pair = matrix.data != 0
    both = np.intersect1d(matrix.row[is_pair], matrix.col[is_pair])
    if len(both):
        raise ValueError(
            f"adata.obsp[{key!r}] has {len(both)} cells both in its rows and in its "
            "columns, as a neighbour graph does: expected pairs, stimulated cells in the rows and "
            "their controls in the columns, as scanpy_ext.pp.match_pairs writes them."
        )
    if is_pair.sum() < 2:
        raise ValueError(
            f"adata.obsp[{key!r}] has {is_pair.sum()} pair(s) among these cells; at least 2 "
            "are needed. Was adata subset to one condition? Find pairs before that."
        )
    order = np.lexsort((matrix.col[is_pair], matrix.row[is_pair]))
    row, col = (index[is_pair][order].astype(np.intp) for index in (matrix.row, matrix.col))
    return Pairs(row, col)


def _design(adata: AnnData, groupby: str, reference: Any, donor: str | None) -> _Design:
    levels = _select.column(adata, groupby, "groupby")
    found = sorted(set(levels.dropna()))
    if text(reference) not in found or len(found) < 2:
        raise ValueError(
            f"reference={quoted(reference)}: expected the level of "
            f"adata.obs[{groupby!r}] that is the control, and at least one other level. "
            f"The levels with cells are {listed(found)}."
        )
    donors = (
        pd.Series(["all cells"] * adata.n_obs, dtype=object)
        if donor is None
        else _select.donor_column(adata, donor, "donor")
    )
    has_condition = levels.notna().to_numpy()
    cells = np.flatnonzero(has_condition & donors.notna().to_numpy())
    if not len(cells):
        raise ValueError(f"no cell has a value in both {groupby!r} and {donor!r} of adata.obs.")
    level, owner = levels.to_numpy()[cells], donors.to_numpy()[cells]
    codes = pd.factorize(level)[0], pd.factorize(owner)[0]
    return _Design(
        cells,
        level == text(reference),
        owner,
        codes[1] * len(found) + codes[0],
        int(has_condition.sum()) - len(cells),
    )


def _leiden(
    basis: NDArray[np.floating], groups: NDArray[np.intp], random_state: int | None
) -> NDArray[Any]:
    """Return Leiden clusters within each donor and condition, as in the paper."""
    labels = np.full(len(basis), "0", dtype=object)
    for group in np.unique(groups):
        inside = np.flatnonzero(groups == group)
        if len(inside) >= _FEWEST_CLUSTERED:
            [labels[inside]] = leiden(basis[inside], [random_state])
    return labels


def _summary(pairs: PositivePairs, design: _Design) -> dict[str, Any]:
    covered = pairs.coverage
    donors = pd.DataFrame([_donor(each) for each in pairs.within])
    donors.index = pd.Index([each.label for each in pairs.within], dtype=object)
    return {
        "n_pairs": pairs.n_pairs,
        "n_effective": effective_n_pairs(pairs.rows, pairs.positive_rows),
        "coverage_stimulated": covered[0],
        "coverage_control": covered[1],
        "median_distance": float(np.median(pairs.distances)),
        "n_without_donor": design.n_without_donor,
        "donors": donors,
    }


def _donor(summary: Any) -> dict[str, float]:
    return {
        "n_stimulated": summary.n_rows,
        "n_control": summary.n_positive_rows,
        "n_pairs": summary.n_pairs,
        "coverage_stimulated": summary.n_rows_paired / max(summary.n_rows, 1),
        "coverage_control": summary.n_positive_rows_paired / max(summary.n_positive_rows, 1),
        "median_distance": summary.median_distance,
    }


def _by_cell_type(
    types: pd.Series[Any], design: _Design, i: NDArray[np.intp], j: NDArray[np.intp]
) -> dict[str, Any]:
    """Return how many pairs join cells of one type, and a table of the types."""
    of_pair, of_partner = types.to_numpy()[i], types.to_numpy()[j]
    known = pd.notna(of_pair) & pd.notna(of_partner)
    same = known & (of_pair == of_partner)
    stimulated, control = design.cells[~design.is_control], design.cells[design.is_control]
    rows = {}
    for cell_type in sorted(set(types.iloc[design.cells].dropna())):
        of_type = (types == cell_type).to_numpy()
        here = of_type[i] & known
        rows[cell_type] = {
            "n_stimulated": int(of_type[stimulated].sum()),
            "n_control": int(of_type[control].sum()),
            "n_stimulated_paired": len(np.unique(i[of_type[i]])),
            "n_control_paired": len(np.unique(j[of_type[j]])),
            "same_cell_type": float(same[here].mean()) if here.any() else float("nan"),
        }
    return {
        "same_cell_type": float(same[known].mean()) if known.any() else float("nan"),
        "cell_types": pd.DataFrame.from_dict(rows, orient="index"),
    }


def _warn(summary: dict[str, Any], design: _Design) -> None:
    messages = []
    donors = summary["donors"]
    one_sided = donors.index[(donors["n_stimulated"] == 0) | (donors["n_control"] == 0)]
    if len(one_sided):
        messages.append(
            f"donors with cells of one condition only have no pairs: {listed(list(one_sided))}"
        )
    if design.n_without_donor:
        messages.append(f"{design.n_without_donor} cells without a donor are not paired")
    if "cell_types" in summary:
        types = summary["cell_types"]
        for side, other in (("n_stimulated", "n_control"), ("n_control", "n_stimulated")):
            lone = types[types[other] == 0]
            if len(lone):
                paired = int(lone[f"{side}_paired"].sum())
                messages.append(
                    f"cell types without {'control' if other == 'n_control' else 'stimulated'} "
                    f"cells: {listed(list(lone.index))}; {paired} of their "
                    f"{int(lone[side].sum())} cells are in pairs with other types"
                )
    if messages:
        warn("; ".join(messages) + ".")
