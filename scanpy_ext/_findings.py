"""The individual checks of `contrast_check`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu, poisson

from contrast_core.moments import FeatureMoments
from contrast_core.significance import ContrastAdvice

from . import _read, _values
from ._arguments import listed
from ._select import BoolArray

_LACKING = 0.03  # largest share of the foreground in types that the background lacks, beyond chance
# Largest probability that a cell of one side has more genes detected than a cell of the other.
_DEPTH = 0.75
_RARE = 0.2  # a type is rare in the background below this share of its share in the foreground
_LEVEL = 0.05  # largest p-value of a contrast that exceeds chance
_LEFT_OUT = 0.3  # largest share of the most variable genes that may be left out
_ONE_SIDED = 0.15  # largest difference of the shares of both sides' most variable genes in use


class Finding(NamedTuple):
    """A row of `.uns['contrast_check']['checks']`."""

    check: str
    sound: bool
    message: str


def values(data: _read.ContrastInput) -> Finding:
    """Check whether the values are logarithms of counts."""
    used = data.selection.foreground | data.selection.background
    fault = _values.fault(data.matrix.take(used))
    return Finding("values", fault is None, fault or "no raw counts, and none that were not logged")


def genes(
    adata: AnnData, features: BoolArray, varying: dict[str, FeatureMoments]
) -> Iterator[Finding]:
    """Check that the genes in use are those of largest variance, over all cells and in each set."""
    if features.all():
        yield Finding("genes", True, "all genes are in use")
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
            f"({listed(list(left_out), most=5)}), as after a choice of genes that corrects for "
            "the mean: the difference between conditions may be lost. Choose the genes of largest "
            "plain variance"
        )
    yield Finding("genes", sound, said)
    more = max(("foreground", "background"), key=lambda side: hits[side])
    less = "background" if more == "foreground" else "foreground"
    if hits[more] - hits[less] > _ONE_SIDED:
        yield Finding(
            "gene choice",
            False,
            f"{hits[more]:.0%} of the {more}'s {n} most variable genes are in use, but "
            f"{hits[less]:.0%} of the {less}'s: were they chosen on the {more} alone? Choose them "
            "on the cells of both",
        )


def depth(n_detected: NDArray[np.floating], front: BoolArray, back: BoolArray) -> Finding:
    """Check whether the cells of both sides were sequenced equally deeply.

    Normalisation does not remove such a difference.
    """
    if not front.any():
        return Finding("depth", True, "the background has all of the foreground's cells")
    sides = n_detected[front], n_detected[back]
    more = float(mannwhitneyu(*sides, method="asymptotic").statistic) / (front.sum() * back.sum())
    medians = [float(np.median(side)) for side in sides]
    said = (
        f"cells outside the background have {medians[0]:g} genes detected (median), those of the "
        f"background {medians[1]:g}"
    )
    sound = max(more, 1 - more) < _DEPTH
    if not sound:
        said += (
            f": of two cells, the one of the {'first' if more > 0.5 else 'second'} has more in "
            f"{max(more, 1 - more):.0%}. How deeply cells are sequenced will look like the effect. "
            "Downsample the counts to one depth (sc.pp.downsample_counts) and normalise again"
        )
    return Finding("depth", sound, said)


def composition(types: pd.Series[Any], foreground: BoolArray, background: BoolArray) -> Finding:
    """Check whether the background has the cell types of the foreground, up to a small share.

    A type is lacking if its share of the background is less than a fifth of its share of the
    foreground. If there are many small types, some are lacking by chance. Their expected share,
    computed with Poisson-distributed numbers of cells, is subtracted.
    """
    front, back = (types[cells].value_counts() for cells in (foreground, background))
    shares = front / front.sum()
    number = back.reindex(front.index, fill_value=0)
    expected = shares * back.sum()
    lacking = shares[number < _RARE * expected]
    by_chance = float((shares * poisson.cdf(np.ceil(_RARE * expected) - 1, expected)).sum())
    if not len(lacking):
        return Finding("composition", True, f"the background has all {len(front)} cell types")
    said = (
        f"cell types missing or rare in the background: {listed(list(lacking.index), most=5)}, "
        f"{lacking.sum():.1%} of the foreground's cells ({by_chance:.1%} would be by chance)"
    )
    sound = float(lacking.sum()) - by_chance <= _LACKING
    if not sound:
        said += (
            ". What tells them from other types will look like the effect, and stronger. Leave "
            "them out of the foreground, or find another background"
        )
    return Finding("composition", sound, said)


def confounding(name: str, labels: pd.Series[Any], front: BoolArray, back: BoolArray) -> Finding:
    """Check whether the levels of a column have cells on both sides."""
    sides = [set(labels[cells].dropna()) for cells in (front, back)]
    both = sides[0] & sides[1]
    missing = int(labels[front | back].isna().sum())
    if sides[0] and sides[1] and not both:
        return Finding(
            name,
            False,
            f"no {name} has cells in both sets: what differs between {name}s is in the contrast "
            f"as well, and cannot be told from the effect. Compare with the {name}s' controls "
            "against each other",
        )
    alone = sorted((sides[0] | sides[1]) - both)
    if alone or missing:
        of_front = float(labels[front].isin(alone).mean()) if front.any() else 0.0
        said = [f"{listed(alone)} in one set only"] if alone else []
        said += [f"{missing} cells without a value"] if missing else []
        return Finding(name, of_front <= 0.5, f"{len(both)} in both sets; {'; '.join(said)}")
    return Finding(name, True, f"all {len(both)} have cells in both sets")


def ratio(
    ratios: pd.DataFrame, p_value: float | None, donor: str | None, within: str | None
) -> Finding:
    """Check whether the contrast exceeds the contrasts of relabelled donors.

    If there are too few donors to relabel, the cross-fitted ratio is compared with the ratios of
    one donor's controls against another donor's. Without such ratios nothing is decided, because
    no fixed value separates an effect from chance.
    """
    if not len(ratios):
        return Finding("ratio", False, "too few cells for a cross-fitted ratio")
    contrast, nulls = ratios.iloc[0], ratios[ratios["null"]]
    said = (
        f"{'' if within is None else 'within donors the '}cross-fitted ratio is "
        f"{contrast['ratio']:.2f}, {contrast['relative']:.2f} times what directions without "
        f"contrast give{'' if contrast['unit'] == 'donor' else ' (by cell: exploratory)'}"
    )
    if p_value is not None:
        told = f"{said}; p = {p_value:.2g} by relabelling donors"
        return Finding("ratio", p_value <= _LEVEL, told)
    if within is not None:
        return Finding("ratio", True, f"{said}; the donors are too few to be relabelled")
    if not len(nulls):
        advice = "give donor=" if donor is None else "controls= of two donors are needed"
        return Finding(
            "ratio",
            True,
            f"{said}. This alone decides nothing, as one donor's controls against another's give "
            f"about 2: {advice} to compare, and scanpy_ext.tl.significance to test",
        )
    worst = float(nulls["relative"].max())
    return Finding(
        "ratio",
        bool(contrast["relative"] > max(worst, 1.5)),
        f"{said}; controls of one donor against another's: "
        f"{float(nulls['relative'].min()):.2f} to {worst:.2f} times. Where donors have cells in "
        "both sets, within= compares these with each other",
    )


def advice(found: ContrastAdvice | None, p_value: float | None, *, by_donor: bool) -> Finding:
    """Return the advice on whether a contrast is needed, which never makes a design unsound."""
    if found is None:
        return Finding("advice", True, "too few donors or cells to leave some out")
    something = found.found or (p_value is not None and p_value <= _LEVEL)
    exploratory = "" if by_donor else " (By cell: exploratory.)"
    return Finding("advice", True, found.sentence(something) + exploratory)
