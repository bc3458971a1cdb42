"""The interface that rows of every kind share."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse, vstack

from contrast_core._validation import FloatArray
from contrast_core.feedback import Progress, with_progress
from contrast_core.rows._checks import check_finite

Place: TypeAlias = Literal["memory", "stored", "dask", "device"]
Index: TypeAlias = NDArray[np.intp]

T = TypeVar("T")
RowsT = TypeVar("RowsT", bound="Rows")

ELEMENTS = 2**22  # 32 MB of float64: large enough for BLAS, small compared with the data
_ELEMENTS_PER_PASS = 16  # factor by which blocks of columns grow if each takes a pass over the rows


class Rows(ABC):
    """Selected rows and columns of a dataset in memory, in a file, in dask or on a device.

    `rows_of` creates instances; `contrast_core.rows` describes the attributes.

    Parameters
    ----------
    source
        The whole dataset, in the form that the subclass reads.
    shape : (int, int)
        Shape of the whole dataset.
    dtype : numpy dtype
        Type of the values in blocks.
    name : str
        Name of the data in error messages.
    names : tuple of str or None
        Names of the features.
    elements : int
        Number of values that are read at once, if the storage chunks allow it.
    progress : bool or callable
        Whether reading shows tqdm's progress bar. A callable is used in the place of tqdm.
    remedy : str or None
        Advice at the end of errors about NaN.
    missing : bool
        Whether NaN is accepted as a missing value.
    """

    place: Place = "memory"
    is_sparse: bool = False
    reads_rows: bool = True
    reads_columns: bool = True
    device: Any = None
    _any_order: ClassVar[bool] = True  # whether rows may be taken in any order and repeatedly

    def __init__(
        self,
        source: Any,
        shape: tuple[int, int],
        dtype: Any,
        *,
        name: str,
        names: tuple[str, ...] | None,
        elements: int,
        progress: Progress = False,
        remedy: str | None = None,
        missing: bool = False,
    ) -> None:
        self._source = source
        self.shape, self.dtype = shape, dtype
        self.name, self.names, self.elements = name, names, elements
        self.progress, self.remedy, self.missing = progress, remedy, missing
        self._n_source = shape[0]
        self._rows: Index | None = None
        self._columns: Index | None = None
        self._weights: FloatArray | None = None
        self._codes: Index | None = None
        self.groups: NDArray[Any] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether rows have neither weights nor groups."""
        return self._weights is None and self._codes is None

    @property
    def weights(self) -> FloatArray | None:
        """Weight of each selected row."""
        return None if self._weights is None else self._weights[self._selected_index]

    @property
    def codes(self) -> Index | None:
        """Index in `groups` of the group of each selected row."""
        return None if self._codes is None else self._codes[self._selected_index]

    @property
    def _selected_index(self) -> Any:
        return slice(None) if self._rows is None else self._rows

    def labelled(self, weights: FloatArray | None, groups: NDArray[Any] | None) -> Self:
        """Return the rows with a weight, a group or both for each selected row."""
        other = copy.copy(self)
        if weights is not None:
            other._weights = self._spread(weights)
        if groups is not None:
            other.groups, codes = np.unique(groups, return_inverse=True)
            other._codes = self._spread(codes)
        return other

    def _spread(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the values of the selected rows as an array over all rows of the dataset."""
        if self._rows is None:
            return values
        spread = np.zeros(self._n_source, values.dtype)
        spread[self._rows] = values
        return spread

    @property
    def in_memory(self) -> bool:
        """Whether the data are in memory, so that `load` does not have to read a file."""
        return self.place == "memory"

    @property
    def n_entries(self) -> int:
        """Number of stored entries of the selected rows, if they are sparse and in memory."""
        raise TypeError(f"{self.name} is not sparse and in memory.")

    def take(self, rows: ArrayLike | slice) -> Self:
        """Return the rows that a mask, a slice or indices select; nothing is read or copied.

        Raises
        ------
        ValueError
            If the mask has a wrong length, or indices are not ascending and the data are not in
            memory.
        """
        index = _positions(rows, self.shape[0], "rows", self.name)
        if index is None:
            return self
        if not self._any_order and (np.diff(index) <= 0).any():
            raise ValueError(
                f"the rows of {self.name} cannot be selected in another order or repeatedly, "
                "because they are not in memory: give ascending indices or a mask, or load the "
                "rows first."
            )
        taken = copy.copy(self)
        taken._rows = index if self._rows is None else self._rows[index]
        taken.shape = (len(index), self.shape[1])
        return taken

    def take_all(self) -> Self:
        """Return all rows of the dataset, with the columns that are selected here."""
        whole = copy.copy(self)
        whole._rows = None
        whole.shape = (self._n_source, self.shape[1])
        return whole

    def columns(self, columns: ArrayLike | slice) -> Self:
        """Return the columns that a mask, a slice or indices select.

        Only data in memory are copied.
        """
        index = _positions(columns, self.shape[1], "columns", self.name)
        if index is None:
            return self
        picked = copy.copy(self)
        picked.names = None if self.names is None else tuple(self.names[i] for i in index)
        picked.shape = (self.shape[0], len(index))
        picked._columns = index if self._columns is None else self._columns[index]
        picked._pick_columns(index)
        return picked

    def replace(self, **changes: Any) -> Self:
        """Return the same rows with other values of `names`, `elements` and similar attributes."""
        if not changes:
            return self
        other = copy.copy(self)
        vars(other).update(changes)
        return other

    def _pick_columns(self, index: Index) -> None:  # noqa: B027
        """Discard cached data of the previous selection of columns."""

    def edges(self, elements: int | None = None) -> list[int]:
        """Return where blocks of rows begin and end: 0, ..., n."""
        step = max(1, (elements or self.elements) // max(1, self.shape[1]))
        return [*range(0, self.shape[0], step), self.shape[0]]

    def blocks(
        self, *, elements: int | None = None, dense: bool = False, check: bool = True
    ) -> Iterator[Any]:
        """Yield blocks of rows of bounded size, in the data's own dtype.

        Parameters
        ----------
        elements : int, optional
            Number of values in a block, instead of the number given to `rows_of`.
        dense : bool, default=False
            Whether to yield sparse rows as ndarrays rather than CSR matrices.
        check : bool, default=True
            Whether to raise an error on NaN and infinity. The message names the rows.
        """
        for start, stop in self._shown(list(pairwise(self.edges(elements)))):
            yield self.read(start, stop, dense=dense, check=check)

    def read(self, start: int, stop: int, *, dense: bool = False, check: bool = True) -> Any:
        """Return the selected rows `start` to `stop`."""
        block = self._read(start, stop)
        if check:
            self._check(block, self._label(start, stop))
        return block.toarray() if dense and issparse(block) else block

    def column_blocks(self, width: int | None = None) -> Iterator[tuple[slice, Any]]:
        """Yield slices of columns with their values in all selected rows, without a check for NaN.

        Parameters
        ----------
        width : int, optional
            Number of columns in a block. By default, a block has `elements` values, or sixteen
            times as many if each block needs a pass over the rows (see `reads_columns`).
        """
        n, n_columns = self.shape
        if width is None:
            most = self.elements * (1 if self.reads_columns else _ELEMENTS_PER_PASS)
            width = max(1, most // max(1, n))
        for start in self._shown(range(0, n_columns, width)):
            which = slice(start, min(start + width, n_columns))
            yield which, self._read_columns(which)

    def read_columns(self, which: slice, *, check: bool = True) -> Any:
        """Return some columns of all selected rows as an ndarray."""
        block = self._read_columns(which)
        if check:
            self._check(block, self.name, which.start)
        return block.toarray() if issparse(block) else block

    def check(self) -> None:
        """Raise ValueError on NaN or infinity."""
        for _ in self.blocks():
            pass

    @property
    def can_miss(self) -> bool:
        """Whether NaN can stand for a missing value: only in dense rows that are not tensors.

        In a sparse matrix, entries that are not stored are zeros. In a tensor, NaN would spread to
        the gradients.
        """
        return not self.is_sparse and self.device is None

    def any_missing(self) -> bool:
        """Return whether NaN is accepted as a missing value and occurs in the rows."""
        return self.missing and any(
            block.dtype.kind == "f" and np.isnan(block).any() for block in self.blocks()
        )

    def map(self, function: Callable[..., Any], width: int, *, dense: bool = False) -> Any:
        """Apply `function` to the rows block by block and return the results.

        Parameters
        ----------
        function : callable
            Function of finite rows (b, n_features), dense or CSR, that returns an ndarray
            (b, width) of float64. If the rows are a tensor, it must be a `functools.partial` whose
            keywords are arrays. These arrays are converted to tensors, and the function is called
            with a tensor.
        width : int
            Number of columns of the result.
        dense : bool, default=False
            Whether `function` gets sparse rows as ndarrays rather than CSR matrices.

        Returns
        -------
        ndarray of shape (n, width)
            For a dask array, the result is a dask array that is not computed yet. For a tensor, it
            is a tensor on the same device.
        """
        result, start = np.empty((self.shape[0], width)), 0
        n_columns = self.shape[1]
        elements = self.elements * n_columns // max(n_columns, width)  # limits results as well
        for block in self.blocks(elements=max(1, elements), dense=dense):
            stop = start + block.shape[0]
            result[start:stop] = function(block)
            start = stop
        return result

    def load(self, *, dense: bool = False, check: bool = True) -> Any:
        """Return all selected rows as an ndarray or CSR matrix."""
        blocks = self.blocks(dense=dense, check=check)
        if self.is_sparse and not dense:
            parts = list(blocks)
            return vstack(parts, format="csr") if parts else self._read(0, 0)
        matrix, start = np.empty(self.shape, self.dtype), 0
        for block in blocks:
            stop = start + len(block)
            matrix[start:stop] = block
            start = stop
        return matrix

    def _is_read_with(self, other: Rows) -> bool:
        """Return whether both can be read in one pass: the same data, columns and labels."""
        if self._source is not other._source or self.place == "device" or not self.shape[0] > 0:
            return False  # `not ... > 0` is also true for a number of rows that is NaN
        if self._weights is not other._weights or self._codes is not other._codes:
            return False
        if self._columns is None or other._columns is None:
            return self._columns is other._columns
        return np.array_equal(self._columns, other._columns)

    def _is_ascending(self) -> bool:
        return self._rows is None or bool((np.diff(self._rows) > 0).all())

    @abstractmethod
    def _read(self, start: int, stop: int) -> Any:
        """Return selected rows without a check for NaN."""

    def _read_columns(self, which: slice) -> Any:
        """Return columns of all selected rows, as an ndarray or CSC, by a pass over the rows."""
        quiet = self.replace(progress=False)
        parts = [block[:, which] for block in quiet.blocks(check=False)]
        parts = parts or [self._read(0, 0)[:, which]]
        if self.is_sparse:
            return vstack(parts, format="csc")
        return np.concatenate(parts)

    def _label(self, start: int, stop: int) -> str:
        """Return the name of a block for error messages."""
        return self.name

    def _check(self, block: Any, label: str, first_column: int = 0) -> None:
        """Raise ValueError on NaN or infinity."""
        features = None if self._columns is None else self._columns[first_column:]
        check_finite(block, label, first_column, features, self.remedy, self.missing)

    def _shown(self, items: Sequence[T]) -> Iterable[T]:
        """Return the items, with a progress bar if `progress` asks for one."""
        return with_progress(items, len(items), self.name, self.progress)


def row_view(matrix: Any, start: int, stop: int) -> Any:
    """Return consecutive rows of a CSR matrix; unlike a slice, this does not copy their entries."""
    ends = matrix.indptr[start : stop + 1]
    entries = slice(ends[0], ends[-1])
    # SciPy's constructor would copy views of less than half of an array, so the attributes are set.
    view = type(matrix)((len(ends) - 1, matrix.shape[1]), dtype=matrix.dtype)
    view.data, view.indices = matrix.data[entries], matrix.indices[entries]
    view.indptr = ends - ends[0]
    view.has_canonical_format = matrix.has_canonical_format
    return view


def pick(matrix: Any, index: Index) -> Any:
    """Return rows of a matrix; consecutive rows of an ndarray are a view."""
    return _in_order(matrix[_as_slice(index)])


def pick_columns(matrix: Any, index: Index) -> Any:
    """Return columns of a matrix; consecutive columns of an ndarray are a view."""
    return _in_order(matrix[:, _as_slice(index)])


def _as_slice(index: Index) -> Any:
    together = len(index) and (np.diff(index) == 1).all()
    return slice(index[0], index[-1] + 1) if together else index


def _in_order(matrix: Any) -> Any:
    if issparse(matrix):  # picking may leave the entries unsorted
        matrix.sort_indices()
    return matrix


def _positions(wanted: Any, n: int, what: str, name: str) -> Index | None:
    """Return the positions that a mask, a slice or indices select; None if they select all."""
    if isinstance(wanted, slice):
        start, stop, step = wanted.indices(n)
        return None if (start, stop, step) == (0, n, 1) else np.arange(start, stop, step)
    asked = np.asarray(wanted)
    if asked.ndim != 1 or (asked.size and asked.dtype.kind not in "biu"):
        raise TypeError(
            f"{what} of {name} cannot be selected by {asked.dtype} values of shape {asked.shape}; "
            "expected a one-dimensional mask, or whole numbers as indices."
        )
    if asked.dtype == np.bool_:
        if len(asked) != n:
            raise ValueError(
                f"the mask of {what} has {len(asked)} entries but {name} has {n} {what}; expected "
                "one entry for each."
            )
        return None if asked.all() else np.flatnonzero(asked)
    index = asked.astype(np.intp)
    if index.size and not (-n <= index.min() and index.max() < n):
        raise ValueError(
            f"{what} {index.min()} to {index.max()} were asked for, but {name} has only {n} {what}."
        )
    return np.where(index < 0, index + n, index)
