"""Tests of `strength_`, `at` and `path` of the methods with a contrast strength.

The online method has only `strength_`.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest

from contrast_core import CPCA, ContrastWarning, OnlineCPCAStar
from tests.core.estimators import STRENGTHS, StrengthCase
from tests.core.test_contract import planted

pytestmark = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")

# Tolerance of a comparison. In general the path solver is accurate to 1e-8. Here the eigenvalue
# gaps are near 1, so its errors are only rounding errors.
SAME = 1e-9


@pytest.fixture(params=STRENGTHS, ids=lambda case: case.make.__name__)
def case(request: pytest.FixtureRequest) -> StrengthCase:
    return request.param


def fit(case: StrengthCase, strength: object = "auto", k: int = 2) -> Any:
    X, Y = planted()
    return case.make(k, **{case.parameter: strength}).fit(X, background=Y)


def assert_same(found: Any, expected: Any) -> None:
    X, _ = planted()
    assert type(found) is type(expected)
    assert vars(found).keys() == vars(expected).keys()
    np.testing.assert_allclose(found.transform(X), expected.transform(X), atol=SAME)
    for name, value in vars(expected).items():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            scale = max(1.0, float(np.abs(value).max()))
            np.testing.assert_allclose(getattr(found, name), value, atol=SAME * scale)


def test_at_gives_the_fit_at_that_strength(case: StrengthCase) -> None:
    fitted = fit(case)
    before = vars(fitted).copy()
    for strength in (*case.strengths, "auto"):
        found = fitted.at(strength)
        assert_same(found, fit(case, strength))
        assert found.get_params() == fit(case, strength).get_params()
        assert type(found.strength_) is float
        assert found.strength_ == getattr(found, f"{case.parameter}_")
        if strength != "auto":
            assert found.strength_ == strength
    assert vars(fitted) == before
    assert pickle.loads(pickle.dumps(fitted)).strength_ == fitted.strength_
    assert not hasattr(case.make(), "strength_")


def test_a_path_is_a_list_of_fits_with_distinct_ascending_strengths(case: StrengthCase) -> None:
    fitted = fit(case)
    shuffled = [case.strengths[i] for i in (2, 0, 3, 1, 0, 2)]
    path = fitted.path(shuffled)
    assert isinstance(path, list)
    assert tuple(one.strength_ for one in path) == case.strengths
    for one, strength in zip(path, case.strengths, strict=True):
        assert_same(one, fit(case, strength))
    assert len(fitted.path(shuffled[:1])) == 1
    assert_same(fitted.path(shuffled[:1])[0], fit(case, shuffled[0]))


def test_a_path_accepts_every_value_of_the_strength_parameter(case: StrengthCase) -> None:
    fitted = fit(case)
    path = fitted.path([case.strengths[-1], "auto"])
    assert_same(next(one for one in path if getattr(one, case.parameter) == "auto"), fitted)
    for twice in (["auto", fitted.strength_], [fitted.strength_, "auto"]):
        [first] = fitted.path(twice)
        assert getattr(first, case.parameter) == twice[0]
    for strengths in (np.array(case.strengths), pd.Series(case.strengths), [np.float32(0.25)]):
        found = fitted.path(strengths)
        assert [one.strength_ for one in found] == [float(strength) for strength in strengths]


def test_the_default_path_goes_from_zero_to_beyond_the_automatic_strength(
    case: StrengthCase,
) -> None:
    fitted = fit(case)
    path = fitted.path()
    strengths = [one.strength_ for one in path]
    assert len(path) >= 20
    assert strengths == sorted(set(strengths))
    assert strengths[0] == 0.0
    assert strengths[1] < fitted.strength_ < strengths[-1]
    for one in (path[0], path[7], path[-1]):
        assert_same(one, fitted.at(one.strength_))


def test_fits_at_other_strengths_keep_moments_names_and_number_of_components(
    case: StrengthCase,
) -> None:
    X, Y = (pd.DataFrame(rows, columns=list("abcdefghijkl")) for rows in planted())
    fitted = case.make(3, **{case.parameter: case.strengths[2]}).fit(X, background=Y)
    fitted.set_params(n_components=5)
    for other in (fitted.at(case.strengths[1]), *fitted.path(case.strengths)):
        assert other.foreground_moments_ is fitted.foreground_moments_
        assert other.background_moments_ is fitted.background_moments_
        assert other.n_components == 3
        assert other.transform(X).shape[1] == 3
        assert list(other.feature_names_in_) == list("abcdefghijkl")


@pytest.mark.filterwarnings("error")
def test_negative_contrast_causes_a_warning_of_at_but_not_of_path() -> None:
    X, Y = planted()
    fitted = CPCA(6, alpha=0.0).fit(X, background=Y)
    assert len(fitted.path([0.0, 50.0])) == 2
    with pytest.warns(ContrastWarning, match="negative contrast"):
        fitted.at(50.0)


def test_the_online_method_has_a_strength_but_no_method_at() -> None:
    X, Y = planted()
    online = OnlineCPCAStar(beta=0.25, learning_rate=1e-4, n_passes=1).fit(X, background=Y)
    assert online.set_params(beta=0.5).strength_ == online.beta_ == 0.25
    online.partial_fit(X[:2] - X.mean(axis=0), [True, False])
    assert online.strength_ == 0.5
    assert not hasattr(online, "at")
