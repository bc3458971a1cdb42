"""Conversion of posterior draws to ArviZ inference data, and a check that chains have converged."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.feedback import warn

_LARGEST_RHAT = 1.01  # chains count as converged if the R-hat of every variable is below this
_LEAST_ESS = 100  # least effective sample size for each chain
# Largest share of divergent draws that gives no warning. A few draws diverge where a column of the
# loadings has a length near zero, which does no harm.
_DIVERGING = 0.01
_N_WORST = 3  # the effective sample size is computed for this many variables with the largest R-hat

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
    """Return variables (chains, draws, ...) as `arviz.InferenceData`.

    The variable ``feature_weights`` is added to the result. For each component it holds the squares
    of the entries of ``components`` (..., k, D), divided by the largest of these squares.
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
    """Warn if chains disagree, an effective sample size is small or many draws diverged.

    References
    ----------
    Vehtari, Gelman, Simpson, Carpenter and Bürkner, "Rank-normalization, folding, and localization:
    an improved R-hat for assessing convergence of MCMC", Bayesian Analysis 16(2), 2021.
    """
    chains, draws = diverging.shape
    columns = np.concatenate(
        [values.reshape(chains, draws, -1) for values in variables.values()], axis=-1
    )
    arviz = import_module("arviz")
    found = arviz.rhat(arviz.convert_to_dataset({"all": columns}))["all"].to_numpy()
    rhats = np.nan_to_num(found, nan=1.0)  # a constant variable has no R-hat
    worst = np.argsort(-rhats)[:_N_WORST]
    least = min(float(arviz.ess(columns[..., i])) for i in worst)
    n_diverging = int(diverging.sum())
    enough = least >= _LEAST_ESS * chains and n_diverging <= _DIVERGING * diverging.size
    if enough and rhats[worst[0]] < _LARGEST_RHAT:
        return
    warn(
        f"the chains may not have converged: the largest R-hat is {rhats[worst[0]]:.3f} (expected "
        f"below {_LARGEST_RHAT}), the smallest effective sample size is {least:.0f} (expected at "
        f"least {_LEAST_ESS * chains}), and {n_diverging} of {diverging.size} draws diverged. Take "
        "more draws. If this does not help, use a weaker contrast, fewer components or a higher "
        "noise_floor."
    )
