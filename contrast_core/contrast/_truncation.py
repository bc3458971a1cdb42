"""Truncation of a covariance to its leading eigenpairs."""

from __future__ import annotations

from numbers import Integral
from typing import Literal, TypeAlias

import numpy as np
import scipy.linalg

from contrast_core._validation import check_choice, check_count, check_number
from contrast_core.contrast._noise_bulk import noise_above, noise_bulk, numerical_rank
from contrast_core.linalg import (
    Eigenpairs,
    NotConvergedError,
    SearchSpace,
    leading_eigenpairs,
    search_components,
)
from contrast_core.moments import Moments
from contrast_core.solve import Plan

Truncation: TypeAlias = Literal["auto"] | int | float | None


def truncated_eigenpairs(
    moments: Moments, truncation: Truncation, n_components: int, n_samples: float, plan: Plan
) -> Eigenpairs:
    """Return the leading eigenpairs of a covariance that a truncation rule keeps.

    Parameters
    ----------
    moments : moments
        Mean and covariance S. In the form "products", S is known only through its products with
        vectors.
    truncation : "auto", int, float or None
        The rule. "auto" keeps the eigenvalues above the noise (see `noise_bulk`). An integer keeps
        this number of eigenvalues. A fraction up to 1 keeps the fewest eigenvalues that contain
        this fraction of the variance. None keeps all, and S must then be nonsingular.
    n_components : int
        Smallest number of eigenpairs that "auto" and a fraction keep.
    n_samples : float
        Effective number of independent rows, which only "auto" needs.
    plan : Plan
        Plan of the solver for these moments.

    Returns
    -------
    Eigenpairs
        Positive eigenvalues in descending order, (s,), and eigenvectors as rows in the coordinates
        of the moments, (s, size).

    Raises
    ------
    ValueError, TypeError
        If `truncation` is not one of these rules, or the rank of S is too low for `truncation` or
        for `n_components`.
    NotConvergedError
        If the moments are of the form "products", and the search does not find the eigenpairs.
    """
    _check_truncation(truncation, n_components, moments.n_features)
    if moments.form == "products":
        return _eigenpairs_by_products(moments, truncation, n_components, n_samples, plan)
    if truncation is None or isinstance(truncation, Integral):
        wanted = moments.n_features if truncation is None else int(truncation)
        if not moments.size:
            _check_rank(wanted, 0, f"truncation={truncation}", moments)
        k = min(wanted, moments.size)
        budget = plan.budget(moments.size, k)
        pairs = leading_eigenpairs(moments.matrix(), k, budget=budget)
        _check_rank(wanted, numerical_rank(pairs.values), f"truncation={truncation}", moments)
        return pairs
    matrix = moments.matrix()
    values = np.asarray(scipy.linalg.eigvalsh(matrix, check_finite=False)[::-1])
    rank = numerical_rank(values)
    _check_rank(n_components, rank, f"n_components={n_components}", moments)
    if isinstance(truncation, str):
        n_features = int(moments.varies.sum())
        kept = noise_bulk(values, n_features, n_samples).n_above
    else:
        sums = np.cumsum(values[:rank])
        kept = 1 + int(np.searchsorted(sums, float(truncation) * sums[-1] * (1 - 1e-12)))
    k = min(max(kept, n_components), rank)
    return leading_eigenpairs(matrix, k, budget=plan.budget(len(matrix), k))


def _eigenpairs_by_products(
    moments: Moments, truncation: Truncation, n_components: int, n_samples: float, plan: Plan
) -> Eigenpairs:
    """Find the eigenpairs that the rule keeps, in a search space that grows until it contains them.

    Of the eigenvalues outside the search space, only the sum is known. It follows from the sum of
    all eigenvalues, which is the sum of the features' variances. Therefore "auto" estimates the
    noise level here by the mean of all eigenvalues that do not exceed the noise. (If all
    eigenvalues are known, `noise_bulk` uses their median.)
    """
    if truncation is None:
        raise NotConvergedError("truncation=None needs the whole spectrum.")
    varies = moments.varies
    n_features = int(varies.sum())
    rank = min(n_features, int(moments.n_samples) - 1)
    least = int(truncation) if isinstance(truncation, Integral) else n_components
    option = "truncation" if isinstance(truncation, Integral) else "n_components"
    _check_rank(least, rank, f"{option}={least}", moments)
    trace = moments.total_variance

    crowded = False  # whether the rule keeps more eigenpairs than the space contains

    def kept(space: SearchSpace) -> int:
        """Return the number of eigenpairs in the search space that the rule keeps."""
        nonlocal crowded
        values = space.values(0.0)
        if isinstance(truncation, str):
            count = noise_above(values, trace, n_features, n_samples)
        else:
            shares = np.cumsum(values) / trace
            count = 1 + int(np.searchsorted(shares, float(truncation or 1) * (1 - 1e-12)))
        count = min(max(count, n_components), rank)
        # The search also needs the gap to the next eigenvalue, so the space must hold one more.
        most = space.size - 1
        crowded = count > most
        return min(count, most)

    result = search_components(
        lambda columns: [moments.apply(columns)],
        [moments.variances],
        least if isinstance(truncation, Integral) else kept,
        plan.max_products,
        least=least,
    )
    if crowded:
        raise NotConvergedError("the truncation keeps more eigenpairs than the search has found.")
    if result.pairs is None:
        raise NotConvergedError(
            f"the search took {plan.max_products} products of the covariance with a vector and did "
            "not find the eigenpairs to keep, because the next eigenvalues are close to theirs."
        )
    pairs = result.pairs.eigenpairs()
    _check_rank(least, numerical_rank(pairs.values), f"{option}={least}", moments)
    return pairs


def _check_truncation(truncation: object, n_components: int, n_features: int) -> None:
    others = "an integer, None, or a fraction of the variance"
    if isinstance(truncation, str):
        check_choice(truncation, "truncation", ["auto"], others)
    elif isinstance(truncation, Integral):
        reason = f"with n_components={n_components} and {n_features} features"
        check_count(
            truncation, "truncation", at_least=n_components, at_most=n_features, reason=reason
        )
    elif truncation is not None:
        reason, expected = "as a fraction of the variance", f"'auto', {others}"
        check_number(truncation, "truncation", above=0, at_most=1, expected=expected, reason=reason)


def _check_rank(wanted: int, rank: int, option: str, moments: Moments) -> None:
    if wanted > rank:
        raise ValueError(
            f"{option} asks for {wanted} directions in which the data vary, but the covariance S "
            f"has only {rank} among {moments.n_features} features ({moments.n_samples} rows), up "
            "to rounding errors. In other directions, scores cannot be scaled to unit variance. "
            "Use truncation='auto' or a smaller number."
        )
