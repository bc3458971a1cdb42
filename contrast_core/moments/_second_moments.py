"""Count, mean and covariance of a dataset: all that the linear methods need to know of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from contrast_core._sources import StoredRows, is_dask_array, is_stored
from contrast_core._tensors import check_tensor, finite_blocks, is_tensor, tensor_blocks, to_host
from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_rows,
    check_same_features,
    feature_names_of,
    iter_chunks,
    rows_per_chunk,
)
from contrast_core.feedback import Progress, with_progress
from contrast_core.moments._accumulator import Precision, Sums, accumulate


@dataclass(frozen=True, eq=False)
class SecondMoments:
    r"""Count, mean and covariance of a dataset, centred by its own mean.

    .. math:: C = \frac1n \sum_i (x_i - \bar x)(x_i - \bar x)^\top

    These are sufficient statistics for the linear contrastive methods: read the data once, then
    fit at any contrast and number of components. Moments of parts of a dataset merge into the
    moments of the whole, and pickle.

    Parameters
    ----------
    n_samples : int
        Number of rows, n.
    mean : ndarray of shape (n_features,)
        Mean of the rows.
    covariance : ndarray of shape (n_features, n_features)
        Second moments about the mean, divided by n (not n - 1).
    feature_names : tuple of str, optional
        Names of the features, where the data had them.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core import SecondMoments
    >>> X = np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 4.0]])
    >>> whole = SecondMoments.from_data(X)
    >>> parts = SecondMoments.from_data(X[:2]).merge(SecondMoments.from_data(X[2:]))
    >>> parts.n_samples, bool(np.allclose(parts.covariance, whole.covariance))
    (3, True)
    """

    n_samples: int
    mean: FloatArray
    covariance: FloatArray
    feature_names: tuple[str, ...] | None = None

    @property
    def n_features(self) -> int:
        """Number of features, D."""
        return len(self.mean)

    @property
    def variances(self) -> FloatArray:
        """Variance of each feature, shape (n_features,)."""
        return self.covariance.diagonal()

    @property
    def total_variance(self) -> float:
        """Trace of the covariance."""
        return float(np.trace(self.covariance))

    def lift(self, components: FloatArray) -> FloatArray:
        """Rows in the coordinates of `covariance` as rows in feature space: here the same."""
        return components

    @classmethod
    def from_data(
        cls,
        X: MatrixLike,
        *,
        feature_names: Sequence[str] | None = None,
        name: str = "X",
        precision: Precision = "double",
        device: object = None,
        progress: Progress = False,
    ) -> SecondMoments:
        """Moments of a matrix, in memory or not.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, stored dataset, dask array or torch tensor, of \
                shape (n_samples, n_features)
            Any real dtype; read in blocks of rows. Sparse input is never made dense as a whole. An
            HDF5 dataset, a zarr array, the sparse dataset of a backed AnnData or a memory map is
            read in blocks of whole storage chunks, a few of them in memory at a time. A dask array
            is reduced by the active scheduler: threads, processes or a cluster. A dense tensor is
            read on its own device; only the covariance leaves it.
        feature_names : sequence of str, optional
            Names of the features; those of a DataFrame are taken by default.
        name : str, default="X"
            What error messages call the data.
        precision : {"double", "single"}, default="double"
            "single" takes the products of each block of shifted rows in float32 and adds them up
            in float64, about twice as fast. The covariance is then off by 1e-7 to 1e-6 of its
            largest entry, and the contrast multiplies the background's share of that: subspaces
            with a clear gap moved by 1e-8 at alpha up to 30 and by 1e-6 at 1000, those with a small
            gap by up to 1e-3. Good enough for a modest alpha. Sparse rows, whose entries are
            multiplied one by one where that is faster still, mostly stay in double precision.
        device : torch.device or str, optional
            Take the products there with torch: ``device="cuda"`` copies blocks of rows to the GPU
            while the ones before are multiplied. By default, where the data are. Not for dask
            arrays.
        progress : bool or callable, default=False
            Show a progress bar of the blocks read: tqdm's, or one that is called as tqdm is. Not
            for dask arrays, which have a progress bar of their own.

        Returns
        -------
        SecondMoments

        Raises
        ------
        ValueError
            If `X` is not two-dimensional, is empty, or holds NaN or infinity, or the `device` is
            not there.
        ImportError
            If ``progress=True`` and tqdm is not installed, or a `device` is given and torch is not.

        Notes
        -----
        Reading can stop and go on: moments pickle, and those of parts merge. With `dataset` on
        disk and `moments` of its first rows, possibly from an earlier run ::

            part = dataset[moments.n_samples : moments.n_samples + 1_000_000]
            moments = moments.merge(SecondMoments.from_data(part))
        """
        names = feature_names_of(X) if feature_names is None else tuple(feature_names)
        rows: Any = X
        lazy = is_dask_array(X)
        if is_stored(X):
            rows = StoredRows(X, name)
        elif is_tensor(X):
            rows = _tensor_rows(X, name, device, min_rows=1)
        elif not lazy:
            rows = check_rows(X, name, min_rows=1)
        if names is not None and len(names) != rows.shape[-1]:
            raise ValueError(
                f"{len(names)} feature_names were given for the {rows.shape[-1]} features of "
                f"{name}."
            )
        if lazy:
            from contrast_core.moments._dask import dask_sums

            if device is not None:
                raise ValueError(
                    f"device={device!r} was given for a dask array, whose scheduler decides where "
                    "it is computed; leave device out."
                )
            return cls(*dask_sums(rows, name, precision), names)
        checked: Iterable[Any] = ()
        if isinstance(rows, StoredRows):
            blocks: Iterable[Any] = rows.blocks(dense=device is not None)
            total = len(rows)
        elif is_tensor(rows):
            blocks = tensor_blocks(rows)
            total = len(blocks)
            checked = finite_blocks(blocks, name)
        else:
            on_host = device is None
            blocks = iter_chunks(rows, name, check=on_host, dense=not on_host)
            checked = iter_chunks(rows, name)
            total = math.ceil(rows.shape[0] / rows_per_chunk(rows.shape[1]))
        blocks = with_progress(blocks, total, name, progress)
        return cls(*_sums(blocks, name, precision, device, checked), names)

    @classmethod
    def from_chunks(
        cls,
        chunks: Iterable[MatrixLike],
        *,
        feature_names: Sequence[str] | None = None,
        name: str = "X",
        precision: Precision = "double",
        device: object = None,
        progress: Progress = False,
    ) -> SecondMoments:
        """Moments of a dataset that arrives in blocks of rows.

        Parameters
        ----------
        chunks : iterable of array-like, sparse matrices or tensors of shape (any, n_features)
            The blocks; each is read once, before the next is asked for, and may then be dropped or
            overwritten.
        feature_names : sequence of str, optional
            Names of the features; those of the first DataFrame are taken by default.
        name : str, default="X"
            What error messages call the data.
        precision, device, progress
            As for `from_data`; tensors are read on the device of the first one by default.

        Returns
        -------
        SecondMoments

        Raises
        ------
        ValueError
            If there is no block, if blocks differ in their features, or on NaN or infinity.
        """
        names = None if feature_names is None else tuple(feature_names)
        first: tuple[int, tuple[str, ...] | None] | None = None

        def blocks() -> Iterable[Any]:
            nonlocal first
            total = len(chunks) if isinstance(chunks, Sized) else None
            for i, chunk in enumerate(with_progress(chunks, total, name, progress)):
                label = f"chunk {i} of {name}"
                read = partial(_tensor_rows, device=device) if is_tensor(chunk) else check_rows
                rows = read(chunk, label)
                found = feature_names_of(chunk)
                first = first or (rows.shape[1], names or found)
                check_same_features(*first, rows.shape[1], found, background_name=label)
                if is_tensor(rows):
                    yield from finite_blocks(tensor_blocks(rows), label)
                else:
                    yield from iter_chunks(rows, label, dense=device is not None)

        sums = _sums(blocks(), name, precision, device)
        return cls(*sums, first[1] if first else None)

    def merge(self, other: SecondMoments) -> SecondMoments:
        """Moments of the two datasets together.

        Parameters
        ----------
        other : SecondMoments
            Moments of other rows with the same features.

        Returns
        -------
        SecondMoments
            The counts add; neither operand changes.

        Raises
        ------
        ValueError
            If the features differ.
        """
        check_same_features(
            self.n_features,
            self.feature_names,
            other.n_features,
            other.feature_names,
            background_name="the other dataset",
        )
        sums = (Sums(m.n_samples, m.mean, m.covariance) for m in (self, other))
        return SecondMoments(
            *next(sums).merge(next(sums)), self.feature_names or other.feature_names
        )


def _tensor_rows(X: Any, name: str, device: object, *, min_rows: int = 0) -> Any:
    """A checked tensor; on the processor an ndarray, which numpy multiplies faster than torch."""
    rows = check_tensor(X, name, min_rows=min_rows)
    return to_host(rows) if device is None and rows.device.type == "cpu" else rows


def _sums(
    blocks: Iterable[Any],
    name: str,
    precision: Precision,
    device: object,
    checked: Iterable[Any] = (),
) -> Sums:
    """Sums where the data are, or on the device that is asked for.

    `checked` are the same blocks, checked as they are taken, if `blocks` are not.
    """
    remaining = iter(blocks)
    first: Any = next(remaining, None)
    if device is None and is_tensor(first):
        device = first.device
    everything = chain([] if first is None else [first], remaining)
    if device is None:
        return accumulate(everything, name, precision=precision)
    from contrast_core.moments._torch import device_sums

    return device_sums(everything, name, precision=precision, device=device, checked=checked)
