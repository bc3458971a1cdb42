"""Significance: honest p-values, stability and ratios, by rows or by groups."""

from __future__ import annotations

import sys
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import binom

from contrast_core import (
    CPCA,
    PCPCA,
    ContrastWarning,
    CPCAStar,
    SecondMoments,
    bootstrap_stability,
    cross_fitted_ratio,
    permutation_test,
)
from contrast_core.datasets import load_mouse_protein, make_four_groups
from contrast_core.significance._cross_fit import _halves
from contrast_core.significance._units import two_samples
from contrast_core.spectral import KernelCPCA

quiet = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")
SD = np.array([2.0, 1.5, 1.0, 1.0, 0.7, 0.5])


def rows(n: int, rng: np.random.Generator, spike: float = 0.0) -> Any:
    """Independent rows; a spike adds a direction of that standard deviation."""
    X = rng.normal(size=(n, len(SD))) * SD
    X[:, 4] += spike * rng.normal(size=n)
    return X


def repeated(n: int, rng: np.random.Generator, repeats: int = 8) -> tuple[Any, Any]:
    """Rows that repeat: `n` animals, each measured several times; and the animal of each row."""
    animals = np.repeat(np.arange(n), repeats)
    return rows(n, rng)[animals] + 0.3 * rng.normal(size=(n * repeats, len(SD))), animals


def rejections(p_values: Any, level: float) -> int:
    return int((np.asarray(p_values) <= level).sum())


def assert_level_is_kept(p_values: Any, level: float) -> None:
    """As many p-values up to the level as a uniform distribution gives, within 99.8%."""
    n = len(p_values)
    assert binom.ppf(0.001, n, level) <= rejections(p_values, level) <= binom.ppf(0.999, n, level)


# Permutation -------------------------------------------------------------------------------------


def test_p_values_of_equal_distributions_are_uniform() -> None:
    rng = np.random.default_rng(0)
    p = [
        permutation_test(
            CPCA(1), rows(30, rng), background=rows(25, rng), n_permutations=59, random_state=rng
        ).p_values[0]
        for _ in range(200)
    ]
    for level in (0.05, 0.2, 0.5):
        assert_level_is_kept(p, level)


def test_a_difference_of_mean_and_scale_is_no_finding() -> None:
    rng = np.random.default_rng(1)
    p = [
        permutation_test(
            CPCA(1),
            3.0 * rows(30, rng) + 20.0,
            background=rows(25, rng),
            n_permutations=59,
            random_state=rng,
        ).p_values[0]
        for _ in range(100)
    ]
    for level in (0.05, 0.5):
        assert_level_is_kept(p, level)


def test_repeated_rows_do_not_fake_a_component() -> None:
    rng = np.random.default_rng(2)
    naive, grouped = [], []
    for _ in range(100):
        X, groups = repeated(9, rng)
        Y, background_groups = repeated(9, rng)
        given = {"groups": groups, "background_groups": background_groups + 9}
        for labels, p in ((given, grouped), ({}, naive)):
            test = permutation_test(
                CPCA(1), X, background=Y, n_permutations=59, random_state=rng, **labels
            )
            p.append(test.p_values[0])
    assert_level_is_kept(grouped, 0.05)
    assert_level_is_kept(grouped, 0.5)
    assert rejections(naive, 0.05) > 60


def test_a_planted_component_is_found_and_no_second_one() -> None:
    rng = np.random.default_rng(3)
    tests = [
        permutation_test(
            CPCA(2),
            rows(60, rng, spike=3.0),
            background=rows(50, rng),
            n_permutations=59,
            random_state=rng,
        )
        for _ in range(60)
    ]
    assert rejections([test.p_values[0] for test in tests], 0.05) >= 57
    # Against the second eigenvalue of relabelled data this would be a third of them.
    assert rejections([test.p_values[1] for test in tests], 0.05) <= binom.ppf(0.999, 60, 0.05)


