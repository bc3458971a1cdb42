"""Tests of `condition_test`: its statistics, the rows that it keeps, and errors."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
import scipy.linalg

from contrast_core import CPCA, PCPCA, ContrastWarning, CPCAStar, condition_test, permutation_test
from contrast_core.significance._condition import _balanced
from contrast_core.significance._units import two_samples
from tests.core.samples import leading_by_hand, quiet

D = 6


def donors(
    n: int,
    m: int,
    rng: np.random.Generator,
    *,
    cells: tuple[int, int] = (12, 12),
    sd: float = 1.0,
    shift: float = 0.0,
    paired: bool = False,
    size: int = D,
) -> dict[str, Any]:
    """Return cells of n treated and m control donors.

    If `paired`, both sets have the same donors. `cells` holds the number of cells of each treated
    donor and of each control donor. `sd` is the standard deviation of the donors' means, and
    `shift` is added to feature 0 of all treated donors.
    """
    means = sd * rng.normal(size=(2, max(n, m), size))
    if paired:
        means[1] = means[0]
    means[0, :, 0] += shift
    X, Y = (
        np.vstack([mean + rng.normal(size=(each, size)) for mean in means[side, :count]])
        for side, (count, each) in enumerate(zip((n, m), cells, strict=True))
    )
    units, others = np.repeat(np.arange(n), cells[0]), np.repeat(np.arange(m), cells[1])
    others += 0 if paired else 100
    return {"X": X, "background": Y, "units": units, "background_units": others}


def by_hand(parts: Any, labels: Any, k: int, *, pooled: bool = True, **strength: float) -> Any:
    """Compute the statistics of k components for each labelling, at a given alpha or beta.

    `parts` holds the rows of each donor in each dataset, and a labelling is True for the parts that
    count as treated. The first labelling must be the original one. The foreground consists of the
    treated parts or, if `pooled`, of all parts.
    """
    table = []
    for _ in range(k):
        found: list[tuple[float, Any]] = []
        totals: tuple[float, float] | None = None
        for treated in labels:
            front = [p for p, t in zip(parts, treated, strict=True) if pooled or t]
            back = [p for p, t in zip(parts, treated, strict=True) if not t]
            P, Q = (with_equal_weights(some) for some in (front, back))
            totals = totals or (np.trace(P), np.trace(Q))
            found.append(leading_by_hand(P, Q, totals, **strength))
        table.append([statistic for statistic, _ in found])
        rest = scipy.linalg.null_space(found[0][1][None])
        parts = [part @ rest for part in parts]
    return np.array(table).T


def with_equal_weights(parts: list[Any]) -> Any:
    """Return the covariance of all rows, with the same total weight for each part."""
    weights = np.concatenate([np.full(len(part), 1 / len(part) / len(parts)) for part in parts])
    return np.cov(np.vstack(parts).T, aweights=weights, bias=True)


def kept_parts(data: dict[str, Any]) -> list[Any]:
    """Return, for each donor in each dataset, the rows that a test with seed 0 keeps."""
    samples = two_samples(*data.values(), fewest=1)
    sides = _balanced(samples, np.random.default_rng(0))[:2]
    return [side.rows[side.codes == i] for side in sides for i in range(side.n_units)]


@quiet
@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize(
    ("estimator", "given"),
    [
        (CPCA(2), {}),
        (CPCA(2, alpha=1.5), {"alpha": 1.5}),
        (CPCAStar(2, beta=0.4), {"beta": 0.4}),
        (PCPCA(2, gamma=0.2), {"alpha": 0.2}),
    ],
)
def test_the_statistics_agree_with_plain_numpy(estimator: Any, given: Any, pooled: bool) -> None:
    data = donors(3, 4, np.random.default_rng(0), shift=3.0, cells=(15, 12))
    labels = [np.isin(np.arange(7), chosen) for chosen in combinations(range(7), 3)]
    expected = by_hand(kept_parts(data), labels, 2, pooled=pooled, **given)
    test = condition_test(estimator, **data, include_background=pooled, random_state=0)
    assert test.exact
    assert (test.n_units, test.n_background_units, test.n_distinct) == (3, 4, 35)
    np.testing.assert_allclose(test.null_statistics, expected, rtol=1e-9)
    np.testing.assert_allclose(test.statistics, expected[0], rtol=1e-9)
    p = (expected >= expected[0] - 1e-9 * np.abs(expected[0])).mean(axis=0)
    np.testing.assert_allclose(test.p_values, np.maximum.accumulate(p))


@pytest.mark.parametrize(("a", "s"), [(3, 2), (0, 5)])
def test_shared_donors_swap_their_parts_and_others_swap_among_themselves(a: int, s: int) -> None:
    """Use `a` donors in the foreground only, `a` in the background only, and `s` in both."""
    rng = np.random.default_rng(2)
    data = donors(s, s, rng, cells=(15, 12), paired=True, shift=1.0)
    if a:
        alone = donors(a, a, rng, cells=(9, 12))
        data = {
            name: np.concatenate([alone[name], data[name] + (50 if "units" in name else 0)])
            for name in data
        }
    test = condition_test(CPCA(1), **data, random_state=0)
    # The parts are sorted: donors in the foreground only, the treated and then the control parts of
    # shared donors, and donors in the background only. Both parts of a shared donor are shifted by
    # the same vector. Afterwards, the average of the two parts' means equals the average of the
    # other donors' means, or 0 if there are no other donors.
    parts = kept_parts(data)
    rest = [part.mean(axis=0) for part in parts[:a] + parts[a + 2 * s :]]
    for i in range(a, a + s):
        middle = (parts[i].mean(axis=0) + parts[i + s].mean(axis=0)) / 2
        common = np.mean(rest, axis=0) if a else 0.0
        parts[i], parts[i + s] = (parts[j] - middle + common for j in (i, i + s))
    labels = [
        np.concatenate([np.isin(range(a), some), ~swap, swap, np.isin(range(a, 2 * a), some)])
        for swap in np.array(list(product([False, True], repeat=s)))
        for some in combinations(range(2 * a), a)
    ]
    assert test.n_distinct == len(labels)
    np.testing.assert_allclose(test.null_statistics, by_hand(parts, labels, 1), rtol=1e-9)


def test_donors_in_one_dataset_are_thinned_to_the_smaller_of_two_medians() -> None:
    rng = np.random.default_rng(0)
    units, others = np.repeat(np.arange(4), [60, 50, 40, 20]), np.repeat(np.arange(3, 6), 30)
    X, Y = rng.normal(size=(len(units), 3)), rng.normal(size=(len(others), 3))
    thinned = _balanced(two_samples(X, Y, units, others, fewest=1), rng)
    # Donors 0 to 2 are only in the foreground, and donors 4 and 5 only in the background. Their
    # median numbers of rows are 50 and 30. Donor 3 is in both datasets, with 20 and 30 rows, and
    # keeps 20 rows in each.
    np.testing.assert_array_equal(thinned.foreground.sizes, [30, 30, 30, 20])
    np.testing.assert_array_equal(thinned.background.sizes, [20, 30, 30])
    # Here the background has no donors of its own, so donors 0 to 2 keep all their rows.
    thinned = _balanced(two_samples(X, Y[:30], units, others[:30], fewest=1), rng)
    np.testing.assert_array_equal(thinned.foreground.sizes, [60, 50, 40, 20])
    np.testing.assert_array_equal(thinned.background.sizes, [20])


RNG = np.random.default_rng(5)
FEW = donors(3, 4, RNG)
FLAT = FEW | {name: FEW[name] * [2, 1, 0, 0, 0, 0] for name in ("X", "background")}
PAIRED, UNEVEN = (donors(n, m, RNG, paired=True) for n, m in ((4, 4), (5, 6)))
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (CPCA(1), donors(1, 8, RNG), r"only 9 ways .* no p-value can be below 0\.11"),
    (CPCA(1), PAIRED, r"only 16 ways .* below 0\.062\..* 5 units that occur"),
    (CPCA(1), UNEVEN, "1 units occur in background alone"),
    (CPCA(1, alpha=np.inf), FEW, "alpha=inf keeps only directions"),
    (CPCA(7), FEW, "n_components=7 is out of range"),
    (CPCA(3), FLAT, "component 3 cannot be tested: X does not vary after"),
]


@quiet
@pytest.mark.parametrize(("estimator", "data", "message"), REFUSED)
def test_invalid_tests_of_donors_are_refused(estimator: Any, data: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        condition_test(estimator, **data)


def test_one_donor_against_nineteen_donors_is_enough_for_a_test() -> None:
    assert condition_test(CPCA(1), **donors(1, 19, RNG)).smallest_p_value == 1 / 20


@pytest.mark.slow
@pytest.mark.parametrize(("alpha", "given"), [("auto", {}), (1.5, {"alpha": 1.5})])
def test_the_statistics_of_many_features_agree_with_plain_numpy(alpha: Any, given: Any) -> None:
    """Use so many features that an iteration solves the contrast at a given alpha."""
    rng = np.random.default_rng(8)
    data = donors(3, 3, rng, cells=(150, 150), sd=0.3, size=710)
    for name in ("X", "background"):
        data[name] = data[name] * np.linspace(3, 0.2, 710) + 40.0
    data["X"][:, 5] += 4.0
    labels = [np.isin(np.arange(6), chosen) for chosen in combinations(range(6), 3)]
    # In the eighth labelling, the first two eigenvalues are close, which is hard for an
    # iteration.
    expected = by_hand(kept_parts(data), labels[:8], 2, **given)
    test = condition_test(CPCA(2, alpha=alpha), **data)
    np.testing.assert_allclose(test.null_statistics[:8], expected, rtol=1e-11)


def test_without_units_each_row_counts_as_a_donor() -> None:
    rng = np.random.default_rng(12)
    X, Y = rng.normal(size=(80, D)), rng.normal(size=(70, D))
    X[:, 0] += 3.0
    given: dict[str, Any] = {"background": Y, "n_permutations": 29, "random_state": 0}
    test = condition_test(CPCA(1), X, **given)
    units: Any = {"units": np.arange(80), "background_units": np.arange(80, 150)}
    grouped = condition_test(CPCA(1), X, **units, **given)
    np.testing.assert_allclose(test.null_statistics, grouped.null_statistics, rtol=1e-9)
    assert test.p_values[0] == 1 / 30
    assert (test.n_units, grouped.n_units) == (None, 80)


def test_a_background_that_is_also_in_the_foreground_causes_a_warning() -> None:
    rng = np.random.default_rng(13)
    X, Y = rng.normal(size=(20, D)), rng.normal(size=(15, D))
    with pytest.warns(ContrastWarning, match="every row of background is a row of X too"):
        permutation_test(CPCA(1), np.vstack([X, Y]), background=Y, n_permutations=19)
    permutation_test(CPCA(1), np.vstack([X, Y[:14]]), background=Y, n_permutations=19)
    # Few different rows of counts are possible here. Equal rows are therefore likely, and do not
    # show that the background was added to the foreground.
    counts = rng.poisson(1.0, size=(60, 2))
    permutation_test(CPCA(1), counts, background=counts[:40], n_permutations=19)
