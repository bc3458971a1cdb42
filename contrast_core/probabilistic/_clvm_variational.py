"""Stochastic variational inference for the contrastive latent variable model, with torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from contrast_core._validation import FloatArray, check_counts
from contrast_core.deep._training import copied, train
from contrast_core.feedback import Progress
from contrast_core.probabilistic._clvm_counts import (
    CountModel,
    NormalPosteriors,
    count_bound,
    count_posteriors,
)
from contrast_core.probabilistic._clvm_horseshoe import Scales, least_scale
from contrast_core.probabilistic._clvm_likelihood import Search, described_model
from contrast_core.probabilistic._clvm_selection import PRUNED, check_support
from contrast_core.probabilistic._clvm_start import Start
from contrast_core.probabilistic._row_posterior import (
    Model,
    Tails,
    run_e_step,
    value_weights,
)
from contrast_core.rows import ELEMENTS, Rows, minibatches

# Learning rates of Adam, used one after another, in standard deviations of the noise.
_RATES = (0.02, 0.005, 0.001)
_PATIENCE = 8  # number of passes without a higher bound after which the next rate is used
_BATCH_ROWS = 256  # number of rows in a minibatch
_LEAST_STEPS = 8  # least number of minibatches in a pass, if there are enough rows
_LOCAL_STEPS = 3  # updates of each row's posterior in one pass
_LEAST_GAIN = 0.05  # least rise of the bound of all rows that counts as a higher bound
_FIRST_LOG_ERROR = -3.0  # log standard error of a salient loading at the start, in units of noise
_SCALE_STEPS = 5  # closed-form updates of the horseshoe's scales before each pass
_POISSON = 1e6  # a dispersion so large that counts are Poisson distributed

# Name of the prior whose logarithm is added to the bound: "relevance" is a vague prior on the
# columns of the shared loadings, and "horseshoe" is a prior on the rows of the salient loadings.
_Prior: TypeAlias = Literal["none", "relevance", "horseshoe"]


class VariationalFit(NamedTuple):
    """Result of the variational fit to `size` features.

    found : Start
        The parameters with the highest bound.
    support : ndarray of bool of shape (size,)
        The features with salient loadings.
    elbo : ndarray
        The bound at the start, after each pass and at the end.
    converged : bool
    shrunk : ndarray of shape (size,), optional
        Probability that the horseshoe shrinks a feature's salient loadings.
    """

    found: Start
    support: NDArray[np.bool_]
    elbo: FloatArray
    converged: bool
    shrunk: FloatArray | None = None

    def described(self, tails: Tails) -> dict[str, Any]:
        """Return fitted attributes."""
        found, varies = self.found, self.found.varies
        whole = np.zeros((len(varies), found.loadings.shape[1]))
        whole[varies] = found.unit * found.loadings
        means, variance = found.all_means.copy(), 0.0
        means[:, varies] = found.means
        attributes: dict[str, Any] = {"elbo_": self.elbo, "converged_": self.converged}
        if tails == "counts":
            dispersions = np.full(len(varies), _POISSON)
            dispersions[varies] = np.exp(found.log_scale)
            attributes |= {"dispersions_": dispersions, "library_size_": found.total}
        else:
            variance = found.noise * found.unit**2
            attributes["noise_variance_"] = variance
        if self.shrunk is not None:
            attributes["shrunk_probability_"] = np.ones(len(varies))
            attributes["shrunk_probability_"][varies] = self.shrunk
        of_model = described_model(whole, variance, means, found.n_shared)
        return of_model | attributes | {"n_iter_": len(self.elbo) - 2}


class _Bound(nn.Module):
    """Variational bound of both datasets, plus the log-prior, as a function of the parameters.

    The parameters are the loadings (size, k + t) of k shared and t salient latent variables, the
    means of both datasets (2, size), and `log_scale`, the logarithm of the noise variance or of the
    dispersions. Salient loadings outside the support are held at zero. With the horseshoe, each
    salient loading has a normal posterior, and `log_errors` holds the logarithm of its standard
    deviation.

    If the posteriors of the rows are found by iteration, they are stored, and the next pass
    continues from them.
    """

    kept: Tensor

    def __init__(
        self,
        parts: Sequence[Rows],
        start: Start,
        support: NDArray[np.bool_],
        prior: _Prior,
        tails: Tails,
        search: Search,
    ) -> None:
        super().__init__()
        self.parts = tuple(part.columns(start.varies) for part in parts)
        self.start, self.support, self.prior, self.tails = start, support, prior, tails
        self.settings, self.degrees = search.priors, search.priors.degrees_of_freedom
        sizes = [part.shape[0] for part in parts]
        self.n_rows = sum(sizes)
        steps = max(self.n_rows // _BATCH_ROWS, min(_LEAST_STEPS, min(sizes) // _LEAST_STEPS))
        self.n_batches = max(1, min(steps, *sizes))
        # The evaluation splits the rows into as few parts as memory allows.
        few = -(-self.n_rows * len(start.loadings) // ELEMENTS)
        self.n_parts = max(1, min(few, *sizes))
        self.posteriors: list[NormalPosteriors] = []
        size, n_latent = start.loadings.shape
        kept = np.ones((size, n_latent))
        kept[~support, start.n_shared :] = 0.0
        shape = (size if prior == "horseshoe" else 0, n_latent - start.n_shared)
        self.loadings = nn.Parameter(torch.from_numpy(start.loadings * kept))
        # Unless the data are counts, `_minibatches` subtracts the start's means from them. The
        # remaining means, which are fitted here, are therefore zero at first.
        means = start.means.copy() if tails == "counts" else np.zeros_like(start.means)
        self.means = nn.Parameter(torch.from_numpy(means))
        self.log_scale = nn.Parameter(torch.from_numpy(start.log_scale.copy()))
        self.log_errors = nn.Parameter(torch.from_numpy(np.full(shape, _FIRST_LOG_ERROR)))
        self.scales = Scales(1.0, np.ones(len(support)), 1.0, 1.0)
        self.register_buffer("kept", torch.from_numpy(kept))

    def batches(self, rng: np.random.Generator) -> Iterator[tuple[NDArray[Any], ...]]:
        """Update the horseshoe's scales, then yield the minibatches of a pass."""
        if self.prior == "horseshoe":
            scale = self.settings.horseshoe_scale
            with torch.no_grad():
                squares = self.loadings[:, self.start.n_shared :] ** 2
                squares = (squares + torch.exp(2 * self.log_errors)).sum(dim=1)
            lengths = squares.cpu().numpy() / self.start.spread**2
            for _ in range(_SCALE_STEPS):
                self.scales = self.scales.updated(lengths, self.log_errors.shape[1], scale)
        yield from self._minibatches(self.n_batches, rng)

    def all_rows(self) -> Iterator[tuple[NDArray[Any], ...]]:
        """Yield all rows, in the same few parts each time."""
        yield from self._minibatches(self.n_parts, np.random.default_rng(0))

    def _minibatches(
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

    def value(self) -> float:
        """Return the bound of all rows plus the log-prior, divided by the number of rows."""
        device = self.loadings.device
        draws = torch.Generator(device).manual_seed(0)
        tensors = (tuple(torch.from_numpy(a).to(device) for a in b) for b in self.all_rows())
        with torch.no_grad():
            return -float(np.mean([float(self.loss(batch, draws)) for batch in tensors]))

    def loss(self, batch: tuple[Tensor, ...], draws: torch.Generator) -> Tensor:
        """Estimate the negative of `value` from a minibatch."""
        loadings, k = self.loadings * self.kept, self.start.n_shared
        options: Any = {"dtype": loadings.dtype, "device": loadings.device}
        extra = torch.zeros((), **options)
        if self.prior == "horseshoe":
            salient, errors = loadings[:, k:], torch.exp(self.log_errors)
            noise = torch.randn(errors.shape, generator=draws, **options)
            loadings = torch.cat([loadings[:, :k], salient + errors * noise], dim=1)
            weights = torch.from_numpy(self.scales.precision / self.start.spread**2)
            weights = weights.to(loadings.device)[:, None]
            extra = (weights * (salient**2 + errors**2) - torch.log(weights * errors**2)).sum() / 2
        if self.prior == "relevance":
            inner = loadings[:, :k].T @ loadings[:, :k] / 2
            inner = inner + self.settings.ard_rate * torch.eye(k, **options)
            extra = (len(self.support) / 2 + self.settings.ard_shape) * torch.logdet(inner)
        bound = self._count_bound if self.tails == "counts" else self._value_bound
        of_x = bound(loadings, batch[0], 0, batch[2])
        of_y = bound(loadings[:, :k], batch[1], 1, batch[3])
        n_batches = self.n_batches if self.training else self.n_parts
        return (extra - n_batches * (of_x + of_y)) / self.n_rows

    def _value_bound(self, loadings: Tensor, rows: Tensor, dataset: int, index: Tensor) -> Tensor:
        """Return the bound of a minibatch with normal or Student's t noise, summed over its rows.

        `dataset` is 0 for the foreground and 1 for the background. `index` holds the indices of the
        rows in this dataset.
        """
        missing = torch.isnan(rows)
        left = torch.where(missing, 0.0, rows - self.means[dataset])
        seen = 1.0 - missing.double() if bool(missing.any()) else torch.ones_like(left[:1])
        # `Model` declares arrays, so the tensors are typed as Any.
        tensors: Any = (loadings, torch.exp(self.log_scale[0]))
        model: Any = Model(*tensors)
        weights = seen
        if self.tails == "entries":
            with torch.no_grad():
                before, kept = self._last_posteriors(dataset, index, loadings)
                weights = value_weights(left, seen, *before, model, self.degrees)
                for _ in range(_LOCAL_STEPS):
                    found = run_e_step(left, seen, weights, model, self.tails, None, self.degrees)
                    weights = found.weights
                kept.latent[index], kept.covariance[index] = found.latent, found.covariance
        found = run_e_step(left, seen, weights, model, self.tails, None, self.degrees)
        bound: Tensor = (found.log_density - seen.sum(dim=1) * float(np.log(self.start.unit))).sum()
        return bound

    def _count_bound(self, loadings: Tensor, rows: Tensor, dataset: int, index: Tensor) -> Tensor:
        """Return the bound of a minibatch of counts, with the arguments of `_value_bound`."""
        model = CountModel(loadings, self.means[dataset], self.log_scale)
        with torch.no_grad():
            before, kept = self._last_posteriors(dataset, index, loadings)
            found = count_posteriors(rows, model, before, steps=_LOCAL_STEPS)
            kept.latent[index], kept.covariance[index] = found
        bound: Tensor = count_bound(rows, model, found).sum()
        return bound

    def _last_posteriors(
        self, dataset: int, index: Tensor, like: Tensor
    ) -> tuple[NormalPosteriors, NormalPosteriors]:
        """Return the stored posteriors of the rows `index`, and the stored posteriors of all rows.

        Before the first pass, all stored posteriors equal the prior.
        """
        if not self.posteriors:
            widths = self.start.loadings.shape[1], self.start.n_shared
            for part, k in zip(self.parts, widths, strict=True):
                n = part.shape[0]
                eye = torch.eye(k, dtype=like.dtype, device=like.device).reshape(1, k * k)
                self.posteriors.append(NormalPosteriors(like.new_zeros(n, k), eye.repeat(n, 1)))
        kept = self.posteriors[dataset]
        return NormalPosteriors(kept.latent[index], kept.covariance[index]), kept

    def result(self, elbo: FloatArray, converged: bool) -> VariationalFit:
        """Return the parameters in the units of the start, and the features that are kept."""
        start, support, shrunk = self.start, self.support, None
        values = {name: each.detach().cpu().numpy() for name, each in self.state_dict().items()}
        found = start._replace(
            loadings=values["loadings"] * values["kept"],
            means=values["means"],
            log_scale=values["log_scale"],
        )
        if self.tails != "counts":
            found = found._replace(means=start.means + start.unit * found.means)
        if self.prior == "horseshoe":
            noise = 0.0 if self.tails == "counts" else found.noise
            limit = least_scale(self.settings, noise / start.spread**2, self.parts[0].shape[0])
            shrunk = self.scales.probability_below(limit)
            support = shrunk <= self.settings.horseshoe_probability
        return VariationalFit(found, support, elbo, converged, shrunk)


def fit_variational(
    parts: Sequence[Rows],
    start: Start,
    tails: Tails,
    search: Search,
    device: Any,
    progress: Progress,
) -> VariationalFit:
    """Maximise the variational bound from a starting point, by Adam on minibatches.

    The posterior of a row's latent variables has a full covariance. With the tails ``"normal"`` and
    ``"rows"`` it has a closed form, and the bound equals the log-likelihood. Otherwise it is found
    by iteration for each row of a minibatch.

    With ``ard``, a first fit uses a vague prior on the columns of the shared loadings, and the
    columns that this prior shrinks to zero are left out. With the horseshoe, the next fit uses the
    horseshoe prior, and the rows of the salient loadings that it shrinks are set to zero. If
    `sparsity` is a number or "auto", a penalty has already selected the features in the fit that
    gave `start`. The last fit has no prior.
    """

    def climbed(start: Start, support: NDArray[np.bool_], prior: _Prior) -> VariationalFit:
        bound = _Bound(parts, start, support, prior, tails, search).to(device)
        return _climbed(bound, search, device, progress)

    support, shrunk = np.ones(len(start.loadings), dtype=bool), None
    if search.sparsity not in (None, "horseshoe"):
        support = np.asarray(start.loadings[:, start.n_shared :].any(axis=1))
    if search.ard and start.n_shared:
        start = _relevant(climbed(start, support, "relevance").found, tails)
    if search.sparsity == "horseshoe":
        start, support, _, _, shrunk = climbed(start, support, "horseshoe")
        check_support(support, "horseshoe")
    return climbed(start, support, "none")._replace(shrunk=shrunk)


def _climbed(bound: _Bound, search: Search, device: Any, progress: Progress) -> VariationalFit:
    """Run Adam with decreasing learning rates, and return the parameters with the best bound."""
    bound.eval()
    elbo, converged = [bound.value()], False
    best, kept = elbo[0], copied(bound)
    for rate in _RATES:
        left = search.max_iter + 1 - len(elbo)
        if left <= 0:
            break
        history = train(
            *(bound, bound.loss, bound.batches, bound.all_rows),
            max_epochs=left,
            patience=_PATIENCE,
            least_gain=_LEAST_GAIN / bound.n_rows,
            learning_rate=rate,
            mixed=False,
            seed=int(search.rng.integers(2**63)),
            device=device,
            progress=progress,
        )
        elbo += [-float(each) for each in history.held_out]
        converged = history.ended == "settled"
        reached = -float(history.held_out[history.best - 1])
        if reached > best or bound.prior != "none":
            best, kept = reached, copied(bound)
        bound.load_state_dict(kept)
    return bound.result(np.array([*elbo, best]) * bound.n_rows, converged)


def _relevant(found: Start, tails: Tails) -> Start:
    """Rotate the shared columns to be orthogonal, and keep those that are not shrunk to zero."""
    shared, salient = np.split(found.loadings, [found.n_shared], axis=1)
    directions, lengths, _ = np.linalg.svd(shared, full_matrices=False)
    noise = 1.0 if tails == "counts" else found.noise
    kept = max(int((lengths**2 > PRUNED * noise).sum()), int(not salient.shape[1]))
    shared = (directions * lengths)[:, :kept]
    return found._replace(loadings=np.hstack([shared, salient]), n_shared=kept)
