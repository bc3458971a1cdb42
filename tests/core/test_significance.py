"""Tests of `bootstrap_stability` and `cross_fitted_ratio`.

Some tests apply to `permutation_test` too.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from contrast_core import (
    CPCA,
    CPCAStar,
    SecondMoments,
    bootstrap_stability,
    cross_fitted_ratio,
    permutation_test,
)
from tests.core.samples import SD, held_out_ratio, quiet, recording, rows, units_of
from tests.core.test_contract import planted

CALLS = {
    "permutation": lambda X, background, **more: permutation_test(
        CPCA(2), X, background=background, n_permutations=19, random_state=0, **more
    ),
    "bootstrap": lambda X, background, **more: bootstrap_stability(
        CPCA(2), X, background=background, n_resamples=5, random_state=0, **more
    ),
    "cross fit": lambda X, background, **more: cross_fitted_ratio(
        X, background=background, random_state=0, **more
    ),
}
EACH = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@quiet
@pytest.mark.parametrize("function", [permutation_test, bootstrap_stability])
def test_embedding_the_rows_among_more_features_does_not_change_the_result(function: Any) -> None:
    rng = np.random.default_rng(9)
    X, Y = rows(30, rng, spike=2.0), rows(25, rng)
    wide = np.linalg.qr(rng.normal(size=(200, len(SD))))[0].T
    number = {"n_permutations" if function is permutation_test else "n_resamples": 19}
    low, high = (
        function(CPCA(2, alpha=1.0), a, background=b, random_state=0, **number)
        for a, b in ((X, Y), (X @ wide, Y @ wide))
    )
    name = "null_statistics" if function is permutation_test else "retained"
    np.testing.assert_allclose(getattr(high, name), getattr(low, name), atol=1e-9)


X, Y = np.random.default_rng(15).normal(size=(2, 20, 6))
UNITS, OTHERS = np.arange(20) % 4, np.arange(20) % 4 + 4
WITH_NAN = np.where(np.arange(20)[:, None] == 3, np.nan, X)
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"units": UNITS}, ValueError, "units was given without background_units"),
    ({"background_units": OTHERS}, ValueError, "background_units was given without units"),
    (units_of(["a"] * 20, OTHERS.astype(str)), ValueError, "units names a single unit .'a'."),
    (units_of(UNITS[:5], OTHERS), ValueError, r"units has shape \(5,\)"),
    (units_of(UNITS, [*OTHERS[:-1] / 1, np.nan]), ValueError, "background_units has 1 missing lab"),
    (units_of(UNITS, OTHERS.astype(str)), TypeError, "units with background_units mixes labels"),
    ({"X": np.ones_like(X)}, ValueError, "X is constant"),
    ({"background": np.ones_like(Y)}, ValueError, "background is constant"),
    ({"X": WITH_NAN}, ValueError, "X contains NaN .* Resampling needs complete rows"),
    ({"X": SecondMoments.from_data(X)}, TypeError, "X is SecondMoments, but rows are needed"),
    ({"background": [Y, Y]} | units_of(UNITS, [OTHERS] * 2), ValueError, "only one background is"),
    ({"sample_weight": np.ones(19)}, ValueError, "weights of X have shape"),
    ({"background_weight": -np.ones(20)}, ValueError, "weights of background go from -1"),
    ({"background": [Y, Y], "background_mix": [1, 2, 3]}, ValueError, "background_mix"),
    ({"background_mix": [1, 2]}, ValueError, "background_mix"),
    ({"sample_weight": np.arange(20) == 4}, ValueError, r"at least 2 rows|n_samples=1"),
]


@EACH
@pytest.mark.parametrize(("given", "error", "message"), REFUSED)
def test_data_and_units_that_cannot_be_resampled_are_refused(
    call: Any, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(**({"X": X, "background": Y} | given))


def test_fewer_than_four_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="each dataset needs at least 4 rows"):
        cross_fitted_ratio(X[:3], background=Y)


@quiet
def test_small_problems_are_solved_on_one_blas_thread() -> None:
    X, Y = np.random.default_rng(21).normal(size=(2, 160, 305))
    controller, seen = ThreadpoolController(), set()

    def bar(items: Any, **_: Any) -> Any:
        for item in items:
            seen.update(library["num_threads"] for library in blas())
            yield item

    def blas() -> list[Any]:
        return [library for library in controller.info() if library["user_api"] == "blas"]

    with controller.limit(limits=2, user_api="blas"):
        permutation_test(CPCA(1, alpha=1.0), X, background=Y, n_permutations=2, progress=bar)
        assert {library["num_threads"] for library in blas()} == {2}
    assert seen == {1}


@quiet
def test_progress_goes_to_a_given_function(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(16)
    X, Y = rows(20, rng), rows(16, rng)
    seen: list[Any] = []
    permutation_test(CPCA(), X, background=Y, n_permutations=3, progress=recording(seen))
    bootstrap_stability(CPCA(), X, background=Y, n_resamples=2, progress=recording(seen))
    assert seen == 3 * [("permute", 3)] + 2 * [("bootstrap", 2)]
    assert capsys.readouterr().err == ""


def assert_same(first: Any, second: Any) -> None:
    for name, value in vars(first).items():
        other = getattr(second, name)
        if value is None or isinstance(value, int):  # the integer may have thousands of digits
            assert value == other, name
        else:
            np.testing.assert_allclose(value, other, rtol=1e-9, atol=1e-12, err_msg=name)


@EACH
@pytest.mark.parametrize("d", [8, 150])
def test_equal_weights_and_rows_with_weight_zero_do_not_change_the_result(
    call: Any, d: int
) -> None:
    X, Y = planted(60, 50, d)
    weights = {"sample_weight": np.full(60, 7.0), "background_weight": np.full(50, 1e-3)}
    assert_same(call(X, Y), call(X, Y, **weights))
    weights_x, weights_y = np.ones(60), np.ones(50)
    weights_x[::7], weights_y[3] = 0, 0
    found = call(X, Y, sample_weight=weights_x, background_weight=weights_y)
    assert_same(found, call(X[weights_x > 0], Y[weights_y > 0]))


def test_the_original_data_are_fitted_with_weights_and_background_mix() -> None:
    X, Y = planted(60, 50, 8)
    rng = np.random.default_rng(3)
    design: dict[str, Any] = {
        "sample_weight": rng.uniform(0.2, 3, 60),
        "background_weight": [None, rng.uniform(0.2, 3, 30)],
        "background_mix": [2, 1],
    }
    backgrounds = [Y[:20], Y[20:] + 50]
    star = CPCAStar(3, beta=0.7).fit(X, background=backgrounds, **design)
    found = permutation_test(
        star, X, background=backgrounds, n_permutations=19, random_state=0, **design
    )
    np.testing.assert_allclose(found.statistics, star.generalized_eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(
        np.abs((found.components[:1] * star.components_[:1]).sum()), 1, atol=1e-9
    )


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.5, 1.0])
def test_uneven_weights_keep_the_rate_of_false_positives(sigma: float) -> None:
    rng, p = np.random.default_rng(11), []
    for _ in range(150):
        X, Y = rng.normal(size=(40, 6)), rng.normal(size=(30, 6))
        weights = {
            "sample_weight": rng.lognormal(sigma=sigma, size=40),
            "background_weight": rng.lognormal(sigma=sigma, size=30),
        }
        test = permutation_test(
            CPCA(1), X, background=Y, n_permutations=39, random_state=rng, **weights
        )
        p.append(test.p_values[0])
    # 7.5 rejections are expected (5% of 150); the chance of more than 15 is below 1%.
    assert (np.array(p) <= 0.05).sum() <= 15
    assert 0.35 < np.mean(p) < 0.68


@EACH
def test_units_with_weight_zero_do_not_change_the_result(call: Any) -> None:
    X, Y = planted(60, 50, 8)
    units, others = np.arange(60) // 6, 100 + np.arange(50) // 5
    weights = (units != 3).astype(float)
    found = call(X, Y, units=units, background_units=others, sample_weight=weights)
    kept = weights > 0
    assert_same(found, call(X[kept], Y, units=units[kept], background_units=others))


@quiet
@pytest.mark.parametrize("kind", ["rows", "donors", "backgrounds"])
def test_resamples_agree_with_plain_numpy(kind: str) -> None:
    """Compare the resamples with plain NumPy, for rows, donors and several backgrounds.

    A donor with rows in both datasets is drawn equally often in both datasets. If there are several
    backgrounds, each of them is resampled separately.
    """
    rng = np.random.default_rng(13)
    X, Y = rng.normal(size=(60, 5)) * [3, 2, 1, 1, 1], rng.normal(size=(50, 5)) * [1, 1, 2, 1, 1]
    weights, background, given = (np.ones(60), np.ones(50)), Y, {}
    if kind == "donors":
        X, Y = X + rng.normal(size=(6, 5))[np.arange(60) // 10], Y + 1.0
        given = {"units": np.arange(60) // 10, "background_units": np.arange(50) // 10 + 3}
        background = Y
    if kind == "backgrounds":
        background, given = [Y[:20] + 9, Y[20:]], {"background_mix": [3, 1]}
        Y = np.vstack([part - part.mean(axis=0) for part in background])
        weights = np.ones(60), np.repeat([0.75 / 20, 0.25 / 30], [20, 30])
    found = bootstrap_stability(
        CPCA(2), X, background=background, n_resamples=9, level=0.5, random_state=0, **given
    )
    again, times = np.random.default_rng(0), []

    def drawn(n: int) -> Any:
        return np.bincount(again.integers(n, size=n), minlength=n)

    for _ in range(9):
        # Donors 0 to 2 are in X only, 3 to 5 in both datasets, and 6 and 7 in the background only.
        if kind == "donors":
            both, first, second = drawn(3), drawn(3), drawn(2)
            times.append([np.repeat(np.append(*t), 10) for t in ((first, both), (both, second))])
        else:
            sizes = [20, 30] if kind == "backgrounds" else [50]
            times.append([drawn(60), np.concatenate([drawn(size) for size in sizes])])
    alpha = CPCA(2).fit(X, background=background, **({} if kind == "donors" else given)).alpha_

    def components(times_x: Any, times_y: Any) -> Any:
        x, y = (
            np.cov(rows.T, bias=True, aweights=weight * each)
            for rows, weight, each in zip((X, Y), weights, (times_x, times_y), strict=True)
        )
        return np.linalg.eigh(x - alpha * y)[1][:, :-3:-1].T

    ours, theirs = components(1, 1), [components(*each) for each in times]
    squared = np.array([(ours @ each.T) ** 2 for each in theirs])
    np.testing.assert_allclose(found.retained, squared.sum(axis=2), rtol=1e-7)
    straight = squared[:, [0, 1], [0, 1]]
    crossed = squared[:, [0, 1], [1, 0]]
    best = np.where((straight.sum(axis=1) > crossed.sum(axis=1))[:, None], straight, crossed)
    np.testing.assert_allclose(found.matched, best, rtol=1e-7)
    # The retained shares add up to the sum of the squared cosines of the principal angles.
    cosines = np.cos(found.angles) ** 2
    np.testing.assert_allclose(cosines.sum(axis=1), found.retained.sum(axis=1))
    turned = []
    # Each resampled basis is rotated within its subspace, as close as possible to the fitted
    # components.
    for each in theirs:
        left, _, right = np.linalg.svd(ours @ each.T)
        turned.append(left @ right @ each)
    signs = np.sign((ours * found.components).sum(axis=1))[:, None]
    lower, upper = np.sort(signs * np.quantile(turned, [0.25, 0.75], axis=0), axis=0)
    np.testing.assert_allclose(found.lower, lower, atol=1e-7)
    np.testing.assert_allclose(found.upper, upper, atol=1e-7)


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


@pytest.mark.parametrize("seed", range(3))
def test_two_samples_of_one_distribution_have_a_ratio_near_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(2, 400, 30))
    result = cross_fitted_ratio(X, background=Y, random_state=0)
    # The ridge is a quarter of the variance, so the relative ratio is 1 / (1 + 1/4).
    assert result.relative == pytest.approx(1 / 1.25, rel=0.1)
    scaled = cross_fitted_ratio(3 * X, background=Y, random_state=0)
    assert scaled.relative == pytest.approx(result.relative)


@pytest.mark.parametrize("k", [1, 2])
def test_the_ratio_of_a_split_agrees_with_plain_numpy(k: int) -> None:
    """Check all splits of eight units, which have one to four rows."""
    rng = np.random.default_rng(15)
    units = np.repeat(np.arange(8), [1, 2, 3, 1, 2, 1, 4, 2])
    X, Y = rng.normal(size=(2, 16, 4)) * [3, 1, 1, 1]
    X[:, 1] *= 4

    def covariance(rows: Any, chosen: Any) -> Any:
        return np.cov(rows[np.isin(units, chosen)].T, bias=True)

    result = cross_fitted_ratio(
        X, background=Y, n_components=k, units=units, background_units=units, n_splits=35
    )
    by_hand = []
    for half in combinations(range(8), 4):
        others = [i for i in range(8) if i not in half]
        fitted, measured = (
            [covariance(part, chosen) for part in (X, Y)] for chosen in (half, others)
        )
        by_hand.append(held_out_ratio(fitted, measured, k))
    np.testing.assert_allclose(np.sort(result.ratios), np.sort(by_hand), rtol=1e-9)
    assert result.ratio == np.median(result.ratios)
    total = np.trace(covariance(X, units)) / np.trace(covariance(Y, units))
    assert result.baseline == pytest.approx(total)
    assert result.relative == result.ratio / result.baseline
    assert (result.n_units, result.n_background_units) == (8, 8)


def test_a_background_that_is_constant_in_one_half_is_refused() -> None:
    rng = np.random.default_rng(17)
    Y = np.zeros((16, 3))
    Y[0] = 1.0
    with pytest.raises(ValueError, match=r"background is constant .* over 8 rows"):
        cross_fitted_ratio(rng.normal(size=(16, 3)), background=Y)
