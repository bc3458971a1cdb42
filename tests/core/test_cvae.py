"""Tests of CVAE: scores, densities, data of every format, errors, and the interface."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.stats
from sklearn.utils.estimator_checks import parametrize_with_checks

from contrast_core import CVAE
from tests.core.estimators import ReversedBackground
from tests.core.kinds import KINDS
from tests.core.samples import D, counts, quick, ring

torch = pytest.importorskip("torch", reason="torch is not installed")

from contrast_core.deep._coding import Coder  # noqa: E402
from contrast_core.deep._likelihoods import NegativeBinomial  # noqa: E402
from contrast_core.deep._networks import ContrastiveNetworks, sizes_of  # noqa: E402
from contrast_core.deep._reading import BackgroundScale, normalised  # noqa: E402


@pytest.fixture(scope="module")
def ring_model() -> tuple[CVAE, Any]:
    """Return a fitted CVAE and its data: both datasets have a curve, the foreground has a ring."""
    data = ring()
    X, Y, *_ = data
    return CVAE(n_shared=3, max_iter=60, random_state=0).fit(X, background=Y), data


def test_the_salient_plane_shows_the_ring_and_not_the_curve(ring_model: Any) -> None:
    """Predict the position on the ring from the salient variables by linear regression."""
    model = ring_model[0]
    X, Y, turn, _ = ring(seed=1)
    scores = model.transform(X)
    design = np.column_stack([scores, np.ones(len(X))])
    circle = np.column_stack([np.cos(turn), np.sin(turn)])
    left = circle - design @ np.linalg.lstsq(design, circle)[0]
    assert (left**2).sum() / (circle**2).sum() < 0.15
    # The position on the curve, which both datasets share, explains hardly any of the scores.
    curve = np.column_stack([X[:, 0], np.ones(len(X))])
    explained = curve @ np.linalg.lstsq(curve, scores)[0]
    centred = scores - scores.mean(axis=0)
    assert ((explained - scores.mean(axis=0)) ** 2).sum() < 0.05 * (centred**2).sum()
    # Background rows are not on the ring, so their scores lie inside of it.
    radius = np.linalg.norm(centred, axis=1)
    inside = np.linalg.norm(model.transform(Y) - scores.mean(axis=0), axis=1)
    assert np.median(inside) < 0.5 * np.median(radius)
    assert model.transform_shared(X).shape == (800, 3)


def test_the_added_signal_is_recovered_from_new_rows(ring_model: Any) -> None:
    X, Y, _, clean = ring(seed=1)
    error = np.linalg.norm(ring_model[0].denoise(X) - clean) / np.linalg.norm(clean)
    assert error < 0.35
    assert np.linalg.norm(X - clean) / np.linalg.norm(clean) > 1.5
    assert (ring_model[0].denoise(Y) ** 2).mean() < 0.25 * (clean**2).mean()


def test_sampled_rows_are_distributed_like_the_fitted_data(ring_model: Any) -> None:
    model, (X, Y, *_) = ring_model
    drawn = {
        "X": (X, model.sample_foreground(4000, add_noise=True, random_state=0)),
        "Y": (Y, model.sample_background(4000, add_noise=True, random_state=0)),
    }
    for real, made in drawn.values():
        scale = real.std(axis=0).mean()
        np.testing.assert_allclose(made.mean(axis=0), real.mean(axis=0), atol=0.35 * scale)
        # The ranges of the central 80% are compared, because the curve contains squares of normal
        # variables. A decoder that is trained on few rows does not reach their tails.
        spreads = [np.ptp(np.quantile(rows, [0.1, 0.9], axis=0), axis=0) for rows in (made, real)]
        np.testing.assert_allclose(*spreads, rtol=0.3)
    alone = model.sample_foreground(500, denoised=True, random_state=0)
    assert alone[:, -2:].std() > 5 * alone[:, 0].std()  # the ring varies, the curve does not
    again = model.sample_foreground(500, denoised=True, random_state=0)
    np.testing.assert_array_equal(alone, again)
    noise = model.noise_variance_  # the rows of `ring` have noise of variance 0.04
    assert 0.5 * 0.04 < noise < 2.5 * 0.04


def test_the_bound_is_larger_for_the_dataset_to_which_the_rows_belong(ring_model: Any) -> None:
    model = ring_model[0]
    X, Y, *_ = ring(seed=1)
    assert model.score(X) > model.score(X, dataset="background") + 5
    assert model.score(Y, dataset="background") > model.score(X, dataset="background") + 5
    np.testing.assert_allclose(model.score_samples(X).mean(), model.score(X))


def test_counts_are_modelled_as_counts() -> None:
    X, Y = counts(n=600)
    model = quick(noise="counts", max_iter=30).fit(X, background=Y)
    assert model.score(X) > quick(noise="counts", max_iter=1).fit(X, background=Y).score(X)
    expected = model.denoise(X)
    np.testing.assert_allclose(expected.sum(axis=1), X.sum(axis=1), rtol=1e-5)
    # The last two features are shifted in the foreground, so their shares are larger there.
    shares = model.denoise(X).sum(axis=0) / X.sum()
    assert (shares[-2:] > model.rates_[-2:]).all()
    drawn = model.sample_background(2000, add_noise=True, random_state=0)
    assert (drawn == np.floor(drawn)).all() and drawn.min() == 0
    np.testing.assert_allclose(drawn.mean(axis=0), Y.mean(axis=0), rtol=0.35)
    assert model.noise_variance_.shape == (D,)


def test_gradients_flow_through_tensors() -> None:
    X, Y, *_ = ring(100, 100)
    model = quick(max_iter=1).fit(X, background=Y)
    rows = torch.tensor(X, requires_grad=True)
    model.denoise(rows).sum().backward()
    assert torch.isfinite(rows.grad).all() and rows.grad.abs().max() > 0
    # The weights of the fitted model do not require gradients.
    assert not model.transform(rows.detach()).requires_grad


class CheckedCVAE(ReversedBackground, CVAE):
    pass


@parametrize_with_checks([CheckedCVAE(1, max_iter=1, random_state=0)])
def test_the_estimator_passes_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_without_torch_the_error_says_what_to_install(monkeypatch: Any) -> None:
    monkeypatch.setattr("contrast_core.deep._cvae.find_spec", lambda name: None)
    X, Y, *_ = ring(30, 30)
    with pytest.raises(ImportError, match="pip install torch"):
        quick().fit(X, background=Y)


def linear(matrix: Any, offset: Any = 0.0) -> Any:
    layer = torch.nn.Linear(*np.shape(matrix)[::-1])
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(matrix))
        layer.bias.copy_(torch.tensor(np.broadcast_to(offset, np.shape(matrix)[0]).copy()))
    return layer


def test_the_bound_equals_the_density_if_the_posterior_is_exact() -> None:
    """Check a linear model whose encoders give the exact posterior.

    The model is x = unit (S z + W t + e) + mean, where z is a shared variable, t is a salient
    variable, and e is noise. The density of x is therefore normal. S and W are orthogonal.
    """
    S, W = np.array([[1.5, 0, 0, 0.5]]).T, np.array([[0, 2.0, 1.0, 0]]).T
    sd, unit, mean = 0.7, 2.5, np.array([1.0, -2.0, 0.0, 5.0])

    def exact(loading: Any) -> Any:
        variance = 1 / (1 + (loading.T @ loading).item() / sd**2)
        weights = np.vstack([variance * loading.T / sd**2, np.zeros((1, 4))])
        return linear(weights, [0.0, np.log(variance)])

    given = {
        "salient_encoder": exact(W),
        "shared_encoder": exact(S),
        "salient_decoder": linear(W),
        "shared_decoder": linear(S),
    }
    networks = ContrastiveNetworks(given, sizes_of(4, 1, 1), (), torch.Generator())
    torch.nn.init.constant_(networks.log_noise, np.log(sd))
    coder = Coder(networks, BackgroundScale(mean, unit), torch.device("cpu"))
    own = unit**2 * (S @ S.T + sd**2 * np.eye(4))
    for bound, covariance in (
        (coder.foreground_bounds, own + unit**2 * W @ W.T),
        (coder.background_bounds, own),
    ):
        density = scipy.stats.multivariate_normal(mean, covariance)
        rows = density.rvs(size=4000, random_state=0)
        difference = bound(rows)[:, 0] - density.logpdf(rows)
        # The bound contains an integral over the posterior. Its cubature rule is exact for linear
        # decoders, but log_noise has the precision of float32.
        np.testing.assert_allclose(difference, 0, atol=1e-5)
    # A wrong posterior lowers the bound by its Kullback-Leibler divergence from the exact one.
    torch.nn.init.constant_(networks.shared_encoder.bias, 0.3)
    assert (coder.background_bounds(rows)[:, 0] - density.logpdf(rows)).mean() < -0.05


def test_the_density_of_counts_is_negative_binomial_given_their_sum() -> None:
    rng = np.random.default_rng(0)
    rows = rng.poisson(rng.gamma(2, 3, size=(5, 7))).astype(np.float64)
    rows[0] = 0
    mean, rates = rng.normal(size=7), rng.dirichlet(np.ones(7))
    model = NegativeBinomial(mean, 1.7, rates, torch.device("cpu"))
    decoded, log_noise = rng.normal(size=(5, 7)), rng.normal(size=7)
    shares = rates * np.exp(decoded)
    expected = shares / shares.sum(axis=1, keepdims=True) * np.maximum(rows.sum(1), 1)[:, None]
    theta = np.exp(-2 * log_noise)
    reference = scipy.stats.nbinom.logpmf(rows, theta, theta / (theta + expected)).sum(axis=1)
    tensors = [torch.tensor(a, dtype=torch.float32) for a in (rows, decoded, log_noise)]
    np.testing.assert_allclose(model.log_density(*tensors), reference, rtol=2e-5)
    seen = (np.log1p(1e4 * rows / np.maximum(rows.sum(1), 1)[:, None]) - mean) / 1.7
    np.testing.assert_allclose(model.encoder_input(tensors[0]), seen, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(normalised(rows), seen * 1.7 + mean, atol=1e-12)
    np.testing.assert_allclose(normalised(sp.csr_matrix(rows)).toarray(), normalised(rows))


# Data of every format and scale


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
    # Streamed rows are used in another order, so the loss differs more. Rows of a backed CSC matrix
    # are not streamed.
    streamed = any(word in kind for word in ("HDF5", "zarr", "backed", "dask"))
    if streamed and kind != "backed CSC":
        np.testing.assert_allclose(model.held_out_loss_, dense.held_out_loss_, atol=0.5)
    else:
        np.testing.assert_allclose(model.held_out_loss_, dense.held_out_loss_, atol=1e-4)


def test_datasets_of_unequal_size_and_constant_features_are_accepted() -> None:
    X, Y, *_ = ring(500, 5)
    X, Y = (np.hstack([rows, np.ones((len(rows), 2))]) for rows in (X, Y))
    model = quick().fit(X, background=Y)
    np.testing.assert_allclose(model.sample_background(20, random_state=0)[:, -2:], 1, atol=0.9)


def test_invalid_data_are_refused() -> None:
    X, Y, *_ = ring(40, 40)
    bad = X.copy()
    bad[3, 2] = np.nan
    of_counts = quick(noise="counts")
    for model, x, y, match in [
        (of_counts, X, Y, r"X holds .*noise='counts' takes whole numbers from 0"),
        (of_counts, np.abs(np.round(X)), Y, "background holds"),
        (of_counts, sp.csr_matrix(-np.abs(np.round(X))), np.abs(np.round(Y)), "X holds -"),
        (quick(), bad, Y, "X contains NaN"),
        (quick(), X, bad, "background contains NaN"),
        (quick(), X, Y[:1], "background has n_samples=1"),
        (quick(), X, np.ones_like(Y), "background does not vary"),
        (quick(), X, [Y, Y], "2 backgrounds were given, but only one is allowed"),
        (quick(device="meta"), X, Y, "'meta' holds no values"),
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
