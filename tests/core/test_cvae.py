"""CVAE: its densities by hand, what it finds, generates and removes, and data of every kind."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.stats
import sklearn
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from contrast_core import CVAE, ContrastWarning, load, save
from contrast_core.rows import rows_of
from tests.core.test_rows import KINDS

torch = pytest.importorskip("torch", reason="torch is not installed")

from contrast_core.deep._coding import Coder  # noqa: E402
from contrast_core.deep._likelihoods import NegativeBinomial  # noqa: E402
from contrast_core.deep._networks import ContrastiveNetworks, sizes_of  # noqa: E402
from contrast_core.deep._reading import Measured, normalised  # noqa: E402

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
D = 12


def ring(n: int = 800, m: int = 600, seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """A circle in a plane of the foreground alone, behind a stronger curve that both have."""
    rng = np.random.default_rng(seed)

    def shared(size: int) -> Any:
        s = rng.normal(size=(size, 1))
        return np.hstack([4 * s, s**2, *(np.sin(s + i) for i in range(D - 2))])

    turn = rng.uniform(0, 2 * np.pi, n)
    clean = np.zeros((n, D))
    clean[:, -2:] = 3 * np.column_stack([np.cos(turn), np.sin(turn)])
    X = shared(n) + clean + 0.2 * rng.normal(size=(n, D))
    return X, shared(m) + 0.2 * rng.normal(size=(m, D)), turn, clean


def counts(seed: int = 0, n: int = 300) -> tuple[Any, Any]:
    X, Y, *_ = ring(n, n, seed)
    rng = np.random.default_rng(seed)
    return rng.poisson(np.exp(0.3 * X)), rng.poisson(np.exp(0.3 * Y))


def quick(**options: Any) -> CVAE:
    return CVAE(**({"max_epochs": 3, "random_state": 0} | options))


def linear(matrix: Any, offset: Any = 0.0) -> Any:
    layer = torch.nn.Linear(*np.shape(matrix)[::-1])
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(matrix))
        layer.bias.copy_(torch.tensor(np.broadcast_to(offset, np.shape(matrix)[0]).copy()))
    return layer


@pytest.fixture(scope="module")
def found() -> tuple[CVAE, Any]:
    data = ring()
    X, Y, *_ = data
    return CVAE(n_shared=3, max_epochs=60, random_state=0).fit(X, background=Y), data


def test_the_salient_plane_shows_the_ring_and_not_the_curve(found: Any) -> None:
    """Angle and radius by a linear fit of new rows' latent variables to cosine and sine."""
    model = found[0]
    X, Y, turn, _ = ring(seed=1)
    scores = model.transform(X)
    design = np.column_stack([scores, np.ones(len(X))])
    circle = np.column_stack([np.cos(turn), np.sin(turn)])
    left = circle - design @ np.linalg.lstsq(design, circle)[0]
    assert (left**2).sum() / (circle**2).sum() < 0.15
    curve = np.column_stack([X[:, 0], np.ones(len(X))])
    explained = curve @ np.linalg.lstsq(curve, scores)[0]
    assert ((explained - scores.mean(axis=0)) ** 2).sum() < 0.05 * (
        (scores - scores.mean(axis=0)) ** 2
    ).sum()
    # A background row lies where nothing is added: inside the ring.
    radius = np.linalg.norm(scores - scores.mean(axis=0), axis=1)
    inside = np.linalg.norm(model.transform(Y) - scores.mean(axis=0), axis=1)
    assert np.median(inside) < 0.5 * np.median(radius)
    assert model.transform_shared(X).shape == (800, 3)


def test_what_is_added_is_recovered_from_new_rows(found: Any) -> None:
    X, Y, _, clean = ring(seed=1)
    error = np.linalg.norm(found[0].denoise(X) - clean) / np.linalg.norm(clean)
    assert error < 0.35
    assert np.linalg.norm(X - clean) / np.linalg.norm(clean) > 1.5
    assert np.linalg.norm(found[0].denoise(Y)) / np.sqrt(len(Y)) < 0.5 * np.linalg.norm(
        clean
    ) / np.sqrt(len(X))


