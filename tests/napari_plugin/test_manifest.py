"""The manifest, as npe2 and napari see it."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import files

import numpy as np
from npe2 import PluginManifest


def test_the_installed_plugin_is_found_and_valid():
    manifest = PluginManifest.from_distribution("contrast-suite")
    assert manifest.display_name == manifest.name  # else the menu opens a second dock
    assert (files("napari_plugin") / manifest.icon.partition(":")[2]).is_file()
    assert manifest.categories
    manifest.validate_imports()
    assert [w.display_name for w in manifest.contributions.widgets] == ["Contrastive denoising"]
    assert [s.display_name for s in manifest.contributions.sample_data] == [
        "Cells behind fringes",
        "Digits on photographs",
    ]


def test_command_line_validates_and_lists_it():
    path = str(files("napari_plugin") / "napari.yaml")
    npe2 = [sys.executable, "-m", "npe2"]
    validated = subprocess.run([*npe2, "validate", path], capture_output=True, text=True)
    assert validated.returncode == 0, validated.stdout + validated.stderr
    listed = subprocess.run([*npe2, "list"], capture_output=True, text=True)
    assert "contrast-suite" in listed.stdout


def test_sample_is_two_stacks_of_equal_frames_made_alike_each_time():
    from napari_plugin._sample_data import digits_on_photographs

    background, foreground = digits_on_photographs()
    assert [layer[1]["name"] for layer in (background, foreground)] == [
        "photographs",
        "digits on photographs",
    ]
    for data, keywords, kind in (background, foreground):
        assert kind == "image"
        assert data.dtype == np.float32
        assert data.shape[1:] == (28, 28)
        low, high = keywords["contrast_limits"]
        assert low <= data.min() < data.max() <= high
    np.testing.assert_array_equal(digits_on_photographs()[1][0], foreground[0])


def test_the_other_sample_is_an_image_with_known_cells():
    from napari_plugin._sample_data import cells_behind_fringes

    ((image, keywords, kind),) = cells_behind_fringes()
    assert kind == "image"
    assert image.shape == keywords["metadata"]["clean"].shape == (512, 512)
    low, high = keywords["contrast_limits"]
    assert np.mean((image > low) & (image < high)) > 0.98
    assert abs(keywords["metadata"]["clean"][:150, :150]).max() < 0.01


def test_importing_the_sample_makes_nothing():
    code = (
        "import sys, napari_plugin._sample_data; "
        "print({'contrast_core.datasets', 'sklearn', 'napari'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "set()\n", result.stderr
