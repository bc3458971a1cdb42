"""Find which cells responded to a condition."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from contrast_core import condition_shift, responders
from contrast_core.feedback import warn
from contrast_core.rows import load_into_memory

from .. import _keys, _matrix, _read, _select, _write
from .._arguments import listed, quoted
from .._docs import documented
from .._select import BoolArray, Default, Levels, Mask
from ._contrasts import FEWEST, top_places


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
    """Find which cells responded: a probability for each cell, and the share of responders.

    In a CRISPR or drug experiment some cells escape. The scores show the difference of a cell
    from the reference cells. For each condition, the cells are scored along the direction that
    separates them best from the reference cells [1]_. The cell that is scored has no part in
    choosing the
    direction. The scores are modelled as a mixture of two components: the distribution of the
    reference cells, which do not respond by definition, and the same distribution moved by the
    response [2]_.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`.
    groupby
        Column of `adata.obs` with the conditions (targets, drugs).
    reference
        The level or levels of `groupby` whose cells are the reference, pooled: non-targeting
        guides, vehicle.
    groups
        The conditions to test, each on its own. By default all levels but the reference.
    donor
        Column of `adata.obs` with the donor, guide or replicate. The share of responders is also
        estimated for each of its levels.
    within
        Column of `adata.obs` with the donor or batch within which cells are compared. From each
        cell the mean of the reference cells of its donor or batch is subtracted, so every donor or
        batch needs at least ten reference cells. The genes in use are then held in memory as a
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
        condition. At most the share `level` of held-out reference cells is above this threshold.
    `.uns['response' | key_added]['conditions']` : `DataFrame`
        A row for each condition: `n_cells`, `n_reference`, `effect` (difference of the mean
        held-out scores, in standard deviations of the reference's scores) with `effect_low` and
        `effect_high` (95%, over cells), `share` of responders with `share_low` and `share_high`
        (95%), `threshold`, `reference_called` (share of held-out reference cells above it),
        `top_genes`, and the `reason` if it could not be compared. The largest share is first.
    `.uns['response' | key_added]['donors']` : `DataFrame`
        With `donor`: `condition`, `donor`, `n_cells`, `share`, `share_low` and `share_high`.
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
        If the interval of the effect of a condition contains 0: no response can be seen.

    See Also
    --------
    contrasts : Which cell types respond.

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
    _write.check_free(adata, key, {"obs": [key, f"{key}_called"]})
    if isinstance(level, bool) or not isinstance(level, Real) or not 0 < level < 1:
        raise ValueError(f"level={quoted(level)}: expected a number between 0 and 1.")
    selection = _select.cells(adata, groupby, reference, groups, None, None)
    data = _read.contrast_input(adata, selection, 1, layer, obsm, mask_var, copy)
    back = selection.background
    front = selection.foreground & ~back  # the treated cells alone
    used = front | back
    conditions = _select.column(adata, groupby, "groupby").to_numpy(dtype=object)
    rows, place = load_into_memory(data.matrix.take(used)), np.cumsum(used) - 1
    if within is not None:
        of_cells = _select.known_labels(adata, within, "within", used)
        _check_references(of_cells, back[used], within)
        values: Any = _matrix.centred(rows.load(dense=True), of_cells, back[used])
    donors = None if donor is None else _select.known_labels(adata, donor, "donor", front)
    names = np.asarray(data.feature_names, dtype=str)

    posterior = np.full(adata.n_obs, np.nan)
    called = np.zeros(adata.n_obs, dtype=bool)
    table: dict[str, dict[str, Any]] = {}
    by_donor: list[list[Any]] = []
    for condition in dict.fromkeys(conditions[front]):
        here = front & (conditions == condition)
        table[condition] = row = {"n_cells": int(here.sum()), "n_reference": int(back.sum())}
        x, y = (
            rows.take(place[side]) if within is None else values[place[side]]
            for side in (here, back)
        )
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
        row["top_genes"] = ", ".join(names[top_places(shift.direction)])
        if donors is not None:
            own = donors[here[front]]
            for name in np.unique(own):
                of_donor = own == name
                by_donor.append([condition, str(name), int(of_donor.sum()), *found.share(of_donor)])
    frame = pd.DataFrame.from_dict(table, orient="index", columns=_COLUMNS)
    frame = frame.rename_axis("condition").fillna({"top_genes": "", "reason": ""})
    unseen = frame.index[frame["effect_low"] <= 0].to_list()
    if unseen:
        warn(
            f"no response can be seen in {len(unseen)} of {len(frame)} condition(s), whose effect "
            f"on held-out cells has an interval that contains 0: {listed(unseen)}."
        )
    result: dict[str, Any] = {
        "conditions": frame.sort_values("share", ascending=False, kind="stable"),
        "params": data.params | _write.storable(donor=donor, within=within, level=level),
    }
    if donors is not None:
        columns = ["condition", "donor", "n_cells", *_SHARE]
        result["donors"] = pd.DataFrame(by_donor, columns=columns).rename(index=str)
    slots = {"obs": {key: posterior, f"{key}_called": called}}
    return _write.write(adata, _write.Result(key, result, slots), copy=copy)


_EFFECT = ("effect", "effect_low", "effect_high")
_SHARE = ("share", "share_low", "share_high")
_COLUMNS = [
    "n_cells",
    "n_reference",
    *_EFFECT,
    *_SHARE,
    "threshold",
    "reference_called",
    "top_genes",
    "reason",
]


def _check_references(labels: NDArray[np.str_], reference: BoolArray, within: str) -> None:
    """Raise ValueError if a donor or batch has too few reference cells to compare with."""
    for label in np.unique(labels).tolist():
        n = int((reference & (labels == label)).sum())
        if n < FEWEST:
            raise ValueError(
                f"within: {label!r} of adata.obs[{within!r}] has {n} reference cells; at least "
                f"{FEWEST} are needed to compare its cells with. Leave its cells out."
            )
