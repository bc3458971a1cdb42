"""Which levels of a column respond to a condition, and by which genes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy.stats import false_discovery_control

from contrast_core import condition_shift
from contrast_core.rows import load_into_memory
from contrast_core.significance import ConditionShift

from .. import _keys, _read, _select, _write
from .._docs import documented
from .._select import BoolArray, Default, Levels, Mask

FEWEST = 10  # cells of either side
N_TOP = 10  # genes that are named, and among which a gene has to be to count as stable


@documented
def contrasts(
    adata: AnnData,
    *,
    groupby: str,
    reference: Levels,
    by: str,
    donor: str | None = None,
    groups: Levels | None = None,
    layer: str | None = None,
    obsm: str | None = None,
    mask_var: Mask | Default | None = _select.DEFAULT,
    key_added: str | None = None,
    copy: bool = False,
) -> AnnData | None:
    """Which levels of a column respond to a condition: cell types, clusters, guides.

    For each level the cells of the condition are compared with the reference cells of that level,
    along the direction that separates the two best [1]_: directions show the difference between
    the conditions, nothing is removed. What is reported is measured on donors
    that had no part in choosing the direction, so that levels of few cells do not come first by
    chance.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`.
    groupby
        Column of `adata.obs` that tells the conditions apart.
    reference
        The level or levels of `groupby` whose cells are the reference, pooled.
    by
        Column of `adata.obs` with the levels that are asked about, such as cell types. The column
        `groupby` itself compares each condition with the reference.
    donor
        Column of `adata.obs` with the donor (animal, culture, ...). Where donors have cells in
        both conditions each of them is compared with itself. Donors with fewer than ten cells
        where they are compared are left out for that level, and named. Without donors the
        intervals are over cells; they are exploratory, and say nothing about other donors.
    groups
        The level or levels of `groupby` that are compared with the reference, pooled. All levels
        but the reference by default.
    {DATA}
    {OBSM}
    key_added
        Name of the results in `.uns` and `.varm`, instead of `contrasts`.
    {COPY}

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields:

    `.uns['contrasts' | key_added]['table']` : `DataFrame`
        A row for each level, those with evidence of a response first; see
        `scanpy_ext.get.contrasts`.
    `.uns['contrasts' | key_added]['levels']` : `ndarray` of `str`
        The levels that could be compared: the columns of the arrays below.
    `.varm['contrasts' | key_added]` : `ndarray` (shape `(n_vars, n_levels)`)
        The direction of each level, of unit length: positive for genes that are higher in the
        condition, zero for genes that make no difference or are not in use.
    `.varm['contrasts_stability' | ...]` : `ndarray` (shape `(n_vars, n_levels)`)
        Share of the directions from resampled donors (or parts of the cells) in which the gene is
        among the ten of largest loading, with the same sign.
    `.uns['contrasts' | key_added]['params']` : `dict`
        The arguments that were given.

    With `obsm` the two arrays are in `.uns[...]['loadings']` and `.uns[...]['stability']` instead,
    a row for each dimension of the embedding.

    Raises
    ------
    ValueError
        If a column, level, layer or gene mask does not exist or selects nothing, `donor` is the
        column of the conditions, or there are NaN or infinite values.

    See Also
    --------
    response : Which cells responded.
    cpca : An embedding of the contrast.

    Notes
    -----
    {EXPECTS}

    The comparison is `contrast_core.condition_shift`. The cells that are compared and the genes in
    use are read once and held in memory.

    References
    ----------
    .. [1] Fisher (1936). The use of multiple measurements in taxonomic problems. Annals of
       Eugenics 7, 179. Cross-fitting: Chernozhukov et al. (2018), Econometrics Journal 21, C1.

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> values = np.random.default_rng(0).normal(size=(200, 6))
    >>> values[:50, 2] += 3  # stimulated B cells
    >>> adata = anndata.AnnData(values)
    >>> adata.obs["condition"] = ["stim", "ctrl"] * 100
    >>> adata.obs["cell_type"] = ["B"] * 100 + ["T"] * 100
    >>> adata.X[(adata.obs["condition"] == "ctrl").to_numpy(), 2] = values[150:, 2].repeat(2)
    >>> cx.tl.contrasts(adata, groupby="condition", reference="ctrl", by="cell_type")
    >>> cx.get.contrasts(adata).index.to_list()
    ['B', 'T']
    """
    _select.check_donor(donor, groupby)
    key = "contrasts" if key_added is None else _keys.checked(key_added)
    _write.check_free(adata, key, {"varm": [key, f"{key}_stability"]})
    selection = _select.cells(adata, groupby, reference, groups, None, None)
    data = _read.contrast_input(adata, selection, 1, layer, obsm, mask_var, copy)
    labels = _select.column(adata, by, "by")
    back = selection.background
    front = selection.foreground & ~back  # the treated cells alone
    levels = labels.to_numpy(dtype=object)
    used = (front | back) & labels.notna().to_numpy()
    if by == groupby:
        asked = {level: (front & (levels == level), back) for level in dict.fromkeys(levels[front])}
    else:
        known = dict.fromkeys(levels[used])
        asked = {level: (front & (levels == level), back & (levels == level)) for level in known}
    donors = None
    if donor is not None:
        donors = np.empty(adata.n_obs, dtype=object)
        donors[used] = _read.known_labels(adata, donor, "donor", used)
    rows, place = load_into_memory(data.matrix.take(used)), np.cumsum(used) - 1
    names = np.asarray(data.feature_names)

    table, found = {}, {}
    for level in asked:
        sides = asked[level]
        table[level] = row = _row(sides, donors)
        if min(int(side.sum()) for side in sides) < FEWEST:
            row["reason"] = f"fewer than {FEWEST} cells on a side"
            continue
        x, y = (rows.take(place[side]) for side in sides)
        own: dict[str, Any] = {}
        if donors is not None:
            own = {
                "units": donors[sides[0]].astype(str),
                "background_units": donors[sides[1]].astype(str),
            }
        try:
            result = condition_shift(x, background=y, random_state=0, **own)
        except ValueError as error:
            row["reason"] = in_words(error)
            continue
        stability = _stability(result)
        found[level] = (result.direction, stability)
        row |= _measured(result, names, stability, by_donor=donors is not None)
    frame = _sorted(pd.DataFrame.from_dict(table, orient="index", columns=list(_COLUMNS)))
    known_levels = [level for level in frame.index if level in found]
    arrays = [
        np.stack([found[level][i] for level in known_levels], axis=1)
        if known_levels
        else np.empty((len(names), 0))
        for i in (0, 1)
    ]
    entry: dict[str, Any] = {
        "table": frame,
        "levels": np.array(known_levels, dtype=object),
        "params": data.params | _write.storable(by=by, donor=donor),
    }
    slots = {}
    if data.features is None:
        entry |= {"loadings": arrays[0], "stability": arrays[1]}
    else:
        names_of_slots = (key, f"{key}_stability")
        slots["varm"] = {
            name: _read.of_all_genes(array, data.features)
            for name, array in zip(names_of_slots, arrays, strict=True)
        }
    return _write.write(adata, _write.Result(key, entry, slots), copy=copy)


# The columns of the table, with the value of those that could not be measured.
_COLUMNS: dict[str, Any] = {
    "n_foreground": 0,
    "n_background": 0,
    "n_foreground_donors": 0,
    "n_background_donors": 0,
    "ratio": np.nan,
    "ratio_low": np.nan,
    "ratio_high": np.nan,
    "interval": "",
    "p_value": np.nan,
    "p_adjusted": np.nan,
    "top_genes": "",
    "left_out": "",
    "reason": "",
}


def in_words(error: ValueError) -> str:
    """Return what the core says of rows and units, said of cells and donors."""
    words = str(error)
    for core, here in (
        ("units", "donors"),
        ("rows", "cells"),
        ("X", "the foreground"),
        ("background", "the reference"),
        ("both datasets", "both conditions"),
    ):
        words = re.sub(rf"\b{core}\b", here, words)
    return words


def _row(sides: tuple[BoolArray, BoolArray], donors: NDArray[Any] | None) -> dict[str, Any]:
    """Return the table's row of a level before it is compared."""
    numbers = [int(side.sum()) for side in sides]
    n_donors = [0, 0] if donors is None else [len(set(donors[side])) for side in sides]
    return _COLUMNS | dict(zip(_COLUMNS, [*numbers, *n_donors], strict=False))


def _measured(
    result: ConditionShift, names: NDArray[Any], stability: NDArray[np.floating], *, by_donor: bool
) -> dict[str, Any]:
    """Return the table's row of a level that was compared."""
    order = np.argsort(-np.abs(result.direction), kind="stable")[:N_TOP]
    effects = np.array([result.effect, result.effect_low, result.effect_high])
    # Mean squared distance from the reference's mean, relative to that of the reference's cells.
    ratios = np.maximum(1 + effects * np.abs(effects), 0)
    return {
        **dict(zip(("ratio", "ratio_low", "ratio_high"), ratios.tolist(), strict=True)),
        "interval": "over donors" if by_donor else "over cells, exploratory",
        "p_value": result.p_value if by_donor else np.nan,
        "top_genes": ", ".join(
            f"{names[i]} ({stability[i]:.2f})" for i in order if result.direction[i] != 0
        ),
        "left_out": ", ".join(map(str, result.left_out)),
    }


def _stability(result: ConditionShift) -> NDArray[np.floating]:
    """Share of the resamples in which each feature is among the top, with the same sign."""
    n_top = min(N_TOP, len(result.direction))
    magnitude = np.abs(result.resampled)
    least = np.partition(magnitude, -n_top, axis=1)[:, -n_top, None]
    counted = (magnitude >= least) & (magnitude > 0)
    same = np.sign(result.resampled) == np.sign(result.direction)
    return np.asarray((counted & same).mean(axis=0))


def _sorted(table: pd.DataFrame) -> pd.DataFrame:
    """Adjusted p-values; levels whose interval is above 1 come first, then by the ratio."""
    tested = table["p_value"].notna().to_numpy()
    if tested.any():
        table.loc[tested, "p_adjusted"] = false_discovery_control(table.loc[tested, "p_value"])
    table.index = table.index.astype(str)
    table.index.name = "level"
    order = np.lexsort((-table["ratio"].fillna(-np.inf), ~(table["ratio_low"] > 1)))
    return table.iloc[order]
