"""Tests of the diagnostics of posteriors, and of the errors of invalid requests."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from contrast_core import CPCA, PCPCA, ContrastWarning, SecondMoments, load, save
from contrast_core._posterior import _inference_data
from tests.core.samples import quiet
from tests.core.test_posterior import moments

arviz = pytest.importorskip("arviz", reason="arviz is not installed (extra posterior)")
pytest.importorskip("nutpie", reason="nutpie is not installed (extra posterior)")


def test_chains_that_have_not_converged_are_told_of() -> None:
    rng = np.random.default_rng(0)
    good, none = rng.normal(size=(4, 500, 3)), np.zeros((4, 500), dtype=bool)
    _inference_data.check_converged({"a": good, "b": good[..., 0]}, none)
    few = none.copy()
    few[1, 3:23] = True
    _inference_data.check_converged({"a": good}, few)
    apart = good.copy()
    apart[0, :, 1] += 1
    slow = good.cumsum(axis=1)
    some = none.copy()
    some[1, 3:24] = True
    for draws, diverging, told in (
        (apart, none, r"R-hat is 1\.\d+.* 0 of 2000 draws diverged"),
        (slow, none, "effective sample size"),
        (good, some, " 21 of 2000 draws diverged"),
    ):
        with pytest.warns(ContrastWarning, match=told):
            _inference_data.check_converged({"a": good, "b": draws}, diverging)


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"draws": 5}, ValueError, "draws=5 is out of range"),
        ({"draws": 20.0}, TypeError, "draws must be an integer"),
        ({"chains": 1}, ValueError, "chains=1 is out of range"),
        ({"learning_rate": 0.0}, ValueError, "learning_rate=0 is out of range"),
        ({"learning_rate": np.inf}, ValueError, "learning_rate=inf is out of range"),
        ({"learning_rate": "1"}, TypeError, "learning_rate must be a number"),
        ({"random_state": -1}, ValueError, "random_state"),
        ({"gamma": -0.1}, ValueError, "gamma=-0.1 is out of range"),
        ({"gamma": 1.0}, ValueError, "not proper"),
        ({"gamma": np.nan}, ValueError, "gamma=nan is out of range"),
        ({"noise_floor": 0}, ValueError, "noise_floor=0 is out of range"),
    ],
)
def test_odd_arguments_are_refused(options: Any, error: Any, told: str) -> None:
    x, y = moments(np.array([4.0, 2.0, 0.6]))
    with pytest.raises(error, match=told):
        PCPCA(1, gamma=0.1).fit(x, background=y).posterior(**options)
    if not {"gamma", "noise_floor"} & set(options):
        with pytest.raises(error, match=told):
            CPCA(1, alpha=1.0).fit(x, background=y).posterior(**options)


def test_models_without_a_posterior_are_refused(tmp_path: Any) -> None:
    x, y = moments(np.array([4.0, 2.0, 0.6]))
    with pytest.raises(ValueError, match="n_components=3 are all of the 3 features"):
        CPCA(3, alpha=0.5).fit(x, background=y).posterior()
    flat_y = SecondMoments(50, np.zeros(3), np.diag([1.0, 0.0, 0.0]))
    with pytest.raises(ValueError, match="at alpha=inf there is no posterior"):
        CPCA(1, alpha=np.inf).fit(x, background=flat_y).posterior()
    for model in (CPCA(1, alpha=0.5), PCPCA(1, gamma=0.1)):
        save(model.fit(x, background=y), tmp_path / "model")
        with pytest.raises(ValueError, match="no moments, which posteriors are drawn from"):
            load(tmp_path / "model").posterior()
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(2, 40, 4))
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="incomplete data, which have no moments that posteriors"):
        PCPCA(1, gamma=0.1).fit(X, background=Y).posterior()


@quiet  # the draws are few
@pytest.mark.parametrize(("alone", "strength"), [(PCPCA(1), "gamma"), (CPCA(1), "alpha")])
def test_without_a_background_it_is_the_posterior_at_strength_zero(
    alone: Any, strength: str
) -> None:
    X, Y = np.random.default_rng(0).normal(size=(2, 40, 3)) * [3, 1, 1]
    options: Any = {"draws": 10, "chains": 2, "random_state": 0}
    zero = type(alone)(1, **{strength: 0.0}).fit(X, background=Y).posterior(**options)
    found = alone.fit(X).posterior(**options)
    assert found.posterior.attrs[strength] == 0
    for name in found.posterior:
        np.testing.assert_allclose(found.posterior[name], zero.posterior[name], rtol=1e-9)
    if strength == "gamma":
        with pytest.raises(ValueError, match=r"gamma=0\.1 needs a background"):
            alone.posterior(gamma=0.1)


# The draws are few, so another version of the sampler may warn that the chains differ.
@quiet
def test_features_keep_their_names() -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X, Y = (pandas.DataFrame(rng.normal(size=(60, 3)), columns=list("abc")) for _ in range(2))
    X["b"] *= 3
    found = PCPCA(1, gamma=0.2).fit(X, background=Y).posterior(500, random_state=0)
    summary = arviz.summary(found, var_names="components", kind="stats")
    assert list(summary.index) == ["components[0, a]", "components[0, b]", "components[0, c]"]
    assert summary["mean"].idxmax() == "components[0, b]"


def test_without_nutpie_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nutpie.compiled_pyfunc", None)
    x, y = moments(np.array([4.0, 2.0, 0.6]))
    with pytest.raises(ImportError, match=r"pip install '\.\[posterior\]'"):
        CPCA(1, alpha=0.5).fit(x, background=y).posterior()
