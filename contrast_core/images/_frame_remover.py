"""Automatic removal of a structured background from whole frames."""

from __future__ import annotations

import math
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils.validation import check_is_fitted

from contrast_core._base import BackgroundMixin, Embedding
from contrast_core._validation import FloatArray, MatrixLike, check_flag, check_same_features
from contrast_core.images._frame_library import (
    SingleArray,
    fitted_pixels,
    frame_library,
    robust_coefficients,
)
from contrast_core.images._signal_subspace import (
    lower_root,
    shrunk,
    signal_subspace,
    white_mean,
)
from contrast_core.images._stacks import check_sides, relative_weights
from contrast_core.images._stationary import texture
from contrast_core.rows import Rows, rows_of
from contrast_core.solve import contrast_rows

# Most pixels of a small frame. Larger frames are compared with a library of background frames.
_MOST_PIXELS = 2048
_FEWEST_FRAMES = 4  # least number of background frames: two in each half for cross-validation
_LIBRARY_VALUES = 2**27  # most values in a library: 512 MB in float32
_LIBRARY_FRAMES = 64  # a library may hold this many frames, however large they are
_DARKEST = 1e-3  # least light in a pixel, as a multiple of the mean; darker pixels are set to it


class FrameBackgroundRemover(OneToOneFeatureMixin, BackgroundMixin, Embedding):
    r"""Remover of structured background from whole frames, without parameters to tune.

    The method depends on the size of the frames.

    *Small frames* have at most 2048 pixels. They are filtered with a signal-subspace filter. A
    foreground frame x is modelled as the sum of a signal and a background. Both are Gaussian, and
    the strength g of the background differs from frame to frame:

    .. math:: x = \bar y + z + \sqrt g\, b, \qquad z \sim N(\mu, S), \quad b \sim N(0, G).

    Here :math:`\bar y` is the mean background frame. The estimate is the posterior mean of z, which
    is a Wiener filter for each frame.

    - G is the sum of a stationary covariance, which depends only on the displacement between two
      pixels, and a ridge. The ridge maximises the likelihood of held-out background frames.
    - S is estimated after whitening by G. It contains the directions in which the foreground's
      eigenvalues exceed the Marchenko-Pastur edge, which is the largest eigenvalue to be expected
      from noise alone. The upward bias of these eigenvalues is removed. In all other directions,
      S has a small variance.
    - g is measured in the directions without signal. Directions and strengths are estimated
      alternately, and frames with a weak background get a larger weight.
    - The mean background frame is shrunk towards its average brightness, according to its noise,
      and then subtracted.

    In small frames the signal must recur in the same place, at least in part. Examples are objects
    of a common form, or a cell that twitches. For spots or vesicles that may be anywhere, use
    `StructuredBackgroundRemover` on patches.

    *Large frames* are compared with a library of background frames. The library's mean and leading
    principal components are fitted to each frame, and the residual is the signal. The fit is
    robust: pixels with signal get little or no weight. The only assumption about the signal is that
    it covers less than about a third of a frame. The number of components is chosen so that
    left-out background frames are predicted best. Noise remains; smooth the result if necessary.

    Parameters
    ----------
    frame_shape : (int, int)
        Height and width of a frame.
    multiplicative : bool, default=False
        Whether light is absorbed rather than added, as in absorption images, transmission and
        bright field. Frames of any size are then compared with a library of logarithms, and the
        result is the optical density, :math:`-\ln(\text{frame} / \text{background})`.

    Attributes
    ----------
    method_ : {"filter", "library"}
        Method that was used: "filter" for small frames, "library" for large frames and for
        multiplicative light.
    n_components_ : int
        Small frames: number of directions in which signal was detected. If it is 0, there are too
        few frames or there is no signal; a cautious estimate is still returned. Large frames:
        number of components of the background.
    mean_ : ndarray of shape (n_features,)
        Frame that is subtracted first. Large frames: mean of the background. Small frames: sum of
        the shrunk mean of the background and the mean of the signal.
    patterns_ : ndarray of shape (n_features, n_features) or (k, n_features)
        Small frames: matrix that maps the coordinates that `filters_` computes back to rows. Its
        first `n_components_` rows are the components, the directions in which signal was detected.
        Large frames: components of the background, scaled to variance one over the pixels, in
        float32.
    signal_mean_ : ndarray of shape (n_features,)
        Small frames: mean of the signal, :math:`\mu`.
    signal_variances_ : ndarray of shape (n_features,)
        Small frames: variances of the signal along the coordinates that `filters_` computes, in
        units of the background's variance. The first `n_components_` belong to the components.
    filters_ : ndarray of shape (n_features, n_features)
        Small frames: ``(x - mean_) @ filters_`` are coordinates in which the background is
        uncorrelated and has variance 1 (it is white).
    ridge_ : float
        Small frames: ridge that maximises the likelihood of held-out background frames, divided by
        the background's mean variance.
    background_variance_ : float
        Small frames: mean square of the whitened background frames along the directions without
        signal. A frame with this mean square has strength 1.
    background_variances_ : ndarray of shape (k,)
        Large frames: variances of the components of the background.
    unexplained_ : float
        Large frames: mean squared error when left-out background frames are predicted, divided by
        the error of a prediction by the mean frame and a fitted brightness alone. Both errors
        include the noise of the frames.
    dark_ : ndarray of shape (n_features,) or float
        Multiplicative light: dark frame or brightness that was subtracted before the logarithm.
    darkest_ : float
        Multiplicative light: lower bound of the light in a pixel, a thousandth of the mean light.
    n_features_in_ : int
        Number of pixels, D.

    See Also
    --------
    suppress_background : Does the same for stacks in one call, and describes problems of the data.
    StructuredBackgroundRemover : Removes background from patches.
    contrast_core.CPCA : Removes background by a projection, with ``alpha="denoise"``.

    Notes
    -----
    Small frames were tested on faint digits of 28 x 28 pixels on photographs. With 50, 200, 500 and
    2000 frames, the squared error relative to that of the noisy frames is 0.84, 0.66, 0.62 and
    0.56. On frames that were not used for fitting it is at most 0.05 higher. The projection of
    `CPCA` has the relative errors 1.00, 0.92, 0.82 and 0.71.

    Large frames were tested on fourteen absorption images of cold atoms, 512 x 512 pixels. A frame
    of the probe light without atoms was taken a moment after each image. The library for an image
    held these frames of the thirteen other images. In an area without atoms, the optical density
    then has the standard deviation 0.083. It is 0.111 if the background is instead the image's own
    frame without atoms. After a Gaussian filter of 3 pixels, these standard deviations are 0.026
    and 0.035.

    References
    ----------
    Ephraim and Van Trees, "A signal subspace approach for speech enhancement", IEEE Transactions on
    Speech and Audio Processing 3(4), 1995: the filter. Donoho, Gavish and Johnstone, "Optimal
    shrinkage of eigenvalues in the spiked covariance model", Annals of Statistics 46(4), 2018.
    Beaton and Tukey, "The fitting of power series, meaning polynomials, illustrated on
    band-spectroscopic data", Technometrics 16(2), 1974: the weights of the fit.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core.images import FrameBackgroundRemover
    >>> rng = np.random.default_rng(0)
    >>> stripes = rng.normal(size=(800, 8, 1)) + 0.1 * rng.normal(size=(800, 8, 8))
    >>> signal = np.zeros((400, 8, 8))
    >>> signal[:, 2:5, 3:6] = rng.normal(1.0, 1.0, size=(400, 1, 1))
    >>> frames, clean = (stripes[:400] + signal).reshape(400, 64), signal.reshape(400, 64)
    >>> background = stripes[400:].reshape(400, 64)
    >>> remover = FrameBackgroundRemover((8, 8)).fit(frames, background=background)
    >>> remover.n_components_
    1
    >>> left = remover.transform(frames) - clean
    >>> bool((left**2).mean() < 0.1 * ((frames - clean) ** 2).mean())
    True
    """

    method_: Literal["filter", "library"]
    n_components_: int
    mean_: FloatArray
    signal_mean_: FloatArray
    signal_variances_: FloatArray
    filters_: FloatArray
    patterns_: FloatArray
    ridge_: float
    background_variance_: float
    background_variances_: FloatArray
    unexplained_: float
    dark_: FloatArray | float
    darkest_: float

    def __init__(
        self,
        frame_shape: tuple[int, int],
        *,
        multiplicative: bool = False,
    ) -> None:
        self.frame_shape = frame_shape
        self.multiplicative = multiplicative

    def fit(
        self,
        X: MatrixLike | Rows,
        y: object = None,
        *,
        background: MatrixLike | Rows,
        dark: ArrayLike | None = None,
    ) -> Self:
        """Fit to frames with signal and to frames that show only background.

        Small frames are loaded into memory. For large frames, only background frames are loaded;
        frames with signal are not read. If there are more than 64 background frames, and they take
        more than 512 MB, an evenly spaced selection of them is used.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, stored dataset or Rows of shape (n, n_features)
            Foreground, one frame per row. Moments are not accepted.
        y : ignored
        background : the same kinds, of shape (m, n_features)
            Frames that show only background, four or more.
        dark : array-like of shape (n_features,) or float, optional
            Multiplicative light: the frame that the camera records without light, or its
            brightness. For additive light it is not needed, because the foreground and the
            background frames contain the same dark frame.

        Returns
        -------
        Self

        Raises
        ------
        ValueError
            If the frames do not have `frame_shape`, the features differ, a dataset has too few rows
            or is not finite, the background is constant, or there is no light above `dark`.
        TypeError
            If moments are given, or a parameter has the wrong type.
        """
        shape = check_sides(self.frame_shape)
        multiplicative = check_flag(self.multiplicative, "multiplicative")
        if multiplicative or math.prod(shape) > _MOST_PIXELS:
            return self._fit_library(shape, X, background, dark if multiplicative else None)
        rows, others = contrast_rows(X, background)
        _check_frames(shape, rows, others)
        frames, noise = (np.asarray(each.load(dense=True), np.float64) for each in (rows, others))
        unit = _root_mean_variance(noise)
        frames, noise = frames / unit, noise / unit
        model = texture(noise, shape)
        root = lower_root(model.covariance)
        removed = _stable_mean(noise, root)
        whitened = _whitened(frames - removed, root)
        signal = signal_subspace(whitened, _whitened(noise - noise.mean(axis=0), root))
        signal_mean = root @ signal.mean
        return self._set_fitted(
            rows.names,
            method_="filter",
            n_components_=signal.n_components,
            mean_=(removed + signal_mean) * unit,
            signal_mean_=signal_mean * unit,
            signal_variances_=signal.variances,
            filters_=solve_triangular(root, signal.basis, lower=True, trans="T") / unit,
            patterns_=(signal.inverse @ root.T) * unit,
            ridge_=model.ridge,
            background_variance_=signal.background_variance,
            n_features_in_=rows.shape[1],
        )

    def transform(self, X: MatrixLike) -> FloatArray:
        """Return the signal in each frame, which is near zero where a pixel shows only background.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n, n_features)
            Frames of the fit, or new frames.

        Returns
        -------
        ndarray of shape (n, n_features)
            Signal in units of the data, or the optical density for multiplicative light.

        Raises
        ------
        ValueError
            If the features are not those of the fit, or a value is NaN or infinite.
        """
        result: FloatArray = self._rows(X).map(self._signal, self.n_features_in_, dense=True)
        return result

    def strengths(self, X: MatrixLike) -> FloatArray:
        """Return the strength of the background in each frame.

        Parameters
        ----------
        X : as for `transform`

        Returns
        -------
        ndarray of shape (n, 1)
            Strength relative to its average over the background frames. For small frames it is g,
            which is at least 0.5.

        Raises
        ------
        ValueError
            See `transform`.
        """
        result: FloatArray = self._rows(X).map(self._strength, 1, dense=True)
        return result

    def feature_weights(self) -> FloatArray:
        """Return the weight of each pixel in each component, for `weight_maps`.

        Returns
        -------
        ndarray of shape (k, n_features)
            Squares of the components in ``patterns_``, with each row rescaled to a maximum of 1.
            The strongest component comes first. For small frames they are components of the signal;
            for large frames they are components of the background.
        """
        check_is_fitted(self)
        return relative_weights(self.patterns_[: self.n_components_])

    def _fit_library(
        self,
        shape: tuple[int, int],
        X: MatrixLike | Rows,
        background: MatrixLike | Rows,
        dark: ArrayLike | None,
    ) -> Self:
        # One frame with signal is enough, because only the number of its pixels is checked.
        others, _ = contrast_rows(background, background)
        rows = rows_of(X, "X", min_rows=1)
        check_same_features(*_features(rows), *_features(others), background_name="background")
        _check_frames(shape, rows, others)
        m, n_features = others.shape
        most = max(_LIBRARY_FRAMES, _LIBRARY_VALUES // n_features)
        if m > most:
            others = others.take(np.linspace(0, m - 1, most).round().astype(int))
        frames, start = np.empty(others.shape, np.float32), 0
        for block in others.blocks():
            frames[start : start + len(block)] = block
            start += len(block)
        light: dict[str, FloatArray | float] = {}
        if self.multiplicative:
            light["dark_"] = _dark_frame(dark, n_features)
            frames -= np.asarray(light["dark_"], np.float32)
            light["darkest_"] = _DARKEST * float(frames.mean(dtype=np.float64))
            if not light["darkest_"] > 0:
                raise ValueError(
                    "the background has no light: its mean is not above that of the dark frame. "
                    "Check that dark frames and background are not swapped."
                )
            np.log(np.maximum(frames, np.float32(light["darkest_"]), out=frames), out=frames)
        _check_varies(frames)
        library = frame_library(frames)
        return self._set_fitted(
            rows.names,
            method_="library",
            n_components_=len(library.components),
            mean_=library.mean,
            patterns_=library.components,
            background_variances_=library.variances,
            unexplained_=library.unexplained,
            n_features_in_=n_features,
            **light,
        )

    def _signal(self, rows: NDArray[np.floating]) -> FloatArray:
        if self.method_ == "filter":
            return np.asarray(self._shrunk(rows)[0] @ self.patterns_ + self.signal_mean_)
        deviations, coefficients = self._fitted_background(rows)
        deviations -= coefficients[:, :1]
        deviations -= coefficients[:, 1:].astype(np.float32) @ self.patterns_
        return -deviations if self.multiplicative else deviations

    def _strength(self, rows: NDArray[np.floating]) -> FloatArray:
        if self.method_ == "filter":
            return self._shrunk(rows)[1][:, None]
        if not self.n_components_:
            return np.ones((len(rows), 1))
        power = (self._fitted_background(rows)[1][:, 1:] ** 2).sum(axis=1, keepdims=True)
        return np.asarray(power / self.background_variances_.sum())

    def _fitted_background(self, rows: NDArray[np.floating]) -> tuple[FloatArray, FloatArray]:
        """Return the frames minus the library's mean, and the coefficients (brightness first)."""
        light = np.asarray(rows, np.float64)
        if self.multiplicative:
            light = np.log(np.maximum(light - self.dark_, self.darkest_))
        deviations = light - self.mean_
        pixels = fitted_pixels(self.n_features_in_)
        design = np.vstack([np.ones(len(pixels)), self.patterns_[:, pixels]])
        return deviations, robust_coefficients(deviations[:, pixels], design)

    def _shrunk(self, rows: NDArray[np.floating]) -> tuple[FloatArray, FloatArray]:
        coordinates = (rows - self.mean_) @ self.filters_
        return shrunk(
            coordinates, self.signal_variances_, self.n_components_, self.background_variance_
        )


def _features(rows: Rows) -> tuple[int, tuple[str, ...] | None]:
    return rows.shape[1], rows.names


def _dark_frame(dark: ArrayLike | None, n_features: int) -> FloatArray | float:
    if dark is None or np.ndim(dark) == 0:
        return 0.0 if dark is None else float(np.asarray(dark))
    frame = np.asarray(dark, np.float64).ravel()
    if frame.shape != (n_features,):
        raise ValueError(
            f"dark has {frame.size} pixels, but the frames have {n_features}; give one frame, such "
            "as the mean of several dark frames."
        )
    if not np.isfinite(frame).all():
        raise ValueError("dark has NaN or infinite pixels; give a dark frame of finite numbers.")
    return frame


def _check_frames(shape: tuple[int, int], rows: Rows, others: Rows) -> None:
    n_features = rows.shape[1]
    if math.prod(shape) != n_features:
        raise ValueError(
            f"frame_shape={shape} has {math.prod(shape)} pixels, but X has {n_features} features; "
            "give the height and width of a frame, because each row is one frame."
        )
    if others.shape[0] < _FEWEST_FRAMES:
        raise ValueError(
            f"the background has {others.shape[0]} frames; at least {_FEWEST_FRAMES} are needed, "
            "so that two halves can be compared. Give more background frames."
        )


def _root_mean_variance(frames: FloatArray) -> float:
    """Return the square root of the pixels' mean variance; raise ValueError if it is zero."""
    _check_varies(frames)
    deviations = frames - frames.mean(axis=0)
    largest = float(np.abs(deviations).max())
    return largest * math.sqrt(float(((deviations / largest) ** 2).mean()))


def _check_varies(frames: FloatArray | SingleArray) -> None:
    if all((frame == frames[0]).all() for frame in frames[1:]):
        raise ValueError(
            f"the background is constant (none of its {frames.shape[1]} pixels varies over "
            f"{len(frames)} frames), so there is no pattern to learn; check what it holds."
        )


def _stable_mean(frames: FloatArray, root: FloatArray) -> FloatArray:
    """Return the mean frame, shrunk towards its average brightness according to its noise."""
    mean = frames.mean(axis=0)
    brightness = mean.mean()
    pattern = _whitened((mean - brightness)[None], root)[0]
    return np.asarray(brightness + root @ white_mean(pattern, _whitened(frames - mean, root)))


def _whitened(rows: FloatArray, root: FloatArray) -> FloatArray:
    return np.asarray(solve_triangular(root, rows.T, lower=True, check_finite=False).T)