def test_rows_drawn_are_like_those_of_the_fit(found: Any) -> None:
    model, (X, Y, *_) = found
    drawn = {
        "X": (X, model.sample_foreground(4000, noise=True, random_state=0)),
        "Y": (Y, model.sample_background(4000, noise=True, random_state=0)),
    }
    for real, made in drawn.values():
        scale = real.std(axis=0).mean()
        np.testing.assert_allclose(made.mean(axis=0), real.mean(axis=0), atol=0.35 * scale)
        np.testing.assert_allclose(made.std(axis=0), real.std(axis=0), rtol=0.3)
    alone = model.sample_foreground(500, denoised=True, random_state=0)
    assert alone[:, -2:].std() > 5 * alone[:, 0].std()  # the ring varies, the curve does not
    again = model.sample_foreground(500, denoised=True, random_state=0)
    np.testing.assert_array_equal(alone, again)
    noise = model.noise_variance_
    assert 0.5 * 0.04 < noise < 2.5 * 0.04


def test_bounds_tell_the_datasets_apart(found: Any) -> None:
    model = found[0]
    X, Y, *_ = ring(seed=1)
    assert model.score(X) > model.score(X, dataset="background") + 5
    assert model.score(Y, dataset="background") > model.score(X, dataset="background") + 5
    np.testing.assert_allclose(model.score_samples(X).mean(), model.score(X))


