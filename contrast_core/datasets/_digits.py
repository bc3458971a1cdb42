"""Handwritten digits on photographs, the image example of the contrastive PCA paper."""

from importlib.resources import as_file, files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import check_count, check_generator
from contrast_core.datasets._contrast_data import ContrastData

_N_DIGITS = 5000
_SIDE = 28
_DIGIT_STRENGTH = 0.25


def digits_on_photos(
    n_samples: int = _N_DIGITS, *, random_state: int | np.random.Generator | None = 0
) -> ContrastData:
    """Make faint handwritten zeros and ones on patches of photographs, and patches without digits.

    A foreground frame is the sum of 0.25 times a digit and a random crop of a photograph. A
    background frame is a crop alone. Digits and crops have 28 x 28 pixels, and photographs have
    100 x 100 grey pixels, all with values from 0 to 1. Six photographs are used for the foreground
    and six others for the background. The frames are computed on each call.

    Parameters
    ----------
    n_samples : int, default=5000
        Number of frames in the foreground, and also in the background. It is from 1 to 5000, which
        is the number of bundled digits. With the same seed, a smaller dataset equals the first
        frames of a larger dataset.
    random_state : int, Generator or None, default=0
        Seed of the crops. The same integer gives the same data on every machine. The digits and
        their order are always the same.

    Returns
    -------
    ContrastData
        `foreground`, `background` and `clean` have shape (n_samples, 784) and pixels from 0 to
        1.25. Each row is a frame of `frame_shape` (28, 28). `clean` is 0.25 times the digit, so
        `foreground - clean` is the crop. `labels` (n_samples,) is the digit, 0 or 1. `units`
        and `background_units` name the photograph from which a frame was cropped.

    Raises
    ------
    TypeError, ValueError
        If `n_samples` is not an integer from 1 to 5000, or `random_state` is not a seed.

    Notes
    -----
    Each digit occurs once. Crops are drawn with replacement from the 6 x 73 x 73 positions in six
    photographs. With 5000 frames, several hundred crops occur more than once and most crops
    overlap, so the frames of one photograph are not independent.

    The paper used ImageNet pictures of grass, which cannot be redistributed. The twelve
    photographs here come with scikit-image and scikit-learn. The source and the licence of each
    photograph are listed in ``datasets/data``.

    References
    ----------
    Abid A, Zhang MJ, Bagaria VK, Zou J. Contrastive principal component analysis.
    arXiv:1709.06716, Figure 1.

    Examples
    --------
    >>> from contrast_core.datasets import digits_on_photos
    >>> data = digits_on_photos(100)
    >>> data.foreground.shape, data.frame_shape
    ((100, 784), (28, 28))
    """
    n = check_count(n_samples, "n_samples", at_most=_N_DIGITS)
    rng = check_generator(random_state)
    digits = _arrays("mnist_zeros_ones.npz")
    photographs = _arrays("photographs.npz")
    images, names = photographs["images"], photographs["names"]

    # Each frame has its own row of random numbers, so that the first frames do not depend on the
    # number of frames.
    half, positions = len(images) // 2, images.shape[1] - _SIDE + 1
    draws = rng.integers([half, positions, positions] * 2, size=(n, 6))
    crops, units = _crops(images[0::2], draws[:, :3]), names[0::2][draws[:, 0]]
    background, background_units = _crops(images[1::2], draws[:, 3:]), names[1::2][draws[:, 3]]

    clean = _DIGIT_STRENGTH / 255 * digits["images"][:n].reshape(n, -1)
    return ContrastData(
        clean + crops,
        background,
        digits["labels"][:n].astype(np.int64),
        units=units,
        background_units=background_units,
        frame_shape=(_SIDE, _SIDE),
        clean=clean,
        description="MNIST zeros and ones (LeCun, Cortes and Burges; CC BY-SA 3.0) at a quarter of "
        "their intensity on crops of photographs, after Abid et al., arXiv:1709.06716, Figure 1.",
    )


def _arrays(name: str) -> dict[str, NDArray[Any]]:
    with as_file(files(__package__) / "data" / name) as path, np.load(path) as archive:
        return dict(archive)


def _crops(images: NDArray[Any], draws: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return crops (n, 784) with values from 0 to 1.

    The columns of `draws` (n, 3) are the photograph, the top row and the left column of each crop.
    """
    windows = np.lib.stride_tricks.sliding_window_view(images, (_SIDE, _SIDE), axis=(1, 2))
    crops: NDArray[np.float64] = windows[tuple(draws.T)].reshape(len(draws), -1) / 255.0
    return crops
