"""Settings of all tests: a single BLAS thread, no plotting window, and the larger real data."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import threadpoolctl
from _pytest.doctest import DoctestModule
from hypothesis import settings

# With more BLAS threads than idle cores, a small eigenproblem takes up to 50 times as long. The
# variables act on libraries that are loaded later, and on processes that tests start.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"
threadpoolctl.threadpool_limits(limits=1)  # acts on libraries that are already loaded
os.environ.setdefault("MPLBACKEND", "Agg")

# Hypothesis draws the same examples in every run. With `--hypothesis-profile explore` it draws
# different examples, and more of them.
settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=20)
settings.register_profile("explore", deadline=None, max_examples=500)
settings.load_profile("fixed")

# Torch is an optional dependency and large. Without it a newcomer can still run all other tests.
NO_TORCH = "torch, which is optional, is not installed; after `pip install torch` this example runs"
NEEDS_TORCH = ("CVAE(", ".cvae(", 'inference="vi"', "torch")  # code of examples that need torch


# Code of examples that take more than a few seconds. For example, `mixing_report` loads umap, and
# `OnlineCPCAStar` compiles its steps.
SLOW = ("mixing_report(", ".posterior(", "cross_validated_penalty(", "OnlineCPCAStar(")


@pytest.hookimpl(tryfirst=True)  # before pytest selects tests by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow examples in docstrings, and skip those that need torch if it is not installed.

    Move the tests that load umap to the front of the list, whose first half goes to one process.
    Then umap, which compiles its functions when it is loaded, is loaded once.
    """
    for item in items:
        if isinstance(item, pytest.DoctestItem):
            code = "".join(example.source for example in item.dtest.examples)
            if any(word in code for word in SLOW):
                item.add_marker(pytest.mark.slow)
            if "mixing_report(" in code:
                item.add_marker(pytest.mark.loads_umap)
            if find_spec("torch") is None and any(word in code for word in NEEDS_TORCH):
                item.add_marker(pytest.mark.skip(reason=NO_TORCH))
    items.sort(key=lambda item: item.get_closest_marker("loads_umap") is None)


def pytest_make_collect_report(collector: pytest.Collector) -> pytest.CollectReport | None:
    """Collect no doctests from test modules.

    If they were collected, a test module that cannot be imported would be skipped without an error.
    """
    if isinstance(collector, DoctestModule):
        return pytest.CollectReport(collector.nodeid, "passed", None, [])
    return None


@pytest.fixture(autouse=True)
def no_open_figures() -> Iterator[None]:
    """Close the figures that earlier tests or examples left open."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close("all")
    yield


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Any]:
    """Yield a client of a local dask cluster of two processes.

    The cluster ends with the test. Otherwise the tests that follow would compute on it too.
    """
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    settings = {
        "distributed.comm.timeouts.connect": "60s",
        "distributed.worker.memory.terminate": False,
        "distributed.scheduler.allowed-failures": 10,
    }
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            local_directory=str(tmp_path / "dask"),
            silence_logs=50,
        ) as started,
        distributed.Client(started) as client,
    ):
        yield client


@pytest.fixture(scope="session")
def contrast_data() -> Path:
    """Return the folder that `CONTRAST_DATA` names, or skip the test if it is not set."""
    folder = os.environ.get("CONTRAST_DATA")
    if not folder:
        pytest.skip(
            "this test needs larger real data, which are too large to ship with the package; "
            "set CONTRAST_DATA to their folder to run it"
        )
    return Path(folder)
