"""Check the cells, genes and values of a contrast, and compare it with contrasts between donors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import reduce
from itertools import islice
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu, poisson

from contrast_core import CPCA, condition_test, cross_fitted_ratio
from contrast_core.feedback import muted, warn
from contrast_core.moments import FeatureMoments, split_feature_moments
from contrast_core.rows import Rows, load_into_memory
from contrast_core.significance import ContrastAdvice, contrast_advice

from . import _keys, _read, _select, _values, _write
from ._arguments import listed, storable
from ._docs import documented
from ._select import BoolArray

_LEAST_CELLS = 40  # donors with fewer control cells are not compared with each other
_MAX_NULLS = 12  # largest number of ordered pairs of donors whose controls are compared
# Number of genes from which the cross-fitted ratio is computed. More genes take time and hardly
# change it.
_RATIO_GENES = 300
_N_SPLITS = 5  # number of random splits into halves for the cross-fitted ratio
# Largest share of the foreground cells that may be of types that the background lacks. The share
# that is expected by chance is subtracted first.
_LACKING = 0.03
# Largest probability that a cell of one set has more detected genes than a cell of the other set.
_DEPTH = 0.75
# A type is rare in the background if its share there, divided by its share in the foreground, is
# smaller than this.
_RARE = 0.2
_LEVEL = 0.05  # a contrast exceeds chance if its p-value is at most this
_LEFT_OUT = 0.3  # largest share of the most variable genes that may be left out
# In each set, some share of the most variable genes is in use. The shares of the two sets may
# differ by at most this much.
_ONE_SIDED = 0.15


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
    lacks looks like an effect, and often like a stronger effect than the real one. This function
    looks for such faults, and warns if it finds any.

    One test decides whether the contrast exceeds chance: it relabels donors and gives a p-value of
    the first component (`contrast_core.condition_test`). If there are too few donors for this test,
    the cross-fitted ratio of the contrast decides. It is the ratio of foreground to background
    variance along directions that were fitted to other cells (`contrast_core.cross_fitted_ratio`).
    It is compared with ratios of one donor's controls against another donor's controls. Without
    donors, there is no decision.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`.
    {CELLS}
        For this check the background must be in `adata`, not in another AnnData.
    within
        Column of `adata.obs` with the donor, for a contrast within donors, as with `within=` of
        `scanpy_ext.tl.cpca`. The foreground and background cells of a donor are then compared with
        each other, and the test exchanges these two parts of randomly chosen donors.
    donor
        Column of `adata.obs` with the donor (animal, culture, ...). By default, the column that is
        given as `within`.
    controls
        Control cells of several donors, which are used to compare donors with each other. By
        default, these are the background cells. If the background holds the cells of a single
        donor, give the control cells of all donors here.
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
        says whether PCA would show as much as the contrast, and up to which number of components a
        contrast is needed (`contrast_core.significance.contrast_advice`).
    `.uns['contrast_check' | key_added]['counts']` : `DataFrame`
        Numbers of foreground and background cells by donor and cell type (if given).
    `.uns['contrast_check' | key_added]['ratios']` : `DataFrame`
        Cross-fitted ratios along two components, computed from the 300 genes in use that have the
        largest variance. There is a row for the contrast and, without `within`, a row for each
        comparison of two donors' controls. The columns are `ratio`, `baseline` (the ratio of the
        total variances), `relative` (the ratio divided by the baseline), `null` (True for
        comparisons of controls) and `unit`. The directions are fitted to one half of the data, and
        the variances along them are measured in the other half. The unit says what is split into
        halves: `donor` or `cell`. A ratio by cell is exploratory.
    `.uns['contrast_check' | key_added]['p_value']` : `float`
        The p-value by relabelling donors. It is missing if there are too few donors, or none.
    `.uns['contrast_check' | key_added]['sound']` : `str`
        The value is `"no"` if a check failed, and `"unknown"` if no check failed, but the checks in
        `not_checked` could not be made. Otherwise it is `"yes"`.
    `.uns['contrast_check' | key_added]['not_checked']` : `ndarray`
        Names of missing arguments that further checks need: `cell_type` or `donor`. For a contrast
        within donors, it contains `within` if there are too few donors to be relabelled.
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
    Even without an effect, the ratio is above its baseline: control blood cells of one donor,
    compared with those of another donor, gave 1.1 to 1.4 times the baseline. The ratio of a real
    effect should exceed all of these null ratios, and 1.5 times its baseline. At most 12 null
    ratios are computed, in which each donor is the foreground about as often as the background. If
    the foreground of the contrast contains its background, the foreground of each null ratio
    contains the controls of both donors.

    The genes with the largest variance over the cells of both sets together keep a difference
    between conditions. Scanpy's highly variable genes, whose variance is corrected for the mean,
    often lose it.

    The variances of all genes are computed block by block. For the cross-fitted ratio, the cells of
    both sets are held in memory with 300 genes only, or with all genes in use for a CSC matrix in a
    file. They are held as a dense array if the ratio splits single cells instead of donors, or if
    `within` is given. {LOADED}

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
    _write.check_free(adata, copy, key, {})
    selection = _select.cells(adata, groupby, reference, groups, foreground, background)
    with muted():  # the checks below report the same faults
        data = _read.contrast_input(adata, selection, 1, layer, None, mask_var, within=within)
    donor = within if donor is None else donor
    _select.check_donor(donor, groupby)
    if selection.other is not None:
        raise TypeError(
            "background is another AnnData; the check needs one AnnData with both sets. Join the "
            "two with anndata.concat, and give the sets as masks."
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
    whole = _read.whole_matrix(adata, layer)
    parts = split_feature_moments(whole, [treated, front & back, back & ~front])
    sides = {"all": parts, "foreground": parts[:2], "background": parts[1:]}
    moments = {
        name: reduce(FeatureMoments.merge, [each for each in some if each is not None])
        for name, some in sides.items()
    }
    if bad := int((~np.isfinite(moments["all"].mean[features])).sum()):
        raise ValueError(
            f"{bad} of the genes in use have NaN or infinite values. Leave these genes out with "
            "mask_var=, or remove or impute the values first."
        )

    findings = [_values_found(data)]
    findings += _genes_found(adata, features, moments)
    findings.append(_depth_found(_n_detected(whole), treated, back))
    if cell_type is not None:
        findings.append(_composition_found(labels["cell_type"], front, back))
    findings += [
        _confounding_found(name, labels[name], treated, back)
        for name in ("donor", "batch")
        if name in labels
    ]
    used = front | back | untreated
    variance = np.where(features, moments["all"].variance, -1.0)
    leading = np.argsort(-variance, kind="stable")[: min(_RATIO_GENES, features.sum())]
    rows = load_into_memory(whole.columns(np.sort(leading)).take(used))
    units = labels["donor"].to_numpy(dtype=object) if "donor" in labels else None
    units = data.within.get("within", units)
    sets = _Sets(
        rows, front[used], back[used], None if units is None else units[used], within is not None
    )
    ratios = _ratios(sets, untreated[used])
    p_value = _p_value(sets)
    findings.append(_ratio_found(ratios, p_value, donor, within))
    findings.append(_advice_found(_advice(sets), p_value, by_donor=donor is not None))

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
        "params": data.params | storable(donor=donor, cell_type=cell_type, batch=batch),
    } | storable(p_value=p_value)
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


class _Sets(NamedTuple):
    """Cells of both sets, with the genes from which the cross-fitted ratio is computed.

    `front` and `back` are masks of the foreground and background among `rows`. `donors` are the
    donors of `rows`, if given. `within` says whether the contrast is within donors.
    """

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
        x, y = (_read.centred(values[side], donors[side]) for side in (self.front, self.back))
        return x, y

    def units(self, front: BoolArray) -> dict[str, Any]:
        """Return the donors of the cells in `front` and of the background, as keyword arguments.

        The dictionary is empty if donors were not given, or if the donor of a cell is missing.
        """
        if self.donors is None or pd.isna(self.donors[front | self.back]).any():
            return {}
        of_sides = {"units": self.donors[front], "background_units": self.donors[self.back]}
        return {name: donors.astype(str) for name, donors in of_sides.items()}


def _ratios(sets: _Sets, untreated: BoolArray) -> pd.DataFrame:
    """Return cross-fitted ratios of the contrast, and of one donor's controls against another's.

    For a contrast within donors, only the ratio of the contrast is computed, because such a
    contrast does not compare donors.
    """
    front, back, donors = sets.front, sets.back, sets.donors
    ratios: dict[str, dict[str, Any]] = {}
    if min(front.sum(), back.sum()) >= 4:
        units = sets.units(front)
        split = all(len(set(side)) > 1 for side in units.values())
        ratios["contrast"] = _ratio(*sets.sides, null=False, **(units if split else {}))
        if donors is not None and not sets.within:
            sizes = pd.Series(donors[untreated]).value_counts()
            large = list(sizes.index[sizes >= _LEAST_CELLS])
            # Pairs are sorted so that the first of them, which are used, contain each donor about
            # equally often.
            n = len(large)
            pairs = ((large[i], large[(i + step) % n]) for step in range(1, n) for i in range(n))
            for a, b in islice(pairs, _MAX_NULLS):
                one, other = (untreated & (donors == name) for name in (a, b))
                if (front & back).any():  # the contrast's foreground contains background cells too
                    one |= other
                sides = sets.rows.take(one), sets.rows.take(other)
                ratios[f"{a} / {b}"] = _ratio(*sides, null=True)
    columns = ["ratio", "baseline", "relative", "null", "unit"]
    return pd.DataFrame.from_dict(ratios, orient="index", columns=columns)


def _ratio(front: Any, back: Any, *, null: bool, **units: Any) -> dict[str, Any]:
    """Return a row of the table of ratios; `units` holds the donors of both sides, if any."""
    with muted():  # the check of the ratio reports the same faults
        found = cross_fitted_ratio(
            front, background=back, n_components=2, n_splits=_N_SPLITS, random_state=0, **units
        )
    numbers = {name: getattr(found, name) for name in ("ratio", "baseline", "relative")}
    return numbers | {"null": null, "unit": "donor" if units else "cell"}


def _advice(sets: _Sets) -> ContrastAdvice | None:
    """Return the advice whether PCA would suffice; None if there are too few donors or cells."""
    units = sets.units(sets.front)
    if sets.donors is not None and not units:
        return None
    x, y = sets.sides
    with muted(), contextlib.suppress(ValueError):
        return contrast_advice(x, background=y, random_state=0, **units)
    return None


def _p_value(sets: _Sets) -> float | None:
    """Return the p-value of the first component by relabelling donors.

    The value is None if there are too few donors.
    """
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


class _Finding(NamedTuple):
    """A row of `.uns['contrast_check']['checks']`."""

    check: str
    sound: bool
    message: str


def _values_found(data: _read.ContrastInput) -> _Finding:
    """Check whether the values are logarithms of counts."""
    used = data.selection.foreground | data.selection.background
    fault = _values.fault(data.matrix.take(used))
    return _Finding("values", fault is None, fault or "the values look like logarithms of counts")


def _genes_found(
    adata: AnnData, features: BoolArray, varying: dict[str, FeatureMoments]
) -> Iterator[_Finding]:
    """Check that the genes in use have the largest variance, over all cells and in each set."""
    if features.all():
        yield _Finding("genes", True, "all genes are in use")
        return
    n = int(features.sum())
    leading = {
        name: np.argsort(-moments.variance, kind="stable")[:n] for name, moments in varying.items()
    }
    hits = {name: float(features[genes].mean()) for name, genes in leading.items()}
    left_out = adata.var_names[leading["all"][~features[leading["all"]]]]
    said = f"{hits['all']:.0%} of the {n} genes of largest variance are in use"
    sound = 1 - hits["all"] <= _LEFT_OUT
    if not sound:
        said = (
            f"{len(left_out)} of the {n} genes of largest variance are not in use "
            f"({listed(list(left_out), most=5)}). This happens if the variance is corrected for "
            "the mean when genes are chosen, and the difference between conditions may be lost. "
            "Choose the genes of largest uncorrected variance"
        )
    yield _Finding("genes", sound, said)
    more = max(("foreground", "background"), key=lambda side: hits[side])
    less = "background" if more == "foreground" else "foreground"
    if hits[more] - hits[less] > _ONE_SIDED:
        yield _Finding(
            "gene choice",
            False,
            f"{hits[more]:.0%} of the {more}'s {n} most variable genes are in use, but only "
            f"{hits[less]:.0%} of the {less}'s. The genes may have been chosen on the {more} "
            "alone. Choose them on the cells of both sets",
        )


def _depth_found(n_detected: NDArray[np.floating], front: BoolArray, back: BoolArray) -> _Finding:
    """Check whether the cells of both sides were sequenced equally deeply.

    Normalisation does not remove differences in sequencing depth.
    """
    if not front.any():
        return _Finding("depth", True, "all foreground cells are also background cells")
    sides = n_detected[front], n_detected[back]
    more = float(mannwhitneyu(*sides, method="asymptotic").statistic) / (front.sum() * back.sum())
    medians = [float(np.median(side)) for side in sides]
    said = (
        f"the median number of detected genes is {medians[0]:g} in cells outside the background "
        f"and {medians[1]:g} in background cells"
    )
    sound = max(more, 1 - more) < _DEPTH
    if not sound:
        said += (
            f". The {'former' if more > 0.5 else 'latter'} have more genes in "
            f"{max(more, 1 - more):.0%} of all pairs of cells. A difference in sequencing depth "
            "looks like an effect. Downsample the counts to one depth (sc.pp.downsample_counts) "
            "and normalise again"
        )
    return _Finding("depth", sound, said)


def _composition_found(
    types: pd.Series[Any], foreground: BoolArray, background: BoolArray
) -> _Finding:
    """Check whether the background has the cell types of the foreground, up to a small share.

    A type is lacking if its share of the background is less than a fifth of its share of the
    foreground. If there are many small types, some are lacking by chance. The check subtracts the
    share of foreground cells whose types are expected to be lacking by chance, which is computed
    from Poisson distributions.
    """
    front, back = (types[cells].value_counts() for cells in (foreground, background))
    shares = front / front.sum()
    number = back.reindex(front.index, fill_value=0)
    expected = shares * back.sum()
    lacking = shares[number < _RARE * expected]
    by_chance = float((shares * poisson.cdf(np.ceil(_RARE * expected) - 1, expected)).sum())
    if not len(lacking):
        return _Finding("composition", True, f"the background has all {len(front)} cell types")
    said = (
        "the background has no or few cells of these types: "
        f"{listed(list(lacking.index), most=5)}. They are {lacking.sum():.1%} of the foreground's "
        f"cells (by chance alone, such types would be {by_chance:.1%} of these cells)"
    )
    sound = float(lacking.sum()) - by_chance <= _LACKING
    if not sound:
        said += (
            ". Their differences from other types will look like an effect, often like a stronger "
            "effect than the real one. Leave these types out of the foreground, or find another "
            "background"
        )
    return _Finding("composition", sound, said)


def _confounding_found(
    name: str, labels: pd.Series[Any], front: BoolArray, back: BoolArray
) -> _Finding:
    """Check whether the donors or batches have cells in both sets."""
    plural = {"donor": "donors", "batch": "batches"}[name]
    sides = [set(labels[cells].dropna()) for cells in (front, back)]
    both = sides[0] & sides[1]
    missing = int(labels[front | back].isna().sum())
    if sides[0] and sides[1] and not both:
        return _Finding(
            name,
            False,
            f"no {name} has cells in both sets, so the contrast also contains differences between "
            f"{plural}, which cannot be separated from the effect. Contrast the controls of the "
            f"{plural} with each other for comparison",
        )
    alone = sorted((sides[0] | sides[1]) - both)
    if alone or missing:
        of_front = float(labels[front].isin(alone).mean()) if front.any() else 0.0
        said = [f"{plural} with cells in both sets: {len(both)}"]
        said += [f"in one set only: {listed(alone)}"] if alone else []
        said += [f"cells without a value: {missing}"] if missing else []
        return _Finding(name, of_front <= 0.5, "; ".join(said))
    return _Finding(name, True, f"all {len(both)} {plural} have cells in both sets")


def _ratio_found(
    ratios: pd.DataFrame, p_value: float | None, donor: str | None, within: str | None
) -> _Finding:
    """Check whether the contrast exceeds the contrasts of relabelled donors.

    If there are too few donors to relabel, the cross-fitted ratio must exceed 1.5 times its
    baseline and the ratios of one donor's controls against another donor's. Without such ratios
    nothing is decided, because a fixed value alone does not separate an effect from chance.
    """
    if not len(ratios):
        return _Finding("ratio", False, "there are too few cells for a cross-fitted ratio")
    contrast, nulls = ratios.iloc[0], ratios[ratios["null"]]
    exploratory = ". Single cells were split instead of donors, so the ratio is exploratory"
    said = (
        f"the cross-fitted ratio{'' if within is None else ' within donors'} is "
        f"{contrast['ratio']:.2f}, which is {contrast['relative']:.2f} times its baseline, the "
        f"ratio of the total variances{'' if contrast['unit'] == 'donor' else exploratory}"
    )
    if p_value is not None:
        told = f"{said}; p = {p_value:.2g} by relabelling donors"
        return _Finding("ratio", p_value <= _LEVEL, told)
    if within is not None:
        return _Finding("ratio", True, f"{said}; there are too few donors to relabel them")
    if not len(nulls):
        advice = "give donor=" if donor is None else "give their control cells as controls="
        return _Finding(
            "ratio",
            True,
            f"{said}. This number alone decides nothing, because controls of one donor, compared "
            "with controls of another donor, also exceed the baseline. To compare controls of two "
            f"donors, {advice}. For a test, run scanpy_ext.tl.significance",
        )
    worst = float(nulls["relative"].max())
    return _Finding(
        "ratio",
        bool(contrast["relative"] > max(worst, 1.5)),
        f"{said}. Controls of one donor, compared with controls of another donor, give "
        f"{float(nulls['relative'].min()):.2f} to {worst:.2f} times the baseline. If donors have "
        "cells in both sets, within= compares each donor's foreground with its own background",
    )


def _advice_found(
    found: ContrastAdvice | None, p_value: float | None, *, by_donor: bool
) -> _Finding:
    """Return the advice on whether a contrast is needed, as a finding that is always sound."""
    if found is None:
        return _Finding(
            "advice",
            True,
            "there is no advice, because donors or cells are too few or a cell has no donor",
        )
    something = found.found or (p_value is not None and p_value <= _LEVEL)
    said = found.sentence(something)
    if not by_donor:
        said += " This is exploratory, because the units are single cells instead of donors."
    return _Finding("advice", True, said)
