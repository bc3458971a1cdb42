#!/usr/bin/env bash
# All checks of the project, in one command on a bare machine: style, types, import rules, the napari
# manifest, the documentation, the demo, then the tests, doctests and tutorials. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh
PATH="$PWD/.venv/bin:$PATH"
ruff check .
ruff format --check .
mypy
lint-imports
npe2 validate contrast-suite
scripts/docs.sh
scripts/demo.sh
python -m pytest "$@"
