"""Tests of `contrast_report` and of `contrast_advice`."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from scipy.stats import t as student
from scipy.stats import ttest_ind, ttest_rel

from contrast_core import CPCA, PCPCA, CPCAStar, SparseCPCA, contrast_report, permutation_test
from contrast_core.linalg import principal_angles
from contrast_core.significance import contrast_advice
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
    strengths, chosen = report.strengths, fitted.strength_
    far = strengths[np.degrees(report.angles) >= 10]
    below, above = far[far < chosen].max(initial=-np.inf), far[far > chosen].min(initial=np.inf)
    near = np.append(strengths[(strengths > below) & (strengths < above)], chosen)
    ends = f" from {near.min():.3g} to {near.max():.3g}, and "
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


def test_the_report_gives_the_numbers_of_units_and_the_smallest_possible_p_value() -> None:
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


def test_a_report_on_sparse_cpca_is_refused() -> None:
    X, Y = two_sets()
    with pytest.raises(TypeError, match="SparseCPCA"):
        contrast_report(SparseCPCA(1), X, background=Y, **FEW)


def shared_sets(signal: float, shared: tuple[float, ...] = (), n: int = 300) -> tuple[Any, Any]:
    """Return a foreground and a background that share directions of large variance.

    `shared` holds the standard deviations along these directions. The standard deviation of the
    first feature is 1 in the background and `signal` in the foreground.
    """
    X, Y = np.random.default_rng(1).normal(size=(2, n, 12))
    X[:, 0] *= signal
    for i, scale in enumerate(shared, start=1):
        X[:, i] *= scale
        Y[:, i] *= scale
    return X, Y


@pytest.mark.parametrize(
    ("signal", "shared", "sentence"),
    [
        (1.0, (), "Nothing to find: "),
        (5.0, (), "No contrast is needed: PCA does as well at every number "),
        (3.0, (9.0,), "A contrast is needed up to 1 component (cPCA*); with more, PCA does as w"),
        (3.0, (9.0, 8.0, 7.0), "A contrast is needed up to 3 components (cPCA*); with more, PCA "),
        (2.5, 11 * (3.0,), "A contrast is needed up to 10 components (cPCA*); larger numbers "),
    ],
)
def test_the_advice_is_true_of_data_with_known_directions(
    signal: float, shared: Any, sentence: str
) -> None:
    X, Y = shared_sets(signal, shared)
    advice = contrast_advice(X, background=Y, random_state=0)
    assert advice.sentence().startswith(sentence)
    assert list(advice.n_components) == [1, 2, 3, 5, 10]
    assert advice.found == (not sentence.startswith("Nothing"))
    assert advice.table()["advised"] == advice.advised


@quiet
def test_the_report_gives_the_advice_and_a_decision_that_agrees_with_it() -> None:
    X, Y = shared_sets(3.0, (9.0,), n=80)
    report = contrast_report(CPCA(1), X, background=Y, **FEW)
    assert report.statements()["advice"] == report.advice.sentence(True)
    assert report.statements()["anything to find"].startswith("yes: ")
    assert "advised" in str(report)
    assert report.advice.advised[0] in report._repr_html_()
    report = contrast_report(CPCA(1), Y[:40], background=Y[40:], **FEW)
    assert report.statements()["advice"].startswith("Nothing to find")
    assert report.statements()["anything to find"].startswith("no: ")


def excess_by_hand(
    X: Any, Y: Any, units: tuple[Any, Any], folds: list[Any], star: bool, paired: bool
) -> tuple[float, float, float]:
    """Return the excess variance, half the width of its interval, and its p-value.

    The excess variance is the foreground variance minus the background variance, divided by the
    background variance plus a ridge. It is measured along one component of cPCA* if `star` is true,
    and otherwise along two components of PCA. Each fold lists the units of X and of Y that are left
    out of the fit and then measured. If `paired` is true, X and Y have the same units.
    """
    k = 1 if star else 2
    values: dict[Any, float] = {}
    ridges = []
    for out in folds:
        x, y = (rows[~np.isin(of, own)] for rows, of, own in zip((X, Y), units, out, strict=True))
        C = np.cov(y.T, bias=True)
        ridge = 0.25 * np.trace(C) / 5
        C += ridge * np.eye(5)
        v = scipy.linalg.eigh(np.cov(x.T, bias=True), C if star else None)[1][:, -k:].T
        inverse = np.linalg.inv(v @ C @ v.T)
        for side, (rows, mean) in enumerate(((X, x.mean(axis=0)), (Y, y.mean(axis=0)))):
            for name in out[side]:
                z = (rows[units[side] == name] - mean) @ v.T
                values[side, name] = np.einsum("ij,jk,ik->i", z, inverse, z).mean()
        ridges.append(ridge * np.trace(v.T @ inverse @ v))
    one, other = ([values[key] for key in sorted(values) if key[0] == side] for side in (0, 1))
    test = ttest_rel(one, other) if paired else ttest_ind(one, other, equal_var=False)
    # The difference of the means, divided by its standard error, is the statistic.
    # Nadeau and Bengio correct the error, because different folds are fitted to overlapping data.
    difference, correction = np.mean(one) - np.mean(other), np.sqrt(1 + 1 / (1 - 1 / len(folds)))
    error = correction * difference / test.statistic
    unit = (np.mean(other) + np.mean(ridges)) / k
    margin = student.ppf(0.975, test.df) * error / unit
    return difference / unit, margin, student.sf(difference / error, test.df)


@pytest.mark.parametrize("paired", [False, True])
def test_excess_and_interval_and_p_value_agree_with_their_definitions(paired: bool) -> None:
    """Compare with the definitions, for every division of the units into folds.

    The folds are random, so the results must agree with exactly one of these divisions.
    """
    rng = np.random.default_rng(2)
    X, Y = rng.normal(size=(90, 5)), rng.normal(size=(60, 5))
    X[:, 1] *= 3
    names = {0, 1, 2}, {0, 1, 2} if paired else {10, 11}
    units = np.arange(90) % 3, np.array(sorted(names[1]))[np.arange(60) % len(names[1])]
    units[0][:7] = 0  # the units have different numbers of rows
    divisions = [[([name], [name]) for name in names[0]]]
    if not paired:
        divisions = [
            [([one], [two]), ([*(names[0] - {one})], [*(names[1] - {two})])]
            for one, two in product(*names)
        ]
    advice = contrast_advice(X, background=Y, units=units[0], background_units=units[1])
    margin, agree = advice.upper - advice.excess, []
    for folds in divisions:
        pca, star = (excess_by_hand(X, Y, units, folds, each, paired) for each in (False, True))
        found = advice.excess[1, 0], margin[1, 0], advice.excess[0, 1], margin[0, 1], advice.p_value
        agree.append(np.allclose(found, [*pca[:2], *star], rtol=1e-6))
    assert sum(agree) == 1
    np.testing.assert_allclose(advice.excess - advice.lower, margin)


def test_the_numbers_of_components_are_limited_by_the_foreground_rows_outside_a_fold() -> None:
    X, Y = shared_sets(5.0)
    assert list(contrast_advice(X[:8], background=Y).n_components) == [1, 2, 3, 5]


def test_rotations_sparse_rows_and_weights_give_the_same_advice() -> None:
    X, Y = shared_sets(2.0, (4.0,), n=60)
    units = {"units": np.arange(60) // 6, "background_units": np.arange(60) // 6}
    advice = contrast_advice(X, background=Y, random_state=0, **units)
    turn = 3 * np.linalg.qr(np.random.default_rng(0).normal(size=(12, 12)))[0]
    turned = contrast_advice(X @ turn + 5, background=Y @ turn, random_state=0, **units)
    np.testing.assert_allclose(turned.excess, advice.excess, rtol=1e-6, atol=1e-8)
    sparse = contrast_advice(sp.csr_array(X), background=sp.csr_array(Y), random_state=0, **units)
    np.testing.assert_allclose(sparse.upper, advice.upper, rtol=1e-6)
    weighted = contrast_advice(
        X, background=Y, random_state=0, **units, sample_weight=1.0 + (np.arange(60) < 9)
    )
    repeated = np.append(np.arange(60), np.arange(9))
    units["units"] = units["units"][repeated]
    twice = contrast_advice(X[repeated], background=Y, random_state=0, **units)
    np.testing.assert_allclose(weighted.excess, twice.excess, rtol=1e-6)
