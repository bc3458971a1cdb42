"""Tests of CLVM's options together: selection with missing values and with outliers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contrast_core import CLVM
from contrast_core.datasets import make_motion_sensors
from contrast_core.linalg import subspace_error
from contrast_core.probabilistic import _clvm_priors as priors
from contrast_core.probabilistic._clvm_likelihood import Search
from contrast_core.probabilistic._clvm_rows import RowLikelihood, observed_rows
from contrast_core.probabilistic._row_posterior import Model
from contrast_core.rows import rows_of
from tests.core.latent_samples import gappy, holes

INFORMATIVE = np.arange(23) < 17


def spoilt(n: int) -> tuple[Any, Any]:
    """Return motion sensor data in which a quarter of the values are missing and 3% are wrong."""
    data, rng = make_motion_sensors(n, n, random_state=0), np.random.default_rng(0)
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
@pytest.mark.parametrize("kind", ["support", "penalty", "groups", "relevance"])
def test_no_step_with_a_prior_descends(kind: str, tails: Any) -> None:
    rows = observed_rows(*(rows_of(part, missing=True) for part in gappy()))
    search = Search(2, 1, np.random.default_rng(0), 1e-6, 2000)
    likelihood = RowLikelihood.of(rows, tails, 2, search)
    loadings, noise = likelihood.first()
    prior = {
        "support": priors.Support(2, np.arange(8) < 5),
        "penalty": priors.Penalty.adaptive(3.0, loadings, 2, np.arange(8)),
        "groups": priors.Penalty.adaptive(3.0, loadings, 2, np.arange(8) // 3),
        "relevance": priors.Relevance(2, 8, 1e-3, 1e-3 * noise),
    }[kind]
    if kind == "support":
        loadings[5:, 2:] = 0.0  # the starting point must be zero outside the support
    found = likelihood.climb(likelihood.start_at(Model(loadings, 1.5 * noise)), prior)
    values = found.log_likelihoods
    assert found.converged
    assert len(values) > 5
    assert np.diff(values).min() > -1e-12 * abs(values[-1])
    # Nearby loadings have a smaller objective.
    rng = np.random.default_rng(0)
    for _ in range(5):
        turned = found.model.loadings * (1 + 0.02 * rng.normal(size=(8, 4)))
        other = found._replace(model=Model(turned, found.model.noise))
        assert likelihood.evaluate(other, prior).value < values[-1]


def test_a_missing_value_and_units_change_no_selection() -> None:
    data = make_motion_sensors(500, 400)
    X, Y = data.foreground.copy(), data.background
    options: dict[str, Any] = {"n_shared": 5, "sparsity": 20.0}
    whole = CLVM(**options).fit(X, background=Y)
    X[3, 4] = np.nan
    for c in (1.0, 1e-4, 1e5):
        model = CLVM(**options).fit(c * X, background=c * Y)
        np.testing.assert_array_equal(model.selected_, whole.selected_)
        assert subspace_error(model.components_, whole.components_) < 0.01
