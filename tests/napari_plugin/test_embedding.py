"""Frames as points in the plane, without a window."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from napari_plugin import _model
from napari_plugin._model import Outcome, Task, embed_frames
from napari_plugin._pair import Images, Pair
from napari_plugin._settings import Settings
from tests.napari_plugin.plain import finish


@pytest.mark.parametrize("n", [4999, 5000, 5001, 10_001])
def test_of_many_frames_evenly_spread_ones_are_drawn(n: int, monkeypatch) -> None:
    monkeypatch.setattr(_model, "ELEMENTS", 7 * 6)  # blocks of seven frames of six pixels
    stack = np.random.default_rng(0).normal(size=(n, 3, 2))
    rows = stack.reshape(n, 6)
    estimator = SimpleNamespace(mean_=rows.mean(axis=0), components_=np.eye(3, 6))
    pair = Pair(Images("film", stack), Images("film", stack))
    task = Task(pair, None, Settings(), (0,), 2**30)
    solution = SimpleNamespace(estimator=estimator)
    found, _ = finish(embed_frames(Outcome(task, solution, stack, None, (0.0, 1.0), None)))
    drawn = np.arange(0, n, -(-n // 5000))
    assert len(drawn) <= 5000
    np.testing.assert_array_equal(np.ravel(found.places), drawn)
    np.testing.assert_allclose(found.scores, (rows - rows.mean(axis=0))[drawn, :2])
