"""Removal of a structured background from patches of images, by a model fitted to moments."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils.validation import check_is_fitted

from contrast_core._base import BackgroundMixin, Embedding
from contrast_core._validation import FloatArray, MatrixLike, check_choice
from contrast_core.images._scale_mixture import (
    BACKGROUND_STRENGTHS,
    Posterior,
    ScaleMixture,
    posterior,
    scale_mixture,
)
from contrast_core.images._stacks import relative_weights
from contrast_core.moments import SecondMoments
from contrast_core.solve import contrast_moments

_BLOCK_ELEMENTS = 2**20
STRENGTHS: dict[str, tuple[float, ...]] = {"varying": BACKGROUND_STRENGTHS, "constant": (1.0,)}


class StructuredBackgroundRemover(OneToOneFeatureMixin, BackgroundMixin, Embedding):
    r"""Remover of a structured background, such as fringes, stripes, grids, curtains or texture.

    The model of a row x is a Gaussian scale mixture. The signal has the strength s and the
    background has the strength g. Both strengths differ from row to row and are unknown:

    .. math:: x = \bar y + \sqrt s\, z + \sqrt g\, b, \qquad z \sim N(0, S), \quad b \sim N(0, N),

    .. math:: N = C_Y + 0.03\, \mu I, \quad \mu = \operatorname{tr}(C_Y) / D, \qquad
        S = (C_X - C_Y)_+ + \delta\delta^\top, \quad \delta = \bar x - \bar y,

    where :math:`\bar x` and :math:`C_X` are the mean and the covariance of the foreground,
    :math:`\bar y` and :math:`C_Y` those of the background, D is the number of features, and
    :math:`(\cdot)_+` is the positive part of a symmetric matrix.

    The estimate is the posterior mean of the signal :math:`\sqrt s\, z`. The prior is uniform over
    seventeen values of s (0 and 0.0003 to 30) and seven values of g (0.02 to 4). Each pair of
    strengths gives a Wiener filter, and the filters are averaged with the likelihoods of the row as
    weights. There is no number of components and no contrast strength to choose.

    Rows are usually patches of images (`Patches`); `suppress_background` does all steps for images
    in one call. S and N are estimated from the moments of foreground and background, so the
    background must also be observed without signal.

    Parameters
    ----------
    background_strength : {"varying", "constant"}, default="varying"
        "varying" allows the strength of the background to differ from row to row, as in real
        images. "constant" fixes g at 1. If the strength is in fact constant, "constant" gives
        slightly better results. If the strength varies, "constant" flattens faint signal.

    Attributes
    ----------
    mean_, background_mean_ : ndarray of shape (n_features,)
        Means of foreground and background.
    signal_variances_ : ndarray of shape (r,)
        Variances of the signal along the first r coordinates of `filters_`, in units of the
        background's variance, in descending order. The other coordinates hold no signal.
    filters_ : ndarray of shape (n_features, n_features)
        ``(x - background_mean_) @ filters_`` are the coordinates in which N is the identity and S
        is diagonal. The coordinates with signal come first.
    patterns_ : ndarray of shape (r, n_features)
        Matrix that maps the coordinates that contain signal back to rows.
    foreground_moments_, background_moments_ : SecondMoments
        Moments of the foreground and background data.
    n_features_in_ : int
        Number of features, D.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if the data had names.

    See Also
    --------
    contrast_core.images.suppress_background : Does the same for images, in one call.
    contrast_core.images.Patches : Cuts images into rows.

    Notes
    -----
    This method cannot separate the signal from a background that has no structure of its own. BM3D
    removes white noise better, and a top-hat filter removes haze better. Uneven illumination
    multiplies the image, so divide the image by a flat field first.

    References
    ----------
    Portilla, Strela, Wainwright and Simoncelli, "Image denoising using scale mixtures of Gaussians
    in the wavelet domain", IEEE Transactions on Image Processing 12(11), 2003: the scale mixture of
    the signal. Here the mixture models patches instead of wavelet coefficients. A measured
    background replaces white noise, and a second mixture models the background's strength.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core.images import StructuredBackgroundRemover
    >>> rng = np.random.default_rng(0)
    >>> stripes = rng.normal(size=(3000, 1)) @ np.tile([[1.0, -1.0]], (1, 4))
    >>> signal = rng.normal(size=(1000, 1)) * ([1.0] * 4 + [0.0] * 4)
    >>> rows = signal + stripes[:1000] + 0.1 * rng.normal(size=(1000, 8))
    >>> remover = StructuredBackgroundRemover().fit(rows, background=stripes[1000:])
    >>> left = remover.transform(rows) - signal
    >>> bool((left**2).mean() < 0.05 * ((rows - signal) ** 2).mean())
    True
    """

    mean_: FloatArray
    background_mean_: FloatArray
    signal_variances_: FloatArray
    filters_: FloatArray
    patterns_: FloatArray
    foreground_moments_: SecondMoments
    background_moments_: SecondMoments

    def __init__(self, *, background_strength: Literal["varying", "constant"] = "varying") -> None:
        self.background_strength = background_strength

    def fit(
        self,
        X: MatrixLike | SecondMoments,
        y: object = None,
        *,
        background: MatrixLike | SecondMoments,
    ) -> Self:
        """Fit from foreground and background data or their moments.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, stored dataset, dask array or torch tensor of \
                shape (n, n_features), or SecondMoments
            Foreground: signal with background. All data that `SecondMoments.from_data` reads are
            accepted.
        y : ignored
        background : the same kinds, of shape (m, n_features)
            Background alone, with the same features in the same order. Give moments for both
            datasets or for neither.

        Returns
        -------
        Self

        Raises
        ------
        ValueError
            If the features differ, a dataset has fewer than two rows or is not finite, the
            background is constant, or a parameter is out of range.
        TypeError
            If only one of the two is `SecondMoments`.
        """
        self._background_strengths()  # checked before the data are read
        x, y, _ = contrast_moments(X, background, solver="eigh", products=False, one_scale=True)
        if not y.varies.any():
            raise ValueError(
                f"the background is constant (none of its {y.n_features} features varies over "
                f"{y.n_samples} rows), so there is no pattern to learn; check what it holds."
            )
        mixture = scale_mixture(x.mean, x.matrix(), y.mean, y.matrix())
        return self._set_fitted(
            x.feature_names,
            mean_=x.mean,
            background_mean_=y.mean,
            signal_variances_=mixture.variances,
            filters_=mixture.whitening,
            patterns_=mixture.coloring,
            foreground_moments_=x,
            background_moments_=y,
            n_features_in_=x.n_features,
        )

    def transform(self, X: MatrixLike) -> FloatArray:
        """Return the posterior mean of the signal in each row.

        The difference ``X - transform(X)`` is the estimated background, including its mean.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n, n_features)
            Rows in memory; for whole images see `Patches.map`.

        Returns
        -------
        ndarray of shape (n, n_features)
            Signal in the units of the data. A value of zero means no signal.

        Raises
        ------
        ValueError
            If the features are not those of the fit, or a value is NaN or infinite.
        """
        blocks = [
            # `Patches` adds the results by columns, which is faster if the columns are contiguous.
            (self.patterns_.T @ found.coordinates.T).T
            for found in self._posteriors(X)
        ]
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    def strengths(self, X: MatrixLike) -> FloatArray:
        """Return the posterior means of the strengths s (signal) and g (background) in each row.

        Parameters
        ----------
        X : as for `transform`

        Returns
        -------
        ndarray of shape (n, 2)
            Strengths of signal and background, relative to their averages over the data of the fit.
            The second column is 1 if ``background_strength="constant"``.

        Raises
        ------
        ValueError
            See `transform`.
        """
        return np.concatenate(
            [
                np.column_stack([found.signal_strength, found.background_strength])
                for found in self._posteriors(X)
            ]
        )

    def feature_weights(self) -> FloatArray:
        """Return the weight of each feature in each pattern of the signal, for `weight_maps`.

        Returns
        -------
        ndarray of shape (r, n_features)
            Squares of ``patterns_``, with each row rescaled to a maximum of 1. The pattern that is
            strongest relative to the background comes first.
        """
        check_is_fitted(self)
        return relative_weights(self.patterns_)

    def _posteriors(self, X: MatrixLike) -> list[Posterior]:
        rows = self._rows(X)
        mixture = ScaleMixture(
            self.background_mean_,
            self.filters_,
            self.patterns_,
            self.signal_variances_,
        )
        strengths = self._background_strengths()
        blocks = rows.blocks(elements=_BLOCK_ELEMENTS, dense=True)
        return [posterior(mixture, block, strengths) for block in blocks]

    def _background_strengths(self) -> tuple[float, ...]:
        return STRENGTHS[check_choice(self.background_strength, "background_strength", STRENGTHS)]
