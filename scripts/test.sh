#!/usr/bin/env bash
# Checks the project in one command on a bare machine: style, types, import rules, the napari manifest,
# and the tests that are not marked slow. `--all`, as the first argument, adds the documentation, the demo
# and the slow tests, which include the tutorials. Other arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The tests start dozens of processes. If Python kept no bytecode, as in many containers, each of them
# would compile all modules again.
unset PYTHONDONTWRITEBYTECODE

tests=(-m "not slow")
if [ "${1:-}" = --all ]; then
    shift
    tests=()
fi
scripts/setup.sh
PATH="$PWD/.venv/bin:$PATH"
ruff check .
ruff format --check .
lint-imports
npe2 validate contrast-suite
mypy &
types=$!
if [ ${#tests[@]} -eq 0 ]; then
    scripts/docs.sh
    scripts/demo.sh
fi
python -m pytest -n 2 --dist worksteal "${tests[@]}" "$@"
wait "$types"
