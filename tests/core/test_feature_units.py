"""Tests of the warning about features in different units, which dominate the covariances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contrast_core import CLVM, CPCA, PCPCA, ContrastWarning, CPCAStar, SparseCPCA
from contrast_core.datasets import (
    digits_on_photos,
    load_mouse_protein,
    make_four_groups,
    make_motion_sensors,
    make_sparse_groups,
    make_toy,
)


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


@pytest.mark.parametrize(
    "data",
    [
        load_mouse_protein,
        make_four_groups,
        make_motion_sensors,
        make_sparse_groups,
        make_toy,
        lambda: digits_on_photos(200),
    ],
)
def test_bundled_data_cause_no_warning(data: Any) -> None:
    found = data()
    CPCA(1, alpha=1.0).fit(found.foreground, background=found.background)
