"""Tests that a warning points at the line of the caller, however deep in the code it arises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from contrast_core import (
    CLVM,
    CPCA,
    PCPCA,
    ContrastWarning,
    CPCAStar,
    KernelCPCA,
    PCAPlusPlus,
    SparseCPCA,
    contrast_path,
    contrast_report,
    permutation_test,
)

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 6)), RNG.normal(size=(40, 6))
FITTED = CPCA(alpha=0.0).fit(X, background=Y)
SCALED = "both were scaled alike"
UNITS = np.array([1.0, 15.0, 1.0, 1.0, 1.0, 1.0])  # the second feature is an age in years
FEW: Any = {"n_permutations": 19, "n_resamples": 2, "random_state": 0}
NEGATIVE = "negative contrast"

CALLS: dict[str, tuple[str, Callable[[], Any]]] = {
    "fit": (NEGATIVE, lambda: CPCA(alpha=50.0).fit(X, background=Y)),
    "at": (NEGATIVE, lambda: FITTED.at(50.0)),
    "kernel": (NEGATIVE, lambda: KernelCPCA(60, alpha=50.0).fit(X, background=Y)),
    "scales": (SCALED, lambda: CPCA(alpha=0.0).fit(X, background=1e-3 * Y)),
    "path": (SCALED, lambda: contrast_path(X, background=1e-3 * Y, alphas=[0.0, 1.0, 2.0])),
    "pairs": ("good pairs give", lambda: PCAPlusPlus(1).fit(X, positive=Y)),
    "weak": ("too weak", lambda: PCAPlusPlus(5, truncation=None).fit(X, positive=X + Y)),
    "units": (
        "different units",
        lambda: contrast_report(CPCA(1), X * UNITS, background=Y * UNITS, **FEW),
    ),
    "permutation": (
        "no p-value",
        lambda: permutation_test(CPCA(1), X, background=Y, n_permutations=9),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_warning_points_at_the_callers_line(name: str) -> None:
    message, call = CALLS[name]
    with pytest.warns(ContrastWarning) as caught:
        call()
    [warning] = [one for one in caught if message in str(one.message)]
    assert warning.filename == __file__
    assert warning.lineno in [line for *_, line in call.__code__.co_lines()]


# Warnings if a few features, measured in other units, dominate the covariances


def planted() -> tuple[Any, Any]:
    X, Y = np.random.default_rng(0).normal(size=(2, 60, 8))
    X[:, 2] *= 3
    return X, Y


@pytest.mark.parametrize(
    "method",
    [CPCA(1), CPCAStar(1), PCPCA(1), SparseCPCA(1, alpha=0.5), CLVM(n_shared=1, n_salient=1)],
    ids=repr,
)
def test_a_column_in_other_units_is_named_by_fit(method: Any) -> None:
    X, Y = planted()
    for rows in (X, Y):
        rows[:, 5] *= 50
    with pytest.warns(ContrastWarning, match=r"1 of 8 features \(column 5\) hold 99%"):
        method.fit(X, background=Y)


def test_a_feature_that_is_large_in_one_dataset_only_causes_no_warning() -> None:
    X, Y = planted()
    X[:, 5] *= 15
    CPCA(1).fit(X, background=Y)
    CPCA(1).fit(X)  # without a background CPCA is PCA, which shows large variances
