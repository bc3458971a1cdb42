"""Find or read the positive pairs of cells that `pp.match_pairs` and `tl.pca_pp` use.

A positive pair consists of a stimulated cell and a control cell that is similar to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData
from numpy.typing import NDArray

from contrast_core.contrast import effective_n_pairs
from contrast_core.feedback import check_choice, shown, warn
from contrast_core.pairing import (
    PositivePairs,
    neighbor_pairs,
    pairing_basis,
    scaled_features,
)
from contrast_core.rows import Rows, load_into_memory

from . import _keys, _select, _values, _write
from ._arguments import listed, storable, text
from ._mixing import leiden

_FEWEST_CLUSTERED = 4  # if a donor has fewer cells under a condition, they form one cluster
_MAX_PAIRS = 300  # largest number of pairs from two matched clusters, as in the PCA++ paper


# Default options of `find`.
DEFAULTS: dict[str, Any] = {
    "cell_type": None,
    "method": "neighbors",
    "clusters": None,
    "n_neighbors": 10,
    "mutual": True,
    "n_comps": 20,
    "random_state": 0,
}


def find(
    adata: AnnData,
    matrix: Rows,
    groupby: str,
    reference: Any,
    donor: str | None,
    key: str,
    params: Mapping[str, Any],
    **options: Any,
) -> _write.Result:
    """Find pairs of stimulated and control cells, and return the result to write.

    Parameters
    ----------
    matrix
        All cells and the genes in use, in memory or not. Only cells that may be paired are loaded.
    groupby, reference, donor
        As in `pp.match_pairs`.
    key
        Name of the result.
    params
        The arguments that selected the matrix, to store in `.uns`.
    **options
        Options that replace those of `DEFAULTS`.
    """
    options = DEFAULTS | options
    clusters, cell_type = options["clusters"], options["cell_type"]
    method = check_choice(options["method"], "method", ["neighbors", "clusters"])
    if clusters is not None and method != "clusters":
        raise ValueError(f"clusters={clusters!r} was given: it needs method='clusters'.")
    _select.check_donor(donor, groupby)
    levels = _select.column(adata, groupby, "groupby")
    found = sorted(set(levels.dropna()))
    if text(reference) not in found or len(found) < 2:
        raise ValueError(
            f"reference={shown(reference)}: expected the level of "
            f"adata.obs[{groupby!r}] that is the control, and at least one other level. "
            f"The levels with cells are {listed(found)}."
        )
    donors = pd.Series(["all cells"] * adata.n_obs, dtype=object)
    if donor is not None:
        donors = _select.donor_column(adata, donor, "donor")
    used = (levels.notna() & donors.notna()).to_numpy()
    cells = np.flatnonzero(used)
    if not len(cells):
        raise ValueError(f"no cell has a value in both {groupby!r} and {donor!r} of adata.obs.")
    types = None if cell_type is None else _select.column(adata, cell_type, "cell_type")
    if types is not None and not types[cells].notna().any():
        raise ValueError(
            f"cell_type: no cell that may be paired has a value in adata.obs[{cell_type!r}]. Leave "
            "cell_type out, or fill in the types."
        )
    rows = load_into_memory(matrix.take(used))
    _values.warn_of_counts(rows)

    parts = pd.DataFrame({"donor": donors[cells], "level": levels[cells]})
    groups = parts.groupby(["donor", "level"]).ngroup().to_numpy()
    basis = pairing_basis(scaled_features(rows).matrix, groups, n_components=options["n_comps"])
    back = (parts["level"] == text(reference)).to_numpy()
    by_cluster: dict[str, Any] = {}
    if method == "clusters":
        labels = (
            _leiden(basis, groups, options["random_state"])
            if clusters is None
            else _select.column(adata, clusters, "clusters")[cells].to_numpy()
        )
        by_cluster = {"clusters": labels[~back], "positive_clusters": labels[back]}
        by_cluster["max_pairs"] = _MAX_PAIRS
    owner = parts["donor"].to_numpy()
    pairs = neighbor_pairs(
        basis[~back],
        basis[back],
        within=owner[~back],
        positive_within=owner[back],
        **{name: options[name] for name in ("n_neighbors", "mutual", "random_state")},
        **by_cluster,
    )
    if not pairs.n_pairs:
        raise ValueError(
            "no pairs were found: no donor has a stimulated cell and a control cell that are "
            f"neighbours. Check groupby={groupby!r} and donor={donor!r}, or give a larger "
            "n_neighbors."
        )
    i, j = cells[~back][pairs.rows], cells[back][pairs.positive_rows]
    given = storable(groupby=groupby, reference=str(reference), donor=donor, **options)
    summary = _summary(pairs) | {"params": dict(params) | given}
    summary["n_without_donor"] = int(levels.notna().sum()) - len(cells)
    if types is not None:
        summary |= _by_cell_type(types, cells[~back], cells[back], i, j)
    _warn(summary)

    shape = adata.n_obs, adata.n_obs
    matrices = {
        key: sp.csr_matrix((np.ones(len(i), np.float32), (i, j)), shape=shape),
        _keys.distances_of(key): sp.csr_matrix((pairs.distances, (i, j)), shape=shape),
    }
    return _write.Result(key, summary, {"obsp": matrices})


def stored(adata: AnnData, key: str) -> sp.csr_matrix:
    """Return the matrix of pairs in `adata.obsp`, after checking that it holds pairs."""
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
            f"adata.obsp[{key!r}] has {len(both)} cells both in its rows and in its columns, as a "
            "neighbour graph has. Expected pairs as written by scanpy_ext.pp.match_pairs, with "
            "stimulated cells in the rows and control cells in the columns."
        )
    if is_pair.sum() < 2:
        raise ValueError(
            f"adata.obsp[{key!r}] has {is_pair.sum()} pair(s) among these cells; at least 2 "
            "are needed. If adata was subset to one condition, find pairs before subsetting."
        )
    return matrix.tocsr()


def _leiden(
    basis: NDArray[np.floating], groups: NDArray[np.intp], random_state: int | None
) -> NDArray[Any]:
    """Return the cluster of each cell, from a Leiden clustering of each group on its own.

    A group holds the cells of one donor and condition, as in the PCA++ paper.
    """
    labels = np.full(len(basis), "0", dtype=object)
    for group in np.unique(groups):
        inside = np.flatnonzero(groups == group)
        if len(inside) >= _FEWEST_CLUSTERED:
            [labels[inside]] = leiden(basis[inside], [random_state])
    return labels


def _summary(pairs: PositivePairs) -> dict[str, Any]:
    """Return the number of pairs and the share of cells in pairs, in total and by donor."""
    donors = pd.DataFrame(pairs.within).set_index("label").rename_axis(None)
    for side, name in (("stimulated", "n_rows"), ("control", "n_positive_rows")):
        donors[f"n_{side}"] = donors[name]
        donors[f"coverage_{side}"] = donors[f"{name}_paired"] / donors[name].clip(lower=1)
    counts = ["n_stimulated", "n_control", "n_pairs"]
    shares = ["coverage_stimulated", "coverage_control", "median_distance"]
    return {
        "n_pairs": pairs.n_pairs,
        "n_effective": effective_n_pairs(pairs.rows, pairs.positive_rows),
        "coverage_stimulated": pairs.coverage[0],
        "coverage_control": pairs.coverage[1],
        "median_distance": float(np.median(pairs.distances)),
        "donors": donors[counts + shares],
    }


def _by_cell_type(
    types: pd.Series[Any],
    front: NDArray[np.intp],
    back: NDArray[np.intp],
    i: NDArray[np.intp],
    j: NDArray[np.intp],
) -> dict[str, Any]:
    """Return the share of pairs that join cells of one type, and a table of the types.

    `front` and `back` are the stimulated and the control cells that may be paired. `i` and `j` are
    the stimulated and the control cell of each pair.
    """
    pairs = pd.DataFrame({"one": types[i].to_numpy(), "other": types[j].to_numpy()}).dropna()
    same = pairs["one"] == pairs["other"]
    table = pd.DataFrame(index=pd.Index(sorted({*types[front].dropna(), *types[back].dropna()})))
    places = {"n_stimulated": front, "n_control": back}
    places |= {"n_stimulated_paired": np.unique(i), "n_control_paired": np.unique(j)}
    for name, place in places.items():
        table[name] = types[place].value_counts().reindex(table.index, fill_value=0)
    table["same_cell_type"] = same.groupby(pairs["one"]).mean()
    return {"same_cell_type": float(same.mean()), "cell_types": table}


def _warn(summary: dict[str, Any]) -> None:
    """Warn about donors, cells and cell types without a partner."""
    messages = []
    donors, types = summary["donors"], summary.get("cell_types")
    one_sided = donors.index[(donors["n_stimulated"] == 0) | (donors["n_control"] == 0)]
    if len(one_sided):
        messages.append(
            "donors without stimulated cells or without control cells have no pairs: "
            f"{listed(list(one_sided))}"
        )
    if summary["n_without_donor"]:
        messages.append(f"{summary['n_without_donor']} cells without a donor are not paired")
    for side, other in (("stimulated", "control"), ("control", "stimulated")):
        if types is not None and len(lone := types[types[f"n_{other}"] == 0]):
            messages.append(
                f"cell types without {other} cells: {listed(list(lone.index))}; "
                f"{int(lone[f'n_{side}_paired'].sum())} of their {int(lone[f'n_{side}'].sum())} "
                "cells are in pairs with other types"
            )
    if messages:
        warn("; ".join(messages) + ".")
