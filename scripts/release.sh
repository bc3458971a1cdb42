#!/usr/bin/env bash
# What is uploaded, built into dist/ and tried: the wheel with each extra in an empty environment, imports
# only; and some tests from the unpacked sdist. Needs a package index.
# PYTHONS="3.11 3.13" chooses interpreters, EXTRAS="- scanpy" extras (- is none; torch is tried if you say so).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh
uv="$PWD/.venv/bin/uv"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
"$uv" build --quiet --out-dir dist
version="$(.venv/bin/python -c 'import contrast_core; print(contrast_core.__version__)')"
wheel="$PWD/dist/contrast_suite-$version-py3-none-any.whl"

imports_of() {
    case "$1" in
        scanpy) echo "from scanpy_ext import get, pl, pp, tl" ;;
        napari) echo "import napari_plugin._model" ;; # a Qt binding is the user's choice
        posterior) echo "import arviz, nutpie; from contrast_core import *" ;;
        *) echo "from contrast_core import *" ;;
    esac
}

pythons="${PYTHONS:-3.11}"
cd "$work" # not the repository: its packages would be imported
for python in $pythons; do
    for extra in ${EXTRAS:-- scanpy napari posterior dask fast}; do
        "$uv" venv --quiet --clear --python "$python" env
        if [ "$extra" = - ]; then wanted="$wheel"; else wanted="$wheel[$extra]"; fi
        "$uv" pip install --quiet --python env/bin/python "$wanted"
        env/bin/python -c "$(imports_of "$extra")"
        echo "release: wheel, Python $python, extra $extra: imports"
    done
done

tar -xzf "$OLDPWD/dist/contrast_suite-$version.tar.gz"
"$uv" venv --quiet --clear --python "${pythons%% *}" env
cd "contrast_suite-$version"
"$uv" pip install --quiet --python ../env/bin/python '.[all,test]'
../env/bin/python -m pytest -q tests/test_readme.py tests/test_docs.py tests/core/test_cpca.py
echo "release: sdist tests itself"