def test_mice_have_two_components_not_four() -> None:
    mice = load_mouse_protein()
    naive, grouped = (
        permutation_test(
            CPCA(4),
            mice.foreground,
            background=mice.background,
            n_permutations=199,
            random_state=0,
            **labels,
        )
        for labels in (
            {},
            {"groups": mice.groups, "background_groups": mice.background_groups},
        )
    )
    assert naive.n_significant(0.01) == 4
    assert grouped.n_significant(0.01) == 0  # with 18 and 9 mice
    assert grouped.n_significant(0.10) == 2
    assert (grouped.n_groups, grouped.n_background_groups) == (18, 9)
    assert naive.n_groups is None
    fitted = CPCA(4).fit(mice.foreground, background=mice.background)
    np.testing.assert_allclose(grouped.statistics, fitted.contrastive_eigenvalues_, rtol=1e-9)


def test_few_groups_are_enumerated_and_the_smallest_p_value_is_told() -> None:
    rng = np.random.default_rng(4)
    X, groups = repeated(3, rng)
    Y, background_groups = repeated(2, rng)
    with pytest.warns(ContrastWarning, match=r"10 ways .* no p-value can be below 0\.1"):
        test = permutation_test(
            CPCA(1, alpha=1.0),
            X,
            background=Y,
            groups=[f"x{g}" for g in groups],
            background_groups=[f"y{g}" for g in background_groups],
        )
    assert test.exact
    assert test.n_distinct == test.n_permutations == len(test.null_statistics) == 10
    assert test.smallest_p_value == 0.1

    # By hand: each dataset centred and scaled by its own total variance, animals relabelled.
    scale_x, scale_y = X.var(axis=0).sum(), Y.var(axis=0).sum()
    parts = [((X - X.mean(axis=0)) / np.sqrt(scale_x))[groups == g] for g in range(3)]
    parts += [((Y - Y.mean(axis=0)) / np.sqrt(scale_y))[background_groups == g] for g in range(2)]
    by_hand = []
    for chosen in combinations(range(5), 3):
        x = np.vstack([parts[i] for i in chosen])
        y = np.vstack([part for i, part in enumerate(parts) if i not in chosen])
        contrast = scale_x * np.cov(x.T, bias=True) - scale_y * np.cov(y.T, bias=True)
        by_hand.append(np.linalg.eigvalsh(contrast)[-1])
    np.testing.assert_allclose(np.sort(test.null_statistics[:, 0]), np.sort(by_hand))
    np.testing.assert_allclose(test.statistics, by_hand[0])
    assert test.p_values[0] == np.mean(np.array(by_hand) >= by_hand[0] - 1e-9)


@quiet
def test_a_donor_in_both_datasets_swaps_its_own_parts_only() -> None:
    rng = np.random.default_rng(5)
    # Donors differ far more than conditions do; without a difference between conditions.
    donors = np.repeat(np.arange(6), 10)
    scale = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])[donors][:, None]
    X, Y = (scale * rows(60, rng) for _ in range(2))
    test = permutation_test(
        CPCA(1), X, background=Y, groups=donors, background_groups=donors, n_permutations=99
    )
    assert test.n_distinct == 2**6
    assert test.exact
    # Two more donors on one side each: 2^6 swaps times 2 choices.
    more = permutation_test(
        CPCA(1),
        np.vstack([X, X[:10]]),
        background=np.vstack([Y, Y[:10]]),
        groups=[*donors, *[6] * 10],
        background_groups=[*donors, *[7] * 10],
        n_permutations=5,
        random_state=0,
    )
    assert (more.n_distinct, more.n_permutations, more.exact) == (2**7, 5, False)


@quiet
@pytest.mark.parametrize("function", [permutation_test, bootstrap_stability])
@pytest.mark.parametrize("estimator", [CPCA(2), CPCA(2, alpha=0.0), CPCAStar(2), PCPCA(2)])
def test_every_linear_method(function: Any, estimator: Any) -> None:
    rng = np.random.default_rng(6)
    X, Y = rows(40, rng, spike=3.0), rows(30, rng)
    number = {"n_permutations" if function is permutation_test else "n_resamples": 19}
    before = estimator.get_params()
    result = function(estimator, X, background=Y, random_state=0, **number)
    assert estimator.get_params() == before
    assert not hasattr(estimator, "components_")
    if function is permutation_test:
        assert result.null_statistics.shape == (19, 2)
        assert result.p_values[0] <= result.p_values[1] <= 1
    else:
        assert result.matched.shape == result.retained.shape == result.angles.shape == (19, 2)


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
def test_rows_are_groups_of_one_sparse_is_dense_and_seeds_repeat() -> None:
    rng = np.random.default_rng(8)
    X, Y = rows(30, rng, spike=2.0), rows(25, rng)
    X[np.abs(X) < 0.2] = 0.0
    given = {"n_permutations": 29, "random_state": 0}
    plain = permutation_test(CPCA(2), X, background=Y, **given)
    for same in (
        permutation_test(CPCA(2), X, background=Y, **given),
        permutation_test(CPCA(2), sp.csr_array(X), background=sp.csr_array(Y), **given),
        permutation_test(
            CPCA(2),
            X,
            background=Y,
            groups=np.arange(30),
            background_groups=np.arange(30, 55),
            **given,
        ),
    ):
        np.testing.assert_allclose(same.null_statistics, plain.null_statistics, rtol=1e-9)
    other = permutation_test(CPCA(2), X, background=Y, n_permutations=29, random_state=1)
    assert not np.allclose(other.null_statistics, plain.null_statistics)


