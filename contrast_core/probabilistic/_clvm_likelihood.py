"""The likelihood of the contrastive latent variable model, and the search for its maximum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray
from contrast_core.linalg import fix_signs
from contrast_core.probabilistic._ascent import Evaluation, ascend
from contrast_core.probabilistic._clvm_priors import (
    LIKELIHOOD_ALONE,
    Prior,
    PriorSettings,
    Sparsity,
)
from contrast_core.probabilistic._row_posterior import Model
from contrast_core.solve import contrast_index

FIRST_NOISE = 0.1  # noise variance at the start, in units of the mean variance of the features
_LEAST_NOISE = 1e-13  # least noise variance in the same units; smaller values are rounding errors
_LARGEST = 300.0  # the logarithms of the weights of values are clipped to -300 and 300


class Search(NamedTuple):
    """Settings of the search for a maximum.

    n_salient : int
        Number of salient latent variables, t.
    n_init : int
        Number of starts. The first is not random; the others are drawn with `rng`.
    tol : float
        EM ends when the gradient of the log-likelihood per row is shorter than this. The gradient
        is taken with respect to the loadings, in units of the noise's standard deviation, and to
        the logarithm of the noise variance. If no gradient is available, the step of EM is used
        instead of the gradient.
    max_iter : int
        Largest number of evaluations of the likelihood.
    priors : PriorSettings
    sparsity, ard
        Selection of features and of shared dimensions, as in `CLVM`.
    """

    n_salient: int
    n_init: int
    rng: np.random.Generator
    tol: float
    max_iter: int
    priors: PriorSettings = PriorSettings()
    sparsity: Sparsity | None = None
    ard: bool = False


class Fit(NamedTuple):
    """Fitted model, objective per row at each accepted step, and whether the fit converged.

    A fit to rows, unlike a fit to moments, also holds the means of both datasets, after the data
    were centred by their medians and divided by the `unit` of the likelihood. With
    ``robust="entries"`` it also holds the weights of all values. Missing values have weight 0.
    """

    model: Model
    log_likelihoods: FloatArray = np.empty(0)
    converged: bool = False
    means: tuple[FloatArray, ...] = ()
    weights: tuple[FloatArray, ...] = ()


class Step(NamedTuple):
    """Result of an evaluation of the log-likelihood plus the log-prior.

    value : float
        The log-likelihood plus the log-prior, divided by the number of rows.
    slope : Model or None
        Gradient with respect to the loadings and to the logarithm of the noise variance.
    update : Fit
        Parameters after a step of EM.
    """

    value: float
    slope: Model | None
    update: Fit


class Selected(NamedTuple):
    """The fit after the selection of features with salient loadings, and of shared dimensions.

    `n_shared` is the number of shared dimensions that are left. `shrunk` holds, for each feature,
    the probability that the horseshoe shrinks its salient loadings.
    """

    fit: Fit
    n_shared: int
    shrunk: FloatArray | None = None


@dataclass(frozen=True)
class Likelihood(ABC):
    """Base class of the likelihood per row as a function of the parameters.

    Parameters
    ----------
    n_shared : int
        Number of shared latent variables, k.
    search : Search
    n_features : int
        Number of features that vary.
    n_rows : float
        Number of rows of both datasets.
    unit : float
        Scale, in the units of the data, by which data and loadings are divided.
    size : int
        Number of rows of the loadings. Each of these rows belongs to a feature. If the data have
        more features than rows, they can belong instead to the vectors of an orthonormal basis of
        the space that the rows of the data span.
    """

    n_shared: int
    search: Search
    n_features: int
    n_rows: float
    unit: float
    size: int

    roughly: ClassVar[dict[str, Any]]  # values of `tol` and `max_iter` for interim results
    has_gradient: ClassVar[bool]

    @property
    def groups(self) -> NDArray[np.intp]:
        """Feature group of each row of the loadings, (size,); defined if these are features."""
        return self.search.priors.groups_of(np.ones(self.size, dtype=bool))

    @abstractmethod
    def first(self) -> Model:
        """Return the model from which the first search starts."""

    @abstractmethod
    def evaluate(self, at: Fit, prior: Prior) -> Step:
        """Return the log-likelihood plus log-prior per row, its gradient, and the step of EM."""

    @abstractmethod
    def horseshoe(self, dense: Fit) -> FloatArray:
        """Return the probability that the horseshoe shrinks a row of salient loadings, (size,)."""

    @abstractmethod
    def described(self, found: Selected) -> dict[str, Any]:
        """Return the fitted attributes of `CLVM` in the units of the data."""

    def start_at(self, model: Model) -> Fit:
        """Return all parameters at the start of a search that begins with this model."""
        return Fit(model)

    def with_shared(self, n_shared: int) -> Self:
        """Return the likelihood of a model with another number of shared variables."""
        return replace(self, n_shared=n_shared)

    def most_likely(self) -> Fit:
        """Climb from the first model and from random models, and return the highest maximum."""
        search, shape = self.search, (self.size, self.n_shared + self.search.n_salient)
        models = [self.first()]
        models += [
            Model(search.rng.standard_normal(shape), FIRST_NOISE) for _ in range(search.n_init - 1)
        ]
        fits = [self.climb(self.start_at(model)) for model in models]
        return max(fits, key=lambda fit: fit.log_likelihoods[-1])

    def climb(self, start: Fit, prior: Prior = LIKELIHOOD_ALONE, *, roughly: bool = False) -> Fit:
        """Return the maximum of the likelihood times a prior, found by accelerated EM.

        Raises
        ------
        ValueError
            If the likelihood is unbounded, so that the noise variance goes to zero.
        """
        unit, smooth = start.model.noise**0.5, self.has_gradient and prior.smooth

        def at(point: FloatArray) -> Evaluation:
            value, slope, update = self.evaluate(_parameters(point, start, unit), prior)
            self._check_noise(update.model)
            there = _point(update, start, unit)
            gradient = (there - point)[: start.model.loadings.size + 1]
            if smooth and slope is not None:
                gradient = np.append(unit * slope.loadings.ravel(), slope.noise)
            return Evaluation(value, gradient, there)

        self._check_noise(start.model)
        limits: dict[str, Any] = {"tol": self.search.tol, "max_iter": self.search.max_iter}
        limits = self.roughly if roughly else limits
        try:
            found = ascend(at, _point(start, start, unit), smooth=smooth, **limits)
        except np.linalg.LinAlgError as error:
            raise ValueError(
                "some values are so much larger than others that the fit fails in double "
                "precision. Remove the outliers, or give robust='entries' or 'rows'."
            ) from error
        end = _parameters(found.point, start, unit)
        # The M-step with a penalty sets rows of loadings exactly to zero. An extrapolation can make
        # them nonzero, so one more M-step follows.
        if not prior.smooth:
            end = self.evaluate(end, prior).update
        return end._replace(log_likelihoods=found.values, converged=found.converged)

    def _check_noise(self, model: Model) -> None:
        if not model.noise > _LEAST_NOISE:
            raise ValueError(
                f"{self.n_shared} shared and {model.loadings.shape[1] - self.n_shared} salient "
                "latent variables explain all variance (or all except that of outliers) to working "
                "precision, so nothing is left to estimate the noise from. Use fewer latent "
                "variables, more rows, or another `robust`."
            )


def _point(at: Fit, like: Fit, unit: float) -> FloatArray:
    """Convert the parameters to one vector.

    Loadings and means are divided by `unit`. The noise variance and the weights of observed values
    are replaced by their logarithms.
    """
    parts = [at.model.loadings.ravel() / unit, [np.log(at.model.noise)]]
    parts += [mean / unit for mean in at.means]
    weights = zip(at.weights, like.weights, strict=True)
    return np.concatenate([*parts, *(np.log(part[seen > 0]) for part, seen in weights)])


def _parameters(point: FloatArray, like: Fit, unit: float) -> Fit:
    """Convert a vector to parameters with the shapes and missing values of `like`.

    Extrapolated values are clipped, so that the likelihood is low instead of overflowing.
    """
    sizes = [like.model.loadings.size, 1, *map(len, like.means)]
    sizes += [int((part > 0).sum()) for part in like.weights]
    loadings, log_noise, *others = np.split(point, np.cumsum(sizes)[:-1])
    noise = float(np.exp(np.clip(log_noise[0], *np.log([_LEAST_NOISE, 1 / _LEAST_NOISE]))))
    weights = [np.zeros_like(part) for part in like.weights]
    for part, before, found in zip(weights, like.weights, others[len(like.means) :], strict=True):
        part[before > 0] = np.exp(np.clip(found, -_LARGEST, _LARGEST))
    model = Model(unit * loadings.reshape(like.model.loadings.shape), noise)
    means = tuple(unit * part for part in others[: len(like.means)])
    return Fit(model, means=means, weights=tuple(weights))


def described_model(
    loadings: FloatArray,
    noise: float,
    means: Iterable[FloatArray],
    n_shared: int,
    lift: Callable[[FloatArray], FloatArray] = np.asarray,
) -> dict[str, Any]:
    """Return fitted attributes, including the variances of the model along the components.

    `means` are the means of foreground and background. `lift` converts rows from the coordinates of
    the loadings to features.
    """
    (shared, _), (salient, components) = (
        _rotated(lift, part) for part in np.split(loadings, [n_shared], axis=1)
    )
    background = noise + ((components @ shared) ** 2).sum(axis=1)
    foreground = background + (salient**2).sum(axis=0)
    mean, background_mean = means
    return {
        "mean_": mean,
        "background_mean_": background_mean,
        "components_": components,
        "shared_loadings_": shared,
        "salient_loadings_": salient,
        "selected_": salient.any(axis=1),
        "foreground_variance_": foreground,
        "background_variance_": background,
        "contrast_index_": contrast_index(foreground, background),
    }


def _rotated(
    lift: Callable[[FloatArray], FloatArray], loadings: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Rotate the loadings so that their columns are orthogonal.

    Return these columns, (n_features, k), and the same columns as rows of unit length.
    """
    directions, lengths, _ = np.linalg.svd(loadings, full_matrices=False)
    directions[~loadings.any(axis=1)] = 0.0
    components = fix_signs(lift(directions.T))
    return components.T * lengths, components
