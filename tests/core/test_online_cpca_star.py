"""Tests of online cPCA*: single steps, streams, convergence, and independence of the scale.

The paper is Golkar et al., arXiv:2211.07723.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
import scipy.sparse as sp

from contrast_core import ContrastWarning, CPCAStar, OnlineCPCAStar, SecondMoments
from contrast_core.datasets import load_mouse_protein
from contrast_core.linalg import principal_angles, subspace_error
from contrast_core.spectral import _online_steps
from contrast_core.spectral._online_checks import _improved
from contrast_core.spectral._online_rows import Scatter, standardise_running
from contrast_core.spectral._online_steps import OnlineState, StepSizes, advance

FEW_STEPS = pytest.mark.filterwarnings(
    "ignore:.* (steps are too few|not converged):contrast_core.ContrastWarning"
)


def alignment(one: Any, other: Any) -> float:
    """Return the mean squared cosine of the principal angles, which is 1 for equal subspaces."""
    return float(np.mean(np.cos(principal_angles(one.components_, other.components_)) ** 2))


def stream(n: int = 400, d: int = 8, seed: int = 0) -> tuple[Any, Any]:
    """Return uncentred rows of both datasets in random order, and a mask of the foreground."""
    rng = np.random.default_rng(seed)
    is_foreground = rng.random(n) < 0.6
    rows = rng.normal(size=(n, d))
    rows[is_foreground, :2] *= 3
    rows[:, 2] *= 4
    return rows + np.where(is_foreground[:, None], 2.0, -1.0), is_foreground


def paper_steps(W: Any, M: Any, rows: Any, flags: Any, sizes: StepSizes) -> tuple[Any, Any]:
    """Return the weights W and M after steps by equations 9-11 of the paper."""
    p = 0.5
    for t, (x, delta) in enumerate(zip(rows, flags, strict=True), start=1):
        eta = sizes.learning_rate / (1 + (t - 1) / sizes.decay_steps)
        c = W @ x
        z = delta * np.linalg.solve(M, c)
        p += ((1 - delta) - p) / t
        repel = 0.0 if delta else sizes.beta / p * c
        W = W + 2 * eta * np.outer(z - repel, x) - 2 * eta * (1 - sizes.beta) * W
        M = M + eta / sizes.tau * (np.outer(z, z) - M)
    return W, M


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    "sizes",
    [
        StepSizes(0.003, np.inf, 1.0, 0.5),
        StepSizes(0.02, 300.0, 0.5, 0.9),
        StepSizes(0.4999, np.inf, 50.0, 0.0),  # W shrinks by a factor of more than 1e6 in two steps
        StepSizes(0.01, np.inf, 1.0, 1.0),
    ],
)
def test_single_steps_agree_with_the_equations_of_the_paper(
    sizes: StepSizes, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr(_online_steps, "_steps", lambda: _online_steps._single_steps)
    n = 2500 if sizes.learning_rate < 0.1 else 100  # rounding errors grow with the larger steps
    rows, flags = stream(n)
    rows = (rows - rows.mean(axis=0)) / 4
    flags[0] = True
    W, M = np.random.default_rng(0).normal(size=(3, 8)), np.eye(3)
    state = advance(OnlineState(W, M, 0, 0, 0), rows, flags, sizes)
    expected_w, expected_m = paper_steps(W, M, rows, flags, sizes)
    np.testing.assert_allclose(state.feedforward, expected_w, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(state.lateral, expected_m, rtol=1e-9, atol=1e-12)
    assert (state.n_steps, state.n_seen, state.n_background) == (n, n, int((~flags).sum()))


def test_a_minibatch_step_averages_its_rows() -> None:
    rows, flags = stream(20)
    sizes = StepSizes(0.01, np.inf, 0.5, 0.7)
    W, M = np.random.default_rng(0).normal(size=(3, 8)), 2 * np.eye(3)
    state = advance(OnlineState(W, M, 0, 0, 0), rows, flags, sizes, batch_size=20)
    X, Y = rows[flags], rows[~flags]
    Z = np.linalg.solve(M, W @ X.T)
    # The paper divides by p, the share of background rows. In a single batch, this gives the mean
    # over the batch's background rows.
    b = 0.3 * np.eye(8) + 0.7 * Y.T @ Y / len(Y)
    np.testing.assert_allclose(state.feedforward, W + 0.02 * (Z @ X / 20 - W @ b))
    np.testing.assert_allclose(state.lateral, M + 0.02 * (Z @ Z.T / 20 - M))
    assert (state.n_steps, state.n_seen) == (1, 20)


@pytest.mark.parametrize(
    ("options", "bound"),
    [({}, 0.97), ({"learning_rate": 0.03, "batch_size": 32, "decay_steps": 100}, 0.999)],
)
def test_the_iteration_converges_to_the_batch_solution_on_mice(options: Any, bound: float) -> None:
    """Check the setting of the paper's Fig. 4 (beta 0.5, learning rate 0.003), and minibatches.

    The alignment after 60 passes is averaged over 3 seeds.
    """
    mice = load_mouse_protein()
    batch = CPCAStar(beta=0.5).fit(mice.foreground, background=mice.background)
    online = [
        OnlineCPCAStar(beta=0.5, n_passes=60, random_state=seed, **options).fit(
            mice.foreground, background=mice.background
        )
        for seed in range(3)
    ]
    assert np.mean([alignment(one, batch) for one in online]) >= bound
    assert not np.array_equal(online[0].components_, online[1].components_)
    np.testing.assert_allclose(online[0].mean_, batch.mean_, atol=1e-12)


def separated() -> tuple[Any, Any]:
    """Return a foreground with leading variances 36, 9 and 4, and a background with variance 1."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 12)) * [6, 3, 2, *np.ones(9)]
    return X, rng.normal(size=(400, 12))


