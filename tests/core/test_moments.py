"""Tests of `SecondMoments` of every kind of data, of chunks, and of merged parts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from contrast_core import SecondMoments
from contrast_core.rows import rows_of
from tests.core.kinds import KINDS, assert_same_moments

N, D = 500, 7


@pytest.fixture(scope="module")
def rows() -> Any:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(N, D)) @ rng.normal(size=(D, D)) + rng.normal(size=D) * 10
    values[rng.random(values.shape) < 0.3] = 0
    return values


@pytest.mark.parametrize("kind", KINDS)
def test_data_of_every_kind_have_the_moments_of_their_rows(
    rows: Any, kind: str, tmp_path: Path
) -> None:
    """Check blocks of 64 rows, and overlapping selections that are read together."""
    whole = rows_of(KINDS[kind](rows, tmp_path), elements=64 * D)
    assert_same_moments(SecondMoments.from_data(whole), SecondMoments.from_data(rows))
    masks = [np.arange(N) % 3 == 0, np.arange(N) < 300, np.arange(N) % 3 == 1]
    parts = [whole.columns(np.arange(D) != 2).take(mask) for mask in masks]
    for moments, mask in zip(SecondMoments.from_parts(parts), masks, strict=True):
        assert_same_moments(moments, SecondMoments.from_data(np.delete(rows[mask], 2, axis=1)))


@pytest.mark.parametrize("device", [None, "cpu"])
def test_chunks_are_read_in_the_callers_thread_and_may_be_overwritten(
    rows: Any, device: str | None
) -> None:
    """Check a reader that fills one array repeatedly and must run in one thread."""
    if device:
        pytest.importorskip("torch", reason="torch is not installed")
    rows = rows.astype(np.float32)
    kinds: list[Any] = [np.asarray, sp.csr_array, np.float32, sp.csc_matrix]

    def reader() -> Iterator[Any]:
        buffer = np.empty((100, D))
        for i in range(0, N, 100):
            assert threading.current_thread() is threading.main_thread()
            buffer[:] = rows[i : i + 100]
            chunk = kinds[i // 100 % 4](buffer)
            yield rows_of(chunk, elements=64 * D)
            (chunk.data if sp.issparse(chunk) else chunk)[:] = np.nan

    found = SecondMoments.from_chunks(reader(), device=device)
    assert_same_moments(found, SecondMoments.from_data(rows.astype(float)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_neither_a_mean_far_from_zero_nor_drift_costs_precision(dtype: Any) -> None:
    """Use a mean of 10,000 standard deviations.

    If the rows were not centred before they are multiplied, eight digits would be lost.
    """
    rng = np.random.default_rng(1)
    drift = np.repeat([0.0, 50.0, -80.0], 1000)[:, None]
    for far, rtol in ((1e4, 1e-11), (drift, 1e-12)):
        rows = (rng.normal(size=(3000, 5)) + far).astype(dtype)
        exact = rows.astype(np.longdouble)
        exact = exact - exact.mean(axis=0)
        exact = (exact.T @ exact / len(exact)).astype(np.float64)
        for moments in (
            SecondMoments.from_data(rows),
            SecondMoments.from_chunks(np.array_split(rows, 17)),
        ):
            assert np.abs(moments.covariance - exact).max() < rtol * exact.max()


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_blocks_of_rows_with_weight_zero_do_not_count(kind: Any) -> None:
    rows = sp.random(2000, 20, density=0.1, random_state=0).toarray()
    weights = (np.arange(2000) >= 1500).astype(float)
    blocks = rows_of(kind(rows), elements=64 * 20)
    found = SecondMoments.from_data(blocks, sample_weight=weights)
    expected = SecondMoments.from_data(rows[weights > 0])
    np.testing.assert_allclose(found.covariance, expected.covariance, atol=1e-15)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)


def test_a_constant_feature_has_no_variance() -> None:
    rows = np.column_stack([np.random.default_rng(3).normal(size=1000), np.full(1000, 0.1)])
    rounding = 8 * np.finfo(float).eps * 0.1
    assert 0 <= SecondMoments.from_data(rows).variances[1] < rounding**2


def test_feature_names_are_kept_and_must_agree(rows: Any) -> None:
    frame = pd.DataFrame(rows, columns=list("abcdefg"))
    assert SecondMoments.from_data(frame).feature_names == tuple("abcdefg")
    assert SecondMoments.from_data(rows, feature_names="abcdefg").feature_names == tuple("abcdefg")
    for chunks in ([frame[:9], frame[9:]], [rows[:9], rows[9:]]):
        renamed = SecondMoments.from_chunks(chunks, feature_names="ABCDEFG")
        assert renamed.feature_names == tuple("ABCDEFG")
    for names in (None, "ABCDEFG"):
        with pytest.raises(ValueError, match="chunk 1 of X has X's features in another order"):
            SecondMoments.from_chunks([frame, frame[list("bacdefg")]], feature_names=names)
    with pytest.raises(ValueError, match="2 feature_names were given for the 7 features of X"):
        SecondMoments.from_data(rows, feature_names="ab")
    with pytest.raises(ValueError, match="another order"):
        SecondMoments.from_data(frame).merge(SecondMoments.from_data(frame[list("bacdefg")]))


def test_bad_chunks_are_named(rows: Any) -> None:
    bad = rows.copy()
    bad[450, 2] = np.nan
    with pytest.raises(ValueError, match=r"chunk 3 of cells contains NaN or inf .* feature 2"):
        SecondMoments.from_chunks(np.array_split(bad, 4), name="cells")


def test_invalid_moments_are_refused() -> None:
    rows = np.array([[1e25], [-1e25], [2e25]])
    assert SecondMoments.from_data(rows).covariance[0, 0] > 1e49
    with pytest.raises(ValueError, match="variance of X overflows float32"):
        SecondMoments.from_data(rows, precision="single")
    with pytest.raises(ValueError, match="precision='half' is unknown; expected 'double' or"):
        SecondMoments.from_data(rows, precision="half")  # type: ignore[arg-type]
    for kind in (np.asarray, sp.csr_matrix):
        with pytest.raises(ValueError, match="the variance of X overflows float64"):
            SecondMoments.from_data(kind(1e150 * rows))
