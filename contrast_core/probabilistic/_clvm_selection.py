"""Which rows of the salient loadings, and how many shared columns, the data call for."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray
from contrast_core.probabilistic._ascent import Evaluation, ascend
from contrast_core.probabilistic._clvm_em import (
    Fit,
    Model,
    Problem,
    Scale,
    expect,
    expected_noise,
    fit_em,
    solved,
)
from contrast_core.probabilistic._clvm_horseshoe import horseshoe_support

Sparsity: TypeAlias = float | Literal["auto", "horseshoe"]

_PENALTIES = 2.0 ** np.arange(0, 20, 0.5)  # in units of the log-likelihood
_TOL = 1e-5  # of a step, in standard deviations of the noise
_EVALUATIONS = 500
_NEWTON_STEPS = 50  # about five in practice
PRIOR_SHAPE, PRIOR_RATE = (
    1e-3,
    1e-3,
)  # of the inverse gamma prior; the rate in units of the noise variance
PRUNED = 1e-2  # columns whose squared length is this share of the noise variance are none


def fit_sparse(
    problem: Problem, dense: Fit, sparsity: Sparsity, *, tol: float, max_iter: int
) -> Fit:
    r"""Maximum likelihood with salient loadings of few features.

    A group penalty selects them, or the horseshoe prior, see `horseshoe_support`.

    .. math:: \max \log L - \rho \sum_i \|w_i\| / \|\hat w_i\|

    with the rows :math:`\hat w_i` of the most likely loadings. The likelihood is then maximised
    with the rows at zero that are zero here.

    Parameters
    ----------
    problem, dense
        The likelihood, and its maximum without a penalty.
    sparsity : float, "auto" or "horseshoe"
        rho. "auto" takes, of a grid, the features of least Bayesian information criterion.
    tol, max_iter
        As for `fit_em`.

    Raises
    ------
    ValueError
        If nothing is left at the penalty given, or with the horseshoe.
    """
    limits: dict[str, Any] = {"tol": tol, "max_iter": max_iter}
    if sparsity != "auto":
        model = dense.model
        if sparsity == "horseshoe":
            support = horseshoe_support(problem, model)
            loadings = model.loadings.copy()
            loadings[~support, problem.n_shared :] = 0.0
            model = Model(loadings, model.noise)
        else:
            model = _penalised(problem, model, model, sparsity)
            support = _support(model, problem)
        if not support.any():
            given = repr(sparsity) if isinstance(sparsity, str) else f"{sparsity:g}"
            raise ValueError(
                f"sparsity={given} leaves no feature with a salient loading; use "
                "a smaller number, or 'auto'."
            )
        return fit_em(problem._replace(support=support), model, **limits)
    model, support = dense.model, _support(dense.model, problem)
    best, least = dense, _criterion(dense, support, problem)
    for rho in _PENALTIES:
        model, before = _penalised(problem, dense.model, model, rho), support
        support = _support(model, problem)
        if not support.any():
            break
        if (support != before).any():
            fit = fit_em(problem._replace(support=support), model, **limits)
            criterion = _criterion(fit, support, problem)
            if criterion < least:
                best, least = fit, criterion
    return best


def _support(model: Model, problem: Problem) -> NDArray[np.bool_]:
    return np.asarray(model.loadings[:, problem.n_shared :].any(axis=1))


def _criterion(fit: Fit, support: NDArray[np.bool_], problem: Problem) -> float:
    """Bayesian information criterion, but for what is the same for all selections."""
    n_salient = fit.model.loadings.shape[1] - problem.n_shared
    likelihood = problem.n_rows * fit.log_likelihoods[-1]
    return float(support.sum() * n_salient * np.log(problem.n_rows) - 2 * likelihood)


def _penalised(problem: Problem, dense: Model, start: Model, penalty: float) -> Model:
    """The maximum with the penalty, from a start on the way to it."""
    k, scale = problem.n_shared, Scale(start.loadings.shape, dense.noise**0.5)
    lengths = np.linalg.norm(dense.loadings[:, k:], axis=1)
    rates = np.full(len(lengths), np.inf)
    np.divide(penalty / problem.n_rows, lengths, out=rates, where=lengths > 0)

    def step(model: Model) -> tuple[float, Model]:
        value, _, cross, second = expect(model, problem)
        rows = np.linalg.norm(model.loadings[:, k:], axis=1)
        value -= float((rates[rows > 0] * rows[rows > 0]).sum())
        loadings = proximal(cross, second, k, model.noise * rates)
        return value, Model(loadings, expected_noise(loadings, cross, second, problem))

    def at(point: FloatArray) -> Evaluation:
        value, update = step(scale.model(point))
        there = scale.point(update, problem)
        return Evaluation(value, there - point, there)

    first = scale.point(start, problem)
    found = ascend(at, first, tol=_TOL, max_iter=_EVALUATIONS, smooth=False)
    return step(scale.model(found.point))[1]  # what is extrapolated need not be zero


def proximal(
    cross: FloatArray, second: FloatArray, n_shared: int, thresholds: FloatArray
) -> FloatArray:
    """The M-step's loadings with a penalty on the length of each salient row, exactly.

    Shared loadings are eliminated; a salient row w then minimises
    ``w A w^T / 2 - w b^T + threshold |w|``, which is zero where b is shorter than the threshold,
    else ``b (A + threshold / r)^-1`` with r its length.
    """
    of_shared, mixed = np.split(second[:n_shared], [n_shared], axis=1)
    shared, salient = np.split(cross, [n_shared], axis=1)
    regression = solved(of_shared, mixed.T).T
    values, vectors = np.linalg.eigh(second[n_shared:, n_shared:] - mixed.T @ regression)
    along = (salient - shared @ regression) @ vectors
    kept = np.linalg.norm(along, axis=1) > thresholds
    along, limits = along[kept], thresholds[kept, None]
    length = np.zeros((len(along), 1))
    for _ in range(_NEWTON_STEPS):  # on 1 / |..| - 1, which is nearly linear
        parts = along / (values * length + limits)
        square = (parts**2).sum(axis=1, keepdims=True)
        slope = (parts**2 * values / (values * length + limits)).sum(axis=1, keepdims=True)
        change = (square**0.5 - 1) * square / slope
        length += change
        if np.all(np.abs(change) <= 1e-12 * length):
            break
    rows = np.zeros(salient.shape)
    rows[kept] = along * length / (values * length + limits) @ vectors.T
    return np.hstack([solved(of_shared, shared - rows @ mixed.T), rows])


def relevant_shared(problem: Problem, dense: Model) -> int:
    r"""How many shared columns automatic relevance determination keeps.

    Each column of S has the prior :math:`N(0, \nu I)` with :math:`\nu` inverse gamma of shape and
    rate 0.001, the rate in units of the noise variance. What remains of the prior once
    :math:`\nu` is integrated out,

    .. math:: \log p(S) = -(D / 2 + a) \log \det(b I + S^\top S / 2),

    does not depend on the rotation of S. Its maximum with the likelihood, where one more column may
    be a local one, is compared with that of one column fewer.
    """
    k = problem.n_shared
    found, value = _with_prior(problem, dense, dense.noise)
    while True:
        directions, lengths, _ = np.linalg.svd(found.loadings[:, :k], full_matrices=False)
        kept = int((lengths**2 > PRUNED * found.noise).sum())
        if not kept:
            return 0
        fewer = found.loadings.copy()
        fewer[:, :k] = directions * np.where(np.arange(k) < kept - 1, lengths, 0.0)
        other, higher = _with_prior(problem, Model(fewer, found.noise), dense.noise)
        if higher <= value:
            return kept
        found, value = other, higher


def _with_prior(problem: Problem, start: Model, noise: float) -> tuple[Model, float]:
    """The most probable model, and its log-probability per row."""
    scale = Scale(start.loadings.shape, noise**0.5)

    def at(point: FloatArray) -> Evaluation:
        value, slope, update = evaluate_with_prior(scale.model(point), problem, PRIOR_RATE * noise)
        return Evaluation(value, scale.gradient(slope), scale.point(update, problem))

    found = ascend(at, scale.point(start, problem), tol=_TOL, max_iter=_EVALUATIONS)
    return scale.model(found.point), float(found.values[-1])


def evaluate_with_prior(model: Model, problem: Problem, rate: float) -> tuple[float, Model, Model]:
    """As `evaluate`, of the likelihood times the prior; the map majorises the latter's logarithm.

    (log det is concave, so that it lies below its tangent, which is quadratic in S.)
    """
    k = problem.n_shared
    weight = (problem.n_features / 2 + PRIOR_SHAPE) / problem.n_rows
    value, slope, cross, second = expect(model, problem)
    shared = model.loadings[:, :k]
    values, vectors = np.linalg.eigh(rate * np.eye(k) + shared.T @ shared / 2)
    precision = weight * vectors / values @ vectors.T
    value -= weight * float(np.log(values).sum())
    slope.loadings[:, :k] -= shared @ precision
    second_with = second.copy()
    second_with[:k, :k] += model.noise * precision
    loadings = solved(second_with, cross)
    return value, slope, Model(loadings, expected_noise(loadings, cross, second, problem))
