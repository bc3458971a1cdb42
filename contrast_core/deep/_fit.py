"""Training of a contrastive variational autoencoder on two datasets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from contrast_core.deep._coding import row_model
from contrast_core.deep._networks import ContrastiveNetworks
from contrast_core.deep._objective import bounds
from contrast_core.deep._reading import Measured, passes, split
from contrast_core.deep._training import History, train
from contrast_core.feedback import Progress
from contrast_core.rows import Rows

_STEPS = 4000  # minibatches, where the number of epochs is left open
_EPOCHS = 20, 400  # and then at least and at most
_LARGER = 4  # times the rows of a minibatch, where no gradients are needed


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the training; `held_out` is a share of the rows."""

    batch_size: int
    learning_rate: float
    held_out: float
    max_epochs: int | None


def fit_networks(
    networks: ContrastiveNetworks,
    foreground: Rows,
    background: Rows,
    scale: Measured,
    settings: Settings,
    seed: int,
    device: torch.device,
    progress: Progress,
    before: History | None,
) -> History:
    """Maximise the evidence lower bound, as the mean over the rows of both datasets."""
    rng = np.random.default_rng(seed)
    (x, out_x), (y, out_y) = (split(z, settings.held_out, rng) for z in (foreground, background))
    steps = _n_batches(x, y, settings.batch_size)
    max_epochs = settings.max_epochs or int(np.clip(_STEPS // steps, *_EPOCHS))
    n_before = 0 if before is None else len(before.training)
    model = row_model(scale, device)

    def held_out() -> Iterator[Any]:
        n_batches = _n_batches(out_x, out_y, _LARGER * settings.batch_size)
        return passes(out_x, out_y, n_batches, np.random.default_rng(0), scale.of_minibatches)

    def loss(batch: tuple[torch.Tensor, ...], draws: torch.Generator) -> torch.Tensor:
        x_batch, y_batch = batch
        sizes = zip((len(x_batch), len(x_batch) + len(y_batch)), networks.n_latent, strict=True)
        t, z = (torch.randn(size, generator=draws, device=device) for size in sizes)
        return -bounds(networks, model, x_batch, y_batch, (t, z)).mean()

    return train(
        networks,
        loss,
        lambda rng: passes(x, y, steps, rng, scale.of_minibatches),
        held_out if settings.held_out else None,
        seed=seed,
        max_epochs=max_epochs,
        patience=max(5, (n_before + max_epochs) // 10),
        before=before,
        learning_rate=settings.learning_rate,
        parameters=networks.groups(settings.learning_rate),
        device=device,
        progress=progress,
    )


def _n_batches(x: Rows, y: Rows, batch_size: int) -> int:
    """Return the number of minibatches, each with at least one row of both datasets."""
    n, m = x.shape[0], y.shape[0]
    return max(1, min(n, m, round((n + m) / batch_size)))
