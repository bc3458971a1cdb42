"""Tests of saved results and models and of processed folders, without a window."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import tifffile
import zarr

from contrast_core import SecondMoments, save
from contrast_core.datasets import cells_behind_fringes
from contrast_core.images import Frames, Patches
from napari_plugin._files import Calibration, export, open_images
from napari_plugin._model import as_lazy
from napari_plugin._pair import Images, Pair
from napari_plugin._saved import apply_to_folder, load_model, save_model
from napari_plugin._settings import Cancelled, InputError, Settings
from napari_plugin._solve import Solution
from tests.napari_plugin.plain import make_film, pair_of, run

MICRONS = Calibration((2.0, 0.5, 0.25), ("second", "micrometer", "micrometer"), ("t", "y", "x"))


def read_images(path):
    with open_images(path) as (data, calibration):
        return np.asarray(data[...]), calibration


@pytest.fixture(scope="module")
def fringes():
    return cells_behind_fringes((128, 128))


@pytest.fixture(scope="module")
def patch_solution(fringes):
    pair = Pair(Images("cells", fringes.image), mask=fringes.empty)
    return run(pair, Patches(), Settings())[0]


@pytest.fixture(scope="module")
def film():
    return make_film()


@pytest.fixture(scope="module")
def frame_solution(film):
    return {
        method: run(pair_of(film), Frames(), Settings(method, n_components=3))[0]
        for method in ("automatic", "cpca", "pcpca", "cpca_star")
    }


@pytest.mark.parametrize("name", ["film.ome.tif", "film.tif", "film.ome.zarr"])
def test_an_export_is_read_again_with_its_scale(tmp_path, film, frame_solution, name):
    data = as_lazy(frame_solution["cpca"], Images("cells", film[0]))
    path = export(data, tmp_path / name, MICRONS)
    again, calibration = read_images(path)
    np.testing.assert_array_equal(np.asarray(again), data.compute())
    assert calibration.labels == ("t", "y", "x")
    assert calibration.scale[1:] == (0.5, 0.25)
    assert calibration.units[1:] == ("micrometer", "micrometer")
    assert [each.name for each in tmp_path.iterdir()] == [name]
    export(data + 1, path, MICRONS)  # a second export replaces the whole file
    np.testing.assert_array_equal(np.asarray(read_images(path)[0]), (data + 1).compute())


def test_other_programs_read_an_export(tmp_path):
    stack = np.random.default_rng(0).normal(size=(3, 2, 30, 40)).astype(np.float32)
    calibration = Calibration(
        (1.0, 3.0, 0.5, 0.5), ("pixel", *["micrometer"] * 3), ("", "", "y", "x")
    )
    export(stack, tmp_path / "s.ome.tif", calibration)
    with tifffile.TiffFile(tmp_path / "s.ome.tif") as file:
        assert file.series[0].axes == "TZYX"
        assert 'PhysicalSizeZ="3.0"' in file.ome_metadata
        np.testing.assert_array_equal(file.asarray(), stack)
    export(stack, tmp_path / "s.ome.zarr", calibration)
    group = zarr.open_group(str(tmp_path / "s.ome.zarr"), mode="r")
    [image] = group.attrs["multiscales"]
    assert [axis["name"] for axis in image["axes"]] == ["t", "z", "y", "x"]
    assert image["datasets"][0]["coordinateTransformations"][0]["scale"] == [1.0, 3.0, 0.5, 0.5]
    np.testing.assert_array_equal(da.from_zarr(str(tmp_path / "s.ome.zarr" / "0")), stack)


def test_slices_of_every_kind_of_tiff_are_read_lazily(tmp_path):
    stack = np.random.default_rng(0).integers(0, 999, (6, 5, 64, 48)).astype(np.uint16)
    kinds = {
        "plain": {"photometric": "minisblack"},
        "imagej": {"imagej": True, "metadata": {"axes": "TZYX"}},
        "tiles": {"tile": (32, 32), "compression": "zlib", "metadata": {"axes": "TZYX"}},
        "strips": {"rowsperstrip": 5, "compression": "zlib", "byteorder": ">"},
    }
    for name, options in kinds.items():
        tifffile.imwrite(tmp_path / f"{name}.tif", stack, **options)
        with open_images(tmp_path / f"{name}.tif") as (data, _):
            assert not isinstance(data, np.ndarray)
            assert data.shape == stack.shape
            np.testing.assert_array_equal(np.asarray(data[1:3, 2, 10:20]), stack[1:3, 2, 10:20])
    # The file declares these four planes as four samples of each pixel.
    samples = {"photometric": "minisblack", "planarconfig": "separate"}
    tifffile.imwrite(tmp_path / "planes.tif", stack[0, :4], **samples)
    np.testing.assert_array_equal(read_images(tmp_path / "planes.tif")[0], stack[0, :4])
    with tifffile.TiffWriter(tmp_path / "pyramid.ome.tif") as file:
        file.write(stack[0, 0], subifds=1, tile=(16, 16))
        file.write(stack[0, 0, ::2, ::2], subfiletype=1, tile=(16, 16))
    np.testing.assert_array_equal(read_images(tmp_path / "pyramid.ome.tif")[0], stack[0, 0])


def test_a_folder_is_processed_block_by_block(tmp_path, fringes, patch_solution, monkeypatch):
    asked, original = [], Solution.apply

    def watched(solution, images, *others):
        asked.append(images.shape)
        return original(solution, images, *others)

    stack = np.stack([fringes.image] * 5).astype(np.float32)
    (tmp_path / "in").mkdir()
    export(stack, tmp_path / "in" / "many.ome.zarr", MICRONS)
    path, _ = save_model(patch_solution, tmp_path / "m")
    assert path.name == "m.contrast"  # the dialog lists files with this ending
    expected = patch_solution.apply(Images("", stack))
    monkeypatch.setattr(Solution, "apply", watched)
    assert apply_to_folder(path, tmp_path / "in", tmp_path / "out") == ()
    assert asked == [(1, 128, 128)] * 5
    found, calibration = read_images(tmp_path / "out" / "many.ome.tif")
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert calibration.units[1:] == MICRONS.units[1:]


@pytest.mark.parametrize("name", ["film.ome.tif", "film.ome.zarr"])
def test_a_cancelled_export_leaves_no_file(tmp_path, film, name, monkeypatch):
    monkeypatch.setattr("napari_plugin._files._PIXELS", 90)

    def stop(done, total, doing):
        if done == 4:
            raise Cancelled

    with pytest.raises(Cancelled):
        export(film[0], tmp_path / name, MICRONS, stop)
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_cannot_be_written_is_refused(tmp_path):
    for shape, name, words in ((3, 3), "a.jpg", r"Use \.ome\.tif"), ((1,) * 6, "a.tif", "6 axes"):
        with pytest.raises(InputError, match=words):
            export(np.zeros(shape), tmp_path / name, Calibration.unknown(len(shape)))


def test_a_loaded_model_gives_the_same_result_and_its_slider_still_works(
    tmp_path, film, frame_solution
):
    for method, solution in frame_solution.items():
        path = tmp_path / f"{method}.contrast"
        assert save_model(solution, path) == (path, method != "automatic")
        again = load_model(path, (7, 6, 5))
        assert again.settings.method == method
        assert again.samples == Frames()
        images = Images("cells", film[0])
        np.testing.assert_array_equal(again.apply(images), solution.apply(images))
        assert again.is_live == solution.is_live == (method != "automatic")
        if again.is_live:
            np.testing.assert_allclose(
                again.at(0.7, 3).estimator.components_,
                solution.at(0.7, 3).estimator.components_,
                atol=1e-8,
            )


def test_a_model_of_patches_applies_to_images_of_any_size(tmp_path, fringes, patch_solution):
    path = tmp_path / "fringes.contrast"
    save_model(patch_solution, path)
    image = fringes.image[:90, :70]
    found = load_model(path, image.shape).apply(Images("cells", image))
    whole = patch_solution.apply(Images("cells", fringes.image))
    np.testing.assert_allclose(found[:70, :50], whole[:70, :50], atol=1e-4)
    with pytest.raises(InputError, match="frames or patches of 256 pixels"):
        load_model(path, (10, 12, 12))


def test_a_file_that_is_not_a_model_is_refused(tmp_path, film, frame_solution):
    (tmp_path / "no.contrast").write_text("no")
    with pytest.raises(InputError, match="could not be read: it is not a model"):
        load_model(tmp_path / "no.contrast", (6, 5))
    save(SecondMoments.from_data(film[0].reshape(80, 30)), tmp_path / "moments.contrast")
    with pytest.raises(InputError, match="not a model that was saved here"):
        load_model(tmp_path / "moments.contrast", (6, 5))
    save_model(frame_solution["automatic"], tmp_path / "frames.contrast")
    with pytest.raises(InputError, match=r"of 30 pixels\. It does not fit these images of 8 x 8"):
        load_model(tmp_path / "frames.contrast", (9, 8, 8))


def test_failures_in_a_folder_are_listed(tmp_path, fringes, patch_solution):
    model, source, target = (tmp_path / name for name in ("m.contrast", "in", "out"))
    save_model(patch_solution, model)
    source.mkdir()
    tifffile.imwrite(
        source / "a.tif",
        fringes.image,
        imagej=True,
        resolution=(4.0, 4.0),
        metadata={"unit": "um", "axes": "YX"},
    )
    scale = Calibration((0.5, 0.5), ("micrometer",) * 2, ("y", "x"))
    export(fringes.image[:64], source / "b.ome.zarr", scale)
    tifffile.imwrite(source / "rgb.tif", np.zeros((64, 64, 3), np.uint8), photometric="rgb")
    (source / "broken.tif").write_text("no")
    channels = np.ones((3, 64, 64), np.float32)
    axes = {"axes": "CYX"}
    tifffile.imwrite(source / "c.ome.tif", channels, metadata=axes, photometric="minisblack")
    unknown = Calibration((1.0,) * 3, ("pixel",) * 3, ("c", "y", "x"))
    export(channels, source / "d.ome.zarr", unknown)
    (source / "notes.txt").write_text("no")
    failures = apply_to_folder(model, source, target)
    assert [text.partition(":")[0] for text in failures] == [
        "broken.tif",
        "c.ome.tif",
        "d.ome.zarr",
        "rgb.tif",
    ]
    assert all("holds 3 channels, but files with one channel" in text for text in failures[1:3])
    assert sorted(path.name for path in target.iterdir()) == ["a.ome.tif", "b.ome.tif"]
    found, calibration = read_images(target / "a.ome.tif")
    expected = patch_solution.apply(Images("cells", fringes.image))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert calibration.scale == (0.25, 0.25)
    assert calibration.units == ("micrometer",) * 2
    assert read_images(target / "b.ome.tif")[1].scale == (0.5, 0.5)
    with pytest.raises(InputError, match="Choose another folder for the results"):
        apply_to_folder(model, source, source)
    with pytest.raises(InputError, match="holds no TIFF or OME-Zarr"):
        (tmp_path / "void").mkdir()
        apply_to_folder(model, tmp_path / "void", target)
