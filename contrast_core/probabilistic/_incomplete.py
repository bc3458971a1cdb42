"""PCPCA of rows with missing values, by maximising the likelihood of the observed values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import OptimizeResult, minimize

from contrast_core._validation import FloatArray
from contrast_core.feedback import warn
from contrast_core.linalg import fix_signs
from contrast_core.moments import Moments, check_mix
from contrast_core.probabilistic._contrastive_model import contrastive_model
from contrast_core.probabilistic._observed_likelihood import ObservedRows
from contrast_core.probabilistic._valid_range import ValidRange, check_gamma, largest_gamma
from contrast_core.rows import Rows
from contrast_core.solve import Design, Plan, contrast_moments, solve_contrasts

# Least noise variance, in units of the mean variance. Rounding dominates below it.
_SMALLEST_NOISE = 1e-8
# Largest loading, in units of the root of the total variance. Larger loadings mean divergence.
_LARGEST_LOADING = 1e3
_LEAST_START_NOISE = 0.01  # least noise variance of a start, in units of the mean variance
# Logarithms of the noise variances of the random starts, in units of the mean variance. The
# likelihood of small incomplete data has several maxima, and starts with the same noise variance
# mostly reach the same maximum.
_RANDOM_LOG_NOISE = (-6.0, -4.0, -2.0, 0.0)
# Small data have the most local maxima, and their fits take milliseconds. The number of random
# starts is therefore _MANY_STARTS divided by the number of values, from _FEWEST to _MOST.
_MANY_STARTS, _FEWEST, _MOST = 3000, 4, 32
_ROUNDING_RIDGE = 1e-7  # ridge in the search for gamma_max, in the unit of `residual_ratio`
_SEARCH_STEPS = 200  # iterations of the search for gamma_max; more hardly change the result
_GRADIENT = 1e-8  # largest derivative, per feature, at which the iteration ends
_CONVERGED = 1e-5  # largest derivative, per feature, with which a fit counts as converged


class IncompleteRows(NamedTuple):
    """Foreground and background rows with missing values, centred and divided by `scale`.

    `filled` holds the moments of both datasets with means in place of missing values, and the
    `Plan` that says how the eigenproblem of their contrast is solved. `shares` holds, for each
    feature, the share of foreground and of background rows in which it is observed.
    """

    rows: ObservedRows
    shares: tuple[FloatArray, FloatArray]
    mean: FloatArray
    background_mean: FloatArray
    scale: float
    filled: tuple[Moments, Moments, Plan]
    names: tuple[str, ...] | None


def incomplete_rows(parts: Sequence[Rows], mix: ArrayLike | None, d: int) -> IncompleteRows:
    """Read foreground and backgrounds, and centre them by the means of the observed values.

    Rows without observed values, or with zero weight, are left out.

    Raises
    ------
    ValueError
        If rows have labels (`within`), if fewer than two rows have a value, or if a feature is
        never observed.
    """
    shares = check_mix(np.ones(len(parts) - 1) if mix is None else mix, len(parts) - 1)
    means, values, observed, weights = [], [], [], []
    for part, share in zip(parts, (1.0, *shares), strict=True):
        rows, seen, weight = observed_part(part)
        mean = _mean(rows, seen, weight)
        mean += _mean(rows - mean, seen, weight)  # corrects rounding of values far from zero
        means.append(share * mean)
        values.append(np.where(seen, rows - mean, 0.0))
        observed.append(seen)
        weights.append(share * weight)
    n = len(values[0])
    stacked, seen = np.concatenate(values), np.concatenate(observed)
    foreground, background = np.zeros((2, len(stacked)))
    foreground[:n], background[n:] = weights[0], np.concatenate(weights[1:])
    both = Design(sample_weight=foreground[:n], background_weight=background[n:])
    # This call also checks the range of the values and the scales of both datasets.
    moments = contrast_moments(
        stacked[:n], background=stacked[n:], n_components=d, products=False, design=both
    )
    scale = float(np.sqrt(moments[0].total_variance / max(1.0, foreground @ seen.sum(axis=1))))
    return IncompleteRows(
        ObservedRows.from_rows(stacked / (scale or 1.0), seen, foreground, background),
        (foreground @ seen, background @ seen),
        means[0],
        np.asarray(np.sum(means[1:], axis=0)),
        scale,
        moments,
        next((part.names for part in parts if part.names), None),
    )


def observed_part(part: Rows) -> tuple[FloatArray, NDArray[np.bool_], FloatArray]:
    """Return rows with an observed value, a mask of observed values, and normalised weights."""
    if part.codes is not None:
        raise ValueError(
            f"{part.name} has missing values, with which within= is not supported. Subtract the "
            "mean of each label's observed values first, in both datasets, and leave within out. "
            "The result is the contrast within labels."
        )
    values = part.load(dense=True).astype(np.float64, copy=False)
    seen = ~np.isnan(values)
    used = seen.any(axis=1)
    weights = np.ones(len(values)) if part.weights is None else part.weights
    used &= weights > 0
    if used.sum() < 2:
        raise ValueError(
            f"{part.name} has {used.sum()} row(s) with a value that is not missing (NaN); a "
            "variance needs at least 2."
        )
    values, seen, weights = values[used], seen[used], weights[used]
    never = np.flatnonzero(~seen.any(axis=0))
    if len(never):
        named = [repr(part.names[i]) if part.names else str(i) for i in never[:5]]
        raise ValueError(
            f"{part.name} never observes {len(never)} of its features ({', '.join(named)}"
            f"{', …' if len(never) > 5 else ''}): every value is missing (NaN). Drop these "
            "features from both datasets."
        )
    return values, seen, weights / weights.sum()


def _mean(values: FloatArray, seen: NDArray[np.bool_], weights: FloatArray) -> FloatArray:
    return np.asarray(weights @ np.where(seen, values, 0.0) / (weights @ seen))


def fit_incomplete(data: IncompleteRows, gamma: object, d: int, max_iter: int) -> dict[str, Any]:
    """Maximise the likelihood of the observed values, from several starts.

    Return the fitted attributes, in the units of the data.

    Raises
    ------
    ValueError
        If `gamma` is out of range, or the likelihood has no maximum there.
    """
    valid = _valid_range(data, d)
    strength = check_gamma(gamma, valid)
    found = [_maximum(data.rows, start, strength, max_iter) for start in _starts(data, strength, d)]
    best = min(found, key=lambda each: float(each.fun))
    loadings, log_noise = _unpacked(best.x, d)
    noise = float(np.exp(log_noise))
    _check_bounded(loadings, noise, strength, valid)
    axes, lengths, _ = np.linalg.svd(loadings, full_matrices=False)
    components = fix_signs(axes.T)
    of_foreground, of_background = data.rows.expected_variances(components, lengths, noise)
    converged = bool(np.abs(best.jac).max() <= _CONVERGED * len(loadings))
    if not converged:
        warn(
            f"PCPCA of incomplete data did not converge in {best.nit} iterations: the objective's "
            f"largest derivative is {np.abs(best.jac).max():.2g}. Raise max_iter={max_iter}, or "
            "use a smaller gamma."
        )
    # The fit was to x / scale. By the change of variables, the density of x is the density of
    # x / scale, divided by the scale once for each observed value.
    shares = data.shares
    shift = float((shares[0] - strength * shares[1]).sum() * np.log(data.scale))
    squared = data.scale**2
    model = contrastive_model(
        strength,
        valid.end,
        components,
        (lengths**2 + noise) * squared,
        noise * squared,
        (of_foreground * squared, of_background * squared),
    )
    return model | {
        "mean_": data.mean,
        "background_mean_": data.background_mean,
        "objective_": -float(best.fun) - shift,
        "start_objectives_": np.array([-float(each.fun) - shift for each in found]),
        "n_iter_": int(best.nit),
        "converged_": converged,
    }


def _valid_range(data: IncompleteRows, d: int) -> ValidRange:
    r"""Return the contrast strengths at which the likelihood can have a maximum.

    Three conditions end the range. First, at :math:`\gamma = 1` the weights of both datasets
    cancel. Second, the variance of a feature f grows without bound if f is observed too rarely in
    the foreground: if :math:`\gamma\, m_f / m \ge n_f / n`, where f is observed in n_f of the n
    rows of the foreground and in m_f of the m rows of the background. Third, the noise variance
    goes to zero if some loadings W leave a residual in the foreground that is smaller than
    :math:`\gamma` times their residual in the background. A search from several starts minimises
    the ratio of the two residuals over W. The least ratio that is found is an upper bound of the
    third limit. It equals the limit if no value is missing.
    """
    x, y = data.shares
    ratios = x / y
    feature = int(ratios.argmin())
    name = repr(data.names[feature]) if data.names else str(feature)
    share = float((x + y).mean() / 2)
    by_feature = ValidRange(1.0, d, share, "where the weights of both datasets cancel")
    if ratios[feature] < 1:
        by_feature = ValidRange(
            float(ratios[feature]),
            d,
            share,
            f"because feature {name} is observed in {100 * x[feature]:.3g}% of the foreground's "
            f"rows and {100 * y[feature]:.3g}% of the background's rows, and its variance is "
            "unbounded if gamma is at least the ratio of these numbers",
        )
    foreground, background, plan = data.filled
    closed = largest_gamma(foreground, background, d, plan)
    if not background.total_variance > _ROUNDING_RIDGE * foreground.total_variance:
        return by_feature
    complete = solve_contrasts(foreground, background, [closed, 0.0], d, plan)
    starts = [*(found.components.T for found in complete), *_random_starts(data, d)]
    end = min(_least_ratio(data.rows, start, d) for start in starts)
    if end <= _ROUNDING_RIDGE * 10:
        raise ValueError(
            f"n_components={d} components describe every observed value of the foreground (to "
            "working precision), so nothing is left to estimate the noise from and no gamma is "
            "valid. Use fewer components or more rows."
        )
    if end < by_feature.end:
        return ValidRange(end, d, share)
    return by_feature


def _least_ratio(rows: ObservedRows, start: FloatArray, d: int) -> float:
    """Return the least ratio of foreground to background residuals that a search over W finds."""

    def ratio(flat: FloatArray) -> tuple[float, FloatArray]:
        found = rows.residual_ratio(flat.reshape(-1, d), _ROUNDING_RIDGE)
        return found.value, found.by_loadings.ravel()

    options = {"maxiter": _SEARCH_STEPS, "ftol": 1e-9, "gtol": 1e-6, "maxcor": 20}
    found = minimize(ratio, start.ravel(), jac=True, method="L-BFGS-B", options=options)
    return float(np.exp(found.fun))


def _maximum(rows: ObservedRows, start: FloatArray, gamma: float, max_iter: int) -> OptimizeResult:
    """Maximise the objective by L-BFGS from a vector of loadings and log noise variance."""
    n_features = rows.values.shape[1]
    d = (len(start) - 1) // n_features

    def loss(flat: FloatArray) -> tuple[float, FloatArray]:
        found = rows.likelihood(*_unpacked(flat, d), gamma)
        return -found.value, -np.append(found.by_loadings, found.by_log_noise)

    most = _LARGEST_LOADING * np.sqrt(n_features)
    bounds = [(-most, most)] * (len(start) - 1) + [(np.log(_SMALLEST_NOISE), None)]
    options = {
        **{"maxiter": max_iter, "maxfun": 2 * max_iter + 20, "maxcor": 20},
        **{"ftol": 0.0, "gtol": _GRADIENT * n_features},
    }
    return minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)


def _unpacked(flat: FloatArray, d: int) -> tuple[FloatArray, float]:
    """Split a vector of parameters into the loadings W and the log noise variance."""
    return flat[:-1].reshape(-1, d), float(flat[-1])


def _random_starts(data: IncompleteRows, d: int) -> FloatArray:
    """Return random loadings as starts of searches, (number of starts, n_features, d)."""
    values = data.rows.values
    n_random = min(max(_MANY_STARTS // values.size, _FEWEST), _MOST)
    return np.random.default_rng(0).standard_normal((n_random, values.shape[1], d))


def _starts(data: IncompleteRows, gamma: float, d: int) -> list[FloatArray]:
    """Return starts, each of which is a vector of the loadings W and the log noise variance.

    The first two starts are the closed-form solutions, at ``gamma`` and at 0, for the data in which
    means replace missing values. The other starts are random. If there is no closed form at
    ``gamma``, the noise variance of the first start is a small share of the mean variance.
    """
    x, y, plan = data.filled
    starts, strengths = [], list(dict.fromkeys((gamma, 0.0)))
    for strength, found in zip(strengths, solve_contrasts(x, y, strengths, d, plan), strict=True):
        left = x.total_variance - strength * y.total_variance - found.values.sum()
        noise = left / data.scale**2 / ((1 - strength) * (x.n_features - d))
        noise = max(noise, _LEAST_START_NOISE)
        variances = found.values / data.scale**2 / (1 - strength)
        lengths = np.sqrt(np.maximum(variances - noise, 0.1 * noise))
        starts.append(np.append(found.components.T * lengths, np.log(noise)))
    random = zip(_random_starts(data, d), cycle(_RANDOM_LOG_NOISE), strict=False)
    return [*starts, *(np.append(W, noise) for W, noise in random)]


def _check_bounded(loadings: FloatArray, noise: float, gamma: float, valid: ValidRange) -> None:
    """Raise ValueError if the noise variance goes to zero or the loadings diverge."""
    largest = float(np.abs(loadings).max()) / np.sqrt(len(loadings))
    if noise > 2 * _SMALLEST_NOISE and largest < _LARGEST_LOADING / 2:
        return
    endless = largest >= _LARGEST_LOADING / 2
    where = "loadings grow without limit" if endless else "noise variance goes to zero"
    raise ValueError(
        f"gamma={gamma:.9g} is too strong for these incomplete data and "
        f"n_components={valid.n_components}: the likelihood has no maximum, because the {where} "
        f"(the noise variance is {noise:.2g} times the mean variance, and the largest loading is "
        f"{largest:.2g} times the root of the total variance). A gamma below "
        f"{valid.end:.9g} (gamma_max_) is necessary but not sufficient; use a smaller gamma, or "
        "fewer components."
    )
