"""Draws as ArviZ inference data, checked to have converged."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from scipy.special import ndtri

from contrast_core._validation import FloatArray
from contrast_core.feedback import warn

_LARGEST_RHAT = 1.01
_LEAST_ESS = 100  # for each chain
_DIVERGING = 0.01  # share of the draws: a few, where a length is near zero, do no harm
_N_WORST = 3  # variables whose effective sample size is worked out

_DIMENSIONS = {
    "components": ["component", "feature"],
    "feature_weights": ["component", "feature"],
    "loadings": ["feature", "component"],
    "noise_variance": [],
}


def inference_data(
    variables: dict[str, FloatArray],
    diverging: Any,
    feature_names: tuple[str, ...] | None,
    **attributes: float,
) -> Any:
    """Variables (chains, draws, ...) as `arviz.InferenceData`.

    With ``components`` (..., k, D) among them come their feature weights.
    """
    components = variables["components"]
    k, n_features = components.shape[2:]
    squared = components**2
    named = variables | {"feature_weights": squared / squared.max(axis=-1, keepdims=True)}
    arviz = import_module("arviz")
    return arviz.from_dict(
        posterior=named,
        sample_stats={"diverging": diverging},
        coords={
            "component": np.arange(k),
            "feature": np.arange(n_features) if feature_names is None else list(feature_names),
        },
        dims={name: _DIMENSIONS[name] for name in named},
        posterior_attrs=attributes,
    )


def check_converged(variables: dict[str, FloatArray], diverging: Any) -> None:
    """Warn unless chains agree, draws are worth enough, and hardly any diverged.

    References
    ----------
    Vehtari, Gelman, Simpson, Carpenter and Bürkner, "Rank-normalization, folding, and localization:
    an improved R-hat for assessing convergence of MCMC", Bayesian Analysis 16(2), 2021.
    """
    chains, draws = diverging.shape
    columns = np.concatenate(
        [values.reshape(chains, draws, -1) for values in variables.values()], axis=-1
    )
    rhats = rank_rhat(columns)
    worst = np.argsort(-rhats)[:_N_WORST]
    ess = import_module("arviz").ess
    least = min(float(ess(columns[..., i])) for i in worst)
    n_diverging = int(diverging.sum())
    enough = least >= _LEAST_ESS * chains and n_diverging <= _DIVERGING * diverging.size
    if enough and rhats[worst[0]] < _LARGEST_RHAT:
        return
    warn(
        f"the chains may not have converged: the largest R-hat is {rhats[worst[0]]:.3f} (expected "
        f"below {_LARGEST_RHAT}), the smallest effective sample size {least:.0f} (expected at "
        f"least {_LEAST_ESS * chains}), and {n_diverging} of {diverging.size} draws diverged. Take "
        "more draws; where that does not help, a weaker contrast, fewer components or a higher "
        "noise_floor."
    )


def rank_rhat(draws: FloatArray) -> FloatArray:
    """Rank-normalised split R-hat of many variables, (chains, draws, v), shape (v,).

    The larger of that of the values and that of their distances from the median. ArviZ's takes
    milliseconds for each variable, and there are as many as entries of the loadings.
    """
    n = draws.shape[1]
    half = n // 2
    halves = np.concatenate([draws[:, :half], draws[:, n - half :]])
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    return np.maximum(_rhat(_normalised(halves)), _rhat(_normalised(folded)))


def _normalised(draws: FloatArray) -> FloatArray:
    flat = draws.reshape(-1, draws.shape[-1])
    ranks = import_module("scipy.stats").rankdata(flat, axis=0)
    return np.asarray(ndtri((ranks - 0.375) / (len(flat) + 0.25))).reshape(draws.shape)


def _rhat(draws: FloatArray) -> FloatArray:
    n = draws.shape[1]
    within = draws.var(axis=1, ddof=1).mean(axis=0)
    between = draws.mean(axis=1).var(axis=0, ddof=1)
    # What is the same in all draws has no spread to compare.
    ratio = np.divide(between, within, out=np.zeros_like(within), where=within > 0)
    return np.asarray(np.sqrt((n - 1) / n + ratio))
