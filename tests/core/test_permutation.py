"""Permutation of labels: honest p-values, by rows or by groups."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import binom

from contrast_core import (
    CPCA,
    PCPCA,
    ContrastWarning,
    permutation_test,
)
from contrast_core.datasets import load_mouse_protein
from tests.core.samples import assert_level_is_kept, quiet, rejections, repeated, rows


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
