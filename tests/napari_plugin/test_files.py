"""Tests of files: exported results, images that are read, saved models and processed folders."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import tifffile
import zarr

from contrast_core import SecondMoments, save
from contrast_core.images import Frames, Patches
from napari_plugin._files import Calibration, export, open_images
from napari_plugin._model import as_lazy
from napari_plugin._pair import Images, Pair
from napari_plugin._saved import load_model, save_model
from napari_plugin._settings import Cancelled, InputError, Settings, no_report
from napari_plugin._solve import fit
from tests.napari_plugin.conftest import cancel_at, pair_of, stripes

MICRONS = Calibration((2.0, 0.5, 0.25), ("second", "micrometer", "micrometer"), ("t", "y", "x"))


def read_images(path):
    with open_images(path) as (data, calibration):
        return np.asarray(data[...]), calibration


@pytest.fixture(scope="module")
def frame_solution(film):
    return {
        method: fit(pair_of(film), Frames(), Settings(method, n_components=3), no_report)
        for method in ("automatic", "cpca", "pcpca", "cpca_star")
    }


@pytest.mark.parametrize("name", ["film.ome.tif", "film.tif", "film.ome.zarr"])
def test_an_export_is_read_again_with_its_scale(tmp_path, film, frame_solution, name):
    data = as_lazy(frame_solution["cpca"], Images("cells", film[0]))
    for version in (data, data + 1):  # a second export replaces the whole file
        export(version, tmp_path / name, MICRONS)
        again, calibration = read_images(tmp_path / name)
        np.testing.assert_array_equal(again, version.compute())
        assert calibration.labels == MICRONS.labels
        assert calibration.scale[1:] == MICRONS.scale[1:]
        assert calibration.units[1:] == MICRONS.units[1:]
        assert [each.name for each in tmp_path.iterdir()] == [name]


def test_other_programs_read_an_export(tmp_path):
    stack = np.random.default_rng(0).normal(size=(3, 2, 30, 40)).astype(np.float32)
    scale, units = (1.0, 3.0, 0.5, 0.5), ("pixel", *["micrometer"] * 3)
    tiff, ome_zarr = (tmp_path / name for name in ("s.ome.tif", "s.ome.zarr"))
    for path in (tiff, ome_zarr):
        export(stack, path, Calibration(scale, units, ("", "", "y", "x")))
    with tifffile.TiffFile(tiff) as file:
        assert file.series[0].axes == "TZYX"
        assert 'PhysicalSizeZ="3.0"' in file.ome_metadata
        np.testing.assert_array_equal(file.asarray(), stack)
    [image] = zarr.open_group(str(ome_zarr), mode="r").attrs["multiscales"]
    assert [axis["name"] for axis in image["axes"]] == ["t", "z", "y", "x"]
    assert image["datasets"][0]["coordinateTransformations"][0]["scale"] == list(scale)
    np.testing.assert_array_equal(da.from_zarr(str(ome_zarr / "0")), stack)


def test_slices_of_every_kind_of_tiff_are_read_lazily(tmp_path):
    stack = np.random.default_rng(0).integers(0, 999, (6, 5, 64, 48)).astype(np.uint16)
    path, plain = tmp_path / "stack.tif", {"photometric": "minisblack"}
    axes = {"metadata": {"axes": "TZYX"}}
    imagej = {"imagej": True} | axes
    tiles = {"tile": (32, 32), "compression": "zlib"} | axes
    strips = {"rowsperstrip": 5, "compression": "zlib", "byteorder": ">"}
    for options in (plain, imagej, tiles, strips):
        tifffile.imwrite(path, stack, **options)
        with open_images(path) as (data, _):
            assert not isinstance(data, np.ndarray)
            assert data.shape == stack.shape
            np.testing.assert_array_equal(np.asarray(data[1:3, 2, 10:20]), stack[1:3, 2, 10:20])
    # The file declares these four planes as four samples of each pixel.
    tifffile.imwrite(path, stack[0, :4], planarconfig="separate", **plain)
    np.testing.assert_array_equal(read_images(path)[0], stack[0, :4])
    pyramid = tmp_path / "pyramid.ome.tif"
    with tifffile.TiffWriter(pyramid) as file:
        file.write(stack[0, 0], subifds=1, tile=(16, 16))
        file.write(stack[0, 0, ::2, ::2], subfiletype=1, tile=(16, 16))
    np.testing.assert_array_equal(read_images(pyramid)[0], stack[0, 0])


@pytest.mark.parametrize("name", ["film.ome.tif", "film.ome.zarr"])
def test_a_cancelled_export_leaves_no_file(tmp_path, film, name, monkeypatch):
    monkeypatch.setattr("napari_plugin._files._PIXELS", 90)
    with pytest.raises(Cancelled):
        export(film[0], tmp_path / name, MICRONS, cancel_at(5))
    assert list(tmp_path.iterdir()) == []


def test_images_with_more_axes_than_a_format_has_are_refused(tmp_path):
    with pytest.raises(InputError, match="6 axes"):
        export(np.zeros((1,) * 6), tmp_path / "a.tif", Calibration.unknown(6))


def test_a_loaded_model_gives_the_same_result_and_its_slider_still_works(
    tmp_path, film, frame_solution
):
    for method, solution in frame_solution.items():
        path = tmp_path / f"{method}.contrast"
        assert save_model(solution, path) == (path, method != "automatic")
        again = load_model(path, (7, 6, 5))
        assert (again.settings.method, again.samples) == (method, Frames())
        images = Images("cells", film[0])
        np.testing.assert_array_equal(again.apply(images), solution.apply(images))
        assert again.is_live == solution.is_live == (method != "automatic")
        if again.is_live:
            moved, expected = (each.at(0.7, 3).estimator.components_ for each in (again, solution))
            np.testing.assert_allclose(moved, expected, atol=1e-8)


def test_a_model_of_patches_applies_to_images_of_any_size(tmp_path, fringes):
    pair = Pair(Images("cells", fringes.image), mask=fringes.empty)
    solution = fit(pair, Patches(), Settings(), no_report)
    path, _ = save_model(solution, tmp_path / "fringes.contrast")
    image = fringes.image[:90, :70]
    found = load_model(path, image.shape).apply(Images("cells", image))
    whole = solution.apply(pair.foreground)
    np.testing.assert_allclose(found[:70, :50], whole[:70, :50], atol=1e-4)
    with pytest.raises(InputError, match="frames or patches of 256 pixels"):
        load_model(path, (10, 12, 12))


def test_a_file_that_is_not_a_model_for_these_images_is_refused(tmp_path, film, frame_solution):
    path = tmp_path / "no.contrast"
    path.write_text("no")
    with pytest.raises(InputError, match="could not be read: it is not a model"):
        load_model(path, (6, 5))
    save(SecondMoments.from_data(film[0].reshape(80, 30)), path)
    with pytest.raises(InputError, match="not a model that was saved here"):
        load_model(path, (6, 5))
    save_model(frame_solution["automatic"], path)
    with pytest.raises(InputError, match=r"of 30 pixels\. It does not fit these images of 8 x 8"):
        load_model(path, (9, 8, 8))


def write_folder(folder, image):
    """Write an image in several formats, and files that are refused or ignored."""
    folder.mkdir()
    stack, channels = np.stack([image] * 3), {"metadata": {"axes": "CYX"}}
    microns = {"imagej": True, "resolution": (4.0, 4.0), "metadata": {"unit": "um", "axes": "YX"}}
    tifffile.imwrite(folder / "a.tif", image, **microns)
    export(stack, folder / "b.ome.zarr", MICRONS)
    tifffile.imwrite(folder / "c.ome.tif", stack, photometric="minisblack", **channels)
    export(stack, folder / "d.ome.zarr", Calibration((1.0,) * 3, ("pixel",) * 3, ("c", "y", "x")))
    for name in ("h.tif", "h.tiff"):
        tifffile.imwrite(folder / name, image)
    tifffile.imwrite(folder / "rgb.tif", np.zeros((64, 64, 3), np.uint8), photometric="rgb")
    for name in ("broken.tif", "notes.txt"):
        (folder / name).write_text("no")


def test_a_saved_model_repeats_the_result_on_the_image_and_on_a_folder(
    viewer, picture, tmp_path, applied
):
    source, target, empty = (tmp_path / name for name in ("in", "out", "empty"))
    empty.mkdir()
    write_folder(source, stripes().astype(np.float32))
    picture.choose("cells", method="cpca")
    picture.run()
    expected = picture.data("cells denoised")
    picture.run("export", tmp_path / "out.ome.tif")
    assert "Written to" in picture.words
    np.testing.assert_array_equal(read_images(tmp_path / "out.ome.tif")[0], expected)
    picture.run("folder")
    assert "No model is loaded" in picture.words
    picture.run("save", tmp_path / "m")
    assert "Saved as m.contrast" in picture.words  # the dialog lists files with this ending
    asked = picture.run("load", tmp_path / "m.contrast")
    assert "*.contrast" in asked.call_args.args[-1]
    viewer.layers.remove("background")
    picture.run()
    again = viewer.layers["cells denoised [1]"]
    np.testing.assert_allclose(again.data.compute(), expected, atol=1e-5)
    picture.widget.view.value = "Weights"
    picture.method.suppression.value = 75  # the slider still works
    picture.wait()
    maps = picture.widget.results.current.outcome.maps
    np.testing.assert_array_equal(picture.data("cells weights"), maps)
    assert again.metadata["contrast-suite"]["suppression"] == 0.75

    picture.run("folder", source, source)
    assert "Choose another folder for the results" in picture.words
    picture.run("folder", empty, target)
    assert "holds no TIFF or OME-Zarr" in picture.words
    applied.clear()
    picture.run("folder", source, target)
    assert [n_pixels for _, n_pixels in applied] == [64 * 64] * 6  # image by image
    _, *failures = picture.words.split("\n\n")
    refused = ["broken.tif", "c.ome.tif", "d.ome.zarr", "rgb.tif"]
    assert [text.partition(":")[0] for text in failures] == refused
    assert all("holds 3 channels, but files with one channel" in text for text in failures[1:3])
    written = sorted(target.iterdir())
    found, calibrations = zip(*map(read_images, written), strict=True)
    assert [path.name for path in written] == [
        f"{name}.ome.tif" for name in ("a", "b", "h.tif", "h.tiff")
    ]
    for image in found:
        np.testing.assert_allclose(image, np.broadcast_to(expected, image.shape), atol=1e-5)
    assert [each.scale[-2:] for each in calibrations[:2]] == [(0.25, 0.25), (0.5, 0.25)]
    assert [each.units[-1] for each in calibrations[:2]] == ["micrometer"] * 2
    picture.run("folder", target, tmp_path / "again")
    assert picture.words.startswith("Done: the results are in")
    picture.run("load")  # the button now unloads the model
    assert picture.widget.reuse.path is None
    assert picture.choices.kind.enabled
