"""Tests of simulated and bundled data: their known properties, and repeatable seeds."""

import sys
from importlib.resources import files
from subprocess import run

import numpy as np
import pytest

from contrast_core import CPCA, datasets

SIMULATED = [datasets.make_four_groups, datasets.make_motion_sensors]
SIMULATED += [datasets.make_sparse_groups, datasets.make_toy]
LOADERS = [*SIMULATED, datasets.load_mouse_protein, datasets.digits_on_photos]
SEEDED = [*SIMULATED, lambda **seed: datasets.digits_on_photos(200, **seed)]


def test_cells_behind_fringes_have_an_empty_corner_and_fringes_everywhere() -> None:
    data = datasets.cells_behind_fringes((160, 200))
    again = datasets.cells_behind_fringes((160, 200), random_state=0)
    other = datasets.cells_behind_fringes((160, 200), random_state=1)
    np.testing.assert_array_equal(data.image, again.image)
    assert (other.image != data.image).any()
    assert data.image.shape == data.clean.shape == data.empty.shape == (160, 200)
    assert data.image.dtype == data.clean.dtype == np.float32
    assert data.empty[:48, :60].all()
    assert data.empty.sum() == 48 * 60
    assert data.clean[data.empty].max() < 0.01
    assert 0.8 < data.clean.max() <= 1.2
    assert data.clean.min() >= 0
    rest = (data.image - data.clean) / data.clean.std()
    assert abs(rest.mean()) < 0.05
    assert rest.std() == pytest.approx(np.hypot(1, 0.3), abs=0.05)
    for part in (rest[:48, :60], rest[-48:, -60:]):  # the frequency is 1/13 per pixel in both parts
        power = np.abs(np.fft.fft2(part, s=(256, 256))) ** 2
        power[:3, :3] = 0
        y, x = np.unravel_index(power[:128].argmax(), (128, 256))
        assert np.hypot(y, min(x, 256 - x)) / 256 == pytest.approx(1 / 13, abs=0.015)


@pytest.mark.parametrize(
    ("shape", "error", "message"),
    [((95, 200), ValueError, "95"), ((128,), ValueError, "1 entries"), (("a", 1), TypeError, "a")],
)
def test_an_image_of_invalid_shape_is_refused(shape, error, message) -> None:
    with pytest.raises(error, match=message):
        datasets.cells_behind_fringes(shape)


def test_magnetometers_contain_no_information_on_the_activities() -> None:
    data = datasets.make_motion_sensors(20_000, 20_000)
    assert data.feature_names is not None
    idle = np.array(["magnetometer" in name for name in data.feature_names])
    np.testing.assert_array_equal(np.flatnonzero(idle), np.arange(17, 23))
    first, second = (data.foreground[data.labels == i].mean(axis=0) for i in (0, 1))
    assert np.abs(second - first)[idle].max() < 0.15
    assert np.abs(second - first)[~idle].max() > 1
    spread = np.cov(data.foreground.T) - np.cov(data.background.T)
    assert np.abs(spread[np.ix_(idle, idle)]).max() < 0.25
    assert (np.diag(spread)[:9] > 0.3).all()


@pytest.mark.parametrize("load", LOADERS)
def test_the_arrays_of_a_dataset_have_matching_shapes_and_a_fit_gives_no_warning(load) -> None:
    data = load()
    n, n_features = data.foreground.shape
    assert data.background.shape[1] == n_features
    assert data.foreground.dtype == data.background.dtype == np.float64
    assert np.isfinite(data.foreground).all() and np.isfinite(data.background).all()
    assert data.labels.shape == (n,)
    assert data.feature_names is None or len(set(data.feature_names)) == n_features
    assert data.units is None or data.units.shape == (n,)
    assert data.background_units is None or len(data.background_units) == len(data.background)
    assert data.frame_shape is None or np.prod(data.frame_shape) == n_features
    assert data.clean is None or data.clean.shape == data.foreground.shape
    assert data.description
    CPCA(1, alpha=1.0).fit(data.foreground, background=data.background)


@pytest.mark.parametrize("make", SEEDED)
def test_equal_seeds_give_equal_data_and_other_seeds_give_other_data(make) -> None:
    first, again, other = make(), make(random_state=0), make(random_state=1)
    np.testing.assert_array_equal(first.foreground, again.foreground)
    np.testing.assert_array_equal(first.background, again.background)
    assert not np.array_equal(first.foreground, other.foreground)
    assert not np.array_equal(first.background, other.background)
    generator = np.random.default_rng(0)
    np.testing.assert_array_equal(make(random_state=generator).foreground, first.foreground)
    assert not np.array_equal(make(random_state=generator).foreground, first.foreground)


