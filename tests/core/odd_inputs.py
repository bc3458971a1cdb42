"""Unusual data, and the public functions that are called with it.

A kind is a way to store a table of numbers. The kinds in `TAKEN` are valid and hold exactly the
numbers that `base` returns. The kinds in `REFUSED` are invalid, and each of them names the words
that its error message must contain.

Each subject calls a function and returns results that do not depend on the unit or the origin of
the data, unless its fields `units` and `origin` say otherwise. The expected results are the
function's results for plain float64 arrays. Other tests check that these results are right.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp

import contrast_core as cc
from contrast_core import images, pairing
from tests.core.kinds import KINDS, long_indices, tensor

N_ROWS, N_FEATURES = 24, 5


def base(seed: int) -> Any:
    """Return whole numbers from 0 to about 120, which every numeric dtype can hold.

    About a third of them are 0, and some columns are weakly correlated.
    """
    rng = np.random.default_rng(seed)
    shared = rng.integers(0, 60, size=(N_ROWS, 1)) * rng.integers(0, 2, N_FEATURES)
    values = shared + rng.integers(0, [40, 30, 20, 60, 60], size=(N_ROWS, N_FEATURES))
    return (values * (rng.random(values.shape) < 0.7)).astype(np.float64)


class Kind(NamedTuple):
    """A kind of data that holds the values of `base`, or invalid values made from them."""

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


def _spoilt(values: Any, entry: Any, dtype: Any = np.float64) -> Any:
    values = values.astype(dtype)
    values[3, 1] = entry
    return values


def _plain(make: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda values, folder: make(values)


# tests/core/kinds.py has more kinds of storage, and dask arrays, for tests of rows and of moments.
WHOLE = ("int8", "uint8", "int64", "uint64")
TAKEN = [Kind("HDF5", lambda values, folder: KINDS["HDF5"](values, folder()))]
TAKEN += [
    Kind(dtype, lambda values, folder, dtype=dtype: values.astype(dtype))
    for dtype in (*WHOLE, "float16", "float32", "longdouble", ">f8", ">i2", "object")
]
TAKEN += [
    Kind(name, _plain(make))
    for name, make in {
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
        "tensor of half precision": lambda v: tensor(v).half(),
    }.items()
]
# Every function of data is tested with these kinds. The other kinds are tested with one function.
EVERYWHERE = (
    *("float32", "frame", "CSR", "HDF5"),
    *("NaN", "words among objects", "frame of duplicate columns", "no rows", "too many features"),
)
REFUSED = [
    Kind(name, _plain(make), words)
    for name, (make, words) in {
        "NaN": (lambda v: _spoilt(v, np.nan), "NaN"),
        "infinity": (lambda v: _spoilt(v, -np.inf), "inf"),
        "masked": (lambda v: np.ma.masked_less(v, 1), "PCPCA treats masked entries as missing"),
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
        "a file name": (lambda v: "data.csv", "data.csv|str"),
        "ragged lists": (lambda v: [[1.0, 2.0], [3.0]], "shape|length|inhomogeneous"),
        "a class": (lambda v: np.ndarray, "ndarray|type"),
        "sparse tensor": (lambda v: tensor(v).to_sparse(), "sparse"),
        "too many features": (lambda v: np.hstack([v, v]), "10"),
    }.items()
]


X, Y = base(0), base(1)
K = 2  # number of components
LABELS_OF_ROWS = np.repeat(["a", "b", "c"], 8)


class Subject(NamedTuple):
    """A public function of data, and the invariances of its result."""

    name: str
    call: Callable[..., list[Any]]
    slots: tuple[str, ...] = ("X", "background")  # the arguments that take data
    left_out: tuple[str, ...] = ()  # kinds of data that the test leaves out
    units: bool = True  # changing the unit of the data does not change the result
    origin: bool = True  # adding a constant to every row does not change the result
    tolerance: float = 1e-8  # relative to the largest entry


def projector(model: Any) -> Any:
    return model.components_.T @ model.components_


def fitted(model: Callable[[], Any], **fixed: Any) -> Callable[..., list[Any]]:
    """Return a call that fits a model and returns the projector on its components.

    `fixed` holds further arguments of `fit`.
    """

    def call(**data: Any) -> list[Any]:
        made = model()
        made.fit(data.pop("X"), *fixed.values(), **data)
        return [projector(getattr(made, "estimator_", made))]

    return call


def scaled_to_one(values: Any) -> Any:
    """Return an array or tensor as a dense array, divided by its largest absolute value."""
    values = values.detach() if hasattr(values, "detach") else values
    values = np.asarray(values.toarray() if sp.issparse(values) else values)
    return values / np.abs(values).max()


def products(scores: Any) -> Any:
    """Return the inner products of the scores of all rows, which a rotation does not change."""
    return scaled_to_one(scaled_to_one(scores) @ scaled_to_one(scores).T)


def kernel(**data: Any) -> list[Any]:
    model = cc.KernelCPCA(alpha=1.5, kernel="linear").fit(data["X"], background=data["background"])
    return [products(model.transform(data["X"]))]


def path(**data: Any) -> list[Any]:
    found = cc.contrast_path(**data, alphas=[0, 1, 4], n_representatives=1).components
    return [found.transpose(0, 2, 1) @ found]


def neighbors(X: Any, positive: Any) -> list[Any]:
    pairs = pairing.neighbor_pairs(X, positive, n_neighbors=1)
    return [np.column_stack([pairs.rows, pairs.positive_rows])]


def clusters(X: Any, positive: Any) -> list[Any]:
    matched = pairing.match_clusters(X, positive, LABELS_OF_ROWS, LABELS_OF_ROWS)
    return [np.array(["abc".index(second) for _, second in matched])]


def moments(call: Callable[..., Any], *parts: str) -> Callable[..., list[Any]]:
    def found(**data: Any) -> list[Any]:
        made = call(*data.values())
        each = [getattr(made, part) for part in parts] or [made]
        return [array for one in each for array in (one.mean, one.covariance)]

    return found


def permuted(X: Any, background: Any, **options: Any) -> list[Any]:
    options = {"n_permutations": 19, "random_state": 0} | options
    found = cc.permutation_test(cc.CPCA(K), X, background=background, **options)
    scaled = [scaled_to_one(each) for each in (found.statistics, found.null_statistics)]
    return [found.p_values, *scaled, np.abs(found.components)]


def ratio(X: Any, background: Any, **options: Any) -> list[Any]:
    options = {"n_splits": 3, "random_state": 0} | options
    found = cc.cross_fitted_ratio(X, background=background, **options)
    return [scaled_to_one(found.baseline), scaled_to_one(found.ratios)]


def resampled(X: Any, background: Any, **options: Any) -> list[Any]:
    options = {"n_resamples": 4, "random_state": 0} | options
    found = cc.bootstrap_stability(cc.CPCA(K), X, background=background, **options)
    return [found.matched, found.retained, np.cos(found.angles) ** 2]


def removed(remover: Any, **data: Any) -> list[Any]:
    model = remover.fit(**data)
    return [model.signal_variances_[:K], scaled_to_one(model.transform(data["X"]))]


with warnings.catch_warnings(action="ignore"):  # the few rows show no signal
    CPCA = cc.CPCA(alpha=1.5).fit(X, background=Y)
    PCPCA = cc.PCPCA(gamma=0.1).fit(X, background=Y)
    KERNEL = cc.KernelCPCA(alpha=1.5, kernel="linear").fit(X, background=Y)
    PLUS = cc.PCAPlusPlus(truncation=None, weighted=False).fit(X, positive=Y)
    REMOVER = images.StructuredBackgroundRemover().fit(X, background=Y)
    FRAMES = images.FrameBackgroundRemover((1, N_FEATURES)).fit(X, background=Y)


def subject_of_method(name: str, method: Any, *left_out: str) -> Subject:
    """Return a subject for a method of a model that was fitted to the plain data."""
    return Subject(
        name, lambda X: [scaled_to_one(method(X))], ("X",), left_out, units=False, origin=False
    )


# These functions permute, split or resample the rows.
MEASURES: dict[str, Callable[..., list[Any]]] = {
    "permutation_test": permuted,
    "cross_fitted_ratio": ratio,
    "bootstrap_stability": resampled,
}
ONE, PAIR = ("X",), ("X", "positive")  # arguments that take data
# A function of one dataset accepts any number of features, so "too many features" is valid.
MANY = ("too many features",)
SUBJECTS = [
    *(
        Subject(f"CPCA by {solver}", fitted(lambda s=solver: cc.CPCA(alpha=1.5, solver=s)))
        for solver in ("eigh", "gram", "lanczos")
    ),
    Subject("CPCA at auto", fitted(cc.CPCA)),
    Subject("CPCAStar", fitted(lambda: cc.CPCAStar(beta=1))),
    Subject("CPCAStar at 0", fitted(lambda: cc.CPCAStar(beta=0))),
    Subject("CPCAStar at .001", fitted(lambda: cc.CPCAStar(beta=0.001)), units=False),
    Subject(
        "OnlineCPCAStar",
        fitted(lambda: cc.OnlineCPCAStar(learning_rate=0.03, decay_steps=100)),
        units=False,
        origin=False,
        tolerance=5e-3,
    ),
    Subject("PCPCA", fitted(lambda: cc.PCPCA(gamma=0.1)), left_out=("NaN",)),
    Subject("CLVM", fitted(lambda: cc.CLVM(tol=1e-9)), left_out=("NaN",), tolerance=1e-6),
    Subject("SparseCPCA", fitted(lambda: cc.SparseCPCA(alpha=0.5)), units=False, tolerance=1e-6),
    Subject("KernelCPCA", kernel, origin=False),
    Subject("PCAPlus", fitted(cc.PCAPlus), PAIR),
    Subject("PCAPlusPlus", fitted(lambda: cc.PCAPlusPlus(truncation=None)), PAIR),
    Subject("contrast_path", path),
    Subject(
        "ContrastByLabel",
        fitted(lambda: cc.ContrastByLabel(cc.CPCA(alpha=1.5)), y=np.arange(len(X)) % 2),
        ONE,
        MANY,
    ),
    Subject(
        "SecondMoments.from_data", moments(cc.SecondMoments.from_data), ONE, MANY, False, False
    ),
    Subject(
        "SecondMoments.from_chunks",
        moments(lambda X: cc.SecondMoments.from_chunks([X])),
        *(ONE, MANY, False, False),
    ),
    Subject(
        "PairMoments.from_data",
        moments(cc.moments.PairMoments.from_data, "average", "difference", "first"),
        *(PAIR, (), False, False),
    ),
    Subject("neighbor_pairs", neighbors, PAIR, left_out=("no rows",)),
    Subject(
        "pairing_basis",
        lambda X: [products(pairing.pairing_basis(X, LABELS_OF_ROWS, n_components=K))],
        *(ONE, MANY),
    ),
    Subject("match_clusters", clusters, PAIR, units=False, origin=False),
    Subject(
        "scaled_features",
        lambda X: [scaled_to_one(pairing.scaled_features(X, clip=1.0).matrix)],
        *(ONE, MANY),
        origin=False,
    ),
    Subject("StructuredBackgroundRemover", partial(removed, images.StructuredBackgroundRemover())),
    Subject(
        "FrameBackgroundRemover",
        partial(removed, images.FrameBackgroundRemover((1, N_FEATURES))),
        units=False,
        origin=False,
    ),
    *(Subject(name, call) for name, call in MEASURES.items()),
    subject_of_method("CPCA.transform", CPCA.transform),
    subject_of_method("CPCA.denoise", CPCA.denoise),
    subject_of_method("CPCA.remove_components", CPCA.remove_components),
    subject_of_method("LinearMap.transform", CPCA.linear_map_.transform, "no rows"),
    subject_of_method("PCPCA.score_samples", PCPCA.score_samples, "NaN"),
    subject_of_method("KernelCPCA.transform", KERNEL.transform),
    subject_of_method("PCAPlusPlus.transform", PLUS.transform),
    subject_of_method("StructuredBackgroundRemover.transform", REMOVER.transform),
    subject_of_method("FrameBackgroundRemover.transform", FRAMES.transform),
]
DATA = {"X": X, "background": Y, "positive": Y}
