"""Tests of the runners of `benchmarks`, `validation` and `papers`, and of the mutation script."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAPERS = ROOT / "papers"

pytest.importorskip("matplotlib")


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "1000"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_an_unknown_experiment_is_refused() -> None:
    done = python(str(PAPERS), "cpca_nice")
    assert done.returncode == 2
    assert (
        "no files are called cpca_nice; the known names are clvm, cpca, cpca_star, cvae"
        in done.stderr
    )


@pytest.mark.slow
def test_one_experiment_prints_its_result_beside_the_papers_result() -> None:
    done = python(str(PAPERS / "cpca.py"), "mice")
    assert done.returncode == 0, done.stderr
    assert "Fig. 2: the paper's mouse protein expression" in done.stdout
    [row] = [line for line in done.stdout.splitlines() if line.startswith("silhouette, PCA")]
    assert row.split()[-3:] == ["clusters", "0.072", "reached"]
    assert "-- digits" not in done.stdout


@pytest.mark.slow
def test_the_track_record_prints_the_numbers_of_its_page() -> None:
    done = python(str(ROOT / "validation" / "track_record.py"), "sensors")
    assert done.returncode == 0, done.stderr
    page = (ROOT / "docs" / "track_record.md").read_text(encoding="utf-8").splitlines()
    [start] = [i for i, line in enumerate(page) if line.startswith("| **sensors")]
    printed = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    rows = [line.split("|") for line in printed if " ± " in line]
    assert len(rows) == 12
    for row, shown in zip(rows, page[start:], strict=False):
        assert row[1:3] == shown.split("|")[1:3]
        for one, two in zip(row[3:], shown.split("|")[3:], strict=True):
            numbers = [[float(n) for n in re.findall(r"\d\.\d+", cell)] for cell in (one, two)]
            assert numbers[0] == pytest.approx(numbers[1], abs=0.021)


def test_a_shortfall_is_a_failure_unless_a_reason_is_given() -> None:
    code = """
from benchmarks.common.report import Report, run

def study(report: Report) -> None:
    report.row("as good", 1.0, 2.0, True)
    report.row("short", 2.0, 1.0, False, short="other data")
    report.measured("inside", 1.0, least=1.0)
    {}

run(study)
"""
    good = python("-c", code.format(""))
    lines = good.stdout.splitlines()
    assert [lines[i].split()[-1] for i in (0, 1, 3)] == ["reached", "short", "reached"]
    assert (lines[2], good.returncode) == ("    other data", 0)
    for failure in ('row("worse", 2.0, 1.0, False)', 'bound("worse", False)'):
        bad = python("-c", code.format(f"report.{failure}"))
        assert (bad.stdout.splitlines()[-1], bad.returncode) == ("NOT REACHED: worse", 1)


@pytest.mark.slow
def test_a_mutation_survives_if_no_test_detects_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check what is reported, and that the processes which a test starts end with its run."""
    fcntl = pytest.importorskip("fcntl", reason="this system cannot fork processes")
    pytest.importorskip("pytest_cov")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # other plugins take long to load
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_cov.plugin")
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for name in ("mutants.py", "mutants.toml"):
        shutil.copy(ROOT / "scripts" / name, scripts)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    package = tmp_path / "sums"
    package.mkdir()
    (package / "__init__.py").write_text("def add(a, b):\n    return a + b\n")
    # If the sum is mutated, the test starts a process that holds a lock until it ends.
    held = tmp_path / "held"
    test = f"""
import fcntl, pytest, subprocess, sums

@pytest.mark.parametrize('b', [{{b}}], ids=['a|b'])
def test_a(b):
    if sums.add(0, 1) != 1:
        held = open({str(held)!r}, 'w')
        fcntl.flock(held, fcntl.LOCK_EX)
        subprocess.Popen(['sleep', '60'], pass_fds=[held.fileno()])
    assert sums.add(2, b) == 2 + b
"""
    (tmp_path / "test_sums.py").write_text(test.format(b=0))
    kept = tmp_path / "coverage"
    command = (str(scripts / "mutants.py"), str(package), "--tests", ".", "--coverage", str(kept))
    done = python(*command)
    assert done.returncode == 1
    assert "0 of 1 mutations caught (0%)" in done.stdout
    assert "sums/__init__.py:2: return a + b  ->  return a - b  (1 tests)" in done.stdout
    begin = time.monotonic()
    with held.open("r+") as lock:  # the process was started, as the file exists
        fcntl.flock(lock, fcntl.LOCK_EX)
    assert time.monotonic() - begin < 30
    (tmp_path / "test_sums.py").write_text(test.format(b=1))
    done = python(*command)
    assert (done.returncode, done.stdout) == (0, "1 of 1 mutations caught (100%)\n")
    (tmp_path / "test_sums.py").write_text("import sums\n")  # the measured test is gone
    assert "fail even without a mutation" in python(*command).stderr
