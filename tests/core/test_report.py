"""Tests of `contrast_report`, whose parts must agree with the functions that compute them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from contrast_core import (
    CPCA,
    PCPCA,
    CPCAStar,
    SparseCPCA,
    bootstrap_stability,
    contrast_report,
    permutation_test,
)
from contrast_core.linalg import principal_angles
from tests.core.samples import quiet

FEW: dict[str, Any] = {"n_permutations": 39, "n_resamples": 20, "random_state": 0}


def two_sets(n: int = 80, n_features: int = 6) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(n, n_features)), rng.normal(size=(n - 10, n_features))
    X[:, 0] *= 4
    Y[:, 1] *= 3
    return X, Y


@quiet
@pytest.mark.parametrize("estimator", [CPCA(2), CPCA(1, alpha=2.0), CPCAStar(2), PCPCA(2)])
def test_the_report_agrees_with_the_functions_that_compute_its_parts(estimator: Any) -> None:
    X, Y = two_sets()
    report = contrast_report(estimator, X, background=Y, **FEW)
    fitted = type(estimator)(**estimator.get_params()).fit(X, background=Y)
    np.testing.assert_allclose(report.estimator.components_, fitted.components_, atol=1e-12)
    np.testing.assert_allclose(report.estimator.strength_, fitted.strength_)
    again = permutation_test(estimator, X, background=Y, n_permutations=39, random_state=0)
    np.testing.assert_array_equal(report.test.p_values, again.p_values)
    table = report.components()
    assert table["component"] == list(range(1, len(fitted.components_) + 1))
    np.testing.assert_array_equal(table["p-value"], again.p_values)
    np.testing.assert_allclose(table["foreground variance"], fitted.foreground_variance_)
    for strength, angle in list(zip(report.strengths, report.angles, strict=True))[::7]:
        other = fitted.at(strength).components_
        np.testing.assert_allclose(angle, principal_angles(other, fitted.components_)[0], atol=1e-6)
    around = report.statements()
    largest = np.degrees(report.stability.angles.max(axis=1))
    half, most = np.quantile(largest, 0.5), np.quantile(largest, 0.95)
    assert f"at most {half:.0f} degrees in half of 20 resamples" in around["subspace"]
    assert f"at most {most:.0f} degrees in 95%" in around["subspace"]
    near = [fitted.strength_]
    for side in (report.strengths < near[0], report.strengths > near[0]):
        order = np.argsort(np.abs(report.strengths[side] - near[0]))
        for strength, angle in zip(
            report.strengths[side][order], report.angles[side][order], strict=True
        ):
            if np.degrees(angle) >= 10:
                break
            near.append(strength)
    ends = f"= {min(near):.3g} to {max(near):.3g}, and by "
    assert ends in around["other strengths"]
    assert f"strengths from {report.strengths[0]:.3g} to " in around["other strengths"]
    text = str(report)
    assert f"{fitted.strength_:.4g}" in text
    assert f"{again.n_significant()} of {len(again.p_values)} significant at 5%" in text
    assert "80 foreground and 70 background rows; 6 features" in text
    assert report.statements()["anything to find"].startswith("yes: ")
    given = not isinstance(estimator.get_params()[fitted._strength], str)
    assert ("given" in report.statements()["contrast"]) == given
    html = report._repr_html_()
    assert re.sub("<[^>]*>", "", html).count("significant at 5%") == 1


def test_the_report_lists_the_features_of_largest_loading_with_intervals() -> None:
    pandas = pytest.importorskip("pandas")
    X, Y = (pandas.DataFrame(rows, columns=list("abcdef")) for rows in two_sets())
    report = contrast_report(CPCA(1), X, background=Y, **FEW)
    table = pandas.DataFrame(report.features(3))
    assert table["feature"][0] == "a"
    assert list(table.columns) == ["component", "feature", "loading", "lower", "upper"]
    assert table["loading"].abs().is_monotonic_decreasing
    assert (table["lower"] <= table["upper"]).all()
    first = table.iloc[0]
    assert 0.9 < first["lower"] <= first["upper"] <= 1
    assert len(report.features(100)["feature"]) == 6
    assert (table["component"] == 1).all()
    with pytest.raises(ValueError, match="n_top=0"):
        report.features(0)


def test_units_are_reported_and_change_the_test() -> None:
    X, Y = two_sets(n=90)
    units, others = np.arange(90) // 10, 100 + np.arange(80) // 10
    report = contrast_report(CPCA(1), X, background=Y, units=units, background_units=others, **FEW)
    assert "in 9 and 8 units" in report.statements()["data"]
    assert "no p-value can be below 0.025" in report.statements()["anything to find"]


def test_sparse_rows_several_backgrounds_and_lists_are_accepted() -> None:
    X, Y = two_sets()
    dense = contrast_report(CPCA(1), X, background=Y, **FEW)
    for x, y in ((sp.csr_array(X), sp.csr_array(Y)), (X.tolist(), Y.tolist())):
        other = contrast_report(CPCA(1), x, background=y, **FEW)
        assert other.n_rows == dense.n_rows == (80, 70)
        np.testing.assert_allclose(other.stability.lower, dense.stability.lower, atol=1e-8)
    several = contrast_report(CPCA(1), X, background=[Y[:30], Y[30:]], **FEW)
    assert several.n_rows == (80, 70)


def test_invalid_reports_are_refused() -> None:
    X, Y = two_sets()
    with pytest.raises(TypeError, match="SparseCPCA"):
        contrast_report(SparseCPCA(1), X, background=Y, **FEW)


# The following test checks the intervals of `bootstrap_stability`.


def test_intervals_are_computed_for_all_features_of_wide_data() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(14, 1700)), rng.normal(size=(12, 1700))
    X[:, 3] *= 60
    found = bootstrap_stability(CPCA(1, alpha=1.0), X, background=Y, n_resamples=9, random_state=0)
    assert found.components.shape == found.lower.shape == found.upper.shape == (1, 1700)
    assert found.lower[0, 3] > 0.5
    assert (found.lower <= found.upper).all()
    middle = (found.lower[0] + found.upper[0]) / 2
    assert np.corrcoef(middle, found.components[0])[0, 1] > 0.9
