#!/usr/bin/env bash
# Builds the wheel and the sdist in dist/ and tests both. It installs the wheel with each extra in an
# empty environment and imports it, and it runs some tests from the unpacked sdist. It needs a package
# index. It fails at the end if the public address of the repository is not known (scripts/address.py),
# because an uploaded release cannot be changed.
# PYTHONS="3.11 3.13" chooses the interpreters. EXTRAS="- scanpy" chooses the extras; - means no extra.
# TORCH=torch==2.13.0+cpu, or the path of a wheel, also tests the extra torch with that build. The
# default build of the index brings gigabytes of CUDA libraries.
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
        napari) echo "import napari_plugin._model" ;; # the extra installs no Qt binding
        torch) echo "import torch; from contrast_core import *; CVAE()" ;;
        posterior) echo "import arviz, nutpie; from contrast_core import *" ;;
        *) echo "from contrast_core import *" ;;
    esac
}

pythons="${PYTHONS:-3.11}"
cd "$work" # in the repository, Python would import the packages of its folders
for python in $pythons; do
    for extra in ${EXTRAS:-- scanpy napari posterior dask fast ${TORCH:+torch}}; do
        "$uv" venv --quiet --clear --python "$python" env
        if [ "$extra" = - ]; then wanted="$wheel"; else wanted="$wheel[$extra]"; fi
        [ "$extra" != torch ] || "$uv" pip install --quiet --python env/bin/python "$TORCH"
        "$uv" pip install --quiet --python env/bin/python "$wanted"
        env/bin/python -c "$(imports_of "$extra")"
        echo "release: wheel, Python $python, extra $extra: imports"
    done
done

tar -xzf "$OLDPWD/dist/contrast_suite-$version.tar.gz"
"$uv" venv --quiet --clear --python "${pythons%% *}" env
cd "contrast_suite-$version"
"$uv" pip install --quiet --python ../env/bin/python '.[all,test]'
../env/bin/python -m pytest -q tests/test_docs.py tests/core/test_cpca.py
echo "release: the tests pass from the sdist"

if ! ../env/bin/python scripts/address.py; then
    echo "release: everything was tested, but do not upload it without an address" >&2
    exit 1
fi
