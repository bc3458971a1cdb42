"""Tests that unusual stacks and arguments give the correct result or a clear error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from contrast_core import images
from contrast_core.images import Channels, Frames, Patches
from tests.core.kinds import tensor
from tests.core.test_odd_inputs import complaint

pytestmark = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")

RNG = np.random.default_rng(0)
STACK = RNG.integers(0, 50, size=(6, 8, 9)).astype(np.float64)
BEHIND = RNG.integers(0, 50, size=(6, 8, 9)).astype(np.float64)
SMALL = Patches(4, 2)


def refused(call: Callable[[], Any], words: str) -> None:
    """Check that the call raises an error whose message contains these words."""
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    assert not complaint(caught.value, words)


def suppressed(image: Any, background: Any, sampling: Any = SMALL) -> Any:
    result = images.suppress_background(image, background, sampling=sampling)
    return np.array([result.denoised, result.removed])


READERS: dict[str, Callable[[Any], Any]] = {
    "Frames.rows": lambda stack: Frames().rows(stack).load(),
    "Channels.map": lambda stack: Channels(-1).map(lambda rows: 2.0 * rows, stack),
    "block_moments": lambda stack: [m.covariance for m in images.block_moments(SMALL, stack)],
    "suppress_background": lambda stack: suppressed(stack, BEHIND),
    "background of suppress_background": lambda stack: suppressed(STACK, stack),
}


def _unknown_chunks(stack: Any) -> Any:
    array = da.from_array(stack, chunks=(2, 5, 3))
    array._chunks = ((np.nan,) * 3, *array.chunks[1:])
    return array


TAKEN: dict[str, Callable[[Any], Any]] = {
    "list of frames": list,
    "nested lists": np.ndarray.tolist,
    "masked array, none masked": np.ma.masked_array,
    "float16": lambda s: s.astype("f2"),
    "big-endian": lambda s: s.astype(">f8"),
    "tensor": tensor,
    "tensor of bfloat16": lambda s: tensor(s).bfloat16(),
    "tensor with gradient": lambda s: tensor(s).requires_grad_(),
}
REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "words": (lambda s: s.astype(str), "pixels of type.*U32"),
    "masked": (lambda s: np.ma.masked_less(s, 1), "masked"),
    "no height": (lambda s: s[:, :0], "0 x 9|no pixels|no rows|n_samples=0"),
    "NaN": (lambda s: np.where(s < 2, np.nan, s), "NaN"),
    "too large": (lambda s: s.astype(int) + 2**60, r"exceeds 2\*\*53"),
    "a file name": (lambda s: "film.tif", "str 'film.tif'"),
    "ragged": (lambda s: [[1, 2], [3]], r"is list \[\[1, 2\], \[3\]\]"),
    "complex": (lambda s: s + 0j, "pixels of type.*complex128.*real part"),
    "sparse tensor": (lambda s: tensor(s).to_sparse(), "is Tensor"),
    "sparse": (lambda s: sp.csr_matrix(s[0]), "is csr_matrix"),
    "one dimension": (lambda s: s[0, 0], "shape"),
    "unknown chunks": (_unknown_chunks, "compute_chunk_sizes"),
}
# Every reader is tested with these kinds. One reader is tested with all other kinds, because
# all readers check stacks in the same way.
EVERYWHERE = ("list of frames", "tensor", *list(REFUSED)[:6])


def cases(kinds: Any) -> Any:
    """Parametrise a test over readers, and over the kinds of stacks that each reader gets."""
    pairs = [(r, k) for r in READERS for k in kinds if k in EVERYWHERE or r == "Frames.rows"]
    return pytest.mark.parametrize(("reader", "kind"), pairs)


@cases(TAKEN)
def test_the_same_pixels_in_any_container_give_the_same_result(reader: str, kind: str) -> None:
    found = np.asarray(READERS[reader](TAKEN[kind](STACK)), np.float64)
    np.testing.assert_allclose(found, READERS[reader](STACK), rtol=1e-5, atol=1e-4)


@cases(REFUSED)
def test_invalid_stacks_are_refused_with_a_message(reader: str, kind: str) -> None:
    make, words = REFUSED[kind]
    if kind == "no height" and reader.startswith("Channels"):
        assert not READERS[reader](make(STACK)).size  # a stack without pixels has no samples
        return
    refused(lambda: READERS[reader](make(STACK)), words)


each_sampling = pytest.mark.parametrize("sampling", [SMALL, Frames(), Channels()], ids=repr)
MASK = np.zeros((8, 9), dtype=bool)
MASK[:, :5] = True


@each_sampling
def test_invalid_masks_are_refused(sampling: Any) -> None:
    for mask, words in (
        (MASK.astype(float), "has dtype float64; expected truth values"),
        (MASK + 1, "has dtype int64 and the values 1, 2; expected truth"),
        ([[True], [False, True]], "has dtype object"),
        (np.ma.masked_array(MASK, MASK), "the mask of the stack is a masked array"),
        (MASK.T, r"has shape \(9, 8\)"),
        (True, r"has shape \(\)"),
        (~MASK & MASK, "lies entirely within the mask|has shape"),
    ):
        refused(lambda mask=mask: sampling.rows(STACK, mask), words)  # type: ignore[misc]


@pytest.mark.parametrize("make", [list, tensor, da.from_array, lambda mask: np.uint8(255) * mask])
def test_equal_masks_of_any_type_give_the_same_result(make: Any) -> None:
    mask = make(np.broadcast_to(MASK, STACK.shape).copy())
    np.testing.assert_array_equal(SMALL.rows(STACK, mask).load(), SMALL.rows(STACK, MASK).load())


@each_sampling
def test_a_mapped_function_must_return_real_numbers_of_the_right_shape(sampling: Any) -> None:
    for function, words in (
        ("mean", "function='mean' cannot be called"),
        (lambda rows: None, "returned NoneType"),
        (lambda rows: rows + 0j, "type complex128"),
        (lambda rows: [[1.0], [1.0, 2.0]], "type object"),
        (lambda rows: rows[:, 0], "one number per sample"),
        (lambda rows: np.hstack([rows, rows]), "expected real numbers of shape"),
        (lambda rows: rows[:-1], "expected real numbers of shape"),
        (lambda rows: np.ma.masked_less(rows, 2), "returned is a masked array"),
    ):
        refused(lambda function=function: sampling.map(function, STACK), words)  # type: ignore[misc]
    for valid in (np.ndarray.tolist, lambda rows: rows.astype(int), tensor, np.float32):
        np.testing.assert_allclose(sampling.map(valid, STACK), STACK, rtol=1e-6)
    ones = sampling.map(lambda rows: np.full((len(rows), 1), True), STACK)
    np.testing.assert_allclose(ones, 1, rtol=1e-6)


def test_integers_of_any_type_are_accepted_and_a_stride_is_at_most_the_shortest_side() -> None:
    refused(lambda: Patches((4, 9), 5), "4 x 9 .* from 1 to 4")
    for kind in (np.int64, np.uint8):
        assert Patches((kind(4), kind(4)), kind(2)) == Patches((4, 4), 2)
        last = Channels(kind(2)).rows(STACK).load()
        np.testing.assert_array_equal(last, STACK.reshape(-1, 9))
    wide = RNG.normal(size=(20, 300))  # indices up to 299 do not fit in one byte
    kept = Patches(np.uint8(16), np.uint8(16)).map(lambda rows: rows, wide)
    np.testing.assert_allclose(kept, wide, rtol=1e-6)
