"""Maximum likelihood of the linear contrastive latent variable model, from second moments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.linalg import fix_signs, leading_eigenpairs
from contrast_core.moments import Moments
from contrast_core.probabilistic._ascent import Ascent, Evaluation, ascend
from contrast_core.probabilistic._clvm_priors import LIKELIHOOD_ALONE, Prior, Sums
from contrast_core.probabilistic._row_posterior import Model, principal_axes

_LEAST_NOISE = 1e-13  # in units of the mean variance; smaller values are rounding errors
_FIRST_NOISE = 0.1  # noise variance at the start, in the same units


class DatasetSummary(NamedTuple):
    """Summary of a dataset for the likelihood, scaled so that the mean variance of features is 1.

    weight : float
        Share of this dataset in the rows of both datasets.
    total : float
        Trace of the covariance.
    apply : callable
        Product of the covariance with columns.
    """

    weight: float
    total: float
    apply: Callable[[FloatArray], FloatArray]


class Means(NamedTuple):
    """Means of foreground and background, (n_features,) each."""

    x: FloatArray
    y: FloatArray


class Problem(NamedTuple):
    """Data and dimensions that define the likelihood.

    x, y : DatasetSummary
        Foreground and background.
    n_shared : int
        Number of shared latent variables, k.
    n_features : int
        Number of features that vary.
    n_rows : float
        Number of rows of both datasets.
    unit : float
        Standard deviation, in the units of the data, that is scaled to 1.
    """

    x: DatasetSummary
    y: DatasetSummary
    n_shared: int
    n_features: int
    n_rows: float
    unit: float

    def log_likelihoods(self, per_row: FloatArray) -> FloatArray:
        """Convert log-likelihoods per row to log-likelihoods of all rows, in the data's units."""
        return np.asarray(self.n_rows * (per_row - self.n_features * np.log(self.unit)))


class Fit(NamedTuple):
    """A model, the objective per row at each accepted step, and whether the fit converged.

    A fit to rows also holds the means, in the units of the model, and the weights of all values.
    """

    model: Model
    log_likelihoods: FloatArray
    converged: bool
    means: Means | None = None
    weights: list[FloatArray] | None = None


class _Expected(NamedTuple):
    """E-step of one dataset, per row: log-density, its gradient, and sums.

    Let C be the covariance of the dataset, B the map from rows to posterior means and G the
    posterior covariance. Then ``cross`` is ``C B^T`` and ``second`` is ``G + B C B^T``.
    """

    log_density: float
    by_loadings: FloatArray
    by_log_noise: float
    cross: FloatArray
    second: FloatArray


def _expected(side: DatasetSummary, model: Model, n_features: int) -> _Expected:
    axes, squares, precisions = principal_axes(model)
    # On these axes no digits cancel, even if columns are nearly parallel and much longer than the
    # noise.
    loadings, noise = model.loadings @ axes, model.noise
    gain = loadings / (precisions * noise)
    cross = side.apply(loadings) / (precisions * noise)
    inner = gain.T @ cross
    explained = float((loadings * cross).sum())
    log_determinant = n_features * np.log(noise) + np.log(precisions).sum()
    distance = (side.total - explained) / noise
    left = side.total - 2 * explained + float(inner.diagonal() @ squares)
    n_noise = n_features - len(axes) + (1 / precisions).sum()
    slope = (cross - loadings @ inner) / noise - gain
    return _Expected(
        -0.5 * float(n_features * np.log(2 * np.pi) + log_determinant + distance),
        slope @ axes.T,
        -0.5 * float(n_noise - left / noise),
        cross @ axes.T,
        axes @ (np.diag(1 / precisions) + inner) @ axes.T,
    )


class Expectation(NamedTuple):
    """E-step of both datasets, per row: log-likelihood, its gradient, and sums.

    The gradient is with respect to the loadings and the logarithm of the noise variance. With the
    noise variance s, the expected log-likelihood of new loadings L is, up to a constant,
    ``-(trace(L second L^T) - 2 trace(L cross^T)) / 2 s``.
    """

    log_likelihood: float
    slope: Model
    cross: FloatArray
    second: FloatArray


def expect(model: Model, problem: Problem) -> Expectation:
    """Return the E-step of both datasets, with the likelihood and its gradient."""
    x, y, k, n_features = problem[:4]
    shared = Model(model.loadings[:, :k], model.noise)
    of_x, of_y = _expected(x, model, n_features), _expected(y, shared, n_features)
    value = x.weight * of_x.log_density + y.weight * of_y.log_density
    slope = x.weight * of_x.by_loadings
    slope[:, :k] += y.weight * of_y.by_loadings
    by_log_noise = x.weight * of_x.by_log_noise + y.weight * of_y.by_log_noise

    cross, second = x.weight * of_x.cross, x.weight * of_x.second
    cross[:, :k] += y.weight * of_y.cross
    second[:k, :k] += y.weight * of_y.second
    return Expectation(value, Model(slope, by_log_noise), cross, second)


def evaluate(
    model: Model, problem: Problem, prior: Prior = LIKELIHOOD_ALONE
) -> tuple[float, Model, Model]:
    """Return log-likelihood plus log-prior per row, its gradient, and the step of EM.

    The M-step is exact for all loadings, whereas eqs. 6 and 7 of Severson et al. assume that the
    loadings are orthogonal.
    """
    value, slope, cross, second = expect(model, problem)
    before, n = model.loadings, problem.n_rows
    value += prior.value(before) / n
    slope = Model(prior.slope(slope.loadings, before, n), slope.noise)
    loadings = prior.maximised(Sums(cross, second, model.noise, n), before)
    return value, slope, Model(loadings, expected_noise(loadings, cross, second, problem))


