"""Tests of the behaviour that all significance functions share: estimators, errors, progress."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from contrast_core import (
    CPCA,
    SecondMoments,
    bootstrap_stability,
    cross_fitted_ratio,
    permutation_test,
)
from tests.core.samples import SD, quiet, rows


@quiet
@pytest.mark.parametrize("function", [permutation_test, bootstrap_stability])
def test_data_with_more_features_than_rows_are_tested(function: Any) -> None:
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
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"units": UNITS}, ValueError, "units was given without background_units"),
    ({"background_units": OTHERS}, ValueError, "background_units was given without units"),
    (
        {"units": ["a"] * 20, "background_units": OTHERS.astype(str)},
        ValueError,
        "units names a single unit .'a'.",
    ),
    ({"units": UNITS[:5], "background_units": OTHERS}, ValueError, r"units has shape \(5,\)"),
    (
        {"units": UNITS, "background_units": [*OTHERS[:-1].astype(float), np.nan]},
        ValueError,
        "background_units has 1 missing labels",
    ),
    (
        {"units": UNITS, "background_units": OTHERS.astype(str)},
        TypeError,
        "units with background_units mixes labels",
    ),
    ({"X": np.ones_like(X)}, ValueError, "X is constant"),
    ({"background": np.ones_like(Y)}, ValueError, "background is constant"),
    (
        {"X": np.where(np.arange(20)[:, None] == 3, np.nan, X)},
        ValueError,
        "X contains NaN .* Resampling needs complete rows",
    ),
    ({"X": SecondMoments.from_data(X)}, TypeError, "X is SecondMoments, but rows are needed"),
]


@pytest.mark.parametrize("name", ["n_permutations", "n_resamples", "n_splits"])
@pytest.mark.parametrize(("given", "error", "message"), REFUSED)
def test_data_and_units_that_cannot_be_resampled_are_refused(
    name: str, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        FUNCTIONS[name](**({"X": X, "background": Y} | given))


def test_too_few_rows_for_two_halves_and_odd_progress_are_refused() -> None:
    with pytest.raises(ValueError, match="need at least 4 of both"):
        cross_fitted_ratio(X[:3], background=Y)
    with pytest.raises(TypeError, match="progress must be True, False or a callable"):
        permutation_test(CPCA(), X, background=Y, progress="yes")  # type: ignore[arg-type]


FUNCTIONS: dict[str, Any] = {
    "n_permutations": partial(permutation_test, CPCA()),
    "n_resamples": partial(bootstrap_stability, CPCA()),
    "n_splits": cross_fitted_ratio,
}


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
def test_progress_is_shown_and_can_be_replaced_by_a_function(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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
