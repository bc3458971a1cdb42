"""What cannot work is refused, and costs are told, before a pixel is read."""

from __future__ import annotations

import numpy as np
import pytest

from contrast_core.images import Frames, Patches
from napari_plugin import _settings
from napari_plugin._estimate import estimate
from napari_plugin._pair import Images, Pair, check
from napari_plugin._settings import InputError, Settings, default_samples
from tests.napari_plugin.plain import marked


class Unread:
    """Images whose pixels must not be touched."""

    def __init__(self, *shape, dtype="uint16"):
        self.shape = shape
        self.dtype = np.dtype(dtype)

    def __getitem__(self, index):
        raise AssertionError("pixels were read")


def cells(*shape, **options):
    return Images("cells", Unread(*shape, **options))


def empty(*shape):
    return Images("empty", Unread(*shape))


CPCA_10 = Settings("cpca", n_components=10)


@pytest.mark.parametrize(
    ("pair", "samples", "settings", "message"),
    [
        (Pair(cells(9, 8, 8)), Frames(), Settings(), "Say where the background is alone"),
        (Pair(cells(8, 8), empty(9, 8, 8)), Frames(), Settings(), "'cells' is a single image"),
        (Pair(cells(9, 8, 8), empty(9, 8, 7)), Frames(), Settings(), "8 x 8 pixels, those of"),
        (Pair(cells(9, 8, 8), empty(3, 8, 8)), Frames(), Settings(), "3 of background; at least 4"),
        (
            Pair(cells(9, 60, 60), empty(9, 60, 60)),
            Frames(),
            Settings(),
            "too large to be compared",
        ),
        (Pair(cells(6, 8, 8), empty(9, 8, 8)), Frames(), CPCA_10, "10 patterns .* allows 1 to 5"),
        (Pair(cells(8, 8, dtype="c8"), empty(8, 8)), Patches(8), Settings(), "plain intensities"),
        (Pair(cells(8, 8), empty(9, 8)), Patches(), Settings(), "smaller than a patch of 16 x 16"),
        (Pair(cells(0, 8, 8), empty(9, 8)), Patches(), Settings(), "holds no image"),
        (
            Pair(cells(99, 99), mask=np.zeros((99, 99), bool)),
            Patches(),
            Settings(),
            "marked nowhere",
        ),
        (Pair(cells(99, 99), mask=np.ones((99, 99), bool)), Patches(), Settings(), "everywhere"),
        (
            Pair(cells(99, 99), mask=marked(99, 20)[:, None] & marked(99, 20)),
            Patches(),
            Settings(),
            "20 x 20 pixels, too small for patches",
        ),
        (
            Pair(cells(30, 9, 9), mask=marked(9, 5)[:, None] & marked(9, 5)),
            Frames(),
            Settings(),
            "A drawn area marks pixels",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_a_pixel_is_read(pair, samples, settings, message):
    with pytest.raises(InputError, match=message):
        check(pair, samples, settings)


def test_no_refusal_names_code():
    """In none of the module's messages: a function, a parameter of the core or Python."""
    import ast
    from pathlib import Path

    words = ("numpy", "python", "alpha", "None", "ndarray", "()", "_", "Pipeline", "precision")
    found = []
    for path in Path(_settings.__file__).parent.glob("_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "InputError":
                parts = [
                    part.value
                    for part in ast.walk(node)
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                ]
                found.append(" ".join(parts))
    assert len(found) > 15
    for text in found:
        assert not [word for word in words if word in text], text


def test_samples_are_preselected_by_shape():
    assert default_samples((500, 28, 28)) == Frames()
    assert default_samples((20, 5, 28, 28)) == Frames()
    for shape in [(512, 512), (54, 512, 512), (3, 28, 28), (28, 28)]:
        assert default_samples(shape) == Patches(16, 2)
    assert default_samples((54, 512, 512), "cpca") == Patches(16, 4)


def test_estimates_grow_with_the_images_and_say_what_is_lazy():
    def of(pair, samples, settings, available=2**33):
        return estimate(pair, samples, settings, available)

    one = of(Pair(cells(512, 512), empty(512, 512)), Patches(), Settings())
    many = of(Pair(cells(54, 512, 512), empty(512, 512)), Patches(), Settings())
    assert many.seconds > 30 * one.seconds
    assert 0.3 < one.seconds < 4
    assert many.memory > 54 * 512 * 512 * 4
    assert not many.lazy
    assert of(Pair(cells(9**6, 64, 64), empty(9, 64, 64)), Patches(), Settings()).lazy
    assert "as you look at it" in of(Pair(cells(9, 9, 9), empty(9, 9, 9)), Frames(), CPCA_10).text()
