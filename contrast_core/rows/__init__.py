"""One interface, `Rows`, to data of every kind; only `rows_of` looks at the type of the data.

``rows_of(X, name)`` returns the `Rows` of arrays, lists, DataFrames, sparse matrices of any format,
HDF5 and zarr datasets, memory maps, the sparse datasets of backed AnnData objects, dask arrays and
dense torch tensors. It does not read the data yet. Every function that takes data also takes
`Rows`.

All `Rows` have these attributes and methods:

=====================  ===========================================================================
`shape`, `dtype`       shape and type of the selected part; the number of rows of a dask array may
                       be NaN
`name`, `names`        name of the data in error messages; names of the features, or None
`is_sparse`            whether blocks are CSR rather than ndarrays
`place`, `in_memory`   where the data are: "memory", "stored" (in a file), "dask" or "device" (a
                       tensor that is not on the host); whether `place` is "memory"
`device`               device of a tensor, else None
`missing`, `can_miss`  whether NaN is accepted as a missing value, and whether this kind of data can
                       hold missing values
`weights`, `codes`     weight of each row, and the index of its group in `groups`; None if not given
`reads_rows`           whether a block of rows can be read alone; if not, the first block of rows
                       loads all selected columns
`reads_columns`        whether a block of columns can be read alone; if not, every block of columns
                       needs a pass over all rows
`blocks()`             blocks of rows, ndarray or CSR, in the data's own dtype, made of whole
                       storage chunks, and checked for NaN and infinity
`any_missing()`        whether a value is missing, found in a pass over the rows
`edges()`, `read()`    where blocks of rows begin and end; the values of some rows
`column_blocks()`      blocks of columns with their slices, ndarray or CSC, not checked for NaN
`read_columns()`       some columns of all rows, as an ndarray
`take(rows)`           some of the rows; data in memory allow any order and repeated rows, other
                       data allow only ascending rows
`columns(which)`       some of the columns
`map(function, k)`     the function's values, (n, k): an ndarray, a lazy dask array for a dask
                       array, or a tensor on the same device for a tensor
`load()`               all values as an ndarray or CSR matrix, without a copy if possible
`take_all()`           the dataset from which the rows were taken
=====================  ===========================================================================

`labelled_blocks` yields blocks of rows with their weights and groups. `joint_blocks` reads several
disjoint selections of the rows of one dataset in one pass. `reduce_rows` returns a sum over the
rows of each such selection, also in one pass. `pieces` splits overlapping selections into disjoint
ones. `load_into_memory` reads rows that are not in memory. `minibatches` yields all rows in random
order, a few at a time. `row_view` returns consecutive rows of a CSR matrix without a copy.
`array_of` checks stacks of images, which are not rows yet.

`rows_of` has arguments that apply whenever the rows are read. `elements` is the number of values to
read at once, `progress` shows a bar, and `remedy` is the advice at the end of errors about NaN.
`blocks` has an argument `elements` too, which applies to that call only.
"""

from contrast_core.rows._checks import check_finite
from contrast_core.rows._dask import DaskRows
from contrast_core.rows._memory import load_into_memory
from contrast_core.rows._minibatches import minibatches
from contrast_core.rows._parts import joint_blocks, pieces
from contrast_core.rows._reduce import labelled_blocks, reduce_rows
from contrast_core.rows._rows import ELEMENTS, Place, Rows, row_view
from contrast_core.rows._rows_of import array_of, rows_of
from contrast_core.rows._tensor import DEVICE_BLOCKS, TensorRows, check_device

__all__ = [
    "DEVICE_BLOCKS",
    "ELEMENTS",
    "DaskRows",
    "Place",
    "Rows",
    "TensorRows",
    "array_of",
    "check_device",
    "check_finite",
    "joint_blocks",
    "labelled_blocks",
    "load_into_memory",
    "minibatches",
    "pieces",
    "reduce_rows",
    "row_view",
    "rows_of",
]
