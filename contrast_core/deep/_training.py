"""Stochastic gradient descent on minibatches: the training loop of all models that use torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from contrast_core._validation import FloatArray
from contrast_core.feedback import Progress, with_progress

Arrays: TypeAlias = dict[str, NDArray[Any]]
Batch: TypeAlias = tuple[NDArray[Any], ...]
Loss: TypeAlias = Callable[[tuple[Tensor, ...], torch.Generator], Tensor]

_SMOOTHED = 3  # number of epochs over which the held-out loss is averaged
_SAME_LOSS = 1e-4  # relative tolerance for equal losses, because processors round differently
_HELD_OUT_SEED = 0  # seed of every evaluation, so that epochs differ only by the weights


class State(NamedTuple):
    """State from which a training continues as if it had not been interrupted.

    weights : dict of ndarrays
        Weights of the last epoch, which need not be the best ones.
    adam : dict of dicts of ndarrays
        State of Adam for each weight: running means of the gradient and of its square, and the
        number of steps.
    lowest : float
        Lowest held-out loss so far, averaged over three epochs.
    first : int
        Number of earlier epochs on other data, whose losses cannot be compared.
    """

    weights: Arrays
    adam: dict[str, Arrays]
    lowest: float
    first: int


class History(NamedTuple):
    """Losses of a training, including the epochs of the training that it continued.

    training, held_out : ndarrays of shape (n_epochs,)
        Mean loss of the training rows during each epoch, and mean loss of the held-out rows after
        each epoch (NaN if no rows are held out).
    best : int
        Epoch whose weights were kept.
    ended : {"settled", "max_epochs", "not finite"}
        Why the training ended: the held-out loss no longer fell, `max_epochs` was reached, or a
        loss or a weight was NaN or infinite. In the last case the best earlier weights are kept.
    state : State or None
        State after the last epoch, or None if the training diverged.
    """

    training: FloatArray
    held_out: FloatArray
    best: int
    ended: Literal["settled", "max_epochs", "not finite"]
    state: State | None


def train(
    module: nn.Module,
    loss: Loss,
    batches: Callable[[np.random.Generator], Iterable[Batch]],
    held_out: Callable[[], Iterable[Batch]] | None = None,
    *,
    seed: int,
    max_epochs: int,
    patience: int,
    before: History | None = None,
    least_gain: float = 0.0,
    learning_rate: float = 1e-3,
    parameters: Any = None,
    device: torch.device | str = "cpu",
    mixed: bool = True,
    progress: Progress = False,
) -> History:
    """Fit a module by Adam, and leave it in evaluation mode with the best weights.

    Parameters
    ----------
    module : torch.nn.Module
        Module to fit. It is moved to the device, and its weights are changed in place.
    loss : callable
        Computes the mean loss per row, a scalar tensor, from a minibatch of tensors on the device
        and a generator of random numbers.
    batches : callable
        Returns the minibatches of a pass over the data as tuples of ndarrays. It draws their order
        from the generator.
    held_out : callable, optional
        Returns the held-out rows, in the same minibatches each time. Without it the training does
        not end early, and the last weights are kept.
    seed : int
        Seed of the random numbers of all epochs; no global generator is seeded.
    max_epochs : int
        Largest number of passes over the data.
    patience : int
        Training ends if the held-out loss, averaged over three epochs, has not fallen for this
        number of epochs.
    before : History, optional
        A training to continue. The module must hold the weights that this training kept. If their
        held-out loss is the same as before, or if no rows are held out, the data are assumed to be
        the same. Training then goes on from the last epoch as if it had not been interrupted.
        Otherwise, or if the earlier training diverged, Adam starts anew from the kept weights.
    least_gain : float, default=0
        Amount by which the held-out loss must fall to count as lower.
    learning_rate : float, default=1e-3
        Learning rate of Adam.
    parameters : iterable, optional
        Parameter groups for torch's optimiser. By default all parameters have one learning rate.
    device : torch.device or str, default="cpu"
        Device to compute on.
    mixed : bool, default=True
        Whether to multiply matrices in bfloat16 on a CUDA device that supports it.
    progress : bool or callable, default=False
        Whether to show a bar of the epochs.

    Returns
    -------
    History

    Raises
    ------
    ValueError
        If the loss is NaN or infinite in the first epoch, or if the state of `before` belongs to
        other weights.
    """
    device = torch.device(device)
    module.to(device)
    adam = torch.optim.Adam(parameters or module.parameters(), lr=learning_rate, fused=True)
    half = mixed and device.type == "cuda" and torch.cuda.is_bf16_supported()
    training = [] if before is None else before.training.tolist()
    evaluated = [] if before is None else before.held_out.tolist()
    start = len(training)
    lowest, first, best, kept = np.inf, start, start, copied(module)
    ended: Literal["settled", "max_epochs", "not finite"] = "max_epochs"

    def losses(data: Iterable[Batch], draws: torch.Generator) -> Iterable[Tensor]:
        for batch in data:
            tensors = tuple(torch.from_numpy(part).to(device) for part in batch)
            with torch.autocast(device.type, torch.bfloat16, enabled=half):
                yield loss(tensors, draws)

    def evaluation() -> float:
        if held_out is None:
            return np.nan
        module.eval()
        with torch.no_grad():
            draws = torch.Generator(device).manual_seed(_HELD_OUT_SEED)
            return float(np.mean([float(x) for x in losses(held_out(), draws)]))

    if before is not None and before.state is not None:
        kept_loss = evaluated[before.best - 1]
        if held_out is None or np.isclose(evaluation(), kept_loss, rtol=_SAME_LOSS):
            lowest, first, best = before.state.lowest, before.state.first, before.best
            _resume(module, adam, before.state)
    # If the loss had settled in the earlier training, `patience` counts the new epochs only.
    counted_from = start if before is not None and before.ended == "settled" else 0

    epochs = range(start + 1, start + max_epochs + 1)
    for epoch in with_progress(epochs, max_epochs, "epochs", progress):
        module.train()
        rng = np.random.default_rng([seed, epoch])
        generator = torch.Generator(device).manual_seed(int(rng.integers(2**63)))
        total, n_batches = torch.zeros((), dtype=torch.float64, device=device), 0
        for value in losses(batches(rng), generator):
            adam.zero_grad(set_to_none=True)
            torch.autograd.backward(value)
            adam.step()
            total += value.detach()
            n_batches += 1
        training.append(float(total) / n_batches)
        evaluated.append(evaluation())
        if not _is_finite(module, training[-1], 0.0 if held_out is None else evaluated[-1]):
            ended = "not finite"
            break
        smooth = float(np.mean(evaluated[first:][-_SMOOTHED:]))
        if held_out is None or smooth < lowest - least_gain:
            lowest, best, kept = smooth, epoch, copied(module)
        elif epoch - max(best, counted_from) >= patience:
            ended = "settled"
            break
    if ended == "not finite" and len(training) == start + 1:
        module.load_state_dict(kept)
        module.eval()
        raise ValueError(
            "the loss is NaN or infinite in the first epoch of the training: the learning rate of "
            f"{learning_rate:g} is too large, or some rows are far larger than others or than the "
            "background. Lower the learning rate, or look for such rows."
        )
    state = None
    if ended != "not finite":
        adam_state = {
            name: arrays_of(adam.state[weights])
            for name, weights in module.named_parameters()
            if weights in adam.state  # weights without a gradient have no state
        }
        state = State(arrays_of(module.state_dict()), adam_state, lowest, first)
    module.load_state_dict(kept)
    module.eval()
    return History(np.array(training), np.array(evaluated), best, ended, state)


def copied(module: nn.Module) -> dict[str, Tensor]:
    """Return a copy of the weights and buffers of a module."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def _is_finite(module: nn.Module, *values: float) -> bool:
    """Return whether losses and weights are finite.

    After the last step of an epoch the weights can be NaN although the losses are finite.
    """
    return bool(np.isfinite(values).all()) and all(
        bool(torch.isfinite(weights).all()) for weights in module.parameters()
    )


def arrays_of(tensors: Mapping[str, Tensor]) -> Arrays:
    """Return copies of tensors as arrays."""
    return {name: value.detach().cpu().numpy().copy() for name, value in tensors.items()}


def tensors_of(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    """Return copies of arrays as tensors."""
    return {name: torch.tensor(value) for name, value in arrays.items()}


def _resume(module: nn.Module, adam: torch.optim.Adam, state: State) -> None:
    """Load the last weights into the module, and the state of Adam into the optimiser.

    Raises
    ------
    ValueError
        If the state belongs to other weights. (Adam itself does not check that.)
    """
    named = dict(module.named_parameters())
    for name, kept in state.adam.items():
        shapes = {key: value.shape for key, value in kept.items()}
        like = named.get(name, torch.empty(0)).shape
        if name not in named or shapes != {"step": (), "exp_avg": like, "exp_avg_sq": like}:
            raise ValueError(
                f"the saved state of the optimiser does not fit the weights {name!r}, so this "
                "training cannot be continued. Fit again with warm_start=False."
            )
        tensors = tensors_of(kept)
        adam.state[named[name]] = {key: tensors[key].to(named[name].device) for key in tensors}
    module.load_state_dict(tensors_of(state.weights))