def test_the_iteration_converges_if_leading_eigenvalues_are_far_apart() -> None:
    """Check the default tau; with the paper's value, tau = 1, the iteration does not converge."""
    X, Y = separated()
    batch = CPCAStar(2, beta=0.5).fit(X, background=Y)
    online = OnlineCPCAStar(2, beta=0.5, decay_steps=3000, n_passes=60)
    assert alignment(online.fit(X, background=Y), batch) > 0.999
    with pytest.warns(ContrastWarning, match="not converged after 48000 steps.*tau=0.5"):
        circling = online.set_params(tau=1.0).fit(X, background=Y)
    assert alignment(circling, batch) < 0.9
    with pytest.warns(ContrastWarning, match="steps are too few .*more n_passes, a smaller b"):
        OnlineCPCAStar(2, beta=0.5, learning_rate=1e-5, n_passes=1).fit(X, background=Y)


@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_eigenvalues_and_directions_have_the_scale_of_the_batch_solution(scale: float) -> None:
    X, Y = separated()
    batch = CPCAStar(2, beta=0.5).fit(X, background=scale * Y)
    online = OnlineCPCAStar(2, beta=0.5, decay_steps=3000, n_passes=60)
    online.fit(X, background=scale * Y)
    values, expected = online.generalized_eigenvalues_, batch.generalized_eigenvalues_
    np.testing.assert_allclose(values, expected, rtol=0.02)
    lengths, expected = (np.linalg.norm(each.directions_, axis=1) for each in (online, batch))
    np.testing.assert_allclose(lengths, expected, rtol=0.02)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_components_near_the_solution_are_improved(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, b = (rows @ rows.T / 60 for rows in rng.normal(size=(2, 30, 60)))
    x[:2, :2] += 6 * np.eye(2)
    exact = np.linalg.qr(scipy.linalg.eigh(x, b)[1][:, -2:])[0].T
    near = np.linalg.qr((exact + 0.1 * rng.normal(size=exact.shape)).T)[0].T
    better = _improved(near, lambda columns: (x @ columns, b @ columns)).T
    assert subspace_error(better, exact) < 0.1 * subspace_error(near, exact)


def test_ctrl_c_during_the_compiled_steps_raises_keyboard_interrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Check that a SystemError, which numba raises on Ctrl-C, becomes a KeyboardInterrupt."""

    def interrupted(*_: Any) -> None:
        raise SystemError("steps returned a result with an exception set")

    X, Y = separated()
    monkeypatch.setattr(_online_steps, "_steps", lambda: interrupted)
    with pytest.raises(KeyboardInterrupt):
        OnlineCPCAStar().fit(X, background=Y)


def test_the_sizes_of_the_parts_of_a_stream_do_not_matter() -> None:
    rows, flags = stream()
    # An offset of all rows does not change the iteration.
    whole = OnlineCPCAStar(3).partial_fit(rows - np.arange(8.0), flags)
    pieces = OnlineCPCAStar(3)
    for start, stop in [(0, 1), (1, 2), (2, 7), (7, 7), (7, 300), (300, 400)]:
        if start < stop:
            pieces.partial_fit(rows[start:stop], flags[start:stop])
    np.testing.assert_allclose(pieces.feedforward_weights_, whole.feedforward_weights_, atol=1e-12)
    np.testing.assert_allclose(pieces.lateral_weights_, whole.lateral_weights_, atol=1e-12)
    np.testing.assert_allclose(pieces.mean_, rows[flags].mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(pieces.background_mean_, rows[~flags].mean(axis=0), atol=1e-12)
    assert pieces.n_steps_ == whole.n_steps_ == 400


@pytest.mark.parametrize("first", [True, False])
def test_a_stream_may_begin_with_a_row_of_either_dataset(first: bool) -> None:
    """Check that the result is finite after rows of one dataset only.

    The paper divides by p, the share of background rows so far, which is 0 if all are foreground.
    """
    rows, flags = stream()
    order = np.argsort(flags != first, kind="stable")[:50]
    begun = OnlineCPCAStar().partial_fit(rows[order], flags[order])
    assert np.isfinite(begun.components_).all()
    assert np.isfinite(begun.transform(rows)).all()
    unseen = begun.background_mean_ if first else begun.mean_
    np.testing.assert_array_equal(unseen, 0)
    begun.partial_fit(rows, flags)
    assert np.isfinite(begun.components_).all()


def test_a_stream_continues_after_fit_and_after_pickling() -> None:
    rows, flags = stream()
    fitted = OnlineCPCAStar(n_passes=3).fit(rows[flags], background=rows[~flags])
    other = pickle.loads(pickle.dumps(fitted))
    before = fitted.n_steps_
    fitted.partial_fit(rows, flags)
    other.partial_fit(rows, flags)
    assert fitted.n_steps_ == before + 400
    np.testing.assert_array_equal(fitted.components_, other.components_)
    # The stream repeats the rows of the fit.
    np.testing.assert_allclose(fitted.mean_, rows[flags].mean(axis=0))


@pytest.mark.parametrize(
    ("options", "background_only"),
    [
        # The step size is small enough for steps of one row, but too large for this batch size.
        ({"learning_rate": 0.5, "batch_size": 400, "tau": 1.0}, False),
        ({"learning_rate": 0.02}, True),
    ],
)
def test_divergence_is_an_error_and_leaves_the_last_good_state(
    options: Any, background_only: bool
) -> None:
    rows, flags = stream()
    if background_only:
        flags = np.zeros_like(flags)
    else:
        rows[:, 0] *= 20
    online = OnlineCPCAStar(2, **options)
    with pytest.raises(ValueError, match=r"diverged or died out after step .* interleave"):
        for _ in range(1000):
            online.partial_fit(rows, flags)
    assert np.isfinite(online.components_).all()


def test_dataframes_and_sparse_rows_give_the_same_stream_as_arrays() -> None:
    rows, flags = stream()
    rows = np.where(np.abs(rows) < 1, 0.0, rows)
    plain = OnlineCPCAStar().partial_fit(rows, flags)
    sparse = OnlineCPCAStar().partial_fit(sp.csr_array(rows), flags)
    np.testing.assert_allclose(sparse.components_, plain.components_, atol=1e-10)
    names = list("abcdefgh")
    frame = pd.DataFrame(rows, columns=names)
    named = OnlineCPCAStar().partial_fit(frame[:200], flags[:200])
    named.partial_fit(frame[200:], flags[200:].astype(int))
    assert list(named.feature_names_in_) == names
    np.testing.assert_allclose(named.components_, plain.components_, atol=1e-10)
    with pytest.raises(ValueError, match="another order"):
        named.partial_fit(frame[names[::-1]], flags)


def test_bad_rows_are_refused_and_leave_the_state_unchanged() -> None:
    rows, flags = stream()
    online = OnlineCPCAStar().partial_fit(rows, flags)
    before = online.components_.copy()
    broken = rows.copy()
    broken[3, 4] = np.nan
    for X, kinds, message in [
        (rows[:, :5], flags, "the fitted data has 8 features but X has 5"),
        (broken, flags, r"X contains NaN or inf \(NaN first met in feature 4\)"),
        (rows, flags[:7], r"is_foreground has shape \(7,\); expected one label"),
        (rows, np.arange(400), "values other than True and False"),
        (rows, np.repeat("stim", 400), "values other than True and False"),
    ]:
        with pytest.raises(ValueError, match=message):
            online.partial_fit(X, kinds)
    np.testing.assert_array_equal(online.components_, before)
    with pytest.raises(ValueError, match="n_components=3, but the stream began with 2"):
        online.set_params(n_components=3).partial_fit(rows, flags)
    with pytest.raises(TypeError, match="rows are needed"):
        moments = SecondMoments.from_data(rows)
        OnlineCPCAStar().fit(moments, background=moments)


@FEW_STEPS
def test_one_feature_all_components_and_constant_features_are_valid() -> None:
    rows, flags = stream()
    X, Y = rows[flags], rows[~flags]
    one = OnlineCPCAStar(1, n_passes=2).fit(X[:, :1], background=Y[:, :1])
    np.testing.assert_allclose(one.components_, [[1.0]])
    full = OnlineCPCAStar(8, n_passes=2).fit(X, background=Y)
    np.testing.assert_allclose(full.components_ @ full.components_.T, np.eye(8), atol=1e-10)
    padded = OnlineCPCAStar(n_passes=60, decay_steps=2000).fit(
        np.hstack([X, np.full((len(X), 2), 0.1)]),
        background=np.hstack([Y, np.full((len(Y), 2), 5.0)]),
    )
    assert np.abs(padded.components_[:, 8:]).max() < 1e-4
    # The foreground varies along one direction only, but two components are fitted.
    line = OnlineCPCAStar(2, learning_rate=0.01, n_passes=200).fit(
        X[:, :1] * np.ones(8), background=Y
    )
    np.testing.assert_allclose(line.components_ @ line.components_.T, np.eye(2), atol=1e-10)
    # If the background is constant, cPCA* compares the foreground with noise that has the same
    # variance in all directions, so it is PCA.
    constant = np.full_like(Y, 0.1)
    batch = CPCAStar(beta=0.5).fit(X, background=constant)
    online = OnlineCPCAStar(beta=0.5, n_passes=60, decay_steps=3000).fit(X, background=constant)
    assert alignment(online, batch) > 0.99


CASES = [(0.5, 0.01), (0.5, 100.0), (0.0, 1e-140), (0.0, 1e140), (1.0, 1e-140), (1.0, 1e140)]


def same_contrast(beta: float, scale: float) -> float:
    """Return the beta that gives the same contrast after the data are multiplied by `scale`."""
    return beta / (beta + (1 - beta) * scale**2)


@pytest.mark.parametrize(("beta", "scale"), CASES)
@pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")
def test_scaling_both_datasets_does_not_change_the_steps(beta: float, scale: float) -> None:
    """Check that the steps do not change if the data and beta are rescaled together."""
    rows, flags = stream()
    for fit in (
        lambda b, c: OnlineCPCAStar(beta=b).fit(c * rows[flags], background=c * rows[~flags]),
        lambda b, c: OnlineCPCAStar(beta=b).partial_fit(c * rows, flags),
    ):
        plain, scaled = fit(beta, 1.0), fit(same_contrast(beta, scale), scale)
        np.testing.assert_allclose(scaled.components_, plain.components_, atol=1e-7)


def test_settings_that_cannot_converge_are_refused_with_advice() -> None:
    rows, flags = stream()
    X, Y = rows[flags], rows[~flags]
    mice = load_mouse_protein()
    fits: list[tuple[Any, Any, Any, str]] = [
        ({}, np.full_like(X, 0.1), Y, "X is constant"),
        ({"beta": 1}, X, np.full_like(Y, 0.1), "beta=1 divides by the background's variance"),
        ({}, 1e-170 * X, 1e-170 * Y, r"squares of X add up to .* bring"),
        ({}, 1e155 * X, 1e155 * Y, r"squares of X add up to .* bring"),
        (
            {"beta": 0.5, "learning_rate": 0.03},
            *(mice.foreground, mice.background),
            r"must stay below 1 .*Use learning_rate=0\.003 or less",
        ),
    ]
    for options, foreground, background, message in fits:
        with pytest.raises(ValueError, match=message):
            OnlineCPCAStar(**options).fit(foreground, background=background)
    with pytest.raises(ValueError, match=r"squares of X's foreground rows add up to .* bring"):
        OnlineCPCAStar().partial_fit(1e155 * rows, flags)
    together = np.vstack([mice.foreground, mice.background])
    order = np.random.default_rng(0).permutation(405)
    begun = OnlineCPCAStar(beta=0.5, learning_rate=0.03)
    with pytest.raises(ValueError, match="too large for these background rows"):
        begun.partial_fit(together[order], order < 270)
    assert not hasattr(begun, "components_")


def test_centring_by_running_means_adds_up_to_the_scatter_matrix() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 4)) * 3 + 1e6
    first, early, seen = standardise_running(rows[:20], Scatter.empty(4), "X")
    second, late, seen = standardise_running(rows[20:], seen, "X")
    variances = np.concatenate([early, late])
    centred = np.vstack([first, second]) * np.sqrt(variances)[:, None]
    np.testing.assert_allclose(centred.T @ centred, 50 * np.cov(rows.T, bias=True), rtol=1e-8)
    np.testing.assert_allclose(seen.mean, rows.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(seen.squares, (centred**2).sum())
    for t in (2, 10, 35, 50):
        np.testing.assert_allclose(variances[t - 1], rows[:t].var(axis=0).mean(), rtol=1e-8)


def test_the_iteration_recovers_after_a_late_background_row() -> None:
    """Check the limit on the weight of a background row.

    Without this limit, the first background row after t foreground rows would have the weight t.
    """
    mice = load_mouse_protein()
    batch = CPCAStar(beta=0.5).fit(mice.foreground, background=mice.background)
    online = OnlineCPCAStar(beta=0.5, decay_steps=3000)
    online.partial_fit(mice.foreground, np.ones(270, dtype=bool))
    rows = np.vstack([mice.foreground, mice.background])
    rng = np.random.default_rng(0)
    for _ in range(40):
        order = rng.permutation(405)
        online.partial_fit(rows[order], order < 270)
    assert alignment(online, batch) >= 0.99
