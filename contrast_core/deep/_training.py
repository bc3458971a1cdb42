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
_SAME_LOSS = 1e-4  # relative: the same data on another machine, which rounds otherwise
_HELD_OUT_SEED = 0  # of the draws of every evaluation, so that epochs differ by the weights alone


class State(NamedTuple):
    """Where a training stands, so that it can go on as if it had not been interrupted.

    weights : dict of tensors
        Those of the last epoch, which need not be the ones that were kept.
    adam : dict of dicts of tensors
        What Adam keeps of each weight: running means of gradients and of their squares, and steps.
    lowest : float
        The held-out loss to be lower than.
    first : int
        How many epochs had gone before, on other data.
    """

    weights: dict[str, Tensor]
    adam: dict[str, dict[str, Tensor]]
    lowest: float
    first: int


class History(NamedTuple):
    """Losses and lengths of a training, with those of the training that it continued.

    training, held_out : ndarrays of shape (n_epochs,)
        Mean loss of each epoch, while it went on, and of what is held out after it; NaN where
        nothing is.
    best : int
        After how many epochs the weights are those that were kept.
    ended : {"settled", "max_epochs", "not finite"}
        Why it ended: the held-out loss no longer fell, as many epochs as allowed, or a loss or
        weight that is no number. The weights are then the best before that.
    state : State or None
        None after what is no number.
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
    """Fit the weights of a module by Adam; it ends in evaluation mode with the best ones.

    Parameters
    ----------
    module : torch.nn.Module
        Its weights are changed in place, on the device, where it stays.
    loss : callable
        From a minibatch, tensors on the device, and the generator of what is random, to the mean
        loss per row, a tensor that is a number.
    batches : callable
        Returns the minibatches of a pass over the data, tuples of ndarrays, in an order that it
        draws from the generator.
    held_out : callable, optional
        The same of what is held out, in the same minibatches each time. Without it there is no
        early end, and the weights are the last ones.
    seed : int
        Of what is random in each epoch, by its number; nothing global is seeded.
    max_epochs : int
        Passes over the data, at most.
    patience : int
        It ends once the held-out loss, the mean of three epochs, has not been lower for so many.
    before : History, optional
        A training to go on from; the module holds the weights that it kept. If these have the
        held-out loss that they had, so that the data are the same, or nothing is held out, the
        epochs follow as if there had been no end in between. Else Adam starts anew from the weights
        that were kept.
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
        If the first epoch already has a loss that is no number, or the state to go on from is of
        other weights.
    """
    device = torch.device(device)
    module.to(device)
    adam = torch.optim.Adam(parameters or module.parameters(), lr=learning_rate, fused=True)
    half = mixed and device.type == "cuda" and torch.cuda.is_bf16_supported()
    training = [] if before is None else before.training.tolist()
    evaluated = [] if before is None else before.held_out.tolist()
    start = len(training)
    lowest, first, best, kept = np.inf, start, start, _copied(module)
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
            lowest, best, kept = smooth, epoch, _copied(module)
        elif epoch - max(best, counted_from) >= patience:
            ended = "settled"
            break
    if ended == "not finite" and len(training) == start + 1:
        module.load_state_dict(kept)
        module.eval()
        raise ValueError(
            "the loss is no number in the first epoch of the training: the learning rate of "
            f"{learning_rate:g} is too large, or some rows are, far larger than others or than the "
            "background. Lower it, or look for such rows."
        )
    state = None
    if ended != "not finite":
        state = State(_copied(module), _kept_by(adam, module), lowest, first)
    module.load_state_dict(kept)
    module.eval()
    return History(np.array(training), np.array(evaluated), best, ended, state)


def _copied(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def _is_finite(module: nn.Module, *values: float) -> bool:
    """Return whether losses and weights are finite; a last step may spoil the weights alone."""
    return bool(np.isfinite(values).all()) and all(
        bool(torch.isfinite(weights).all()) for weights in module.parameters()
    )


def _kept_by(adam: torch.optim.Adam, module: nn.Module) -> dict[str, dict[str, Tensor]]:
    """Return Adam's state by the names of weights, without those that no loss reached."""
    return {
        name: {key: value.detach().clone() for key, value in adam.state[weights].items()}
        for name, weights in module.named_parameters()
        if weights in adam.state
    }


def _resume(module: nn.Module, adam: torch.optim.Adam, state: State) -> None:
    """Put the last weights into the module, and into Adam what it kept.

    Raises
    ------
    ValueError
        If it is of other weights: Adam itself would not look.
    """
    named = dict(module.named_parameters())
    for name, kept in state.adam.items():
        shapes = {key: value.shape for key, value in kept.items()}
        if name not in named or shapes != _adam_shapes(named[name]):
            raise ValueError(
                f"the training to go on from kept other weights than {name!r} is now; fit anew, "
                "without warm_start."
            )
    module.load_state_dict(state.weights)
    places = [weights for group in adam.param_groups for weights in group["params"]]
    number = {id(weights): i for i, weights in enumerate(places)}
    adam.load_state_dict(
        {
            "state": {number[id(named[name])]: kept for name, kept in state.adam.items()},
            "param_groups": adam.state_dict()["param_groups"],
        }
    )


def _adam_shapes(weights: Tensor) -> dict[str, torch.Size]:
    return {"step": torch.Size(), "exp_avg": weights.shape, "exp_avg_sq": weights.shape}