@quiet
@pytest.mark.parametrize("function", [permutation_test, bootstrap_stability])
def test_more_features_than_rows(function: Any) -> None:
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


# Bootstrap ---------------------------------------------------------------------------------------


def test_a_strong_component_is_stable_and_noise_is_not() -> None:
    rng = np.random.default_rng(10)
    Y = rng.normal(size=(300, 20))
    noise = rng.normal(size=(300, 20))
    signal = noise.copy()
    signal[:, 3] *= 4.0
    strong, weak = (
        bootstrap_stability(CPCA(1, alpha=1.0), X, background=Y, n_resamples=50, random_state=0)
        for X in (signal, noise)
    )
    assert strong.component_stability[0] > 0.95
    assert weak.component_stability[0] < 0.6
    np.testing.assert_allclose(strong.subspace_stability, strong.component_stability[0])


def test_tied_components_turn_within_a_stable_subspace() -> None:
    rng = np.random.default_rng(11)
    X, Y = rng.normal(size=(400, 10)), rng.normal(size=(400, 10))
    X[:, :2] *= 5.0
    result = bootstrap_stability(
        CPCA(2, alpha=1.0), X, background=Y, n_resamples=50, random_state=0
    )
    assert result.component_retention.min() > 0.98
    assert result.subspace_stability > 0.98
    assert result.component_stability.max() < 0.95
    # The two measures of the subspace are one: the squared cosines add up.
    np.testing.assert_allclose(
        (np.cos(result.angles) ** 2).sum(axis=1), result.retained.sum(axis=1)
    )


@quiet
def test_repeated_rows_do_not_fake_stability() -> None:
    rng = np.random.default_rng(12)
    X, groups = repeated(8, rng, repeats=20)
    Y, background_groups = repeated(8, rng, repeats=20)
    given = {"background": Y, "n_resamples": 60, "random_state": 0}
    naive = bootstrap_stability(CPCA(2), X, **given)
    grouped = bootstrap_stability(
        CPCA(2), X, groups=groups, background_groups=background_groups + 8, **given
    )
    assert naive.subspace_stability > grouped.subspace_stability + 0.1


# Cross-fitting -----------------------------------------------------------------------------------


def test_known_groups_stand_out_on_held_out_rows() -> None:
    data = make_four_groups()
    result = cross_fitted_ratio(data.foreground, background=data.background, random_state=0)
    assert result.ratio > 3.7
    assert result.found
    assert result.ratios.shape == (20,)
    assert not result.few_groups
    total = data.foreground.var(axis=0).sum() / data.background.var(axis=0).sum()
    assert result.baseline == pytest.approx(total)
    assert result.threshold == 1.5 * result.baseline


@pytest.mark.parametrize("seed", range(3))
def test_two_samples_of_one_distribution_give_about_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, Y = (rng.normal(size=(400, 30)) * np.linspace(3, 1, 30) for _ in range(2))
    with pytest.warns(ContrastWarning, match=r"ratio is .*, below 1\.5 tr\(C_X\)/tr\(C_Y\)"):
        result = cross_fitted_ratio(X, background=Y, random_state=0)
    assert 0.8 < result.ratio < 1.2
    with pytest.warns(ContrastWarning):
        scaled = cross_fitted_ratio(3 * X, background=Y, random_state=0)
    assert scaled.ratio / scaled.baseline == pytest.approx(result.ratio / result.baseline)


