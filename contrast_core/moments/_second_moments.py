"""Count, mean and covariance of a dataset: all that the linear methods need to know of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial, reduce
from typing import TYPE_CHECKING, Any, Self, cast, overload

import numpy as np
from numpy.typing import ArrayLike

from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_feature_names,
    check_same_features,
)
from contrast_core.feedback import Progress, with_progress
from contrast_core.linalg import blas_threads, worker_threads
from contrast_core.moments._accumulator import Accumulator, Precision, Summary, not_empty
from contrast_core.moments._covariance import Formed, Moments
from contrast_core.moments._given import (
    check_chunks,
    check_covariance,
    check_mean,
    check_total,
    names_of_both,
)
from contrast_core.rows import DEVICE_BLOCKS, Rows, pieces, reduce_rows, rows_of

if TYPE_CHECKING:
    from contrast_core.moments._grouped import GroupedMoments
    from contrast_core.rows import DaskRows


@dataclass(frozen=True, eq=False)
class SecondMoments(Formed, Moments):
    r"""Count, mean and covariance of a dataset, centred by its own mean.

    .. math:: C = \frac1n \sum_i (x_i - \bar x)(x_i - \bar x)^\top

    These are sufficient statistics for the linear contrastive methods: read the data once, then
    fit at any contrast and number of components. Moments of parts of a dataset merge into the
    moments of the whole, and pickle.

    Parameters
    ----------
    n_samples : int or float
        Number of rows, n, or their total weight.
    mean : ndarray of shape (n_features,)
        Mean of the rows.
    covariance : ndarray of shape (n_features, n_features)
        Second moments about the mean, divided by n (not n - 1).
    feature_names : tuple of str, optional
        Names of the features, where the data had them.

    Raises
    ------
    ValueError, TypeError
        If these are not moments: a covariance that is not symmetric or has a negative variance,
        shapes that differ, NaN or infinity, names too few or many, no rows.

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

    n_samples: float
    mean: FloatArray
    covariance: FloatArray
    feature_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        mean = check_mean(self.mean, "mean")
        vars(self).update(
            n_samples=check_total(self.n_samples, "n_samples"),
            mean=mean,
            covariance=check_covariance(self.covariance, "covariance", len(mean)),
            feature_names=check_feature_names(self.feature_names, len(mean)),
        )

    @classmethod
    def _unchecked(
        cls,
        n_samples: float,
        mean: FloatArray,
        covariance: FloatArray,
        feature_names: tuple[str, ...] | None = None,
    ) -> SecondMoments:
        """Moments that were worked out here, without the constructor's checks."""
        moments = object.__new__(cls)
        vars(moments).update(
            n_samples=n_samples, mean=mean, covariance=covariance, feature_names=feature_names
        )
        return moments

    @overload
    @classmethod
    def from_data(cls, X: MatrixLike, *, groups: None = None, **options: Any) -> Self: ...

    @overload
    @classmethod
    def from_data(cls, X: MatrixLike, *, groups: ArrayLike, **options: Any) -> GroupedMoments: ...

    @classmethod  # type: ignore[misc]  # the options are those below
    def from_data(
        cls,
        X: MatrixLike,
        *,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
        name: str = "X",
        precision: Precision = "double",
        device: object = None,
        progress: Progress = False,
    ) -> Any:
        """Moments of a matrix, in memory or not.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, stored dataset, dask array or torch tensor, of \
                shape (n_samples, n_features)
            Any real dtype; read in blocks of rows. Sparse input is never made dense as a whole. An
            HDF5 dataset, a zarr array, the sparse dataset of a backed AnnData or a memory map is
            read in blocks of whole storage chunks, a few of them in memory at a time. A dask array
            is reduced by the active scheduler: threads, processes or a cluster. A dense tensor is
            read on its own device, with groups or weights on the processor.
        groups : array-like of shape (n_samples,), optional
            A label for each row, such as its donor: the moments then are `GroupedMoments`, which
            give what varies within groups and between them.
        sample_weight : array-like of shape (n_samples,), optional
            A weight for each row, not negative: mean and covariance are weighted means, and
            `n_samples` is their sum. Whole numbers count rows so many times.
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
            arrays, groups or weights.
        progress : bool or callable, default=False
            Show a progress bar of the blocks read: tqdm's, or one that is called as tqdm is. Not
            for dask arrays, which have a progress bar of their own.

        Returns
        -------
        SecondMoments or GroupedMoments

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
        rows = rows_of(
            X,
            name,
            names=feature_names,
            weights=sample_weight,
            groups=groups,
            progress=progress,
        )
        return cls.from_parts([rows], precision=precision, device=device)[0]

    @classmethod
    def from_parts(
        cls,
        parts: Sequence[Rows],
        *,
        precision: Precision = "double",
        device: object = None,
    ) -> list[Any]:
        """Moments of several selections of rows; those of one dataset are read in one pass.

        Parameters
        ----------
        parts : sequence of contrast_core.rows.Rows
            Selections such as ``whole.take(...)``; rows that several have are read once too.
        precision, device
            As for `from_data`.

        Returns
        -------
        list of SecondMoments, or GroupedMoments where the rows have groups

        Raises
        ------
        ValueError
            As for `from_data`.
        """
        joint = pieces(parts) if len(parts) > 1 and device is None else None
        if joint is None:
            return [_moments(_summaries([rows], precision, device)[0], rows) for rows in parts]
        found = _summaries(joint[0], precision, None)
        return [
            _moments(reduce(Summary.merge, [found[i] for i in made_of]), rows)
            for rows, made_of in zip(parts, joint[1], strict=True)
        ]

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
        check_chunks(chunks, "blocks of rows")
        total = len(chunks) if isinstance(chunks, Sized) else None
        first: Rows | None = None
        with ExitStack() as stack:
            for i, chunk in enumerate(with_progress(chunks, total, name, progress)):
                rows = rows_of(chunk, f"chunk {i} of {name}")
                if first is None:
                    first, names = rows, rows_of(rows, names=feature_names).names
                    accumulator = _accumulator(first, name, precision, device, stack)
                check_same_features(
                    *(first.shape[1], first.names or names, rows.shape[1], rows.names),
                    background_name=rows.name,
                )
                accumulator.consume(rows)
            found = not_empty(accumulator.result() if first is not None else None, name)
        return cls._unchecked(found.n_samples, found.mean, found.within, names)

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
        names = names_of_both(self, other, "take SecondMoments.from_data of it first")
        a, b = (Summary(np.array([m.n_samples]), m.mean[None], m.covariance) for m in (self, other))
        both = a.merge(b)
        return SecondMoments._unchecked(both.n_samples, both.mean, both.within, names)


def _moments(sums: Summary, rows: Rows) -> Any:
    """With the groups of the rows, if they have any."""
    from contrast_core.moments._grouped import GroupedMoments

    if rows.groups is not None:
        return GroupedMoments._of_summary(sums, rows.groups, rows.names)
    return SecondMoments._unchecked(sums.n_samples, sums.mean, sums.within, rows.names)


def _summaries(parts: Sequence[Rows], precision: Precision, device: object) -> list[Summary]:
    """Summary of each of several disjoint selections of one dataset, in one pass over it.

    Where the data are, or on the device that is asked for.
    """
    first = parts[0]
    if first.place == "device" and device is None and first.is_plain:
        device = first.device
    if device is not None:
        return [_device_summary(first, precision, device)]
    n_groups = 1 if first.groups is None else len(first.groups)
    options: Any = {"elements": first.elements, "n_groups": n_groups}
    with ExitStack() as stack:
        if first.place != "dask":
            options["start_workers"] = cache(lambda: stack.enter_context(worker_threads()))
        elif cast("DaskRows", first).runs_in_threads:  # which share BLAS's threads
            stack.enter_context(stack.enter_context(blas_threads()).limit(limits=1))
        sums = reduce_rows(parts, partial(Accumulator, first.name, precision, **options))
    return [not_empty(each, first.name) for each in sums]


def _device_summary(rows: Rows, precision: Precision, device: object) -> Summary:
    """Rows that can be read again at little cost are checked only if a sum is not finite.

    So finite ones need no pass for it.
    """
    if rows.place == "dask":
        raise ValueError(
            f"device={device!r} was given for a dask array, whose scheduler decides where it is "
            "computed; leave device out."
        )
    if not rows.is_plain:
        raise ValueError(
            f"device={device!r} was given for rows with weights or groups, which are summed up on "
            "the processor; leave device out."
        )
    again = rows.in_memory or rows.place == "device"
    with ExitStack() as stack:
        accumulator = _accumulator(rows, rows.name, precision, device, stack)
        accumulator.consume(rows, check=not again)
        try:
            return not_empty(accumulator.result(), rows.name)
        except ValueError:
            if again:
                rows.check()
            raise


def _accumulator(
    rows: Rows, name: str, precision: Precision, device: object, stack: ExitStack
) -> Any:
    """Where to add up rows such as these."""
    if device is None and rows.place != "device":
        start_workers = partial(stack.enter_context, worker_threads())
        options: Any = {"elements": rows.elements, "start_workers": start_workers}
        return Accumulator(name, precision, **options)
    from contrast_core.moments._torch import DeviceAccumulator

    elements = rows.elements * (1 if rows.place == "device" else DEVICE_BLOCKS)
    where = rows.device if device is None else device
    return stack.enter_context(DeviceAccumulator(name, where, precision, elements=elements))
