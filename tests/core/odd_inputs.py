"""Unusual data: equal values in other types, extreme values, and values that are not data.

Each kind in `TAKEN` has exactly the base values. Each kind in `REFUSED` has words that its error
message must contain.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from tests.core.kinds import KINDS, long_indices

N_ROWS, N_FEATURES = 24, 5


def base(seed: int) -> Any:
    """Return whole numbers from 0 to about 120, which every numeric dtype can hold.

    About half of them are 0, and the columns are correlated.
    """
    rng = np.random.default_rng(seed)
    shared = rng.integers(0, 60, size=(N_ROWS, 1)) * rng.integers(0, 2, N_FEATURES)
    values = shared + rng.integers(0, [40, 30, 20, 60, 60], size=(N_ROWS, N_FEATURES))
    return (values * (rng.random(values.shape) < 0.7)).astype(np.float64)


class Kind(NamedTuple):
    """Container for base values (n, D), or a change that makes these values invalid."""

    name: str
    # make(values, folder) returns the data; folder() returns a path.
    make: Callable[[Any, Callable[[], Path]], Any]
    refused: str = ""  # words of the expected error; empty if the data are valid


def _view(values: Any) -> Any:
    """Return the values as a reversed view of every second row and column of a larger array."""
    large = np.full((2 * values.shape[0], 2 * values.shape[1]), 77.0)
    view = large[::-2, ::-2]
    view[:] = values
    return view


def _read_only(values: Any) -> Any:
    values = values.copy()
    values.flags.writeable = False
    return values


def _frame(values: Any, names: Any = None, **options: Any) -> Any:
    return pd.DataFrame(values, columns=names, **options)


def _mixed_frame(values: Any) -> Any:
    types = ["int8", "float32", "Int64", "Float64", "object"]
    return _frame(values).astype(dict(enumerate(types)))


def _explicit_zeros(values: Any) -> Any:
    n, d = values.shape
    return sp.csr_array((values.ravel(), np.tile(np.arange(d), n), np.arange(n + 1) * d))


def _tensor(values: Any, dtype: str = "float64") -> Any:
    torch = pytest.importorskip("torch", reason="torch is not installed")

    return torch.as_tensor(values).to(getattr(torch, dtype))


def _spoilt(values: Any, entry: Any, dtype: Any = np.float64) -> Any:
    values = values.astype(dtype)
    values[3, 1] = entry
    return values


def _plain(make: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda values, folder: make(values)


# tests/core/kinds.py has more kinds of storage, and dask arrays, for tests of rows and of moments.
TAKEN = [Kind("HDF5", lambda values, folder: KINDS["HDF5"](values, folder()))]
TAKEN += [
    Kind(name, _plain(make))
    for name, make in {
        **{
            dtype: lambda v, dtype=dtype: v.astype(dtype)
            for dtype in (
                *("int8", "uint8", "int64", "uint64", "float16", "float32", "longdouble"),
                *(">f8", ">i2", "object"),
            )
        },
        "object of decimals": lambda v: np.vectorize(lambda x: Decimal(int(x)), otypes="O")(v),
        "view": _view,
        "read-only": _read_only,
        "subclass": lambda v: v.view(np.recarray),
        "masked array, none masked": np.ma.masked_array,
        "frame": lambda v: _frame(v, list("abcde")),
        "frame of two column levels": lambda v: _frame(
            v, pd.MultiIndex.from_product([["a"], range(5)])
        ),
        "frame of many types": _mixed_frame,
        "frame of categories of numbers": lambda v: _frame(v).astype("category"),
        "sparse frame": lambda v: pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(v)),
        "CSR": sp.csr_matrix,
        "BSR": sp.bsr_matrix,
        "DOK": sp.dok_matrix,
        "LIL": sp.lil_array,
        "CSR with zeros": _explicit_zeros,
        "CSR of long indices": long_indices,
        "tensor of half precision": lambda v: _tensor(v, "float16"),
    }.items()
]
# Every function of data is tested with these kinds. One of them has missing values, and another
# is not data at all.
EVERYWHERE = (
    *("float32", "frame", "CSR", "HDF5"),
    *("NaN", "words among objects", "frame of duplicate columns", "no rows", "features too many"),
)
REFUSED = [
    Kind(name, _plain(make), words)
    for name, (make, words) in {
        "NaN": (lambda v: _spoilt(v, np.nan), "NaN"),
        "infinity": (lambda v: _spoilt(v, -np.inf), "inf"),
        "masked": (lambda v: np.ma.masked_less(v, 1), "masked"),
        "NA in a frame": (lambda v: _frame(v, dtype="Int64").replace(0, pd.NA), "NaN"),
        "None in a list": (lambda v: [[None, *row[1:]] for row in v.tolist()], "NaN|None"),
        "words": (lambda v: v.astype("U5"), "str|U5"),
        "words among objects": (lambda v: _spoilt(v, "high", object), "high"),
        "arrays among objects": (lambda v: _spoilt(v, [[1, 2]], object), "object|sequence|list"),
        "complex": (lambda v: v + 0j, "[Cc]omplex"),
        "dates": (lambda v: v.astype("M8[D]"), "datetime"),
        "frame of duplicate columns": (lambda v: _frame(v, list("aabbc")), "same name.*'a', 'b'"),
        "frame with categories": (
            lambda v: _frame(v).assign(**{"4": pd.Categorical(["T cell"] * len(v))}),
            "T cell",
        ),
        "no rows": (lambda v: v[:0], "0 ?(sample|rows)|n_samples=0|no rows"),
        "no columns": (lambda v: v[:, :0], "0 feature"),
        "one dimension": (lambda v: v[:, 0], "1D|shape"),
        "three dimensions": (lambda v: v.reshape(4, -1, v.shape[1]), "dim 3|shape"),
        "nothing": (lambda v: None, "None"),
        "a name": (lambda v: "data.csv", "data.csv|str"),
        "ragged lists": (lambda v: [[1.0, 2.0], [3.0]], "shape|length|inhomogeneous"),
        "a class": (lambda v: np.ndarray, "ndarray|type"),
        "sparse tensor": (lambda v: _tensor(v).to_sparse(), "sparse"),
        "features too many": (lambda v: np.hstack([v, v]), "10"),
    }.items()
]
