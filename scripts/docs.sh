#!/usr/bin/env bash
# The documentation into docs/_build/html: draws its pictures, and takes every warning for an error.
# Without network. Arguments go to sphinx.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh
export OPENBLAS_NUM_THREADS="${OPENBLAS_NUM_THREADS:-1}"
.venv/bin/python docs/draw.py
.venv/bin/python -m sphinx --fail-on-warning --keep-going --quiet -b html "$@" docs docs/_build/html
echo "docs: docs/_build/html/index.html" >&2