def test_the_bound_is_the_density_where_the_posterior_is_exact() -> None:
    """Straight lines with orthogonal loadings: the posterior of the encoders is that of the model.

    x = unit (S z + W t + e) + mean, with S and W at right angles: the marginal is normal.
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
    coder = Coder(networks, Measured(mean, unit), torch.device("cpu"))
    own = unit**2 * (S @ S.T + sd**2 * np.eye(4))
    for bounds, covariance in (
        (coder.foreground_bounds, own + unit**2 * W @ W.T),
        (coder.background_bounds, own),
    ):
        density = scipy.stats.multivariate_normal(mean, covariance)
        rows = density.rvs(size=4000, random_state=0)
        difference = bounds(rows)[:, 0] - density.logpdf(rows)
        # The cubature is exact for what straight lines give; log_noise is a float32.
        np.testing.assert_allclose(difference, 0, atol=1e-5)
    # A posterior that is wrong is paid for by its divergence from the right one.
    torch.nn.init.constant_(networks.shared_encoder.bias, 0.3)
    assert (coder.background_bounds(rows)[:, 0] - density.logpdf(rows)).mean() < -0.05


def test_counts_have_the_negative_binomial_of_their_sum() -> None:
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
    np.testing.assert_allclose(model.seen(tensors[0]), seen, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(normalised(rows), seen * 1.7 + mean, atol=1e-12)
    np.testing.assert_allclose(normalised(sp.csr_matrix(rows)).toarray(), normalised(rows))


def test_counts_are_modelled_as_counts() -> None:
    X, Y = counts(n=600)
    model = quick(likelihood="negative_binomial", max_epochs=30).fit(X, background=Y)
    assert model.score(X) > quick(likelihood="negative_binomial", max_epochs=1).fit(
        X, background=Y
    ).score(X)
    expected = model.denoise(X)
    np.testing.assert_allclose(expected.sum(axis=1), X.sum(axis=1), rtol=1e-5)
    # The shift of the last two features is in what is added, on top of the background's shares.
    shares = model.denoise(X).sum(axis=0) / X.sum()
    assert (shares[-2:] > model.rates_[-2:]).all()
    drawn = model.sample_background(2000, noise=True, random_state=0)
    assert (drawn == np.floor(drawn)).all() and drawn.min() == 0
    np.testing.assert_allclose(drawn.mean(axis=0), Y.mean(axis=0), rtol=0.35)
    assert model.noise_variance_.shape == (D,)


@pytest.mark.parametrize("likelihood", ["gaussian", "negative_binomial"])
def test_same_seed_same_numbers(likelihood: Any) -> None:
    X, Y = counts()
    before = X.copy(), torch.get_rng_state()
    one, two = (quick(likelihood=likelihood).fit(X, background=Y) for _ in range(2))
    np.testing.assert_array_equal(one.transform(X), two.transform(X))
    np.testing.assert_array_equal(one.held_out_loss_, two.held_out_loss_)
    other = quick(likelihood=likelihood, random_state=1).fit(X, background=Y)
    assert (other.transform(X) != one.transform(X)).any()
    np.testing.assert_array_equal(X, before[0])
    assert (torch.get_rng_state() == before[1]).all()


def test_units_and_origin_change_nothing() -> None:
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
def test_data_of_every_kind(kind: str, tmp_path: Path) -> None:
    X, Y = (values.astype(np.float32)[:230, :11] for values in counts())
    (tmp_path / "X").mkdir(), (tmp_path / "Y").mkdir()
    given = KINDS[kind](X, tmp_path / "X"), KINDS[kind](Y, tmp_path / "Y")
    model = quick(likelihood="negative_binomial", max_epochs=2)
    model.fit(given[0], background=given[1])
    dense = quick(likelihood="negative_binomial", max_epochs=2).fit(X, background=Y)
    scores = model.transform(given[0])
    scores = scores.detach().numpy() if torch.is_tensor(scores) else np.asarray(scores)
    array = X if kind != "data frame" else given[0]
    np.testing.assert_allclose(scores, model.transform(array), atol=1e-5)
    # Rows that are streamed come in another order; all else is the same.
    streamed = any(word in kind for word in ("HDF5", "zarr", "backed", "dask"))
    if streamed and kind != "backed CSC":
        np.testing.assert_allclose(model.held_out_loss_, dense.held_out_loss_, atol=0.5)
    else:
        np.testing.assert_allclose(model.held_out_loss_, dense.held_out_loss_, atol=1e-4)


def test_gradients_flow_through_tensors() -> None:
    X, Y, *_ = ring(100, 100)
    model = quick(max_epochs=1).fit(X, background=Y)
    rows = torch.tensor(X, requires_grad=True)
    model.denoise(rows).sum().backward()
    assert torch.isfinite(rows.grad).all() and rows.grad.abs().max() > 0


class Image(torch.nn.Module):
    """A small convolutional encoder of 6 x 6 images."""

    def __init__(self, n_out: int) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Unflatten(1, (1, 6, 6)),
            torch.nn.Conv2d(1, 4, 3, padding=1),
            torch.nn.BatchNorm2d(4),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(144, n_out),
        )

    def forward(self, rows: Any) -> Any:
        return self.layers(rows)


def test_networks_of_ones_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(120, 36))
    X = Y[::-1] + 3 * rng.normal(size=(120, 1)) * np.eye(36)[7]
    networks = {"salient_encoder": Image(4), "shared_encoder": Image(6)}
    first = {
        name: value.clone() for name, value in networks["salient_encoder"].state_dict().items()
    }
    model = quick(n_shared=3, networks=networks).fit(X, background=Y)
    for name, value in networks["salient_encoder"].state_dict().items():
        assert (value == first[name]).all()  # they are copied, and stay as they were
    assert not np.array_equal(
        model.weights_["salient_encoder.layers.1.weight"], first["layers.1.weight"]
    )
    copied = clone(model)
    np.testing.assert_array_equal(copied.fit(X, background=Y).transform(X), model.transform(X))
    save(model, tmp_path / "own.model")
    again = load(tmp_path / "own.model")
    with pytest.raises(ValueError, match=r"give the same networks by set_params\(networks="):
        again.transform(X)
    again.set_params(networks={**networks, "shared_encoder": Image(6)})
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    other = {**networks, "shared_encoder": torch.nn.Linear(36, 6)}
    with pytest.raises(ValueError, match="weights are of other networks"):
        again.set_params(networks=other).transform(X)


@pytest.mark.parametrize(
    ("networks", "error", "match"),
    [
        ({"salient_encoder": torch.nn.Linear(D, 2)}, ValueError, r"shape \(2, 2\).*\(2, 4\)"),
        (
            {"shared_decoder": torch.nn.Linear(7, D)},
            ValueError,
            r"fails with RuntimeError.*\(2, 8\)",
        ),
        ({"salient_decoder": torch.nn.GRU(2, D)}, ValueError, "returns tuple"),
        ({"decoder": torch.nn.Linear(2, D)}, ValueError, "expected some of 'salient_encoder'"),
        ({"salient_decoder": np.tanh}, TypeError, "expected a torch.nn.Module"),
        (torch.nn.Linear(D, 4), TypeError, "expected a dict"),
    ],
)
def test_networks_that_do_not_fit_are_refused(networks: Any, error: Any, match: str) -> None:
    X, Y, *_ = ring(30, 30)
    model = quick(networks=networks)
    with pytest.raises(error, match=match):
        model.fit(X, background=Y)
    assert not hasattr(model, "weights_")


def test_a_saved_model_goes_on_in_another_process(tmp_path: Path) -> None:
    X, Y, *_ = ring(200, 200)
    model = quick(n_shared=2).fit(X, background=Y)
    np.savez(tmp_path / "data.npz", X=X, Y=Y)
    save(model, tmp_path / "cvae.model")
    code = f"""
