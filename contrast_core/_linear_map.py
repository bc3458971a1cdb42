"""Linear map from rows to scores and back, which a fitted linear method applies to new rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from contrast_core._validation import FloatArray, MatrixLike, check_choice, real_array
from contrast_core.rows import Rows, rows_of


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearMap:
    r"""Linear maps from rows to scores and from scores to rows, about a mean.

    .. math:: z = (x - \bar x) P, \qquad \hat x = z R + \bar x

    Parameters
    ----------
    mean : ndarray of shape (n_features,)
        The mean :math:`\bar x`, which is subtracted from every row.
    projection : ndarray of shape (n_features, k)
        The matrix P.
    reconstruction : ndarray of shape (k, n_features), optional
        The matrix R. Without it, `transform` is the only method that can be used. If R is the
        transpose of P and has orthonormal rows, ``P R`` is an orthogonal projector.
    offsets : dict of ndarrays of shape (n_features,), optional
        Vectors that `denoise` can add to its result, by name.

    Raises
    ------
    ValueError, TypeError
        If the shapes are inconsistent, or the values are not real numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core.spectral import LinearMap
    >>> axis = np.array([[0.6, 0.8]])
    >>> line = LinearMap(mean=np.array([1.0, 1.0]), projection=axis.T, reconstruction=axis)
    >>> scores = line.transform([[1.6, 1.8]])
    >>> line.inverse_transform(scores)
    array([[1.6, 1.8]])
    """

    mean: FloatArray
    projection: FloatArray
    reconstruction: FloatArray | None = None
    offsets: Mapping[str, FloatArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        mean, projection = real_array(self.mean, "mean"), real_array(self.projection, "projection")
        d, k = mean.size, projection.shape[-1] if projection.ndim else 1
        given = {
            "mean": (mean, (d,)),
            "projection": (projection, (d, k)),
            **{
                f"offsets[{name!r}]": (real_array(each, name), (d,))
                for name, each in self.offsets.items()
            },
        }
        back = self.reconstruction
        if back is not None:
            back = real_array(back, "reconstruction")
            given["reconstruction"] = back, (k, d)
        for name, (array, expected) in given.items():
            if array.shape != expected:
                raise ValueError(
                    f"{name} has shape {array.shape}; with {d} features and {k} scores it must be "
                    f"{expected}."
                )
        vars(self).update(mean=mean, projection=projection, reconstruction=back)

    def transform(self, X: MatrixLike | Rows) -> FloatArray:
        """Return the scores of rows.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, stored dataset, dask array or torch tensor of \
                shape (n, n_features)
            Rows. Sparse rows stay sparse, and stored rows are read in blocks.

        Returns
        -------
        ndarray of shape (n, k)
            ``(X - mean) @ projection``. If X is a dask array, the scores are a dask array that is
            not computed yet. If X is a tensor, the scores are a tensor on the same device.

        Raises
        ------
        ValueError
            If X has a different number of features, or a value is NaN or infinite.
        """
        return self._map(_project, X, self.projection.shape[1])

    def inverse_transform(self, X: MatrixLike) -> FloatArray:
        """Return rows from their scores.

        Parameters
        ----------
        X : array-like, dask array or torch tensor of shape (n, k)
            Scores.

        Returns
        -------
        ndarray of shape (n, n_features)
            ``X @ reconstruction + mean``. If X is a dask array or a tensor, so is the result, as
            for `transform`.

        Raises
        ------
        ValueError
            If the number of columns is not the number of scores, a value is NaN or infinite, or
            the map has no reconstruction.
        """
        scores, (k, width) = rows_of(X, "scores"), self._reconstruction.shape
        if scores.shape[1] != k:
            raise ValueError(
                f"scores have shape {scores.shape}; expected (n, {k}), a column per component, as "
                "transform returns them."
            )
        function = partial(_reconstruct, reconstruction=self._reconstruction, offset=self.mean)
        rows: FloatArray = scores.map(function, width)
        return rows

    def denoise(self, X: MatrixLike | Rows, *, offset: str = "foreground") -> FloatArray:
        r"""Reconstruct rows from their scores, which removes the rest of each row.

        .. math:: \hat x = (x - \bar x) P R + \text{offset}

        Parameters
        ----------
        X : as for `transform`
            Rows.
        offset : str, default="foreground"
            Name of the vector in `offsets` that is added to the result.

        Returns
        -------
        ndarray of shape (n, n_features)

        Raises
        ------
        ValueError
            If there is no such offset, X has a different number of features, a value is NaN or
            infinite, or the map has no reconstruction.
        """
        added = self.offsets[check_choice(offset, "offset", sorted(self.offsets))]
        back = self._reconstruction
        return self._map(_denoise, X, len(added), reconstruction=back, offset=added)

    def remove_components(self, X: MatrixLike | Rows) -> FloatArray:
        r"""Remove the part of rows that `denoise` keeps.

        .. math:: x - (x - \bar x) P R

        Parameters
        ----------
        X : as for `transform`
            Rows. The result is dense.

        Returns
        -------
        ndarray of shape (n, n_features)

        Raises
        ------
        ValueError
            If X has a different number of features, a value is NaN or infinite, or the map has no
            reconstruction.
        """
        return self._map(
            _remove, X, len(self.mean), dense=True, reconstruction=self._reconstruction
        )

    def feature_weights(self) -> FloatArray:
        """Return the weight of each feature in each score.

        Returns
        -------
        ndarray of shape (k, n_features)
            Squared entries of the reconstruction, each row rescaled to a maximum of 1.

        Raises
        ------
        ValueError
            If the map has no reconstruction.
        """
        squared = self._reconstruction**2
        return np.asarray(squared / squared.max(axis=1, keepdims=True))

    @staticmethod
    def reconstruction_of(projection: FloatArray, loadings: FloatArray) -> FloatArray:
        r"""Return the matrix R that maps scores back to rows, for scores that may be shrunk.

        .. math:: R = (W^\top P)^+ W^\top

        The rows of R are combinations of the loadings, which are the columns of W. If scores are
        shrunk towards zero, as posterior means are, the reconstruction undoes the shrinkage.
        Because of the pseudo-inverse, scores that were shrunk to zero stay at zero.

        Parameters
        ----------
        projection, loadings : ndarray of shape (n_features, k)
            The matrices P and W.

        Returns
        -------
        ndarray of shape (k, n_features)
        """
        return np.asarray(np.linalg.pinv(loadings.T @ projection) @ loadings.T)

    @property
    def _reconstruction(self) -> FloatArray:
        if self.reconstruction is None:
            raise ValueError(
                "this map has no reconstruction, so it maps rows to scores only. Give "
                "reconstruction= to map scores back to rows."
            )
        return self.reconstruction

    def _map(
        self,
        function: Callable[..., Any],
        X: MatrixLike | Rows,
        width: int,
        *,
        dense: bool = False,
        **arrays: FloatArray,
    ) -> FloatArray:
        """Apply `function` to all rows, block by block.

        All methods that take rows call this method; `inverse_transform` takes scores and does not.
        """
        rows = rows_of(X)
        if rows.shape[1] != len(self.mean):
            raise ValueError(
                f"{rows.name} has {rows.shape[1]} features, but the map expects {len(self.mean)}."
            )
        arrays |= {"mean": self.mean, "projection": self.projection}
        result: FloatArray = rows.map(partial(function, **arrays), width, dense=dense)
        return result


def _project(rows: Any, *, mean: FloatArray, projection: FloatArray) -> FloatArray:
    """Return ``(rows - mean) @ projection`` without centring the rows, which may be sparse."""
    scores: FloatArray = rows @ projection - mean @ projection
    return scores


def _reconstruct(scores: Any, *, reconstruction: FloatArray, offset: FloatArray) -> FloatArray:
    rows: FloatArray = scores @ reconstruction + offset
    return rows


def _denoise(
    rows: Any,
    *,
    mean: FloatArray,
    projection: FloatArray,
    reconstruction: FloatArray,
    offset: FloatArray,
) -> FloatArray:
    scores = _project(rows, mean=mean, projection=projection)
    return _reconstruct(scores, reconstruction=reconstruction, offset=offset)


def _remove(
    rows: Any, *, mean: FloatArray, projection: FloatArray, reconstruction: FloatArray
) -> FloatArray:
    rest: FloatArray = rows - _project(rows, mean=mean, projection=projection) @ reconstruction
    return rest
