#!/usr/bin/env bash
# Draws the pictures of the documentation and builds its pages in docs/_build/html. Warnings are errors.
# The build needs no network. Arguments go to sphinx.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh
export OPENBLAS_NUM_THREADS="${OPENBLAS_NUM_THREADS:-1}"
.venv/bin/python docs/draw.py
.venv/bin/python -m sphinx --fail-on-warning --keep-going --quiet -b html "$@" docs docs/_build/html
echo "docs: docs/_build/html/index.html" >&2
