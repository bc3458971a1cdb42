"""Bootstrap: which components are stable, by rows or by groups."""

from __future__ import annotations

import numpy as np

from contrast_core import (
    CPCA,
    bootstrap_stability,
)
from tests.core.samples import quiet, repeated


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
