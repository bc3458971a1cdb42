"""Steps common to all posteriors: moments, draws, diagnostics and inference data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from contrast_core._posterior._inference_data import check_converged, inference_data
from contrast_core._posterior._nuts import Draws, Target, draw_matrices
from contrast_core._validation import FloatArray, check_count, check_generator
from contrast_core.moments import Moments


def posterior_moments(model: Any) -> tuple[Moments, Moments]:
    """Return the foreground and background moments of a fitted model.

    If the model was fitted without a background, the foreground's moments are returned twice. The
    contrast strength is then 0, so the moments in place of the background have no effect.
    """
    if hasattr(model, "foreground_moments_") and not hasattr(model, "background_mean_"):
        return model.foreground_moments_, model.foreground_moments_
    model._check_moments("draws from the posterior")
    return model.foreground_moments_, model.background_moments_


def sample_posterior(
    target: Target,
    start: tuple[FloatArray, FloatArray, FloatArray],
    variables: Callable[[Draws], dict[str, FloatArray]],
    *,
    draws: object,
    chains: object,
    random_state: int | np.random.Generator | None,
    checked: Sequence[str],
    feature_names: tuple[str, ...] | None,
    **attributes: float,
) -> Any:
    """Draw from a density of matrices and return the draws as ArviZ inference data.

    Parameters
    ----------
    target : callable
        The log-density, as for `draw_matrices`.
    start : tuple of ndarray
        The arguments `start`, `spread` and `others` of `draw_matrices`.
    variables : callable
        Converts draws of matrices to the variables of the posterior.
    draws, chains, random_state
        Arguments of the user, which are checked here. The diagnostics compare chains with each
        other and the halves of each chain, so at least two chains and ten draws are needed.
    checked : sequence of str
        Variables whose convergence is checked.
    feature_names : tuple of str, optional
    **attributes
        Attributes to store with the posterior.
    """
    found = draw_matrices(
        target,
        *start,
        draws=check_count(draws, "draws", at_least=10),
        chains=check_count(chains, "chains", at_least=2),
        rng=check_generator(random_state),
    )
    named = variables(found)
    check_converged({name: named[name] for name in checked}, found.diverging)
    return inference_data(named, found.diverging, feature_names, **attributes)
