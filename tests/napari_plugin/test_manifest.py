"""Tests of the plugin's manifest and of its sample data."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import files

import pytest
from npe2 import PluginManifest


def test_the_installed_plugin_is_found_and_valid():
    manifest = PluginManifest.from_distribution("contrast-suite")
    assert manifest.display_name == manifest.name  # otherwise the menu opens a second dock
    assert (files("napari_plugin") / manifest.icon.partition(":")[2]).is_file()
    assert manifest.categories
    manifest.validate_imports()


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        ("_sample_data", "contrast_core.datasets sklearn napari"),
        pytest.param(
            *("_model, _saved", "PyQt5 PyQt6 PySide2 PySide6 qtpy superqt magicgui napari vispy"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_importing_the_sample_data_or_the_model_loads_no_heavy_packages(modules, absent):
    code = f"import sys; from napari_plugin import {modules}; "
    code += f"print(sys.modules.keys() & {absent.split()})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "set()\n", result.stderr
