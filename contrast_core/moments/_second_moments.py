"""Count, mean and covariance of a dataset; the linear methods need nothing else.

Problem: compute a covariance in one pass over data that may not fit into memory. Each block of rows
is centred by its own mean, and the blocks are merged pairwise in float64 (`_accumulator`; Chan,
Golub and LeVeque, American Statistician 37:242, 1983). Therefore neither the order of the blocks
nor a mean far from zero costs accuracy, and the moments of parts of a dataset can be merged into
the moments of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import cache, partial, reduce
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_feature_names,
    check_same_features,
)
from contrast_core.feedback import Progress, with_progress
from contrast_core.linalg import blas_threads, worker_threads
from contrast_core.moments._accumulator import Accumulator, Precision, Summary, not_empty
from contrast_core.moments._given import (
    check_chunks,
    check_covariance,
    check_mean,
    check_total,
    names_of_both,
)
from contrast_core.moments._grouped import (
    between_groups,
    check_groups,
    common_labels,
    spread_over,
)
from contrast_core.moments._moments import Form, Moments
from contrast_core.rows import DEVICE_BLOCKS, Rows, pieces, reduce_rows, rows_of

if TYPE_CHECKING:
    from contrast_core.rows import DaskRows


@dataclass(frozen=True, eq=False)
class SecondMoments(Moments):
    r"""Count, mean and covariance of a dataset, centred by its own mean.

    .. math:: C = \frac1n \sum_i (x_i - \bar x)(x_i - \bar x)^\top

    These are sufficient statistics for the linear contrastive methods. Read the data once, and then
    fit with any contrast strength and any number of components. Moments can be pickled, and the
    moments of parts of a dataset can be merged into the moments of the whole.

    Parameters
    ----------
    n_samples : int or float
        Number of rows, n, or their total weight.
    mean : ndarray of shape (n_features,)
        Mean of the rows.
    covariance : ndarray of shape (n_features, n_features)
        Second moments about the mean, divided by n (not n - 1).
    feature_names : tuple of str, optional
        Names of the features, if the data had names.
    groups, group_weights, group_means : ndarrays of shape (G,), (G,) and (G, n_features), optional
        Labels, numbers of rows (or total weights) and means of the groups of the rows.
    within_covariance : ndarray of shape (n_features, n_features), optional
        The part of the covariance that is within groups. If groups are given without this
        parameter, then `covariance` itself is taken about the groups' means.
    parts : tuple of SecondMoments, optional
        If these moments are a weighted sum, the moments that were summed; otherwise empty.

    Raises
    ------
    ValueError, TypeError
        If the arguments cannot be moments: the covariance is not symmetric or has a negative
        variance, the shapes do not match, a value is NaN or infinite, the number of names is wrong,
        there are no rows, or a label occurs twice.

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
    groups: NDArray[Any] | None = None
    group_weights: NDArray[Any] | None = None
    group_means: FloatArray | None = None
    within_covariance: FloatArray | None = None
    parts: tuple[Any, ...] = ()

    form: ClassVar[Form] = "dense"

    def __post_init__(self) -> None:
        mean = check_mean(self.mean, "mean")
        vars(self).update(
            n_samples=check_total(self.n_samples, "n_samples"),
            mean=mean,
            covariance=check_covariance(self.covariance, "covariance", len(mean)),
            feature_names=check_feature_names(self.feature_names, len(mean)),
        )
        if self.groups is not None:
            checked = check_groups(self.groups, self.group_weights, self.group_means)
            vars(self).update(zip(("groups", "group_weights", "group_means"), checked, strict=True))

    @classmethod
    def _unchecked(
        cls,
        n_samples: float,
        mean: FloatArray,
        covariance: FloatArray,
        feature_names: tuple[str, ...] | None = None,
        **more: Any,
    ) -> SecondMoments:
        """Return moments of values that are known to be valid, without the constructor's checks."""
        moments = object.__new__(cls)
        vars(moments).update({field.name: field.default for field in fields(cls)})
        vars(moments).update(
            n_samples=n_samples,
            mean=mean,
            covariance=covariance,
            feature_names=feature_names,
            **more,
        )
        return moments

    @property
    def variances(self) -> FloatArray:
        """Variance of each feature, shape (n_features,)."""
        return self.covariance.diagonal()

    @property
    def centres(self) -> tuple[NDArray[Any], FloatArray] | None:
        """Labels and means of the groups, or None if the covariance is about the overall mean."""
        return None if self.within_covariance is not None else super().centres

    @property
    def within(self) -> SecondMoments:
        """Moments of the variation within groups of rows."""
        self._check_grouped("within")
        return SecondMoments._unchecked(
            *(self.n_samples, self.mean, self.within_covariance, self.feature_names),  # type: ignore[arg-type]
            groups=self.groups,
            group_weights=self.group_weights,
            group_means=self.group_means,
        )

    @property
    def between(self) -> SecondMoments:
        """Moments of the variation between the means of G groups, of rank G - 1 at most."""
        self._check_grouped("between")
        covariance = between_groups(self.group_weights, self.group_means)  # type: ignore[arg-type]
        return SecondMoments._unchecked(self.n_samples, self.mean, covariance, self.feature_names)

    def _check_grouped(self, part: str) -> None:
        if self.within_covariance is None:
            raise AttributeError(
                f"{part!r} needs moments of rows with groups; compute them with "
                "SecondMoments.from_data(X, groups=...)."
            )

    def matrix(self) -> FloatArray:
        """Return the covariance, which must not be modified."""
        return self.covariance

    @classmethod
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
    ) -> SecondMoments:
        """Return the moments of a matrix, in memory or not.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, stored dataset, dask array or torch tensor, of \
                shape (n_samples, n_features)
            Data of any real dtype, which are read in blocks of rows. Sparse input is never made
            dense as a whole. An HDF5 dataset, a zarr array, the sparse dataset of a backed AnnData
            or a memory map is read in blocks of whole storage chunks, with a few blocks in memory
            at a time. A dask array is reduced by the active scheduler: threads, processes or a
            cluster. A dense tensor is read on its own device or, if there are groups or weights, on
            the processor.
        groups : array-like of shape (n_samples,), optional
            A label for each row, such as its donor. The result describes all rows. Its attributes
            `within` and `between` are moments of the variation within groups and between groups,
            and their covariances add up to the covariance of all rows.
        sample_weight : array-like of shape (n_samples,), optional
            A weight for each row, not negative. Mean and covariance are then weighted means, and
            `n_samples` is the sum of the weights. A row with a whole number as its weight counts as
            that many rows.
        feature_names : sequence of str, optional
            Names of the features; by default the column names, if X is a DataFrame.
        name : str, default="X"
            Name of the data in error messages.
        precision : {"double", "single"}, default="double"
            With "single", the products of each block of centred rows are computed in float32 and
            added up in float64, which is about twice as fast. The error of the covariance is then
            1e-7 to 1e-6 of its largest entry, and the contrast multiplies the background's error by
            alpha. In measurements, subspaces with a clear eigenvalue gap moved by 1e-8 at alpha up
            to 30 and by 1e-6 at alpha 1000. Subspaces with a small gap moved by up to 1e-3. This is
            good enough for a modest alpha. Most products of sparse rows are computed entry by entry
            in double precision, because that is faster still.
        device : torch.device or str, optional
            Device on which torch computes the products; by default the device that holds the data.
            With ``device="cuda"``, the next block of rows is copied to the GPU while the previous
            block is multiplied. A device cannot be combined with dask arrays, groups or weights.
        progress : bool or callable, default=False
            Whether to show tqdm's progress bar of the blocks that are read. A function is called in
            the place of tqdm. This has no effect on dask arrays, because dask has its own progress
            bar.

        Returns
        -------
        SecondMoments

        Raises
        ------
        ValueError
            If `X` is not two-dimensional, is empty, or holds NaN or infinity, or the `device` does
            not exist.
        ImportError
            If ``progress=True`` and tqdm is not installed, or a `device` is given and torch is not.

        Notes
        -----
        Reading can be interrupted and continued, because moments can be pickled and merged. In this
        example, `dataset` is on disk, and `moments` were computed from its first rows earlier ::

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
    ) -> list[SecondMoments]:
        """Return the moments of several selections of rows, read in one pass if possible.

        Parameters
        ----------
        parts : sequence of contrast_core.rows.Rows
            Selections such as ``whole.take(...)``. If all of them select rows of one dataset and no
            device is used, each row is read only once. Otherwise, one selection is read after the
            other.
        precision, device
            As for `from_data`.

        Returns
        -------
        list of SecondMoments

        Raises
        ------
        ValueError
            As for `from_data`.
        """
        # Selections may overlap. They are split into disjoint pieces, so each row is read once.
        split = pieces(parts) if len(parts) > 1 and device is None else None
        if split is None:
            return [
                _moments(_summaries([rows], precision, device)[0], rows.groups, rows.names)
                for rows in parts
            ]
        disjoint, pieces_of_parts = split
        summaries = _summaries(disjoint, precision, None)
        return [
            _moments(
                reduce(Summary.merge, [summaries[i] for i in made_of]), rows.groups, rows.names
            )
            for rows, made_of in zip(parts, pieces_of_parts, strict=True)
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
        """Return the moments of a dataset that arrives in blocks of rows.

        Parameters
        ----------
        chunks : iterable of array-like, sparse matrices or tensors of shape (any, n_features)
            Blocks of rows. Each block is read once before the next one is taken, and may then be
            dropped or overwritten.
        feature_names : sequence of str, optional
            Names of the features; by default the column names of the first DataFrame.
        name : str, default="X"
            Name of the data in error messages.
        precision, progress
            As for `from_data`.
        device : torch.device or str, optional
            As for `from_data`. Tensors are read on the device of the first tensor by default.

        Returns
        -------
        SecondMoments

        Raises
        ------
        ValueError
            If there is no block, blocks differ in their features, or a value is NaN or infinite.
        """
        check_chunks(chunks, "blocks of rows")
        total = len(chunks) if isinstance(chunks, Sized) else None
        first: Rows | None = None
        with ExitStack() as stack:
            for i, chunk in enumerate(with_progress(chunks, total, name, progress)):
                rows = rows_of(chunk, f"chunk {i} of {name}")
                if first is None:
                    first, names = rows, rows_of(rows, names=feature_names).names
                    if device is None and rows.place != "device":
                        threads = partial(stack.enter_context, worker_threads())
                        options: Any = {"elements": rows.elements, "start_workers": threads}
                        accumulator: Any = Accumulator(name, precision, **options)
                    else:
                        accumulator = _on_device(rows, name, precision, device)
                check_same_features(
                    *(first.shape[1], first.names or names, rows.shape[1], rows.names),
                    background_name=rows.name,
                )
                accumulator.consume(rows)
            total_moments = not_empty(accumulator.result() if first is not None else None, name)
        return cls._unchecked(
            total_moments.n_samples, total_moments.mean, total_moments.within, names
        )

    def merge(self, other: SecondMoments) -> SecondMoments:
        """Return the moments of the two datasets together.

        Parameters
        ----------
        other : SecondMoments
            Moments of other rows with the same features.

        Returns
        -------
        SecondMoments
            Moments whose count is the sum of both counts. Neither operand changes.

        Raises
        ------
        ValueError
            If the features differ.
        """
        names = names_of_both(self, other, "take SecondMoments.from_data of it first")
        grouped = [moments.within_covariance is not None for moments in (self, other)]
        if any(grouped) and not all(grouped):
            raise TypeError(
                "only one of the two moments was computed with groups. Compute both with groups=, "
                "or merge only their `within` or `between`."
            )
        labels = None
        if any(grouped):
            labels = common_labels(self.groups, other.groups)  # type: ignore[arg-type]
        return _moments(self._summary(labels).merge(other._summary(labels)), labels, names)

    def _summary(self, labels: NDArray[Any] | None) -> Summary:
        """Return the summary of rows in groups with these labels, or of rows without groups."""
        if labels is None:
            return Summary(np.array([self.n_samples]), self.mean[None], self.covariance)
        own: Any = self.group_weights, self.group_means, self.within_covariance
        return spread_over(labels, Summary(*own), self.groups)  # type: ignore[arg-type]


def grouped_moments(
    groups: ArrayLike,
    group_weights: ArrayLike,
    group_means: ArrayLike,
    within_covariance: ArrayLike,
    feature_names: Sequence[str] | None = None,
) -> SecondMoments:
    r"""Return the moments of rows that belong to groups, from moments of the groups.

    .. math:: C = W + B, \qquad
        W = \frac1n \sum_i (x_i - m_{g(i)})(x_i - m_{g(i)})^\top, \qquad
        B = \sum_g \frac{n_g}{n} (m_g - m)(m_g - m)^\top

    Here :math:`m_g` is the mean of the :math:`n_g` rows of group g, g(i) is the group of row i, and
    m is the mean of all n rows. `SecondMoments.from_data` computes the same moments from data with
    ``groups=``.

    Parameters
    ----------
    groups : array-like of shape (G,)
        The groups' labels.
    group_weights : array-like of shape (G,)
        Number of rows of each group, or their total weight.
    group_means : array-like of shape (G, n_features)
        Mean of each group.
    within_covariance : array-like of shape (n_features, n_features)
        The matrix W, which is divided by the total weight.
    feature_names : sequence of str, optional
        Names of the features.

    Returns
    -------
    SecondMoments
        Moments with the covariance C, and with W and B as `within` and `between`.

    Raises
    ------
    ValueError, TypeError
        If the arguments cannot be moments: the shapes do not match, a label occurs twice, a value
        is NaN, a weight is not positive, or the covariance is not symmetric.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core import SecondMoments
    >>> X = np.array([[0.0, 1.0], [2.0, 1.0], [10.0, 5.0], [12.0, 5.0]])
    >>> moments = SecondMoments.from_data(X, groups=["a", "a", "b", "b"])
    >>> moments.within.covariance
    array([[1., 0.],
           [0., 0.]])
    >>> moments.between.covariance
    array([[25., 10.],
           [10.,  4.]])
    """
    labels, weights, means = check_groups(groups, group_weights, group_means)
    within = check_covariance(within_covariance, "within_covariance", means.shape[1])
    names = check_feature_names(feature_names, means.shape[1])
    return _moments(Summary(weights, means, within), labels, names)


def _moments(
    sums: Summary, groups: NDArray[Any] | None, names: tuple[str, ...] | None
) -> SecondMoments:
    """Return the moments that a summary describes, without the groups that have no rows."""
    make = SecondMoments._unchecked
    if groups is None:
        return make(sums.n_samples, sums.mean, sums.within, names)
    there = np.flatnonzero(sums.weights)
    weights, means = sums.weights[there], sums.means[there]
    mean = np.asarray(weights @ means / weights.sum())
    return make(
        *(sums.n_samples, mean, between_groups(weights, means) + sums.within, names),
        groups=groups[there],
        group_weights=weights,
        group_means=means,
        within_covariance=sums.within,
    )


def _summaries(parts: Sequence[Rows], precision: Precision, device: object) -> list[Summary]:
    """Summarise several disjoint selections of one dataset, in one pass over the dataset.

    The sums are computed on the device of the data or on the given device.
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
        elif cast("DaskRows", first).runs_in_threads:  # dask's threads would compete with BLAS's
            stack.enter_context(stack.enter_context(blas_threads()).limit(limits=1))
        sums = reduce_rows(parts, partial(Accumulator, first.name, precision, **options))
    return [not_empty(each, first.name) for each in sums]


def _device_summary(rows: Rows, precision: Precision, device: object) -> Summary:
    """Summarise rows on a device."""
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
    accumulator = _on_device(rows, rows.name, precision, device)
    accumulator.consume(rows)
    return not_empty(accumulator.result(), rows.name)


def _on_device(rows: Rows, name: str, precision: Precision, device: object) -> Any:
    """Return an accumulator on the given device, by default the device of the rows."""
    from contrast_core.moments._torch import DeviceAccumulator

    elements = rows.elements * (1 if rows.place == "device" else DEVICE_BLOCKS)
    where = rows.device if device is None else device
    return DeviceAccumulator(name, where, precision, elements=elements)
