"""Tests of the plugin's manifest and of its sample data."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import files

import numpy as np
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


def test_samples_are_the_same_each_time_and_lie_within_their_limits():
    from napari_plugin import _sample_data

    photographs, digits = _sample_data.digits_on_photographs()
    ((image, fringes, _),) = _sample_data.cells_behind_fringes()
    for data, keywords, kind in (photographs, digits, (image, fringes, "image")):
        low, high = keywords["contrast_limits"]
        assert (kind, data.dtype, data.shape[-1] in (28, 512)) == ("image", np.float32, True)
        assert np.mean((data >= low) & (data <= high)) > 0.98
    assert digits[1]["name"] == "digits on photographs"
    np.testing.assert_array_equal(_sample_data.digits_on_photographs()[1][0], digits[0])
    assert abs(fringes["metadata"]["clean"][:150, :150]).max() < 0.01


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
def test_the_sample_makes_nothing_when_imported_and_the_model_needs_no_window(code, absent):
    code += f"; import sys; print(set({absent.split()}) & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "set()\n", result.stderr
