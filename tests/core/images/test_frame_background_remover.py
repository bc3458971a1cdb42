"""Frames freed of their background by a signal-subspace filter."""

from __future__ import annotations

import pickle
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from contrast_core import CPCA, SecondMoments
from contrast_core.images import FrameBackgroundRemover, Frames, suppress_background, weight_maps
from contrast_core.rows import rows_of
from tests.core.images.pictures import (
    blobs_on_photographs,
    digits_on_photographs,
    relative_frame_error,
)

SHAPE = (7, 9)


def striped_frames(n: int, rng: np.random.Generator) -> Any:
    """Stripes of differing strength with noise, as rows."""
    strength = rng.lognormal(sigma=0.5, size=(n, 1, 1))
    stripes = rng.normal(size=(n, SHAPE[0], 1)) * strength + 0.2 * rng.normal(size=(n, *SHAPE))
    return stripes.reshape(n, -1)


def planted(n: int = 300, m: int = 250, seed: int = 0) -> tuple[Any, Any, Any]:
    """Frames with a square that twitches and shines, background alone, and the square."""
    rng = np.random.default_rng(seed)
    signal = np.zeros((n, *SHAPE))
    signal[:, 2:5, 3:7] = rng.normal(1.0, 1.0, size=(n, 1, 1))
    signal = signal.reshape(n, -1)
    return signal + striped_frames(n, rng) + 4.0, striped_frames(m, rng) + 4.0, signal


def fitted(X: Any, Y: Any, **options: Any) -> FrameBackgroundRemover:
    return FrameBackgroundRemover(SHAPE, **options).fit(X, background=Y)


def test_the_filter_is_the_posterior_mean() -> None:
    X, Y, _ = planted()
    remover = fitted(X, Y)
    k, variances = remover.n_components_, remover.signal_variances_
    assert k >= 1
    S = (remover.patterns_.T * variances) @ remover.patterns_
    G = remover.patterns_.T @ remover.patterns_
    estimates = remover.transform(X)
    for row, strength, estimate in zip(X, remover.strengths(X)[:, 0], estimates, strict=True):
        expected = S @ np.linalg.solve(S + strength * G, row - remover.mean_)
        np.testing.assert_allclose(estimate, expected + remover.signal_mean_, atol=1e-8)
    np.testing.assert_allclose(remover.patterns_ @ remover.filters_, np.eye(63), atol=1e-9)


def test_stripes_of_differing_strength_go_and_the_square_stays() -> None:
    X, Y, signal = planted()
    new, _, new_signal = planted(seed=1)
    remover = fitted(X, Y)
    assert remover.n_components_ == 1
    for frames, clean in ((X, signal), (new, new_signal)):
        left = remover.transform(frames) - clean
        assert (left**2).mean() < 0.1 * ((frames - 4 - clean) ** 2).mean()
    strength = remover.strengths(Y)
    assert strength.shape == (250, 1)
    power = ((Y - Y.mean(axis=0)) ** 2).mean(axis=1)
    assert np.corrcoef(np.log(strength[:, 0]), np.log(power))[0, 1] > 0.7
    (weights,) = weight_maps(remover, SHAPE)
    assert abs(weights[2:5, 3:7]).sum() > 0.9 * abs(weights).sum()


@pytest.mark.parametrize(("n", "most"), [(50, 0.90), (200, 0.71), (500, 0.65), (1500, 0.60)])
def test_digits_on_photographs(n: int, most: float) -> None:
    film = digits_on_photographs(n + 300)
    remover = FrameBackgroundRemover(film.shape).fit(
        film.foreground[:n], background=film.background[:n]
    )
    error = [
        relative_frame_error(
            remover.transform(film.foreground[s]), film.clean[s], film.foreground[s]
        )
        for s in (slice(n), slice(n, None))
    ]
    assert error[0] < most
    assert error[1] < error[0] + 0.06
    projection = CPCA(10, alpha="denoise").fit(film.foreground[:n], background=film.background[:n])
    projected = projection.denoise(film.foreground[:n], offset="difference")
    assert error[0] < relative_frame_error(projected, film.clean[:n], film.foreground[:n])


def test_a_signal_that_may_be_anywhere_needs_its_texture() -> None:
    film = blobs_on_photographs(400, np.random.default_rng(0))
    error = {}
    for stationary in (False, True):
        remover = FrameBackgroundRemover(film.shape, stationary_signal=stationary)
        estimate = remover.fit(film.foreground, background=film.background).transform(
            film.foreground
        )
        error[stationary] = relative_frame_error(estimate, film.clean, film.foreground)
    assert error[True] < 0.97 < 1.03 < error[False]


