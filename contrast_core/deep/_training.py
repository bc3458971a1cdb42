"""Stochastic gradient descent on minibatches: one loop for everything that torch fits here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from contrast_core._validation import FloatArray
from contrast_core.feedback import Progress, with_progress

Batch: TypeAlias = tuple[NDArray[Any], ...]
Loss: TypeAlias = Callable[[tuple[Tensor, ...], torch.Generator], Tensor]

_SMOOTHED = 3  # epochs whose mean held-out loss counts
_HELD_OUT_SEED = 0  # of the draws of every evaluation, so that epochs differ by the weights alone


class History(NamedTuple):
    """What a training went through.

    training, held_out : ndarrays of shape (n_epochs,)
        Mean loss of each epoch, while it went on, and of what is held out after it; NaN where
        nothing is.
    best : int
        After how many epochs the weights are those that were kept.
    ended : {"settled", "max_epochs", "not finite"}
        Why it ended: the held-out loss no longer fell, as many epochs as allowed, or a loss or
        weight that is no number. The weights are then the best before that.
    """

    training: FloatArray
    held_out: FloatArray
    best: int
    ended: Literal["settled", "max_epochs", "not finite"]


def train(
    module: nn.Module,
    loss: Loss,
    batches: Callable[[], Iterable[Batch]],
    held_out: Callable[[], Iterable[Batch]] | None = None,
    *,
    rng: np.random.Generator,
    max_epochs: int,
    patience: int,
    least_gain: float = 0.0,
    learning_rate: float = 1e-3,
    parameters: Any = None,
    device: torch.device | str = "cpu",
    mixed: bool = True,
    progress: Progress = False,
) -> History:
    """Fit the weights of a module by Adam; it ends in evaluation mode with the best ones.

    Parameters
    ----------
    module : torch.nn.Module
        Its weights are changed in place, on the device, where it stays.
    loss : callable
        From a minibatch, tensors on the device, and the generator of what is random, to the mean
        loss per row, a tensor that is a number.
    batches : callable
        Returns the minibatches of a pass over the data: tuples of ndarrays.
    held_out : callable, optional
        The same of what is held out, in the same minibatches each time. Without it there is no
        early end, and the weights are the last ones.
    rng : numpy.random.Generator
        Seeds what is random in `loss`; nothing global is seeded.
    max_epochs : int
        Passes over the data, at most.
    patience : int
        It ends once the held-out loss, the mean of three epochs, has not been lower for so many.
    least_gain : float, default=0
        By how much it must be lower for that to count.
    learning_rate : float, default=1e-3
        Of Adam.
    parameters : iterable, optional
        What torch's optimisers take, instead of all parameters at one rate.
    device : torch.device or str, default="cpu"
        Where to compute.
    mixed : bool, default=True
        On a CUDA device that has it, products in bfloat16.
    progress : bool or callable, default=False
        Show a bar of the epochs.

    Returns
    -------
    History

    Raises
    ------
    ValueError
        If the first epoch already has a loss that is no number.
    """
    device = torch.device(device)
    module.to(device)
    generator = torch.Generator(device).manual_seed(int(rng.integers(2**63)))
    adam = torch.optim.Adam(parameters or module.parameters(), lr=learning_rate, fused=True)
    half = mixed and device.type == "cuda" and torch.cuda.is_bf16_supported()
    training: list[float] = []
    evaluated: list[float] = []
    lowest, best, kept = np.inf, 0, _copied(module)
    ended: Literal["settled", "max_epochs", "not finite"] = "max_epochs"

    def losses(data: Iterable[Batch], draws: torch.Generator) -> Iterable[Tensor]:
        for batch in data:
            tensors = tuple(torch.from_numpy(part).to(device) for part in batch)
            with torch.autocast(device.type, torch.bfloat16, enabled=half):
                yield loss(tensors, draws)

    for epoch in with_progress(range(1, max_epochs + 1), max_epochs, "epochs", progress):
        module.train()
        total, n_batches = torch.zeros((), dtype=torch.float64, device=device), 0
        for value in losses(batches(), generator):
            adam.zero_grad(set_to_none=True)
            torch.autograd.backward(value)
            adam.step()
            total += value.detach()
            n_batches += 1
        training.append(float(total) / n_batches)
        module.eval()
        if held_out is not None:
            with torch.no_grad():
                draws = torch.Generator(device).manual_seed(_HELD_OUT_SEED)
                evaluated.append(float(np.mean([float(x) for x in losses(held_out(), draws)])))
        else:
            evaluated.append(np.nan)
        if not _is_finite(module, training[-1], 0.0 if held_out is None else evaluated[-1]):
            ended = "not finite"
            break
        smooth = -epoch if held_out is None else float(np.mean(evaluated[-_SMOOTHED:]))
        if smooth < lowest - least_gain:
            lowest, best, kept = smooth, epoch, _copied(module)
        elif epoch - best >= patience:
            ended = "settled"
            break
    module.load_state_dict(kept)
    module.eval()
    if not best:
        raise ValueError(
            "the loss is no number in the first epoch of the training: values are too large, or "
            f"the learning rate of {learning_rate:g} is. Rescale the data, or lower it."
        )
    return History(np.array(training), np.array(evaluated), best, ended)


def _copied(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def _is_finite(module: nn.Module, *values: float) -> bool:
    """Whether losses and weights are numbers: a last step may have spoilt the weights alone."""
    return bool(np.isfinite(values).all()) and all(
        bool(torch.isfinite(weights).all()) for weights in module.parameters()
    )
