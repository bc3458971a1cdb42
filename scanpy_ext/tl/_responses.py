"""Find which levels of a column respond to a condition, and which cells respond."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy.stats import false_discovery_control

from contrast_core import condition_shift, responders
from contrast_core.feedback import check_number, warn
from contrast_core.rows import load_into_memory, rows_of
from contrast_core.significance import ConditionShift

from .. import _keys, _read, _select, _write
from .._arguments import listed, storable
from .._docs import documented
from .._select import Default, Levels, Mask

_FEWEST = 10  # smallest number of cells of the condition, and also of the reference
# Number of top genes in the table. The stability of a gene is the share of the resampled directions
# in which the gene is among this many top genes.
_N_TOP = 10
_LEVEL = 0.05  # levels with an adjusted p-value of at most this may come first in the table
# A row of the table for a level that is not compared.
_ROW: dict[str, Any] = {
    **dict.fromkeys(["n_foreground", "n_background"], 0),
    **dict.fromkeys(["n_foreground_donors", "n_background_donors"], 0),
    **dict.fromkeys(["ratio", "ratio_low", "ratio_high"], np.nan),
    "interval": "",
    **dict.fromkeys(["p_value", "p_adjusted"], np.nan),
    **dict.fromkeys(["top_genes", "left_out", "reason"], ""),
}
_EFFECT = ("effect", "effect_low", "effect_high")
_SHARE = ("share", "share_low", "share_high")
# Columns of the table of conditions, with the values for a condition that could not be compared.
_RESPONSE: dict[str, Any] = {
    **dict.fromkeys([*_EFFECT, *_SHARE, "threshold", "reference_called"], np.nan),
    **dict.fromkeys(["top_genes", "reason"], ""),
}


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
    """Find which levels of a column, such as cell types or guides, respond to a condition.

    For each level, the cells of the condition are compared with the reference cells of that level,
    along the direction that separates the two sets best [1]_. The directions keep the difference
    between conditions. Ratios, intervals and p-values are measured on donors (or cells, if there
    are no donors) that had no part in choosing the direction. Levels of few cells therefore do not
    come first by chance.

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
        to compare in a level are left out of that level, and named in the table. Without donors,
        the intervals are over cells. They are then exploratory and say nothing about other donors.
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
        A row for each level. Levels with evidence of a response come first. The columns are
        described in `scanpy_ext.get.contrasts`.
    `.uns['contrasts' | key_added]['levels']` : `ndarray` of `str`
        The levels that could be compared, in the order of the columns of the two arrays below.
    `.varm['contrasts' | key_added]` : `ndarray` (shape `(n_vars, n_levels)`)
        The direction of each level, of unit length. Entries are positive for genes that are higher
        in the condition, and zero for genes that are not in use.
    `.varm['contrasts_stability' | ...]` : `ndarray` (shape `(n_vars, n_levels)`)
        Stability of each gene. New directions are computed from resampled donors, or from resampled
        parts of the cells if there are no donors. The stability is the share of these directions in
        which the gene is among the ten with the largest loadings and has the same sign.
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
    response : Find which cells responded.
    cpca : Embed the cells by a contrast.

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
    >>> adata.obs["condition"] = (["stim"] * 50 + ["ctrl"] * 50) * 2
    >>> adata.obs["cell_type"] = ["B"] * 100 + ["T"] * 100
    >>> cx.tl.contrasts(adata, groupby="condition", reference="ctrl", by="cell_type")
    >>> cx.get.contrasts(adata).index.to_list()
    ['B', 'T']
    """
    _select.check_donor(donor, groupby)
    key = "contrasts" if key_added is None else _keys.checked(key_added)
    _write.check_free(adata, copy, key, {"varm": [key, f"{key}_stability"]})
    selection = _select.cells(adata, groupby, reference, groups, None, None)
    data = _read.contrast_input(adata, selection, 1, layer, obsm, mask_var)
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
        table[level] = row = _ROW.copy()
        for side, cells in (("foreground", x), ("background", y)):
            row[f"n_{side}"] = int(cells.sum())
            row[f"n_{side}_donors"] = len({*donors[cells]} - {None})
        if min(row["n_foreground"], row["n_background"]) < _FEWEST:
            row["reason"] = f"fewer than {_FEWEST} cells of the condition or of the reference"
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
        if donor is not None:
            row["p_value"] = shift.p_value
        row["top_genes"] = _leading(shift, np.asarray(data.feature_names))
        row["left_out"] = ", ".join(map(str, shift.left_out))

    frame = _sorted(
        pd.DataFrame.from_dict(table, orient="index", columns=list(_ROW)),
        {level: shift.p_value for level, shift in found.items()},
    )
    compared = [level for level in frame.index if level in found]
    entry = {
        "table": frame,
        "levels": np.array(compared, dtype=object),
        "params": data.params | storable(by=by, donor=donor),
    }
    shape = len(compared), data.matrix.shape[1]
    direction = np.reshape([found[level].direction for level in compared], shape).T
    stability = np.reshape([found[level].stability(_N_TOP) for level in compared], shape).T
    slots = {}
    if data.features is None:
        entry |= {"loadings": direction, "stability": stability}
    else:
        slots["varm"] = {
            key: _read.on_all_genes(direction, data.features),
            f"{key}_stability": _read.on_all_genes(stability, data.features),
        }
    return _write.write(adata, _write.Result(key, entry, slots), copy=copy)


@documented
def response(
    adata: AnnData,
    *,
    groupby: str,
    reference: Levels,
    groups: Levels | None = None,
    donor: str | None = None,
    within: str | None = None,
    level: float = 0.05,
    layer: str | None = None,
    obsm: str | None = None,
    mask_var: Mask | Default | None = _select.DEFAULT,
    key_added: str | None = None,
    copy: bool = False,
) -> AnnData | None:
    """Find which cells responded to a condition, and estimate the share of responders.

    In a CRISPR or drug experiment, some cells escape the treatment. For each condition, the cells
    are scored along the direction that separates them best from the reference cells [1]_. The cell
    that is scored has no part in choosing the direction. The scores keep the difference between
    conditions. They are modelled as a mixture of two distributions: the distribution of the scores
    of reference cells, which by definition did not respond, and the same distribution shifted by
    the response [2]_.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`.
    groupby
        Column of `adata.obs` with the conditions (targets, drugs).
    reference
        The level or levels of `groupby` whose cells are the reference, pooled, such as
        non-targeting guides or the vehicle.
    groups
        The conditions to test, each on its own. By default all levels but the reference.
    donor
        Column of `adata.obs` with the donor, guide or replicate. The share of responders is also
        estimated for each donor, guide or replicate.
    within
        Column of `adata.obs` with the donor or batch within which cells are compared. The mean of
        the reference cells of a donor or batch is subtracted from all of its cells, so every donor
        or batch needs at least ten reference cells. The genes in use are then held in memory as a
        dense array.
    level
        Largest share of the reference cells that may be called responding.
    {DATA}
    {OBSM}
    key_added
        Name of the results in `.obs` and `.uns`, instead of `response`.
    {COPY}

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields:

    `.obs['response' | key_added]` : `float`
        Posterior probability that the cell responded. NaN for reference cells, for cells of levels
        that were not tested, and for cells of conditions that could not be compared.
    `.obs['response_called' | key_added + '_called']` : `bool`
        Whether the cell is called responding, because its posterior is above the `threshold` of its
        condition. Among the held-out reference cells, the share above this threshold is at most
        `level`.
    `.uns['response' | key_added]['conditions']` : `DataFrame`
        A row for each condition, in the order of decreasing `share`. `n_cells` and `n_reference`
        are numbers of cells. `effect` is the difference of the mean held-out scores, in standard
        deviations of the reference's scores; its 95% interval over cells is from `effect_low` to
        `effect_high`. `share` is the share of responders, with a 95% interval from `share_low` to
        `share_high`. `reference_called` is the share of held-out reference cells above the
        `threshold`. `top_genes` are the ten genes with the largest loadings. `reason` says why a
        condition could not be compared.
    `.uns['response' | key_added]['donors']` : `DataFrame`
        Only if `donor` is given. A row for each condition and donor, with the columns `condition`,
        `donor`, `n_cells`, `share`, `share_low` and `share_high`.
    `.uns['response' | key_added]['params']` : `dict`
        The arguments that were given.

    Raises
    ------
    ValueError
        If a column, level, layer or gene mask does not exist or selects nothing, a level of
        `within` has fewer than ten reference cells, or there are NaN or infinite values.

    Warns
    -----
    contrast_core.ContrastWarning
        If the interval of a condition's effect contains 0, so that no response can be seen.

    See Also
    --------
    contrasts : Find which cell types respond.

    Notes
    -----
    {EXPECTS}

    `contrast_core.condition_shift` compares the cells, and `contrast_core.responders` fits the
    mixture. The cells to compare and the genes in use are read once and held in memory.

    References
    ----------
    .. [1] Fisher (1936). The use of multiple measurements in taxonomic problems. Annals of
       Eugenics 7, 179.
    .. [2] Papalexi et al. (2021). Characterizing the molecular regulation of inhibitory immune
       checkpoints with multimodal single-cell screens. Nature Genetics 53, 322 (Mixscape).

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> values = np.random.default_rng(0).normal(size=(400, 6))
    >>> values[:100, 2] += 4  # half of the treated cells
    >>> adata = anndata.AnnData(values)
    >>> adata.obs["drug"] = ["treated"] * 200 + ["vehicle"] * 200
    >>> cx.tl.response(adata, groupby="drug", reference="vehicle")
    >>> row = adata.uns["response"]["conditions"].loc["treated"]
    >>> bool(row["share_low"] < 0.5 < row["share_high"]), bool(row["reference_called"] <= 0.05)
    (True, True)
    """
    _select.check_donor(donor, groupby)
    key = "response" if key_added is None else _keys.checked(key_added)
    _write.check_free(adata, copy, key, {"obs": [key, f"{key}_called"]})
    level = check_number(level, "level", above=0, below=1)
    selection = _select.cells(adata, groupby, reference, groups, None, None)
    data = _read.contrast_input(adata, selection, 1, layer, obsm, mask_var)
    back = selection.background
    front = selection.foreground & ~back  # the treated cells alone
    used = front | back
    conditions = _select.column(adata, groupby, "groupby").to_numpy(dtype=object)
    rows, place = load_into_memory(data.matrix.take(used)), np.cumsum(used) - 1
    if within is not None:
        of_cells = _select.known_labels(adata, within, "within", used)
        n_references = pd.Series(back[used]).groupby(of_cells).sum()
        for label, n in n_references[n_references < _FEWEST].items():
            raise ValueError(
                f"within: {label!r} of adata.obs[{within!r}] has {n} reference cells; at least "
                f"{_FEWEST} are needed. Leave the cells of {label!r} out."
            )
        rows = rows_of(_read.centred(rows.load(dense=True), of_cells, back[used]))
    donors = None if donor is None else _select.known_labels(adata, donor, "donor", front)
    names = np.asarray(data.feature_names, dtype=str)

    posterior = np.full(adata.n_obs, np.nan)
    called = np.zeros(adata.n_obs, dtype=bool)
    table: dict[str, dict[str, Any]] = {}
    row: dict[str, Any]
    by_donor: list[list[Any]] = []
    for condition in dict.fromkeys(conditions[front]):
        here = front & (conditions == condition)
        row = {"n_cells": int(here.sum()), "n_reference": int(back.sum())} | _RESPONSE
        table[condition] = row
        x, y = rows.take(place[here]), rows.take(place[back])
        try:
            shift = condition_shift(x, background=y, n_resamples=0, random_state=0)
            found = responders(shift.foreground_scores, shift.background_scores, level=level)
        except ValueError as error:
            row["reason"] = str(error)
            continue
        posterior[here], called[here] = found.posterior, found.called
        row |= {name: getattr(shift, name) for name in _EFFECT}
        row |= dict(zip(_SHARE, found.share(), strict=True))
        row["threshold"] = found.threshold
        row["reference_called"] = float((found.background_posterior > found.threshold).mean())
        row["top_genes"] = ", ".join(names[_top_places(shift.direction)])
        if donors is not None:
            own = donors[here[front]]
            for name in np.unique(own):
                of_donor = own == name
                by_donor.append([condition, str(name), int(of_donor.sum()), *found.share(of_donor)])
    frame = pd.DataFrame.from_dict(table, orient="index").rename_axis("condition")
    unseen = frame.index[frame["effect_low"] <= 0].to_list()
    if unseen:
        warn(
            f"no response can be seen in {len(unseen)} of {len(frame)} condition(s), whose effect "
            f"on held-out cells has an interval that contains 0: {listed(unseen)}."
        )
    result: dict[str, Any] = {
        "conditions": frame.sort_values("share", ascending=False, kind="stable"),
        "params": data.params | storable(donor=donor, within=within, level=level),
    }
    if donors is not None:
        columns = ["condition", "donor", "n_cells", *_SHARE]
        result["donors"] = pd.DataFrame(by_donor, columns=columns).rename(index=str)
    slots = {"obs": {key: posterior, f"{key}_called": called}}
    return _write.write(adata, _write.Result(key, result, slots), copy=copy)


def _top_places(direction: NDArray[np.floating]) -> NDArray[np.intp]:
    """Return the indices of the features with the largest loadings that are not zero."""
    order = np.argsort(-np.abs(direction), kind="stable")[:_N_TOP]
    return np.asarray(order[direction[order] != 0])


def _leading(shift: ConditionShift, names: NDArray[Any]) -> str:
    """Return the names of the genes with the largest loadings, each with its stability."""
    stability = shift.stability(_N_TOP)
    return ", ".join(f"{names[i]} ({stability[i]:.2f})" for i in _top_places(shift.direction))


def _sorted(table: pd.DataFrame, p_values: dict[str, float]) -> pd.DataFrame:
    """Adjust p-values, and sort levels by evidence of a response, then by ratio.

    Evidence means that the interval of the ratio lies above 1 and that the adjusted p-value is at
    most 0.05. Without donors, the p-value is over cells. It is then used to sort the table, but is
    not shown in it.
    """
    adjusted = pd.Series(np.nan, index=table.index)
    if p_values:
        adjusted[list(p_values)] = false_discovery_control(list(p_values.values()))
    table["p_adjusted"] = adjusted.where(table["p_value"].notna())
    responds = (adjusted <= _LEVEL) & (table["ratio_low"] > 1)
    order = np.lexsort((-table["ratio"].fillna(-np.inf), ~responds))
    table.index = table.index.astype(str).rename("level")
    return table.iloc[order]
