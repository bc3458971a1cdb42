"""Tests of CVAE with networks that the user gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from contrast_core import load, save
from tests.core.cvae_samples import D, quick, ring

torch = pytest.importorskip("torch", reason="torch is not installed")


class Image(torch.nn.Module):
    """A small convolutional encoder of images with 6 x 6 pixels."""

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
        # The model trains copies, so the given networks do not change.
        assert (value == first[name]).all()
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
