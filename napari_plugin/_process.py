"""Long computations in a process of their own, which can be ended at any moment.

SciPy's decompositions cannot be interrupted, and they hold Python's lock, so that even in a thread
one of 1,000 features stops the window for a tenth of a second.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from napari_plugin._settings import Report

_POLL = 0.02  # seconds


def compute(report: Report, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return ``function(*arguments)``, both of which can be pickled.

    The process ends at once if `report` raises. Exceptions of the function are raised here.
    """
    report(0, 0, "Solving")
    threads = str(max(1, (os.cpu_count() or 1) // 2))  # the window draws on the others
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    with tempfile.TemporaryDirectory(prefix="contrast-") as folder:
        Path(folder, "question").write_bytes(pickle.dumps((function, arguments)))
        with Path(folder, "log").open("w") as log:
            process = subprocess.Popen(
                # -P: nothing is imported from the folder that the window was started in.
                [sys.executable, "-P", "-m", "napari_plugin._process", folder],
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=dict.fromkeys(names, threads) | dict(os.environ),
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
            try:
                while process.poll() is None:
                    report(0, 0, "Solving")
                    time.sleep(_POLL)
            finally:
                process.kill()
                process.wait()
        if process.returncode:
            said = Path(folder, "log").read_text(errors="replace")[-2000:]
            raise RuntimeError(f"the solving process failed:\n{said}")
        answer = pickle.loads(Path(folder, "answer").read_bytes())
    if isinstance(answer, Exception):
        raise answer
    return answer


def _main(folder: str) -> None:
    function, arguments = pickle.loads(Path(folder, "question").read_bytes())
    try:
        answer = function(*arguments)
    except Exception as error:
        answer = error
    Path(folder, "answer").write_bytes(pickle.dumps(answer))


if __name__ == "__main__":
    _main(sys.argv[1])
