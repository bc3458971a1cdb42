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
    assert [w.display_name for w in manifest.contributions.widgets] == ["Contrastive denoising"]
    assert [s.display_name for s in manifest.contributions.sample_data] == [
        "Cells behind fringes",
        "Digits on photographs",
    ]


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("from napari_plugin import _sample_data", "contrast_core.datasets sklearn napari"),
        (
            "from napari_plugin import _model, _saved",
            "PyQt5 PyQt6 PySide2 PySide6 qtpy superqt magicgui napari vispy",
        ),
    ],
)
def test_importing_the_sample_data_or_the_model_loads_no_heavy_packages(code, absent):
    code += f"; import sys; print(set({absent.split()}) & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "set()\n", result.stderr
