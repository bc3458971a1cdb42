"""Tests of the training loop: it descends, stops early, and keeps the best weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from contrast_core.deep._training import train  # noqa: E402

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
