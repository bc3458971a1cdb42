"""Tests of the behaviour that all significance functions share: estimators, errors, progress."""

from __future__ import annotations

import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import Any

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from contrast_core import (
    CPCA,
    SecondMoments,
    bootstrap_stability,
    contrast_path,
    cross_fitted_ratio,
    permutation_test,
)
from tests.core.samples import SD, quiet, rows


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
    ({"X": X[:1]}, ValueError, "X has 1 rows|n_samples=1"),
    ({"X": np.ones_like(X)}, ValueError, "X is constant"),
    ({"background": np.ones_like(Y)}, ValueError, "background is constant"),
    ({"background": Y[:, :5]}, ValueError, "background has 5 features but X has 6"),
    ({"background": None}, ValueError, "background=None"),
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
@pytest.mark.parametrize("name", ["n_permutations", "n_resamples"])
def test_two_threads_leave_blas_and_warnings_as_they_were(name: str) -> None:
    rng = np.random.default_rng(19)
    X, Y = rows(40, rng), rows(30, rng)
    first_runs, both_run, first_ended = Event(), Event(), Event()

    def run(bar: Any) -> None:
        FUNCTIONS[name](X, background=Y, random_state=0, **{name: 20}, progress=bar)

    def first() -> None:
        def bar(items: Any, **_: Any) -> Any:
            first_runs.set()
            assert both_run.wait(60)
            yield from items

        run(bar)
        first_ended.set()

    def second() -> None:
        def bar(items: Any, **_: Any) -> Any:
            both_run.set()
            assert first_ended.wait(60)
            yield from items

        assert first_runs.wait(60)
        run(bar)

    controller = ThreadpoolController()
    with controller.limit(limits=2, user_api="blas"), ThreadPoolExecutor(2) as pool:
        before = [library["num_threads"] for library in controller.info()]
        filters = list(warnings.filters)
        for ended in [pool.submit(first), pool.submit(second)]:
            ended.result()
        assert [library["num_threads"] for library in controller.info()] == before
        assert list(warnings.filters) == filters


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


@quiet
def test_results_print_in_a_few_lines() -> None:
    rng = np.random.default_rng(20)
    X, Y = rows(40, rng, spike=2.0), rows(30, rng)
    results: list[Any] = [
        permutation_test(CPCA(2), X, background=Y, n_permutations=29, random_state=0),
        bootstrap_stability(CPCA(2), X, background=Y, n_resamples=9, random_state=0),
        cross_fitted_ratio(X, background=Y, random_state=0),
        contrast_path(X, background=Y),
    ]
    for result in results:
        text = repr(result)
        assert text.startswith(f"{type(result).__name__}(")
        assert len(text.splitlines()) < 16
        assert max(map(len, text.splitlines())) < 250
    assert "null_statistics=<array of shape (29, 2)>" in repr(results[0])
    assert f"p_values=[{results[0].p_values[0]:.4f}"[:14] in repr(results[0])
