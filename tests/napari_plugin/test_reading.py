"""Reading, without a window: in blocks, every kind of pixel, and kept."""

from __future__ import annotations

from itertools import pairwise

import dask.array as da
import numpy as np
import pytest
import zarr

from contrast_core import SecondMoments
from contrast_core.datasets import cells_behind_fringes
from contrast_core.images import Frames, Patches
from napari_plugin import _read, _read_patches
from napari_plugin._cache import ReadingCache
from napari_plugin._pair import Images, Pair
from napari_plugin._read import read
from napari_plugin._settings import InputError, Settings
from tests.napari_plugin.plain import finish, make_film, marked, pair_of, run


@pytest.fixture(scope="module")
def fringes():
    return cells_behind_fringes((160, 160))


@pytest.fixture(scope="module")
def film():
    return make_film()


def test_lazy_stacks_are_read_in_blocks_and_give_the_same(film, tmp_path, monkeypatch):
    monkeypatch.setattr(_read, "ELEMENTS", 16 * 30)
    settings = Settings("cpca", n_components=2)
    _, _, expected = run(pair_of(film), Frames(), settings)
    lazy = [da.from_array(stack, chunks=(10, 6, 5)) for stack in film]
    stored = []
    for i, stack in enumerate(film):
        stored.append(zarr.create_array(str(tmp_path / str(i)), data=stack, chunks=(10, 6, 5)))
    for stacks in (lazy, stored):
        reading, reports = finish(read(pair_of(stacks), Frames(), settings))
        assert reading.n_used == 80
        done = [report.done for report in reports]
        assert done == sorted(done)
        assert max(b - a for a, b in pairwise(done)) <= 20
        assert done[0] == 0
        assert done[-1] == reports[-1].total == 140
        np.testing.assert_allclose(run(pair_of(stacks), Frames(), settings)[2], expected, atol=1e-4)


def test_of_many_large_images_some_are_read(monkeypatch):
    read_images = []

    class Counted:
        shape, dtype = (1000, 64, 64), np.dtype("uint8")

        def __getitem__(self, where):
            read_images.append(where[0])
            return np.random.default_rng(where[0]).integers(0, 9, (64, 64), dtype=np.uint8)[
                where[1:]
            ]

    monkeypatch.setattr(_read_patches, "_WINDOWS", 2**12)
    pair = Pair(
        Images("film", Counted()), Images("empty", np.random.default_rng(0).random((64, 64)))
    )
    reading, _ = finish(read(pair, Patches(8, 4), Settings()))
    assert reading.n_used == len(set(read_images)) == 64
    assert (min(read_images), max(read_images)) == (0, 999)
    assert reading.n_images == 1000


@pytest.mark.parametrize("dtype", ["uint8", ">u2", "int16", "float16", "float32"])
def test_every_kind_of_pixel_gives_float32_and_stays_as_it_is(film, dtype):
    stacks = [np.clip(stack, 0, 255).round().astype(dtype) for stack in film]
    before = stacks[0].copy()
    settings = Settings("cpca", n_components=2)
    found = run(pair_of(stacks), Frames(), settings)[2]
    exact = run(pair_of([stack.astype(float) for stack in stacks]), Frames(), settings)[2]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-2)
    np.testing.assert_array_equal(stacks[0], before)


@pytest.mark.parametrize("method", ["automatic", "cpca"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("which", [0, 1])
def test_missing_pixels_are_named_with_layer_and_frame(film, method, bad, which):
    stacks = [stack.copy() for stack in film]
    stacks[which][7, 3, 3] = bad
    name = ("cells", "empty")[which]
    with pytest.raises(InputError, match=rf"'{name}' has empty \(NaN\) .* first in frame 7\. Fill"):
        run(pair_of(stacks), Frames(), Settings(method, n_components=2))


def test_missing_pixels_of_an_image_are_told(fringes):
    image = fringes.image.copy()
    image[150, 3] = np.nan
    with pytest.raises(InputError, match=r"'cells' has empty \(NaN\) or infinite pixels\. Fill"):
        run(Pair(Images("cells", image), mask=fringes.empty), Patches(), Settings())


@pytest.mark.parametrize("method", ["automatic", "cpca"])
def test_a_constant_background_is_told(film, fringes, method):
    constant = Pair(Images("cells", film[0]), Images("empty", np.full((60, 6, 5), 3.0)))
    with pytest.raises(InputError, match=r"background \(.*\) is the same everywhere"):
        run(constant, Frames(), Settings(method, n_components=2))
    image = np.where(fringes.empty, 1.0, fringes.image)
    with pytest.raises(InputError, match=r"The background is the same everywhere"):
        run(Pair(Images("cells", image), mask=fringes.empty), Patches(), Settings(method))


def test_a_reading_is_kept_for_the_same_layers_and_region(film):
    cache, settings = ReadingCache(), Settings("cpca")
    stacks = [stack.copy() for stack in film]
    pair = pair_of(stacks)
    reading, _ = finish(read(pair, Frames(), settings))
    cache.put(pair, Frames(), settings, reading)
    assert cache.get(pair_of(stacks), Frames(), Settings("pcpca", 0.2, 3)) is reading
    assert cache.get(pair, Frames(), Settings()) is None  # which needs the frames
    assert cache.get(pair, Patches(4), settings) is None
    masked = Pair(pair.foreground, mask=marked(80, 9))
    assert cache.get(masked, Frames(), settings) is None
    stacks[0][:, 2:4] += 1
    assert cache.get(pair, Frames(), settings) is None  # painted on
    stacks[0][:, 2:4] -= 1
    small = ReadingCache(most_bytes=1)
    small.put(pair, Frames(), settings, reading)
    small.put(masked, Frames(), settings, reading)
    assert small.get(pair, Frames(), settings) is None
    assert small.get(masked, Frames(), settings) is reading


def test_a_cache_does_not_keep_images_alive(film):
    import gc
    import weakref

    data = film[0].copy()
    watched = weakref.ref(data)
    pair = Pair(Images("cells", data), Images("empty", film[1]))
    cache = ReadingCache()
    reading, _ = finish(read(pair, Frames(), Settings("cpca")))
    cache.put(pair, Frames(), Settings("cpca"), reading)
    del data, pair
    gc.collect()
    assert watched() is None


def test_blocks_of_the_reading_are_of_all_its_frames(film):
    reading, _ = finish(read(pair_of(film), Frames(), Settings("cpca")))
    X = SecondMoments.from_data(film[0].reshape(80, 30))
    assert len(reading.blocks[0]) == 8
    assert sum(block.n_samples for block in reading.blocks[0]) == 80
    np.testing.assert_allclose(reading.foreground.covariance, X.covariance)
