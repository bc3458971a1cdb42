"""The start of stochastic variational inference: a fit by expectation maximisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray
from contrast_core.moments._feature_moments import FeatureMoments
from contrast_core.probabilistic._clvm_checks import check_dimensions
from contrast_core.probabilistic._clvm_counts import checked_counts
from contrast_core.probabilistic._clvm_likelihood import Search
from contrast_core.probabilistic._clvm_moments import MomentLikelihood
from contrast_core.probabilistic._clvm_rows import RowLikelihood, observed_rows
from contrast_core.probabilistic._clvm_selection import fit_selected
from contrast_core.probabilistic._latent_model import any_missing
from contrast_core.probabilistic._row_posterior import Tails
from contrast_core.rows import ELEMENTS, Rows, rows_of
from contrast_core.solve import contrast_moments

_LEAST_ROWS = 500  # least number of rows that are sampled to find a start
_TOL, _STEPS = 1e-3, 300  # limits of EM from rows
_EXACT_TOL, _EXACT_STEPS = 1e-6, 3000  # limits of EM from moments
_DISPERSION = 10.0  # dispersion of all features at the start
_MOST_STRETCH = 4.0  # largest factor between loadings of log(y) and of log(1 + y), for counts y
_NEVER = -100.0  # log share of a feature without counts, in place of minus infinity


class Start(NamedTuple):
    """First parameters, for the `size` features that vary in either dataset.

    The model has k shared and t salient latent variables.

    loadings : ndarray of shape (size, k + t)
        Loadings divided by `unit`. The shared columns come first.
    means : ndarray of shape (2, size)
        Means of foreground and background, in the units of the data. For counts, logarithms of each
        feature's share of a row's total.
    log_scale : ndarray of shape (1,) or (size,)
        Logarithm of the noise variance divided by the square of `unit`. For counts, logarithms of
        the dispersions.
    n_shared : int
        Number of shared columns, k.
    unit : float
        Standard deviation of the noise, in the units of the data; 1 for counts.
    spread : float
        Mean standard deviation of the features, divided by `unit`; 1 for counts.
    varies : ndarray of bool of shape (n_features,)
        Which features vary.
    all_means : ndarray of shape (2, n_features)
        As `means`, for all features.
    total : float
        For counts, the mean total of a row of the foreground.
    """

    loadings: FloatArray
    means: FloatArray
    log_scale: FloatArray
    n_shared: int
    unit: float
    spread: float
    varies: NDArray[np.bool_]
    all_means: FloatArray
    total: float = 1.0

    @property
    def noise(self) -> float:
        """Noise variance in units of `unit` squared; not defined for counts."""
        return float(np.exp(self.log_scale[0]))


def modelled(parts: Sequence[Rows], tails: Tails) -> NDArray[np.bool_]:
    """Return which features vary in foreground or background, (n_features,).

    For counts, constant features are included unless they are zero in both datasets, because their
    share of a row's total can vary.
    """
    if any_missing(parts):
        return observed_rows(*parts).varies
    found = [FeatureMoments.from_data(part) for part in parts]
    counts = tails == "counts"
    return np.asarray(np.any([each.varies | (counts & (each.mean != 0)) for each in found], axis=0))


def starting_point(
    parts: Sequence[Rows],
    varies: NDArray[np.bool_],
    n_shared: int,
    search: Search,
    tails: Tails,
) -> Start:
    """Fit a model by expectation maximisation, and return it as a start.

    If the noise is normal and no value is missing, the model is fitted to the moments of all rows.
    Otherwise it is fitted to a sample of rows that fits into memory, or to all rows if values are
    missing. If `search.sparsity` is a number or "auto", a penalty selects the features with salient
    loadings. The horseshoe and relevance determination are not used for the start.
    """
    sparsity = None if search.sparsity == "horseshoe" else search.sparsity
    search = search._replace(n_init=1, tol=_TOL, max_iter=_STEPS, sparsity=sparsity, ard=False)
    if tails == "counts":
        return _count_start(parts, varies, n_shared, search)
    if tails == "normal" and not any_missing(parts):
        # A penalty selects rows of the loadings, so each of these rows must belong to a feature.
        # If the data have more features than rows, the solver "auto" uses coordinates in the span
        # of the data in place of the features. The solver "eigh" always keeps the features.
        solver = "auto" if sparsity is None else "eigh"
        x, y, _ = contrast_moments(*parts, solver=solver, products=False)
        exact = search._replace(tol=_EXACT_TOL, max_iter=_EXACT_STEPS)
        of_moments = MomentLikelihood.from_moments(x, y, n_shared, exact)
        model, unit = fit_selected(of_moments).fit.model, of_moments.unit
        loadings = x.lift(model.loadings.T).T * unit
        means, noise = np.array([x.mean, y.mean]), model.noise * unit**2
    else:
        some, search = _sampled(parts, search)
        rows = observed_rows(*some)
        of_rows = RowLikelihood.from_rows(rows, tails, n_shared, search)
        (loadings, noise), both = of_rows.whole(fit_selected(of_rows).fit)
        means, unit = np.array(both), rows.unit
    scale = float(noise**0.5)
    return Start(
        loadings[varies] / scale,
        means[:, varies],
        np.zeros(1),
        n_shared,
        unit=scale,
        spread=float(unit / scale),
        varies=varies,
        all_means=means,
    )


def _count_start(
    parts: Sequence[Rows],
    varies: NDArray[np.bool_],
    n_shared: int,
    search: Search,
) -> Start:
    """Return a start from a fit to log(1 + y), where y are counts scaled to equal row totals."""
    priors = replace(search.priors, feature_groups=search.priors.groups_of(varies))
    search = search._replace(priors=priors)
    sampled, search = _sampled(parts, search)
    some = [checked_counts(part.load(dense=True), part.name)[:, varies] for part in sampled]
    sums = [FeatureMoments.from_data(part).mean for part in parts]
    for part, mean in zip(parts, sums, strict=True):
        if not mean.any():
            raise ValueError(
                f"{part.name} contains only zeros, but noise='counts' models each feature's share "
                "of a row's total. Give the raw counts."
            )
    totals = [np.maximum(rows.sum(axis=1, keepdims=True), 1.0) for rows in some]
    typical = np.mean([total.mean() for total in totals])
    level = [rows * (typical / total) for rows, total in zip(some, totals, strict=True)]
    rows = observed_rows(*(rows_of(np.log1p(each)) for each in level))
    # Fewer features may vary after the rows were scaled to the same total.
    check_dimensions(n_shared, search.n_salient, int(rows.varies.sum()))
    of_logarithms = RowLikelihood.from_rows(rows, "normal", n_shared, search)
    found = fit_selected(of_logarithms).fit
    # The model describes log(y), but the fit was to log(1 + y). If log(y) rises by a small amount,
    # log(1 + y) rises by only y / (1 + y) of it. The loadings are therefore divided by this factor.
    average = np.mean([each.mean(axis=0) for each in level], axis=0)
    stretch = np.minimum((1 + average) / np.maximum(average, 1e-9), _MOST_STRETCH)
    loadings = of_logarithms.whole(found)[0].loadings * stretch[:, None]
    shares = np.array(
        [np.log(mean + 0.5 / part.shape[0]) for mean, part in zip(sums, parts, strict=True)]
    )
    shares -= np.log([[mean.sum()] for mean in sums])
    shares[:, ~varies] = _NEVER
    means = shares[:, varies]
    # The expected share is exp(mean + |loadings|^2 / 2), because latent variables are standard
    # normal.
    means[0] -= (loadings[:, n_shared:] ** 2).sum(axis=1) / 2
    means -= (loadings[:, :n_shared] ** 2).sum(axis=1) / 2
    dispersions = np.full(len(loadings), np.log(_DISPERSION))
    return Start(
        *(loadings, means, dispersions, n_shared, 1.0, 1.0, varies, shares),
        total=float(sums[0].sum()),
    )


def _sampled(parts: Sequence[Rows], search: Search) -> tuple[list[Rows], Search]:
    """Sample as many rows as fit into memory, or return all rows if values are missing.

    A penalty is in units of the log-likelihood of all rows, so it is multiplied by the share of the
    rows that are returned.
    """
    some = []
    for part in parts:
        n, most = part.shape[0], max(_LEAST_ROWS, ELEMENTS // part.shape[1])
        if n > most and not part.any_missing():
            part = part.take(np.sort(search.rng.choice(n, most, replace=False)))
        some.append(part)
    if isinstance(search.sparsity, float):
        share = sum(part.shape[0] for part in some) / sum(part.shape[0] for part in parts)
        search = search._replace(sparsity=share * search.sparsity)
    return some, search