import numpy as np
from contrast_core import load
data = np.load({str(tmp_path / "data.npz")!r})
model = load({str(tmp_path / "cvae.model")!r})
first = model.transform(data["X"])
model.set_params(warm_start=True, max_epochs=4).fit(data["X"], background=data["Y"])
np.savez({str(tmp_path / "out.npz")!r}, first=first, then=model.transform(data["X"]),
         losses=model.training_loss_, best=model.best_epoch_)
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
    done = np.load(tmp_path / "out.npz")
    np.testing.assert_array_equal(done["first"], model.transform(X))
    np.testing.assert_array_equal(done["losses"][:3], model.training_loss_)
    assert len(done["losses"]) == 7 and done["best"] > 3
    assert done["losses"][3] < model.training_loss_[0]  # it did not begin anew
    here = model.set_params(warm_start=True, max_epochs=4).fit(X, background=Y)
    np.testing.assert_array_equal(here.transform(X), done["then"])


def test_a_file_of_torch_is_refused(tmp_path: Path) -> None:
    X, Y, *_ = ring(50, 50)
    model = quick(max_epochs=1).fit(X, background=Y)
    torch.save(model.weights_, tmp_path / "weights.pt")
    with pytest.raises(ValueError, match="not a model file"):
        load(tmp_path / "weights.pt")


def test_a_warm_start_needs_the_same_model() -> None:
    X, Y, *_ = ring(60, 60)
    model = quick(max_epochs=1, warm_start=True).fit(X, background=Y)
    scores = model.transform(X)
    with pytest.raises(ValueError, match=r"goes on from a fit with.*\(2, 8, 'gaussian'\)"):
        model.set_params(n_shared=3).fit(X, background=Y)
    with pytest.raises(ValueError, match="features"):
        model.set_params(n_shared=8).fit(X[:, 1:], background=Y[:, 1:])
    np.testing.assert_array_equal(model.transform(X), scores)


def test_pickle_clone_and_names() -> None:
    X, Y, *_ = ring(60, 60)
    model = quick(max_epochs=1, n_salient=3).fit(X, background=Y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    assert list(model.get_feature_names_out()) == ["cvae0", "cvae1", "cvae2"]
    assert clone(model).get_params() == model.get_params()
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), quick(), transform_input=["background"])
        scores = pipeline.fit_transform(X, background=Y)
    scaler = StandardScaler().fit(X)
    by_hand = quick().fit(scaler.transform(X), background=scaler.transform(Y))
    np.testing.assert_allclose(scores, by_hand.transform(scaler.transform(X)), atol=1e-6)


class WithBackground(CVAE):
    """For scikit-learn's own checks, which know no background: shrunken, reversed rows of X."""

    def fit(self, X: Any, y: object = None, *, background: Any = None) -> Any:
        return super().fit(X, background=rows_of(X).load(check=False)[::-1] * 0.5)

    def fit_transform(self, X: Any, y: object = None) -> Any:
        return self.fit(X).transform(X)


@parametrize_with_checks([WithBackground(1, max_epochs=1, random_state=0)])
def test_scikit_learn_contract(estimator: Any, check: Any) -> None:
    check(estimator)


class Breaking(torch.nn.Module):
    """A decoder that returns NaN from some training pass on."""

    def __init__(self, n_good: int) -> None:
        super().__init__()
        self.layer, self.left = torch.nn.Linear(2, D), n_good

    def forward(self, latent: Any) -> Any:
        self.left -= self.training
        return self.layer(latent) * (1.0 if self.left >= 0 else float("nan"))


