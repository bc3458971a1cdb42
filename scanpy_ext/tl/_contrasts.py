"""Find which levels of a column respond to a condition, and by which genes."""

from __future__ import annotations

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
from .._select import Default, Levels, Mask

FEWEST = 10  # fewest cells of each side
N_TOP = 10  # genes in the table; a stable gene is among this many in the resampled directions


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
    """Find which levels of a column respond to a condition: cell types, clusters, guides.

    For each level the cells of the condition are compared with the reference cells of that level,
    along the direction that separates the two best [1]_. Directions show the difference between
    the conditions; no variation is removed. All reported figures are measured on donors that had no
    part in choosing the direction, so that levels of few cells do not come first by chance.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`.
    groupby
        Column of `adata.obs` with the conditions.
    reference
        The level or levels of `groupby` whose cells are the reference, pooled.
    by
        Column of `adata.obs` with the levels to test, such as cell types. Give the column `groupby`
        itself to compare each condition with the reference.
    donor
        Column of `adata.obs` with the donor (animal, culture, ...). If donors have cells in both
        conditions, the conditions are compared within each donor. Donors with fewer than ten cells
        to compare in a level are left out of that level, and named in the table. Without donors
        the intervals are over cells; they are exploratory and say nothing about other donors.
    groups
        The level or levels of `groupby` to compare with the reference, pooled. By default all other
        levels.
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
        condition, zero for genes that do not differ or are not in use.
    `.varm['contrasts_stability' | ...]` : `ndarray` (shape `(n_vars, n_levels)`)
        Share of the directions from resampled donors (or parts of the cells) in which the gene is
        among the ten with the largest loadings, with the same sign.
    `.uns['contrasts' | key_added]['params']` : `dict`
        The arguments that were given.

    With `obsm` the two arrays are in `.uns[...]['loadings']` and `.uns[...]['stability']` instead,
    with a row for each dimension of the embedding.

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

    The comparison is made by `contrast_core.condition_shift`. The cells to compare and the genes in
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
    levels = _select.column(adata, by, "by").to_numpy(dtype=object)
    back = selection.background
    front = selection.foreground & ~back  # the treated cells alone
    used = (front | back) & pd.notna(levels)
    rows, place = load_into_memory(data.matrix.take(used)), np.cumsum(used) - 1
    donors = np.empty(adata.n_obs, dtype=object)
    if donor is not None:
        donors[used] = _select.known_labels(adata, donor, "donor", used)

    table: dict[str, dict[str, Any]] = {}
    found: dict[str, ConditionShift] = {}
    for level in dict.fromkeys(levels[front & used if by == groupby else used]):
        here = levels == level
        x, y = front & here, back if by == groupby else back & here
        row: dict[str, Any] = {
            "n_foreground": int(x.sum()),
            "n_background": int(y.sum()),
            "n_foreground_donors": len({*donors[x]} - {None}),
            "n_background_donors": len({*donors[y]} - {None}),
        }
        table[level] = row
        if min(row["n_foreground"], row["n_background"]) < FEWEST:
            row["reason"] = f"fewer than {FEWEST} cells on a side"
            continue
        own = {} if donor is None else {"units": donors[x], "background_units": donors[y]}
        try:
            shift = condition_shift(
                rows.take(place[x]), background=rows.take(place[y]), random_state=0, **own
            )
        except ValueError as error:
            row["reason"] = str(error)
            continue
        found[level] = shift
        row |= dict(zip(("ratio", "ratio_low", "ratio_high"), shift.ratio(), strict=True))
        row["interval"] = "over cells, exploratory" if donor is None else "over donors"
        row["p_value"] = np.nan if donor is None else shift.p_value
        row["top_genes"] = _leading(shift, np.asarray(data.feature_names))
        row["left_out"] = ", ".join(map(str, shift.left_out))

    frame = _sorted(
        pd.DataFrame.from_dict(table, orient="index", columns=_COLUMNS),
        {level: shift.p_value for level, shift in found.items()},
    )
    compared = [level for level in frame.index if level in found]
    entry = {
        "table": frame,
        "levels": np.array(compared, dtype=object),
        "params": data.params | _write.storable(by=by, donor=donor),
    }
    shape = len(compared), data.matrix.shape[1]
    direction = np.reshape([found[level].direction for level in compared], shape).T
    stability = np.reshape([found[level].stability(N_TOP) for level in compared], shape).T
    slots = {}
    if data.features is None:
        entry |= {"loadings": direction, "stability": stability}
    else:
        slots["varm"] = {
            key: _read.on_all_genes(direction, data.features),
            f"{key}_stability": _read.on_all_genes(stability, data.features),
        }
    return _write.write(adata, _write.Result(key, entry, slots), copy=copy)


_LEVEL = 0.05  # adjusted p-value at which a level counts as responding when the table is sorted
_TEXTS = ["interval", "top_genes", "left_out", "reason"]
_COLUMNS = [
    "n_foreground",
    "n_background",
    "n_foreground_donors",
    "n_background_donors",
    "ratio",
    "ratio_low",
    "ratio_high",
    "interval",
    "p_value",
    "p_adjusted",
    "top_genes",
    "left_out",
    "reason",
]


def top_places(direction: NDArray[np.floating]) -> NDArray[np.intp]:
    """Return the indices of the features with the largest loadings that are not zero."""
    order = np.argsort(-np.abs(direction), kind="stable")[:N_TOP]
    return np.asarray(order[direction[order] != 0])


def _leading(shift: ConditionShift, names: NDArray[Any]) -> str:
    """Return the names of the genes with the largest loadings, each with its stability."""
    stability = shift.stability(N_TOP)
    return ", ".join(f"{names[i]} ({stability[i]:.2f})" for i in top_places(shift.direction))


def _sorted(table: pd.DataFrame, p_values: dict[str, float]) -> pd.DataFrame:
    """Adjust p-values, and sort levels by evidence of a response, then by ratio.

    Evidence means that the interval is above 1 and the adjusted p-value is at most 0.05. Without
    donors the p-value is over cells: it is used to sort the table, but is not shown in it.
    """
    table[_TEXTS] = table[_TEXTS].fillna("")
    numbers = [name for name in _COLUMNS[4:] if name not in _TEXTS]
    table[numbers] = table[numbers].astype(float)
    adjusted = pd.Series(np.nan, index=table.index)
    if p_values:
        adjusted[list(p_values)] = false_discovery_control(list(p_values.values()))
    table["p_adjusted"] = adjusted.where(table["p_value"].notna())
    responds = (adjusted <= _LEVEL) & (table["ratio_low"] > 1)
    order = np.lexsort((-table["ratio"].fillna(-np.inf), ~responds))
    table.index = table.index.astype(str).rename("level")
    return table.iloc[order]