@pytest.mark.parametrize("scale", [1e-140, 1e-9, 1e140])
@pytest.mark.parametrize("stationary", [False, True])
def test_units_do_not_matter(scale: float, stationary: bool) -> None:
    X, Y, _ = planted()
    plain = fitted(X, Y, stationary_signal=stationary)
    scaled = fitted(scale * X, scale * Y, stationary_signal=stationary)
    np.testing.assert_allclose(scaled.transform(scale * X) / scale, plain.transform(X), atol=1e-8)
    shifted = fitted(X + 100, Y + 100, stationary_signal=stationary)
    np.testing.assert_allclose(shifted.transform(X + 100), plain.transform(X), atol=1e-8)


def test_turning_and_transposing_the_frames_turns_the_estimate() -> None:
    X, Y, _ = planted()
    plain = fitted(X, Y).transform(X)
    turned = fitted(X[:, ::-1], Y[:, ::-1]).transform(X[:, ::-1])
    np.testing.assert_allclose(turned[:, ::-1], plain, atol=1e-8)
    order = np.arange(63).reshape(SHAPE).T.ravel()
    remover = FrameBackgroundRemover(SHAPE[::-1]).fit(X[:, order], background=Y[:, order])
    np.testing.assert_allclose(remover.transform(X[:, order]), plain[:, order], atol=1e-8)


@pytest.mark.parametrize(
    "form", ["fortran", "readonly", "csr", "frame", "f4", "u1", "dask", "zarr"]
)
def test_every_form_of_input_agrees_with_the_dense_one(form: str, tmp_path: Any) -> None:
    X, Y, _ = planted()
    X, Y = (np.clip(np.round(a * 16), 0, 255) for a in (X, Y))

    def convert(a: Any, name: str) -> Any:
        match form:
            case "fortran":
                return np.asfortranarray(a)
            case "readonly":
                b = a.copy()
                b.flags.writeable = False
                return b
            case "csr":
                return sp.csr_array(a)
            case "frame":
                return pd.DataFrame(a, columns=[f"pixel {i}" for i in range(63)])
            case "dask":
                return da.from_array(a, chunks=(50, 63))
            case "zarr":
                stored = zarr.create_array(
                    tmp_path / name, shape=a.shape, chunks=(50, 63), dtype="f8"
                )
                stored[:] = a
                return stored
            case _:
                return a.astype(form)

    plain = fitted(X, Y).transform(X)
    remover = fitted(convert(X, "x"), convert(Y, "y"))
    found = remover.transform(X if form != "frame" else convert(X, "x"))
    np.testing.assert_allclose(found, plain, atol=1e-8)


@pytest.mark.parametrize("case", ["same", "weak", "constant", "few", "two", "alternating", "half"])
@pytest.mark.parametrize("stationary", [False, True])
def test_odd_data_give_finite_estimates(case: str, stationary: bool) -> None:
    X, Y, _ = planted()
    match case:
        case "same":
            X = Y
        case "weak":
            X = 1e-6 * X
        case "constant":
            X = np.full_like(X, 3.0)
        case "few":
            X, Y = X[:2], Y[:4]
        case "two":
            Y = np.repeat(Y[:2], 4, axis=0)
        case "alternating":
            Y = np.tile(Y[:2], (4, 1))
        case _:
            X = X.copy()
            X[:, :30] = 7.0
    with np.errstate(divide="raise", invalid="raise"):
        remover = fitted(X, Y, stationary_signal=stationary)
        assert np.isfinite(remover.transform(X)).all()
    assert (remover.signal_variances_ >= 0).all()
    if case in ("same", "few", "constant"):
        assert remover.n_components_ == 0
        assert remover.feature_weights().shape == (0, 63)


def test_bad_input_is_refused_and_leaves_the_estimator_unfitted() -> None:
    X, Y, _ = planted()
    with_nan = X.copy()
    with_nan[0, 1] = np.nan
    for shape, bad_x, bad_y, error, message in [
        (SHAPE, X[:, :9], Y, ValueError, "background has 63 features but X has 9"),
        ((7, 8), X, Y, ValueError, r"frame_shape=\(7, 8\) has 56 pixels, but X has 63 features"),
        ((63,), X, Y, ValueError, r"frame_shape=\(63,\) has 1 axes; expected \(height, width\)"),
        ((7.0, 9), X, Y, TypeError, "frame_shape must be an integer, got 7.0"),
        ((0, 63), X, Y, ValueError, "frame_shape=0 is out of range"),
        ((64, 64), X, Y, ValueError, r"has 4096 pixels, but X has 63 features"),
        (SHAPE, with_nan, Y, ValueError, "NaN first met in feature 1"),
        (SHAPE, X, np.full_like(Y, 0.1), ValueError, "the background is constant"),
        (SHAPE, X[:1], Y, ValueError, "n_samples=1"),
        (SHAPE, X, Y[:3], ValueError, "the background has 3 frames; at least 4 are needed"),
        (SHAPE, X, None, ValueError, "background=None was given"),
        (SHAPE, SecondMoments.from_data(X), Y, TypeError, "rows are needed here"),
    ]:
        remover = FrameBackgroundRemover(shape)  # type: ignore[arg-type]
        with pytest.raises(error, match=message):
            remover.fit(bad_x, background=bad_y)
        assert not [name for name in vars(remover) if name.endswith("_")]
        with pytest.raises(NotFittedError):
            remover.transform(X)
    with pytest.raises(TypeError, match="stationary_signal must be True or False, got 1"):
        fitted(X, Y, stationary_signal=1)
    with pytest.raises(ValueError, match="expecting 63 features"):
        fitted(X, Y).transform(X[:, :5])


