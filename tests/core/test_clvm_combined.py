"""CLVM's forms together: selection where values are missing and others are wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contrast_core import CLVM
from contrast_core.datasets import make_motion_sensors
from contrast_core.linalg import subspace_error
from contrast_core.probabilistic import _clvm_em as em
from contrast_core.probabilistic import _clvm_priors as priors
from contrast_core.probabilistic._clvm_rows import fit_rows
from tests.core.test_clvm import generated
from tests.core.test_clvm_rows import holes, start_of

INFORMATIVE = np.arange(23) < 17
TAILS: Any = ("normal", "rows")


def spoilt(n: int, seed: int = 0) -> tuple[Any, Any]:
    """Sensors of which a quarter is missing and three in a hundred values are wrong."""
    data, rng = make_motion_sensors(n, n, random_state=seed), np.random.default_rng(seed)
    both = []
    for rows in (data.foreground.copy(), data.background.copy()):
        bad = rng.random(rows.shape) < 0.03
        rows[bad] += 20 * rng.normal(size=bad.sum())
        both.append(np.where(rng.random(rows.shape) < 0.25, np.nan, rows))
    return both[0], both[1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the likelihood still rises")
@pytest.mark.parametrize("inference", ["em", "vi"])
def test_the_channels_that_carry_nothing_are_found_in_spoilt_data(inference: Any) -> None:
    if inference == "vi":
        pytest.importorskip("torch", reason="torch is not installed")
    X, Y = spoilt(700)
    options: dict[str, Any] = {"n_shared": 5, "sparsity": "auto", "random_state": 0}
    model = CLVM(robust="entries", inference=inference, **options)
    model.set_params(max_iter=25 if inference == "vi" else 3000).fit(X, background=Y)
    np.testing.assert_array_equal(model.selected_, INFORMATIVE)
    assert not model.salient_loadings_[~INFORMATIVE].any()
    assert model.shared_loadings_.all()
    clean = make_motion_sensors(700, 700, random_state=0)
    truth = CLVM(**options).fit(clean.foreground, background=clean.background)
    assert subspace_error(model.components_, truth.components_) < 0.2
    if inference == "em":
        assert model.converged_
        values = model.log_likelihoods_
        assert np.diff(values).min() > -1e-12 * abs(values[-1])


@pytest.mark.parametrize("robust", [None, "rows", "entries"])
def test_relevance_where_values_are_missing(robust: Any) -> None:
    rng = np.random.default_rng(0)
    S, W = rng.normal(size=(3, 20)), rng.normal(size=(1, 20))
    X = rng.normal(size=(300, 3)) @ S + rng.normal(size=(300, 1)) @ W + rng.normal(size=(300, 20))
    Y = rng.normal(size=(300, 3)) @ S + rng.normal(size=(300, 20))
    X, Y = holes(X, 0.2), holes(Y, 0.2, 1)
    model = CLVM(n_shared=7, n_salient=1, ard=True, robust=robust).fit(X, background=Y)
    assert model.shared_loadings_.shape == (20, 3)
    three = CLVM(n_shared=3, n_salient=1, robust=robust).fit(X, background=Y)
    np.testing.assert_allclose(model.components_, three.components_, atol=1e-9)


@pytest.mark.parametrize("tails", ["normal", "rows", "entries"])
@pytest.mark.parametrize("kind", ["support", "penalty", "relevance"])
def test_no_step_with_a_prior_descends(kind: str, tails: Any) -> None:
    X, Y, _, _ = generated(60, 50, 8)
    X, Y = holes(X, 0.2), holes(Y, 0.2, 1)
    start, means = start_of(X, Y)
    prior = {
        "support": priors.Support(2, np.arange(8) < 5),
        "penalty": priors.Penalty.adaptive(3.0, start.loadings, 2),
        "relevance": priors.Relevance(2, 8, 1e-3, 1e-3 * start.noise),
    }[kind]
    if kind == "support":  # a start that has them
        start.loadings[5:, 2:] = 0.0
    found = fit_rows(X, Y, start, means, 2, prior, tails=tails, tol=1e-6)
    values = found.log_likelihoods
    assert found.converged
    assert np.diff(values).min() > -1e-12 * abs(values[-1])
    # Nearby loadings are no better.
    rng = np.random.default_rng(0)
    best = fit_rows(X, Y, *found[:1], found.means, 2, prior, tails=tails, max_iter=1)
    for _ in range(5):
        turned = found.model.loadings * (1 + 0.02 * rng.normal(size=(8, 4)))
        other = em.Model(turned, found.model.noise)
        limits: dict[str, Any] = {"tails": tails, "max_iter": 1, "weights": found.weights}
        worse = fit_rows(X, Y, other, found.means, 2, prior, **limits).log_likelihoods[0]
        assert worse < max(values[-1], best.log_likelihoods[0])


@pytest.mark.parametrize("t", [1, 3])
@pytest.mark.parametrize("k", [0, 2])
def test_each_feature_may_have_sums_of_its_own(k: int, t: int) -> None:
    rng = np.random.default_rng(k + t)
    factors = rng.normal(size=(6, k + t, k + t))
    second = factors @ factors.swapaxes(1, 2) + 0.1 * np.eye(k + t)
    cross, thresholds = rng.normal(size=(6, k + t)), np.array([1e-9, 0.01, 0.1, 0.3, 1.0, 100.0])
    found = priors.proximal(cross, second, k, thresholds)
    for i in range(6):
        alone = priors.proximal(cross[i : i + 1], second[i], k, thresholds[i : i + 1])
        np.testing.assert_allclose(found[i], alone[0], rtol=1e-9, atol=1e-12)


def test_a_missing_value_changes_no_selection() -> None:
    data = make_motion_sensors(500, 400)
    X, Y = data.foreground.copy(), data.background
    options: dict[str, Any] = {"n_shared": 5, "sparsity": 20.0}
    whole = CLVM(**options).fit(X, background=Y)
    X[3, 4] = np.nan
    model = CLVM(**options).fit(X, background=Y)
    np.testing.assert_array_equal(model.selected_, whole.selected_)
    assert subspace_error(model.components_, whole.components_) < 0.01
    for c in (1e-4, 1e5):
        scaled = CLVM(**options).fit(c * X, background=c * Y)
        np.testing.assert_array_equal(scaled.selected_, model.selected_)


@pytest.mark.slow
def test_counts_of_few_features() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from tests.core.test_clvm_variational import counted

    X, Y, truth = counted(seed=1)
    options: dict[str, Any] = {"inference": "vi", "noise": "counts", "random_state": 0}
    model = CLVM(n_shared=2, n_salient=1, sparsity="auto", max_iter=30, **options)
    with pytest.warns(match="still rises"):
        model.fit(X, background=Y)
    assert model.selected_[:8].all()
    assert model.selected_[8:].sum() <= 3
    assert subspace_error(model.components_, truth) < 0.2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")
def test_features_of_wide_rows_are_selected_from_minibatches() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 600)), rng.normal(size=(50, 600))
    X[:, :6] += 4 * rng.normal(size=(60, 1))
    options: dict[str, Any] = {"n_shared": 1, "n_salient": 1, "sparsity": 40.0}
    model = CLVM(**options, inference="vi", max_iter=3, random_state=0).fit(X, background=Y)
    np.testing.assert_array_equal(np.flatnonzero(model.selected_), np.arange(6))


@pytest.mark.slow
def test_rates_of_the_penalty_do_not_depend_on_units() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from contrast_core.probabilistic._clvm_likelihood import Search
    from contrast_core.probabilistic._clvm_start import starting_point
    from contrast_core.rows import rows_of

    data, search = make_motion_sensors(300, 200), Search(2, 1, np.random.default_rng(0), 1e-6, 3000)
    starts = [
        starting_point(
            *([rows_of(c * data.foreground), rows_of(c * data.background)], np.ones(23, bool)),
            *(5, search, tails, 20.0),
        )
        for c in (1.0, 1e5)
        for tails in TAILS
    ]
    for start, scaled in zip(starts[:2], starts[2:], strict=True):
        assert start.penalty == scaled.penalty == 20.0
        np.testing.assert_allclose(scaled.lengths, start.lengths, rtol=1e-3)
        np.testing.assert_allclose(abs(scaled.loadings), abs(start.loadings), atol=1e-3)
        assert not start.loadings[17:, 5:].any()
        assert (start.lengths[17:] > 0).all()
