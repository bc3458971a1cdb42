"""A check of the cells, genes and values of a contrast, and of how much donors differ anyway."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import islice
from typing import Any, cast

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from contrast_core import CPCA, condition_test, cross_fitted_ratio
from contrast_core.feedback import muted, warn
from contrast_core.rows import Rows, load_into_memory

from . import _findings, _keys, _matrix, _read, _select, _write
from ._docs import documented
from ._gene_summary import GeneSummary, gene_summaries, merged

_LEAST_CELLS = 40  # of a donor, for its controls to be set against another's
_MAX_NULLS = 12  # ordered pairs of donors
_RATIO_GENES = 300  # the ratio hardly depends on more, its time does
_N_SPLITS = 5


@documented
def contrast_check(
    adata: AnnData,
    *,
    groupby: str | None = None,
    reference: _select.Levels | None = None,
    groups: _select.Levels | None = None,
    foreground: _select.Mask | None = None,
    background: _select.Mask | None = None,
    within: str | None = None,
    donor: str | None = None,
    controls: _select.Mask | None = None,
    cell_type: str | None = None,
    batch: str | None = None,
    layer: str | None = None,
    mask_var: _select.Mask | _select.Default | None = _select.DEFAULT,
    key_added: str | None = None,
    copy: bool = False,
) -> AnnData | None:
    """Check the cells, the genes and the values of a contrast before believing it.

    cPCA, cPCA* and PCPCA keep and sharpen every difference between foreground and background,
    including those that the design put there. A cell type or a donor that the background lacks
    imitates an effect that is stronger than the real one. This function counts cells and warns.

    One test decides whether the contrast exceeds chance: the p-value of the first component when
    the donors are relabelled (`contrast_core.condition_test`). Where donors are too few for that,
    the cross-fitted trace ratio (`contrast_core.cross_fitted_ratio`) is compared with that of one
    donor's controls against another's; without donors nothing is decided.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`.
    {CELLS}
        Here the background is among the cells of `adata`.
    within
        Column of `adata.obs` with the donor, if the contrast is to be taken within donors, as with
        `within=` of `scanpy_ext.tl.cpca`. The two parts of each donor are then compared with each
        other, and a test that relabels them (`contrast_core.condition_test`) decides.
    donor
        Column of `adata.obs` with the donor (animal, culture, ...); that of `within` by default.
    controls
        The cells whose donors are set against each other: the background cells by default. With
        masks for one donor each, name the control cells of all.
    cell_type
        Column of `adata.obs` with cell types, or clusters.
    batch
        Column of `adata.obs` with another thing that must not coincide with the condition: a
        plate, a chip, a day.
    {DATA}
    key_added
        Name of the result in `.uns`, instead of `contrast_check`.
    {COPY}

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields, which
    `scanpy_ext.pl.contrast_check` plots:

    `.uns['contrast_check' | key_added]['checks']` : `DataFrame`
        A row per check, with columns `sound` and `message`.
    `.uns['contrast_check' | key_added]['counts']` : `DataFrame`
        Foreground and background cells by donor and cell type (where given).
    `.uns['contrast_check' | key_added]['ratios']` : `DataFrame`
        A row for the contrast, and one for each two donors' controls (not with `within`): the
        cross-fitted `ratio` of two components on the 300 genes in use of largest variance, its
        `baseline` (the total variances' ratio), `relative` (one by the other), whether the row is a
        `null`, and the `unit` that was split: `donor`, or `cell`, which is exploratory.
    `.uns['contrast_check' | key_added]['p_value']` : `float`
        With `within`, of the relabelled donors; not if they are too few to be relabelled.
    `.uns['contrast_check' | key_added]['sound']` : `str`
        `"no"` if a check failed; `"unknown"` if none failed, but those in `not_checked` could not
        be made; otherwise `"yes"`.
    `.uns['contrast_check' | key_added]['not_checked']` : `ndarray`
        The arguments that further checks need: `cell_type`, `donor`; `within` if the donors are too
        few to be relabelled.
    `.uns['contrast_check' | key_added]['params']` : `dict`
        The arguments that were given.

    Raises
    ------
    {RAISES}

    Warns
    -----
    contrast_core.ContrastWarning
        If a check failed; one warning names all of them.

    Notes
    -----
    Without an effect the ratio is not 1: control cells of one donor against those of another give
    about twice the baseline. A finding should exceed all of these nulls. There are at most 12 of
    them, with every donor in each place about as often. The controls of both donors are in the
    foreground if the foreground of the contrast holds its background.

    The genes of largest plain variance over all cells in both sets keep a difference between
    conditions. scanpy's highly variable genes (variance corrected for the mean) often drop it.

    The variances of all genes are taken block by block; the cells in question are held in memory
    with the 300 genes of the ratio only (and with those in use, of a CSC matrix in a file), dense
    where cells are split one by one. {LOADED}

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> values = np.random.default_rng(0).normal(size=(200, 5))
    >>> adata = anndata.AnnData(values)
    >>> adata.obs["condition"] = ["ctrl", "stim"] * 100
    >>> adata.obs["donor"] = ["a"] * 100 + ["b"] * 100
    >>> adata.X[1::2, 0] += 5
    >>> cx.pp.contrast_check(adata, groupby="condition", reference="ctrl", donor="donor")
    >>> list(adata.uns["contrast_check"]["checks"].index)
    ['values', 'genes', 'depth', 'donor', 'ratio']
    """
    key = _keys.checked("contrast_check" if key_added is None else key_added)
    _write.check_writable(adata, copy)
    _write.check_free(adata, key, {})
    selection = _select.cells(adata, groupby, reference, groups, foreground, background)
    with muted():  # what is wrong with the values is said among the findings
        data = _read.contrast_input(
            adata,
            selection,
            1,
            layer,
            None,
            mask_var,
            copy,
            within=within,
        )
    donor = within if donor is None else donor
    if isinstance(donor, str) and isinstance(groupby, str) and donor == groupby:
        raise ValueError(f"donor and groupby are both {donor!r}: name the column of the donors.")
    if data.other is not None:
        raise TypeError(
            "background is another AnnData; the check needs one: anndata.concat the two, and "
            "name the sets with masks."
        )
    labels = {
        name: (_select.column if name == "cell_type" else _select.donor_column)(adata, column, name)
        for name, column in {"donor": donor, "batch": batch, "cell_type": cell_type}.items()
        if column is not None
    }
    in_foreground, in_background = data.selection.foreground, data.selection.background
    still = in_background
    if controls is not None:
        still = _select.boolean_mask(adata, controls, axis="obs", argument="controls")

    counts = _counts(labels, in_foreground, in_background)
    features = cast("_select.BoolArray", data.features)  # None for an embedding only
    whole = _matrix.whole_matrix(adata, layer)
    varying = _varying(whole, data.selection, features)
    findings = [_findings.values(data, varying["all"], features)]
    findings += _findings.genes(adata, features, varying)
    findings.append(
        _findings.depth(_n_detected(whole), in_foreground & ~in_background, in_background)
    )
    if cell_type is not None:
        findings.append(_findings.composition(labels["cell_type"], in_foreground, in_background))
    findings += [
        _findings.confounding(name, labels[name], in_foreground & ~in_background, in_background)
        for name in ("donor", "batch")
        if name in labels
    ]
    used = in_foreground | in_background | still
    leading = _most_variable(varying["all"], features, _RATIO_GENES)
    rows, sets = (
        load_into_memory(whole.columns(leading).take(used)),
        (in_foreground[used], in_background[used]),
    )
    donors = labels["donor"][used].reset_index(drop=True) if donor is not None else None
    p_value = None
    if data.within is None:
        ratios = _ratios(rows, *sets, still[used], donors)
        if donors is not None and donors.notna().all():
            p_value = _p_value(rows, *sets, donors.to_numpy(dtype=str))
        findings.append(_findings.ratio(ratios, donor, p_value))
    else:
        ratios = _ratios_within(rows, *sets, data.within[used])
        p_value = _p_value(rows, *sets, data.within[used])
        findings.append(_findings.ratio_within(ratios, p_value))
    checks = pd.DataFrame(findings).set_index("check")
    checks.index.name = None
    missing = [name for name in ("cell_type", "donor") if name not in labels]
    if within is not None and p_value is None:
        missing.append("within")
    verdict = "no" if not checks["sound"].all() else "unknown" if missing else "yes"
    result = {
        "checks": checks,
        "counts": counts,
        "ratios": ratios,
        "sound": verdict,
        "not_checked": np.array(list(missing), dtype=object),
        "params": data.params | _write.storable(donor=donor, cell_type=cell_type, batch=batch),
    } | _write.storable(p_value=p_value)
    written = _write.write(adata, _write.Result(key, result), copy=copy)
    if verdict == "no":
        told = "; ".join(f"{f.check}: {f.message}" for f in findings if not f.sound)
        warn(f"the contrast may not be sound. {told}")
    return written


def _counts(
    labels: dict[str, pd.Series[Any]],
    in_foreground: NDArray[np.bool_],
    in_background: NDArray[np.bool_],
) -> pd.DataFrame:
    """Return numbers of foreground and background cells, by donor and cell type where known."""
    by = [name for name in ("donor", "cell_type") if name in labels]
    table = pd.DataFrame({name: labels[name].fillna("(missing)").to_numpy() for name in by})
    table["foreground"], table["background"] = in_foreground.astype(int), in_background.astype(int)
    used = table[in_foreground | in_background]
    sides = ["foreground", "background"]
    counts = used.groupby(by)[sides].sum().reset_index() if by else used[sides].sum().to_frame().T
    counts.index = counts.index.astype(str)
    return counts


def _varying(
    matrix: Rows, selection: _select.Selection, features: _select.BoolArray
) -> dict[str, GeneSummary]:
    """Return how every gene varies over the cells of both sets, and over those of each."""
    in_foreground, in_background = selection.foreground, selection.background
    disjoint = [
        in_foreground & ~in_background,
        in_foreground & in_background,
        in_background & ~in_foreground,
    ]
    front, both, back = gene_summaries(matrix, disjoint)
    sets = {"all": (front, both, back), "foreground": (front, both), "background": (both, back)}
    # No set is empty, which was checked when the cells were selected.
    varying = {name: cast("GeneSummary", merged(parts)) for name, parts in sets.items()}
    bad = int((~np.isfinite(varying["all"].moments.mean[features])).sum())
    if bad:
        raise ValueError(
            f"{bad} of the genes in use have NaN or infinite values. Leave these genes out with "
            "mask_var=, or remove or impute the values first."
        )
    return varying


def _most_variable(
    summary: GeneSummary, features: _select.BoolArray, most: int
) -> _select.BoolArray:
    """Return the genes in use of largest variance, as a mask."""
    variance = np.where(features, summary.moments.variance, -1.0)
    chosen = np.zeros_like(features)
    chosen[np.argsort(-variance, kind="stable")[: min(most, features.sum())]] = True
    return chosen


def _ratios(
    matrix: Rows,
    in_foreground: _select.BoolArray,
    in_background: _select.BoolArray,
    still: _select.BoolArray,
    donors: pd.Series[Any] | None,
) -> pd.DataFrame:
    """Return the ratio of the contrast, and of the controls of one donor against another's."""

    def ratio(front: NDArray[np.bool_], back: NDArray[np.bool_], null: bool) -> dict[str, Any]:
        groups = [] if donors is None else [donors[front], donors[back]]
        by_donor = not null and bool(groups)
        by_donor = by_donor and all(g.notna().all() and g.nunique() > 1 for g in groups)
        named = [g.to_numpy(dtype=str) for g in groups] if by_donor else [None, None]
        return _ratio(matrix.take(front), matrix.take(back), *named, null=null)

    if min(in_foreground.sum(), in_background.sum()) < 4:
        return pd.DataFrame(columns=["ratio", "baseline", "relative", "null", "unit"])
    rows = {"contrast": ratio(in_foreground, in_background, null=False)}
    if donors is not None:
        sizes = donors[still].value_counts()
        large = list(sizes.index[sizes >= _LEAST_CELLS])
        # As in the contrast: whether the controls are in both.
        pooled = bool((in_foreground & in_background).any())
        for a, b in islice(_each_with_another(large), _MAX_NULLS):
            front, back = (still & (donors == name).to_numpy() for name in (a, b))
            rows[f"{a} / {b}"] = ratio(front | back if pooled else front, back, null=True)
    return pd.DataFrame.from_dict(rows, orient="index")


def _ratio(front: Any, back: Any, *groups: Any, null: bool) -> dict[str, Any]:
    """Return a row of the table of ratios; groups are the donors of both, or None."""
    with muted():  # what is to be said of the ratio is said among the findings
        found = cross_fitted_ratio(
            front,
            background=back,
            n_components=2,
            units=groups[0],
            background_units=groups[1],
            n_splits=_N_SPLITS,
            random_state=0,
        )
    return {
        "ratio": found.ratio,
        "baseline": found.baseline,
        "relative": found.ratio / found.baseline,
        "null": null,
        "unit": "cell" if groups[0] is None else "donor",
    }


def _ratios_within(
    matrix: Rows,
    in_foreground: _select.BoolArray,
    in_background: _select.BoolArray,
    labels: NDArray[np.str_],
) -> pd.DataFrame:
    """Return the ratio of cells about their donor's mean."""
    values = np.asarray(matrix.load(dense=True), dtype=np.float64)
    sets, donors = [], []
    for mask in (in_foreground, in_background):
        rows, names = values[mask], labels[mask]
        codes, sizes = np.unique(names, return_inverse=True, return_counts=True)[1:]
        means = np.zeros((len(sizes), rows.shape[1]))
        np.add.at(means, codes, rows)
        sets.append(rows - (means / sizes[:, None])[codes])
        donors.append(names)
    return pd.DataFrame.from_dict({"contrast": _ratio(*sets, *donors, null=False)}, orient="index")


def _p_value(
    matrix: Rows,
    in_foreground: _select.BoolArray,
    in_background: _select.BoolArray,
    labels: NDArray[np.str_],
) -> float | None:
    """Return the p-value of the first component by relabelling donors, None for too few donors."""
    treated = in_foreground & ~in_background
    with muted(), contextlib.suppress(ValueError):
        test = condition_test(
            CPCA(1),
            matrix.take(treated),
            background=matrix.take(in_background),
            units=labels[treated],
            background_units=labels[in_background],
            include_background=bool((in_foreground & in_background).any()),
            random_state=0,
        )
        return float(test.p_values[0])
    return None


def _each_with_another(names: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield all ordered pairs of names, so that the first ones hold each name about as often."""
    n = len(names)
    for step in range(1, n):
        for i in range(n):
            yield names[i], names[(i + step) % n]


def _n_detected(matrix: Rows) -> NDArray[np.floating]:
    """Return how many genes are detected in each cell, (n_obs,)."""

    def count(block: Any) -> NDArray[np.floating]:
        found = block.astype(bool).sum(axis=1)
        return np.asarray(found, dtype=np.float64).ravel()

    if matrix.reads_rows:
        return np.concatenate([count(block) for block in matrix.blocks(check=False)])
    blocks = matrix.column_blocks()
    return np.asarray(sum(count(block) for _, block in blocks))
