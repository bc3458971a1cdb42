"""Check the cells, genes and values of a contrast, and compare it with differences of donors."""

from __future__ import annotations

import contextlib
from itertools import islice
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from contrast_core import CPCA, condition_test, cross_fitted_ratio
from contrast_core.feedback import muted, warn
from contrast_core.moments import FeatureMoments, split_feature_moments
from contrast_core.rows import Rows, load_into_memory
from contrast_core.significance import ContrastAdvice, contrast_advice

from . import _findings, _keys, _matrix, _read, _select, _write
from ._docs import documented
from ._select import BoolArray

_LEAST_CELLS = 40  # fewest controls of a donor that are compared with another donor's
_MAX_NULLS = 12  # largest number of ordered pairs of donors
_RATIO_GENES = 300  # more genes take time and hardly change the ratio
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
    including differences that come from the design. A cell type or a donor that the background
    lacks looks like an effect, and often a stronger one than the real effect. This function looks
    for such faults, and warns.

    One test decides whether the contrast exceeds chance: the p-value of the first component if
    donors are relabelled (`contrast_core.condition_test`). With too few donors for this test, the
    cross-fitted trace ratio (`contrast_core.cross_fitted_ratio`) is compared with the ratio of one
    donor's controls against another donor's controls. Without donors, there is no decision.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`.
    {CELLS}
        Here the background is among the cells of `adata`.
    within
        Column of `adata.obs` with the donor, if the contrast is to be taken within donors, as with
        `within=` of `scanpy_ext.tl.cpca`. The two parts of each donor are then compared with each
        other, and the test relabels these parts.
    donor
        Column of `adata.obs` with the donor (animal, culture, ...). By default, the column that is
        given as `within`.
    controls
        Control cells, whose donors are compared with each other. By default the background cells.
        If the masks choose single donors, give the control cells of all donors here.
    cell_type
        Column of `adata.obs` with cell types, or clusters.
    batch
        Column of `adata.obs` with another factor that must not coincide with the condition, such as
        the plate, the chip or the day.
    {DATA}
    key_added
        Name of the result in `.uns`, instead of `contrast_check`.
    {COPY}

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields, which
    `scanpy_ext.pl.contrast_check` plots:

    `.uns['contrast_check' | key_added]['checks']` : `DataFrame`
        A row for each check, with columns `sound` and `message`. The message of the check `advice`
        says whether PCA would show as much, and up to how many components a contrast is needed
        (`contrast_core.significance.contrast_advice`).
    `.uns['contrast_check' | key_added]['counts']` : `DataFrame`
        Numbers of foreground and background cells by donor and cell type (if given).
    `.uns['contrast_check' | key_added]['ratios']` : `DataFrame`
        Cross-fitted ratios of two components on the 300 genes of largest variance that are in use.
        There is a row for the contrast and, without `within`, a row for each comparison of two
        donors' controls. The columns are the `ratio`; its `baseline`, which is the ratio of total
        variances; `relative`, which is the ratio divided by the baseline; `null`, which is True for
        comparisons of controls; and the `unit` that was split, which is `donor` or `cell`. A ratio
        by cell is exploratory.
    `.uns['contrast_check' | key_added]['p_value']` : `float`
        The p-value by relabelling donors. Missing without donors, or if they are too few.
    `.uns['contrast_check' | key_added]['sound']` : `str`
        `"no"` if a check failed; `"unknown"` if none failed, but the checks in `not_checked` could
        not be made; otherwise `"yes"`.
    `.uns['contrast_check' | key_added]['not_checked']` : `ndarray`
        Names of missing arguments that further checks need: `cell_type` or `donor`. It contains
        `within` if there are too few donors to be relabelled.
    `.uns['contrast_check' | key_added]['params']` : `dict`
        The arguments that were given.

    Raises
    ------
    {RAISES}

    Warns
    -----
    contrast_core.ContrastWarning
        If a check failed. A single warning names all failed checks.

    Notes
    -----
    The ratio is not 1 if there is no effect: control cells of one donor, compared with control
    cells of another donor, give about twice the baseline. The ratio of a real effect should exceed
    all of these null ratios. There are at most 12 of them, and each donor is foreground about as
    often as background. If the foreground of the contrast contains its background, then the
    controls of both donors are in the foreground of a null.

    The genes of largest plain variance over all cells in both sets keep a difference between
    conditions. scanpy's highly variable genes (variance corrected for the mean) often drop it.

    The variances of all genes are computed block by block. The cells of both sets are held in
    memory with the 300 genes of the ratio only, or with all genes in use for a CSC matrix in a
    file. They are dense if cells are split one by one. {LOADED}

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
    ['values', 'genes', 'depth', 'donor', 'ratio', 'advice']
    """
    key = _keys.checked("contrast_check" if key_added is None else key_added)
    _write.check_writable(adata, copy)
    _write.check_free(adata, key, {})
    selection = _select.cells(adata, groupby, reference, groups, foreground, background)
    with muted():  # the findings say what is wrong with the values
        data = _read.contrast_input(adata, selection, 1, layer, None, mask_var, copy, within=within)
    donor = within if donor is None else donor
    _select.check_donor(donor, groupby)
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
    front, back = selection.foreground, selection.background
    treated, untreated = front & ~back, back
    if controls is not None:
        untreated = _select.boolean_mask(adata, controls, axis="obs", argument="controls")
    features = cast("BoolArray", data.features)  # None for an embedding only
    whole = _matrix.whole_matrix(adata, layer)
    varying = _varying(whole, front, back, features)

    findings = [_findings.values(data)]
    findings += _findings.genes(adata, features, varying)
    findings.append(_findings.depth(_n_detected(whole), treated, back))
    if cell_type is not None:
        findings.append(_findings.composition(labels["cell_type"], front, back))
    findings += [
        _findings.confounding(name, labels[name], treated, back)
        for name in ("donor", "batch")
        if name in labels
    ]
    used = front | back | untreated
    leading = _most_variable(varying["all"], features, _RATIO_GENES)
    rows = load_into_memory(whole.columns(leading).take(used))
    donors = data.within
    if donors is None and donor is not None:
        donors = labels["donor"].to_numpy()
    donors = None if donors is None else donors[used]
    sets = _Sets(rows, front[used], back[used], donors, data.within is not None)
    ratios = _ratios(sets, untreated[used])
    p_value = _p_value(sets)
    findings.append(_findings.ratio(ratios, p_value, donor, within))
    findings.append(_findings.advice(_advice(sets), p_value, by_donor=donor is not None))

    checks = pd.DataFrame(findings).set_index("check").rename_axis(None)
    missing = [name for name in ("cell_type", "donor") if name not in labels]
    if within is not None and p_value is None:
        missing.append("within")
    verdict = "no" if not checks["sound"].all() else "unknown" if missing else "yes"
    result = {
        "checks": checks,
        "counts": _counts(labels, front, back),
        "ratios": ratios,
        "sound": verdict,
        "not_checked": np.array(missing, dtype=object),
        "params": data.params | _write.storable(donor=donor, cell_type=cell_type, batch=batch),
    } | _write.storable(p_value=p_value)
    written = _write.write(adata, _write.Result(key, result), copy=copy)
    if verdict == "no":
        told = "; ".join(f"{f.check}: {f.message}" for f in findings if not f.sound)
        warn(f"the contrast may not be sound. {told}")
    return written


def _counts(labels: dict[str, pd.Series[Any]], front: BoolArray, back: BoolArray) -> pd.DataFrame:
    """Return the numbers of foreground and background cells by donor and cell type, if given."""
    by = [name for name in ("donor", "cell_type") if name in labels]
    table = pd.DataFrame({name: labels[name].fillna("(missing)").to_numpy() for name in by})
    table["foreground"], table["background"] = front.astype(int), back.astype(int)
    used = table[front | back]
    sides = ["foreground", "background"]
    counts = used.groupby(by)[sides].sum().reset_index() if by else used[sides].sum().to_frame().T
    counts.index = counts.index.astype(str)
    return counts


def _varying(
    matrix: Rows, front: BoolArray, back: BoolArray, features: BoolArray
) -> dict[str, FeatureMoments]:
    """Return the moments of every gene over the cells of both sets, and over each set."""
    parts = split_feature_moments(matrix, [front & ~back, front & back, back & ~front])

    def merged(*which: int) -> FeatureMoments:
        known = [found for i in which if (found := parts[i]) is not None]
        return known[0] if len(known) == 1 else known[0].merge(merged(*which[1:]))

    varying = {
        "all": merged(0, 1, 2),
        "foreground": merged(0, 1),
        "background": merged(1, 2),
    }
    bad = int((~np.isfinite(varying["all"].mean[features])).sum())
    if bad:
        raise ValueError(
            f"{bad} of the genes in use have NaN or infinite values. Leave these genes out with "
            "mask_var=, or remove or impute the values first."
        )
    return varying


def _most_variable(moments: FeatureMoments, features: BoolArray, most: int) -> BoolArray:
    """Return the genes in use of largest variance, as a mask."""
    variance = np.where(features, moments.variance, -1.0)
    chosen = np.zeros_like(features)
    chosen[np.argsort(-variance, kind="stable")[: min(most, features.sum())]] = True
    return chosen


class _Sets(NamedTuple):
    """Cells of both sets, with the genes of the ratio, and the donors of the cells if given."""

    rows: Rows
    front: BoolArray
    back: BoolArray
    donors: NDArray[Any] | None
    within: bool

    @property
    def sides(self) -> tuple[Any, Any]:
        """Foreground and background cells; for a contrast within donors, centred by donor."""
        if not self.within:
            return self.rows.take(self.front), self.rows.take(self.back)
        values = np.asarray(self.rows.load(dense=True), dtype=np.float64)
        donors = np.asarray(self.donors)
        x, y = (_matrix.centred(values[side], donors[side]) for side in (self.front, self.back))
        return x, y

    def units(self, front: BoolArray) -> dict[str, Any]:
        """Return the donors of some cells and of the background; empty if a donor is missing."""
        if self.donors is None or pd.isna(self.donors[front | self.back]).any():
            return {}
        of_sides = {"units": self.donors[front], "background_units": self.donors[self.back]}
        return {name: donors.astype(str) for name, donors in of_sides.items()}


def _ratios(sets: _Sets, untreated: BoolArray) -> pd.DataFrame:
    """Return the ratios of the contrast and of one donor's controls against another's.

    For a contrast within donors only the first is computed, as donors are not compared in it.
    """
    front, back, donors = sets.front, sets.back, sets.donors
    if not sets.within and min(front.sum(), back.sum()) < 4:
        return _table({})
    units = sets.units(front)
    if any(len(set(side)) < 2 for side in units.values()):
        units = {}
    ratios = {"contrast": _ratio(*sets.sides, **units)}
    if donors is not None and not sets.within:
        sizes = pd.Series(donors[untreated]).value_counts()
        large = list(sizes.index[sizes >= _LEAST_CELLS])
        # In this order the first pairs contain each donor about equally often.
        n = len(large)
        pairs = ((large[i], large[(i + step) % n]) for step in range(1, n) for i in range(n))
        for a, b in islice(pairs, _MAX_NULLS):
            one, other = (untreated & (donors == name) for name in (a, b))
            if (front & back).any():  # the background is in the foreground, as in the contrast
                one |= other
            ratios[f"{a} / {b}"] = _ratio(sets.rows.take(one), sets.rows.take(other))
    return _table(ratios)


def _ratio(front: Any, back: Any, **units: Any) -> dict[str, Any]:
    """Return a row of the table of ratios; units are the donors of both sides."""
    with muted():  # the findings say what there is to say about the ratio
        found = cross_fitted_ratio(
            front, background=back, n_components=2, n_splits=_N_SPLITS, random_state=0, **units
        )
    numbers = {name: getattr(found, name) for name in ("ratio", "baseline", "relative")}
    return numbers | {"unit": "donor" if units else "cell"}


def _table(ratios: dict[str, dict[str, Any]]) -> pd.DataFrame:
    """Return the table of ratios: the first row is the contrast, the others are nulls."""
    table = pd.DataFrame.from_dict(
        ratios, orient="index", columns=["ratio", "baseline", "relative", "unit"]
    )
    table.insert(3, "null", np.arange(len(table)) > 0)
    return table


def _advice(sets: _Sets) -> ContrastAdvice | None:
    """Return the advice on PCA and contrasts; None if there are too few donors or cells."""
    units = sets.units(sets.front)
    if sets.donors is not None and not units:
        return None
    x, y = sets.sides
    with muted(), contextlib.suppress(ValueError):
        return contrast_advice(x, background=y, random_state=0, **units)
    return None


def _p_value(sets: _Sets) -> float | None:
    """Return the p-value of the first component by relabelling donors; None if too few."""
    treated = sets.front & ~sets.back
    units = sets.units(treated)
    if not units:
        return None
    with muted(), contextlib.suppress(ValueError):
        test = condition_test(
            CPCA(1),
            sets.rows.take(treated),
            background=sets.rows.take(sets.back),
            include_background=bool((sets.front & sets.back).any()),
            random_state=0,
            **units,
        )
        return float(test.p_values[0])
    return None


def _n_detected(matrix: Rows) -> NDArray[np.floating]:
    """Return how many genes are detected in each cell, (n_obs,)."""

    def count(block: Any) -> NDArray[np.floating]:
        return np.asarray(block.astype(bool).sum(axis=1), dtype=np.float64).ravel()

    if matrix.reads_rows:
        return np.concatenate([count(block) for block in matrix.blocks(check=False)])
    return np.asarray(sum(count(block) for _, block in matrix.column_blocks()))