class OneLine(FrameBackgroundRemover):
    """Rows as frames of one line, with X as their own background, for checks that give neither."""

    multiplicative = False

    def __init__(self, *, stationary_signal: bool = False) -> None:
        self.stationary_signal = stationary_signal

    @property
    def frame_shape(self) -> tuple[int, int]:  # type: ignore[override]
        return self._line

    def fit(self, X: Any, y: Any = None, *, background: Any = None) -> Any:
        self._line = (1, max(1, rows_of(X).shape[1]))
        return super().fit(X, y, background=X if background is None else background)

    def fit_transform(self, X: Any, y: Any = None, *, background: Any = None) -> Any:
        return self.fit(X, y, background=background).transform(X)


@pytest.mark.parametrize("stationary", [False, True])
def test_scikit_learns_own_checks(stationary: bool) -> None:
    check_estimator(OneLine(stationary_signal=stationary), on_skip=None)


def test_names_clone_pickle_and_output() -> None:
    X, Y, _ = planted()
    names = [f"pixel {i}" for i in range(63)]
    frames = pd.DataFrame(X, columns=names), pd.DataFrame(Y, columns=names)
    remover = fitted(frames[0], frames[1], stationary_signal=True)
    assert list(remover.set_output(transform="pandas").transform(frames[0]).columns) == names
    remover.set_output(transform="default")
    copy = pickle.loads(pickle.dumps(remover))
    np.testing.assert_array_equal(copy.transform(frames[0]), remover.transform(frames[0]))
    assert clone(remover).get_params() == {
        "frame_shape": SHAPE,
        "stationary_signal": True,
        "multiplicative": False,
    }
    np.testing.assert_allclose(
        FrameBackgroundRemover(SHAPE).fit_transform(X, background=Y), fitted(X, Y).transform(X)
    )


def test_stacks_in_one_call() -> None:
    X, Y, signal = planted()
    stack, empty = X.reshape(50, 6, *SHAPE), Y.reshape(-1, *SHAPE)
    result = suppress_background(stack, empty, sampling="frames")
    np.testing.assert_allclose(
        result.denoised.reshape(300, 63), fitted(X, Y).transform(X), atol=1e-12
    )
    np.testing.assert_allclose(result.denoised + result.removed, stack, atol=1e-12)
    assert result.verdicts == ()
    film = np.concatenate([empty, stack.reshape(-1, *SHAPE)])
    marked = suppress_background(film, np.arange(len(film)) < 250, sampling=Frames())
    np.testing.assert_allclose(marked.denoised[250:].ravel(), result.denoised.ravel(), atol=1e-9)
    assert (marked.denoised[:250] ** 2).mean() < 0.1 * (signal**2).mean()


def test_too_few_frames_and_other_verdicts() -> None:
    X, Y, _ = planted(400, 400)
    film, empty = (a.reshape(-1, *SHAPE) for a in (X, Y))

    def kinds(stack: Any, background: Any) -> list[str]:
        result = suppress_background(stack, background, sampling="frames")
        assert np.isfinite(result.denoised).all()
        return [verdict.kind for verdict in result.verdicts]

    assert kinds(film, empty) == []
    assert kinds(film[:4], empty[:4])[-1] == "too few frames"
    assert kinds(empty, film)[0] == "layers probably swapped"
    assert kinds(empty[:200], empty[200:]) == ["nothing found", "too few frames"]


def test_stacks_that_cannot_be_are_refused() -> None:
    film = np.random.default_rng(0).normal(size=(9, 6, 8))
    for stack, empty, message in [
        (film, film[:, :5], "frames are of 5 x 8 pixels, the image's of 6 x 8; both need the same"),
        (film, film.transpose(0, 2, 1), "frames are of 8 x 6 pixels, the image's of 6 x 8"),
        (film[0], film, r"the image has shape \(6, 8\); frames need"),
        (film, np.ones(9, dtype=bool), "True everywhere"),
        (film, np.zeros(9, dtype=bool), "no frame of the background lies in the mask"),
        (film, np.ones((6, 8), dtype=bool) & (np.arange(8) > 2), r"needs a mask of shape \(9,\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            suppress_background(stack, empty, sampling="frames")
