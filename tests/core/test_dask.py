"""Tests of dask arrays: the same moments on every scheduler, and lazy scores."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_info

from contrast_core import CPCA, SecondMoments
from contrast_core.rows import rows_of
from tests.core.kinds import assert_same_moments

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

N, D = 1000, 8


@pytest.fixture(scope="module")
def rows() -> Any:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(N, D)) * np.linspace(1, 3, D) + rng.normal(size=D) * 20
    values[rng.random(values.shape) < 0.3] = 0
    return values


def per_chunk(lazy: Any) -> Any:
    """Return rows that are read chunk by chunk, so that there is a task for each chunk."""
    return rows_of(lazy, elements=1)


def _lazy(rows: Any) -> Any:
    return da.from_array(rows, chunks=(90, D))


# tests/core/kinds.py has more kinds, for which tests/core/test_moments.py has the same test.
LAZY: dict[str, Callable[[Any], Any]] = {
    "rows": _lazy,
    "one chunk": lambda rows: da.from_array(rows, chunks=-1),
    "sparse, features in chunks": lambda rows: da.from_array(rows, chunks=(90, 3)).map_blocks(
        sp.csr_matrix
    ),
    "sparse arrays": lambda rows: _lazy(rows).map_blocks(sp.csr_array),
    # After a filter, dask does not know the number of rows, and some chunks have no rows.
    "chunks of unknown sizes": lambda rows: (both := _lazy(np.concatenate([rows - 1e3, rows])))[
        both[:, 0] > -500
    ],
}


@pytest.fixture(params=list(LAZY))
def lazy(request: pytest.FixtureRequest, rows: Any) -> Any:
    return LAZY[request.param](rows)


@pytest.mark.parametrize(
    "scheduler", ["threads", pytest.param("synchronous", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("prepare", [per_chunk, lambda lazy: lazy], ids=["each", "joined"])
def test_moments_of_dask_arrays_agree_with_moments_of_the_rows(
    lazy: Any, rows: Any, scheduler: str, prepare: Callable[[Any], Any]
) -> None:
    before = [library["num_threads"] for library in threadpool_info()]
    with dask.config.set(scheduler=scheduler):
        found = SecondMoments.from_data(prepare(lazy))
    assert_same_moments(found, SecondMoments.from_data(rows))
    assert [library["num_threads"] for library in threadpool_info()] == before


def test_the_number_of_rows_may_be_unknown_in_each_form(rows: Any) -> None:
    lazy = LAZY["chunks of unknown sizes"](rows)
    wanted = CPCA(alpha=1.0).fit(rows, background=rows[::2])
    for solver in ("eigh", "gram"):
        found = CPCA(alpha=1.0, solver=solver).fit(lazy, background=rows[::2])
        np.testing.assert_allclose(found.components_, wanted.components_, atol=1e-9)


def test_each_chunk_is_computed_once_for_all_selections(rows: Any) -> None:
    masks = [np.arange(N) % 3 == 0, np.arange(N) < 400, np.arange(N) > 980]
    computed: list[int] = []

    def seen(chunk: Any, block_info: Any = None) -> Any:
        computed.extend([] if block_info is None else [block_info[0]["chunk-location"][0]])
        return chunk

    lazy = _lazy(rows).map_blocks(seen, dtype=float)
    computed.clear()
    SecondMoments.from_parts([per_chunk(lazy).take(mask) for mask in masks])
    assert sorted(computed) == [*range(12)]
    computed.clear()
    some = rows_of(lazy).take(np.isin(np.arange(N), [50, 230]))
    assert not computed
    np.testing.assert_array_equal(some.load(), rows[[50, 230]])
    assert sorted(computed) == [0, 2]  # chunks without a selected row are not computed


def test_the_number_of_partial_sums_in_memory_does_not_grow_with_the_rows(
    rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    held, tasks = [0], [0]

    def count(key: Any, result: Any, graph: Any, state: Any, worker: Any) -> None:
        held.append(sum(isinstance(each, list) for each in state["cache"].values()))
        tasks[0] += 1

    with dask.config.set(scheduler="synchronous"), dask.callbacks.Callback(posttask=count):
        lazy = da.from_array(rows, chunks=(5, D)).map_blocks(sp.csr_matrix)
        found = SecondMoments.from_parts([per_chunk(lazy).take(np.arange(N) % 2 == 0)])[0]
    assert_same_moments(found, SecondMoments.from_data(rows[::2]))
    # Each of the 200 chunks has one task, which reads the chunk and adds it to a sum. One more task
    # adds the two sums of the two threads.
    assert tasks[0] == 201
    assert max(held) <= 3


def test_single_precision_is_passed_on_to_the_tasks(rows: Any) -> None:
    double = SecondMoments.from_data(_lazy(rows))
    single = SecondMoments.from_data(_lazy(rows), precision="single")
    difference = np.abs(double.covariance - single.covariance).max()
    assert 0 < difference < 2e-6 * np.abs(double.covariance).max()


def test_nothing_is_computed_before_it_is_requested(rows: Any) -> None:
    fitted = CPCA(alpha=0).fit(rows, background=rows)

    def fails(chunk: Any) -> Any:
        raise OSError("computed")

    scores = fitted.transform(_lazy(rows).map_blocks(fails, meta=np.empty((0, 0))))
    with pytest.raises(OSError, match="computed"):
        scores.compute()


def test_foreground_and_background_may_differ_in_kind(rows: Any) -> None:
    lazy, few = _lazy(rows), rows[:200]
    expected = CPCA(alpha=0.3).fit(rows, background=few).components_
    for X, background in ((lazy, few), (rows, _lazy(few)), (lazy, lazy[:200])):
        fitted = CPCA(alpha=0.3).fit(X, background=background)
        np.testing.assert_allclose(fitted.components_, expected, atol=1e-10)


def test_errors_name_the_chunk(rows: Any) -> None:
    bad = rows.copy()
    bad[500, 3] = np.nan
    with pytest.raises(ValueError, match=r"chunk 5 of X contains NaN or inf .* feature 3"):
        SecondMoments.from_data(per_chunk(_lazy(bad)))
    fitted = CPCA(alpha=0).fit(rows, background=rows)
    with pytest.raises(ValueError, match="chunk 5 of X contains NaN or inf"):
        fitted.transform(_lazy(bad)).compute()
    lazy = _lazy(rows)
    for empty in (lazy[:0], lazy[lazy[:, 0] > 1e9]):
        with pytest.raises(ValueError, match=r"X has no rows \(n_samples=0\)"):
            SecondMoments.from_data(empty)


def _kill_once(chunk: Any, marker: str, block_id: Any = None) -> Any:
    """Return the chunk, but kill the process that is the first one to compute chunk (6, 0).

    The results that this process has computed before are lost.
    """
    if block_id == (6, 0):
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return chunk
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.01)  # gives the other worker time to take tasks
    return chunk


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="SIGKILL is a POSIX signal")
def test_a_killed_worker_does_not_change_the_result(
    rows: Any, cluster: Any, tmp_path: Path
) -> None:
    marker = tmp_path / "killed"
    before = set(cluster.run(os.getpid).values())
    lazy = _lazy(rows).map_blocks(_kill_once, str(marker), dtype=rows.dtype, meta=rows[:0])
    assert_same_moments(SecondMoments.from_data(per_chunk(lazy)), SecondMoments.from_data(rows))
    assert marker.exists()
    cluster.wait_for_workers(2, timeout=60)
    after = set(cluster.run(os.getpid).values())
    assert len(before - after) == 1  # one worker was killed and another one was started
    fitted = CPCA(alpha=1).fit(lazy, background=lazy[:300])
    expected = CPCA(alpha=1).fit(rows, background=rows[:300])
    scores = fitted.transform(lazy).compute()
    np.testing.assert_allclose(scores, expected.transform(rows), atol=1e-10)
