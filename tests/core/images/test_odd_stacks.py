"""Stacks of every odd kind, and odd arguments of what reads them: right, or refused in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import contrast_core as cc
from contrast_core import images
from contrast_core.images import Channels, Frames, Patches
from tests.core.test_odd_inputs import complaint

pytestmark = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")

RNG = np.random.default_rng(0)
STACK = RNG.integers(0, 50, size=(6, 8, 9)).astype(np.float64)
BEHIND = RNG.integers(0, 50, size=(6, 8, 9)).astype(np.float64)
SMALL = Patches(4, 2)
KERNEL = cc.KernelCPCA(2, alpha=1.0).fit(STACK.reshape(6, -1), background=BEHIND.reshape(6, -1))


def doubled(sampling: Any) -> Callable[[Any], Any]:
    return lambda stack: sampling.map(lambda rows: 2.0 * rows, stack)


def blocks(stack: Any) -> Any:
    return np.array([m.covariance for m in images.block_moments(SMALL, stack)])


def suppressed(sampling: Any, *, background: bool = False) -> Callable[[Any], Any]:
    def call(stack: Any) -> Any:
        both = (STACK, stack) if background else (stack, BEHIND)
        result = images.suppress_background(*both, sampling=sampling)
        return np.array([result.denoised, result.removed])

    return call


READERS: dict[str, Callable[[Any], Any]] = {
    "Patches.rows": lambda stack: SMALL.rows(stack).load(),
    "Frames.rows": lambda stack: Frames().rows(stack).load(),
    "Channels.rows": lambda stack: Channels().rows(stack).load(),
    "Patches.map": doubled(SMALL),
    "Frames.map": doubled(Frames()),
    "Channels.map": doubled(Channels(-1)),
    "block_moments": blocks,
    "suppress_background": suppressed(SMALL),
    "suppress_background from another": suppressed(SMALL, background=True),
    "suppress_background of frames": suppressed(Frames()),
}
# Given to every reader; the others to one of them, as all look at stacks alike.
FEW = ("list of frames", "memory map", "zarr", "tensor", "words", "masked", "no height", "None")


def cases(kinds: Iterable[str]) -> list[tuple[str, str]]:
    """Readers with kinds of stacks."""
    return [
        (reader, kind)
        for reader in READERS
        for kind in kinds
        if kind in FEW or reader == "Frames.rows"
    ]


def _memory_map(stack: Any, folder: Path) -> Any:
    np.save(folder / "x.npy", stack)
    return np.load(folder / "x.npy", mmap_mode="r")


def _h5py(stack: Any, folder: Path) -> Any:
    import h5py

    return h5py.File(folder / "x.h5", "w").create_dataset("x", data=stack, chunks=(2, 5, 3))


def _zarr(stack: Any, folder: Path) -> Any:
    import zarr

    made = zarr.create_array(folder / "x.zarr", shape=stack.shape, chunks=(2, 5, 3), dtype="f4")
    made[:] = stack
    return made


def _dask(stack: Any, *, unknown: bool = False) -> Any:
    import dask.array

    array = dask.array.from_array(stack, chunks=(2, 5, 3))
    if unknown:
        array._chunks = ((np.nan,) * 3, *array.chunks[1:])
    return array


def _tensor(stack: Any) -> Any:
    torch = pytest.importorskip("torch", reason="torch is not installed")

    return torch.as_tensor(stack)


def _read_only(stack: Any) -> Any:
    stack = stack.copy()
    stack.flags.writeable = False
    return stack


TAKEN: dict[str, Callable[[Any, Path], Any]] = {
    "list": lambda s, _: s.tolist(),
    "list of frames": lambda s, _: list(s),
    "tuple": lambda s, _: tuple(map(tuple, s.tolist())),
    "view": lambda s, _: np.repeat(s, 2, axis=2)[:, :, ::2],
    "Fortran order": lambda s, _: np.asfortranarray(s),
    "read-only": lambda s, _: _read_only(s),
    "masked array, none masked": lambda s, _: np.ma.masked_array(s),
    **{
        dtype: lambda s, _, dtype=dtype: s.astype(dtype)
        for dtype in ("uint8", "int64", "float32", "float16", "longdouble", ">f8")
    },
    "memory map": _memory_map,
    "HDF5": _h5py,
    "zarr": _zarr,
    "dask": lambda s, _: _dask(s),
    "tensor": lambda s, _: _tensor(s),
    "tensor of half precision": lambda s, _: _tensor(s).half(),
    "tensor of bfloat16": lambda s, _: _tensor(s).bfloat16(),
    "tensor with gradient": lambda s, _: _tensor(s).requires_grad_(),
    "tensor, transposed": lambda s, _: _tensor(s.transpose(0, 2, 1).copy()).mT,
}
SPOILT = np.where(STACK < 2, np.nan, STACK)
REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "None": (lambda s: None, "NoneType None"),
    "a number": (lambda s: 3.0, "shape|3.0"),
    "a name": (lambda s: "film.tif", "str 'film.tif'"),
    "a path": (lambda s: Path("film.tif"), "film.tif"),
    "bytes": (lambda s: b"abc", "bytes b'abc'"),
    "a generator": (lambda s: (frame for frame in s), "is generator"),
    "a dict": (lambda s: {"a": s}, "is dict"),
    "a class": (lambda s: np.ndarray, "is type <class 'numpy.ndarray'>"),
    "a class of pandas": (lambda s: pd.DataFrame, "is type"),
    "a function": (lambda s: len, "is builtin_function"),
    "ragged": (lambda s: [[1, 2], [3]], r"is list \[\[1, 2\], \[3\]\]"),
    "huge integers": (lambda s: [[[10**400] * 9] * 8], "is list"),
    "words": (lambda s: s.astype(str), "pixels of type.*U32"),
    "objects": (lambda s: s.astype(object), "pixels of type object"),
    "complex": (lambda s: s + 0j, "pixels of type.*complex128.*real part"),
    "complex tensor": (lambda s: _tensor(s + 0j), "real numbers is expected"),
    "sparse tensor": (lambda s: _tensor(s).to_sparse(), "is Tensor"),
    "dates": (lambda s: s.astype("M8[D]"), "pixels of type datetime64"),
    "records": (lambda s: np.zeros(s.shape, [("a", "f8")]), "pixels of type"),
    "masked": (lambda s: np.ma.masked_less(s, 1), "masked"),
    "sparse": (lambda s: sp.csr_matrix(s[0]), "is csr_matrix"),
    "frame of words": (lambda s: pd.DataFrame({"a": ["b"] * 9}), "is DataFrame"),
    "one dimension": (lambda s: s[0, 0], "shape"),
    "no height": (lambda s: s[:, :0], "0 x 9|no pixels|no rows|n_samples=0"),
    "no width": (lambda s: s[:, :, :0], "8 x 0|no pixels|no rows|n_samples=0"),
    "unknown chunks": (lambda s: _dask(s, unknown=True), "compute_chunk_sizes"),
}


@pytest.mark.parametrize(("reader", "kind"), cases(TAKEN))
def test_the_same_pixels_of_any_kind_give_the_same(reader: str, kind: str, tmp_path: Path) -> None:
    found = np.asarray(READERS[reader](TAKEN[kind](STACK, tmp_path)))
    np.testing.assert_allclose(
        found.astype(np.float64), READERS[reader](STACK), rtol=1e-5, atol=1e-4
    )


@pytest.mark.parametrize(("reader", "kind"), cases(REFUSED))
def test_what_is_no_stack_is_refused_in_words(reader: str, kind: str) -> None:
    of_axis = {"Channels.rows": ("no height", "no width"), "Channels.map": ("no height",)}
    if kind in of_axis.get(reader, ()):
        assert not READERS[reader](REFUSED[kind][0](STACK)).size  # no pixels: no samples
        return
    with pytest.raises((TypeError, ValueError)) as caught:
        READERS[reader](REFUSED[kind][0](STACK))
    assert not complaint(caught.value, REFUSED[kind][1])


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("stack", "words"),
    [
        (SPOILT, "NaN"),
        (SPOILT.astype(np.float32), "NaN"),
        (STACK.astype(np.int64) + 2**60, "whole numbers beyond 2..53"),
    ],
)
def test_pixels_that_no_float_holds_are_refused(reader: str, stack: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        READERS[reader](stack)
    assert not complaint(caught.value, words)


MASK = np.zeros((8, 9), dtype=bool)
MASK[:, :5] = True
MASKS: dict[str, tuple[Any, str]] = {
    "numbers": (MASK.astype(float), "has dtype float64; expected truth values"),
    "labels": (MASK + 1, "has dtype int64 and the values 1, 2; expected truth"),
    "words": (MASK.astype(str), "has dtype <U5"),
    "ragged": ([[True], [False, True]], "has dtype object"),
    "a word": ("all", "has dtype <U3"),
    "a class": (np.ndarray, "has dtype object"),
    "sparse": (sp.csr_matrix(MASK), "has dtype object"),
    "masked": (np.ma.masked_array(MASK, MASK), "the mask of the stack is a masked array"),
    "another shape": (MASK.T, r"has shape \(9, 8\)"),
    "one value": (True, r"has shape \(\)"),
    "nowhere": (~MASK & MASK, "lies in the mask whole"),
}


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("sampling", [SMALL, Frames(), Channels()], ids=repr)
def test_what_is_no_mask_is_refused(sampling: Any, kind: str) -> None:
    mask, words = MASKS[kind]
    with pytest.raises((TypeError, ValueError)) as caught:
        sampling.rows(STACK, mask)
    assert not complaint(caught.value, rf"{words}|has shape")


@pytest.mark.parametrize(
    "make",
    [list, np.asfortranarray, _tensor, _dask, np.int64, lambda mask: np.uint8(255) * mask],
)
def test_masks_of_any_kind_give_the_same(make: Any) -> None:
    mask = make(np.broadcast_to(MASK, STACK.shape).copy())
    np.testing.assert_array_equal(SMALL.rows(STACK, mask).load(), SMALL.rows(STACK, MASK).load())


FUNCTIONS: dict[str, tuple[Any, str]] = {
    "none": (None, "function=None cannot be called"),
    "a word": ("mean", "function='mean' cannot be called"),
    "nothing back": (lambda rows: None, "returned NoneType"),
    "words back": (lambda rows: rows.astype(str), "type <U32"),
    "complex numbers": (lambda rows: rows + 0j, "type complex128"),
    "objects": (lambda rows: rows.astype(object), "type object"),
    "ragged": (lambda rows: [[1.0], [1.0, 2.0]], "type object"),
    "a number": (lambda rows: 1.0, r"shape \(\)"),
    "a vector": (lambda rows: rows[:, 0], "one number a sample"),
    "too many features": (lambda rows: np.hstack([rows, rows]), "expected real numbers of shape"),
    "too few samples": (lambda rows: rows[:-1], "expected real numbers of shape"),
    "no samples": (lambda rows: rows[:0], "expected real numbers of shape"),
    "masked": (lambda rows: np.ma.masked_less(rows, 2), "returned is a masked array"),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("sampling", [SMALL, Frames(), Channels()], ids=repr)
def test_what_a_function_may_not_return(sampling: Any, kind: str) -> None:
    function, words = FUNCTIONS[kind]
    with pytest.raises((TypeError, ValueError)) as caught:
        sampling.map(function, STACK)
    assert not complaint(caught.value, words)


@pytest.mark.parametrize("sampling", [SMALL, Frames(), Channels()], ids=repr)
def test_what_a_function_may_return(sampling: Any) -> None:
    for function in (np.ndarray.tolist, lambda rows: rows.astype(int), _tensor, np.float32):
        np.testing.assert_allclose(sampling.map(function, STACK), STACK, rtol=1e-6)
    for value in (1, True, np.float16(1), np.uint8(1)):
        ones = sampling.map(lambda rows, value=value: np.full((len(rows), 1), value), STACK)
        np.testing.assert_allclose(ones, 1, rtol=1e-6)


NO_COUNTS = ["3", None, 2.5, [3], True, np.True_, np.nan, np.inf, 10**400, np.array([1, 2]), 2j, {}]
ARGUMENTS: dict[str, tuple[Callable[[Any], Any], list[Any], str]] = {
    "size": (Patches, [*NO_COUNTS, 0, -1, (), (8,), (8, 2.5), (8, 0), (8, 10**400)], "size="),
    "stride": (lambda v: Patches(4, v), [*NO_COUNTS, 0, -1, 5], "stride="),
    "axis": (Channels, [*NO_COUNTS, 64, -65], "axis"),
    "elements": (
        lambda v: SMALL.rows(STACK, elements=v),
        [v for v in NO_COUNTS if v is not None] + [0, -1],
        "elements",
    ),
    "background_strength": (
        lambda v: images.StructuredBackgroundRemover(background_strength=v).fit(
            STACK[0], background=BEHIND[0]
        ),
        [*NO_COUNTS, "Varying", np.array(["varying", "constant"])],
        "background_strength=",
    ),
    "background_strength in one call": (
        lambda v: images.suppress_background(
            STACK, BEHIND, sampling=Frames(), background_strength=v
        ),
        [*NO_COUNTS, "Varying", np.array(["varying", "constant"])],
        "background_strength=",
    ),
    "stationary_signal": (
        lambda v: images.suppress_background(STACK, BEHIND, sampling=SMALL, stationary_signal=v),
        ["yes", None, 0, 1, []],
        "stationary_signal must be True or False",
    ),
    "sampling": (
        lambda v: images.suppress_background(STACK, BEHIND, sampling=v),
        [*NO_COUNTS, Patches, Channels(), "pixels", np.array(["patches", "frames"])],
        "sampling=",
    ),
    "estimator of weight_maps": (
        lambda v: images.weight_maps(v, (8, 9)),
        [None, "CPCA", cc.CPCA, KERNEL, cc.SecondMoments, 3, images],
        "estimator=.* has no feature_weights",
    ),
    "frame_shape": (
        lambda v: images.FrameBackgroundRemover(v).fit(STACK, background=BEHIND),
        [*NO_COUNTS[:9], (8,), (8, 9, 1), (8, 0), (8, 2.5), (8, 10**400)],
        "frame_shape",
    ),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_what_no_argument_is_is_refused_by_name(name: str) -> None:
    call, values, words = ARGUMENTS[name]
    for value in values:
        with pytest.raises((TypeError, ValueError)) as caught:
            call(value)
        assert not complaint(caught.value, words), value


def test_integers_of_any_type_are_integers() -> None:
    expected = SMALL.rows(STACK).load()
    for kind in (np.int64, np.uint8, np.int8):
        for size in (kind(4), (kind(4), kind(4))):
            patches = Patches(size, kind(2))
            np.testing.assert_array_equal(patches.rows(STACK).load(), expected)
            np.testing.assert_allclose(patches.map(lambda rows: rows, STACK), STACK, rtol=1e-6)
        assert Patches(kind(4), kind(2)) == SMALL
        last = Channels(kind(2)).rows(STACK).load()
        np.testing.assert_array_equal(last, STACK.reshape(-1, 9))
    wide = RNG.normal(size=(20, 300))  # along which steps go beyond a byte
    kept = Patches(np.uint8(16), np.uint8(16)).map(lambda rows: rows, wide)
    np.testing.assert_allclose(kept, wide, rtol=1e-6)
