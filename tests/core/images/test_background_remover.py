"""Structured background removed by a scale mixture, from two moments."""

from __future__ import annotations

import pickle
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.ndimage import gaussian_filter
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from contrast_core import SecondMoments
from contrast_core.images import Patches, StructuredBackgroundRemover
from tests.core.images.pictures import PATTERNS, cells, noisy, relative_error

MODES = ["varying", "constant"]


def planted(n: int = 300, m: int = 200, d: int = 10, seed: int = 0) -> tuple[Any, Any, Any]:
    """Rows of signal and background, of background alone, and the signal."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]

    def background(rows: int) -> Any:
        strength = rng.lognormal(sigma=0.5, size=(rows, 1))
        return strength * rng.normal(size=(rows, 3)) * [4.0, 3.0, 2.0] @ basis[:3]

    signal = rng.normal(size=(n, 2)) * [3.0, 2.0] @ (basis[3:5] + 0.5 * basis[:2]) + 1.0
    noise = 0.2 * rng.normal(size=(n + m, d))
    return signal + background(n) + noise[:n] + 5.0, background(m) + noise[n:] + 5.0, signal


def in_plain_numpy(X: Any, Y: Any, mode: str) -> tuple[Any, Any]:
    """The definition, a row and a pair of strengths at a time."""
    d = X.shape[1]
    cx, cy = np.cov(X.T, bias=True), np.cov(Y.T, bias=True)
    delta = X.mean(axis=0) - Y.mean(axis=0)
    values, vectors = np.linalg.eigh(cx - cy)
    S = (vectors * np.maximum(values, 0)) @ vectors.T + np.outer(delta, delta)
    N = cy + 0.03 * np.trace(cy) / d * np.eye(d)
    gains = [1.0] if mode == "constant" else [0.02, *np.geomspace(0.1, 4, 6)]
    scales = [0.0, *np.geomspace(0.0003, 30, 16)]
    estimates, strengths = [], []
    for row in X - Y.mean(axis=0):
        logs, means = [], []
        for s, g in product(scales, gains):
            total = s * S + g * N
            solved = np.linalg.solve(total, row)
            logs.append(-0.5 * (np.linalg.slogdet(total)[1] + row @ solved))
            means.append(s * S @ solved)
        weights = np.exp(np.array(logs) - max(logs))
        weights /= weights.sum()
        estimates.append(weights @ means)
        strengths.append(weights @ np.array(list(product(scales, gains))))
    return np.array(estimates), np.array(strengths)


@pytest.mark.parametrize("mode", MODES)
def test_the_estimate_is_the_posterior_mean(mode: Any) -> None:
    X, Y, _ = planted(n=40)
    remover = StructuredBackgroundRemover(background_strength=mode).fit(X, background=Y)
    estimates, strengths = in_plain_numpy(X, Y, mode)
    np.testing.assert_allclose(remover.transform(X), estimates, atol=1e-9)
    np.testing.assert_allclose(remover.strengths(X), strengths, rtol=1e-9)


def test_the_signal_is_found_and_a_varying_background_is_followed() -> None:
    X, Y, signal = planted(n=2000, m=2000)
    error = {}
    for mode in MODES:
        remover = StructuredBackgroundRemover(background_strength=mode).fit(X, background=Y)  # type: ignore[arg-type]
        left = remover.transform(X) - (signal + X.mean(axis=0) - Y.mean(axis=0) - signal.mean(0))
        error[mode] = (left**2).sum() / ((X - Y.mean(axis=0) - signal) ** 2).sum()
    assert error["varying"] < 0.05
    assert error["varying"] < error["constant"]
    strength = remover.strengths(X)
    np.testing.assert_allclose(strength[:, 1], 1.0)


def test_background_rows_are_emptied() -> None:
    X, Y, _ = planted(n=2000, m=2000)
    remover = StructuredBackgroundRemover().fit(X, background=Y)
    centred = Y - Y.mean(axis=0)
    assert (remover.transform(Y) ** 2).sum() < 0.02 * (centred**2).sum()
    signal, _ = remover.strengths(Y).T
    assert np.median(signal) < 0.1 < np.median(remover.strengths(X)[:, 0])


@pytest.mark.parametrize("scale", [1e-60, 1e-9, 3.0, 1e60])
def test_scaling_all_data_scales_the_estimate(scale: float) -> None:
    X, Y, _ = planted()
    plain = StructuredBackgroundRemover().fit(X, background=Y)
    scaled = StructuredBackgroundRemover().fit(scale * X, background=scale * Y)
    np.testing.assert_allclose(scaled.transform(scale * X) / scale, plain.transform(X), atol=1e-10)
    np.testing.assert_allclose(scaled.strengths(scale * X), plain.strengths(X), rtol=1e-9)


def test_rotating_and_shifting_the_data_rotates_the_estimate() -> None:
    X, Y, _ = planted()
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(10, 10)))[0]
    shift = np.arange(10.0)
    plain = StructuredBackgroundRemover().fit(X, background=Y)
    moved = StructuredBackgroundRemover().fit(X @ rotation + shift, background=Y @ rotation + shift)
    np.testing.assert_allclose(
        moved.transform(X @ rotation + shift), plain.transform(X) @ rotation, atol=1e-10
    )


def test_moments_in_place_of_data_whole_or_merged() -> None:
    X, Y, _ = planted()
    x, y = SecondMoments.from_data(X), SecondMoments.from_data(Y)
    parts = SecondMoments.from_data(X[:99]).merge(SecondMoments.from_data(X[99:]))
    expected = StructuredBackgroundRemover().fit(X, background=Y).transform(X)
    for moments in (x, parts):
        fitted = StructuredBackgroundRemover().fit(moments, background=y)
        np.testing.assert_allclose(fitted.transform(X), expected, atol=1e-10)
    with pytest.raises(TypeError, match="SecondMoments for both, or data for both"):
        StructuredBackgroundRemover().fit(x, background=Y)


@pytest.mark.parametrize("form", ["fortran", "strided", "readonly", "csr", "frame", "f4", "u1"])
def test_every_form_of_input_agrees_with_the_dense_one(form: str) -> None:
    X, Y, _ = planted()
    X, Y = (np.where(np.abs(a) < 1, 0, np.clip(np.round(a * 4), 0, 255)) for a in (X, Y))

    def convert(a: Any) -> Any:
        match form:
            case "fortran":
                return np.asfortranarray(a)
            case "strided":
                return np.repeat(a, 2, axis=0)[::2]
            case "readonly":
                b = a.copy()
                b.flags.writeable = False
                return b
            case "csr":
                return sp.csr_array(a)
            case "frame":
                return pd.DataFrame(a, columns=list("abcdefghij"))
            case _:
                return a.astype(form)

    plain = StructuredBackgroundRemover().fit(X, background=Y)
    other = StructuredBackgroundRemover().fit(convert(X), background=convert(Y))
    np.testing.assert_allclose(other.transform(convert(X)), plain.transform(X), atol=1e-9)


def test_many_rows_are_worked_on_in_blocks() -> None:
    X, Y, _ = planted(d=100)
    remover = StructuredBackgroundRemover().fit(X, background=Y)
    many = np.tile(X, (40, 1))  # 1.2 million numbers
    expected = np.tile(remover.transform(X), (40, 1))
    np.testing.assert_allclose(remover.transform(many), expected, atol=1e-12)
    assert remover.strengths(many).shape == (len(many), 2)


@pytest.mark.parametrize("case", ["same data", "weak foreground", "constant foreground", "one"])
def test_odd_data_give_finite_estimates(case: str) -> None:
    X, Y, _ = planted()
    match case:
        case "same data":
            X = Y
        case "weak foreground":
            X = 1e-6 * X
        case "constant foreground":
            X = np.full_like(X, 3.0)
        case _:
            X, Y = X[:, :1], Y[:, :1]
    with np.errstate(all="raise", under="ignore"):
        fitted = StructuredBackgroundRemover().fit(X, background=Y)
        estimate = fitted.transform(X)
    assert np.isfinite(estimate).all()
    assert (fitted.signal_variances_ >= 0).all()
    if case == "same data":
        np.testing.assert_allclose(estimate, 0.0, atol=1e-12)


def test_fewer_rows_than_features_and_a_rank_deficient_background() -> None:
    X, Y, _ = planted(n=20, m=15, d=40)
    fitted = StructuredBackgroundRemover().fit(X, background=np.repeat(Y[:3], 5, axis=0))
    assert np.isfinite(fitted.transform(X)).all()


def test_bad_input_is_refused_and_leaves_the_estimator_unfitted() -> None:
    X, Y, _ = planted()
    with_nan = X.copy()
    with_nan[0, 1] = np.nan
    for bad_x, bad_y, message in [
        (X[:, :9], Y, "background has 10 features but X has 9"),
        (with_nan, Y, "NaN first met in feature 1"),
        (X, np.full_like(Y, 0.1), r"the background is constant \(none of its 10 features varies"),
        (X[:1], Y, "n_samples=1"),
        (X, None, "background=None was given"),
    ]:
        remover = StructuredBackgroundRemover()
        with pytest.raises(ValueError, match=message):
            remover.fit(bad_x, background=bad_y)
        assert not [name for name in vars(remover) if name.endswith("_")]
        with pytest.raises(NotFittedError):
            remover.transform(X)
    with pytest.raises(ValueError, match="background_strength='fixed' is unknown; expected 'vary"):
        StructuredBackgroundRemover(background_strength="fixed").fit(X, background=Y)  # type: ignore[arg-type]
    fitted = StructuredBackgroundRemover().fit(X, background=Y)
    with pytest.raises(ValueError, match="expecting 10 features"):
        fitted.transform(X[:, :5])
    with pytest.raises(ValueError, match="NaN first met in feature 1"):
        fitted.transform(with_nan)


class SelfBackground(StructuredBackgroundRemover):
    """With X as its own background, for checks that give none."""

    def fit(self, X: Any, y: Any = None, *, background: Any = None) -> Any:
        return super().fit(X, y, background=X if background is None else background)

    def fit_transform(self, X: Any, y: Any = None, *, background: Any = None) -> Any:
        return self.fit(X, y, background=background).transform(X)


def test_scikit_learns_own_checks() -> None:
    check_estimator(SelfBackground(), on_skip=None)


def test_names_clone_pickle_and_output() -> None:
    X, Y, _ = planted()
    names = list("abcdefghij")
    frames = pd.DataFrame(X, columns=names), pd.DataFrame(Y, columns=names)
    fitted = StructuredBackgroundRemover(background_strength="constant").fit(
        frames[0], background=frames[1]
    )
    assert list(fitted.set_output(transform="pandas").transform(frames[0]).columns) == names
    fitted.set_output(transform="default")
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.transform(frames[0]), fitted.transform(frames[0]))
    assert clone(fitted).get_params() == {"background_strength": "constant"}
    with pytest.raises(TypeError, match="fit_transform got SecondMoments"):
        moments = SecondMoments.from_data(X)
        fitted.fit_transform(moments, background=moments)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_go_from_images_and_cells_stay(pattern: str) -> None:
    rng = np.random.default_rng(0)
    clean = cells((192, 192), rng)
    image = noisy(clean, PATTERNS[pattern]((192, 192), rng), rng)
    patches = Patches(size=16, stride=4)
    x = SecondMoments.from_chunks(patches.rows(image).blocks())
    y = SecondMoments.from_chunks(Patches(stride=1).rows(image[:64, :64]).blocks())
    remover = StructuredBackgroundRemover().fit(x, background=y)
    error = relative_error(patches.map(remover.transform, image), clean, image)
    blurred = (relative_error(gaussian_filter(image, s), clean, image) for s in (0.5, 1, 1.5, 2, 3))
    assert error < 0.7 * min(blurred)
