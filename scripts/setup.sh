#!/usr/bin/env bash
# Makes .venv with everything that the demo and the tests need. On Debian or Ubuntu it first installs
# the system packages that they need, if it has the permission. It is quick if nothing is missing.
# SYSTEM_PACKAGES=skip goes on without these packages; programs that open a window then fail.
# PYTHON=/path/to/python chooses the interpreter; otherwise the first one that is new enough is taken.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# These are the libraries of Qt and OpenGL, a virtual screen, and the libraries of Qt's X11 window.
APT_PACKAGES="libgl1 libegl1 libglib2.0-0 libfontconfig1 libdbus-1-3 libxkbcommon0
    xvfb xauth libxkbcommon-x11-0 libxcb-cursor0 libxcb-icccm4 libxcb-keysyms1 libxcb-shape0"

say() { printf '%s\n' "setup: $*" >&2; }

# Prints the path of a Python that is new enough and can make virtual environments. Debian ships the
# modules for virtual environments separately.
find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11 python3.14; do
        if [ -n "$candidate" ] && "$candidate" -c \
            'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

apt_installed() {
    # Newer releases renamed some libraries: libglib2.0-0 is libglib2.0-0t64 there.
    local status
    status="$(dpkg-query -W -f '<${db:Status-Status}>' "$1" "$1t64" 2>/dev/null || true)"
    [[ "$status" == *"<installed>"* ]]
}

apt_install() {
    local as_root=""
    if [ "$(id -u)" -ne 0 ]; then
        # sudo asks for a password only in an interactive terminal.
        if command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
            as_root="sudo"
        else
            say "system packages are missing, and only root can install them. Run this command:"
            say "    sudo apt-get install $*"
            return 1
        fi
    fi
    say "installing system packages: $*"
    apt_update &&
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 \
            install -qq -y --no-install-recommends "$@" >/dev/null
}

# Updates apt's list of packages. On a new machine another apt is often running. This function waits
# until that process has ended, because apt's own option for waiting has no effect on updates.
apt_update() {
    local output attempt
    for attempt in {1..120}; do
        if output="$($as_root apt-get update -qq 2>&1)"; then return; fi
        if [[ "$output" != *"ould not get lock"* ]]; then break; fi
        [ "$attempt" -gt 1 ] || say "waiting for another apt to end"
        sleep 5
    done
    say "apt-get update: $output"
    return 1
}

system_packages() {
    local package missing=""
    if [ "${SYSTEM_PACKAGES:-}" = skip ]; then
        say "going on without the system packages of the napari window"
    elif command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; then
        for package in $APT_PACKAGES; do
            apt_installed "$package" || missing="$missing $package"
        done
        if [ ! -x .venv/bin/python ] && ! find_python >/dev/null; then
            missing="$missing python3 python3-venv"
        fi
        # shellcheck disable=SC2086  # a list of names
        if [ -n "$missing" ] && ! apt_install $missing; then
            say "stopping: these system packages could not be installed:$missing"
            say "Install them, or go on without the napari window: SYSTEM_PACKAGES=skip"
            exit 1
        fi
    elif [ "$(uname -s)" = Linux ] && ! command -v xvfb-run >/dev/null; then
        say "this is not Debian or Ubuntu: please install Qt's system libraries (OpenGL, EGL,"
        say "fontconfig, D-Bus, xkbcommon, xkbcommon-x11, xcb-cursor, xcb-util-wm, xcb-util-keysyms)."
        say "On a machine without a screen, the window also needs Xvfb with xvfb-run and xauth."
    fi
}

fingerprint() { cat pyproject.toml scripts/setup.sh | cksum; }

system_packages

if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    if ! python="$(find_python)"; then
        say "no Python 3.11 or newer with venv was found (python3 is $(python3 --version 2>&1))."
        say "Install one (Debian: python3-venv; older Ubuntu: python3.11-venv; macOS: brew install"
        say "python@3.12; or python.org), or name one: PYTHON=/path/to/python scripts/setup.sh"
        exit 1
    fi
    say "making .venv with $python"
    "$python" -m venv --clear .venv
fi

stamp=.venv/.contrast-suite
if [ ! -f "$stamp" ] || [ "$(fingerprint)" != "$(cat "$stamp")" ]; then
    say "installing contrast-suite[all,docs,test] into .venv"
    [ -x .venv/bin/uv ] || .venv/bin/python -m pip install --quiet --disable-pip-version-check uv
    .venv/bin/uv pip install --quiet --compile-bytecode --python .venv/bin/python \
        --editable '.[all,docs,test]'
    # napari compiles functions with numba when a shapes layer is drawn for the first time. That takes
    # half a minute, so it is done here. If it fails, napari compiles them later.
    .venv/bin/python -c 'from napari.layers import Shapes; Shapes().add([[0, 0], [1, 1]])' || true
    fingerprint >"$stamp"
fi