def test_four_groups_have_the_papers_means_and_standard_deviations() -> None:
    data = datasets.make_four_groups()
    blocks = data.foreground.reshape(4, 100, 3, 10)
    np.testing.assert_array_equal(data.labels, np.repeat([0, 1, 2, 3], 100))
    # Each block has 1,000 draws. The tolerances are five standard errors.
    means = [[0, 0, 0], [0, 3, 0], [6, 0, 0], [6, 3, 0]]
    assert (np.abs(blocks.mean(axis=(1, 3)) - means) < [0.16, 0.16, 1.6]).all()
    np.testing.assert_allclose(blocks.std(axis=(1, 3)), [[1, 1, 10]] * 4, rtol=0.12)
    background = data.background.reshape(400, 3, 10)
    np.testing.assert_allclose(background.std(axis=(0, 2)), [3, 1, 10], rtol=0.06)
    assert (np.abs(background.mean(axis=(0, 2))) < [0.24, 0.08, 0.8]).all()


def test_toy_has_the_papers_means_and_covariance() -> None:
    data = datasets.make_toy(40_001, 40_000)
    covariance = [[2.7, 2.6], [2.6, 2.7]]
    assert np.bincount(data.labels).tolist() == [20_001, 20_000]
    for label, mean in enumerate([(-1, 1), (1, -1)]):
        group = data.foreground[data.labels == label]
        np.testing.assert_allclose(group.mean(axis=0), mean, atol=0.06)
        np.testing.assert_allclose(np.cov(group.T), covariance, atol=0.15)
    np.testing.assert_allclose(data.background.mean(axis=0), 0, atol=0.05)
    np.testing.assert_allclose(np.cov(data.background.T), covariance, atol=0.1)


def test_each_mouse_has_fifteen_rows_of_one_class_in_one_dataset() -> None:
    mouse = datasets.load_mouse_protein()
    assert (mouse.foreground.shape, mouse.background.shape) == ((270, 77), (135, 77))
    animals, counts = np.unique(mouse.units, return_counts=True)
    others, other_counts = np.unique(mouse.background_units, return_counts=True)
    assert (len(animals), len(others)) == (18, 9)
    assert set(counts) == set(other_counts) == {15}
    assert not set(animals) & set(others)
    for animal in animals:
        assert len(set(mouse.labels[mouse.units == animal])) == 1


def test_raw_mouse_data_keep_their_units_of_measurement_and_missing_values() -> None:
    raw = datasets.load_mouse_protein(raw=True)
    assert np.isnan(raw.foreground).sum() == 120 + 204
    assert np.isnan(raw.background).sum() == 199
    filled = np.nan_to_num(raw.foreground)
    scaled = (filled - filled.mean(axis=0)) / filled.std(axis=0)
    expected = datasets.load_mouse_protein().foreground
    np.testing.assert_allclose(scaled, expected, rtol=1e-12, atol=1e-12)


def test_faint_digits_lie_on_photographs_that_the_background_does_not_show() -> None:
    digits = datasets.digits_on_photos()
    assert digits.clean.min() == 0 and digits.clean.max() == 0.25
    crops = 255 * (digits.foreground - digits.clean)
    np.testing.assert_allclose(crops, np.round(crops), atol=1e-10)
    assert crops.min() >= -1e-10 and np.round(crops.max()) <= 255
    assert digits.background.min() >= 0 and digits.background.max() <= 1
    assert not set(digits.units) & set(digits.background_units)
    foreground = {crop.tobytes() for crop in np.round(crops)}
    assert not foreground & {crop.tobytes() for crop in np.round(255 * digits.background)}


def test_bundled_files_are_small_and_each_has_a_licence() -> None:
    entries = {entry.name: entry for entry in (files(datasets) / "data").iterdir()}
    assert sum(len(entry.read_bytes()) for entry in entries.values()) < 1_500_000
    readme = entries["README.md"].read_text()
    for name in entries:
        assert name == "README.md" or f"`{name}`" in readme
    licences = entries["LICENSE-photographs.txt"].read_text().splitlines()
    with np.load(entries["photographs.npz"]) as photographs:
        for name in photographs["names"]:
            assert any(line.startswith(f"{name} ") for line in licences), name


def test_loading_needs_numpy_only() -> None:
    code = (
        "import sys; from contrast_core import datasets as d; d.make_toy(); d.load_mouse_protein();"
        "d.digits_on_photos(2); d.make_four_groups(); d.make_sparse_groups();"
        "d.cells_behind_fringes((96, 96));"
        "print(*{'PIL', 'pandas', 'scipy', 'skimage', 'sklearn'} & set(sys.modules))"
    )
    done = run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
