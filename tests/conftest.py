"""Settings of all tests: a single BLAS thread, no plotting window, and the larger real data."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import threadpoolctl
from _pytest.doctest import DoctestModule
from hypothesis import settings

# With more BLAS threads than idle cores, a small eigenproblem takes up to 50 times as long. The
# variables reach what is imported from now on, and the processes that tests start.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"
threadpoolctl.threadpool_limits(limits=1)  # and what is loaded already
os.environ.setdefault("MPLBACKEND", "Agg")

# Drawn examples are the same in every run. `--hypothesis-profile explore` draws new and more ones.
settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=20)
settings.register_profile("explore", deadline=None, max_examples=500)
settings.load_profile("fixed")

NEEDS_TORCH = ("CVAE(", ".cvae(", 'inference="vi"', "torch")  # as examples call it


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Examples in docstrings that call what needs torch are skipped where it is not."""
    if find_spec("torch") is None:
        for item in items:
            if isinstance(item, pytest.DoctestItem):
                code = "".join(example.source for example in item.dtest.examples)
                if any(word in code for word in NEEDS_TORCH):
                    item.add_marker(pytest.mark.skip(reason="torch is not installed"))


def pytest_make_collect_report(collector: pytest.Collector) -> pytest.CollectReport | None:
    """Look for no examples in tests: a test module that cannot be imported would be skipped."""
    if isinstance(collector, DoctestModule):
        return pytest.CollectReport(collector.nodeid, "passed", None, [])
    return None


@pytest.fixture(autouse=True)
def no_open_figures() -> Iterator[None]:
    """Figures that an earlier test or example left open are none of this one's, nor the reverse."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close("all")
    yield


@pytest.fixture(scope="session")
def contrast_data() -> Path:
    """The folder of larger real data sets that `CONTRAST_DATA` names; skips where there is none."""
    folder = os.environ.get("CONTRAST_DATA")
    if not folder:
        pytest.skip("CONTRAST_DATA does not name the folder of the larger real data sets")
    return Path(folder)
