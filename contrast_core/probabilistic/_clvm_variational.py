"""Stochastic variational inference for the contrastive latent variable model, with torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from contrast_core._validation import FloatArray, check_counts
from contrast_core.deep._training import train
from contrast_core.feedback import Progress
from contrast_core.probabilistic._clvm_counts import (
    CountModel,
    NormalPosteriors,
    count_bound,
    count_posteriors,
)
from contrast_core.probabilistic._clvm_horseshoe import Scales, least_scale
from contrast_core.probabilistic._clvm_likelihood import Search
from contrast_core.probabilistic._clvm_priors import PriorSettings, group_lengths
from contrast_core.probabilistic._clvm_selection import PRUNED, Sparsity, check_support
from contrast_core.probabilistic._clvm_start import Start, VariationalFit
from contrast_core.probabilistic._row_posterior import (
    Model,
    Tails,
    expected,
    value_weights,
)
from contrast_core.rows import ELEMENTS, Rows, minibatches

# Learning rates of Adam, used one after another, in standard deviations of the noise.
_RATES = (0.02, 0.005, 0.001)
_PATIENCE = 8  # number of passes without a higher bound after which the next rate is used
_BATCH_ROWS = 256  # number of rows in a minibatch
_LEAST_STEPS = 8  # least number of minibatches in a pass, if there are enough rows
_LOCAL_STEPS = 3  # updates of each row's posterior in a minibatch; the next pass continues them
_LEAST_GAIN = 0.05  # a bound counts as higher if it has risen by this much
_FIRST_LOG_ERROR = -3.0  # log standard error of a salient loading, relative to the noise
_SCALE_STEPS = 5  # closed-form updates of the horseshoe's scales before each pass
# The penalty is smoothed at zero: sqrt(length^2 + r^2) replaces the length. The radius r is this
# share of the length in the unpenalised fit, but at least this share of the noise.
_ROUNDED, _LEAST_ROUNDED = 0.05, 0.002
_ZERO = 3.0  # rows of loadings shorter than this many times r are set to zero


class _StreamedPrior(NamedTuple):
    """Prior on the rows of W or the columns of S, whose logarithm is added to the bound.

    penalty : float
        Weight rho of the adaptive penalty on the rows of W, which is smoothed at zero.
    """

    settings: PriorSettings
    horseshoe: bool = False
    relevance: bool = False
    penalty: float = 0.0

    @property
    def is_flat(self) -> bool:
        """Whether there is no prior."""
        return not (self.horseshoe or self.relevance or self.penalty)


class _Parameters(nn.Module):
    """Parameters of the bound: loadings (size, k + t), means (2, size) and scales.

    Salient loadings outside the support are held at zero.

    With the horseshoe, each salient loading has a normal posterior, and `log_errors` holds the
    logarithm of its standard deviation.
    """

    kept: Tensor

    def __init__(
        self, start: Start, n_shared: int, support: NDArray[np.bool_], prior: _StreamedPrior
    ) -> None:
        super().__init__()
        kept = np.ones(start.loadings.shape)
        kept[~support, n_shared:] = 0.0
        self.register_buffer("kept", torch.from_numpy(kept))
        self.loadings = nn.Parameter(torch.from_numpy(start.loadings * kept))
        self.means = nn.Parameter(torch.from_numpy(start.means.copy()))
        self.log_scale = nn.Parameter(torch.from_numpy(start.log_scale.copy()))
        n_salient = start.loadings.shape[1] - n_shared
        shape = (len(support), n_salient) if prior.horseshoe else (0, n_salient)
        self.log_errors = nn.Parameter(torch.from_numpy(np.full(shape, _FIRST_LOG_ERROR)))


class _Objective:
    """Variational bound of both datasets as a function of the parameters.

    Posteriors that need iteration are stored, so that the next pass continues from them.
    """

    def __init__(
        self, parts: Sequence[Rows], start: Start, n_shared: int, tails: Tails, degrees: float
    ) -> None:
        self.parts = tuple(part.columns(start.varies) for part in parts)
        self.n_shared, self.tails, self.start = n_shared, tails, start
        self.degrees = degrees
        self.log_unit = float(np.log(start.unit))
        sizes = [part.shape[0] for part in parts]
        self.n_rows = sum(sizes)
        steps = max(self.n_rows // _BATCH_ROWS, min(_LEAST_STEPS, min(sizes) // _LEAST_STEPS))
        self.n_batches = max(1, min(steps, *sizes))
        # The evaluation splits the rows into as few parts as memory allows.
        few = -(-self.n_rows * len(start.loadings) // ELEMENTS)
        self.n_parts = max(1, min(few, *sizes))
        self.posteriors: list[NormalPosteriors] = []

    def batches(
        self, n_batches: int, rng: np.random.Generator
    ) -> Iterator[tuple[NDArray[Any], ...]]:
        """Yield minibatches of both datasets, with the indices of their rows."""
        options: dict[str, Any] = {"dtype": np.float64}
        both = []
        for part, shift in zip(self.parts, self.start.means, strict=True):
            if self.tails != "counts":
                options |= {"shift": shift, "scale": self.start.unit}
            both.append(minibatches(part, n_batches, rng, **options))
        for (i, x), (j, y) in zip(*both, strict=True):
            if self.tails == "counts":
                for part, block in zip(self.parts, (x, y), strict=True):
                    check_counts(block, part.name)
            yield x, y, i, j

    def bound(self, of: _Parameters, loadings: Tensor, batch: tuple[Tensor, ...]) -> Tensor:
        """Return the bound of a minibatch, summed over rows, in the units of the data."""
        total = torch.zeros((), dtype=torch.float64, device=loadings.device)
        for side, (rows, index) in enumerate(zip(batch[:2], batch[2:], strict=True)):
            part = loadings[:, : self.n_shared] if side else loadings
            bound = self._count_bound if self.tails == "counts" else self._value_bound
            total = total + bound(of, part, rows, side, index)
        return total

    def _value_bound(
        self, of: _Parameters, loadings: Tensor, rows: Tensor, side: int, index: Tensor
    ) -> Tensor:
        missing = torch.isnan(rows)
        left = torch.where(missing, 0.0, rows - of.means[side])
        seen = 1.0 - missing.double() if bool(missing.any()) else torch.ones_like(left[:1])
        # `Model` declares arrays, so the tensors are typed as Any.
        tensors: Any = (loadings, torch.exp(of.log_scale[0]))
        model: Any = Model(*tensors)
        weights = seen
        if self.tails == "entries":
            with torch.no_grad():
                before, kept = self._last_posteriors(side, index, loadings)
                weights = value_weights(left, seen, *before, model, self.degrees)
                for _ in range(_LOCAL_STEPS):
                    found = expected(left, seen, weights, model, self.tails, None, self.degrees)
                    weights = found.weights
                kept.latent[index], kept.covariance[index] = found.latent, found.covariance
        found = expected(left, seen, weights, model, self.tails, None, self.degrees)
        bound: Tensor = (found.log_density - seen.sum(dim=1) * self.log_unit).sum()
        return bound

    def _count_bound(
        self, of: _Parameters, loadings: Tensor, rows: Tensor, side: int, index: Tensor
    ) -> Tensor:
        model = CountModel(loadings, of.means[side], of.log_scale)
        with torch.no_grad():
            before, kept = self._last_posteriors(side, index, loadings)
            found = count_posteriors(rows, model, before, steps=_LOCAL_STEPS)
            kept.latent[index], kept.covariance[index] = found
        bound: Tensor = count_bound(rows, model, found).sum()
        return bound

    def _last_posteriors(
        self, side: int, index: Tensor, like: Tensor
    ) -> tuple[NormalPosteriors, NormalPosteriors]:
        """Return the last posteriors of rows `index` and of all rows, which start at the prior."""
        if not self.posteriors:
            widths = self.start.loadings.shape[1], self.n_shared
            for part, k in zip(self.parts, widths, strict=True):
                n = part.shape[0]
                eye = torch.eye(k, dtype=like.dtype, device=like.device).reshape(1, k * k)
                self.posteriors.append(NormalPosteriors(like.new_zeros(n, k), eye.repeat(n, 1)))
        kept = self.posteriors[side]
        return NormalPosteriors(kept.latent[index], kept.covariance[index]), kept


def fit_variational(
    parts: Sequence[Rows],
    start: Start,
    n_shared: int,
    tails: Tails,
    sparsity: Sparsity | None,
    ard: bool,
    search: Search,
    device: Any,
    progress: Progress,
) -> VariationalFit:
    """Maximise the variational bound from a starting point, by Adam on minibatches.

    The posterior of a row's latent variables has a full covariance. With the tails ``"normal"`` and
    ``"rows"`` it has a closed form, and the bound equals the log-likelihood. Otherwise it is found
    by iteration for each row of a minibatch.

    With `ard`, a first fit has a vague prior on the lengths of the shared columns. The columns that
    this prior shrinks to zero are left out. With `sparsity`, a second fit has a penalty or a
    horseshoe prior. The rows of W that it shrinks to zero are left out. The last fit has no prior.
    """
    support = np.ones(len(start.loadings), dtype=bool)
    options: dict[str, Any] = {"rng": search.rng, "device": device, "progress": progress}
    priors, max_passes, shrunk = search.priors, search.max_iter, None
    degrees = priors.degrees_of_freedom
    if ard and n_shared:
        objective = _Objective(parts, start, n_shared, tails, degrees)
        found = _climb(
            objective, support, _StreamedPrior(priors, relevance=True), max_passes, options
        )
        start, n_shared = _relevant(found.start, n_shared, tails)
    if sparsity == "horseshoe" or start.penalty:
        objective = _Objective(parts, start, n_shared, tails, degrees)
        prior = _StreamedPrior(priors, sparsity == "horseshoe", penalty=start.penalty)
        found = _climb(objective, support, prior, max_passes, options)
        start, support, shrunk = found.start, found.support, found.shrunk
        check_support(support, sparsity or "auto")
    objective = _Objective(parts, start, n_shared, tails, degrees)
    found = _climb(objective, support, _StreamedPrior(priors), max_passes, options)
    best = found.start
    return VariationalFit(
        *(best.loadings, best.means, best.log_scale, n_shared),
        *(found.elbo, found.converged, shrunk),
    )


class _Climbed(NamedTuple):
    start: Start
    support: NDArray[np.bool_]
    elbo: FloatArray
    converged: bool
    shrunk: FloatArray | None


def _climb(
    objective: _Objective,
    support: NDArray[np.bool_],
    prior: _StreamedPrior,
    max_passes: int,
    options: dict[str, Any],
) -> _Climbed:
    """Run Adam with decreasing learning rates, and return the parameters with the best bound."""
    start, k = objective.start, objective.n_shared
    n_rows = objective.n_rows
    shifted = start._replace(means=start.means * (objective.tails == "counts"))
    module = _Parameters(shifted, k, support, prior).to(options["device"])
    scales = Scales(1.0, np.ones(len(support)), 1.0, 1.0)
    groups = prior.settings.groups_of(start.varies)
    rows = np.ones(len(support)) if start.lengths is None else start.lengths
    lengths = group_lengths(rows[:, None], groups)
    tips = np.maximum(_ROUNDED * lengths, _LEAST_ROUNDED)
    penalties = prior.penalty / np.maximum(lengths, _LEAST_ROUNDED)
    if not prior.settings.adaptive_penalty:
        penalties = np.full(len(lengths), prior.penalty * start.unit)
    rates, rounded, group = (
        torch.from_numpy(each).to(options["device"]) for each in (penalties, tips, groups)
    )

    def precision() -> Tensor:
        values = torch.from_numpy(scales.precision / start.spread**2)
        return values.to(options["device"])[:, None]

    def loss(batch: tuple[Tensor, ...], draws: torch.Generator) -> Tensor:
        loadings = module.loadings * module.kept
        extra = torch.zeros((), dtype=torch.float64, device=loadings.device)
        if prior.horseshoe:
            salient, errors = loadings[:, k:], torch.exp(module.log_errors)
            noise = torch.randn(
                errors.shape, generator=draws, dtype=errors.dtype, device=errors.device
            )
            loadings = torch.cat([loadings[:, :k], salient + errors * noise], dim=1)
            weights = precision()
            extra = (weights * (salient**2 + errors**2) - torch.log(weights * errors**2)).sum() / 2
        if prior.penalty:
            of_rows = (loadings[:, k:] ** 2).sum(dim=1)
            of_groups = torch.zeros_like(rates).index_add(0, group, of_rows)
            extra = (rates * torch.sqrt(of_groups + rounded**2)).sum()
        if prior.relevance:
            shared = loadings[:, :k]
            inner = shared.T @ shared / 2
            inner = inner + prior.settings.ard_rate * torch.eye(
                k, dtype=inner.dtype, device=inner.device
            )
            extra = (len(support) / 2 + prior.settings.ard_shape) * torch.logdet(inner)
        n_batches = objective.n_batches if module.training else objective.n_parts
        return (extra - n_batches * objective.bound(module, loadings, batch)) / n_rows

    def squares() -> FloatArray:
        with torch.no_grad():
            found = module.loadings[:, k:] ** 2 + torch.exp(2 * module.log_errors)
        return np.asarray(found.sum(dim=1).cpu().numpy() / start.spread**2)

    def batches(rng: np.random.Generator) -> Iterator[tuple[NDArray[Any], ...]]:
        nonlocal scales
        if prior.horseshoe:
            for _ in range(_SCALE_STEPS):
                scales = scales.updated(
                    squares(), module.log_errors.shape[1], prior.settings.horseshoe_scale
                )
        yield from objective.batches(objective.n_batches, rng)

    def all_rows() -> Iterator[tuple[NDArray[Any], ...]]:
        yield from objective.batches(objective.n_parts, np.random.default_rng(0))

    def value() -> float:
        draws = torch.Generator(options["device"]).manual_seed(0)
        tensors = (tuple(torch.from_numpy(a).to(options["device"]) for a in b) for b in all_rows())
        with torch.no_grad():
            return -float(np.mean([float(loss(batch, draws)) for batch in tensors]))

    module.eval()
    elbo, converged = [value()], False
    best, kept = elbo[0], {name: v.clone() for name, v in module.state_dict().items()}
    for rate in _RATES:
        left = max_passes + 1 - len(elbo)
        if left <= 0:
            break
        history = train(
            *(module, loss, batches, all_rows),
            max_epochs=left,
            patience=_PATIENCE,
            least_gain=_LEAST_GAIN / n_rows,
            learning_rate=rate,
            mixed=False,
            seed=int(options["rng"].integers(2**63)),
            device=options["device"],
            progress=options["progress"],
        )
        elbo += [-float(each) for each in history.held_out]
        converged = history.ended == "settled"
        if -history.held_out[history.best - 1] > best or not prior.is_flat:
            best = -float(history.held_out[history.best - 1])
            kept = {name: v.clone() for name, v in module.state_dict().items()}
        else:
            module.load_state_dict(kept)
    module.load_state_dict(kept)
    found = {name: v.detach().cpu().numpy() for name, v in module.named_parameters()}
    loadings = found["loadings"] * module.kept.cpu().numpy()
    means, shrunk = found["means"], None
    if objective.tails != "counts":
        means = start.means + start.unit * means
    if prior.horseshoe:
        noise = 0.0 if objective.tails == "counts" else float(np.exp(found["log_scale"][0]))
        n_foreground = objective.parts[0].shape[0]
        shrunk = scales.below(least_scale(prior.settings, noise / start.spread**2, n_foreground))
        support = shrunk <= prior.settings.horseshoe_probability
    if prior.penalty:
        support = (group_lengths(loadings[:, k:], groups) > _ZERO * tips)[groups]
    return _Climbed(
        start._replace(loadings=loadings, means=means, log_scale=found["log_scale"]),
        support,
        np.array([*elbo, best]) * n_rows,
        converged,
        shrunk,
    )


def _relevant(found: Start, n_shared: int, tails: Tails) -> tuple[Start, int]:
    """Keep the shared columns that are not shrunk to zero; return the start and their number.

    The columns that are kept are rotated to be orthogonal.
    """
    directions, lengths, _ = np.linalg.svd(found.loadings[:, :n_shared], full_matrices=False)
    noise = 1.0 if tails == "counts" else float(np.exp(found.log_scale[0]))
    kept = int((lengths**2 > PRUNED * noise).sum())
    n_salient = found.loadings.shape[1] - n_shared
    kept = max(kept, int(not n_salient))
    shared = (directions * lengths)[:, :kept]
    return found._replace(loadings=np.hstack([shared, found.loadings[:, n_shared:]])), kept
