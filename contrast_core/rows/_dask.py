"""Rows of dask arrays, selected and mapped chunk by chunk with the current dask scheduler."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse, vstack

from contrast_core._validation import check_known_length
from contrast_core.rows._checks import as_matrix
from contrast_core.rows._memory import MemoryRows
from contrast_core.rows._rows import ELEMENTS, Index, Rows, pick, pick_columns

_ROWS_OF_ANNDATA = 1000  # rows of a chunk of `anndata.experimental.read_lazy`
_MOST_JOINED = 16  # largest number of such chunks that are read as one


class DaskRows(Rows):
    """Rows of a dask array of dense or sparse chunks.

    `array` is the selected data as a lazy dask array, whose chunks contain all selected columns.
    `blocks` computes the chunks one after another. `load` and `map` give all chunks to the
    scheduler at once.
    """

    place = "dask"
    reads_columns = False
    _any_order = False

    def __init__(self, array: Any, **options: Any) -> None:
        whole = array.rechunk({1: -1}) if array.numblocks[1] > 1 else array
        super().__init__(whole, tuple(array.shape), array.dtype, **options)
        self.is_sparse = issparse(array._meta)
        if self.is_sparse:
            self._source = _in_larger_chunks(whole, self.n_threads)

    @cached_property
    def array(self) -> Any:
        """Return the selected data as a dask array whose chunks contain all selected columns."""
        if self._rows is None and self._columns is None:
            return self._source
        sizes, picked = self._source.chunks[0], None
        if self._rows is not None:
            ends = np.cumsum((0, *sizes))
            parts = np.split(self._rows, np.searchsorted(self._rows, ends[1:-1]))
            picked = [part - end for part, end in zip(parts, ends[:-1], strict=True)]
            sizes = tuple(map(len, picked))
        dask_array: Any = import_module("dask.array")  # not typed
        return dask_array.map_blocks(
            _pick,
            self._source,
            rows=picked,
            columns=self._columns,
            dtype=self.dtype,
            meta=self._source._meta,
            chunks=(sizes, (self.shape[1],)),
        )

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "array"}

    def take(self, rows: ArrayLike | slice) -> Self:
        """Return the rows that a mask, a slice or ascending indices select; nothing is computed."""
        check_known_length(self.shape[0], self.name)
        return super().take(rows)

    @property
    def options(self) -> dict[str, Any]:
        """Options of the `MemoryRows` of a chunk, so that it is read and checked like the array."""
        return {
            "elements": self.elements,
            "remedy": self.remedy,
            "missing": self.missing,
            "features": self._columns,
        }

    @property
    def runs_in_threads(self) -> bool:
        """Whether the scheduler runs tasks in threads of this process."""
        return self._scheduler is import_module("dask.threaded").get

    @property
    def n_threads(self) -> int:
        """Number of threads of the cluster, or of this machine if there is no cluster."""
        cluster = getattr(self._scheduler, "__self__", None)  # the client of a cluster
        of_workers: dict[str, int] = getattr(cluster, "nthreads", dict)()
        return sum(of_workers.values()) or os.cpu_count() or 1

    @property
    def _scheduler(self) -> Any:
        base: Any = import_module("dask.base")  # not typed
        return base.get_scheduler(collections=[self._source])

    def chunks(self) -> list[tuple[str, Any]]:
        """Return each selected chunk, delayed, with its name for error messages.

        Chunks that are known to be empty are left out.
        """
        delayed = self.array.to_delayed().ravel().tolist()
        return [
            (f"chunk {i} of {self.name}", chunk)
            for i, (chunk, size) in enumerate(zip(delayed, self.array.chunks[0], strict=True))
            if size != 0
        ]

    def edges(self, elements: int | None = None) -> list[int]:
        """Return where chunks begin and end: 0, ..., n."""
        return list(np.unique(np.cumsum((0, *self.array.chunks[0]))).tolist())

    def blocks(
        self, *, elements: int | None = None, dense: bool = False, check: bool = True
    ) -> Iterator[Any]:
        """Yield blocks of rows; each chunk is computed when its first block is needed."""
        for label, chunk in self._shown(self.chunks()):
            rows = chunk_rows(chunk.compute(), label, self.options)
            yield from rows.blocks(elements=elements, dense=dense, check=check)

    def map(self, function: Callable[..., Any], width: int, *, dense: bool = False) -> Any:
        """Apply `function` to the rows; return a dask array that is not yet computed."""
        rows = self.array
        return rows.map_blocks(
            _map_chunk,
            function,
            width,
            self.name,
            self.options,
            dense,
            dtype=np.float64,
            meta=np.empty((0, 0)),
            chunks=(rows.chunks[0], (width,)),
        )

    def load(self, *, dense: bool = False, check: bool = True) -> Any:
        """Compute all selected rows, and return them as an ndarray or CSR matrix."""
        dask: Any = import_module("dask")  # not typed
        read = dask.delayed(_load_chunk)
        parts = dask.compute(
            *(read(chunk, label, self.options, dense, check) for label, chunk in self.chunks())
        )
        if not parts:
            return super().load(dense=dense, check=check)
        return vstack(parts, format="csr") if issparse(parts[0]) else np.concatenate(parts)

    def _read(self, start: int, stop: int) -> Any:
        block = as_matrix(self.array[start:stop].compute(), self._label(start, stop))
        return block.tocsr() if issparse(block) else block

    def _label(self, start: int, stop: int) -> str:
        return f"{self.name}[{start}:{stop}]"


def _in_larger_chunks(array: Any, n_threads: int) -> Any:
    """Return an array of `anndata.experimental.read_lazy` in larger chunks of rows.

    anndata makes a chunk of every 1,000 rows of a sparse matrix. Reading a chunk takes about 10 ms,
    even if it has few entries, and decodes whole storage chunks of the file. The function with
    which anndata reads a chunk takes any range of rows, so it can read several chunks at once. At
    least one chunk is left for each thread. Other arrays, and chunks of another size, are returned
    unchanged.
    """
    joined = min(_MOST_JOINED, array.numblocks[0] // n_threads)
    layer = getattr(array.dask, "layers", {}).get(array.name)
    functions = [
        each
        for each, _ in getattr(layer, "indices", ())
        if getattr(getattr(each, "func", None), "__name__", None) == "make_dask_chunk"
    ]
    if joined < 2 or not functions or array.chunks[0][0] != _ROWS_OF_ANNDATA:
        return array
    n_entries = max(1, array.blocks[0].compute().nnz)
    step = _ROWS_OF_ANNDATA * max(1, min(joined, ELEMENTS // 2 // n_entries))
    n_rows, n_columns = array.shape
    ends = [*range(0, n_rows, step), n_rows]
    dask_array: Any = import_module("dask.array")  # not typed
    return dask_array.map_blocks(
        functions[0],
        dtype=array.dtype,
        meta=array._meta,
        chunks=(tuple(np.diff(ends).tolist()), (n_columns,)),
    )


def chunk_rows(chunk: Any, name: str, options: dict[str, Any]) -> MemoryRows:
    """Return the rows of a chunk that has been computed."""
    return MemoryRows(as_matrix(chunk, name), name=name, names=None, **options)


def fused(result: Any, keys: Sequence[Any]) -> Any:
    """Merge the tasks with these keys, which read chunks, into the tasks that use the chunks.

    A chunk is then read only when and where it is used. A chunk that several tasks use keeps its
    own task.
    """
    dask: Any = import_module("dask")  # not typed
    spec: Any = import_module("dask._task_spec")
    graph = spec.convert_legacy_graph(dask.utils.ensure_dict(result.dask))
    users = dask.core.reverse_dict({key: task.dependencies for key, task in graph.items()})
    inner: dict[Any, list[Any]] = {}
    for key in keys:
        if isinstance(graph.get(key), spec.Task) and len(users[key]) == 1:
            (user,) = users[key]
            inner.setdefault(user, []).append(graph.pop(key))
    for user, tasks in inner.items():
        graph[user] = spec.Task.fuse(graph[user], *tasks)
    return type(result)(result.key, graph)


def _load_chunk(chunk: Any, name: str, options: dict[str, Any], dense: bool, check: bool) -> Any:
    return chunk_rows(chunk, name, options).load(dense=dense, check=check)


def _map_chunk(
    chunk: Any,
    function: Callable[..., Any],
    width: int,
    name: str,
    options: dict[str, Any],
    dense: bool,
    block_id: tuple[int, ...] | None = None,
) -> Any:
    label = f"chunk {block_id[0]} of {name}" if block_id else name
    return chunk_rows(chunk, label, options).map(function, width, dense=dense)


def _pick(
    chunk: Any,
    rows: list[Index] | None = None,
    columns: Index | None = None,
    block_id: tuple[int, ...] = (0, 0),
) -> Any:
    """Select rows and columns of a chunk; `rows` holds the indices for each chunk."""
    if rows is not None:
        chunk = pick(chunk, rows[block_id[0]])
    return chunk if columns is None else pick_columns(chunk, columns)
