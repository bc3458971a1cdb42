"""Tests of unusual arguments other than data: labels, moments, subspaces, maps, chunks, files.

Each unusual value either means the same as a plain value and gives the same result, or is refused.
The error then names the argument and shows the value.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import contrast_core as cc
from contrast_core import images, pairing
from tests.core.odd_inputs import CPCA, LABELS_OF_ROWS, MEASURES, PLUS, X, Y
from tests.core.test_odd_inputs import complaint

pytestmark = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")

N = len(X)
MOMENTS, OTHERS = cc.SecondMoments.from_data(X), cc.SecondMoments.from_data(Y)
FEWER = cc.SecondMoments.from_data(Y[:, :3])
PAIRS = cc.moments.PairMoments.from_data(X, Y)
FRAMES = [pd.DataFrame(v, columns=list(names)) for v, names in ((X, "abcde"), (Y, "abced"))]

LABELS: dict[str, Any] = {
    "too few": LABELS_OF_ROWS[:-1],
    "empty": [],
    "a word": "a",
    "a column too many": np.column_stack([LABELS_OF_ROWS, LABELS_OF_ROWS]),
    "NaN": np.where(LABELS_OF_ROWS == "a", np.nan, 1.0),
    "None among words": [None, *LABELS_OF_ROWS[1:]],
    "NA": pd.array([pd.NA] + [1] * (N - 1), dtype="Int64"),
    "numbers among words": [1, *LABELS_OF_ROWS[1:]],
    "masked": np.ma.masked_array(np.arange(N), np.arange(N) < 2),
    "a missing category": pd.Categorical([None, *LABELS_OF_ROWS[1:]]),
    "tuples": [("a", 1)] * N,
    "a generator": (label for label in LABELS_OF_ROWS),
    "not a time": np.array(["NaT"] + ["2020-01-01"] * (N - 1), dtype="M8[D]"),
    "sparse": sp.csr_matrix(np.ones((N, 1))),
}
# Every function that takes labels is tested with these kinds of invalid labels. Only
# `ContrastByLabel` is tested with all kinds, because all functions check labels in the same way.
FEW_LABELS = ("too few", "None among words", "NA", "a generator")
SAME_LABELS: dict[str, Any] = {
    "list": LABELS_OF_ROWS.tolist(),
    "objects": LABELS_OF_ROWS.astype(object),
    "bytes": LABELS_OF_ROWS.astype("S1"),
    "floats": np.repeat([1.0, 2.0, 3.0], 8),
    "categories": pd.Categorical(LABELS_OF_ROWS),
    "series": pd.Series(LABELS_OF_ROWS, index=range(5, 5 + N)),
    "strings of pandas": pd.array(LABELS_OF_ROWS, dtype="string"),
    "integers of pandas": pd.array(np.repeat([1, 2, 3], 8), dtype="Int64"),
    "times of pandas": np.repeat(pd.to_datetime(["2019", "2020", "2021"]), 8),
}


def by_label(labels: Any, rows: Any = X) -> Any:
    model = cc.ContrastByLabel(cc.CPCA(alpha=1.0), background=next(iter(labels))).fit(rows, labels)
    return model.estimator_.components_


def paired(**labels: Any) -> Any:
    pairs = pairing.neighbor_pairs(X, Y, n_neighbors=2, **labels)
    return np.column_stack([pairs.rows, pairs.positive_rows])


def measured(name: str, units: Any, background_units: Any) -> Any:
    found = MEASURES[name](X, Y, units=units, background_units=background_units)
    return np.concatenate([np.ravel(each) for each in found])


WITH_LABELS: dict[str, Callable[[Any], Any]] = {
    **{f"{name}-units": lambda v, name=name: measured(name, v, v) for name in MEASURES},
    "ContrastByLabel-y": by_label,
    "pairing_basis-within": lambda v: pairing.pairing_basis(X, v, n_components=2),
    "match_clusters-clusters": lambda v: [
        b for _, b in pairing.match_clusters(X, Y, v, LABELS_OF_ROWS)
    ],
    "match_clusters-positive_clusters": lambda v: [
        a for a, _ in pairing.match_clusters(X, Y, LABELS_OF_ROWS, v)
    ],
    "neighbor_pairs-within": lambda v: paired(within=v, positive_within=v),
    "neighbor_pairs-clusters": lambda v: paired(clusters=v, positive_clusters=LABELS_OF_ROWS),
    "effective_n_pairs-X_rows": lambda v: cc.contrast.effective_n_pairs(v, LABELS_OF_ROWS),
    "effective_n_pairs-positive_rows": lambda v: cc.contrast.effective_n_pairs(LABELS_OF_ROWS, v),
}


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        (where, kind)
        for where in (*WITH_LABELS, "partial_fit-is_foreground")
        for kind in LABELS
        if kind in FEW_LABELS or where == "ContrastByLabel-y"
    ],
)
def test_invalid_labels_are_refused(where: str, kind: str) -> None:
    def call(labels: Any) -> Any:
        if where.startswith("partial_fit"):
            return cc.OnlineCPCAStar().partial_fit(X, labels)
        if where.startswith("ContrastByLabel"):
            return cc.ContrastByLabel(cc.CPCA(alpha=1.0), background="a").fit(X, labels)
        return WITH_LABELS[where](labels)

    argument = where.split("-")[1]
    if (argument, kind) == ("X_rows", "too few"):
        argument = "positive_rows"  # the second argument is then too long for the first
    with pytest.raises((TypeError, ValueError), match=rf"\b{argument}\b") as caught:
        call(LABELS[kind])
    assert not complaint(caught.value, r"shape|missing|types?|masked|length|holds values")


# The permutation test refuses three units, because their labels can be exchanged in few ways only.
@pytest.mark.parametrize("kind", SAME_LABELS)
@pytest.mark.parametrize("where", [where for where in WITH_LABELS if "permutation" not in where])
def test_equal_labels_of_any_type_give_the_same_result(where: str, kind: str) -> None:
    found = WITH_LABELS[where](SAME_LABELS[kind])
    np.testing.assert_array_equal(found, WITH_LABELS[where](LABELS_OF_ROWS))


@pytest.mark.parametrize("name", MEASURES)
def test_units_of_one_row_give_the_result_without_units(name: str) -> None:
    found = measured(name, np.arange(N), np.arange(N, 2 * N))
    expected = np.concatenate([np.ravel(each) for each in MEASURES[name](X, Y)])
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


FITS: dict[str, Callable[[Any, Any], Any]] = {
    "CPCA": lambda x, y: cc.CPCA(alpha=1.0).fit(x, background=y),
    "CPCAStar": lambda x, y: cc.CPCAStar().fit(x, background=y),
    "PCPCA": lambda x, y: cc.PCPCA(gamma=0.1).fit(x, background=y),
    "CLVM": lambda x, y: cc.CLVM().fit(x, background=y),
    "KernelCPCA": lambda x, y: cc.KernelCPCA(alpha=1.0).fit(x, background=y),
    "OnlineCPCAStar": lambda x, y: cc.OnlineCPCAStar().fit(x, background=y),
    "StructuredBackgroundRemover": lambda x, y: images.StructuredBackgroundRemover().fit(
        x, background=y
    ),
    "contrast_path": lambda x, y: cc.contrast_path(x, background=y, alphas=[0, 1, 2]),
}
INVALID_DATASETS: dict[str, tuple[Any, Any, str]] = {
    "no X": (None, Y, "X is NoneType"),
    "no background": (X, None, "background=None"),
    "moments and rows": (MOMENTS, Y, "SecondMoments"),
    "rows and moments": (X, OTHERS, "SecondMoments"),
    "moments of pairs": (PAIRS, Y, "PairMoments"),
    "a class": (X, cc.CPCA, "background is"),
    "moments of other features": (MOMENTS, FEWER, "3 features but X has 5|SecondMoments, but rows"),
    "one row": (X, Y[:1], "n_samples=1"),
    "another order": (*FRAMES, "another order"),
    "a stack": (X.reshape(4, 6, 5), Y, r"X has shape \(4, 6, 5\)"),
}
WITHOUT_BACKGROUND = {"CPCA", "CPCAStar", "PCPCA"}  # these methods do not need a background
# The two views of positive pairs are the rows of X and the rows of `positive`.
INVALID_VIEWS: dict[str, tuple[Any, Any, str]] = {
    "no positive": (X, None, "positive"),
    "moments": (MOMENTS, Y, "X is SecondMoments"),
    "moments of pairs as positive": (X, PAIRS, "positive is PairMoments"),
    "other rows": (X, Y[:-1], "n_samples=23 but X has n_samples=24"),
}
VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "PCAPlus": lambda x, y: cc.PCAPlus().fit(x, positive=y),
    "PCAPlusPlus": lambda x, y: cc.PCAPlusPlus().fit(x, positive=y),
    "PairMoments": cc.moments.PairMoments.from_data,
}
BASIS = CPCA.components_
INVALID_BASES: dict[str, tuple[Any, str]] = {
    "words": ([["a"]], "without real numbers"),
    "no rows": (BASIS[:0], "shape"),
    "other features": (BASIS[:, :3], "same number of features"),
    "NaN": (np.full((2, 5), np.nan), "finite rows"),
    "masked": (np.ma.masked_array(BASIS, BASIS > 0), "masked"),
    "zeros": (BASIS * 0, "not all zero"),
}
MAP = {"mean": np.ones(3), "projection": np.eye(3, 2)}
INVALID_MAPS: dict[str, tuple[dict[str, Any], str]] = {
    "mean of words": ({"mean": ["a"]}, "mean=.*real numbers"),
    "other reconstruction": ({"reconstruction": np.eye(3)}, r"reconstruction has shape \(3, 3\)"),
    "other offset": ({"offsets": {"none": np.zeros(2)}}, r"offsets\['none'\] has shape \(2,\)"),
}
INVALID_ESTIMATORS: dict[str, Any] = {
    "a class": cc.CPCA,
    "a kernel method": cc.KernelCPCA(alpha=1.0),
    "pairs": cc.PCAPlus(),
    "moments": MOMENTS,
}
CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "merge with rows": (lambda: MOMENTS.merge(X), "ndarray"),
    "merge other features": (lambda: MOMENTS.merge(FEWER), "3 features"),
    "merge pairs with rows": (lambda: PAIRS.merge(MOMENTS), "SecondMoments"),
    "no chunks": (lambda: cc.SecondMoments.from_chunks([]), "no rows"),
    "a number as chunks": (lambda: cc.SecondMoments.from_chunks(3), "chunks=3 is int"),
    "rows as chunks": (lambda: cc.SecondMoments.from_chunks(X), "chunk 0 of X has shape"),
    "chunks of other features": (lambda: cc.SecondMoments.from_chunks([X, Y[:, :3]]), "chunk 1"),
    "views as chunks": (lambda: cc.moments.PairMoments.from_chunks([X, Y]), "pair of blocks"),
    "NaN among scores": (lambda: PLUS.inverse_transform(np.full((3, 2), np.nan)), "scores.*NaN"),
    "NaN by label": (
        lambda: cc.ContrastByLabel(cc.CPCA(), np.nan).fit(X, np.arange(N) / 2),
        "no row has the background label nan",
    ),
    "moments by label": (lambda: by_label(LABELS_OF_ROWS, MOMENTS), "X is"),
    "save no model": (lambda: cc.save({}, "unwritten.model"), "model is"),
}
CALLS |= {
    f"{method}, {kind}": (lambda call=call, x=x, y=y: call(x, y), words)
    for calls, invalid in ((FITS, INVALID_DATASETS), (VIEWS, INVALID_VIEWS))
    for method, call in calls.items()
    for kind, (x, y, words) in invalid.items()
    if not (invalid is INVALID_DATASETS and y is None and method in WITHOUT_BACKGROUND)
}
CALLS |= {
    f"{kind}, {i}": (lambda pair=pair: cc.linalg.principal_angles(*pair), words)
    for kind, (value, words) in INVALID_BASES.items()
    for i, pair in enumerate([(value, BASIS), (BASIS, value)])
}
CALLS |= {
    kind: (lambda given=MAP | changes: cc.spectral.LinearMap(**given), words)
    for kind, (changes, words) in INVALID_MAPS.items()
}
CALLS |= {
    f"{test.__name__}, {kind}": (
        lambda test=test, estimator=estimator: test(estimator, X, background=Y),
        "estimator is|keeps no moments",
    )
    for test in (cc.permutation_test, cc.bootstrap_stability)
    for kind, estimator in INVALID_ESTIMATORS.items()
}
CALLS |= {
    f"{call.__name__}, {path}": (
        lambda call=call, path=path: call(path),
        "path=.*expected the path of a file",
    )
    for call in (cc.load, lambda path: cc.save(CPCA, path))
    for path in (None, 3, b"a.model", "a\0b")
}


@pytest.mark.parametrize("kind", CALLS)
def test_invalid_requests_are_refused(kind: str) -> None:
    call, words = CALLS[kind]
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    assert not complaint(caught.value, words)
    assert not Path("unwritten.model").exists()


@pytest.mark.parametrize("name", [name for name in cc.__all__ if hasattr(getattr(cc, name), "fit")])
def test_unfitted_estimators_raise_an_error_that_says_so(name: str) -> None:
    kind = getattr(cc, name)
    model = kind(cc.CPCA()) if name == "ContrastByLabel" else kind()
    calls = ("transform", "inverse_transform", "denoise", "score", "transform_shared", "impute")
    calls += ("remove_components", "at", "path", "sample_foreground", "feature_weights")
    tried = [getattr(model, call) for call in calls if hasattr(kind, call)]
    assert tried
    for call in (*tried, lambda X: cc.save(model, "x.model")):
        with pytest.raises(ValueError, match="not fitted yet"):
            call() if call.__name__ in ("path", "sample_foreground", "feature_weights") else call(X)


def test_impossible_file_locations_are_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="is a folder; expected the path of a file"):
        cc.save(CPCA, tmp_path)
    with pytest.raises(
        FileNotFoundError, match=r"path=.*b' is in the folder .* which does not exist"
    ):
        cc.save(CPCA, tmp_path / "a" / "b")
    with pytest.raises(TypeError, match="moments must be True or False, got 'yes'"):
        cc.save(CPCA, tmp_path / "a", moments="yes")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
