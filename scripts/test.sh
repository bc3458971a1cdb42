#!/usr/bin/env bash
# All checks of the project, in one command on a bare machine: style, types, import rules, the napari
# manifest, then the tests, doctests and tutorials. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh
PATH="$PWD/.venv/bin:$PATH"
# More BLAS threads than cores make small eigenproblems many times slower on a busy machine.
export OPENBLAS_NUM_THREADS=2 OMP_NUM_THREADS=2 MKL_NUM_THREADS=2 NUMBA_NUM_THREADS=2

ruff check .
ruff format --check .
mypy
lint-imports
npe2 validate contrast-suite
python -m pytest "$@"
