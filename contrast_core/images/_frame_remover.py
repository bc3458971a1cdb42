"""Structured background removed from whole frames, automatically."""

from __future__ import annotations

import math
from typing import Self

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils.validation import check_is_fitted

from contrast_core._base import BackgroundMixin, Embedding
from contrast_core._validation import FloatArray, MatrixLike, check_flag
from contrast_core.images._signal_subspace import (
    lower_root,
    shrunk,
    signal_subspace,
    white_mean,
    with_stationary_part,
)
from contrast_core.images._stacks import check_sides, relative_weights
from contrast_core.images._texture import TextureForm, texture
from contrast_core.rows import Rows
from contrast_core.solve import contrast_rows

_MOST_PIXELS = 2048
_FEWEST_FRAMES = 4  # of the background: two in each half that is held out


class FrameBackgroundRemover(OneToOneFeatureMixin, BackgroundMixin, Embedding):
    r"""Frames freed of a structured background, without parameters: a signal-subspace filter.

    The foreground is signal and background, both Gaussian, the background of a strength of its own
    in each frame,

    .. math:: x = \bar y + z + \sqrt g\, b, \qquad z \sim N(\mu, S), \quad b \sim N(0, G),

    and the estimate is the posterior mean of z, a Wiener filter for each frame.

    - G is the covariance that the background has by its texture (stationary: the same wherever in
      the frame one looks), with or without patterns that stand still, plus a ridge: whichever
      held-out frames of the background favour.
    - With G whitened, S has the directions in which the foreground stands out of the
      Marchenko-Pastur edge, with eigenvalues debiased, and a small variance in all others.
    - g is measured outside of these directions, in rounds; frames of a weak background count more.
    - The background's mean is removed as far as it stands out of its own noise.

    Frames count as a whole, so that the signal must repeat itself in place, at least in part:
    objects of a common form, a cell that twitches. For large frames use `Patches`.

    Parameters
    ----------
    frame_shape : (int, int)
        Height and width of a frame, together at most 2048 pixels.
    stationary_signal : bool, default=False
        Whether the signal has texture too: a stationary part in S, for what may be anywhere in the
        frame (spots, vesicles). Where the signal stays in place it costs up to a quarter of the
        noisy frames' error.

    Attributes
    ----------
    n_components_ : int
        Directions of signal that stand out. With 0 there are too few frames to tell (or there is no
        signal): the estimate is still returned, cautious as it is.
    mean_ : ndarray of shape (n_features,)
        Background's mean, as far as it is removed, and signal's mean: rows are centred by it.
    signal_mean_ : ndarray of shape (n_features,)
        Mean of the signal, :math:`\mu`.
    signal_variances_ : ndarray of shape (n_features,)
        Variances of the signal in units of the background's, those of the components first.
    filters_ : ndarray of shape (n_features, n_features)
        ``(x - mean_) @ filters_`` are coordinates in which the background is white.
    patterns_ : ndarray of shape (n_features, n_features)
        From the coordinates back to rows.
    background_form_ : {"stationary", "with spikes"}
        Whether held-out frames of the background favoured patterns that stand still.
    ridge_ : float
        Ridge that they favoured, relative to the background's mean variance.
    level_ : float
        Mean square of the background's frames outside of the components: strength 1.
    n_features_in_ : int
        Number of pixels, D.

    See Also
    --------
    suppress_background : The same for stacks, in one call, with verdicts.
    StructuredBackgroundRemover : The same for patches, from moments.
    contrast_core.CPCA : The projection of the paper, with ``alpha="denoise"``.

    Notes
    -----
    Squared error relative to the noisy frames, faint digits of 28 x 28 pixels on photographs, for
    50, 200, 500 and 2000 frames: 0.84, 0.66, 0.62, 0.56; on frames that were not used for fitting
    at most 0.05 more. The projection has 1.00, 0.92, 0.82, 0.71.

    References
    ----------
    Ephraim and Van Trees, "A signal subspace approach for speech enhancement", IEEE Transactions on
    Speech and Audio Processing 3(4), 1995: the filter. Donoho, Gavish and Johnstone, "Optimal
    shrinkage of eigenvalues in the spiked covariance model", Annals of Statistics 46(4), 2018.

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

    n_components_: int
    mean_: FloatArray
    signal_mean_: FloatArray
    signal_variances_: FloatArray
    filters_: FloatArray
    patterns_: FloatArray
    background_form_: TextureForm
    ridge_: float
    level_: float

    def __init__(self, frame_shape: tuple[int, int], *, stationary_signal: bool = False) -> None:
        self.frame_shape = frame_shape
        self.stationary_signal = stationary_signal

    def fit(self, X: MatrixLike | Rows, y: object = None, *, background: MatrixLike | Rows) -> Self:
        """Fit from frames with signal and frames without; both are held in memory.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, stored dataset or Rows of shape (n, n_features)
            Foreground, a frame per row; not moments.
        y : ignored
        background : the same kinds, of shape (m, n_features)
            Frames of background alone, four or more.

        Returns
        -------
        Self

        Raises
        ------
        ValueError
            If the frames are not of `frame_shape` or larger than 2048 pixels, the features differ,
            a dataset has too few rows or is not finite, or the background is constant.
        TypeError
            If moments are given, or a parameter has the wrong type.
        """
        shape = self._shape()
        stationary = check_flag(self.stationary_signal, "stationary_signal")
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
        if stationary:
            signal = with_stationary_part(signal, whitened, root, shape)
        signal_mean = root @ signal.mean
        return self._set_fitted(
            rows.names,
            n_components_=signal.n_components,
            mean_=(removed + signal_mean) * unit,
            signal_mean_=signal_mean * unit,
            signal_variances_=signal.variances,
            filters_=solve_triangular(root, signal.basis, lower=True, trans="T") / unit,
            patterns_=(signal.inverse @ root.T) * unit,
            background_form_=model.form,
            ridge_=model.ridge,
            level_=signal.level,
            n_features_in_=rows.shape[1],
        )

    def transform(self, X: MatrixLike) -> FloatArray:
        """The signal in each frame, the posterior mean, over a background of zero.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n, n_features)
            Frames, those of the fit or others.

        Returns
        -------
        ndarray of shape (n, n_features)
            In units of the data.

        Raises
        ------
        ValueError
            If the features are not those of the fit, or a value is NaN or infinite.
        """
        result: FloatArray = self._rows(X).map(
            lambda rows: self._shrunk(rows)[0] @ self.patterns_ + self.signal_mean_,
            self.n_features_in_,
            dense=True,
        )
        return result

    def strengths(self, X: MatrixLike) -> FloatArray:
        """How strong the background is in each frame, g.

        Parameters
        ----------
        X : as for `transform`

        Returns
        -------
        ndarray of shape (n, 1)
            In units of its average over the background's frames; 0.5 at least.

        Raises
        ------
        ValueError
            As from `transform`.
        """
        result: FloatArray = self._rows(X).map(
            lambda rows: self._shrunk(rows)[1][:, None], 1, dense=True
        )
        return result

    def feature_weights(self) -> FloatArray:
        """How much each pixel carries each component of the signal, for `weight_maps`.

        Returns
        -------
        ndarray of shape (n_components_, n_features)
            Squares of the components' ``patterns_``, each row rescaled to a maximum of 1; the one
            that stands out most comes first.
        """
        check_is_fitted(self)
        return relative_weights(self.patterns_[: self.n_components_])

    def _shrunk(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        coordinates = (rows - self.mean_) @ self.filters_
        return shrunk(coordinates, self.signal_variances_, self.n_components_, self.level_)

    def _shape(self) -> tuple[int, int]:
        height, width = check_sides(self.frame_shape, "frame_shape", at_least=2, at_most=2)
        if height * width > _MOST_PIXELS:
            raise ValueError(
                f"frames of {height} x {width} pixels are larger than the {_MOST_PIXELS} "
                "pixels for which this filter is meant: look at patches of them, "
                "sampling='patches' or StructuredBackgroundRemover, or project the frames, "
                "CPCA(10, alpha='denoise'), which works in their span."
            )
        return height, width


def _check_frames(shape: tuple[int, int], rows: Rows, others: Rows) -> None:
    n_features = rows.shape[1]
    if math.prod(shape) != n_features:
        raise ValueError(
            f"frame_shape={shape} has {math.prod(shape)} pixels, but X has {n_features} features; "
            "give the height and width of the frames that the rows are."
        )
    if others.shape[0] < _FEWEST_FRAMES:
        raise ValueError(
            f"the background has {others.shape[0]} frames; at least {_FEWEST_FRAMES} are needed, "
            "for two halves that can be compared."
        )


def _root_mean_variance(frames: FloatArray) -> float:
    """Root of the mean variance of a pixel, which must not be zero."""
    deviations = frames - frames.mean(axis=0)
    largest = float(np.abs(deviations).max())
    if (frames == frames[0]).all():
        raise ValueError(
            f"the background is constant (none of its {frames.shape[1]} pixels varies over "
            f"{len(frames)} frames), so there is no pattern to learn; check what it holds."
        )
    return largest * math.sqrt(float(((deviations / largest) ** 2).mean()))


def _stable_mean(frames: FloatArray, root: FloatArray) -> FloatArray:
    """The background's mean as far as it is known: its level, and a pattern that stands out."""
    mean = frames.mean(axis=0)
    level = mean.mean()
    pattern = _whitened((mean - level)[None], root)[0]
    return np.asarray(level + root @ white_mean(pattern, _whitened(frames - mean, root)))


def _whitened(rows: FloatArray, root: FloatArray) -> FloatArray:
    return np.asarray(solve_triangular(root, rows.T, lower=True, check_finite=False).T)
