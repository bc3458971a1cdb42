"""Training of a contrastive variational autoencoder on two datasets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from contrast_core.deep._coding import row_model
from contrast_core.deep._networks import ContrastiveNetworks
from contrast_core.deep._objective import bounds
from contrast_core.deep._reading import BackgroundScale, joint_minibatches, split
from contrast_core.deep._training import History, train
from contrast_core.feedback import Progress
from contrast_core.rows import Rows

_STEPS = 4000  # number of minibatches that the default number of epochs gives
_EPOCHS = 20, 400  # limits of the default number of epochs
_LARGER = 4  # minibatches of held-out rows need no gradients, so they are larger by this factor


def fit_networks(
    networks: ContrastiveNetworks,
    foreground: Rows,
    background: Rows,
    scale: BackgroundScale,
    *,
    batch_size: int,
    learning_rate: float,
    held_out_share: float,
    max_epochs: int | None,
    seed: int,
    device: torch.device,
    progress: Progress,
    before: History | None,
) -> History:
    """Train the networks to maximise the mean evidence lower bound of the rows of both datasets.

    If `max_epochs` is None, the largest number of passes is chosen to give 4000 minibatches, but at
    least 20 and at most 400 passes.
    """
    rng = np.random.default_rng(seed)
    (x, out_x), (y, out_y) = (split(z, held_out_share, rng) for z in (foreground, background))
    steps = _n_batches(x, y, batch_size)
    most = max_epochs or int(np.clip(_STEPS // steps, *_EPOCHS))
    n_before = 0 if before is None else len(before.training)
    model = row_model(scale, device)

    def held_out() -> Iterator[Any]:
        n_batches = _n_batches(out_x, out_y, _LARGER * batch_size)
        generator = np.random.default_rng(0)
        return joint_minibatches(out_x, out_y, n_batches, generator, scale.minibatch_options)

    def loss(batch: tuple[torch.Tensor, ...], draws: torch.Generator) -> torch.Tensor:
        x_batch, y_batch = batch
        sizes = zip((len(x_batch), len(x_batch) + len(y_batch)), networks.n_latent, strict=True)
        t, z = (torch.randn(size, generator=draws, device=device) for size in sizes)
        return -bounds(networks, model, x_batch, y_batch, (t, z)).mean()

    return train(
        networks,
        loss,
        lambda rng: joint_minibatches(x, y, steps, rng, scale.minibatch_options),
        held_out if held_out_share else None,
        seed=seed,
        max_epochs=most,
        patience=max(5, (n_before + most) // 10),
        before=before,
        learning_rate=learning_rate,
        parameters=networks.groups(learning_rate),
        device=device,
        progress=progress,
    )


def _n_batches(x: Rows, y: Rows, batch_size: int) -> int:
    """Return the number of minibatches, each with at least one row of both datasets."""
    n, m = x.shape[0], y.shape[0]
    return max(1, min(n, m, round((n + m) / batch_size)))
