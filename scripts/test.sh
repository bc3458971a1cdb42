#!/usr/bin/env bash
# Checks the project in one command on a bare machine: style, types, import rules, the napari manifest,
# and the tests that are not marked slow. `--all`, as the first argument, adds the documentation, the demo
# and the slow tests, which include the tutorials. Other arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The tests start dozens of processes. If Python kept no bytecode, as in many containers, each of them
# would compile all modules again.
unset PYTHONDONTWRITEBYTECODE

marks="not slow"
if [ "${1:-}" = --all ]; then
    shift
    marks=""
fi
scripts/setup.sh
PATH="$PWD/.venv/bin:$PATH"
ruff check .
ruff format --check .
lint-imports
npe2 validate contrast-suite
# Two cores are better used if these run beside the tests.
mypy &
beside=($!)
if [ -z "$marks" ]; then
    (scripts/docs.sh && scripts/demo.sh) &
    beside+=($!)
fi
status=0
python -m pytest -n 2 --dist worksteal -m "$marks" "$@" || status=$?
for process in "${beside[@]}"; do
    wait "$process" || { status=1 && echo "test: the types, the documentation or the demo failed" >&2; }
done
exit "$status"
