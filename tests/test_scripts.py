"""Tests of the set-up script, with replacements for the commands that change the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)"

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


def set_up(folder: Path, apt_get: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run scripts/setup.sh in a project that has its .venv but lacks its system packages.

    `apt_get` is shell code that replaces apt-get. The arguments of each call are kept in the file
    `calls`.
    """
    (folder / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup.sh", folder / "scripts")
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "python").symlink_to(sys.executable)
    stamp = "cat pyproject.toml scripts/setup.sh | cksum >.venv/.contrast-suite"
    subprocess.run(["bash", "-c", stamp], cwd=folder, check=True)
    commands = {
        "id": "echo 0",
        "dpkg-query": "exit 1",
        "sleep": "",
        "apt-get": f'echo "$*" >>{folder}/calls\n{apt_get}',
    }
    (folder / "bin").mkdir()
    for name, code in commands.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{code}\n")
        (folder / "bin" / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"} | variables
    command = ["bash", "scripts/setup.sh"]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_set_up_waits_for_another_apt(tmp_path: Path) -> None:
    busy = f'[ "$(grep -c update {tmp_path}/calls)" -gt 2 ] || {{ echo "{LOCKED}"; exit 100; }}'
    done = set_up(tmp_path, busy)
    assert done.returncode == 0, done.stderr
    assert "waiting for another apt to end" in done.stderr
    *updates, install = (tmp_path / "calls").read_text().splitlines()
    assert updates == ["update -qq"] * 3
    assert "DPkg::Lock::Timeout=" in install
    assert "xvfb" in install


@pytest.mark.parametrize("command", ["update", "install"])
def test_the_set_up_stops_if_packages_cannot_be_installed(tmp_path: Path, command: str) -> None:
    done = set_up(tmp_path, f'case "$*" in *{command}*) exit 100;; esac')
    assert done.returncode == 1
    assert "could not be installed: libgl1" in done.stderr
    assert "SYSTEM_PACKAGES=skip" in done.stderr


def test_the_set_up_continues_without_packages_if_a_variable_allows_it(tmp_path: Path) -> None:
    done = set_up(tmp_path, "exit 100", SYSTEM_PACKAGES="skip")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "calls").exists()