def test_repeated_rows_do_not_fake_a_ratio() -> None:
    rng = np.random.default_rng(13)
    X, groups = repeated(8, rng, repeats=20)
    Y, background_groups = repeated(8, rng, repeats=20)
    naive = cross_fitted_ratio(X, background=Y, random_state=0)
    with pytest.warns(ContrastWarning, match="seven to ten groups cannot certify a null"):
        grouped = cross_fitted_ratio(
            X, background=Y, groups=groups, background_groups=background_groups + 8, random_state=0
        )
    assert naive.found
    assert not grouped.found
    assert grouped.few_groups
    assert (grouped.n_groups, grouped.n_background_groups) == (8, 8)


def test_a_donor_of_both_datasets_stays_in_one_half() -> None:
    rng = np.random.default_rng(14)
    donors, others = np.repeat(np.arange(7), 4), np.repeat([0, 2, 4, 6, 8, 9], 4)
    samples = two_samples(rows(28, rng), rows(24, rng), donors, others)
    for _ in range(20):
        x, y = _halves(samples, rng)
        assert [bool(x[i]) for i in (0, 2, 4, 6)] == [bool(half) for half in y[:4]]
        assert x.sum() in (3, 4)
        assert y.sum() == 3


# Errors ------------------------------------------------------------------------------------------


def test_what_cannot_be_resampled_is_refused() -> None:
    rng = np.random.default_rng(15)
    X, Y = rows(20, rng), rows(16, rng)
    x = np.arange(20) % 4

    def test(*, estimator: Any = None, X: Any = X, Y: Any = Y, **given: Any) -> None:
        permutation_test(estimator or CPCA(), X, background=Y, **given)

    y = np.arange(16) % 4 + 4
    with pytest.raises(ValueError, match="groups was given without background_groups"):
        test(groups=x)
    with pytest.raises(ValueError, match="background_groups was given without groups"):
        test(background_groups=y)
    with pytest.raises(ValueError, match=r"groups has shape \(5,\); .* each of the 20 rows"):
        test(groups=x[:5], background_groups=y)
    with pytest.raises(ValueError, match="background_groups has missing labels"):
        test(groups=x, background_groups=[*y[:-1].astype(float), np.nan])
    with pytest.raises(ValueError, match="groups names a single group"):
        test(groups=np.zeros(20), background_groups=y)
    with pytest.raises(ValueError, match="background is constant"):
        test(Y=np.ones_like(Y))
    with pytest.raises(ValueError, match="background has 5 features but X has 6"):
        test(Y=Y[:, :5])
    with pytest.raises(TypeError, match="X is SecondMoments, but rows are needed"):
        test(X=SecondMoments.from_data(X))
    with pytest.raises(TypeError, match="estimator is KernelCPCA; expected a linear"):
        test(estimator=KernelCPCA())
    with pytest.raises(ValueError, match="n_permutations=0 is out of range"):
        test(n_permutations=0)
    with pytest.raises(ValueError, match="n_resamples=0 is out of range"):
        bootstrap_stability(CPCA(), X, background=Y, n_resamples=0)
    with pytest.raises(ValueError, match="n_splits=0 is out of range"):
        cross_fitted_ratio(X, background=Y, n_splits=0)
    with pytest.raises(ValueError, match="need at least 4 of both"):
        cross_fitted_ratio(X[:3], background=Y)
    with pytest.raises(TypeError, match="progress must be True, False or a callable"):
        test(progress="yes")


@quiet
def test_progress(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(16)
    X, Y = rows(20, rng), rows(16, rng)
    seen = []

    def bar(items: Any, total: int, desc: str) -> Any:
        for i, item in enumerate(items):
            seen.append((desc, i, total))
            yield item

    permutation_test(CPCA(), X, background=Y, n_permutations=3, progress=bar)
    bootstrap_stability(CPCA(), X, background=Y, n_resamples=2, progress=bar)
    assert seen == [("permute", i, 3) for i in range(3)] + [("bootstrap", i, 2) for i in range(2)]
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match="progress=True needs tqdm"):
        permutation_test(CPCA(), X, background=Y, n_permutations=3, progress=True)
    assert capsys.readouterr().err == ""
