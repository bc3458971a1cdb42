"""Tests of training a CVAE: seeds, warm starts, files, custom networks and the training loop."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from sklearn.base import clone

from contrast_core import ContrastWarning, load, save
from tests.core.samples import D, counts, quick, ring

torch = pytest.importorskip("torch", reason="torch is not installed")

from contrast_core.deep._training import train  # noqa: E402


@pytest.mark.parametrize("noise", ["normal", "counts"])
def test_the_same_seed_gives_the_same_numbers(noise: Any) -> None:
    X, Y = counts()
    before = X.copy(), torch.get_rng_state()
    numpy_state = np.random.get_state()[1].copy()  # noqa: NPY002
    one, two = (quick(noise=noise).fit(X, background=Y) for _ in range(2))
    np.testing.assert_array_equal(one.transform(X), two.transform(X))
    np.testing.assert_array_equal(one.held_out_loss_, two.held_out_loss_)
    other = quick(noise=noise, random_state=1).fit(X, background=Y)
    assert (other.transform(X) != one.transform(X)).any()
    np.testing.assert_array_equal(X, before[0])
    assert (torch.get_rng_state() == before[1]).all()
    assert (np.random.get_state()[1] == numpy_state).all()  # noqa: NPY002


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_a_loaded_model_continues_its_training_exactly(tmp_path: Path, share: float) -> None:
    """Check that a loaded model continues its training as if it had not been interrupted.

    The rows are few and the learning rate is high, so the best weights are not the last weights.
    Both the best and the last weights must be restored.
    """
    X, Y, *_ = ring(60, 40)
    torch.manual_seed(0)  # of the encoder's first weights, on which the best epoch depends
    encoder = torch.nn.Sequential(torch.nn.BatchNorm1d(D), torch.nn.Linear(D, 4))
    options: dict[str, Any] = {"learning_rate": 0.02, "validation_fraction": share}
    options["networks"] = {"salient_encoder": encoder}
    model = quick(**options, max_iter=6).fit(X, background=Y)
    assert not share or model.best_epoch_ < 6
    save(model, tmp_path / "part.model")
    # The file holds two moments of Adam, the best weights, and the last weights if these differ.
    size = sum(value.nbytes for value in model.weights_.values())
    assert (tmp_path / "part.model").stat().st_size < (4 if share else 3) * size + 20_000
    again = load(tmp_path / "part.model")
    again.set_params(networks=options["networks"], warm_start=True, max_iter=2)
    again.fit(X, background=Y)
    whole = quick(**options, max_iter=8).fit(X, background=Y)
    for name in ("training_loss_", "held_out_loss_", "best_epoch_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(whole, name))
    np.testing.assert_array_equal(again.transform(X), whole.transform(X))


def test_training_on_other_rows_keeps_the_weights_and_resets_adam() -> None:
    X, Y, *_ = ring(200, 200)
    x, y, *_ = ring(150, 150, seed=1)
    model = quick(max_iter=20).fit(X, background=Y)
    alone = quick(max_iter=2).fit(x, background=y)
    mean = model.mean_
    model.set_params(warm_start=True, max_iter=2).fit(x, background=y)
    assert len(model.held_out_loss_) == 22 and model.best_epoch_ > 20
    assert model.held_out_loss_[-1] < alone.held_out_loss_[-1] - 1
    np.testing.assert_array_equal(model.mean_, mean)
    assert model.training_state_["first"] == 20


def test_an_interrupted_training_leaves_the_model_as_it_was(monkeypatch: Any) -> None:
    X, Y, *_ = ring(100, 100)
    model, fresh = quick(warm_start=True).fit(X, background=Y), quick()
    before = vars(model).copy()
    monkeypatch.setattr(torch.optim.Adam, "step", Mock(side_effect=KeyboardInterrupt))
    for one in (model, fresh):
        with pytest.raises(KeyboardInterrupt):
            one.fit(X, background=Y)
    assert not hasattr(fresh, "weights_")
    assert all(vars(model)[name] is value for name, value in before.items())


def test_a_warm_start_needs_the_same_settings_and_features() -> None:
    X, Y, *_ = ring(60, 60)
    model = quick(max_iter=1, warm_start=True).fit(X, background=Y)
    scores = model.transform(X)
    with pytest.raises(ValueError, match=r"continues a fit with.*\(2, 8, 'normal'\)"):
        model.set_params(n_shared=3).fit(X, background=Y)
    with pytest.raises(ValueError, match="X has 11 features but the fit has 12"):
        model.set_params(n_shared=8).fit(X[:, 1:], background=Y[:, 1:])
    np.testing.assert_array_equal(model.transform(X), scores)


class Breaking(torch.nn.Module):
    """Decoder that returns NaN in every training pass after the first `n_good` passes."""

    def __init__(self, n_good: int) -> None:
        super().__init__()
        self.layer, self.left = torch.nn.Linear(2, D), n_good

    def forward(self, latent: Any) -> Any:
        self.left -= self.training
        return self.layer(latent) * (1.0 if self.left >= 0 else float("nan"))


def test_a_nan_loss_leaves_the_last_good_weights() -> None:
    X, Y, *_ = ring(100, 100)
    options = {"batch_size": 60, "validation_fraction": 0.0}  # three minibatches per epoch
    model = quick(networks={"salient_decoder": Breaking(7)}, max_iter=9, **options)
    with pytest.warns(ContrastWarning, match=r"infinite in epoch 3, so .* after epoch 2 are"):
        model.fit(X, background=Y)
    assert model.best_epoch_ == 2 and len(model.training_loss_) == 3
    assert np.isfinite(model.transform(X)).all()
    broken = quick(networks={"salient_decoder": Breaking(1)}, **options)
    with pytest.raises(ValueError, match="NaN or infinite in the first epoch"):
        broken.fit(X, background=Y)
    assert not hasattr(broken, "weights_")


@pytest.mark.parametrize(
    ("attribute", "key", "value", "match"),
    [
        ("weights_", "log_noise", np.float32(np.nan), "is damaged.*'log_noise' of its weights"),
        ("weights_", "log_noise", "0", "is damaged.*'log_noise' of its weights"),
        ("weights_", "other", np.zeros(3), "weights do not belong to the"),
        ("weights_", "shared_decoder.0.bias", np.zeros(3), "weights do not belong to the"),
        ("training_state_", "weights", {"log_noise": None}, "is damaged.*'log_noise'"),
        ("training_state_", "adam", {"log_noise": {"step": np.ones(1)}}, "cannot be continued"),
        ("training_state_", "adam", {"log_noise": 7}, "is damaged"),
        ("seed_", None, "x", "is damaged.*seed"),
        ("weights_", None, [1.0], "is damaged"),
    ],
)
def test_a_file_with_invalid_weights_is_refused(
    tmp_path: Path, attribute: str, key: Any, value: Any, match: str
) -> None:
    X, Y, *_ = ring(50, 50)
    model = quick(max_iter=1, warm_start=True).fit(X, background=Y)
    if isinstance(value, np.generic):
        value = np.array(value)
    setattr(model, attribute, value if key is None else getattr(model, attribute) | {key: value})
    save(model, tmp_path / "cvae.model")
    with pytest.raises(ValueError, match=rf"(?s){match}"):
        load(tmp_path / "cvae.model").fit(X, background=Y)


def image_encoder(n_out: int) -> torch.nn.Module:
    """Return a small convolutional encoder of images with 6 x 6 pixels."""
    convolution = torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU()
    last = torch.nn.Flatten(), torch.nn.Linear(144, n_out)
    return torch.nn.Sequential(torch.nn.Unflatten(1, (1, 6, 6)), *convolution, *last)


def test_custom_networks_are_trained_saved_and_loaded(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(120, 36))
    X = Y[::-1] + 3 * rng.normal(size=(120, 1)) * np.eye(36)[7]
    networks = {"salient_encoder": image_encoder(4), "shared_encoder": image_encoder(6)}
    first = copy.deepcopy(networks["salient_encoder"]).state_dict()
    model = quick(n_shared=3, networks=networks).fit(X, background=Y)
    for name, value in networks["salient_encoder"].state_dict().items():
        # The model trains copies, so the given networks do not change.
        assert (value == first[name]).all()
    assert not np.array_equal(model.weights_["salient_encoder.1.weight"], first["1.weight"])
    copied = clone(model)
    np.testing.assert_array_equal(copied.fit(X, background=Y).transform(X), model.transform(X))
    save(model, tmp_path / "own.model")
    again = load(tmp_path / "own.model")
    with pytest.raises(ValueError, match=r"give the same networks by set_params\(networks="):
        again.transform(X)
    again.set_params(networks={**networks, "shared_encoder": image_encoder(6)})
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    other = {**networks, "shared_encoder": torch.nn.Linear(36, 6)}
    with pytest.raises(ValueError, match="weights do not belong to the parameter networks"):
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
def test_networks_of_wrong_type_or_shape_are_refused(networks: Any, error: Any, match: str) -> None:
    X, Y, *_ = ring(30, 30)
    model = quick(networks=networks)
    with pytest.raises(error, match=match):
        model.fit(X, background=Y)
    assert not hasattr(model, "weights_")


# The training loop alone

SLOPE = np.array([2.0, -1.0, 0.5], dtype=np.float32)


class Regression:
    """A least-squares problem in minibatches, whose loss contains a small random number."""

    def __init__(self, n: int = 400, noise: float = 0.1) -> None:
        rng = np.random.default_rng(0)
        self.x = rng.normal(size=(n, 3)).astype(np.float32)
        self.y = self.x @ SLOPE + noise * rng.normal(size=n).astype(np.float32)
        self.module: Any = torch.nn.Linear(3, 1, bias=False)
        torch.nn.init.zeros_(self.module.weight)
        self.passes = 0

    def batches(self, rng: np.random.Generator) -> Iterator[Any]:
        self.passes += 1
        for rows in np.array_split(rng.permutation(300), 10):
            yield self.x[rows], self.y[rows]

    def held_out(self) -> Iterator[Any]:
        yield self.x[300:], self.y[300:]

    def loss(self, batch: Any, generator: Any) -> Any:
        x, y = batch
        noise = torch.randn(len(y), generator=generator, device=y.device)
        return ((self.module(x)[:, 0] - y + 0.01 * noise) ** 2).mean()

    def fit(self, held_out: bool = True, **options: Any) -> Any:
        given = {"max_epochs": 200, "patience": 5, "learning_rate": 0.01} | options
        held = self.held_out if held_out else None
        return train(self.module, self.loss, self.batches, held, seed=2, **given)


def weights(task: Regression) -> Any:
    return task.module.weight.detach().cpu().numpy()[0]


def test_training_finds_the_minimum_and_ends_if_the_held_out_loss_stops_falling() -> None:
    task = Regression()
    history = task.fit()
    expected = np.linalg.lstsq(task.x[:300], task.y[:300])[0]
    np.testing.assert_allclose(weights(task), expected, atol=0.02)
    assert history.ended == "settled"
    assert history.best + 5 == len(history.training) == len(history.held_out) == task.passes < 200
    assert not task.module.training


def test_the_weights_of_the_best_epoch_are_kept() -> None:
    task, seen = Regression(noise=2.0), []
    inner = task.held_out

    def held_out() -> Iterator[Any]:
        seen.append(weights(task).copy())
        return inner()

    task.held_out = held_out  # type: ignore[method-assign]
    history = task.fit(learning_rate=0.1)
    smooth = [history.held_out[max(0, i - 2) : i + 1].mean() for i in range(len(seen))]
    assert history.best == 1 + int(np.argmin(smooth)) < len(seen)
    np.testing.assert_array_equal(weights(task), seen[history.best - 1])
    left = task.x[300:] @ weights(task) - task.y[300:]
    assert history.held_out[history.best - 1] == pytest.approx(np.mean(left**2), rel=0.01)


def test_without_held_out_rows_the_last_weights_are_kept() -> None:
    task = Regression()
    bars: list[Any] = []

    def bar(items: Any, **options: Any) -> Any:
        bars.append(options)
        return items

    history = task.fit(held_out=False, max_epochs=7, progress=bar)
    assert bars == [{"total": 7, "desc": "epochs"}]
    assert (history.best, history.ended, task.passes) == (7, "max_epochs", 7)
    assert np.isnan(history.held_out).all()


def test_continued_training_resets_the_patience_of_early_stopping() -> None:
    task = Regression(noise=2.0)
    first = task.fit(learning_rate=0.1)
    again = task.fit(learning_rate=0.1, before=first)
    assert first.ended == "settled"
    assert again.ended == "settled" and len(again.training) >= len(first.training) + 5
    assert again.best >= first.best
