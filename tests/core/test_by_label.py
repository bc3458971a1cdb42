"""Tests of `ContrastByLabel`, which takes one matrix and defines the background by labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from contrast_core import CPCA, ContrastByLabel
from tests.core.test_contract import planted


def stacked() -> tuple[Any, Any]:
    X, Y = planted(60, 40)
    order = np.random.default_rng(0).permutation(100)
    return np.vstack([X, Y])[order], np.r_[np.ones(60, int), np.zeros(40, int)][order]


@pytest.mark.parametrize("form", [np.asarray, pd.DataFrame, sp.csc_array, sp.dok_array])
def test_the_fit_equals_a_fit_to_separate_foreground_and_background(form: Any) -> None:
    rows, y = stacked()
    direct = CPCA(alpha=2.0).fit(rows[y == 1], background=rows[y == 0])
    ours = ContrastByLabel(CPCA(alpha=2.0)).fit(form(rows), y)
    np.testing.assert_allclose(ours.estimator_.components_, direct.components_, atol=1e-12)
    np.testing.assert_allclose(ours.transform(form(rows)), direct.transform(rows), atol=1e-9)
    assert ours.n_features_in_ == 12
    assert list(ours.get_feature_names_out()) == ["cpca0", "cpca1"]
    again = ours.inverse_transform(ours.transform(rows))
    np.testing.assert_allclose(again, direct.denoise(rows), atol=1e-9)


def test_the_estimator_works_in_a_pipeline_with_cross_validation() -> None:
    rows, y = stacked()
    model = make_pipeline(ContrastByLabel(CPCA(2, alpha=1.0)), LogisticRegression())
    assert np.isfinite(cross_val_score(model, rows, y, cv=4)).all()
    search = GridSearchCV(model, {"contrastbylabel__estimator__alpha": [0.5, 2.0]}, cv=3)
    search.fit(rows, y)
    assert set(search.best_params_) == {"contrastbylabel__estimator__alpha"}


def test_labels_without_foreground_or_background_are_refused() -> None:
    rows, y = stacked()
    with pytest.raises(ValueError, match=r"no row has the background label 7; the labels are 0, 1"):
        ContrastByLabel(CPCA(), background=7).fit(rows, y)
    with pytest.raises(ValueError, match="every row has the background label 0"):
        ContrastByLabel(CPCA()).fit(rows, np.zeros(100))
    with pytest.raises(ValueError, match="a label for each row"):
        ContrastByLabel(CPCA()).fit(rows, None)
