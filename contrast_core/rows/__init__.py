"""Data of every kind behind one protocol: `rows_of` is the only place that asks what data are.

``rows_of(X, name)`` makes `Rows` of arrays, lists, DataFrames, sparse matrices of any format,
HDF5 and zarr datasets, memory maps, the sparse datasets of backed AnnData objects, dask arrays and
dense torch tensors. Nothing is read or copied yet. Whatever takes data takes `Rows` too.

What all have:

=====================  ===========================================================================
`shape`, `dtype`       of what is selected; the number of rows of a dask array may be NaN
`name`, `names`        what errors call it; the features' names or None
`is_sparse`            whether blocks are CSR rather than ndarrays
`place`, `in_memory`   "memory", "stored", "dask" or "device" (a tensor that is not on the host)
`device`               of a tensor, else None
`missing`, `can_miss`  whether NaN is let through as a missing value, and whether it could be
`weights`, `codes`     of each row, and which of `groups` it is of; None without any
`reads_rows`,          whether blocks of rows, or of columns, cost no more than their share of the
`reads_columns`        data; else a first block of rows loads what is selected, and every block of
                       columns is a pass over the rows
`blocks()`             finite blocks of rows, ndarray or CSR, in the data's own dtype; of whole
                       storage chunks
`any_missing()`        whether a value is missing, by a pass over the rows
`column_blocks()`      where they are and blocks of columns, ndarray or CSC, not checked for NaN
`edges()`, `read()`    the same blocks of rows one by one, and any others
`take(rows)`           some rows; in any order and repeated in memory, else in ascending order
`columns(which)`       some columns
`map(function, k)`     of the rows, (n, k): an ndarray; lazy for dask; a tensor on its device
`load()`               the ndarray or CSR matrix; no copy where it is one already
`take_all()`           the dataset that the rows were taken from
=====================  ===========================================================================

`labelled_blocks` are blocks of rows with their weights and groups; `joint_blocks` reads several
disjoint selections of the rows of one dataset in one pass, and `reduce_rows` adds them up; `pieces`
makes selections disjoint; `load_into_memory` reads rows that are elsewhere. `minibatches` passes
through rows in random order, few at a time. `row_view` is a part of a CSR matrix without a copy.
`array_of` judges stacks of images, which are no rows yet.

How much is read at once is `elements`, an argument of `rows_of` for all that is made from the rows,
and of `blocks` for that call. Its `progress` shows a bar wherever they are read, and its `remedy`
is what errors about NaN advise.
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
