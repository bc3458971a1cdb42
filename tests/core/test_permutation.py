"""Tests of `permutation_test` by rows: the level and the power of its p-values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.stats import binom

from contrast_core import CPCA, PCPCA, CPCAStar, permutation_test
from contrast_core._validation import FloatArray
from tests.core.samples import (
    assert_level_is_kept,
    error_of_centre,
    geometric_median,
    leading_by_hand,
    quiet,
    rejections,
    rows,
)


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (3.0, 20.0)])
def test_p_values_are_uniform_also_where_means_and_scales_differ(
    scale: float, shift: float
) -> None:
    rng = np.random.default_rng(0)
    p = [
        permutation_test(
            CPCA(1),
            scale * rows(30, rng) + shift,
            background=rows(25, rng),
            n_permutations=59,
            random_state=rng,
        ).p_values[0]
        for _ in range(200)
    ]
    for level in (0.05, 0.2, 0.5):
        assert_level_is_kept(p, level)


@quiet
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["t3", "lognormal"])
def test_rows_of_heavy_tails_keep_the_level(kind: str) -> None:
    """Check rows with random lengths.

    If each dataset were divided by its total variance, the datasets would be distinguishable.
    """
    rng, p = np.random.default_rng(5), []
    for _ in range(150):
        X, Y = rng.normal(size=(2, 30, 20))
        lengths = rng.chisquare(3, (2, 30, 1)) ** -0.5
        if kind == "lognormal":
            lengths = rng.lognormal(size=(2, 30, 1))
        given = {"n_permutations": 39, "random_state": rng}
        test = permutation_test(CPCA(1), X * lengths[0], background=Y * lengths[1], **given)
        p.append(test.p_values[0])
    assert rejections(p, 0.05) <= binom.ppf(0.99, 150, 0.05)


def by_hand(
    X: FloatArray,
    Y: FloatArray,
    labels: list[tuple[NDArray[np.bool_], FloatArray, FloatArray]],
    k: int,
    *,
    alpha: float | None = None,
    beta: float | None = None,
) -> FloatArray:
    """Compute the statistics of k components for each labelling, as the docstring defines them.

    Each labelling comes with normal numbers that determine the shifts of the centres of X and Y.
    """
    X, Y = (part - geometric_median(part) for part in (X, Y))
    start = (np.arange(len(X) + len(Y)) < len(X), np.zeros(len(X)), np.zeros(len(Y)))
    X_full, Y_full, basis, table = X, Y, np.eye(X.shape[1]), []
    for _ in range(k):
        totals, dim = [part.var(axis=0).sum() for part in (X, Y)], X.shape[1]
        scales = [np.sort(np.linalg.norm(part, axis=1))[(len(part) - 1) // 2] for part in (X, Y)]
        found = []
        for is_x, *draws in [start, *labels]:
            shifts = map(error_of_centre, (X_full, Y_full), draws)
            moved = zip((X, Y), shifts, scales, strict=True)
            rows = np.vstack([(part + shift @ basis) / scale for part, shift, scale in moved])
            P, Q = (np.cov(rows[chosen].T, bias=True).reshape(dim, dim) for chosen in (is_x, ~is_x))
            found.append(leading_by_hand(P, Q, totals, alpha, beta))
        table.append([statistic for statistic, _ in found])
        rest = scipy.linalg.null_space(found[0][1][None])
        X, Y, basis = X @ rest, Y @ rest, basis @ rest
    return np.array(table).T


@quiet
@pytest.mark.parametrize(
    ("estimator", "given"),
    [
        (CPCA(3), {}),
        (CPCAStar(3), {}),
        (CPCA(3, alpha=2.0), {"alpha": 2.0}),
        (CPCA(3, alpha=0.0), {"alpha": 0.0}),
        (CPCAStar(3, beta=0.4), {"beta": 0.4}),
        (PCPCA(3, gamma=0.2), {"alpha": 0.2}),
    ],
)
def test_the_statistics_are_those_of_a_few_lines_of_numpy(estimator: Any, given: Any) -> None:
    rng = np.random.default_rng(20)
    X, Y = 2 * rows(12, rng, spike=3.0) + 1.0, rows(9, rng)
    test = permutation_test(estimator, X, background=Y, n_permutations=19, random_state=0)
    again, labels = np.random.default_rng(0), []
    for _ in range(19):
        again.random(0)
        is_x = np.isin(np.arange(21), again.permutation(21)[:12])
        labels.append((is_x, again.normal(size=12), again.normal(size=9)))
    expected = by_hand(X, Y, labels, 3, **given)
    np.testing.assert_allclose(test.statistics, expected[0], rtol=1e-9)
    if given:
        np.testing.assert_array_equal(test.strengths, 3 * list(given.values()))
    # The tolerance is that of BFGS.
    np.testing.assert_allclose(test.null_statistics, expected[1:], rtol=1e-5)
    reached = (expected[1:] >= expected[0] * (1 - 1e-9)).sum(axis=0)
    np.testing.assert_array_equal(test.p_values, np.maximum.accumulate((1 + reached) / 20))


@quiet
def test_each_component_has_its_own_contrast_and_uncorrelated_scores() -> None:
    rng = np.random.default_rng(21)
    X, Y = rows(80, rng, spike=6.0), rows(70, rng)
    X[:, 5] *= 4.0
    test = permutation_test(CPCA(3), X, background=Y, n_permutations=19, random_state=0)
    first = CPCA(1).fit(X, background=Y)
    assert test.strengths[0] == pytest.approx(first.alpha_)
    assert test.statistics[0] == pytest.approx(
        first.alpha_ * Y.var(axis=0).sum() / X.var(axis=0).sum()
    )
    np.testing.assert_allclose(test.components[0], first.components_[0], atol=1e-7)
    np.testing.assert_allclose(np.linalg.norm(test.components, axis=1), 1.0)
    scores = np.corrcoef(test.components @ X.T)
    np.testing.assert_allclose(scores, np.eye(3), atol=1e-9)
    assert test.strengths[0] > 2 * test.strengths[1] > 2 * test.strengths[2]
    star = permutation_test(CPCAStar(3), X, background=Y, n_permutations=19, random_state=0)
    np.testing.assert_allclose(star.null_statistics, test.null_statistics)
    np.testing.assert_allclose(star.components, test.components)
    assert star.strengths[0] == pytest.approx(CPCAStar(1).fit(X, background=Y).beta_)


def planted(rng: np.random.Generator, *variances: float, shared: float = 1.0) -> Any:
    """Return 50 + 50 rows of 10 features; some features vary more in the foreground."""
    sd = np.array([np.sqrt(shared), *[1.0] * 9])
    strong = np.concatenate([sd[:3], np.sqrt(variances), sd[3 + len(variances) :]])
    return rng.normal(size=(50, 10)) * strong, rng.normal(size=(50, 10)) * sd


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variances", "shared", "alpha"),
    [((), 50.0, "auto"), ((44.0,), 1.0, "auto"), ((400.0,), 50.0, "auto"), ((44.0, 9.0), 1.0, 2.0)],
)
@quiet
def test_only_planted_components_are_found(
    variances: tuple[float, ...], shared: float, alpha: Any
) -> None:
    rng = np.random.default_rng(23)
    n_real, n_sets, p_values = len(variances), 50, []
    for _ in range(n_sets):
        X, Y = planted(rng, *variances, shared=shared)
        test = permutation_test(
            CPCA(n_real + 1, alpha=alpha), X, background=Y, n_permutations=39, random_state=rng
        )
        p_values.append(test.p_values)
    found = (np.array(p_values) <= 0.05).sum(axis=0)
    assert (found[:n_real] >= 0.9 * n_sets).all()
    assert found[n_real] <= binom.ppf(0.999, n_sets, 0.05)


def test_a_second_component_after_a_dominant_first_is_found() -> None:
    rng = np.random.default_rng(24)
    X, Y = planted(rng, 44.0, 9.0)
    test = permutation_test(CPCA(3), X, background=Y, n_permutations=99, random_state=0)
    assert test.n_significant(0.01) == 2
    assert abs(test.components[1, 4]) > 0.8
    assert test.strengths[0] > 3 * test.strengths[1]


SQUARE = np.array([[3.0, 1.0], [3.0, -1.0], [-3.0, 1.0], [-3.0, -1.0]])
FLAT = np.random.default_rng(25).normal(size=(20, 6)) * [1, 1, 0, 0, 0, 0] + 3.0
WIDE = np.random.default_rng(27).normal(size=(6, 20))
UNTESTABLE: list[tuple[Any, Any, Any, dict[str, Any], str]] = [
    (CPCA(3), FLAT, FLAT[:, ::-1], {}, "component 3 .* X does not vary in what the 2 before it le"),
    (
        CPCA(2, alpha=0.0),
        SQUARE,
        SQUARE * [1.0, 0.0],
        {},
        "component 2 .*: background does not vary in what the 1",
    ),
    (CPCA(3), WIDE[:3], WIDE[2:], {}, "component 3 cannot be tested: X does not vary"),
    (CPCA(7), FLAT, FLAT, {}, "n_components=7 is out of range"),
    (CPCA(alpha="denoise"), WIDE, WIDE, {}, "alpha='denoise' is chosen for two components tog"),
    (CPCA(1, alpha=np.inf), WIDE, SQUARE @ WIDE[:2], {}, "alpha=inf cannot be tested"),
    (CPCA(1), WIDE[:2], WIDE[4:], {}, r"6 ways to say which rows .* At least 20 are needed"),
    (
        CPCA(1),
        WIDE,
        WIDE[:5],
        {"units": [0, 0, 1, 1, 2, 2], "background_units": [0, 0, 1, 1, 1]},
        "1 units occur in X alone",
    ),
    (
        CPCA(1),
        WIDE[:5],
        WIDE,
        {"units": [0, 0, 1, 1, 1], "background_units": [0, 0, 1, 1, 2, 2]},
        "1 units occur in background alone",
    ),
]


@pytest.mark.filterwarnings("ignore:every row of background")
@pytest.mark.parametrize(("estimator", "X", "Y", "units", "message"), UNTESTABLE)
def test_invalid_tests_are_refused(
    estimator: Any, X: Any, Y: Any, units: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        permutation_test(estimator, X, background=Y, **units)


def test_constant_features_change_nothing() -> None:
    rng = np.random.default_rng(26)
    X, Y = rows(30, rng, spike=2.0), rows(25, rng)
    given = {"n_permutations": 29, "random_state": 0}
    plain = permutation_test(CPCA(2), X, background=Y, **given)
    padded = [np.hstack([part, np.full((len(part), 90), 5.0)]) for part in (X, Y)]
    same = permutation_test(CPCA(2), padded[0], background=padded[1], **given)
    np.testing.assert_allclose(same.null_statistics, plain.null_statistics, rtol=1e-9)
    np.testing.assert_allclose(same.components[:, :6], plain.components, atol=1e-9)


@quiet
def test_pcpca_is_tested_as_cpca_at_its_contrast() -> None:
    rng = np.random.default_rng(7)
    X, Y = rows(40, rng, spike=3.0), rows(30, rng)
    given = {"background": Y, "n_permutations": 39, "random_state": 0}
    gamma = PCPCA(2).fit(X, background=Y).gamma_
    ours = permutation_test(PCPCA(2), X, **given)
    theirs = permutation_test(CPCA(2, alpha=gamma), X, **given)
    np.testing.assert_allclose(ours.null_statistics, theirs.null_statistics)
    np.testing.assert_allclose(ours.p_values, theirs.p_values)


@quiet
def test_sparse_is_dense_and_seeds_repeat() -> None:
    rng = np.random.default_rng(8)
    X, Y = rows(30, rng, spike=2.0), rows(25, rng)
    X[np.abs(X) < 0.2] = 0.0
    given = {"n_permutations": 29, "random_state": 0}
    plain = permutation_test(CPCA(2), X, background=Y, **given)
    sparse = permutation_test(CPCA(2), sp.csr_array(X), background=sp.csr_array(Y), **given)
    np.testing.assert_allclose(sparse.null_statistics, plain.null_statistics, rtol=1e-9)
    other = permutation_test(CPCA(2), X, background=Y, n_permutations=29, random_state=1)
    assert not np.allclose(other.null_statistics, plain.null_statistics)
