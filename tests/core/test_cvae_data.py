"""Tests of CVAE on data of every format and scale, and of its errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from tests.core.cvae_samples import D, counts, quick, ring
from tests.core.kinds import KINDS

torch = pytest.importorskip("torch", reason="torch is not installed")


def test_units_and_origin_do_not_change_the_scores() -> None:
    X, Y, *_ = ring(300, 300)
    plain = quick().fit(X, background=Y)
    for factor, offset in ((1e-4, 0.0), (1e5, 3e5)):
        other = quick().fit(X * factor + offset, background=Y * factor + offset)
        scores = other.transform(X * factor + offset)
        np.testing.assert_allclose(scores, plain.transform(X), atol=2e-3)
        left = other.denoise(X * factor + offset) / factor
        np.testing.assert_allclose(left, plain.denoise(X), atol=2e-2)
        shift = D * np.log(factor)
        assert other.score(X * factor + offset) == pytest.approx(plain.score(X) - shift, abs=0.1)


@pytest.mark.parametrize("kind", list(KINDS))
def test_data_of_every_kind_give_the_same_scores(kind: str, tmp_path: Path) -> None:
    X, Y = (values.astype(np.float32)[:230, :11] for values in counts())
    (tmp_path / "X").mkdir(), (tmp_path / "Y").mkdir()
    given = KINDS[kind](X, tmp_path / "X"), KINDS[kind](Y, tmp_path / "Y")
    model = quick(noise="counts", max_iter=2)
    model.fit(given[0], background=given[1])
    dense = quick(noise="counts", max_iter=2).fit(X, background=Y)
    scores = model.transform(given[0])
    scores = scores.detach().numpy() if torch.is_tensor(scores) else np.asarray(scores)
    array = X if kind != "data frame" else given[0]
    np.testing.assert_allclose(scores, model.transform(array), atol=1e-5)
    # Only the order of the rows differs if they are streamed.
    streamed = any(word in kind for word in ("HDF5", "zarr", "backed", "dask"))
    if streamed and kind != "backed CSC":
        np.testing.assert_allclose(model.held_out_loss_, dense.held_out_loss_, atol=0.5)
    else:
        np.testing.assert_allclose(model.held_out_loss_, dense.held_out_loss_, atol=1e-4)


def test_uneven_datasets_and_constant_features_are_accepted() -> None:
    X, Y, *_ = ring(500, 5)
    X, Y = (np.hstack([rows, np.ones((len(rows), 2))]) for rows in (X, Y))
    model = quick().fit(X, background=Y)
    np.testing.assert_allclose(model.sample_background(20, random_state=0)[:, -2:], 1, atol=0.9)
    read_only = X.copy()
    read_only.flags.writeable = False
    np.testing.assert_allclose(
        model.transform(read_only), model.transform(np.asfortranarray(X)), atol=1e-12
    )


def test_invalid_data_are_refused() -> None:
    X, Y, *_ = ring(40, 40)
    bad = X.copy()
    bad[3, 2] = np.nan
    gauss = quick(noise="counts")
    for model, x, y, match in [
        (gauss, X, Y, r"X holds .*noise='counts' takes whole numbers from 0"),
        (gauss, np.abs(np.round(X)), Y, "background holds"),
        (gauss, sp.csr_matrix(-np.abs(np.round(X))), np.abs(np.round(Y)), "X holds -"),
        (quick(), bad, Y, "X contains NaN"),
        (quick(), X, bad, "background contains NaN"),
        (quick(), X, Y[:1], "background has n_samples=1"),
        (quick(), X, np.ones_like(Y), "background does not vary"),
        (quick(), X, [Y, Y], "2 backgrounds were given, but only one is allowed"),
        (quick(device="meta"), X, Y, "'meta' has no float64"),
        (quick(n_salient=0), X, Y, "n_salient=0"),
        (quick(noise="poisson"), X, Y, "noise='poisson' is unknown"),
        (quick(validation_fraction=0.7), X, Y, "validation_fraction=0.7"),
    ]:
        with pytest.raises(ValueError, match=match):
            model.fit(x, background=y)
        assert not hasattr(model, "weights_")
    fitted = quick(max_iter=1).fit(X, background=Y)
    with pytest.raises(ValueError, match="NaN"):
        fitted.transform(bad)
    with pytest.raises(ValueError, match="dataset='both' is unknown"):
        fitted.score(X, dataset="both")
    with pytest.raises(ValueError, match="features"):
        fitted.transform(X[:, 1:])


def test_a_model_of_counts_accepts_only_counts() -> None:
    """Check that logarithms are refused after a fit to counts.

    The scores of logarithms would be almost the same for all rows.
    """
    X, Y = counts()
    model = quick(noise="counts", max_iter=1).fit(X, background=Y)
    for rows in (np.log1p(X), X - 1.0, sp.csr_matrix(np.log1p(X)), torch.tensor(np.log1p(X))):
        for method in (model.transform, model.transform_shared, model.denoise, model.score_samples):
            with pytest.raises(ValueError, match="whole numbers from 0"):
                method(rows)


def test_dtypes_and_strides_that_torch_does_not_support_are_accepted() -> None:
    X, Y = counts()
    for noise in ("normal", "counts"):
        model = quick(noise=noise, max_iter=1)
        expected = model.fit(X, background=Y).transform(X)
        for kind in (">f4", ">i2", "uint16", "float16"):
            again = model.fit(X.astype(kind), background=Y.astype(kind)).transform(X.astype(kind))
            np.testing.assert_allclose(again, expected, atol=1e-6)
        mirrored = model.fit(X[:, ::-1][:, ::-1], background=Y).transform(X[::-1, ::-1][::-1, ::-1])
        np.testing.assert_allclose(mirrored, expected, atol=1e-6)
        zeros = sp.csr_matrix(X.astype(np.float32) + 1)
        zeros.data -= 1  # these zeros are stored explicitly
        np.testing.assert_allclose(model.transform(zeros), expected, atol=1e-6)