def expected_noise(
    loadings: FloatArray, cross: FloatArray, second: FloatArray, problem: Problem
) -> float:
    """Return the noise variance of the M-step, given the new loadings."""
    total = problem.x.weight * problem.x.total + problem.y.weight * problem.y.total
    left = total - 2 * (loadings * cross).sum() + (loadings @ second * loadings).sum()
    return float(left / problem.n_features)


def fit_em(
    problem: Problem,
    start: Model,
    prior: Prior = LIKELIHOOD_ALONE,
    *,
    tol: float,
    max_iter: int,
) -> Fit:
    """Maximise the likelihood times a prior by accelerated EM.

    Parameters
    ----------
    problem, start
        The data, and where to begin.
    tol : float
        Length of the gradient at which EM ends. The gradient is that of the log-likelihood per row,
        with respect to the loadings, in units of the noise's standard deviation, and to the
        logarithm of the noise variance. If the prior has no gradient, the length of a step is used.
    max_iter : int
        Largest number of evaluations of the likelihood.

    Raises
    ------
    ValueError
        If the likelihood is unbounded: the noise variance goes to zero.
    """
    scale = Scale(start.loadings.shape, start.noise**0.5)

    def at(point: FloatArray) -> Evaluation:
        value, slope, update = evaluate(scale.model(point), problem, prior)
        there = scale.point(update, problem)
        return Evaluation(value, scale.gradient(slope) if prior.smooth else there - point, there)

    first = scale.point(start, problem)
    found: Ascent = ascend(at, first, tol=tol, max_iter=int(max_iter), smooth=prior.smooth)
    model = scale.model(found.point)
    if not prior.smooth:  # extrapolated rows of loadings need not be exactly zero
        model = evaluate(model, problem, prior)[2]
    return Fit(model, found.values, found.converged)


class Scale(NamedTuple):
    """Conversion of models to points: loadings over `unit`, then the logarithm of the noise."""

    shape: tuple[int, ...]
    unit: float

    def model(self, point: FloatArray) -> Model:
        """Return the model at a point."""
        # An extrapolated noise is clipped, so that the likelihood is low rather than out of range.
        noise = np.exp(np.clip(point[-1], *np.log([_LEAST_NOISE, 1 / _LEAST_NOISE])))
        return Model(self.unit * point[:-1].reshape(self.shape), float(noise))

    def gradient(self, slope: Model) -> FloatArray:
        """Convert a gradient of loadings and log noise variance to the gradient at a point."""
        return np.append(self.unit * slope.loadings.ravel(), slope.noise)

    def point(self, model: Model, problem: Problem) -> FloatArray:
        """Return the point of a model."""
        if not model.noise > _LEAST_NOISE:
            n_salient = self.shape[1] - problem.n_shared
            raise ValueError(
                f"{problem.n_shared} shared and {n_salient} salient latent variables explain all "
                "that varies, to working precision: nothing is left to estimate the noise from. "
                "Use fewer of them or more rows."
            )
        return np.append(model.loadings.ravel() / self.unit, np.log(model.noise))


def likelihood_problem(x: Moments, y: Moments, n_shared: int) -> Problem:
    """Return the problem of two datasets, over the features that vary in either of them."""
    n_rows = x.n_samples + y.n_samples
    n_features = int((x.varies | y.varies).sum())
    share = x.n_samples / n_rows
    variance = (share * x.total_variance + (1 - share) * y.total_variance) / n_features

    def side(part: Moments, weight: float) -> DatasetSummary:
        return DatasetSummary(
            weight, part.total_variance / variance, partial(_apply, part, variance)
        )

    x_side, y_side = side(x, share), side(y, 1 - share)
    return Problem(x_side, y_side, n_shared, n_features, n_rows, variance**0.5)


def _apply(moments: Moments, unit: float, columns: FloatArray) -> FloatArray:
    return moments.apply(columns) / unit


def first_model(x: Moments, y: Moments, problem: Problem, n_salient: int) -> Model:
    """Return the first model, from leading components of the background and of the contrast.

    Without salient variables the shared components are those of both datasets together.
    """
    k, noise = problem.n_shared, _FIRST_NOISE
    parts = [(y, 1.0)] if n_salient else [(x, problem.x.weight), (y, problem.y.weight)]
    loadings = np.zeros((x.size, k + n_salient))
    for first, count, sums in ((0, k, parts), (k, n_salient, [(x, 1.0), (y, -1.0)])):
        if not count:
            continue
        matrix = np.zeros((x.size, x.size))
        for part, weight in sums:
            matrix += (weight / problem.unit**2) * part.matrix()
        values, vectors = leading_eigenpairs(matrix, min(count, x.size), overwrite=True)
        lengths = np.sqrt(np.maximum(values - noise, noise))
        loadings[:, first : first + len(values)] = vectors.T * lengths
    return Model(loadings, noise)


def random_model(size: int, n_latent: int, rng: np.random.Generator) -> Model:
    """Return a random start with standard normal loadings, the scale of the data."""
    return Model(rng.standard_normal((size, n_latent)), _FIRST_NOISE)


def rotated(
    lift: Callable[[FloatArray], FloatArray], loadings: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return loadings of features with orthogonal columns, and unit vectors of them as rows."""
    directions, lengths, _ = np.linalg.svd(loadings, full_matrices=False)
    directions[~loadings.any(axis=1)] = 0.0
    components = fix_signs(lift(directions.T))
    return components.T * lengths, components