def test_a_loss_that_is_no_number_leaves_the_last_good_weights() -> None:
    X, Y, *_ = ring(100, 100)
    options = {"batch_size": 60, "validation_fraction": 0.0}  # three minibatches an epoch
    model = quick(networks={"salient_decoder": Breaking(7)}, max_epochs=9, **options)
    with pytest.warns(ContrastWarning, match=r"no number in epoch 3; .* those after epoch 2"):
        model.fit(X, background=Y)
    assert model.best_epoch_ == 2 and len(model.training_loss_) == 3
    assert np.isfinite(model.transform(X)).all()
    broken = quick(networks={"salient_decoder": Breaking(1)}, **options)
    with pytest.raises(ValueError, match="no number in the first epoch"):
        broken.fit(X, background=Y)
    assert not hasattr(broken, "weights_")


def test_what_is_refused() -> None:
    X, Y, *_ = ring(40, 40)
    bad = X.copy()
    bad[3, 2] = np.nan
    gauss = quick(likelihood="negative_binomial")
    for model, x, y, match in [
        (gauss, X, Y, r"X holds .*counts: whole numbers from 0"),
        (gauss, np.abs(np.round(X)), Y, "background holds"),
        (gauss, sp.csr_matrix(-np.abs(np.round(X))), np.abs(np.round(Y)), "X holds -"),
        (quick(), X, Y[:, 1:], "background has 11 features but X has 12"),
        (quick(), bad, Y, "X contains NaN"),
        (quick(), X, bad, "background contains NaN"),
        (quick(), X[:1], Y, "n_samples=1"),
        (quick(), X, Y[:1], "background has n_samples=1"),
        (quick(), X, np.ones_like(Y), "background does not vary"),
        (quick(n_salient=0), X, Y, "n_salient=0"),
        (quick(n_shared=0), X, Y, "n_shared=0"),
        (quick(likelihood="poisson"), X, Y, "likelihood='poisson' is unknown"),
        (quick(validation_fraction=0.7), X, Y, "validation_fraction=0.7"),
        (quick(max_epochs=0), X, Y, "max_epochs=0"),
        (quick(learning_rate=0.0), X, Y, "learning_rate=0"),
    ]:
        with pytest.raises(ValueError, match=match):
            model.fit(x, background=y)
        assert not hasattr(model, "weights_")
    fitted = quick(max_epochs=1).fit(X, background=Y)
    with pytest.raises(ValueError, match="NaN"):
        fitted.transform(bad)
    with pytest.raises(ValueError, match="dataset='both' is unknown"):
        fitted.score(X, dataset="both")
    with pytest.raises(ValueError, match="features"):
        fitted.transform(X[:, 1:])


@pytest.mark.parametrize("n", [2, 3])
def test_few_rows_will_do(n: int) -> None:
    X, Y, *_ = ring(n, n)
    assert np.isfinite(quick().fit(X, background=Y).transform(X)).all()


def test_uneven_datasets_and_constant_features_will_do() -> None:
    X, Y, *_ = ring(500, 5)
    X, Y = (np.hstack([rows, np.ones((len(rows), 2))]) for rows in (X, Y))
    model = quick().fit(X, background=Y)
    np.testing.assert_allclose(model.sample_background(20, random_state=0)[:, -2:], 1, atol=0.9)
    read_only = X.copy()
    read_only.flags.writeable = False
    np.testing.assert_allclose(
        model.transform(read_only), model.transform(np.asfortranarray(X)), atol=1e-12
    )


def test_without_torch_it_says_what_to_install(monkeypatch: Any) -> None:
    monkeypatch.setattr("contrast_core.deep._cvae.find_spec", lambda name: None)
    X, Y, *_ = ring(30, 30)
    with pytest.raises(ImportError, match=r"contrast-suite\[torch\]"):
        quick().fit(X, background=Y)


@needs_cuda
def test_on_a_gpu_the_same_is_found() -> None:
    X, Y, turn, _ = ring()
    model = CVAE(n_shared=3, max_epochs=60, random_state=0, device="cuda").fit(X, background=Y)
    scores = np.column_stack([model.transform(X), np.ones(len(X))])
    circle = np.column_stack([np.cos(turn), np.sin(turn)])
    left = circle - scores @ np.linalg.lstsq(scores, circle)[0]
    assert (left**2).sum() / (circle**2).sum() < 0.15
    assert model.transform(torch.tensor(X, device="cuda")).device.type == "cuda"
