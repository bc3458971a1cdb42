"""Tests of significance functions with unusual arguments, which are correct or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import contrast_core as cc
from tests.core.odd_subjects import LABELS_OF_ROWS, K, X, Y
from tests.core.test_odd_arguments import FEW_LABELS, LABELS, SAME_LABELS
from tests.core.test_odd_inputs import complaint
from tests.core.test_odd_values import FEW, SCALED, SHIFTED, VARIES

pytestmark = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")


def permuted(X: Any, Y: Any, estimator: Any = None, **options: Any) -> list[Any]:
    """Return results that do not depend on the unit of the data, such as p-values."""
    estimator = cc.CPCA(K) if estimator is None else estimator
    options = {"n_permutations": 19, "random_state": 0} | options
    found = cc.permutation_test(estimator, X, background=Y, **options)
    return [found.p_values, found.statistics, found.null_statistics, np.abs(found.components)]


def ratio(X: Any, Y: Any, **options: Any) -> list[Any]:
    found = cc.cross_fitted_ratio(X, background=Y, n_splits=3, random_state=0, **options)
    return [found.baseline, found.ratios]


def resampled(X: Any, Y: Any, estimator: Any = None, **options: Any) -> list[Any]:
    estimator = cc.CPCA(K) if estimator is None else estimator
    found = cc.bootstrap_stability(
        estimator, X, background=Y, n_resamples=4, random_state=0, **options
    )
    return [found.matched, found.retained, np.cos(found.angles) ** 2]


CALLS: dict[str, Callable[..., list[Any]]] = {
    "permutation_test": permuted,
    "cross_fitted_ratio": ratio,
    "bootstrap_stability": resampled,
}
EVERY = pytest.mark.parametrize("name", CALLS)


def assert_same(found: list[Any], expected: list[Any], atol: float = 0.0) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=atol)


@EVERY
@pytest.mark.parametrize("kind", FEW_LABELS)
def test_invalid_groups_are_refused(name: str, kind: str) -> None:
    calls = {
        "^units": {"units": LABELS[kind], "background_units": LABELS_OF_ROWS},
        "^background_units": {"units": LABELS_OF_ROWS, "background_units": LABELS[kind]},
    }
    for words, options in calls.items():
        with pytest.raises((TypeError, ValueError), match=words) as caught:
            CALLS[name](X, Y, **options)
        assert not complaint(caught.value, r"shape|missing|types?|masked|length|holds values")


@pytest.mark.parametrize("kind", SAME_LABELS)
def test_groups_of_any_kind_give_the_same(kind: str) -> None:
    labels = SAME_LABELS[kind]
    for call in (ratio, resampled):
        found = call(X, Y, units=labels, background_units=labels)
        assert_same(found, call(X, Y, units=LABELS_OF_ROWS, background_units=LABELS_OF_ROWS))
    with pytest.raises(ValueError, match="only 8 ways to say which units are foreground"):
        permuted(X, Y, units=labels, background_units=labels)


@EVERY
def test_groups_of_one_are_rows(name: str) -> None:
    n = len(X)
    found = CALLS[name](X, Y, units=np.arange(n), background_units=np.arange(n, 2 * n))
    assert_same(found, CALLS[name](X, Y), atol=1e-9)


ESTIMATORS: dict[str, Any] = {
    "None": None,
    "a class": cc.CPCA,
    "a word": "CPCA",
    "a kernel method": cc.KernelCPCA(alpha=1.0),
    "pairs": cc.PCAPlus(),
    "a stream": cc.OnlineCPCAStar(),
    "moments": cc.SecondMoments.from_data(X),
    "labels": cc.ContrastByLabel(cc.CPCA()),
}


@pytest.mark.parametrize("test", [cc.permutation_test, cc.bootstrap_stability])
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_invalid_estimators_are_refused(test: Any, kind: str) -> None:
    with pytest.raises(TypeError) as caught:
        test(ESTIMATORS[kind], X, background=Y)
    assert not complaint(caught.value, "estimator is|keeps no moments")


@EVERY
@pytest.mark.parametrize("kind", FEW)
def test_the_unit_and_the_origin_change_nothing(name: str, kind: str) -> None:
    make = (SCALED | SHIFTED)[kind]
    try:
        found = CALLS[name](make(X), make(Y))
    except Exception as error:
        assert not complaint(error, r"float64|squares|NaN or inf \(inf")
        assert kind not in ("large of float32", "tiny of float32", "1e-40 of longdouble")
        assert kind not in SHIFTED or "beyond" in kind
    else:
        assert_same(found, CALLS[name](X, Y), atol=1e-6)


@EVERY
@pytest.mark.parametrize("kind", VARIES)
def test_data_of_low_variance_give_finite_results_or_are_refused(name: str, kind: str) -> None:
    try:
        found = CALLS[name](*(1.0 * v for v in VARIES[kind]()))
    except Exception as error:
        assert not complaint(error, r"X|background|rows|component")
    else:
        assert all(np.isfinite(each).all() for each in found)
