"""The contrastive latent variable model of rows with missing values, or with outliers."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray, check_choice
from contrast_core.probabilistic._clvm_em import (
    Model,
    first_model,
    fit_em,
    likelihood_problem,
    random_model,
    rotated,
)
from contrast_core.probabilistic._clvm_posterior import Tails
from contrast_core.probabilistic._clvm_rows import Means, RowFit, fit_rows
from contrast_core.probabilistic._incomplete import observed_part
from contrast_core.rows import Rows, check_device
from contrast_core.solve import Design, contrast_index, contrast_moments

_CLIPPED_AT = 4.5  # median absolute deviations: where the rows that give a start are cut off
_START_TOL = 1e-3


class ObservedRows(NamedTuple):
    """Foreground and background about their medians, in units in which features vary by about 1.

    x, y : ndarrays of shape (n, size) and (m, size)
        Of the features that vary in either; NaN where nothing was observed.
    clipped : tuple of ndarrays
        The same without outliers, and with 0 for what is missing.
    varies : ndarray of bool of shape (n_features,)
        Which features these are.
    medians : Means
        In the units of the data, of all features.
    unit : float
        Of the data, what counts as 1.
    names : tuple of str, optional
        Of all features.
    """

    x: FloatArray
    y: FloatArray
    clipped: tuple[FloatArray, FloatArray]
    varies: NDArray[np.bool_]
    medians: Means
    unit: float
    names: tuple[str, ...] | None


def check_tails(robust: object, likelihood: object, inference: object) -> Tails:
    """What `robust` and `likelihood` ask for, and whether `inference` can do it."""
    by = check_choice(inference, "inference", ["em", "vi"])
    of = check_choice(likelihood, "likelihood", ["normal", "counts"])
    if of == "counts":
        if robust is not None:
            raise ValueError(
                f"robust={robust!r} is of normal noise; likelihood='counts' has tails of its own: "
                "leave one of them out."
            )
        if by == "em":
            raise ValueError(
                "likelihood='counts' has no closed form: give inference='vi' as well, or fit "
                "logarithms of normalised counts."
            )
        return "counts"
    if robust is None:
        return "normal"
    found = check_choice(robust, "robust", ["entries", "rows"], "None")
    return "rows" if found == "rows" else "entries"


def check_combination(
    parts: Sequence[Rows], design: Design, what: str, *, sparsity: bool = False, ard: bool = False
) -> None:
    """Refuse what a fit from rows does not combine with."""
    centre = "subtract each group's mean or median first, in foreground and background"
    refused = {
        "sparsity": (sparsity, "leave it out, or give inference='vi' and sparsity='horseshoe'"),
        "ard": (ard, "leave it out and give n_shared, or give inference='vi'"),
        "groups": (design.groups is not None, centre),
        "background_groups": (design.background_groups is not None, centre),
        "sample_weight": (design.sample_weight is not None, "leave it out, or repeat rows"),
        "background_weight": (design.background_weight is not None, "leave it out, or repeat rows"),
        "background_mix": (design.background_mix is not None, "leave it out"),
        "several backgrounds": (len(parts) > 2, "stack them, each about its own mean"),
    }
    for name, (given, remedy) in refused.items():
        if given:
            raise ValueError(f"CLVM does not combine {what} with {name}: {remedy}.")


def check_in_memory(parts: Sequence[Rows], what: str) -> None:
    """Refuse rows that cannot be read again and again."""
    for part in parts:
        if not (part.in_memory and (part.can_miss or part.is_sparse)):
            raise TypeError(
                f"{part.name} is not an array, DataFrame or sparse matrix in memory, which {what} "
                "needs, for it reads the rows again and again: convert it."
            )


def check_streamed(parts: Sequence[Rows], design: Design) -> None:
    """Refuse what stochastic inference cannot take."""
    if not parts:
        raise TypeError(
            "inference='vi' reads rows, which moments do not hold: give the data instead, or "
            "inference='em'."
        )
    check_combination(parts, design, "inference='vi'")
    for part in parts:
        if np.isnan(part.shape[0]):
            raise ValueError(
                f"{part.name} is a dask array with chunks of unknown size: call "
                "compute_chunk_sizes() on it first."
            )


def check_torch(device: object) -> Any:
    """The device to compute on."""
    try:
        import_module("torch")
    except ImportError as error:
        raise ImportError(
            "inference='vi' needs torch; install contrast-suite[torch], or give inference='em'."
        ) from error
    return check_device("cpu" if device is None else device)


def observed_rows(foreground: Rows, background: Rows) -> ObservedRows:
    """Read both datasets.

    Raises
    ------
    ValueError
        If fewer than two rows have a value, a feature is never observed, or the values leave the
        range in which squares can be computed with.
    """
    values = [observed_part(part)[0] for part in (foreground, background)]
    varies = np.any([np.nanmax(v, axis=0) > np.nanmin(v, axis=0) for v in values], axis=0)
    medians = Means(*(np.nanmedian(v, axis=0) for v in values))
    left = [(v - m)[:, varies] for v, m in zip(values, medians, strict=True)]
    clipped = [_clipped(v) for v in left]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squares = [float((c**2).sum()) for c in clipped]
    unit = float(np.sqrt(sum(squares) / max(1, sum(int((~np.isnan(v)).sum()) for v in left))))
    if varies.any() and not 1e-150 < unit < 1e150:
        raise ValueError(
            f"the values vary by {unit:.3g}, beyond what can be squared; rescale both datasets."
        )
    unit = unit or 1.0
    x, y = (v / unit for v in left)
    cut = (clipped[0] / unit, clipped[1] / unit)
    names = foreground.names or background.names
    return ObservedRows(x, y, cut, varies, medians, unit, names)


def _clipped(left: FloatArray) -> FloatArray:
    """Rows with entries of some deviations at most, the longest made as long as the median."""
    if not left.size:
        return left
    deviations = np.nanmedian(np.abs(left), axis=0)
    # Where most values are the same, none is an outlier by this.
    most = np.where(deviations > 0, _CLIPPED_AT * deviations, np.inf)
    cut = np.clip(np.where(np.isnan(left), 0.0, left), -most, most)
    lengths = np.sqrt((cut**2).mean(axis=1))
    return np.asarray(cut / np.maximum(1.0, lengths / (np.median(lengths) or np.inf))[:, None])


def fit_observed(
    rows: ObservedRows,
    n_shared: int,
    n_salient: int,
    tails: Tails,
    rngs: Sequence[np.random.Generator],
    *,
    tol: float,
    max_iter: int,
) -> RowFit:
    """The most likely model of several starts, in the units and features of the data.

    The first start is the normal model of the clipped rows, each of `rngs` gives a random one.

    Raises
    ------
    ValueError
        If the likelihood is unbounded.
    """
    size, n_latent = rows.x.shape[1], n_shared + n_salient
    x, y, _ = contrast_moments(rows.clipped[0], rows.clipped[1], products=False)
    problem = likelihood_problem(x, y, n_shared)
    first = fit_em(problem, first_model(x, y, problem, n_salient), tol=_START_TOL, max_iter=500)
    model = first.model
    loadings = x.lift(model.loadings.T).T * problem.unit
    starts = [Model(loadings, model.noise * problem.unit**2)]
    starts += [random_model(size, n_latent, rng) for rng in rngs]
    zeros = Means(np.zeros(size), np.zeros(size))
    fits = [
        fit_rows(*(rows.x, rows.y, start, zeros, n_shared), tails=tails, tol=tol, max_iter=max_iter)
        for start in starts
    ]
    best = max(fits, key=lambda fit: fit.log_likelihoods[-1])
    whole = np.zeros((len(rows.varies), n_latent))
    whole[rows.varies] = rows.unit * best.model.loadings
    means = [median.copy() for median in rows.medians]
    for mean, found in zip(means, best.means, strict=True):
        mean[rows.varies] += rows.unit * found
    n_values = sum(int((~np.isnan(part)).sum()) for part in (rows.x, rows.y))
    return RowFit(
        Model(whole, best.model.noise * rows.unit**2),
        Means(*means),
        best.log_likelihoods - n_values * np.log(rows.unit),
        best.converged,
    )


def described(fit: RowFit, n_shared: int) -> dict[str, Any]:
    """Fitted attributes, of loadings with the shared ones first."""
    attributes = described_model(*fit.model, fit.means, n_shared)
    return attributes | {
        "noise_variance_": fit.model.noise,
        "log_likelihoods_": fit.log_likelihoods,
        "n_iter_": len(fit.log_likelihoods) - 1,
        "converged_": fit.converged,
    }


def described_model(
    loadings: FloatArray, noise: float, means: Means, n_shared: int
) -> dict[str, Any]:
    """What loadings and means tell, with the model's variances along the components."""
    (shared, _), (salient, components) = (
        rotated(np.asarray, part) for part in np.split(loadings, [n_shared], axis=1)
    )
    background = noise + ((components @ shared) ** 2).sum(axis=1)
    foreground = background + (salient**2).sum(axis=0)
    return {
        "mean_": means.x,
        "background_mean_": means.y,
        "components_": components,
        "shared_loadings_": shared,
        "salient_loadings_": salient,
        "selected_": salient.any(axis=1),
        "foreground_variance_": foreground,
        "background_variance_": background,
        "contrast_index_": contrast_index(foreground, background),
    }
