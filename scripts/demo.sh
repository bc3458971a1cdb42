#!/usr/bin/env bash
# Runs the three packages on real data and saves pictures in demo-output/. It first installs whatever is
# missing, so it also works on a new machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh
# If the linear algebra library uses more threads than there are idle cores, these small problems become
# very slow.
export OPENBLAS_NUM_THREADS="${OPENBLAS_NUM_THREADS:-1}"
run=(.venv/bin/python scripts/demo.py)
if [ "$(uname -s)" = Linux ] && [ -z "${DISPLAY:-}" ] && [ -z "${WAYLAND_DISPLAY:-}" ]; then
    if ! command -v xvfb-run >/dev/null; then
        echo "demo: the napari window needs a display (DISPLAY) or xvfb-run (Debian: xvfb, xauth)" >&2
        exit 1
    fi
    run=(xvfb-run -a -s "-screen 0 1600x1000x24 -noreset" "${run[@]}")
fi
exec "${run[@]}"
