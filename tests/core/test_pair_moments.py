"""Tests of `PairMoments`, the moments of positive pairs for PCA+ and PCA++."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from contrast_core import CPCA, CPCAStar, PCAPlus, PCAPlusPlus
from contrast_core.linalg import subspace_error
from contrast_core.moments import PairMoments
from contrast_core.rows import rows_of
from tests.core.kinds import KINDS
from tests.core.samples import recording


@pytest.fixture
def pair() -> Any:
    """Return the two views of 600 positive pairs, which are the rows of X and of `positive`."""
    rng = np.random.default_rng(0)
    signal = rng.normal(size=(600, 7)) @ rng.normal(size=(7, 7))
    return signal + rng.normal(size=(600, 7)) + 3.0, signal + rng.normal(size=(600, 7)) - 1.0


def assert_same(a: PairMoments, b: PairMoments, atol: float = 1e-11) -> None:
    assert a.n_pairs == b.n_pairs
    for field in ("average", "difference", "first"):
        ours, theirs = getattr(a, field), getattr(b, field)
        for of in ("mean", "covariance"):
            np.testing.assert_allclose(getattr(ours, of), getattr(theirs, of), rtol=0, atol=atol)


def test_chunks_and_merged_parts_agree_with_the_whole(pair: Any) -> None:
    X, P = pair
    whole = PairMoments.from_data(X, P)
    x = rows_of(sp.csr_array(X), elements=7 * 100)
    assert_same(PairMoments.from_data(x, sp.csc_matrix(P)), whole)
    blocks = zip(np.array_split(X, 13), np.array_split(P, 13), strict=True)
    assert_same(PairMoments.from_chunks(blocks), whole)
    parts = [PairMoments.from_data(X[i], P[i]) for i in (slice(1), slice(1, 40), slice(40, None))]
    merged = parts[0].merge(parts[1]).merge(parts[2])
    assert_same(merged, whole)
    assert_same(pickle.loads(pickle.dumps(merged)), merged, atol=0)
    PCAPlus(1).fit(PairMoments.from_data(X[:2], P[:2]))
    with pytest.raises(ValueError, match=r"1 pair\(s\), but a variance needs at least 2"):
        PCAPlus(1).fit(parts[0])


@pytest.mark.parametrize(
    ("first", "second", "n_blocks"),
    [
        ("HDF5 in rows", "zarr", 24),
        ("zarr", "HDF5 in rows", 20),
        ("HDF5 in rows", "array", 24),
        ("data frame", "zarr", 20),
    ],
)
def test_stored_views_are_read_in_blocks(
    pair: Any, first: str, second: str, n_blocks: int, tmp_path: Path
) -> None:
    """Check that pairs are read in blocks that are the storage chunks of the first view.

    If the first view is in memory, the blocks are the storage chunks of the second view.
    """
    X, P = pair
    x, p = (
        rows_of(KINDS[kind](view, tmp_path), elements=1) for kind, view in ((first, X), (second, P))
    )
    seen: list[Any] = []
    moments = PairMoments.from_data(x, p, progress=recording(seen))
    assert_same(moments, PairMoments.from_data(X, P))
    assert moments.feature_names == (tuple("abcdefg") if first == "data frame" else None)
    assert [total for _, total in seen] == [n_blocks] * n_blocks
    found, exact = PCAPlus(2).fit(x, positive=p), PCAPlus(2).fit(X, positive=P)
    np.testing.assert_allclose(found.transform(x), exact.transform(X), atol=1e-9)


@pytest.mark.parametrize("exchangeable", [True, False])
def test_pca_plus_and_pca_pp_contrast_the_means_of_pairs_with_their_differences(
    pair: Any, exchangeable: bool
) -> None:
    """Check that PCA+ equals cPCA, and PCA++ equals cPCA*, for suitable moments.

    The means of the pairs are the foreground, and the differences within pairs are the background.
    """
    moments = PairMoments.from_data(*pair)
    background = moments.disagreement(exchangeable=exchangeable)
    contrast = CPCA(3, alpha=1.0).fit(moments.average, background=background)
    plus = PCAPlus(3, exchangeable=exchangeable).fit(pair[0], positive=pair[1])
    assert subspace_error(contrast.components_, plus.components_) < 1e-12
    np.testing.assert_allclose(contrast.contrastive_eigenvalues_, plus.alignment_, rtol=1e-10)
    if exchangeable:
        star = CPCAStar(3, beta=1.0).fit(moments.average, background=background)
        plus_plus = PCAPlusPlus(3, truncation=None).fit(pair[0], positive=pair[1])
        ratio = star.generalized_eigenvalues_
        assert subspace_error(star.directions_, plus_plus.directions_) < 1e-10
        wanted = plus_plus.generalized_eigenvalues_
        np.testing.assert_allclose((ratio - 1) / (ratio + 1), wanted, rtol=1e-10)


def test_feature_names_are_kept_and_must_agree(pair: Any) -> None:
    X, P = (pd.DataFrame(rows, columns=list("abcdefg")) for rows in pair)
    moments = PairMoments.from_data(X, P)
    assert moments.feature_names == moments.second_moments().feature_names == tuple("abcdefg")
    assert PairMoments.from_data(*pair, feature_names="ABCDEFG").feature_names == tuple("ABCDEFG")
    swapped = X[list("bacdefg")], P[list("bacdefg")]
    without_first = PairMoments(moments.average, moments.difference)
    fewer = X.iloc[:, :5], P.iloc[:, :5]
    calls: list[tuple[Any, str]] = [
        (lambda: PairMoments.from_chunks([(X, P), swapped]), "a chunk has X's features in another"),
        (lambda: PairMoments.from_chunks([pair, fewer]), "a chunk has 5 features"),
        (lambda: PairMoments.from_data(X, swapped[1]), "positive has X's features in another"),
        (lambda: moments.merge(PairMoments.from_data(*swapped)), "the other dataset .* another"),
        (lambda: PairMoments.from_data(*pair, feature_names="ab"), "2 feature_names were given"),
        (lambda: without_first.second_moments(exchangeable=False), "do not hold `first`"),
    ]
    for call, message in calls:
        with pytest.raises(ValueError, match=message):
            call()
