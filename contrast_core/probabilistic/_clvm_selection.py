"""Selection of the features with salient loadings, and of the number of shared dimensions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contrast_core.feedback import warn
from contrast_core.probabilistic._clvm_likelihood import Fit, Likelihood, Selected
from contrast_core.probabilistic._clvm_priors import Penalty, Relevance, Sparsity, Support
from contrast_core.probabilistic._row_posterior import Model

_PENALTIES = 2.0 ** np.arange(0, 20, 0.5)  # values of rho, in units of the log-likelihood
PRUNED = 1e-2  # columns whose squared length is below this share of the noise variance are removed


def fit_selected(likelihood: Likelihood) -> Selected:
    """Maximise the likelihood, and select shared dimensions and features if requested.

    Raises
    ------
    ValueError
        If the likelihood is unbounded, or if no salient loadings are left.
    """
    best = likelihood.most_likely()
    if likelihood.search.ard and likelihood.n_shared:
        least = int(not likelihood.search.n_salient)
        likelihood = likelihood.with_shared(max(relevant_shared(likelihood, best), least))
        best = likelihood.most_likely()
    return fit_sparse(likelihood, best)


def fit_sparse(likelihood: Likelihood, dense: Fit) -> Selected:
    r"""Maximise the likelihood, and select the features with salient loadings as `sparsity` says.

    If `sparsity` is a number or "auto", an adaptive group penalty selects the features. A feature
    is selected if its row :math:`w_i` of the salient loadings is not zero at the maximum of

    .. math:: \log L - \rho \sum_i \|w_i\| / \|\hat w_i\|

    with the rows :math:`\hat w_i` of the unpenalised fit. The likelihood is then maximised with the
    other rows held at zero. The sparsity "auto" tries a grid of rho and takes the selection with
    the smallest Bayesian information criterion. If the criterion is smallest without salient latent
    variables, the model has none, and a warning says so.

    Parameters
    ----------
    likelihood, dense
        The likelihood, and the fit that maximises it without a penalty.

    Raises
    ------
    ValueError
        If a given rho or the horseshoe leaves no feature.
    """
    k, sparsity = likelihood.n_shared, likelihood.search.sparsity
    if sparsity is None:
        return Selected(dense, k)
    if sparsity != "auto":
        start, shrunk = dense, None
        if sparsity == "horseshoe":
            shrunk = likelihood.horseshoe(dense)
            support = shrunk <= likelihood.search.priors.horseshoe_probability
        else:
            start = _penalised(likelihood, dense, dense, sparsity)
            support = _support(start, k)
        check_support(support, sparsity)
        return Selected(_with_rows(likelihood, start, support), k, shrunk)
    start, support = dense, _support(dense, k)
    best = Selected(dense, k)
    least = _criterion(dense, support, likelihood)
    none = _without_salient(likelihood, dense)
    of_none = _criterion(none, np.zeros_like(support), likelihood)
    for rho in _PENALTIES:
        start, before = _penalised(likelihood, dense, start, rho), support
        support = _support(start, k)
        if not support.any():
            break
        if (support != before).any():
            fit = _with_rows(likelihood, start, support)
            criterion = _criterion(fit, support, likelihood)
            if criterion < least:
                best, least = Selected(fit, k), criterion
            elif -2 * likelihood.n_rows * fit.log_likelihoods[-1] > least:
                break  # a stronger penalty lowers the likelihood further
    if of_none < least:
        warn(
            "sparsity='auto' finds no feature with a salient loading: the Bayesian information "
            f"criterion is lower by {least - of_none:.3g} without salient latent variables, so the "
            "model has none. The foreground may have no variation of its own. To fit this model "
            "without a search, give n_salient=0."
        )
        return Selected(none, k)
    return best


def check_support(support: NDArray[np.bool_], sparsity: Sparsity) -> None:
    """Raise ValueError if no feature has a salient loading."""
    if not support.any():
        given, remedy = (
            repr(sparsity),
            "the foreground may have no variation of its own: leave sparsity out",
        )
        if not isinstance(sparsity, str):
            given, remedy = f"{sparsity:g}", "use a smaller number, or 'auto'"
        raise ValueError(f"sparsity={given} leaves no feature with a salient loading; {remedy}.")


def _support(fit: Fit, n_shared: int) -> NDArray[np.bool_]:
    """Return which features have a salient loading."""
    return np.asarray(fit.model.loadings[:, n_shared:].any(axis=1))


def _with_rows(likelihood: Likelihood, start: Fit, support: NDArray[np.bool_]) -> Fit:
    """Maximise the likelihood with salient loadings only for the features in `support`."""
    loadings = start.model.loadings.copy()
    loadings[~support, likelihood.n_shared :] = 0.0
    start = start._replace(model=Model(loadings, start.model.noise))
    return likelihood.climb(start, Support(likelihood.n_shared, support))


def _without_salient(likelihood: Likelihood, dense: Fit) -> Fit:
    """Maximise the likelihood of the model without salient latent variables."""
    loadings, noise = dense.model
    start = Model(loadings[:, : likelihood.n_shared].copy(), noise)
    return likelihood.climb(dense._replace(model=start))


def _criterion(fit: Fit, support: NDArray[np.bool_], likelihood: Likelihood) -> float:
    """Return the Bayesian information criterion plus a constant that all selections share."""
    n_salient = fit.model.loadings.shape[1] - likelihood.n_shared
    total = likelihood.n_rows * fit.log_likelihoods[-1]
    return float(support.sum() * n_salient * np.log(likelihood.n_rows) - 2 * total)


def _penalised(likelihood: Likelihood, dense: Fit, start: Fit, penalty: float) -> Fit:
    """Maximise the penalised likelihood from the given start."""
    k, groups = likelihood.n_shared, likelihood.groups
    prior = Penalty.adaptive(penalty, dense.model.loadings, k, groups)
    if not likelihood.search.priors.adaptive_penalty:  # rho applies to lengths in data units
        prior = Penalty(k, np.full(len(prior.rates), penalty * likelihood.unit), groups)
    return likelihood.climb(start, prior, roughly=True)


def relevant_shared(likelihood: Likelihood, dense: Fit) -> int:
    r"""Return the number of shared columns that automatic relevance determination keeps.

    Each column of the shared loadings S has the prior :math:`N(0, \nu I)`, where :math:`\nu` is
    inverse gamma with a rate in units of the noise variance; see `Relevance`. The likelihood times
    this prior can have a local maximum at which S has one column too many. Each search is therefore
    followed by another search that starts with one column fewer, until this does not lead to a
    higher maximum.
    """
    k, noise = likelihood.n_shared, dense.model.noise
    priors = likelihood.search.priors
    prior = Relevance(k, likelihood.n_features, priors.ard_shape, priors.ard_rate * noise)
    found = likelihood.climb(dense, prior, roughly=True)
    while True:
        loadings, noise = found.model
        directions, lengths, _ = np.linalg.svd(loadings[:, :k], full_matrices=False)
        kept = int((lengths**2 > PRUNED * noise).sum())
        if not kept:
            return 0
        fewer = loadings.copy()
        fewer[:, :k] = directions * np.where(np.arange(k) < kept - 1, lengths, 0.0)
        start = found._replace(model=Model(fewer, noise))
        other = likelihood.climb(start, prior, roughly=True)
        if other.log_likelihoods[-1] <= found.log_likelihoods[-1]:
            return kept
        found = other
