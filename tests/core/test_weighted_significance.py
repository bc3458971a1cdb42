"""Tests of weights and of several backgrounds in the significance functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contrast_core import (
    CPCA,
    CPCAStar,
    bootstrap_stability,
    cross_fitted_ratio,
    permutation_test,
)
from tests.core.samples import rejections

CALLS = {
    "permutation": lambda X, Y, **more: permutation_test(
        CPCA(2), X, background=Y, n_permutations=19, random_state=0, **more
    ),
    "bootstrap": lambda X, Y, **more: bootstrap_stability(
        CPCA(2), X, background=Y, n_resamples=5, random_state=0, **more
    ),
    "cross fit": lambda X, Y, **more: cross_fitted_ratio(X, background=Y, random_state=0, **more),
}
EACH = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


def planted(n: int = 60, m: int = 50, d: int = 8, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    X[:, 0] *= 5
    X[:, 1] *= 3
    return X, Y


def numbers(result: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(result).items() if value is not None}


def assert_same(first: Any, second: Any) -> None:
    one, other = numbers(first), numbers(second)
    assert one.keys() == other.keys()
    for name, value in one.items():
        if isinstance(value, int):  # the integer may have thousands of digits
            assert value == other[name], name
            continue
        np.testing.assert_allclose(value, other[name], rtol=1e-9, atol=1e-12, err_msg=name)


@EACH
@pytest.mark.parametrize("d", [8, 150])
def test_equal_weights_of_any_size_do_not_change_the_result(call: Any, d: int) -> None:
    X, Y = planted(d=d)
    weights = {"sample_weight": np.full(60, 7.0), "background_weight": np.full(50, 1e-3)}
    assert_same(call(X, Y), call(X, Y, **weights))


@EACH
@pytest.mark.parametrize("d", [8, 150])
def test_rows_with_weight_zero_do_not_change_the_result(call: Any, d: int) -> None:
    X, Y = planted(d=d)
    weights_x, weights_y = np.ones(60), np.ones(50)
    weights_x[::7], weights_y[3] = 0, 0
    found = call(X, Y, sample_weight=weights_x, background_weight=weights_y)
    assert_same(found, call(X[weights_x > 0], Y[weights_y > 0]))


def test_the_original_data_are_fitted_with_weights_and_background_mix() -> None:
    X, Y = planted()
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
def test_uneven_weights_keep_the_level(sigma: float) -> None:
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
    assert rejections(p, 0.05) <= 15
    assert 0.35 < np.mean(p) < 0.68


@EACH
def test_invalid_weights_are_refused(call: Any) -> None:
    X, Y = planted()
    with pytest.raises(ValueError, match="with units only one background is allowed"):
        call(X, [Y, Y], units=np.arange(60) // 6, background_units=[np.arange(50) // 5] * 2)
    with pytest.raises(ValueError, match="weights of X have shape"):
        call(X, Y, sample_weight=np.ones(59))
    with pytest.raises(ValueError, match="weights of background go from -1"):
        call(X, Y, background_weight=-np.ones(50))
    with pytest.raises(ValueError, match="background_mix"):
        call(X, [Y, Y], background_mix=[1, 2, 3])
    with pytest.raises(ValueError, match="background_mix"):
        call(X, Y, background_mix=[1, 2])
    with pytest.raises(ValueError, match=r"at least 2 rows|n_samples=1"):
        call(X, Y, sample_weight=np.arange(60) == 4)


@EACH
def test_units_with_weight_zero_do_not_change_the_result(call: Any) -> None:
    X, Y = planted()
    units, others = np.arange(60) // 6, 100 + np.arange(50) // 5
    weights = (units != 3).astype(float)
    found = call(X, Y, units=units, background_units=others, sample_weight=weights)
    kept = weights > 0
    assert_same(found, call(X[kept], Y, units=units[kept], background_units=others))
