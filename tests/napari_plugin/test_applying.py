"""Results that are computed on view, and the script that gives the same."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import dask
import numpy as np
import pytest

from contrast_core.datasets import cells_behind_fringes
from contrast_core.images import Frames, Patches
from napari_plugin._apply import Denoised, as_layer_data
from napari_plugin._copy import as_python
from napari_plugin._model import RemovalModel, Task
from napari_plugin._pair import Images, Pair
from napari_plugin._settings import Settings
from tests.napari_plugin.plain import finish, make_film, marked, pair_of, run


@pytest.fixture(scope="module")
def fringes():
    return cells_behind_fringes((160, 160))


@pytest.fixture(scope="module")
def film():
    return make_film()


def test_a_lazy_result_is_not_computed_by_the_run(film, monkeypatch):
    computed = []
    original = Denoised._computed
    monkeypatch.setattr(
        Denoised, "_computed", lambda self, x: computed.append(len(x)) or original(self, x)
    )
    task = Task(pair_of(film), Frames(), Settings("cpca", n_components=2), (3,), 2**33)
    finish(RemovalModel().run(task))
    assert sum(computed) <= 33 < 80


def test_looking_at_one_image_computes_little_beside_it(film, fringes, monkeypatch):
    """As napari reads dask arrays, whole chunks at a time: in its window's thread, too."""
    computed = []
    original = Denoised._computed
    monkeypatch.setattr(
        Denoised, "_computed", lambda self, x: computed.append(x.size) or original(self, x)
    )
    mask = np.zeros(fringes.image.shape, dtype=bool)
    mask[4:60, 4:60] = True
    stack = np.stack([fringes.image] * 3)
    settings = Settings("cpca", n_components=2)
    images = Pair(Images("cells", stack), mask=mask)
    _, by_patches, _ = run(images, Patches(8, 4), settings)
    _, by_frames, _ = run(pair_of(film), Frames(), settings)
    long = Images("cells", np.broadcast_to(film[0][:1], (20_000, 6, 5)))
    with dask.config.set({"optimization.fuse.active": False}):
        for solution, shown, most in [
            (by_patches, images.foreground, fringes.image.size),
            (by_frames, long, 2**17),
        ]:
            computed.clear()
            as_layer_data(Denoised(solution, shown))[1].compute()
            assert 0 < sum(computed) <= most


def test_slicing_a_lazy_result_is_slicing_the_whole(film, fringes):
    stack = film[0].reshape(10, 8, 6, 5)
    settings = Settings("cpca", n_components=2)
    pair = Pair(Images("cells", stack), Images("empty", film[1]))
    _, solution, whole = run(pair, Frames(), settings)
    lazy = Denoised(solution, pair.foreground)
    data = as_layer_data(lazy)
    assert data.shape == whole.shape
    assert data.dtype == whole.dtype
    for index in [
        (0, 0),
        (slice(None), 3),
        (-1, slice(1, 7, 2), slice(2, 4)),
        (...,),
        (slice(2, 4), slice(None, None, -3), 1, 2),
        (..., 2),
    ]:
        np.testing.assert_allclose(lazy[index], whole[index], atol=1e-5)
        np.testing.assert_allclose(data[index].compute(), whole[index], atol=1e-5)
    np.testing.assert_allclose(np.asarray(lazy), whole, atol=1e-5)
    pair = Pair(Images("cells", fringes.image), mask=fringes.empty)
    _, solution, whole = run(pair, Patches(16, 4), Settings())
    np.testing.assert_allclose(
        Denoised(solution, pair.foreground)[20:90, 5], whole[20:90, 5], atol=1e-5
    )


def test_missing_pixels_stay_missing_in_a_lazy_result(film):
    pair = pair_of(film)
    _, solution, whole = run(pair, Frames(), Settings("cpca", n_components=2))
    holed = film[0].copy()
    holed[3, 2, 2] = np.nan
    found = Denoised(solution, Images("cells", holed))[2:5]
    assert np.isnan(found[1, 2, 2])
    assert np.isfinite(found).sum() == found.size - 1
    np.testing.assert_allclose(found[0], whole[2], atol=1e-5)


@pytest.mark.parametrize("method", ["automatic", "cpca", "pcpca", "cpca_star", "pca"])
@pytest.mark.parametrize("samples", [Frames(), Patches(16, 4)])
def test_the_copied_script_gives_the_same(film, fringes, method, samples, monkeypatch):
    import napari

    settings = Settings(method, n_components=3)
    if samples == Frames():
        stack = np.concatenate(film)
        pair = Pair(Images("cells", stack), mask=marked(140, 80, 140))
    else:
        pair = Pair(Images("cells", fringes.image), mask=fringes.empty)
    _, solution, found = run(pair, samples, settings)

    viewer = SimpleNamespace(layers={"cells": pair.foreground})
    monkeypatch.setattr(napari, "current_viewer", lambda: viewer)
    names = {}
    exec(as_python(pair, solution), names)
    np.testing.assert_allclose(names["denoised"], found, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_the_model_needs_neither_qt_nor_napari():
    code = (
        "import sys\n"
        "from napari_plugin import _apply, _cache, _copy, _estimate, _export, _saved\n"
        "print({'PyQt5', 'PyQt6', 'PySide2', 'PySide6', 'qtpy', 'superqt', 'magicgui', 'napari', "
        "'vispy'} & {name.partition('.')[0] for name in sys.modules})"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "set()\n", result.stderr
