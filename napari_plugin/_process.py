"""Long computations in a process of their own, which can be ended at any moment.

Neither a decomposition nor a thread can be interrupted. Data go there and back in files of the
core, which hold numbers only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from contrast_core import load, save
from napari_plugin._settings import InputError, Progress, Steps

_POLL = 0.02  # seconds


class Process:
    """A process for one computation; leaving the context ends it.

    It loads what it needs as soon as it is made.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="contrast-")
        self._log = open(Path(self._folder.name, "log"), "w+", encoding="utf-8")  # noqa: SIM115
        threads = str(max(1, (os.cpu_count() or 1) // 2))  # the window draws on the others
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        self._process = subprocess.Popen(
            # -P: nothing is imported from the folder that the window happened to be started in.
            [sys.executable, "-P", "-m", "napari_plugin._child", self._folder.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            env=dict.fromkeys(names, threads) | dict(os.environ),
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._log.close()
        self._folder.cleanup()

    def call(
        self,
        task: str,
        *,
        models: Mapping[str, Any] | None = None,
        arrays: Mapping[str, NDArray[Any]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Steps[dict[str, Any]]:
        """Have a task of ``_child`` done; the steps go on until it is.

        Raises
        ------
        InputError
            If the task says that the data cannot be worked on.
        RuntimeError
            If the process fails.
        """
        folder = Path(self._folder.name)
        for name, model in (models or {}).items():
            save(model, folder / f"{name}.model")
            yield Progress(0, 1, "Solving")
        for name, array in (arrays or {}).items():
            np.save(folder / f"{name}.npy", array)
            yield Progress(0, 1, "Solving")
        (folder / "task.json").write_text(
            json.dumps({"task": task, "options": dict(options or {})}), encoding="utf-8"
        )
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"go\n")
            self._process.stdin.flush()
        except OSError:  # it ended before
            pass
        while self._process.poll() is None:
            yield Progress(0, 1, "Solving")
            time.sleep(_POLL)
        answer = folder / "answer.json"
        if self._process.returncode or not answer.exists():
            self._log.seek(0)
            raise RuntimeError(f"the solving process failed:\n{self._log.read()[-2000:]}")
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        if "refused" in found:
            raise InputError(found["refused"])
        if (folder / "answer.model").exists():
            found["model"] = load(folder / "answer.model")
        return found
